/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of an xfer on the lane thread: a slot is taken, a write is copied to staging and
 * summed, the request goes to the ring; what comes back goes on, is tried again, is summed, or
 * ends. Sums of much are shared with helpers (digest.h).
 */
#define _GNU_SOURCE
#include "tiers/nvme_inside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

/* Prepared requests are handed to the kernel when they reach this much: the device works on the
 * first block while the next is copied, and small ones still share a system call. */
#define SUBMIT_BYTES KIB(256)
/* The lane sums so many bytes (about 0.1 ms) before the device is given new work. */
#define SUM_BYTES MIB(1)
/* What is shorter costs less than handing it over. */
#define SHARE_BYTES KIB(128)

#define ERRORS_MAX 3   /* EIO: so many times again, then it is the result */
#define AGAIN_MAX  200 /* EAGAIN, EINTR */
#define STALLS_MAX 32  /* requests in a row that moved nothing */
#define BACK_OFF   (NS_PER_MS / 4)

/* Slots */

static struct nvme_slot *slot_take(struct nvme *n)
{
	struct nvme_slot *s = list_entry(list_pop_front(&n->free), struct nvme_slot, link);

	ASSERT(s->state == NVME_SLOT_FREE && !list_linked(&s->write));
	n->slots_used++;
	return s;
}

void nvme_slot_give(struct nvme *n, struct nvme_slot *s)
{
	ASSERT(s->state == NVME_SLOT_DONE && n->slots_used > 0);
	n->slots_used--;
	s->state = NVME_SLOT_FREE;
	s->xfer = NULL;
	list_push_front(&n->free, &s->link);
}

static void set_timer(struct nvme *n, struct nvme_slot *s, enum nvme_slot_state state,
		      uint64_t delay_ns)
{
	s->state = state;
	s->due_ns = delay_ns == FAULT_NEVER ? FAULT_NEVER : clock_now_ns() + delay_ns;
	list_push_back(&n->timed, &s->link);
}

static const char *op_name(uint8_t op)
{
	return op == XFER_READ ? "read" : op == XFER_WRITE ? "write" : "sync";
}

/* Requests */

void nvme_submit(struct nvme *n)
{
	int r;

	n->unsubmitted_bytes = 0;
	if (io_uring_sq_ready(&n->ring.uring) == 0)
		return;
	r = io_uring_submit(&n->ring.uring);
	/* Short of memory or of room for completions: what stays in the ring goes with the next
	 * submission, at the latest the one in wait(). */
	if (r >= 0 || r == -EAGAIN || r == -EBUSY || r == -EINTR)
		return;
	log_error(TIER, "%s: io_uring_enter: %s", n->base.name, strerrorname_np(-r));
	ASSERT(!"the kernel takes requests");
}

struct io_uring_sqe *nvme_take_sqe(struct nvme *n)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&n->ring.uring);

	/* The ring has room for one request a slot, two polls and a timeout: there are never
	 * more. */
	ASSERT(sqe != NULL);
	return sqe;
}

static void prepare_rw(struct nvme *n, struct nvme_slot *s, struct io_uring_sqe *sqe, int fd)
{
	unsigned char *at = s->buffer + s->from;
	unsigned bytes = (unsigned)(s->length - s->from);
	uint64_t offset = n->file.start + s->xfer->offset + s->from;

	if (s->xfer->op == XFER_READ && s->buffer_index >= 0)
		io_uring_prep_read_fixed(sqe, fd, at, bytes, offset, s->buffer_index);
	else if (s->xfer->op == XFER_READ)
		io_uring_prep_read(sqe, fd, at, bytes, offset);
	else if (s->buffer_index >= 0)
		io_uring_prep_write_fixed(sqe, fd, at, bytes, offset, s->buffer_index);
	else
		io_uring_prep_write(sqe, fd, at, bytes, offset);
	n->unsubmitted_bytes += bytes;
}

static void issue(struct nvme *n, struct nvme_slot *s)
{
	int fd = n->ring.file_registered ? 0 : n->file.fd;
	struct io_uring_sqe *sqe = nvme_take_sqe(n);

	ASSERT(s->from % n->file.unit == 0 && s->from <= s->length);
	if (s->xfer->op == XFER_SYNC) {
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
	} else {
		n->in_flight += !s->on_device;
		s->on_device = true;
		prepare_rw(n, s, sqe, fd);
	}
	if (n->ring.file_registered)
		io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	s->tag = ++n->tags;
	io_uring_sqe_set_data64(sqe, NVME_DATA(s - n->slots, s->tag));
	s->state = NVME_SLOT_FLIGHT;
	if (n->unsubmitted_bytes >= SUBMIT_BYTES)
		nvme_submit(n);
}

void nvme_xfer_refill(struct nvme *n)
{
	unsigned depth = (unsigned)n->config->options.queue_depth;

	for (int i = 0; i < 2; i++) {
		unsigned limit = depth + (i == 0 ? MAX(depth / NVME_AHEAD_SHARE, 1u) : 0);

		while (!list_empty(&n->ready[i]) && n->in_flight < limit) {
			struct nvme_slot *s = list_first(&n->ready[i], struct nvme_slot, link);

			ASSERT(s->state == NVME_SLOT_READY);
			list_remove(&s->link);
			issue(n, s);
		}
	}
}

static void make_ready(struct nvme *n, struct nvme_slot *s)
{
	s->state = NVME_SLOT_READY;
	list_push_back(&n->ready[s->xfer->priority != XFER_DEMAND], &s->link);
}

/* The device has done its part, well or not. */
static void leave_device(struct nvme *n, struct nvme_slot *s)
{
	ASSERT(s->on_device && n->in_flight > 0);
	n->in_flight--;
	s->on_device = false;
}

/* A sync begins when no write that was queued before it is still on its way. */
static void start_syncs(struct nvme *n)
{
	while (!list_empty(&n->waiting)) {
		struct nvme_slot *sync = list_first(&n->waiting, struct nvme_slot, link);

		if (!list_empty(&n->writes) &&
		    list_first(&n->writes, struct nvme_slot, write)->order < sync->order)
			return;
		list_remove(&sync->link);
		issue(n, sync);
	}
}

/* Ends */

static void end_write(struct nvme *n, struct nvme_slot *s)
{
	if (!s->xfer->steady) {
		ASSERT(n->bounce_free < n->bounce_count);
		n->bounce[n->bounce_free++] = s->buffer;
	}
	list_remove(&s->write);
	start_syncs(n);
}

static void finish(struct nvme *n, struct nvme_slot *s, int result)
{
	struct xfer *x = s->xfer;

	ASSERT((s->state == NVME_SLOT_FLIGHT || s->state == NVME_SLOT_SUM) && result <= 0);
	if (s->on_device)
		leave_device(n, s);
	x->result = result;
	/* What was read but is not vouched for never stays: it may be another namespace's. */
	if (x->op == XFER_READ)
		memset((unsigned char *)x->host + (result == 0 ? x->bytes : 0), 0,
		       s->length - (result == 0 ? x->bytes : 0));
	if (result == 0) {
		x->cause[0] = '\0';
		if (x->op == XFER_WRITE)
			x->crc = s->job.crc ^ s->rotten;
	}
	s->state = NVME_SLOT_DONE;
	list_push_back(&n->finished, &s->link);
	n->finished_count++;
	if (x->op == XFER_WRITE)
		end_write(n, s);
}

static void fail(struct nvme *n, struct nvme_slot *s, int result, const char *what)
{
	struct xfer *x = s->xfer;

	if (x->op == XFER_SYNC)
		snprintf(x->cause, sizeof(x->cause), "nvme%u: sync: %s", n->config->number, what);
	else
		snprintf(x->cause, sizeof(x->cause),
			 "nvme%u: %s of %llu bytes at 0x%llx, from byte %llu on: %s",
			 n->config->number, op_name(x->op), (unsigned long long)x->bytes,
			 (unsigned long long)x->offset, (unsigned long long)s->from, what);
	finish(n, s, result);
}

/* Its place on the device may be another's by now. */
static void again(struct nvme *n, struct nvme_slot *s, uint64_t from)
{
	s->from = from;
	s->xfer->retries++;
	if (s->on_device)
		issue(n, s);
	else
		make_ready(n, s);
}

/* The request came back with an error. A sync that failed is not tried again: the kernel has
 * forgotten the pages it could not write, and the second answer would be a false yes. */
static void error_came(struct nvme *n, struct nvme_slot *s, int result)
{
	bool soft = result == -EAGAIN || result == -EINTR;
	bool hard = result == -EIO && s->xfer->op != XFER_SYNC;

	if ((soft && s->again < AGAIN_MAX) || (hard && s->errors < ERRORS_MAX)) {
		unsigned shift = MIN(soft ? s->again : s->errors, 4u);

		s->again += soft;
		s->errors += hard;
		s->xfer->retries++;
		set_timer(n, s, NVME_SLOT_RETRY, BACK_OFF << shift);
		return;
	}
	fail(n, s, result, strerrorname_np(-result) != NULL ? strerrorname_np(-result) : "error");
}

static void sum(struct nvme *n, struct nvme_slot *s)
{
	s->state = NVME_SLOT_SUM;
	s->job.urgent = s->xfer->priority == XFER_DEMAND;
	list_init(&s->job.link);
	if (s->job.bytes < SHARE_BYTES)
		list_push_back(&n->sums, &s->job.link);
	else
		digest_queue(&n->digest, &s->job);
}

/* What was read waits for its CRC where the device waits for nothing: a free place in its queue is
 * worth more than an early answer. */
static void whole_came(struct nvme *n, struct nvme_slot *s)
{
	if (s->xfer->op == XFER_WRITE) {
		finish(n, s, 0);
		return;
	}
	if (s->on_device)
		leave_device(n, s);
	s->job = (struct digest_job){ .from = s->xfer->host, .bytes = s->xfer->bytes };
	sum(n, s);
}

static void check_crc(struct nvme *n, struct nvme_slot *s)
{
	struct xfer *x = s->xfer;

	if (s->job.crc == x->crc) {
		finish(n, s, 0);
	} else if (!s->reread) {
		s->reread = true;
		/* By the mapping this time: a registered buffer holds on to the pages that were
		 * there when it was registered, and somebody may have punched them out of the file.
		 */
		s->buffer_index = -1;
		again(n, s, 0);
	} else {
		fail(n, s, -EBADMSG, "EBADMSG, CRC-32C differs, twice");
	}
}

static void summed(struct nvme *n, struct digest_job *job)
{
	struct nvme_slot *s = list_entry(job, struct nvme_slot, job);

	ASSERT(s->state == NVME_SLOT_SUM);
	if (s->xfer->op == XFER_READ)
		check_crc(n, s);
	else
		make_ready(n, s);
}

/* The lane's own ones first, which are small. */
static struct digest_job *sum_one(struct nvme *n)
{
	struct list *entry = list_pop_front(&n->sums);
	struct digest_job *job;

	if (entry == NULL)
		return digest_help(&n->digest);
	job = list_entry(entry, struct digest_job, link);
	digest_run(job);
	return job;
}

bool nvme_xfer_sum(struct nvme *n)
{
	struct digest_job *job;
	uint64_t bytes = 0;
	bool any = false;

	while ((job = digest_reap(&n->digest)) != NULL) {
		summed(n, job);
		any = true;
	}
	while (bytes < SUM_BYTES && (job = sum_one(n)) != NULL) {
		bytes += job->bytes;
		summed(n, job);
		any = true;
	}
	return any;
}

/* `bytes` of the request were done. The rest begins at the last point that the device can address,
 * which may repeat some bytes; a row of requests that get nowhere ends. */
static void bytes_came(struct nvme *n, struct nvme_slot *s, uint64_t bytes)
{
	uint64_t done = s->from + bytes, next = ALIGN_DOWN(done, n->file.unit);

	ASSERT(done <= s->length);
	if (done == s->length) {
		whole_came(n, s);
		return;
	}
	s->stalls = next > s->from ? 0 : (uint8_t)(s->stalls + 1);
	if (s->stalls > STALLS_MAX)
		fail(n, s, -EIO, "EIO, requests come back without progress");
	else
		again(n, s, next);
}

static void came(struct nvme *n, struct nvme_slot *s, int result)
{
	if (result < 0)
		error_came(n, s, result);
	else if (s->xfer->op == XFER_SYNC)
		finish(n, s, 0);
	else
		bytes_came(n, s, (uint64_t)result);
}

/* A kernel that completes a request twice, or one that was never made, must not end another one: a
 * place is used again at once, and its buffer would be taken for read. */
static bool is_stray(struct nvme *n, const struct nvme_slot *s, uint64_t data)
{
	if (s != NULL && s->state == NVME_SLOT_FLIGHT && s->tag == NVME_DATA_TAG(data))
		return false;
	if (n->strays++ == 0)
		log_error(TIER,
			  "%s: the kernel completed a request that was not on its way (data "
			  "0x%llx): it is passed over, as are all that follow",
			  n->base.name, (unsigned long long)data);
	return true;
}

static void pass(struct nvme *n, struct nvme_slot *s, int result)
{
	struct fault_decision d;

	result = nvme_seam_pass(&n->seam, s->xfer->op, s->buffer + s->from, s->length - s->from,
				result, &d);
	s->rotten |= d.kind == FAULT_ROT;
	if (d.delay_ns == 0) {
		came(n, s, result);
	} else {
		s->result = result;
		set_timer(n, s, NVME_SLOT_HELD, d.delay_ns);
	}
	if (d.kind == FAULT_DOUBLED)
		nvme_xfer_came(n, NVME_DATA(s - n->slots, n->seam.doubled_tag), result);
}

void nvme_xfer_came(struct nvme *n, uint64_t data, int result)
{
	struct nvme_slot *s =
		NVME_DATA_SLOT(data) < n->slot_count ? &n->slots[NVME_DATA_SLOT(data)] : NULL;

	if (is_stray(n, s, data))
		return;
	n->seam.doubled_tag = s->tag;
	s->tag = 0;
	pass(n, s, result);
}

/* Begins */

/* A steady write goes from where it is. */
static void stage_write(struct nvme *n, struct nvme_slot *s)
{
	const struct xfer *x = s->xfer;

	s->buffer = x->steady ? x->host : n->bounce[--n->bounce_free];
	s->job = (struct digest_job){ .to = x->steady ? NULL : s->buffer,
				      .from = x->host,
				      .bytes = x->bytes };
	memset(s->buffer + x->bytes, 0, s->length - x->bytes);
	list_push_back(&n->writes, &s->write);
}

static void check_xfer(const struct nvme *n, const struct xfer *x)
{
	ASSERT(x->op == XFER_READ || x->op == XFER_WRITE || x->op == XFER_SYNC ||
	       x->op == XFER_PIN);
	if (x->op == XFER_SYNC || x->op == XFER_PIN)
		return;
	ASSERT(x->host != NULL && x->bytes <= n->base.block && x->offset % GRANULE == 0);
	ASSERT(x->offset <= n->base.bytes &&
	       ALIGN_UP(x->bytes, GRANULE) <= n->base.bytes - x->offset);
	ASSERT((x->op == XFER_WRITE && !x->steady) || (uintptr_t)x->host % GRANULE == 0);
}

static void slot_fill(struct nvme *n, struct nvme_slot *s, struct xfer *x)
{
	*s = (struct nvme_slot){ .xfer = x, .order = n->queued++, .state = NVME_SLOT_FLIGHT };
	list_init(&s->link);
	list_init(&s->write);
	x->retries = 0;
	if (x->op == XFER_SYNC || x->op == XFER_PIN)
		return;
	s->length = ALIGN_UP(x->bytes, GRANULE);
	if (x->op == XFER_WRITE)
		stage_write(n, s);
	else
		s->buffer = x->host;
	s->buffer_index = nvme_ring_find(&n->ring, s->buffer, s->length);
}

/* A short one is on its way at once; a long one takes its turn, and others are queued meanwhile. */
static void begin_write(struct nvme *n, struct nvme_slot *s)
{
	if (s->job.bytes >= SHARE_BYTES) {
		sum(n, s);
		return;
	}
	digest_run(&s->job);
	make_ready(n, s);
	nvme_xfer_refill(n);
}

void nvme_xfer_begin(struct nvme *n, struct xfer *x)
{
	struct nvme_slot *s = slot_take(n);

	check_xfer(n, x);
	slot_fill(n, s, x);
	if (x->op == XFER_SYNC) {
		s->state = NVME_SLOT_WAITING;
		list_push_back(&n->waiting, &s->link);
		start_syncs(n);
	} else if (x->op == XFER_PIN) {
		nvme_pin(n, x->host, x->bytes);
		finish(n, s, 0);
	} else if (s->length == 0) {
		whole_came(n, s);
	} else if (x->op == XFER_READ) {
		make_ready(n, s);
		nvme_xfer_refill(n);
	} else {
		begin_write(n, s);
	}
}

void nvme_xfer_expire(struct nvme *n)
{
	uint64_t now = list_empty(&n->timed) ? 0 : clock_now_ns();
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, &n->timed) {
		struct nvme_slot *s = list_entry(it, struct nvme_slot, link);
		bool held = s->state == NVME_SLOT_HELD;

		if (s->due_ns > now && !(held && atomic_load(&n->ending)))
			continue;
		list_remove(&s->link);
		s->state = NVME_SLOT_FLIGHT;
		if (held)
			came(n, s, s->result);
		else
			issue(n, s);
	}
}

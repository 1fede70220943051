/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/nvme_inside.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/plural.h"

#define STAGING_MAX MIB(256)

static struct nvme *nvme_of(struct tier *t)
{
	struct nvme *n = (struct nvme *)t;

	ASSERT(t != NULL && t->base.magic == TIER_MAGIC && t->base.ops == &nvme_ops);
	return n;
}

/* Open and close */

static int check_options(const struct nvme_config *config, const char *name, struct err *err)
{
	const struct nvme_options *o = &config->options;

	if (o->block_bytes < GRANULE || o->block_bytes % GRANULE != 0 || o->block_bytes > MIB(64))
		return err_set(err, EINVAL,
			       "%s: block of %llu bytes: it must be a multiple of 4KiB, at most "
			       "64MiB",
			       name, (unsigned long long)o->block_bytes);
	if (o->queue_depth < 1 || o->queue_depth > 1024)
		return err_set(err, EINVAL, "%s: queue_depth %llu: it must be 1 to 1024", name,
			       (unsigned long long)o->queue_depth);
	return 0;
}

static void say_chosen(struct nvme *n)
{
	char faults[FAULT_TEXT_BYTES] = "";

	if (n->seam.faults.config != NULL)
		fault_text(n->seam.faults.config, faults);
	snprintf(n->base.chosen, sizeof(n->base.chosen),
		 "%s%s, %s, space %s, unit %u, block %u, depth %llu", faults, n->file.kind,
		 n->file.direct ? "direct" : "buffered", n->file.space, n->file.unit, n->base.block,
		 (unsigned long long)n->config->options.queue_depth);
}

/* Known only once the ring is open, when the lane starts. */
static void say_registered(struct nvme *n)
{
	size_t at = strlen(n->base.chosen);

	snprintf(n->base.chosen + at, sizeof(n->base.chosen) - at, ", buffers %u of %u registered",
		 n->ring.registered_count, n->ring.piece_count);
	log_info(TIER, "%s: buffers %u of %u registered", n->base.name, n->ring.registered_count,
		 n->ring.piece_count);
}

/* Pages are locked while the lane does nothing else, some 50 ms a GiB: what the device has in
 * flight goes on meanwhile. */
void nvme_pin(struct nvme *n, const void *base, uint64_t bytes)
{
	unsigned before = n->ring.registered_count;

	nvme_ring_pin(&n->ring, n->base.name, base, bytes);
	if (n->ring.registered_count > before && n->ring.registered_count == n->ring.piece_count)
		log_info(TIER, "%s: all of %u %s registered", n->base.name, n->ring.piece_count,
			 PLURAL(n->ring.piece_count, "buffer is", "buffers are"));
}

/* What the queue takes of write-back and prefetch: the depth and what is staged ahead. */
static uint64_t ahead_depth(const struct nvme *n)
{
	uint64_t depth = n->config->options.queue_depth;

	return depth + MAX(depth / NVME_AHEAD_SHARE, (uint64_t)1);
}

static void fill_base(struct nvme *n, const char *name)
{
	const struct nvme_options *o = &n->config->options;
	struct tier_base *b = &n->base;

	b->magic = TIER_MAGIC;
	b->ops = &nvme_ops;
	b->kind = TIER_KIND_NVME;
	b->bytes = n->file.bytes;
	b->block = (uint32_t)o->block_bytes;
	b->alignment = GRANULE;
	b->staging_want_bytes = MAX(MIN(ahead_depth(n) * b->block, STAGING_MAX), b->block);
	snprintf(b->name, sizeof(b->name), "%s", name);
}

static int make_slots(struct nvme *n)
{
	unsigned depth = (unsigned)n->config->options.queue_depth;

	/* And as many again of which the device is done: a disk that reports a whole depth at once
	 * gets the next one before the sums of this one are made. */
	n->slot_count = 2 * (depth + MAX(depth / NVME_AHEAD_SHARE, 1u));
	n->slots = heap_zeros(n->slot_count, sizeof(*n->slots));
	n->bounce = heap_zeros(n->slot_count, sizeof(*n->bounce));
	if (n->slots == NULL || n->bounce == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < n->slot_count; i++) {
		list_init(&n->slots[i].link);
		list_init(&n->slots[i].write);
		list_push_back(&n->free, &n->slots[i].link);
	}
	return 0;
}

static void destroy(struct nvme *n)
{
	nvme_file_close(&n->file);
	heap_free(n->ring.pieces);
	heap_free(n->slots);
	heap_free(n->bounce);
	n->base.magic = 0;
	heap_free(n);
}

static struct nvme *create(const struct nvme_config *config)
{
	struct nvme *n = heap_zeros(1, sizeof(*n));

	if (n == NULL)
		return NULL;
	n->config = config;
	n->file.fd = -1;
	list_init(&n->free);
	list_init(&n->waiting);
	list_init(&n->timed);
	list_init(&n->sums);
	list_init(&n->ready[0]);
	list_init(&n->ready[1]);
	list_init(&n->finished);
	list_init(&n->writes);
	nvme_seam_init(&n->seam, &config->options.fault);
	n->ring.none = config->options.fault.no_register;
	return n;
}

static int nvme_open(const void *config, unsigned index, const struct topology *topo,
		     struct tier **ret, struct err *err)
{
	const struct nvme_config *c = config;
	char name[64];
	struct nvme *n;
	int r;

	snprintf(name, sizeof(name), "nvme%u %s", c->number, c->path.path);
	r = check_options(c, name, err);
	if (r == 0)
		r = fault_starts(&c->options.fault, name, err);
	if (r == 0)
		r = nvme_ring_probe(err);
	if (r < 0)
		return r;
	n = create(c);
	if (n == NULL)
		return err_set(err, ENOMEM, "%s: no memory", name);
	r = nvme_file_open(c, &n->file, err);
	if (r == 0 && make_slots(n) < 0)
		r = err_set(err, ENOMEM, "%s: no memory", name);
	if (r < 0) {
		destroy(n);
		return r;
	}
	fill_base(n, name);
	say_chosen(n);
	if (c->options.fault.presence.present)
		fault_say(&c->options.fault, name);
	*ret = (struct tier *)n;
	return 0;
}

static void nvme_close(struct tier *t)
{
	struct nvme *n = nvme_of(t);

	ASSERT(!n->ring.open && n->slots_used == 0);
	destroy(n);
}

static void nvme_host_memory(struct tier *t, void *base, size_t bytes, size_t ready)
{
	struct nvme *n = nvme_of(t);

	if (nvme_ring_memory(&n->ring, base, bytes, ready) < 0)
		log_warn(TIER, "%s: %zu bytes of host memory stay unregistered: no memory",
			 n->base.name, bytes);
}

static void nvme_staging(struct tier *t, void *base, size_t bytes)
{
	struct nvme *n = nvme_of(t);

	ASSERT((uintptr_t)base % GRANULE == 0 && bytes >= n->base.block && n->staging == NULL);
	n->staging = base;
	n->staging_bytes = bytes;
	n->bounce_count = (unsigned)MIN(bytes / n->base.block, (uint64_t)n->slot_count);
	for (unsigned i = 0; i < n->bounce_count; i++)
		n->bounce[i] = n->staging + (uint64_t)i * n->base.block;
	n->bounce_free = n->bounce_count;
	bytes = (size_t)n->bounce_count * n->base.block;
	nvme_host_memory(t, base, bytes, bytes);
}

/* Lane */

/* The lane needs a CPU too. */
static unsigned helpers(const struct nvme *n)
{
	cpu_set_t cpus;
	int have = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;

	return (unsigned)MIN(n->config->options.checksum_threads, (uint64_t)MAX(have - 1, 0));
}

static int nvme_lane_start(struct tier *t, int wake_fd, struct err *err)
{
	struct nvme *n = nvme_of(t);
	char name[16];
	int r;

	if (n->staging == NULL)
		return err_set(err, EINVAL, "%s: no staging memory was given", n->base.name);
	/* One request a slot, two polls, and the timeout of kernels that need a request for it. */
	r = nvme_ring_open(&n->ring, n->base.name, n->file.fd, n->slot_count + 3, err);
	if (r < 0)
		return err_prefix(err, "%s", n->base.name);
	snprintf(name, sizeof(name), "nvme%u", n->config->number);
	r = digest_start(&n->digest, name, helpers(n), err);
	if (r < 0) {
		nvme_ring_close(&n->ring);
		return r;
	}
	n->wake_fd = wake_fd;
	n->wake_armed = n->digest_armed = false;
	say_chosen(n);
	say_registered(n);
	return 0;
}

static void nvme_lane_stop(struct tier *t)
{
	struct nvme *n = nvme_of(t);

	ASSERT(n->slots_used == 0 && n->bounce_free == n->bounce_count);
	digest_stop(&n->digest);
	nvme_ring_close(&n->ring);
}

static void nvme_ending(struct tier *t)
{
	atomic_store(&nvme_of(t)->ending, true);
}

static int nvme_queue(struct tier *t, struct xfer *x)
{
	struct nvme *n = nvme_of(t);
	unsigned limit = x->priority == XFER_DEMAND ? n->slot_count : (unsigned)ahead_depth(n);

	if (n->slots_used >= limit || (x->op == XFER_WRITE && !x->steady && n->bounce_free == 0))
		return -EBUSY;
	nvme_xfer_begin(n, x);
	return 0;
}

static void nvme_commit(struct tier *t)
{
	nvme_submit(nvme_of(t));
}

/* A poll that ended; wait() looks at the descriptor again. */
static bool was_poll(struct nvme *n, uint64_t data)
{
	if (data == NVME_DATA_WAKE)
		n->wake_armed = false;
	else if (data == NVME_DATA_DIGEST)
		n->digest_armed = false;
	else
		return false;
	return true;
}

static bool take_completion(struct nvme *n)
{
	struct io_uring_cqe *cqe;
	uint64_t data;
	int result;

	if (io_uring_peek_cqe(&n->ring.uring, &cqe) != 0)
		return false;
	data = io_uring_cqe_get_data64(cqe);
	result = cqe->res;
	io_uring_cqe_seen(&n->ring.uring, cqe);
	if (!was_poll(n, data))
		nvme_xfer_came(n, data, result);
	return true;
}

/* New work for the device first, then the sums. Nothing may be left for the lane to sum when
 * nothing is finished: it would go to sleep over it. */
static void turn(struct nvme *n)
{
	bool summed;

	do {
		nvme_xfer_expire(n);
		while (take_completion(n))
			;
		nvme_xfer_refill(n);
		nvme_submit(n);
		summed = nvme_xfer_sum(n);
	} while (n->finished_count == 0 && summed);
	nvme_xfer_refill(n); /* writes that were summed */
	nvme_submit(n);      /* and what is read again */
}

static unsigned nvme_reap(struct tier *t, struct xfer **done, unsigned max)
{
	struct nvme *n = nvme_of(t);
	unsigned count = 0;

	turn(n);
	while (count < max && !list_empty(&n->finished)) {
		struct nvme_slot *s = list_first(&n->finished, struct nvme_slot, link);

		list_remove(&s->link);
		n->finished_count--;
		done[count++] = s->xfer;
		nvme_slot_give(n, s);
	}
	return count;
}

/* One shot, armed again by the next wait: a multishot poll tells changes, and a wake-up that came
 * before the wait would be slept through. */
static void arm(struct nvme *n, int fd, uint64_t data, bool *armed)
{
	struct io_uring_sqe *sqe;

	if (*armed)
		return;
	sqe = nvme_take_sqe(n);
	io_uring_prep_poll_add(sqe, fd, POLLIN);
	io_uring_sqe_set_data64(sqe, data);
	*armed = true;
}

/* Whether a completion is there for reap(). The lane does not reap while it has lent nothing, so
 * polls that ended, and what comes then that nobody waits for, are taken here: left in the ring,
 * they would end every wait at once. */
static bool pending(struct nvme *n)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&n->ring.uring, &cqe) == 0) {
		if (!was_poll(n, io_uring_cqe_get_data64(cqe)) && n->slots_used > 0)
			return true;
		take_completion(n);
	}
	return digest_ready(&n->digest);
}

static int64_t shorten(struct nvme *n, int64_t timeout_ns)
{
	uint64_t now = list_empty(&n->timed) ? 0 : clock_now_ns();
	struct list *it;

	list_for_each (it, &n->timed) {
		uint64_t due = list_entry(it, struct nvme_slot, link)->due_ns;
		int64_t left = due > now ? (int64_t)(due - now) : 0;

		if (due == FAULT_NEVER && !atomic_load(&n->ending))
			continue;
		left = atomic_load(&n->ending) ? 0 : left;
		if (timeout_ns < 0 || left < timeout_ns)
			timeout_ns = left;
	}
	return timeout_ns;
}

static void nvme_wait(struct tier *t, int64_t timeout_ns)
{
	struct nvme *n = nvme_of(t);
	struct __kernel_timespec ts;
	struct io_uring_cqe *cqe;
	int r;

	if (pending(n))
		return;
	arm(n, n->wake_fd, NVME_DATA_WAKE, &n->wake_armed);
	if (n->digest.lent > 0)
		arm(n, n->digest.fd, NVME_DATA_DIGEST, &n->digest_armed);
	timeout_ns = shorten(n, timeout_ns);
	ts.tv_sec = timeout_ns / (int64_t)NS_PER_S;
	ts.tv_nsec = timeout_ns % (int64_t)NS_PER_S;
	n->unsubmitted_bytes = 0;
	r = io_uring_submit_and_wait_timeout(&n->ring.uring, &cqe, 1, timeout_ns < 0 ? NULL : &ts,
					     NULL);
	/* The kernel is short of memory: without a pause the lane would ask it in a circle. */
	if (r == -EAGAIN || r == -EBUSY)
		poll(&(struct pollfd){ n->wake_fd, POLLIN, 0 }, 1, 1);
	ASSERT(r >= 0 || r == -ETIME || r == -EINTR || r == -EAGAIN || r == -EBUSY);
}

/* Tables */

/* clang-format off: one row a key */
#define PATH_ROW(key, kind, member, help)                                                         \
	{                                                                                         \
		key, kind, offsetof(struct nvme_path, member), NULL, NULL, NULL, CONFIG_REQUIRED, \
			help, NULL, NULL                                                          \
	}

const struct config_row nvme_path_rows[] = {
	PATH_ROW("path", CONFIG_PATH, path,
		 "An existing folder, where tierd keeps one file without a name, or a block device "
		 "that holds nothing."),
	PATH_ROW("size", CONFIG_BYTES, size,
		 "Bytes to use, reserved at start; in % of the device or of the folder's free "
		 "space."),
	CONFIG_END
};

static const char *const direct_choices[] = { "try", "require", "off", NULL };

#define OPTION_ROW(key, kind, member, default_text, min, max, choices, help)                       \
	{                                                                                          \
		key, kind, offsetof(struct nvme_options, member), default_text, min, max, 0, help, \
			choices, NULL                                                              \
	}

const struct config_row nvme_option_rows[] = {
	OPTION_ROW("queue_depth", CONFIG_COUNT, queue_depth, "64", "1", "1024", NULL,
		   "Requests that one path has on their way at most; demand may add an eighth."),
	OPTION_ROW("block", CONFIG_SIZE, block_bytes, "1MiB", "4KiB", "64MiB", NULL,
		   "Largest single request, and what one checksum covers; a multiple of 4KiB."),
	OPTION_ROW("checksum_threads", CONFIG_COUNT, checksum_threads, "2", "0", "16", NULL,
		   "Helpers of a path's lane, which copy and checksum blocks beside it; one CPU "
		   "does some 7GB/s. At most one less than there are CPUs."),
	OPTION_ROW("direct", CONFIG_CHOICE, direct, "try", NULL, NULL, direct_choices,
		   "Whether the page cache is passed by: try falls back to buffered I/O and says "
		   "so, require makes that an error, off is buffered."),
	FAULT_ROW(struct nvme_options),
	CONFIG_END
};
/* clang-format on */

const struct tier_ops nvme_ops = {
	.name = "nvme",
	.help = "a file in a folder, or a block device, by io_uring",
	.kind = TIER_KIND_NVME,
	.config_size = sizeof(struct nvme_config),
	.open = nvme_open,
	.close = nvme_close,
	.host_memory = nvme_host_memory,
	.staging = nvme_staging,
	.ending = nvme_ending,
	.lane_start = nvme_lane_start,
	.lane_stop = nvme_lane_stop,
	.queue = nvme_queue,
	.commit = nvme_commit,
	.reap = nvme_reap,
	.wait = nvme_wait,
};

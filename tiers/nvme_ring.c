/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/nvme_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"

/* The kernel refuses a registered buffer above 1 GiB with EFAULT. */
#define PIECE_BYTES GIB(1)
/* And a table of more than this many. */
#define PIECES_MAX 16384u

/* From the newest set of flags to none: kernels refuse what they do not know with EINVAL. */
static const unsigned setup_flags[] = {
	IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
		IORING_SETUP_TASKRUN_FLAG,
	IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
	0,
};

static int setup(struct io_uring *uring, unsigned entries)
{
	int r = -EINVAL;

	for (size_t i = 0; i < ARRAY_SIZE(setup_flags) && r == -EINVAL; i++)
		r = io_uring_queue_init(entries, uring, setup_flags[i]);
	return r;
}

/* -1 when the kernel has no such switch. */
static int disabled_sysctl(void)
{
	FILE *f = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	int value = -1;

	if (f == NULL)
		return -1;
	if (fscanf(f, "%d", &value) != 1)
		value = -1;
	fclose(f);
	return value;
}

static int refused(int code, const char *call, struct err *err)
{
	if (code == ENOSYS)
		return err_set(err, code,
			       "io_uring: %s: ENOSYS: the kernel has none, or a seccomp filter "
			       "(container runtime) blocks it; tierd has no other I/O engine",
			       call);
	if (code == EPERM || code == EACCES)
		return err_set(err, code,
			       "io_uring: %s: %s: forbidden by a seccomp filter (container "
			       "runtime) or by sysctl kernel.io_uring_disabled, which is %d; tierd "
			       "has no other I/O engine",
			       call, strerrorname_np(code), disabled_sysctl());
	return err_set(err, code, "io_uring: %s: %s", call, strerrorname_np(code));
}

/* A NOP, there and back: a filter may let a ring be made and refuse its use. */
static int try_nop(struct io_uring *uring)
{
	struct io_uring_cqe *cqe;
	int r;

	io_uring_prep_nop(io_uring_get_sqe(uring));
	r = io_uring_submit_and_wait(uring, 1);
	if (r < 0)
		return r;
	r = io_uring_wait_cqe(uring, &cqe);
	if (r == 0)
		io_uring_cqe_seen(uring, cqe);
	return r;
}

int nvme_ring_probe(struct err *err)
{
	struct io_uring uring;
	int r = setup(&uring, 4);

	if (r < 0)
		return refused(-r, "io_uring_setup", err);
	r = try_nop(&uring);
	io_uring_queue_exit(&uring);
	return r < 0 ? refused(-r, "io_uring_enter", err) : 0;
}

int nvme_ring_memory(struct nvme_ring *ring, void *base, uint64_t bytes, uint64_t ready)
{
	uint64_t n = bytes / PIECE_BYTES + (bytes % PIECE_BYTES != 0);
	struct nvme_piece *more;

	ASSERT(!ring->open);
	if (n > PIECES_MAX - ring->piece_count)
		return -ENOMEM;
	more = heap_grow(ring->pieces, ring->piece_count + n, sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	ring->pieces = more;
	for (uint64_t at = 0; at < bytes; at += PIECE_BYTES, ring->piece_count++)
		ring->pieces[ring->piece_count] = (struct nvme_piece){
			.base = (unsigned char *)base + at,
			.bytes = MIN(PIECE_BYTES, bytes - at),
			.ready = MIN(PIECE_BYTES, ready - MIN(ready, at)),
			.place = ring->piece_count,
			.index = -1,
		};
	return 0;
}

static int register_one(struct nvme_ring *ring, struct nvme_piece *piece)
{
	struct iovec v = { piece->base, piece->bytes };
	unsigned place = piece->place;
	__u64 tag = 0;
	int r = ring->none ? -ENOMEM : 0;

	if (r == 0 && nvme_refusals.register_buffer != NULL)
		r = nvme_refusals.register_buffer(place, piece->bytes);
	if (r == 0)
		r = io_uring_register_buffers_update_tag(&ring->uring, place, &v, &tag, 1);
	if (r < 0)
		return r;
	/* One was offered, so anything but 1 says that it was not taken. */
	if (r != 1)
		return -EAGAIN;
	piece->index = (int)place;
	ring->registered_count++;
	return 0;
}

static uint64_t registered_bytes(const struct nvme_ring *ring, bool all)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < ring->piece_count; i++)
		if (all || ring->pieces[i].index >= 0)
			sum += ring->pieces[i].bytes;
	return sum;
}

/* What it takes to lock memory is known to few: all three numbers are in the one line. */
static void warn_unregistered(const struct nvme_ring *ring, const char *name, int code)
{
	struct rlimit lock = { 0, 0 };

	getrlimit(RLIMIT_MEMLOCK, &lock);
	log_warn(TIER,
		 "%s: %llu of %llu bytes of buffers registered, the rest goes unregistered: %s "
		 "(RLIMIT_MEMLOCK: %llu needed, %lld soft, %lld hard)",
		 name, (unsigned long long)registered_bytes(ring, false),
		 (unsigned long long)registered_bytes(ring, true), strerrorname_np(code),
		 (unsigned long long)registered_bytes(ring, true),
		 lock.rlim_cur == RLIM_INFINITY ? -1ll : (long long)lock.rlim_cur,
		 lock.rlim_max == RLIM_INFINITY ? -1ll : (long long)lock.rlim_max);
}

static void register_ready(struct nvme_ring *ring, const char *name, struct nvme_piece *piece)
{
	int r;

	if (ring->refused || !ring->table_registered || piece->ready < piece->bytes)
		return;
	r = register_one(ring, piece);
	ring->refused = r < 0;
	if (r < 0)
		warn_unregistered(ring, name, -r);
}

/* Piece by piece, staging first, as far as it goes: each that is taken is of use by itself. The
 * table has room for those that are not there yet. */
static void register_pieces(struct nvme_ring *ring, const char *name)
{
	int r;

	if (ring->piece_count == 0)
		return;
	r = io_uring_register_buffers_sparse(&ring->uring, ring->piece_count);
	ring->table_registered = r == 0;
	if (r < 0)
		warn_unregistered(ring, name, -r);
	for (unsigned i = 0; i < ring->piece_count; i++)
		register_ready(ring, name, &ring->pieces[i]);
}

void nvme_ring_pin(struct nvme_ring *ring, const char *name, const void *base, uint64_t bytes)
{
	const unsigned char *from = base, *to = from + bytes;

	ASSERT(ring->open);
	for (unsigned i = 0; i < ring->piece_count; i++) {
		struct nvme_piece *p = &ring->pieces[i];
		const unsigned char *a = MAX(from, p->base), *b = MIN(to, p->base + p->bytes);

		if (a >= b)
			continue;
		p->ready += MIN((uint64_t)(b - a), p->bytes - p->ready);
		if (p->index < 0)
			register_ready(ring, name, p);
	}
}

static int by_address(const void *a, const void *b)
{
	const struct nvme_piece *p = a, *q = b;

	return p->base < q->base ? -1 : p->base > q->base;
}

int nvme_ring_open(struct nvme_ring *ring, const char *name, int fd, unsigned entries,
		   struct err *err)
{
	int r = setup(&ring->uring, entries);

	if (r < 0)
		return refused(-r, "io_uring_setup", err);
	ring->open = true;
	/* Both save a look-up a request and are missed by nothing else: no word when refused. */
	io_uring_register_ring_fd(&ring->uring);
	ring->file_registered = io_uring_register_files(&ring->uring, &fd, 1) == 0;
	register_pieces(ring, name);
	if (ring->piece_count > 0)
		qsort(ring->pieces, ring->piece_count, sizeof(*ring->pieces), by_address);
	return 0;
}

void nvme_ring_close(struct nvme_ring *ring)
{
	ASSERT(ring->open);
	/* Explicitly: the ring itself ends some time after its descriptor is gone, and until then
	 * the memory would count as locked and a device as in use. */
	if (ring->table_registered)
		ASSERT(io_uring_unregister_buffers(&ring->uring) == 0);
	if (ring->file_registered)
		ASSERT(io_uring_unregister_files(&ring->uring) == 0);
	ring->file_registered = false;
	ring->table_registered = false;
	ring->refused = false;
	ring->registered_count = 0;
	for (unsigned i = 0; i < ring->piece_count; i++)
		ring->pieces[i].index = -1;
	io_uring_queue_exit(&ring->uring);
	ring->open = false;
}

int nvme_ring_find(const struct nvme_ring *ring, const void *at, uint64_t bytes)
{
	const unsigned char *p = at;
	unsigned low = 0, high = ring->piece_count;

	/* The last piece that begins at or before p. */
	while (low < high) {
		unsigned mid = low + (high - low) / 2;

		if (ring->pieces[mid].base <= p)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == 0)
		return -1;
	low--;
	if (bytes > ring->pieces[low].bytes ||
	    (uint64_t)(p - ring->pieces[low].base) > ring->pieces[low].bytes - bytes)
		return -1;
	return ring->pieces[low].index;
}

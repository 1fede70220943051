/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/plural.h"
#include "tiers/hugepage.h"
#include "tiers/limits.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE_BYTES     KIB(4)
#define TOUCH_BYTES    MIB(32) /* a thread's piece of work */
#define TOUCH_THREADS  16
#define REFUSALS_MAX   64 /* 2 MiB pages that memory has no room for, before nobody asks again */
#define SEEK_MIN_BYTES KIB(64) /* below, a memset is cheaper than asking what was touched */

/* ---- the file ------------------------------------------------------------------------------ */

static int memfd_make(const char *name, unsigned flags)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | flags);

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	return fd;
}

/* Maps at a multiple of 2 MiB, or large pages could not be used. */
static void *map_aligned(int fd, uint64_t bytes)
{
	char *room = heap_refused() ? MAP_FAILED
				    : mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at = (char *)ALIGN_UP((uintptr_t)room, (uint64_t)HUGE_BYTES);
	void *base;

	if (room == MAP_FAILED)
		return MAP_FAILED;
	base = heap_refused()
		       ? MAP_FAILED
		       : mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (base == MAP_FAILED) {
		int was = errno;

		munmap(room, bytes + HUGE_BYTES);
		errno = was;
		return MAP_FAILED;
	}
	if (at > room)
		munmap(room, (size_t)(at - room));
	munmap(at + bytes, (size_t)(room + HUGE_BYTES - at));
	return base;
}

/* What is made at once: all of it, or the first slab of several, or nothing. */
static uint64_t first_bytes(const struct arena_options *o, struct arena *a)
{
	bool whole = o->slab_bytes == 0 || (!o->on_demand && o->slab_bytes >= a->bytes);

	a->slab_bytes = whole ? 0 : o->slab_bytes;
	if (whole)
		return a->bytes;
	return o->on_demand ? 0 : o->slab_bytes;
}

/* The arena may be longer than was planned for, by less than a page of the pool. */
static void take_shares(const struct arena_options *o, struct arena *a)
{
	ASSERT(o->share_count <= TOPO_NODES_MAX);
	a->topo = o->topo;
	a->bound = o->topo != NULL && o->share_count > 0;
	a->share_count = MAX(o->share_count, 1u);
	a->shares[0] = (struct topo_share){ .bytes = a->bytes };
	for (unsigned i = 0; i < o->share_count; i++)
		a->shares[i] = o->shares[i];
	a->shares[a->share_count - 1].bytes = a->bytes - a->shares[a->share_count - 1].offset;
}

static void describe(const struct arena_options *o, bool pool, struct arena *a)
{
	a->page_bytes = pool ? HUGE_BYTES : PAGE_BYTES;
	a->bytes = ALIGN_UP(o->bytes, a->page_bytes);
	a->first_bytes = first_bytes(o, a);
	a->touched = o->touch;
	a->huge = o->huge;
	snprintf(a->name, sizeof(a->name), "%s", o->name);
	take_shares(o, a);
}

static int file_open(const struct arena_options *o, bool pool, struct arena *a)
{
	describe(o, pool, a);
	a->fd = memfd_make(o->name, pool ? MFD_HUGETLB | MFD_HUGE_2MB : 0);
	if (a->fd < 0)
		return -errno;
	a->base = MAP_FAILED;
	if (ftruncate(a->fd, (off_t)a->bytes) < 0 ||
	    fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ||
	    (a->base = map_aligned(a->fd, a->bytes)) == MAP_FAILED) {
		int r = -errno;

		close(a->fd);
		return r;
	}
	return 0;
}

void arena_destroy(struct arena *a)
{
	munmap(a->base, a->bytes);
	close(a->fd);
	a->base = NULL;
	a->fd = -1;
}

/* Makes or takes away the pages of a range. */
static int allocate(const struct arena *a, int mode, uint64_t offset, uint64_t bytes)
{
	int r;

	do
		r = fallocate(a->fd, mode, (off_t)offset, (off_t)bytes);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

static int punch(const struct arena *a, uint64_t offset, uint64_t bytes)
{
	return allocate(a, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

/* ---- pages --------------------------------------------------------------------------------- */

/* One range of an arena that is touched by several threads. */
struct touch {
	const struct arena *arena;
	struct topo_share parts[TOPO_NODES_MAX]; /* of the arena's shares, what lies in the range */
	_Atomic uint64_t next[TOPO_NODES_MAX];   /* bytes of each part that somebody took on */
	unsigned threads;
	bool (*told_to_stop)(const struct arena *a);
	_Atomic int result;
	_Atomic uint64_t touched, large; /* bytes; `large` of them on transparent large pages */
	_Atomic uint32_t refusals;       /* of 2 MiB pages */
};

struct touch_thread {
	struct touch *touch;
	unsigned first; /* the share it begins with */
	pthread_t thread;
};

/* Linux before 5.14: the pages are reserved first, so that the stores below cannot fault. */
static int touch_by_hand(const struct arena *a, uint64_t offset, uint64_t bytes)
{
	volatile char *p = (char *)a->base + offset;
	int r = allocate(a, 0, offset, bytes);

	if (r < 0)
		return r;
	for (uint64_t i = 0; i < bytes; i += PAGE_BYTES)
		p[i] = 0;
	return 0;
}

/* The control thread, which waits, has these blocked: a large arena must not make a stop wait. */
static bool stop_is_pending(const struct arena *a)
{
	sigset_t pending;

	return sigpending(&pending) == 0 &&
	       (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

static bool stop_was_said(const struct arena *a)
{
	return atomic_load(&a->stopped);
}

/* Transparent pages, asked for one by one: that works where an advice has no effect. */
static void collapse_piece(struct touch *t, uint64_t offset, uint64_t bytes)
{
	bool wanted = t->arena->huge != ARENA_HUGE_OFF && t->arena->page_bytes < HUGE_BYTES;
	uint64_t came;

	if (!wanted || atomic_load(&t->refusals) >= REFUSALS_MAX)
		return;
	atomic_fetch_add(&t->refusals,
			 hugepage_collapse((char *)t->arena->base + offset, bytes, &came));
	atomic_fetch_add(&t->large, came);
}

static int touch_piece(struct touch *t, uint64_t offset, uint64_t bytes)
{
	const struct arena *a = t->arena;
	int r;

	if (t->told_to_stop(a))
		return -EINTR;
	collapse_piece(t, offset, bytes);
	do
		r = madvise((char *)a->base + offset, bytes, MADV_POPULATE_WRITE);
	while (r < 0 && (errno == EINTR || errno == EAGAIN));
	if (r < 0 && errno == EINVAL)
		return touch_by_hand(a, offset, bytes);
	return r < 0 ? -errno : 0;
}

static void touch_part(struct touch *t, unsigned s)
{
	const struct topo_share *part = &t->parts[s];

	while (atomic_load(&t->result) == 0) {
		uint64_t at = atomic_fetch_add(&t->next[s], TOUCH_BYTES);
		uint64_t n;
		int r;

		if (at >= part->bytes)
			return;
		n = MIN(part->bytes - at, TOUCH_BYTES);
		r = touch_piece(t, part->offset + at, n);
		if (r < 0)
			atomic_store(&t->result, r);
		else
			atomic_fetch_add(&t->touched, n);
	}
}

/* Begins with its own node's share, then helps with the others: where pages lie was bound before.
 * So all CPUs work on a slab of which all lies on one node. */
static void *touch_main(void *arg)
{
	struct touch_thread *me = arg;
	const struct arena *a = me->touch->arena;

	if (a->bound)
		topo_run_on(a->topo, a->shares[me->first].os_index);
	for (unsigned i = 0; i < a->share_count; i++)
		touch_part(me->touch, (me->first + i) % a->share_count);
	return NULL;
}

static unsigned touch_threads(uint64_t bytes)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t pieces = (bytes + TOUCH_BYTES - 1) / TOUCH_BYTES;

	return (unsigned)MIN(MIN((uint64_t)MAX(cpus, 1), pieces), (uint64_t)TOUCH_THREADS);
}

/* All of them, the caller's too, are threads of their own: the caller's CPUs stay as they are. */
static void touch_run(struct touch *t, uint64_t bytes)
{
	struct touch_thread threads[TOUCH_THREADS];
	unsigned want = touch_threads(bytes), n = 0;

	for (; n < want; n++) {
		threads[n] =
			(struct touch_thread){ .touch = t, .first = n % t->arena->share_count };
		if (pthread_create(&threads[n].thread, NULL, touch_main, &threads[n]) != 0)
			break;
	}
	if (n == 0)
		for (unsigned s = 0; s < t->arena->share_count; s++)
			touch_part(t, s);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i].thread, NULL);
	t->threads = MAX(n, 1u);
}

static void touch_plan(struct touch *t, uint64_t offset, uint64_t bytes)
{
	for (unsigned i = 0; i < t->arena->share_count; i++) {
		const struct topo_share *share = &t->arena->shares[i];
		uint64_t from = MAX(share->offset, offset);
		uint64_t to = MIN(share->offset + share->bytes, offset + bytes);

		t->parts[i] =
			(struct topo_share){ .offset = from, .bytes = to > from ? to - from : 0 };
	}
}

static int touch_range(struct touch *t, uint64_t offset, uint64_t bytes, struct err *err)
{
	const char *name = t->arena->name;
	int r;

	touch_plan(t, offset, bytes);
	touch_run(t, bytes);
	r = atomic_load(&t->result);
	if (r == -EINTR)
		return err_set(err, EINTR, "%s: told to stop while memory was touched", name);
	if (r < 0)
		return err_set(err, -r, "%s: memory ended after %" PRIu64 " of %" PRIu64 " MiB: %s",
			       name, atomic_load(&t->touched) >> 20, bytes >> 20, strerror(-r));
	return 0;
}

static int reserve_range(const struct arena *a, uint64_t offset, uint64_t bytes, struct err *err)
{
	int r = bytes > 0 ? allocate(a, 0, offset, bytes) : 0;

	if (r < 0)
		return err_set(err, -r, "%s: %" PRIu64 " MiB of memory cannot be reserved: %s",
			       a->name, bytes >> 20, strerror(-r));
	return 0;
}

/* ---- create -------------------------------------------------------------------------------- */

static int fill_first(struct arena *a, unsigned *ret_threads, struct err *err)
{
	struct touch t = { .arena = a, .told_to_stop = stop_is_pending };
	int r;

	if (a->bound)
		topo_bind(a->topo, a->base, a->shares, a->share_count);
	r = a->touched ? touch_range(&t, 0, a->first_bytes, err)
		       : reserve_range(a, 0, a->first_bytes, err);
	*ret_threads = t.threads;
	a->collapses = atomic_load(&t.large) > 0;
	if (r < 0)
		arena_destroy(a);
	return r;
}

/* Says once what came of it. */
static void choose(struct arena *a, unsigned threads, const char *fmt, ...) PRINTF(3, 4);
static void choose(struct arena *a, unsigned threads, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(a->chosen, sizeof(a->chosen), fmt, args);
	va_end(args);
	ASSERT(n > 0 && (size_t)n < sizeof(a->chosen));
	if (threads > 0)
		n += snprintf(a->chosen + n, sizeof(a->chosen) - (size_t)n, ", touched by %u %s",
			      threads, PLURAL(threads, "thread", "threads"));
	else if (a->first_bytes > 0)
		n += snprintf(a->chosen + n, sizeof(a->chosen) - (size_t)n, ", reserved");
	if (a->first_bytes < a->bytes)
		snprintf(a->chosen + n, sizeof(a->chosen) - (size_t)n,
			 ", %" PRIu64 " MiB to come in slabs of %" PRIu64 " MiB",
			 (a->bytes - a->first_bytes) >> 20, a->slab_bytes >> 20);
}

static int create_pool(const struct arena_options *o, struct arena *a, struct err *err)
{
	unsigned threads;
	int r = file_open(o, true, a);

	if (r < 0)
		return err_set(err, -r,
			       "%s: %" PRIu64 " MiB of 2 MiB pages, but %" PRIu64
			       " MiB are free in the pool: %s",
			       o->name, o->bytes >> 20, hugepage_pool_bytes() >> 20, strerror(-r));
	r = fill_first(a, &threads, err);
	if (r == 0)
		choose(a, threads, "2 MiB pages of the pool");
	return r;
}

/* A fiftieth may be missing: what is not a whole large page, and a few that were not to be had. */
static bool large_enough(const struct arena *a, uint64_t large, uint64_t bytes)
{
	uint64_t want = ALIGN_DOWN(bytes, HUGE_BYTES);

	return a->huge != ARENA_HUGE_REQUIRE || large >= want - want / 50;
}

/* Transparent pages are only asked for; what came is seen after the touch. */
static int judge_transparent(struct arena *a, unsigned threads, const char *pool, struct err *err)
{
	uint64_t got = hugepage_mapped_bytes(a->base, a->bytes);

	if (!large_enough(a, got, a->first_bytes)) {
		uint64_t bytes = a->first_bytes;

		arena_destroy(a);
		return err_set(err, ENOMEM,
			       "%s; and only %" PRIu64 " of %" PRIu64 " MiB came on "
			       "transparent 2 MiB pages",
			       pool, got >> 20, bytes >> 20);
	}
	if (got > 0)
		choose(a, threads, "transparent 2 MiB pages for %" PRIu64 " of %" PRIu64 " MiB",
		       got >> 20, a->first_bytes >> 20);
	else
		choose(a, threads, "4 KiB pages");
	return 0;
}

static int create_plain(const struct arena_options *o, const char *pool, struct arena *a,
			struct err *err)
{
	unsigned threads;
	int r = file_open(o, false, a);

	if (r < 0)
		return err_set(err, -r, "%s: a memfd of %" PRIu64 " bytes: %s", o->name, o->bytes,
			       strerror(-r));
	if (o->huge != ARENA_HUGE_OFF)
		madvise(a->base, a->bytes, MADV_HUGEPAGE); /* for what is touched again, later */
	r = fill_first(a, &threads, err);
	return r < 0 ? r : judge_transparent(a, threads, pool, err);
}

int arena_create(const struct arena_options *o, struct arena *ret, struct err *err)
{
	struct err pool = ERR_INIT;
	struct arena a = { .fd = -1 };
	int r;

	ASSERT(o->bytes > 0 && o->slab_bytes % HUGE_BYTES == 0);
	ASSERT(!o->no_pool || o->huge != ARENA_HUGE_REQUIRE);
	if (o->huge != ARENA_HUGE_OFF && !o->no_pool && create_pool(o, &a, &pool) == 0) {
		*ret = a;
		return 0;
	}
	if (pool.code == -EINTR)
		return err_set(err, EINTR, "%s", pool.text);
	/* Before the first page, for all slabs: the later ones must not find nothing left. */
	r = o->on_demand ? 0 : limits_check(o->name, o->bytes + o->beside_bytes, err);
	if (r < 0)
		return r;
	if (pool.code < 0)
		log_debug(TIER, "%s", pool.text);
	r = create_plain(o, pool.text, &a, err);
	if (r < 0)
		return r;
	*ret = a;
	return 0;
}

/* ---- slabs --------------------------------------------------------------------------------- */

static int touch_slab(struct arena *a, uint64_t offset, uint64_t bytes, uint64_t *ret_large,
		      struct err *err)
{
	struct touch t = { .arena = a, .told_to_stop = stop_was_said };
	int r = touch_range(&t, offset, bytes, err);

	*ret_large = a->page_bytes == HUGE_BYTES ? bytes : atomic_load(&t.large);
	/* Where the first slab came on large pages that nobody asked for, this is not known. */
	if (r == 0 && a->collapses && !large_enough(a, *ret_large, bytes))
		return err_set(err, ENOMEM,
			       "%s: only %" PRIu64 " of %" PRIu64 " MiB came on transparent 2 MiB "
			       "pages",
			       a->name, *ret_large >> 20, bytes >> 20);
	return r;
}

static int fill_slab(struct arena *a, uint64_t offset, uint64_t bytes, uint64_t *ret_large,
		     struct err *err)
{
	/* Others may have taken what was there at the start; the kernel would kill somebody. What
	 * stands in the pool is promised. */
	int r = a->page_bytes == HUGE_BYTES ? 0 : limits_check(a->name, bytes, err);

	if (r < 0)
		return r;
	return a->touched ? touch_slab(a, offset, bytes, ret_large, err)
			  : reserve_range(a, offset, bytes, err);
}

/* The last slab may end within a page of the pool, which is its own. */
static uint64_t slab_pages(const struct arena *a, uint64_t offset, uint64_t bytes)
{
	uint64_t whole = ALIGN_UP(bytes, a->page_bytes);

	ASSERT(a->slab_bytes > 0 && offset % a->slab_bytes == 0 && offset < a->bytes &&
	       whole <= a->bytes - offset);
	return whole;
}

int arena_back(struct arena *a, uint64_t offset, uint64_t bytes, uint64_t *ret_large,
	       struct err *err)
{
	uint64_t large = 0;
	int r;

	bytes = slab_pages(a, offset, bytes);
	if (atomic_load(&a->stopped))
		return err_set(err, ECANCELED, "%s: told to stop", a->name);
	r = fill_slab(a, offset, bytes, &large, err);
	if (r < 0) {
		punch(a, offset, bytes);
		/* Whatever the kernel called it, there is no such memory now. */
		err->code = r == -EINTR ? -ECANCELED : -ENOMEM;
		return err->code;
	}
	if (ret_large != NULL)
		*ret_large = large;
	return 0;
}

int arena_unback(struct arena *a, uint64_t offset, uint64_t bytes, struct err *err)
{
	int r = punch(a, offset, slab_pages(a, offset, bytes));

	if (r < 0)
		return err_set(err, -r, "%s: %" PRIu64 " MiB cannot be given back: %s", a->name,
			       bytes >> 20, strerror(-r));
	return 0;
}

void arena_stop(struct arena *a)
{
	atomic_store(&a->stopped, 1);
}

/* ---- use ----------------------------------------------------------------------------------- */

void arena_export(const struct arena *a, struct arena_token *ret)
{
	*ret = (struct arena_token){ .fd = a->fd, .bytes = a->bytes, .alignment = GRANULE_SMALL };
}

void arena_trim(struct arena *a, uint64_t offset, uint64_t bytes)
{
	uint64_t begin = ALIGN_UP(offset, a->page_bytes);
	uint64_t end = ALIGN_DOWN(offset + bytes, a->page_bytes);
	int r;

	ASSERT(offset <= a->bytes && bytes <= a->bytes - offset);
	if (begin >= end)
		return;
	atomic_store(&a->trimmed, 1);
	r = punch(a, begin, end - begin);
	if (r < 0)
		log_warn(TIER, "%s: %" PRIu64 " bytes could not be given back: %s", a->name,
			 end - begin, strerror(-r));
}

int arena_reserve(struct arena *a, uint64_t offset, uint64_t bytes)
{
	if (bytes == 0 || !atomic_load(&a->trimmed))
		return 0;
	return allocate(a, 0, offset, bytes) < 0 ? -ENOMEM : 0;
}

/* Reserved pages that nobody ever touched count as a hole and are zeros already; leaving them so
 * saves clearing them twice. A file system that cannot tell says that all is data. The search for a
 * hole walks over all data up to it, so that a tensor's zeros would cost the pages of the whole
 * tier where everything was touched at the start: there nobody asks. */
void arena_zero(struct arena *a, uint64_t offset, uint64_t bytes)
{
	uint64_t end = offset + bytes;

	ASSERT(offset <= a->bytes && bytes <= a->bytes - offset);
	while (offset < end) {
		off_t data = (off_t)offset, hole = (off_t)end;

		if (bytes >= SEEK_MIN_BYTES && !a->touched) {
			data = lseek(a->fd, (off_t)offset, SEEK_DATA);
			if (data < 0 && errno == ENXIO)
				return;
			data = data < 0 ? (off_t)offset : data;
			hole = lseek(a->fd, data, SEEK_HOLE);
		}
		if ((uint64_t)data >= end)
			return;
		if (hole < data || (uint64_t)hole > end)
			hole = (off_t)end;
		memset((char *)a->base + data, 0, (size_t)(hole - data));
		offset = (uint64_t)hole;
	}
}

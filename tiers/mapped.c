/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/mapped.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/guard.h"
#include "base/heap.h"
#include "base/log.h"

#define PIECE_BYTES  MIB(2) /* after which another xfer may be more urgent */
#define STREAM_BYTES MIB(2) /* xfers of this size would only push each other out of the caches */
/* Sleeps shorter than this cost more than they are worth: the lane may run ahead by it, and a late
 * wake-up is made good within it. */
#define RATE_SLACK_NS (100 * NS_PER_US)

static struct mapped_tier *mapped_of(struct tier *t)
{
	ASSERT_OBJ(&t->base, TIER_MAGIC);
	return (struct mapped_tier *)t;
}

int mapped_open(const struct tier_ops *ops, const struct arena_options *options,
		struct mapped_tier **ret, struct err *err)
{
	struct mapped_tier *m = heap_zeros(1, sizeof(*m));
	int r;

	if (m == NULL)
		return err_set(err, ENOMEM, "%s: no memory", options->name);
	r = arena_create(options, &m->arena, err);
	if (r < 0) {
		heap_free(m);
		return r;
	}
	m->base.magic = TIER_MAGIC;
	m->base.ops = ops;
	m->base.kind = ops->kind;
	/* What was asked for, though a page of the pool may reach beyond it. */
	m->base.bytes = ALIGN_UP(options->bytes, (uint64_t)GRANULE);
	m->base.host_base = m->arena.base;
	m->base.alignment = 1;
	m->base.slab_bytes = m->arena.slab_bytes;
	m->base.backed_bytes = m->backed = MIN(m->arena.first_bytes, m->base.bytes);
	m->base.on_demand = options->on_demand;
	m->base.damaged = &m->damaged;
	m->opened_ns = clock_now_ns();
	snprintf(m->base.name, sizeof(m->base.name), "%s", options->name);
	snprintf(m->base.chosen, sizeof(m->base.chosen), "%s", m->arena.chosen);
	guard_add(m->arena.base, m->arena.bytes, m->arena.page_bytes, &m->damaged);
	*ret = m;
	return 0;
}

void mapped_close(struct tier *t)
{
	struct mapped_tier *m = mapped_of(t);

	guard_remove(m->arena.base);
	arena_destroy(&m->arena);
	m->base.magic = 0;
	heap_free(m);
}

int mapped_finish(struct mapped_tier *m, const struct fault_config *fault, struct tier **ret,
		  struct err *err)
{
	int r;

	if (!fault->presence.present) {
		*ret = (struct tier *)m;
		return 0;
	}
	r = fault_wrap((struct tier *)m, fault, ret, err);
	if (r < 0)
		mapped_close((struct tier *)m);
	return r;
}

int mapped_export(struct tier *t, struct arena_token *ret, struct err *err)
{
	arena_export(&mapped_of(t)->arena, ret);
	return 0;
}

void mapped_trim(struct tier *t, uint64_t offset, uint64_t bytes)
{
	arena_trim(&mapped_of(t)->arena, offset, bytes);
}

void mapped_ending(struct tier *t)
{
	arena_stop(&mapped_of(t)->arena);
}

/* ---- the helper ---------------------------------------------------------------------------- */

static int make_slab(struct mapped_tier *m, const struct xfer *x, struct err *err)
{
	uint64_t large = 0;
	int r;

	if (m->physical > 0 && x->bytes > m->physical - MIN(m->physical, m->backed))
		return err_set(err, ENOMEM, "%s: %" PRIu64 " of %" PRIu64 " MiB are taken",
			       m->base.name, m->backed >> 20, m->physical >> 20);
	r = arena_back(&m->arena, x->offset, x->bytes, &large, err);
	if (r < 0)
		return r;
	m->backed += x->bytes;
	m->large += large;
	if (m->backed == m->base.bytes && !m->base.on_demand)
		log_info(TIER,
			 "%s: all %" PRIu64 " MiB are there, %.1f s after the first %" PRIu64
			 "; of the others %" PRIu64 " MiB on large pages",
			 m->base.name, m->base.bytes >> 20,
			 (double)(clock_now_ns() - m->opened_ns) / (double)NS_PER_S,
			 m->base.backed_bytes >> 20, m->large >> 20);
	return 0;
}

static int drop_slab(struct mapped_tier *m, const struct xfer *x, struct err *err)
{
	int r = arena_unback(&m->arena, x->offset, x->bytes, err);

	if (r == 0)
		m->backed -= x->bytes;
	return r;
}

static void work(void *ctx, struct xfer *x)
{
	struct mapped_tier *m = ctx;
	struct err err = ERR_INIT;

	x->result = x->op == XFER_BACK ? make_slab(m, x, &err) : drop_slab(m, x, &err);
	snprintf(x->cause, sizeof(x->cause), "%.*s", (int)sizeof(x->cause) - 1, err.text);
}

static const struct backer_ops helper_ops = { .work = work };

/* ---- the lane ------------------------------------------------------------------------------ */

int mapped_lane_start(struct tier *t, int wake_fd, struct err *err)
{
	struct mapped_tier *m = mapped_of(t);

	m->wake_fd = wake_fd;
	m->ready_ns = 0;
	if (m->base.slab_bytes == 0)
		return 0;
	return backer_start(&m->backer, m->base.name, &helper_ops, m, err);
}

void mapped_lane_stop(struct tier *t)
{
	struct mapped_tier *m = mapped_of(t);

	for (unsigned p = 0; p < XFER_PRIORITIES; p++)
		ASSERT(m->held[p] == NULL);
	if (m->base.slab_bytes > 0)
		backer_stop(&m->backer);
}

/* One whole slab, the last one perhaps shorter. */
static void check_slab(const struct mapped_tier *m, const struct xfer *x)
{
	ASSERT(m->base.slab_bytes > 0 && x->offset % m->base.slab_bytes == 0);
	ASSERT(x->bytes == MIN(m->base.slab_bytes, m->base.bytes - x->offset) && x->bytes > 0);
}

int mapped_queue(struct tier *t, struct xfer *x)
{
	struct mapped_tier *m = mapped_of(t);

	if (x->op == XFER_BACK || x->op == XFER_UNBACK) {
		check_slab(m, x);
		backer_queue(&m->backer, x);
		return 0;
	}
	ASSERT(x->op <= XFER_SYNC); /* a PIN is for who has host_memory() */
	if (m->held[x->priority] != NULL)
		return -EBUSY;
	m->held[x->priority] = x;
	m->copied[x->priority] = 0;
	return 0;
}

void mapped_commit(struct tier *t)
{
	/* Copies are made in reap(): there is nobody else to start them. */
}

static int fail(struct xfer *x, int r, const char *what)
{
	x->result = r;
	snprintf(x->cause, sizeof(x->cause), "%s of %llu bytes at 0x%llx: %s", what,
		 (unsigned long long)x->bytes, (unsigned long long)x->offset, strerror(-r));
	return r;
}

/* Moves `n` bytes of an overlapping copy, from the end that is not overwritten first. */
static void copy_inside(const struct mapped_tier *m, const struct xfer *x, uint64_t at, uint64_t n)
{
	char *base = m->arena.base;

	if (x->from < x->offset)
		at = x->bytes - at - n;
	memmove(base + x->offset + at, base + x->from + at, n);
}

static void copy_bytes(const struct xfer *x, void *to, const void *from, uint64_t n)
{
	if (x->bytes >= STREAM_BYTES)
		copy_stream(to, from, n);
	else
		memcpy(to, from, n);
}

static int copy_piece(struct mapped_tier *m, struct xfer *x, uint64_t at, uint64_t n)
{
	char *place = (char *)m->arena.base + x->offset + at;

	/* Of a copy backwards, the piece lies elsewhere, so all of its target is looked at. */
	if (x->op == XFER_COPY && at == 0 && arena_reserve(&m->arena, x->offset, x->bytes) < 0)
		return fail(x, -ENOMEM, "copy");
	if ((x->op == XFER_WRITE || x->op == XFER_ZERO) &&
	    arena_reserve(&m->arena, x->offset + at, n) < 0)
		return fail(x, -ENOMEM, x->op == XFER_WRITE ? "write" : "zero");
	if (x->op == XFER_READ)
		copy_bytes(x, (char *)x->host + at, place, n);
	else if (x->op == XFER_WRITE)
		copy_bytes(x, place, (char *)x->host + at, n);
	else if (x->op == XFER_ZERO)
		arena_zero(&m->arena, x->offset + at, n);
	else
		copy_inside(m, x, at, n);
	return 0;
}

/* Makes the next piece of the most urgent xfer. */
static void advance(struct mapped_tier *m, unsigned p)
{
	struct xfer *x = m->held[p];
	uint64_t n = MIN(x->bytes - m->copied[p], PIECE_BYTES), now;

	if (x->op == XFER_SYNC || copy_piece(m, x, m->copied[p], n) < 0)
		n = x->bytes - m->copied[p];
	else if (m->rate > 0) {
		now = clock_now_ns();
		m->ready_ns = MAX(m->ready_ns, now - RATE_SLACK_NS) +
			      (uint64_t)((double)n * 1e9 / (double)m->rate);
	}
	m->copied[p] += n;
}

static bool must_pause(const struct mapped_tier *m, uint64_t *ret_ns)
{
	uint64_t now = m->rate > 0 ? clock_now_ns() : 0;

	if (m->rate == 0 || m->ready_ns <= now + RATE_SLACK_NS)
		return false;
	*ret_ns = m->ready_ns - now;
	return true;
}

static unsigned reap_copy(struct mapped_tier *m, struct xfer **done, unsigned max)
{
	uint64_t pause_ns;
	unsigned p = 0;

	while (p < XFER_PRIORITIES && m->held[p] == NULL)
		p++;
	if (p == XFER_PRIORITIES || max == 0 || must_pause(m, &pause_ns))
		return 0;
	/* One that was copied waits here only for its time to pass. */
	if (m->copied[p] < m->held[p]->bytes || m->held[p]->bytes == 0)
		advance(m, p);
	if (m->copied[p] < m->held[p]->bytes || must_pause(m, &pause_ns))
		return 0;
	done[0] = m->held[p];
	m->held[p] = NULL;
	return 1;
}

unsigned mapped_reap(struct tier *t, struct xfer **done, unsigned max)
{
	struct mapped_tier *m = mapped_of(t);
	unsigned slabs = m->base.slab_bytes > 0 ? backer_reap(&m->backer, done, max) : 0;

	return slabs > 0 ? slabs : reap_copy(m, done, max);
}

void mapped_wait(struct tier *t, int64_t timeout_ns)
{
	struct mapped_tier *m = mapped_of(t);
	struct pollfd fds[] = {
		{ .fd = m->wake_fd, .events = POLLIN },
		{ .fd = m->base.slab_bytes > 0 ? m->backer.fd : -1, .events = POLLIN },
	};
	struct timespec pause;
	uint64_t pause_ns;
	bool held = false;

	for (unsigned p = 0; p < XFER_PRIORITIES; p++)
		held |= m->held[p] != NULL;
	if (held && !must_pause(m, &pause_ns))
		return;
	if (!held)
		pause_ns = timeout_ns < 0 ? 0 : (uint64_t)timeout_ns;
	pause = (struct timespec){ (time_t)(pause_ns / NS_PER_S), (long)(pause_ns % NS_PER_S) };
	/* A signal only makes the lane look around once more. */
	if (ppoll(fds, ARRAY_SIZE(fds), held || timeout_ns >= 0 ? &pause : NULL, NULL) < 0)
		ASSERT(errno == EINTR);
}

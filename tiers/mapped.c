/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/mapped.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/copy.h"

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
	struct mapped_tier *m = calloc(1, sizeof(*m));
	int r;

	if (m == NULL)
		return err_set(err, ENOMEM, "%s: no memory", options->name);
	r = arena_create(options, &m->arena, err);
	if (r < 0) {
		free(m);
		return r;
	}
	m->base.magic = TIER_MAGIC;
	m->base.ops = ops;
	m->base.kind = ops->kind;
	m->base.bytes = m->arena.bytes;
	m->base.host_base = m->arena.base;
	m->base.alignment = 1;
	snprintf(m->base.name, sizeof(m->base.name), "%s", options->name);
	snprintf(m->base.chosen, sizeof(m->base.chosen), "%s", m->arena.chosen);
	*ret = m;
	return 0;
}

void mapped_close(struct tier *t)
{
	struct mapped_tier *m = mapped_of(t);

	arena_destroy(&m->arena);
	m->base.magic = 0;
	free(m);
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

/* ---- the lane ------------------------------------------------------------------------------ */

int mapped_lane_start(struct tier *t, int wake_fd, struct err *err)
{
	struct mapped_tier *m = mapped_of(t);

	m->wake_fd = wake_fd;
	m->ready_ns = 0;
	return 0;
}

void mapped_lane_stop(struct tier *t)
{
	struct mapped_tier *m = mapped_of(t);

	for (unsigned p = 0; p < XFER_PRIORITIES; p++)
		ASSERT(m->held[p] == NULL);
}

int mapped_queue(struct tier *t, struct xfer *x)
{
	struct mapped_tier *m = mapped_of(t);

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

unsigned mapped_reap(struct tier *t, struct xfer **done, unsigned max)
{
	struct mapped_tier *m = mapped_of(t);
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

void mapped_wait(struct tier *t, int64_t timeout_ns)
{
	struct mapped_tier *m = mapped_of(t);
	struct pollfd fd = { .fd = m->wake_fd, .events = POLLIN };
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
	if (ppoll(&fd, 1, held || timeout_ns >= 0 ? &pause : NULL, NULL) < 0)
		ASSERT(errno == EINTR);
}

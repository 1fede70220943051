/* SPDX-License-Identifier: Apache-2.0
 *
 * The fault backend. Each xfer has a shadow, which the tier inside gets in its place: a shorter one
 * if it is to be cut, none if it is to fail. What comes back is harmed and held until its delay has
 * passed. UNBACK and PIN pass unharmed.
 */
#define _GNU_SOURCE
#include "tiers/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/heap.h"

#define SHADOWS 64

struct shadow {
	struct xfer x; /* lent to the tier inside */
	struct xfer *outer;
	struct fault_decision decision;
	uint64_t due_ns;
	struct list link; /* spare or held */
};

struct fault_tier {
	struct tier_base base;
	struct tier_ops ops; /* those of the tier inside, but for the lane's */
	struct tier *inner;
	/* The lane's. */
	struct fault_state state;
	struct list spare, held;
	_Atomic bool ending; /* the daemon's end: what is held comes back now, what is lost too */
	struct shadow shadows[SHADOWS];
};

static struct fault_tier *fault_of(struct tier *t)
{
	ASSERT_OBJ(&t->base, TIER_MAGIC);
	return (struct fault_tier *)t;
}

static void copy_chosen(struct fault_tier *f)
{
	char faults[FAULT_TEXT_BYTES];

	fault_text(f->state.config, faults);
	snprintf(f->base.chosen, sizeof(f->base.chosen), "%s%.180s", faults, f->inner->base.chosen);
}

/* ---- the control thread -------------------------------------------------------------------- */

static void fault_close(struct tier *t)
{
	struct fault_tier *f = fault_of(t);

	f->inner->base.ops->close(f->inner);
	f->base.magic = 0;
	heap_free(f);
}

static int fault_export(struct tier *t, struct arena_token *ret, struct err *err)
{
	struct tier *inner = fault_of(t)->inner;

	return inner->base.ops->export_arena(inner, ret, err);
}

static void fault_host_memory(struct tier *t, void *base, size_t bytes, size_t ready)
{
	struct tier *inner = fault_of(t)->inner;

	inner->base.ops->host_memory(inner, base, bytes, ready);
}

static void fault_staging(struct tier *t, void *base, size_t bytes)
{
	struct tier *inner = fault_of(t)->inner;

	inner->base.ops->staging(inner, base, bytes);
}

static int fault_slab_fd(struct tier *t, uint64_t offset)
{
	struct tier *inner = fault_of(t)->inner;

	return inner->base.ops->slab_fd(inner, offset);
}

static void fault_ending(struct tier *t)
{
	struct fault_tier *f = fault_of(t);

	atomic_store(&f->ending, true);
	if (f->inner->base.ops->ending != NULL)
		f->inner->base.ops->ending(f->inner);
}

static void fault_trim(struct tier *t, uint64_t offset, uint64_t bytes)
{
	struct tier *inner = fault_of(t)->inner;

	inner->base.ops->trim(inner, offset, bytes);
}

/* ---- the lane ------------------------------------------------------------------------------ */

static int fault_lane_start(struct tier *t, int wake_fd, struct err *err)
{
	struct fault_tier *f = fault_of(t);
	int r = f->inner->base.ops->lane_start(f->inner, wake_fd, err);

	if (r == 0)
		copy_chosen(f);
	return r;
}

static void fault_lane_stop(struct tier *t)
{
	struct fault_tier *f = fault_of(t);

	ASSERT(list_empty(&f->held));
	f->inner->base.ops->lane_stop(f->inner);
}

static void hold(struct fault_tier *f, struct shadow *s)
{
	s->due_ns = s->decision.delay_ns == FAULT_NEVER ? FAULT_NEVER
							: clock_now_ns() + s->decision.delay_ns;
	list_push_back(&f->held, &s->link);
}

static const char *verb(const struct xfer *x)
{
	static const char *const verbs[] = { "read", "write", "zero", "copy", "sync", "slab" };

	ASSERT(x->op < ARRAY_SIZE(verbs));
	return verbs[x->op];
}

static void fail(struct xfer *x, int r, const char *fmt, ...) PRINTF(3, 4);
static void fail(struct xfer *x, int r, const char *fmt, ...)
{
	va_list args;

	x->result = r;
	va_start(args, fmt);
	vsnprintf(x->cause, sizeof(x->cause), fmt, args);
	va_end(args);
}

static void flip(const struct fault_tier *f, struct shadow *s)
{
	struct xfer *x = &s->x;

	((unsigned char *)x->host)[s->decision.where] ^= 0x40;
	if (f->base.kind == TIER_KIND_NVME && crc32c(0, x->host, x->bytes) != x->crc)
		fail(x, -EBADMSG, "read of %" PRIu64 " bytes at 0x%" PRIx64 ": checksum", x->bytes,
		     x->offset);
}

static bool is_short(const struct shadow *s)
{
	return s->decision.kind == FAULT_SHORT_READ || s->decision.kind == FAULT_SHORT_WRITE;
}

/* A real failure is not covered up by an invented one. That checksum of a read that was cut short
 * is of the invented one. */
static bool has_failed(const struct shadow *s)
{
	return s->x.result < 0 && !(is_short(s) && s->x.result == -EBADMSG);
}

static void harm(struct fault_tier *f, struct shadow *s)
{
	const struct xfer *outer = s->outer;

	if (has_failed(s))
		return;
	if (s->decision.error < 0)
		fail(&s->x, s->decision.error,
		     "%s of %" PRIu64 " bytes at 0x%" PRIx64 ": injected %s", verb(outer),
		     outer->bytes, outer->offset, strerrorname_np(-s->decision.error));
	else if (is_short(s))
		fail(&s->x, -EIO, "%s of %" PRIu64 " of %" PRIu64 " bytes at 0x%" PRIx64,
		     verb(outer), s->decision.bytes, outer->bytes, outer->offset);
	else if (s->decision.kind == FAULT_CORRUPT)
		flip(f, s);
	else if (s->decision.kind == FAULT_ROT && f->base.kind == TIER_KIND_NVME)
		s->x.crc ^= 1; /* as if what was stored were other bytes */
}

/* Those that the tier inside never sees. */
static bool fails_at_once(const struct shadow *s)
{
	return (s->decision.error < 0 && !s->decision.after) ||
	       (is_short(s) && s->decision.bytes == 0);
}

/* Slabs count by themselves: copies have the same numbers whether memory comes in slabs or not. */
static struct fault_decision decide(struct fault_state *state, const struct xfer *x)
{
	if (x->op > XFER_BACK)
		return (struct fault_decision){ .kind = FAULT_NONE };
	return fault_decide(state, x->op, x->op == XFER_SYNC ? 0 : x->bytes);
}

static int fault_queue(struct tier *t, struct xfer *x)
{
	struct fault_tier *f = fault_of(t);
	struct fault_state state = f->state;
	struct shadow *s;

	if (list_empty(&f->spare))
		return -EBUSY;
	s = list_first(&f->spare, struct shadow, link);
	s->decision = decide(&state, x);
	s->outer = x;
	s->x = *x;
	list_init(&s->x.link);
	if (is_short(s))
		s->x.bytes = s->decision.bytes;
	/* A refused xfer comes again and must meet the same decision, so no call is counted yet. */
	if (!fails_at_once(s) && f->inner->base.ops->queue(f->inner, &s->x) < 0)
		return -EBUSY;
	f->state = state;
	list_remove(&s->link);
	if (fails_at_once(s)) {
		harm(f, s);
		hold(f, s);
	}
	return 0;
}

static void fault_commit(struct tier *t)
{
	struct tier *inner = fault_of(t)->inner;

	inner->base.ops->commit(inner);
}

static void give_back(struct fault_tier *f, struct shadow *s)
{
	struct xfer *x = s->outer;

	x->result = s->x.result;
	x->crc = s->x.crc;
	x->retries = s->x.retries;
	memcpy(x->cause, s->x.cause, sizeof(x->cause));
	list_push_front(&f->spare, &s->link);
}

static unsigned fault_reap(struct tier *t, struct xfer **done, unsigned max)
{
	struct fault_tier *f = fault_of(t);
	struct xfer *inner[SHADOWS];
	unsigned n = f->inner->base.ops->reap(f->inner, inner, SHADOWS), count = 0;
	struct list *it, *tmp;
	uint64_t now;

	for (unsigned i = 0; i < n; i++) {
		struct shadow *s = container_of(inner[i], struct shadow, x);

		harm(f, s);
		hold(f, s);
	}
	now = clock_now_ns();
	list_for_each_safe (it, tmp, &f->held) {
		struct shadow *s = list_entry(it, struct shadow, link);

		if ((s->due_ns > now && !atomic_load(&f->ending)) || count == max)
			continue;
		list_remove(&s->link);
		done[count++] = s->outer;
		give_back(f, s);
	}
	return count;
}

static void fault_wait(struct tier *t, int64_t timeout_ns)
{
	struct fault_tier *f = fault_of(t);
	uint64_t now = clock_now_ns();
	struct list *it;

	list_for_each (it, &f->held) {
		const struct shadow *s = list_entry(it, struct shadow, link);
		int64_t left = s->due_ns > now ? (int64_t)(s->due_ns - now) : 0;

		if (left == 0 || atomic_load(&f->ending))
			return;
		if (s->due_ns == FAULT_NEVER)
			continue;
		timeout_ns = timeout_ns < 0 ? left : MIN(timeout_ns, left);
	}
	f->inner->base.ops->wait(f->inner, timeout_ns);
}

/* ---- wrap ---------------------------------------------------------------------------------- */

/* What the tier inside leaves out stays left out. */
static void fill_ops(struct tier_ops *ops)
{
	ops->close = fault_close;
	ops->export_arena = ops->export_arena != NULL ? fault_export : NULL;
	ops->host_memory = ops->host_memory != NULL ? fault_host_memory : NULL;
	ops->staging = ops->staging != NULL ? fault_staging : NULL;
	ops->slab_fd = ops->slab_fd != NULL ? fault_slab_fd : NULL;
	ops->ending = fault_ending;
	ops->trim = ops->trim != NULL ? fault_trim : NULL;
	ops->lane_start = fault_lane_start;
	ops->lane_stop = fault_lane_stop;
	ops->queue = fault_queue;
	ops->commit = fault_commit;
	ops->reap = fault_reap;
	ops->wait = fault_wait;
}

int fault_wrap(struct tier *inner, const struct fault_config *config, struct tier **ret,
	       struct err *err)
{
	struct fault_tier *f;
	int r = fault_starts(config, inner->base.name, err);

	ASSERT_OBJ(&inner->base, TIER_MAGIC);
	if (r < 0)
		return r;
	f = heap_zeros(1, sizeof(*f));
	if (f == NULL)
		return err_set(err, ENOMEM, "%s: no memory for its faults", inner->base.name);
	f->base = inner->base;
	f->ops = *inner->base.ops;
	f->base.ops = &f->ops;
	f->inner = inner;
	f->state.config = config;
	fill_ops(&f->ops);
	copy_chosen(f);
	fault_say(config, f->base.name);
	list_init(&f->spare);
	list_init(&f->held);
	for (unsigned i = 0; i < SHADOWS; i++)
		list_push_back(&f->spare, &f->shadows[i].link);
	*ret = (struct tier *)f;
	return 0;
}

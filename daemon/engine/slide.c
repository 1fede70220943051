/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/slide.h"

#include <errno.h>

#include "base/log.h"
#include "daemon/engine/compact.h"
#include "daemon/engine/front.h"
#include "daemon/engine/move.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/slabs.h"

/* Holes in a row, with copies under hbm fronts that may go, and what stands after them. It may be
 * empty: then two that are taken stand side by side. */
struct gap {
	uint32_t before; /* node, EXTENT_NONE: the tier begins with it */
	uint64_t begin, end;
	uint64_t drop;       /* bytes of those copies */
	struct extent after; /* if `more` */
	bool more;
};

static bool is_small(const struct extent *x)
{
	return x->bytes % GRANULE != 0;
}

static bool is_copy(struct engine *e, uint8_t device, const struct extent *x)
{
	return x->owner != EXTENT_FREE && x->owner != OWNER_SLAB &&
	       record_of(e, x->owner)->front != device && compact_can_leave(e, device, x);
}

static struct gap gap_after(struct engine *e, uint8_t device, uint32_t before, uint64_t begin)
{
	const struct extents *x = e->devices[device].extents;
	struct gap g = { .before = before, .begin = begin, .end = begin };

	g.more = extents_next(x, before, &g.after);
	while (g.more && (g.after.owner == EXTENT_FREE || is_copy(e, device, &g.after))) {
		g.end = g.after.offset + g.after.bytes;
		g.drop += g.after.owner == EXTENT_FREE ? 0 : g.after.bytes;
		g.more = extents_next(x, g.after.node, &g.after);
	}
	return g;
}

static struct gap gap_next(struct engine *e, uint8_t device, const struct gap *g)
{
	return gap_after(e, device, g->after.node, g->after.offset + g->after.bytes);
}

/* Bytes by which what follows can come down: large extents begin at pages. */
static uint64_t reach_of(const struct gap *g)
{
	uint64_t begin = is_small(&g->after) ? g->begin : ALIGN_UP(g->begin, GRANULE);

	return g->after.offset - begin;
}

/* Of these the whole pages, which no alignment further up eats. */
static uint64_t step_of(const struct gap *g)
{
	return ALIGN_DOWN(reach_of(g), GRANULE);
}

/* Whether the gap would do for `bytes` if it began `more` bytes earlier. */
static bool would_do(const struct gap *g, uint64_t more, uint64_t bytes)
{
	uint64_t begin = g->begin - more;

	if (bytes % GRANULE == 0)
		begin = ALIGN_UP(begin, GRANULE);
	return begin + bytes <= g->end;
}

/* Two ends walk over the gaps in address order. What has to come down between them is judged once,
 * when the right end comes by: clients pin and unpin meanwhile. */
struct slide slide_find(struct engine *e, uint8_t device, uint64_t bytes)
{
	struct slide best = { .found = false };
	struct gap left, right;
	uint64_t steps = 0, cost;

	if (device_kind(e, device) != TIER_KIND_DRAM)
		return best;
	left = right = gap_after(e, device, EXTENT_NONE, 0);
	cost = right.drop;
	for (;;) {
		while (left.before != right.before &&
		       would_do(&right, steps - step_of(&left), bytes)) {
			steps -= step_of(&left);
			cost -= left.drop + left.after.bytes;
			left = gap_next(e, device, &left);
		}
		if (would_do(&right, steps, bytes) && (!best.found || cost < best.cost))
			best = (struct slide){ left.before, right.end, cost, true };
		if (!right.more)
			return best;
		if (compact_can_leave(e, device, &right.after)) {
			steps += step_of(&right);
			cost += right.after.bytes;
			right = gap_next(e, device, &right);
			cost += right.drop;
		} else {
			left = right = gap_next(e, device, &right);
			steps = 0;
			cost = right.drop;
		}
	}
}

static bool drop_copies(struct engine *e, uint8_t device, const struct gap *g)
{
	const struct extents *x = e->devices[device].extents;
	struct extent at, next;
	bool more = extents_next(x, g->before, &at);

	while (more && at.offset < g->end) {
		/* Dropping joins holes, so the next one that is taken is looked up before. */
		more = extents_next(x, at.node, &next);
		while (more && next.owner == EXTENT_FREE)
			more = extents_next(x, next.node, &next);
		if (at.owner != EXTENT_FREE)
			replica_drop(e, at.owner, TIER_KIND_DRAM);
		at = next;
	}
	return true;
}

static bool move_to(struct engine *e, uint8_t device, uint32_t tensor, uint32_t node)
{
	if (move_compact(e, tensor, node) == 0)
		return true;
	replica_give_moved(e, device, node);
	return false;
}

/* A small one is copied at once, so that it need not come down by pages. */
static bool come_down(struct engine *e, uint8_t device, const struct extent *x, uint64_t reach)
{
	uint32_t node;

	if (reach == 0)
		return false;
	if (is_small(x) && reach >= x->bytes)
		return replica_take_at(e, device, x->owner, x->offset - reach, &node) == 0 &&
		       move_to(e, device, x->owner, node);
	if (replica_take_before(e, device, x->owner, x->node, reach, &node) < 0)
		return false;
	if (move_slide(e, x->owner, node) == 0)
		return true;
	replica_give_moved(e, device, node);
	return false;
}

static uint32_t tensor_of(struct engine *e, uint8_t device, uint32_t node)
{
	struct extent x;

	if (node == EXTENT_NONE)
		return 0;
	extents_get(e->devices[device].extents, node, &x);
	return x.owner == OWNER_SLAB ? 0 : x.owner;
}

/* One step: what stands after the gap comes down. */
static bool close_gap(struct engine *e, uint8_t device, const struct gap *g)
{
	struct device *d = &e->devices[device];
	uint32_t tensor = g->after.owner;
	bool moved;

	d->slide_tensor = tensor_of(e, device, g->before);
	if (g->drop > 0)
		return drop_copies(e, device, g);
	if (!g->more || !compact_can_leave(e, device, &g->after))
		return false;
	moved = come_down(e, device, &g->after, reach_of(g));
	d->slide_tensor = tensor;
	/* What its writer has left unfilled has no bytes to move. */
	return moved || (state_of(e, tensor) == STATE_RESIDENT && front_unfilled(e, tensor) &&
			 front_drop(e, tensor) == 0);
}

static uint64_t end_of(const struct engine *e, uint8_t device, uint32_t node)
{
	struct extent x = { 0 };

	if (node != EXTENT_NONE)
		extents_get(e->devices[device].extents, node, &x);
	return x.offset + x.bytes;
}

bool slide_begin(struct engine *e, uint8_t device, const struct slide *s)
{
	struct gap g = gap_after(e, device, s->before, end_of(e, device, s->before));

	log_debug(RECLAIM, "%s: %llu bytes up to %#llx come down to join the gaps between",
		  e->devices[device].tier->base.name, (unsigned long long)s->cost,
		  (unsigned long long)s->end);
	e->devices[device].slide_end = s->end;
	return close_gap(e, device, &g);
}

bool slide_go_on(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];
	const struct record *r = &e->records[d->slide_tensor];
	struct gap g;

	if (d->slide_tensor == 0)
		return false;
	d->slide_tensor = 0;
	/* It may be another by now: then it is only somebody else's gap that is closed. */
	if ((r->flags & RECORD_LIVE) == 0 || dram_of(e, r) != device || r->dram_node == EXTENT_NONE)
		return false;
	g = gap_after(e, device, r->dram_node, end_of(e, device, r->dram_node));
	if (g.more && g.end == g.begin)
		g = gap_next(e, device, &g);
	return g.more && g.end < d->slide_end && close_gap(e, device, &g);
}

/* The lowest that can come down at all. */
static bool tidy(struct engine *e, uint8_t device)
{
	struct gap g = gap_after(e, device, EXTENT_NONE, 0);

	for (;;) {
		if (g.drop > 0 ||
		    (g.more && reach_of(&g) > 0 && compact_can_leave(e, device, &g.after))) {
			e->devices[device].slide_end = UINT64_MAX;
			if (close_gap(e, device, &g))
				return true;
		}
		if (!g.more)
			return false;
		g = gap_next(e, device, &g);
	}
}

/* The first small one that stands below a large one, and finds a hole above that. Of those between
 * two large ones it is the smallest: where that finds none, none does. */
static bool part(struct engine *e, uint8_t device)
{
	const struct extents *x = e->devices[device].extents;
	struct extent small = { .owner = EXTENT_FREE }, at;
	uint32_t node;
	bool more = extents_next(x, EXTENT_NONE, &at);

	for (; more; more = extents_next(x, at.node, &at)) {
		bool leaves = at.owner != EXTENT_FREE && compact_can_leave(e, device, &at) &&
			      record_of(e, at.owner)->front == device;

		if (leaves && is_small(&at) &&
		    (small.owner == EXTENT_FREE || at.bytes <= small.bytes))
			small = at;
		if (!leaves || is_small(&at) || small.owner == EXTENT_FREE)
			continue;
		if (replica_take_highest(e, device, small.owner, at.offset, &node) == 0)
			return move_to(e, device, small.owner, node);
		small.owner = EXTENT_FREE;
	}
	return false;
}

bool slide_tidy(struct engine *e, uint8_t device)
{
	return device_kind(e, device) == TIER_KIND_DRAM && (tidy(e, device) || part(e, device));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/compact.h"

#include <errno.h>

#include "base/log.h"
#include "daemon/engine/front.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/replica.h"

#define COMPACT_INTERVAL_NS (2 * NS_PER_MS)

struct window {
	uint64_t begin, end; /* addresses */
	uint32_t first;      /* node that begins it */
	uint64_t cost;       /* bytes that have to leave */
	bool found;
};

static uint64_t largest_lacking(struct engine *e, const struct device *d)
{
	const struct request *q = list_first(&d->queue, struct request, link);
	uint64_t largest = 0;

	for (size_t i = 0; i < q->n; i++)
		if (move_fill_needs_room(e, q->items[i].tensor, q->device))
			largest = MAX(largest, record_of(e, q->items[i].tensor)->bytes);
	return largest;
}

/* Whether what stands in the extent could leave it now. */
static bool can_leave(struct engine *e, uint8_t device, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);

	if (r->move != 0 || r->ready > 0 || r->hold_until_ns > e->now_ns)
		return false;
	if (r->front != device) /* a dram copy under an hbm front */
		return (r->sources & SOURCE_HBM) != 0;
	return state_of(e, tensor) == STATE_RESIDENT && !pins_any(e, tensor);
}

/* Two ends walk over the nodes in address order; `stuck` counts those between that cannot leave. */
static struct window find_window(struct engine *e, uint8_t device, uint64_t bytes)
{
	struct extents *x = e->devices[device].extents;
	struct window best = { .found = false };
	struct extent left, right;
	uint64_t cost = 0, stuck = 0;
	bool more = extents_next(x, EXTENT_NONE, &right);
	bool have_left = extents_next(x, EXTENT_NONE, &left);

	while (have_left) {
		/* Large extents begin at whole granules. */
		uint64_t end = ALIGN_UP(left.offset, GRANULE) + bytes;

		while (more && right.offset < end) {
			if (right.owner != EXTENT_FREE) {
				cost += right.bytes;
				stuck += !can_leave(e, device, right.owner);
			}
			more = extents_next(x, right.node, &right);
		}
		if (!more && end > extents_capacity(x))
			break;
		if (stuck == 0 && (!best.found || cost < best.cost))
			best = (struct window){ .begin = left.offset,
						.end = end,
						.first = left.node,
						.cost = cost,
						.found = true };
		if (left.owner != EXTENT_FREE) {
			cost -= left.bytes;
			stuck -= !can_leave(e, device, left.owner);
		}
		have_left = extents_next(x, left.node, &left);
	}
	return best;
}

/* To a hole outside of the window, or out of the tier. */
static bool evacuate(struct engine *e, uint8_t device, uint32_t tensor, const struct window *w)
{
	struct record *r = record_of(e, tensor);
	uint32_t node;
	uint64_t to;

	if (r->front != device) {
		replica_drop(e, tensor, TIER_KIND_DRAM);
		return true;
	}
	if (replica_take(e, device, tensor, &node) == 0) {
		to = replica_offset(e, device, node);
		if ((to >= w->end || to + replica_rounded(e, device, r->bytes) <= w->begin) &&
		    move_compact(e, tensor, node) == 0)
			return true;
		replica_give(e, device, node);
	}
	switch (front_drop(e, tensor)) {
	case 0:
		return true;
	case -EAGAIN:
		return move_clean(e, tensor, false, true, XFER_DEMAND) == 0;
	default:
		return false;
	}
}

bool compact(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];
	struct extent at, next;
	struct window w;
	bool moving = false, more;

	/* What an earlier round began must end before another window is chosen. */
	if (e->now_ns < d->compact_at_ns || d->flight > 0)
		return d->flight > 0;
	d->compact_at_ns = e->now_ns + COMPACT_INTERVAL_NS;
	w = find_window(e, device, replica_rounded(e, device, largest_lacking(e, d)));
	if (!w.found)
		return false;
	log_debug(RECLAIM, "%s: a window of %llu bytes at %#llx is emptied of %llu",
		  d->tier->base.name, (unsigned long long)(w.end - w.begin),
		  (unsigned long long)w.begin, (unsigned long long)w.cost);
	extents_get(d->extents, w.first, &at);
	do {
		/* Evacuating merges nodes: the next one is looked up before, by its owner after. */
		more = extents_next(d->extents, at.node, &next);
		while (more && next.owner == EXTENT_FREE)
			more = extents_next(d->extents, next.node, &next);
		if (at.owner != EXTENT_FREE && at.offset < w.end)
			moving |= evacuate(e, device, at.owner, &w);
		at = next;
	} while (more && at.offset < w.end);
	return moving;
}

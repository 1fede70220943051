/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/compact.h"

#include <errno.h>

#include "base/log.h"
#include "daemon/engine/front.h"
#include "daemon/engine/holder.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slabs.h"
#include "daemon/engine/slide.h"

#define COMPACT_INTERVAL_NS (2 * NS_PER_MS)
#define TRY_MOST            256u /* tensors in a window */

struct window {
	uint64_t begin, end; /* addresses */
	uint32_t first;      /* node that begins it */
	uint64_t cost;       /* bytes that have to leave */
	bool found;
};

/* Nothing stands below that could take what is in the way. */
static bool is_last(const struct engine *e, uint8_t device)
{
	return device_kind(e, device) == TIER_KIND_DRAM && e->nvme_first == DEVICE_NONE;
}

uint64_t compact_take_holes(struct engine *e, struct request *q, uint8_t device)
{
	for (size_t i = 0; i < q->n; i++) {
		struct item *item = &q->items[i];

		if (item_device(e, item) == device && acquire_needs_room(e, q, item) &&
		    replica_take(e, device, item->tensor, &item->node) < 0)
			return replica_rounded(e, device, record_of(e, item->tensor)->bytes);
	}
	return 0;
}

void compact_give_holes(struct engine *e, struct request *q, uint8_t device)
{
	bool again = e->again, look = e->devices[device].look;

	for (size_t i = 0; i < q->n; i++) {
		if (q->items[i].node != EXTENT_NONE)
			replica_give(e, device, q->items[i].node);
		q->items[i].node = EXTENT_NONE;
	}
	e->again = again;
	e->devices[device].look = look;
}

/* Of the tensor's replica on the device. Another device may have a node of the same number. */
static uint32_t node_at(const struct engine *e, const struct record *r, uint8_t device)
{
	if (device_kind(e, device) == TIER_KIND_DRAM)
		return r->dram_node;
	return r->hbm_device == device ? r->hbm_node : EXTENT_NONE;
}

bool compact_can_leave(struct engine *e, uint8_t device, const struct extent *x)
{
	const struct record *r;

	e->leave_looks++;
	if (x->owner == OWNER_SLAB)
		return false; /* there is no memory, or it is on its way out */
	r = record_of(e, x->owner);
	/* Another node: reserved for a request that is under way. */
	if (node_at(e, r, device) != x->node || r->move != 0 || r->ready > 0 || record_held(e, r))
		return false;
	if (r->front != device) /* a dram copy under an hbm front */
		return (r->sources & SOURCE_HBM) != 0 && !lost_front(e, r);
	return state_of(e, x->owner) == STATE_RESIDENT && !pins_any(e, x->owner);
}

/* Two ends walk over the nodes in address order. Each node is judged once, when the right end comes
 * to it: clients pin and unpin meanwhile, and a second look might say something else. A window may
 * not begin before the end of the last node that cannot leave, or is not to: what namespaces are
 * guaranteed stays, where `keep` is that of the demand. */
static struct window find_window(struct engine *e, uint8_t device, uint64_t bytes,
				 const struct quota_demand *keep)
{
	struct extents *x = e->devices[device].extents;
	struct window best = { .found = false };
	struct extent left, right;
	uint64_t cost = 0, stuck_end = 0;
	bool more = extents_next(x, EXTENT_NONE, &right);
	bool have_left = extents_next(x, EXTENT_NONE, &left);

	while (have_left) {
		/* Large extents begin at whole granules. */
		uint64_t end = ALIGN_UP(left.offset, GRANULE) + bytes;

		while (more && right.offset < end) {
			if (right.owner != EXTENT_FREE) {
				cost += right.bytes;
				if (!compact_can_leave(e, device, &right) ||
				    (keep != NULL && !quota_yields(e, keep, right.owner, device)))
					stuck_end = right.offset + right.bytes;
			}
			more = extents_next(x, right.node, &right);
		}
		if (!more && end > extents_capacity(x))
			break;
		if (left.offset >= stuck_end && (!best.found || cost < best.cost))
			best = (struct window){ .begin = left.offset,
						.end = end,
						.first = left.node,
						.cost = cost,
						.found = true };
		if (left.owner != EXTENT_FREE)
			cost -= left.bytes;
		have_left = extents_next(x, left.node, &left);
	}
	return best;
}

/* To a hole outside of the window, or out of the tier. */
static bool evacuate(struct engine *e, uint8_t device, uint32_t tensor, const struct window *w)
{
	struct record *r = record_of(e, tensor);
	uint32_t node;

	if (r->front != device) {
		replica_drop(e, tensor, TIER_KIND_DRAM);
		return true;
	}
	if (replica_take_outside(e, device, tensor, w->begin, w->end, &node) == 0) {
		if (move_compact(e, tensor, node) == 0)
			return true;
		replica_give_moved(e, device, node);
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

static bool empty_window(struct engine *e, uint8_t device, const struct window *w)
{
	struct extents *x = e->devices[device].extents;
	struct extent at, next;
	bool moving = false, more;

	extents_get(x, w->first, &at);
	do {
		/* Evacuating joins holes, so the next one that is taken is looked up before. */
		more = extents_next(x, at.node, &next);
		while (more && next.owner == EXTENT_FREE)
			more = extents_next(x, next.node, &next);
		/* Judged anew: it may have been pinned since. */
		if (at.owner != EXTENT_FREE && at.offset < w->end &&
		    compact_can_leave(e, device, &at))
			moving |= evacuate(e, device, at.owner, w);
		at = next;
	} while (more && at.offset < w->end);
	return moving;
}

/* Whether all that stands in the window finds holes outside of it, one beside the other. */
static bool all_find_holes(struct engine *e, uint8_t device, const struct window *w)
{
	struct extents *x = e->devices[device].extents;
	uint32_t taken[TRY_MOST];
	struct extent at;
	unsigned n = 0;
	bool more = true;

	for (extents_get(x, w->first, &at); more && at.offset < w->end && n < TRY_MOST;
	     more = extents_next(x, at.node, &at)) {
		if (at.owner == EXTENT_FREE || record_of(e, at.owner)->front != device)
			continue;
		if (replica_take_outside(e, device, at.owner, w->begin, w->end, &taken[n]) < 0)
			break;
		n++;
	}
	more = more && at.offset < w->end;
	while (n-- > 0)
		replica_give_moved(e, device, taken[n]);
	return !more;
}

/* Empties the window for `bytes` that costs least. Returns whether anything moves. Where nothing
 * can be evicted, half a window would be emptied for nobody, and filled again by the next round. */
static bool try_window(struct engine *e, uint8_t device, const struct window *w)
{
	bool again = e->again, look = e->devices[device].look, all = true;

	if (!w->found)
		return false;
	if (is_last(e, device)) {
		all = all_find_holes(e, device, w);
		e->again = again;
		e->devices[device].look = look;
	}
	if (!all)
		return false;
	log_debug(RECLAIM, "%s: a window of %llu bytes at %#llx is emptied of %llu",
		  e->devices[device].tier->base.name, (unsigned long long)(w->end - w->begin),
		  (unsigned long long)w->begin, (unsigned long long)w->cost);
	return empty_window(e, device, w);
}

/* What slides is copied once, a little at a time, and stays in the tier; but a full tier has to be
 * slid far. Where something below could take what is in the way, the cheaper way is gone. */
static bool make_hole(struct engine *e, uint8_t device, uint64_t bytes,
		      const struct quota_demand *keep)
{
	struct window w;
	struct slide s;

	if (bytes == 0)
		return false;
	w = find_window(e, device, bytes, keep);
	s = slide_find(e, device, bytes);
	if (s.found && (!w.found || is_last(e, device) || s.cost <= w.cost) &&
	    slide_begin(e, device, &s))
		return true;
	return try_window(e, device, &w) || (s.found && slide_begin(e, device, &s));
}

/* What an earlier round began must end before another window is chosen. */
static bool is_busy(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];

	if (d->compacting > 0 || d->leaving_bytes > 0)
		return true;
	return slide_go_on(e, device) || e->now_ns < d->compact_at_ns;
}

static bool begun(struct engine *e, uint8_t device, bool moving)
{
	if (!moving)
		moving = is_last(e, device) && slide_tidy(e, device);
	if (!moving)
		e->devices[device].compact_at_ns =
			e->now_ns + MAX(COMPACT_INTERVAL_NS, pins_rest_ns(e, e->leave_looks));
	e->leave_looks = 0;
	return moving;
}

static bool make_holes(struct engine *e, struct request *q, uint8_t device,
		       const struct quota_demand *keep)
{
	bool moving = make_hole(e, device, compact_take_holes(e, q, device), keep);

	compact_give_holes(e, q, device);
	/* The holes that were taken may stand in the way: one window for all of it. */
	return moving || make_hole(e, device, acquire_lacking_bytes(e, q, device), keep);
}

bool compact(struct engine *e, struct request *q, uint8_t device)
{
	struct quota_demand demand = { .account = quota_of_request(e, q),
				       .asks = true,
				       .whole = true };
	bool moving;

	if (is_busy(e, device))
		return true;
	moving = make_holes(e, q, device, quotas_any(e) ? &demand : NULL);
	/* Bytes are free, though in pieces that only others' tensors lie between. What is theirs by
	 * guarantee leaves them when nothing else can; they have the room for it. */
	if (!moving && quotas_any(e))
		moving = reclaim_more(e, q, device) || make_holes(e, q, device, NULL);
	return begun(e, device, moving);
}

bool compact_for(struct engine *e, uint8_t device, uint64_t bytes)
{
	return is_busy(e, device) || begun(e, device, make_hole(e, device, bytes, NULL));
}

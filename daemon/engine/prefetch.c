/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/prefetch.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slabs.h"

static void drop_hint(struct engine *e, struct hint *hint)
{
	e->records[hint->tensor].flags &= (uint16_t)~RECORD_HINT_WAITS;
	list_remove(&hint->link);
	free(hint);
}

/* Whether the hint is settled: there, on its way, gone, too large for the place, or wanted
 * elsewhere by somebody who waits. */
static bool is_settled(struct engine *e, uint8_t device, const struct hint *hint)
{
	const struct record *r = &e->records[hint->tensor];

	device = device_at(e, r, device);
	if (!handle_live(e, hint->tensor, hint->generation) || r->front == device)
		return true;
	if ((r->flags & RECORD_LOST) != 0 || lost_front(e, r))
		return true;
	if ((r->flags & RECORD_LARGE) != 0 && device_kind(e, device) == TIER_KIND_DRAM)
		return true;
	return r->move != 0 || r->wanted > 0 || r->hold_until_ns > e->now_ns ||
	       replica_rounded(e, device, r->bytes) > extents_capacity(e->devices[device].extents);
}

/* false: there is no room now; the hint stays. */
static bool begin(struct engine *e, uint8_t device, uint32_t tensor)
{
	uint32_t node = EXTENT_NONE;

	device = device_at(e, record_of(e, tensor), device);
	if (move_fill_needs_room(e, tensor, device) && replica_take(e, device, tensor, &node) < 0) {
		slabs_grow(e, device, replica_rounded(e, device, record_of(e, tensor)->bytes),
			   NULL);
		return false;
	}
	if (move_fill(e, tensor, device, node, XFER_PREFETCH, false, NULL) < 0 &&
	    node != EXTENT_NONE)
		replica_give(e, device, node); /* pinned elsewhere: a hint does not wait */
	return true;
}

void prefetch_run(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];

	while (!list_empty(&d->prefetch) && list_empty(&d->queue)) {
		struct hint *hint = list_first(&d->prefetch, struct hint, link);
		const struct device *to =
			&e->devices[device_at(e, &e->records[hint->tensor], device)];

		if (to->prefetch_bytes >= extents_capacity(to->extents) / PREFETCH_SHARE)
			return;
		if (!is_settled(e, device, hint) && !begin(e, device, hint->tensor))
			return;
		drop_hint(e, hint);
	}
}

void prefetch_forget(struct engine *e, uint8_t device)
{
	while (!list_empty(&e->devices[device].prefetch))
		drop_hint(e, list_first(&e->devices[device].prefetch, struct hint, link));
}

/* A tensor waits on one list, once: hints repeated, or sent without end, take no memory. */
static int add_hint(struct engine *e, uint8_t device, struct wire_handle t)
{
	struct record *r = record_of(e, t.index);
	struct hint *hint;

	if (r->flags & RECORD_HINT_WAITS)
		return 0;
	hint = malloc(sizeof(*hint));
	if (hint == NULL)
		return -ENOMEM;
	hint->tensor = t.index;
	hint->generation = t.generation;
	r->flags |= RECORD_HINT_WAITS;
	list_push_back(&e->devices[device].prefetch, &hint->link);
	return 0;
}

int engine_prefetch(struct engine *e, struct holder *h, const struct wire_handle *t, size_t n,
		    uint8_t place, uint64_t now_ns, struct err *err)
{
	uint8_t device = e->hbm_by_place[place];
	int rc = 0;

	e->now_ns = now_ns;
	if (device == DEVICE_NONE)
		return err_set(err, ENODEV, "there is no gpu %u here", place);
	if (e->devices[device].lost)
		return err_set(err, ENODEV, "%s was lost", e->devices[device].tier->base.name);
	for (size_t i = 0; i < n; i++) {
		if (!handle_live(e, t[i].index, t[i].generation)) {
			rc = err_set(err, ESTALE, "tensor %u:%u was destroyed", t[i].index,
				     t[i].generation);
			continue;
		}
		policy_tell(e, t[i].index, POLICY_EVENT_PREFETCH, (uint8_t)device_kind(e, device),
			    POLICY_TIER_NONE, 0);
		if (add_hint(e, device, t[i]) < 0)
			return err_set(err, ENOMEM, "no memory for a hint");
	}
	e->again = true;
	requests_settle(e);
	return rc;
}

/* Written back now, so that it can go at once when room is wanted. */
int engine_evict(struct engine *e, struct holder *h, const struct wire_handle *t, size_t n,
		 uint64_t now_ns, struct err *err)
{
	int rc = 0;

	e->now_ns = now_ns;
	for (size_t i = 0; i < n; i++) {
		struct record *r;

		if (!handle_live(e, t[i].index, t[i].generation)) {
			rc = err_set(err, ESTALE, "tensor %u:%u was destroyed", t[i].index,
				     t[i].generation);
			continue;
		}
		r = record_of(e, t[i].index);
		policy_tell(e, t[i].index, POLICY_EVENT_EVICT, POLICY_TIER_NONE, POLICY_TIER_NONE,
			    0);
		if (r->front != DEVICE_NONE && r->move == 0 && r->wanted == 0 &&
		    !(r->flags & RECORD_BACKOFF) && state_of(e, t[i].index) == STATE_RESIDENT)
			move_clean(e, t[i].index, false, false, XFER_WRITE_BACK);
	}
	requests_settle(e);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/prefetch.h"

#include <errno.h>

#include "base/heap.h"
#include "daemon/engine/holder.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slab_room.h"

static void drop_hint(struct engine *e, struct hint *hint)
{
	e->hint_of[hint->tensor] = NULL;
	list_remove(&hint->link);
	heap_free(hint);
}

/* Whether the hint is settled: there, on its way, lost, too large for the device, or wanted
 * elsewhere by somebody who waits. */
static bool is_settled(struct engine *e, uint8_t device, const struct hint *hint)
{
	const struct record *r = &e->records[hint->tensor];

	ASSERT((r->flags & (RECORD_LIVE | RECORD_DOOMED)) == RECORD_LIVE);
	if (r->front == device || (r->flags & RECORD_LOST) != 0 || lost_front(e, r))
		return true;
	if ((r->flags & RECORD_LARGE) != 0 && device_kind(e, device) == TIER_KIND_DRAM)
		return true;
	return r->move != 0 || r->wanted > 0 || record_held(e, r) ||
	       replica_rounded(e, device, r->bytes) > extents_capacity(e->devices[device].extents);
}

/* false: there is no room now; the hint stays. */
static bool begin(struct engine *e, uint8_t device, uint32_t tensor)
{
	uint32_t node = EXTENT_NONE;
	int rc = 0;

	if (move_fill_needs_room(e, tensor, device))
		rc = replica_take(e, device, tensor, &node);
	if (rc == -EDQUOT)
		return true; /* it would keep hints of others waiting */
	if (rc < 0) {
		slab_room_grow(e, device, replica_rounded(e, device, record_of(e, tensor)->bytes));
		return false;
	}
	if (move_fill(e, tensor, device, node, XFER_PREFETCH, false, NULL) < 0 &&
	    node != EXTENT_NONE)
		replica_give(e, device, node); /* pinned elsewhere: a hint does not wait */
	return true;
}

/* The earliest hint of those smaller than `sizes`. */
static struct hint *earliest(struct device *d, unsigned sizes)
{
	struct hint *first = NULL;

	for (unsigned i = 0; i < sizes; i++) {
		struct hint *hint;

		if (list_empty(&d->hints[i]))
			continue;
		hint = list_first(&d->hints[i], struct hint, link);
		if (first == NULL || hint->sequence < first->sequence)
			first = hint;
	}
	return first;
}

/* Where there is no room for one, smaller ones may find some; those as large do not. */
void prefetch_run(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];
	unsigned sizes = HINT_SIZES;
	struct hint *hint;

	while (!wants_room(e, device) &&
	       d->prefetch_bytes < extents_capacity(d->extents) / PREFETCH_SHARE &&
	       (hint = earliest(d, sizes)) != NULL) {
		if (is_settled(e, device, hint) || begin(e, device, hint->tensor))
			drop_hint(e, hint);
		else
			sizes = hint->size;
	}
}

bool prefetch_waits(const struct engine *e, uint8_t device)
{
	for (unsigned i = 0; i < HINT_SIZES; i++)
		if (!list_empty(&e->devices[device].hints[i]))
			return true;
	return false;
}

void prefetch_forget(struct engine *e, uint8_t device)
{
	struct hint *hint;

	while ((hint = earliest(&e->devices[device], HINT_SIZES)) != NULL)
		drop_hint(e, hint);
}

void prefetch_cancel(struct engine *e, uint32_t tensor)
{
	if (e->hint_of[tensor] != NULL)
		drop_hint(e, e->hint_of[tensor]);
}

static uint8_t size_of(uint64_t bytes)
{
	return (uint8_t)MIN(63u - (unsigned)__builtin_clzll(bytes / GRANULE | 1), HINT_SIZES - 1);
}

/* A tensor waits on one list, once, for the place that was named last: hints repeated, or sent
 * without end, take no memory. */
static int add_hint(struct engine *e, uint8_t device, uint32_t tensor)
{
	struct hint *hint = e->hint_of[tensor];

	if (hint != NULL && hint->device == device)
		return 0;
	prefetch_cancel(e, tensor);
	hint = heap_zeros(1, sizeof(*hint));
	if (hint == NULL)
		return -ENOMEM;
	*hint = (struct hint){ .sequence = ++e->sequence,
			       .tensor = tensor,
			       .device = device,
			       .size = size_of(record_of(e, tensor)->bytes) };
	e->hint_of[tensor] = hint;
	list_push_back(&e->devices[device].hints[hint->size], &hint->link);
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
		uint8_t to;

		if (!handle_live(e, t[i].index, t[i].generation)) {
			rc = err_set(err, ESTALE, "tensor %u:%u was destroyed", t[i].index,
				     t[i].generation);
			continue;
		}
		to = device_at(e, record_of(e, t[i].index), device);
		policy_tell(e, t[i].index, POLICY_EVENT_PREFETCH, to, POLICY_TIER_NONE, 0);
		if (add_hint(e, to, t[i].index) < 0) {
			rc = err_set(err, ENOMEM, "no memory for a hint");
			break;
		}
	}
	e->again = true;
	requests_settle(e);
	return rc;
}

/* Whether a hint that may cost others something is the holder's to give. */
static int evict_check(const struct engine *e, const struct holder *h, const struct wire_handle *t,
		       struct err *err)
{
	const struct name_space *ns;

	if (!handle_live(e, t->index, t->generation))
		return err_set(err, ESTALE, "tensor %u:%u was destroyed", t->index, t->generation);
	ns = &e->name_spaces[e->records[t->index].name_space];
	if (h->uid == 0 || h->uid == ns->uid || ns == &e->name_spaces[h->name_space])
		return 0;
	return err_set(err, EPERM, "tensor %u:%u: namespace %s is of uid %u", t->index,
		       t->generation, ns->name, ns->uid);
}

/* Written back now, so that it can go at once when room is wanted. */
int engine_evict(struct engine *e, struct holder *h, const struct wire_handle *t, size_t n,
		 uint64_t now_ns, struct err *err)
{
	int rc = 0;

	e->now_ns = now_ns;
	for (size_t i = 0; i < n; i++) {
		struct record *r;
		/* That something has gone meanwhile hides no refusal. */
		int may = evict_check(e, h, &t[i], rc == -EPERM ? NULL : err);

		if (may < 0) {
			rc = rc == -EPERM ? rc : may;
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

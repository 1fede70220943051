/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/bring.h"

#include "daemon/engine/compact.h"
#include "daemon/engine/move.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

/* Whether it stands on nvme alone, which is what is in the way. */
static bool is_below(struct engine *e, const struct item *item, uint8_t device)
{
	const struct record *r = record_of(e, item->tensor);

	return item_device(e, item) == device && r->front == DEVICE_NONE && r->move == 0 &&
	       r->sources == SOURCE_NVME && (r->flags & RECORD_LOST) == 0;
}

static uint64_t free_for(const struct engine *e, const struct request *q, uint8_t device)
{
	const struct extents *x = e->devices[device].extents;
	uint64_t free = extents_capacity(x) - extents_used(x);

	return free > q->leave_bytes ? free - q->leave_bytes : 0;
}

/* Also of those that will be overwritten: once it is dram's, nvme need not keep it. */
static bool begin(struct engine *e, const struct request *q, uint8_t device, uint32_t tensor)
{
	uint32_t node = EXTENT_NONE;

	if (replica_rounded(e, device, e->records[tensor].bytes) > free_for(e, q, device) ||
	    replica_take(e, device, tensor, &node) < 0)
		return false;
	if (move_fill(e, tensor, device, node, XFER_DEMAND, false, NULL) == 0)
		return true;
	replica_give(e, device, node);
	return false;
}

static bool make_hole(struct engine *e, const struct request *q, uint8_t device)
{
	uint64_t free = free_for(e, q, device);

	for (size_t i = 0; i < q->n; i++) {
		uint32_t tensor = q->items[i].tensor;
		uint64_t bytes = replica_rounded(e, device, e->records[tensor].bytes);

		if (bytes <= free && quota_allows(e, tensor, device, bytes) &&
		    is_below(e, &q->items[i], device) && compact_for(e, device, bytes))
			return true;
	}
	return false;
}

/* The one of the queue whose tensors come so: with quotas its turn may be over before all have
 * come.
 */
static struct request *bringer(const struct engine *e, uint8_t device)
{
	struct list *it;

	list_for_each (it, &e->devices[device].queue) {
		struct request *q = list_entry(it, struct request, link);

		if (q->brings)
			return q;
		if (!quotas_any(e))
			return NULL; /* it is the head, or nobody */
	}
	return NULL;
}

/* What has come need not stand on nvme: whoever makes room may want that of another account, which
 * leaves this one what it is guaranteed. */
static bool leave_nvme(struct engine *e, const struct request *q, uint8_t device)
{
	bool any = false;

	for (size_t i = 0; i < q->n; i++) {
		const struct record *r = record_of(e, q->items[i].tensor);

		if (r->front != device || r->move != 0 || (r->sources & SOURCE_NVME) == 0 ||
		    (r->sources & SOURCE_DRAM) == 0)
			continue;
		replica_drop(e, q->items[i].tensor, TIER_KIND_NVME);
		any = e->again = true;
	}
	return any;
}

/* Two of them could hold halves against each other. One that has to leave what is free to somebody
 * within his guarantee does not go on before that one; so he may, and what has come of its own is
 * no longer kept. */
static bool is_its_turn(struct request *other, const struct request *q)
{
	if (other == NULL || other == q)
		return true;
	if (other->leave_bytes == 0 || q->leave_bytes > 0)
		return false;
	other->brings = false;
	return true;
}

bool bring_one(struct engine *e, struct request *q, uint8_t device)
{
	if (device_kind(e, device) != TIER_KIND_DRAM || q->n < 2 ||
	    !is_its_turn(bringer(e, q->device), q))
		return false;
	if (quotas_any(e) && q->brings && leave_nvme(e, q, device))
		return true;
	for (size_t i = 0; i < q->n; i++) {
		if (!is_below(e, &q->items[i], device))
			continue;
		if (begin(e, q, device, q->items[i].tensor)) {
			q->brings = true;
			return true;
		}
	}
	return make_hole(e, q, device);
}

/* What keeps the tensor until all of its request have come, or NULL. */
static const struct item *kept_by(const struct engine *e, uint32_t tensor)
{
	const struct record *r = &e->records[tensor];
	const struct request *q = r->wanted > 0 ? bringer(e, r->wanted_device) : NULL;

	for (size_t i = 0; q != NULL && i < q->n; i++)
		if (q->items[i].tensor == tensor)
			return &q->items[i];
	return NULL;
}

bool bring_keeps(const struct engine *e, uint32_t tensor)
{
	return kept_by(e, tensor) != NULL;
}

/* Also one who would overwrite all of it, since it could not come without its bytes; he may alone.
 */
void bring_ended(struct engine *e, const struct move *m)
{
	bool failed = m->kind == MOVE_FILL && m->result < 0;
	const struct item *item = failed ? kept_by(e, m->tensor) : NULL;

	if (item != NULL && request_take_failure(e, item, m))
		request_wake(e, item->request);
}

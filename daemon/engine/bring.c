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

/* Also of those that will be overwritten: once it is dram's, nvme need not keep it. */
static bool begin(struct engine *e, uint8_t device, uint32_t tensor)
{
	uint32_t node = EXTENT_NONE;

	if (replica_take(e, device, tensor, &node) < 0)
		return false;
	if (move_fill(e, tensor, device, node, XFER_DEMAND, false, NULL) == 0)
		return true;
	replica_give(e, device, node);
	return false;
}

static bool make_hole(struct engine *e, const struct request *q, uint8_t device)
{
	const struct extents *x = e->devices[device].extents;
	uint64_t free = extents_capacity(x) - extents_used(x);

	for (size_t i = 0; i < q->n; i++) {
		uint64_t bytes = replica_rounded(e, device, e->records[q->items[i].tensor].bytes);

		if (bytes <= free && is_below(e, &q->items[i], device) &&
		    compact_for(e, device, bytes))
			return true;
	}
	return false;
}

bool bring_one(struct engine *e, struct request *q, uint8_t device)
{
	/* With quotas, whoever has a turn now may not have it next. */
	if (device_kind(e, device) != TIER_KIND_DRAM || q->n < 2 || quotas_any(e))
		return false;
	for (size_t i = 0; i < q->n; i++) {
		if (!is_below(e, &q->items[i], device))
			continue;
		if (begin(e, device, q->items[i].tensor)) {
			q->brings = true;
			return true;
		}
	}
	return make_hole(e, q, device);
}

bool bring_keeps(const struct engine *e, uint32_t tensor)
{
	const struct record *r = &e->records[tensor];
	const struct list *queue = &e->devices[r->wanted_device].queue;
	const struct request *head;

	if (r->wanted == 0 || list_empty(queue))
		return false;
	head = list_first(queue, struct request, link);
	if (!head->brings)
		return false;
	for (size_t i = 0; i < head->n; i++)
		if (head->items[i].tensor == tensor)
			return true;
	return false;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * lru: the least recently used goes first. Optimal for forward and backward passes, which come back
 * the way they went; worthless for a sweep that starts over (pin_fraction is for that).
 */
#include <errno.h>

#include "base/heap.h"
#include "policy/order.h"

struct policy {
	struct order order;
};

static int lru_create(const void *config, const struct policy_slots *slots, struct policy **ret,
		      struct err *err)
{
	struct policy *p = heap_zeros(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return err_set(err, ENOMEM, "policy lru: no memory");
	rc = order_create(&p->order, slots, 0, err);
	if (rc < 0) {
		heap_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

static void lru_destroy(struct policy *p)
{
	order_destroy(&p->order);
	heap_free(p);
}

/* An arrival and a hint count as a use: both say that the use is near. */
static void lru_event(struct policy *p, const struct policy_event *e)
{
	bool place = order_event(&p->order, e);
	struct order_slot *slot;

	if (e->kind != POLICY_EVENT_USED && e->kind != POLICY_EVENT_PREFETCH && !place)
		return;
	slot = order_slot(&p->order, e->tensor);
	slot->at_ns = e->now_ns;
	if (slot->tier == POLICY_TIER_NONE)
		return;
	order_push_back(&p->order, order_head(&p->order, slot->tier, ORDER_LIST_MAIN), e->tensor);
}

/* It will be as long until the next use as it has been since the last. */
static double lru_seconds(const struct policy *p, const struct order_slot *slot, uint64_t now_ns)
{
	return order_idle_s(slot, now_ns);
}

static size_t lru_victims(struct policy *p, const struct policy_query *q, struct policy_pick *picks,
			  size_t max)
{
	struct order_walk w = { .order = &p->order,
				.query = q,
				.seconds = lru_seconds,
				.policy = p,
				.picks = picks,
				.max = max };

	return order_walk_all(&w);
}

static size_t lru_prefetch(struct policy *p, const struct policy_query *q,
			   struct policy_pick *picks, size_t max)
{
	return 0;
}

static void lru_opinion(const struct policy *p, uint32_t tensor, uint64_t now_ns,
			struct policy_opinion *ret)
{
	const struct order_slot *slot = order_slot(&p->order, tensor);

	order_opinion(slot, lru_seconds(p, slot, now_ns), now_ns, ret);
}

static const struct config_row lru_rows[] = { CONFIG_END };

const struct policy_ops policy_lru = {
	.name = "lru",
	.help = "The least recently used goes first. For passes that come back the way they went.",
	.rows = lru_rows,
	.slot_size = sizeof(struct order_slot),
	.create = lru_create,
	.destroy = lru_destroy,
	.event = lru_event,
	.victims = lru_victims,
	.prefetch = lru_prefetch,
	.opinion = lru_opinion,
};

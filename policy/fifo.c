/* SPDX-License-Identifier: Apache-2.0
 *
 * fifo: what came into a tier first goes first, used or not. The simplest policy there is;
 * docs/policies.md walks through it.
 */
#include <errno.h>

#include "base/heap.h"
#include "policy/order.h"

struct policy {
	struct order order;
};

static int fifo_create(const void *config, const struct policy_slots *slots, struct policy **ret,
		       struct err *err)
{
	struct policy *p = heap_zeros(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return err_set(err, ENOMEM, "policy fifo: no memory");
	rc = order_create(&p->order, slots, 0, err);
	if (rc < 0) {
		heap_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

static void fifo_destroy(struct policy *p)
{
	order_destroy(&p->order);
	heap_free(p);
}

static void fifo_event(struct policy *p, const struct policy_event *e)
{
	struct order_slot *slot;

	if (!order_event(&p->order, e))
		return;
	slot = order_slot(&p->order, e->tensor);
	slot->at_ns = e->now_ns;
	order_push_back(&p->order, order_head(&p->order, slot->tier, ORDER_LIST_MAIN), e->tensor);
}

/* It will be as long until the next need as it has been here. */
static double fifo_seconds(const struct policy *p, const struct order_slot *slot, uint64_t now_ns)
{
	return order_idle_s(slot, now_ns);
}

static size_t fifo_victims(struct policy *p, const struct policy_query *q,
			   struct policy_pick *picks, size_t max)
{
	struct order_walk w = { .order = &p->order,
				.query = q,
				.seconds = fifo_seconds,
				.policy = p,
				.picks = picks,
				.max = max };

	return order_walk_all(&w);
}

static size_t fifo_prefetch(struct policy *p, const struct policy_query *q,
			    struct policy_pick *picks, size_t max)
{
	return 0;
}

static void fifo_opinion(const struct policy *p, uint32_t tensor, uint64_t now_ns,
			 struct policy_opinion *ret)
{
	const struct order_slot *slot = order_slot(&p->order, tensor);

	order_opinion(slot, fifo_seconds(p, slot, now_ns), now_ns, ret);
}

static const struct config_row fifo_rows[] = { CONFIG_END };

const struct policy_ops policy_fifo = {
	.name = "fifo",
	.help = "What came into the tier first goes first, used or not.",
	.rows = fifo_rows,
	.slot_size = sizeof(struct order_slot),
	.create = fifo_create,
	.destroy = fifo_destroy,
	.event = fifo_event,
	.victims = fifo_victims,
	.prefetch = fifo_prefetch,
	.opinion = fifo_opinion,
};

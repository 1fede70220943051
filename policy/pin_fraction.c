/* SPDX-License-Identifier: Apache-2.0
 *
 * pin_fraction: in every tier, a fraction of the class's bytes stays, whatever comes; the rest goes
 * through as lru. A sweep over more than fits evicts, under lru, exactly what it needs next and
 * never hits; here it hits the fraction that stays.
 *
 * A tensor becomes kept when it comes, or is used, while the kept bytes of its tier are below the
 * fraction; it stays kept until it leaves the tier. When the tier cannot even hold the kept ones,
 * they go after all others, the most recently used first: a sweep needs that one last.
 */
#include <errno.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "policy/order.h"

enum { LIST_KEPT = ORDER_LIST_OWN, LIST_KEPT_PARKED, OWN_LISTS = 2 };

struct pin_fraction_config {
	uint32_t fraction_permille;
};

struct policy {
	struct order order;
	uint32_t fraction_permille;
	uint64_t class_bytes; /* of all tensors, wherever they are */
	uint64_t kept_bytes[POLICY_TIERS_MAX];
};

static int pin_fraction_create(const void *config, const struct policy_slots *slots,
			       struct policy **ret, struct err *err)
{
	const struct pin_fraction_config *c = config;
	struct policy *p = heap_zeros(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return err_set(err, ENOMEM, "policy pin_fraction: no memory");
	ASSERT(c->fraction_permille <= 1000);
	p->fraction_permille = c->fraction_permille;
	rc = order_create(&p->order, slots, OWN_LISTS, err);
	if (rc < 0) {
		heap_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

static void pin_fraction_destroy(struct policy *p)
{
	order_destroy(&p->order);
	heap_free(p);
}

/* The slot's mark says that a tensor is kept. */
static bool kept(const struct order_slot *slot)
{
	return slot->mark;
}

/* Divided first: the class may hold more than 2^64 / 1000 bytes. */
static uint64_t kept_limit(const struct policy *p)
{
	return p->class_bytes / 1000 * p->fraction_permille +
	       p->class_bytes % 1000 * p->fraction_permille / 1000;
}

static void unkeep(struct policy *p, struct order_slot *slot)
{
	if (!kept(slot))
		return;
	ASSERT(p->kept_bytes[slot->tier] >= slot->bytes);
	p->kept_bytes[slot->tier] -= slot->bytes;
	slot->mark = false;
}

/* At the hot end of where it belongs. */
static void place(struct policy *p, uint32_t tensor)
{
	struct order_slot *slot = order_slot(&p->order, tensor);
	uint64_t *kept_bytes = &p->kept_bytes[slot->tier];

	if (!kept(slot) && *kept_bytes + slot->bytes <= kept_limit(p)) {
		slot->mark = true;
		*kept_bytes += slot->bytes;
	}
	order_push_back(&p->order,
			order_head(&p->order, slot->tier, kept(slot) ? LIST_KEPT : ORDER_LIST_MAIN),
			tensor);
}

/* Before the shared part: it forgets the tier that kept bytes are counted in. */
static void account(struct policy *p, const struct policy_event *e)
{
	struct order_slot *slot;

	if (e->kind == POLICY_EVENT_STEP)
		return;
	slot = order_slot(&p->order, e->tensor);
	if (e->kind == POLICY_EVENT_CREATED)
		p->class_bytes += e->bytes;
	if (e->kind == POLICY_EVENT_MOVED || e->kind == POLICY_EVENT_FREED ||
	    e->kind == POLICY_EVENT_EVICT)
		unkeep(p, slot);
	if (e->kind == POLICY_EVENT_FREED) {
		ASSERT(p->class_bytes >= slot->bytes);
		p->class_bytes -= slot->bytes;
	}
}

static void pin_fraction_event(struct policy *p, const struct policy_event *e)
{
	bool use = e->kind == POLICY_EVENT_USED || e->kind == POLICY_EVENT_PREFETCH;
	struct order_slot *slot;

	account(p, e);
	if (!order_event(&p->order, e) && !use)
		return;
	slot = order_slot(&p->order, e->tensor);
	slot->at_ns = e->now_ns;
	if (slot->tier != POLICY_TIER_NONE)
		place(p, e->tensor);
}

/* The class has shrunk: a fraction of what is left stays. */
static void shrink(struct policy *p, uint8_t tier)
{
	uint32_t head = order_head(&p->order, tier, LIST_KEPT);
	uint32_t node = order_last(&p->order, head);

	while (node != head && p->kept_bytes[tier] > kept_limit(p)) {
		uint32_t prev = order_prev(&p->order, node);

		unkeep(p, order_slot(&p->order, node));
		order_push_back(&p->order, order_head(&p->order, tier, ORDER_LIST_MAIN), node);
		node = prev;
	}
}

/* A kept one is needed at once: its score is below that of every other class. */
static double pin_fraction_seconds(const struct policy *p, const struct order_slot *slot,
				   uint64_t now_ns)
{
	return kept(slot) ? 0.0 : order_idle_s(slot, now_ns);
}

static size_t pin_fraction_victims(struct policy *p, const struct policy_query *q,
				   struct policy_pick *picks, size_t max)
{
	struct order_walk w = { .order = &p->order,
				.query = q,
				.seconds = pin_fraction_seconds,
				.policy = p,
				.picks = picks,
				.max = max };
	uint32_t parked = order_head(&p->order, q->tier, LIST_KEPT_PARKED);
	struct order_rest rest;

	shrink(p, q->tier);
	order_walk_all(&w);
	rest = order_walk_probe(&w, parked);
	order_walk_list_back(&w, order_head(&p->order, q->tier, LIST_KEPT), parked);
	order_walk_rest(&w, &rest);
	return w.count;
}

static size_t pin_fraction_prefetch(struct policy *p, const struct policy_query *q,
				    struct policy_pick *picks, size_t max)
{
	return 0;
}

static void pin_fraction_opinion(const struct policy *p, uint32_t tensor, uint64_t now_ns,
				 struct policy_opinion *ret)
{
	const struct order_slot *slot = order_slot(&p->order, tensor);

	order_opinion(slot, pin_fraction_seconds(p, slot, now_ns), now_ns, ret);
}

static const struct config_row pin_fraction_rows[] = {
	{ .key = "fraction",
	  .kind = CONFIG_PERMILLE,
	  .offset = offsetof(struct pin_fraction_config, fraction_permille),
	  .default_text = "50%",
	  .min = "0%",
	  .max = "100%",
	  .help = "Of the class's bytes: what stays in each tier, whatever comes. Each GPU, the "
		  "zone of dram and the rest of dram keep so much by themselves. Choose a little "
		  "less than fits." },
	CONFIG_END,
};

const struct policy_ops policy_pin_fraction = {
	.name = "pin_fraction",
	.help = "A fraction of the class stays whatever comes, the rest goes through as lru. For "
		"sweeps that start over, as the optimizer's.",
	.rows = pin_fraction_rows,
	.config_size = sizeof(struct pin_fraction_config),
	.slot_size = sizeof(struct order_slot),
	.create = pin_fraction_create,
	.destroy = pin_fraction_destroy,
	.event = pin_fraction_event,
	.victims = pin_fraction_victims,
	.prefetch = pin_fraction_prefetch,
	.opinion = pin_fraction_opinion,
};

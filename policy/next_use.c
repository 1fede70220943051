/* SPDX-License-Identifier: Apache-2.0
 *
 * next_use: what is needed last goes first (Belady's rule), as far as the need is known. So far it
 * is known from hints alone: the order of hints is the order of need, and a use fulfils the
 * tensor's hint. Tensors without a hint are needed after all that have one, the least recently used
 * last.
 *
 * A hint gets the next *position* of a ring; the ring says which tensor a position is. Sets of
 * positions say which hinted tensors are in a tier and which are wanted in one, so that neither of
 * the walks meets a tensor that it could not take. A tensor has one position at most: of two hints
 * before a use the first one counts. Hinted tensors stand in no list of order.h but HINTED_PARKED.
 */
#include <errno.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "policy/order.h"
#include "policy/seqset.h"

enum { LIST_HINTED_PARKED = ORDER_LIST_OWN, OWN_LISTS = 1 };

#define PACE_START_NS 1e6 /* between two needs, until uses have shown it */
#define PACE_WEIGHT   0.125
#define STALE_AT_ONCE 64 /* hints forgotten: a million would hold up everybody for 0.2 s */

struct next_use_config {
	uint64_t hint_life_ns;
};

struct next_use_slot {
	struct order_slot order; /* mark: hinted */
	uint64_t position;
	uint64_t hinted_ns;
	uint8_t place; /* the tier that the hint named */
};

struct policy {
	struct order order;
	uint64_t hint_life_ns;
	uint32_t *ring; /* tensor of a position, by position % capacity */
	uint32_t capacity;
	uint64_t oldest, next;                /* pending positions are from oldest to before next */
	struct seqset pending;                /* positions whose tensor waits for its use */
	struct seqset here[POLICY_TIERS_MAX]; /* and is in this tier, and not parked */
	struct seqset wanted[POLICY_TIERS_MAX]; /* and is hinted for this tier and not in it */
	uint64_t used_ns;                       /* when a hint was last fulfilled */
	double pace_ns;                         /* between two of them */
};

static struct next_use_slot *slot_of(const struct policy *p, uint32_t tensor)
{
	return (struct next_use_slot *)order_slot(&p->order, tensor);
}

static void free_sets(struct policy *p)
{
	seqset_destroy(&p->pending);
	for (unsigned i = 0; i < POLICY_TIERS_MAX; i++) {
		seqset_destroy(&p->here[i]);
		seqset_destroy(&p->wanted[i]);
	}
	heap_free(p->ring);
}

static int make_sets(struct policy *p, unsigned tiers)
{
	int rc;

	p->ring = heap_zeros(p->capacity, sizeof(*p->ring));
	if (p->ring == NULL)
		return -ENOMEM;
	rc = seqset_create(&p->pending, p->capacity);
	for (unsigned i = 0; i < tiers && rc == 0; i++) {
		rc = seqset_create(&p->here[i], p->capacity);
		if (rc == 0)
			rc = seqset_create(&p->wanted[i], p->capacity);
	}
	return rc;
}

static int next_use_create(const void *config, const struct policy_slots *slots,
			   struct policy **ret, struct err *err)
{
	const struct next_use_config *c = config;
	struct policy *p = heap_zeros(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return err_set(err, ENOMEM, "policy next_use: no memory");
	p->hint_life_ns = c->hint_life_ns;
	p->pace_ns = PACE_START_NS;
	/* Twice the tensors: fulfilled positions in between need not be closed up. */
	p->capacity = (uint32_t)MIN(MAX((uint64_t)slots->count * 2, 64), UINT32_MAX - 1);
	rc = make_sets(p, slots->tiers);
	if (rc < 0) {
		err_set(err, ENOMEM, "policy next_use: no memory for %u hints", p->capacity);
		goto free_policy;
	}
	rc = order_create(&p->order, slots, OWN_LISTS, err);
	if (rc < 0)
		goto free_policy;
	*ret = p;
	return 0;

free_policy:
	free_sets(p);
	heap_free(p);
	return rc;
}

static void next_use_destroy(struct policy *p)
{
	order_destroy(&p->order);
	free_sets(p);
	heap_free(p);
}

static void put(struct seqset *set, uint32_t at, bool in)
{
	if (in)
		seqset_add(set, at);
	else
		seqset_remove(set, at);
}

/* Into the sets and lists that its tier and hint call for; takes it out of all others. */
static void place(struct policy *p, uint32_t tensor)
{
	struct next_use_slot *slot = slot_of(p, tensor);
	uint32_t at = (uint32_t)(slot->position % p->capacity);
	uint8_t tier = slot->order.tier;

	order_unlink(&p->order, tensor);
	if (!slot->order.mark) {
		if (tier != POLICY_TIER_NONE)
			order_push_back(&p->order, order_head(&p->order, tier, ORDER_LIST_MAIN),
					tensor);
		return;
	}
	for (uint8_t i = 0; i < p->order.slots->tiers; i++) {
		put(&p->here[i], at, i == tier);
		put(&p->wanted[i], at, i == slot->place && i != tier);
	}
}

/* The hint is fulfilled or given up. The tensor stands nowhere afterwards. */
static void unhint(struct policy *p, uint32_t tensor)
{
	struct next_use_slot *slot = slot_of(p, tensor);
	uint32_t at = (uint32_t)(slot->position % p->capacity);

	if (!slot->order.mark)
		return;
	ASSERT(p->ring[at] == tensor);
	seqset_remove(&p->pending, at);
	for (uint8_t i = 0; i < p->order.slots->tiers; i++) {
		seqset_remove(&p->here[i], at);
		seqset_remove(&p->wanted[i], at);
	}
	order_unlink(&p->order, tensor);
	slot->order.mark = false;
}

/* The first pending position, p->next when there is none. */
static uint64_t first_pending(const struct policy *p)
{
	uint32_t at = (uint32_t)(p->oldest % p->capacity), found;

	found = seqset_at_or_after(&p->pending, at);
	if (found != SEQSET_NONE)
		return p->oldest + (found - at);
	found = seqset_at_or_after(&p->pending, 0);
	return found != SEQSET_NONE ? p->oldest + (p->capacity - at) + found : p->next;
}

static bool is_stale(const struct policy *p, const struct next_use_slot *slot, uint64_t now_ns)
{
	return now_ns > slot->hinted_ns && now_ns - slot->hinted_ns > p->hint_life_ns;
}

/* A hint that no use has followed for so long was wrong: its tensor is among the coldest. What is
 * left of many goes by the next calls. */
static void forget_stale(struct policy *p, uint64_t now_ns)
{
	for (unsigned n = 0;; n++) {
		struct next_use_slot *slot;
		uint32_t tensor;

		p->oldest = first_pending(p);
		if (p->oldest == p->next)
			return;
		tensor = p->ring[p->oldest % p->capacity];
		slot = slot_of(p, tensor);
		ASSERT(slot->order.mark && slot->position == p->oldest);
		/* A full ring gives up its oldest whatever its age. */
		if (p->next - p->oldest < p->capacity &&
		    (n >= STALE_AT_ONCE || !is_stale(p, slot, now_ns)))
			return;
		unhint(p, tensor);
		if (slot->order.tier != POLICY_TIER_NONE)
			order_push_front(&p->order,
					 order_head(&p->order, slot->order.tier, ORDER_LIST_MAIN),
					 tensor);
	}
}

static void hint(struct policy *p, const struct policy_event *e)
{
	struct next_use_slot *slot = slot_of(p, e->tensor);

	if (slot->order.bytes == 0)
		return;
	forget_stale(p, e->now_ns);
	slot->place = e->tier;
	if (!slot->order.mark) {
		uint32_t at = (uint32_t)(p->next % p->capacity);

		slot->position = p->next++;
		slot->hinted_ns = e->now_ns;
		slot->order.mark = true;
		p->ring[at] = e->tensor;
		seqset_add(&p->pending, at);
	}
	place(p, e->tensor);
}

static void used(struct policy *p, const struct policy_event *e)
{
	struct next_use_slot *slot = slot_of(p, e->tensor);

	slot->order.at_ns = e->now_ns;
	if (slot->order.mark) {
		if (p->used_ns != 0 && e->now_ns > p->used_ns)
			p->pace_ns += PACE_WEIGHT * ((double)(e->now_ns - p->used_ns) - p->pace_ns);
		p->used_ns = e->now_ns;
		unhint(p, e->tensor);
	}
	place(p, e->tensor);
}

static void next_use_event(struct policy *p, const struct policy_event *e)
{
	if (e->kind == POLICY_EVENT_EVICT || e->kind == POLICY_EVENT_FREED)
		unhint(p, e->tensor);
	order_event(&p->order, e);
	switch (e->kind) {
	case POLICY_EVENT_USED:
		used(p, e);
		break;
	case POLICY_EVENT_PREFETCH:
		hint(p, e);
		break;
	case POLICY_EVENT_MOVED:
		slot_of(p, e->tensor)->order.at_ns = e->now_ns;
		place(p, e->tensor);
		break;
	default:
		break;
	}
}

/* From position to position at the pace of late; what has no hint comes after the last of them. */
static double next_use_seconds(const struct policy *p, const struct order_slot *order,
			       uint64_t now_ns)
{
	const struct next_use_slot *slot = (const struct next_use_slot *)order;
	uint64_t position = order->mark ? slot->position : p->next;
	double s = (double)(position - p->oldest) * p->pace_ns / NS_PER_S;

	return order->mark ? s : s + order_idle_s(order, now_ns);
}

/* From the greatest position of [from, below) that is in the tier on to lesser ones. */
static void walk_hinted(struct policy *p, struct order_walk *w, uint32_t from, uint32_t below)
{
	struct seqset *here = &p->here[w->query->tier];

	while (below > from && !order_walk_full(w)) {
		uint32_t at = seqset_at_or_before(here, below - 1);

		if (at == SEQSET_NONE || at < from)
			return;
		if (!order_walk_offer(w, p->ring[at])) {
			seqset_remove(here, at);
			order_push_back(&p->order,
					order_head(&p->order, w->query->tier, LIST_HINTED_PARKED),
					p->ring[at]);
		}
		below = at;
	}
}

static size_t next_use_victims(struct policy *p, const struct policy_query *q,
			       struct policy_pick *picks, size_t max)
{
	struct order_walk w = { .order = &p->order,
				.query = q,
				.seconds = next_use_seconds,
				.policy = p,
				.picks = picks,
				.max = max };
	struct order_rest rest;
	uint32_t oldest;

	forget_stale(p, q->now_ns);
	order_walk_all(&w);
	rest = order_walk_probe(&w, order_head(&p->order, q->tier, LIST_HINTED_PARKED));
	/* The ring starts at `oldest` and goes on at 0: the later half of it first. */
	oldest = (uint32_t)(p->oldest % p->capacity);
	walk_hinted(p, &w, 0, oldest);
	walk_hinted(p, &w, oldest, p->capacity);
	order_walk_rest(&w, &rest);
	return w.count;
}

struct wish {
	const struct policy_query *query;
	struct policy_pick *picks;
	size_t max, count;
	uint64_t bytes;
};

/* As far as the budget goes: the first that does not fit ends it, or small ones would overtake. */
static bool wish_for(const struct policy *p, struct wish *w, uint32_t tensor)
{
	const struct next_use_slot *slot = slot_of(p, tensor);
	const struct policy_query *q = w->query;

	if (!q->eligible(q->ctx, tensor))
		return true;
	if (w->count == w->max || slot->order.bytes > q->need_bytes - w->bytes)
		return false;
	w->picks[w->count++] =
		(struct policy_pick){ tensor, slot->order.bytes,
				      -next_use_seconds(p, &slot->order, q->now_ns) };
	w->bytes += slot->order.bytes;
	return true;
}

static bool walk_wanted(const struct policy *p, struct wish *w, uint32_t from, uint32_t below)
{
	const struct seqset *wanted = &p->wanted[w->query->tier];

	for (uint32_t at = seqset_at_or_after(wanted, from); at != SEQSET_NONE && at < below;
	     at = seqset_at_or_after(wanted, at + 1))
		if (!wish_for(p, w, p->ring[at]))
			return false;
	return true;
}

static size_t next_use_prefetch(struct policy *p, const struct policy_query *q,
				struct policy_pick *picks, size_t max)
{
	struct wish w = { .query = q, .picks = picks, .max = max };
	uint32_t oldest;

	ASSERT(q->tier < p->order.slots->tiers);
	forget_stale(p, q->now_ns);
	oldest = (uint32_t)(p->oldest % p->capacity);
	if (walk_wanted(p, &w, oldest, p->capacity))
		walk_wanted(p, &w, 0, oldest);
	return w.count;
}

static void next_use_opinion(const struct policy *p, uint32_t tensor, uint64_t now_ns,
			     struct policy_opinion *ret)
{
	const struct order_slot *slot = order_slot(&p->order, tensor);

	order_opinion(slot, next_use_seconds(p, slot, now_ns), now_ns, ret);
}

static const struct config_row next_use_rows[] = {
	{ .key = "hint_life",
	  .kind = CONFIG_DURATION,
	  .offset = offsetof(struct next_use_config, hint_life_ns),
	  .default_text = "5min",
	  .min = "10ms",
	  .max = "24h",
	  .help = "A hint that no use has followed for so long is forgotten: longer than an "
		  "iteration takes." },
	CONFIG_END,
};

const struct policy_ops policy_next_use = {
	.name = "next_use",
	.help = "What is needed last goes first, by the hints of tierd_prefetch; what has no hint "
		"goes before, as lru.",
	.rows = next_use_rows,
	.config_size = sizeof(struct next_use_config),
	.slot_size = sizeof(struct next_use_slot),
	.create = next_use_create,
	.destroy = next_use_destroy,
	.event = next_use_event,
	.victims = next_use_victims,
	.prefetch = next_use_prefetch,
	.opinion = next_use_opinion,
};

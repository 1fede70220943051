/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/order.h"

#include <errno.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"

/* What a client says is not needed soon is taken to be this far away, beyond its idle time. */
#define TOLD_S 3600.0

static struct order_link *link_of(const struct order *o, uint32_t node)
{
	uint32_t count = o->slots->count;

	return node < count ? &order_slot(o, node)->link : &o->heads[node - count];
}

int order_create(struct order *o, const struct policy_slots *slots, unsigned own, struct err *err)
{
	uint32_t lists = slots->tiers * (ORDER_LIST_OWN + own);

	ASSERT(slots->stride >= sizeof(struct order_slot) && slots->stride % 8 == 0);
	ASSERT((uintptr_t)slots->base % 8 == 0 && slots->tiers <= POLICY_TIERS_MAX);
	ASSERT(slots->count < UINT32_MAX - lists);
	o->heads = heap_zeros(lists, sizeof(*o->heads));
	if (o->heads == NULL)
		return err_set(err, ENOMEM, "policy: no memory for %u lists", lists);
	o->slots = slots;
	o->lists_per_tier = ORDER_LIST_OWN + own;
	for (uint32_t i = 0; i < lists; i++)
		o->heads[i] = (struct order_link){ slots->count + i, slots->count + i };
	return 0;
}

void order_destroy(struct order *o)
{
	heap_free(o->heads);
	o->heads = NULL;
}

uint32_t order_next(const struct order *o, uint32_t node)
{
	return link_of(o, node)->next;
}

uint32_t order_prev(const struct order *o, uint32_t node)
{
	return link_of(o, node)->prev;
}

uint32_t order_first(const struct order *o, uint32_t head)
{
	return order_next(o, head);
}

uint32_t order_last(const struct order *o, uint32_t head)
{
	return order_prev(o, head);
}

void order_unlink(struct order *o, uint32_t tensor)
{
	struct order_link *link = link_of(o, tensor);

	ASSERT(tensor < o->slots->count);
	link_of(o, link->prev)->next = link->next;
	link_of(o, link->next)->prev = link->prev;
	link->prev = link->next = tensor;
}

static void insert_before(struct order *o, uint32_t at, uint32_t tensor)
{
	struct order_link *link = link_of(o, tensor), *after;

	order_unlink(o, tensor);
	after = link_of(o, at);
	link->prev = after->prev;
	link->next = at;
	link_of(o, after->prev)->next = tensor;
	after->prev = tensor;
}

void order_push_back(struct order *o, uint32_t head, uint32_t tensor)
{
	ASSERT(head >= o->slots->count);
	insert_before(o, head, tensor);
}

void order_push_front(struct order *o, uint32_t head, uint32_t tensor)
{
	uint32_t first = order_first(o, head);

	ASSERT(head >= o->slots->count);
	if (first != tensor)
		insert_before(o, first, tensor);
}

void order_splice_front(struct order *o, uint32_t to, uint32_t from)
{
	struct order_link *t = link_of(o, to), *f = link_of(o, from);

	if (to == from || f->next == from)
		return;
	link_of(o, f->prev)->next = t->next;
	link_of(o, t->next)->prev = f->prev;
	t->next = f->next;
	link_of(o, f->next)->prev = to;
	f->prev = f->next = from;
}

static void created(struct order *o, const struct policy_event *e)
{
	struct order_slot *slot = order_slot(o, e->tensor);

	*slot = (struct order_slot){ .link = { e->tensor, e->tensor },
				     .bytes = e->bytes,
				     .at_ns = e->now_ns,
				     .tier = POLICY_TIER_NONE };
}

/* A tensor of no bytes frees nothing wherever it is: it is never anybody's victim. */
static void moved(struct order *o, const struct policy_event *e)
{
	struct order_slot *slot = order_slot(o, e->tensor);

	order_unlink(o, e->tensor);
	slot->told = false;
	slot->tier = e->tier < o->slots->tiers && slot->bytes > 0 ? e->tier : POLICY_TIER_NONE;
}

static void told(struct order *o, uint32_t tensor)
{
	struct order_slot *slot = order_slot(o, tensor);

	if (slot->tier == POLICY_TIER_NONE || slot->told)
		return;
	slot->told = true;
	order_push_back(o, order_head(o, slot->tier, ORDER_LIST_TOLD), tensor);
}

bool order_event(struct order *o, const struct policy_event *e)
{
	struct order_slot *slot;

	if (e->kind == POLICY_EVENT_STEP)
		return false;
	ASSERT(e->tensor < o->slots->count);
	slot = order_slot(o, e->tensor);
	switch (e->kind) {
	case POLICY_EVENT_CREATED:
		created(o, e);
		return false;
	case POLICY_EVENT_MOVED:
		moved(o, e);
		return slot->tier != POLICY_TIER_NONE;
	case POLICY_EVENT_FREED:
		order_unlink(o, e->tensor);
		slot->tier = POLICY_TIER_NONE;
		return false;
	case POLICY_EVENT_EVICT:
		told(o, e->tensor);
		return false;
	case POLICY_EVENT_USED:
	case POLICY_EVENT_PREFETCH:
		if (!slot->told)
			return false;
		slot->told = false;
		order_unlink(o, e->tensor);
		return true;
	default:
		return false;
	}
}

double order_idle_s(const struct order_slot *slot, uint64_t now_ns)
{
	return now_ns > slot->at_ns ? (double)(now_ns - slot->at_ns) / NS_PER_S : 0.0;
}

void order_opinion(const struct order_slot *slot, double seconds, uint64_t now_ns,
		   struct policy_opinion *ret)
{
	ret->told = slot->told != 0;
	ret->needed_in_s = ret->told ? TOLD_S + order_idle_s(slot, now_ns) : seconds;
}

bool order_walk_full(const struct order_walk *w)
{
	return w->count == w->max || w->bytes >= w->query->need_bytes;
}

bool order_walk_offer(struct order_walk *w, uint32_t tensor)
{
	const struct policy_query *q = w->query;
	const struct order_slot *slot = order_slot(w->order, tensor);
	struct policy_opinion opinion;
	double score;

	ASSERT(!order_walk_full(w) && slot->tier == q->tier);
	if (!q->eligible(q->ctx, tensor))
		return false;
	order_opinion(slot, slot->told ? 0 : w->seconds(w->policy, slot, q->now_ns), q->now_ns,
		      &opinion);
	score = policy_score(slot->bytes, opinion.needed_in_s, &q->cost);
	if (w->count > 0)
		score = MIN(score, w->picks[w->count - 1].score);
	w->picks[w->count++] = (struct policy_pick){ tensor, slot->bytes, score };
	w->bytes += slot->bytes;
	return true;
}

struct order_rest order_walk_probe(struct order_walk *w, uint32_t head)
{
	struct order_rest rest = { head, order_first(w->order, head), head };
	unsigned misses = 0;

	while (rest.next != head && rest.next != rest.stop && misses < ORDER_MISSES &&
	       !order_walk_full(w)) {
		uint32_t node = rest.next;

		rest.next = order_next(w->order, node);
		if (order_walk_offer(w, node))
			continue;
		/* To the end, so that the next walk asks for others. */
		order_push_back(w->order, head, node);
		if (misses++ == 0)
			rest.stop = node;
	}
	return rest;
}

void order_walk_rest(struct order_walk *w, const struct order_rest *rest)
{
	uint32_t node = rest->next;

	if (w->query->brief)
		return;
	for (; node != rest->head && node != rest->stop && !order_walk_full(w);
	     node = order_next(w->order, node))
		order_walk_offer(w, node);
}

void order_walk_list(struct order_walk *w, uint32_t head, uint32_t parked)
{
	uint32_t node = order_first(w->order, head);

	while (node != head && !order_walk_full(w)) {
		uint32_t next = order_next(w->order, node);

		if (!order_walk_offer(w, node))
			order_push_back(w->order, parked, node);
		node = next;
	}
}

void order_walk_list_back(struct order_walk *w, uint32_t head, uint32_t parked)
{
	uint32_t node = order_last(w->order, head);

	while (node != head && !order_walk_full(w)) {
		uint32_t prev = order_prev(w->order, node);

		if (!order_walk_offer(w, node))
			order_push_back(w->order, parked, node);
		node = prev;
	}
}

void order_walk_begin(struct order_walk *w)
{
	uint8_t tier = w->query->tier;

	ASSERT(tier < w->order->slots->tiers);
	w->told = order_walk_probe(w, order_head(w->order, tier, ORDER_LIST_TOLD));
	w->parked = order_walk_probe(w, order_head(w->order, tier, ORDER_LIST_PARKED));
}

void order_walk_end(struct order_walk *w)
{
	order_walk_rest(w, &w->told);
	order_walk_rest(w, &w->parked);
}

size_t order_walk_all(struct order_walk *w)
{
	uint8_t tier = w->query->tier;

	order_walk_begin(w);
	order_walk_list(w, order_head(w->order, tier, ORDER_LIST_MAIN),
			order_head(w->order, tier, ORDER_LIST_PARKED));
	order_walk_end(w);
	return w->count;
}

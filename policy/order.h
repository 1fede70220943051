/* SPDX-License-Identifier: Apache-2.0
 *
 * What policies that keep tensors in an order share: lists linked through the slots by 32-bit
 * numbers, the facts that mean the same to all of them, and the walk that turns an order into
 * picks.
 * Every operation is O(1) but the walk. Nothing is allocated after order_create(). Control thread.
 *
 * Each tier has these lists, and as many more as a policy wants:
 *
 *   TOLD    tensors that a client said are not needed soon: they go first
 *   PARKED  tensors that stood at the cold end of MAIN but were denied when they were met: only
 *           ORDER_MISSES of them are asked for again by a walk, so that a thousand pinned tensors
 *           at the cold end do not cost a thousand visits in each call
 *   MAIN    the order itself, coldest first
 *
 * No event says that a pin ended. That is why parked tensors are asked for again, in turn, and why
 * a walk that is still short at its end asks for all of them.
 */
#ifndef TIERD_POLICY_ORDER_H
#define TIERD_POLICY_ORDER_H

#include "policy/policy.h"

#define ORDER_MISSES 4 /* denied tensors of one list that a walk asks for again */

enum order_list { ORDER_LIST_TOLD, ORDER_LIST_PARKED, ORDER_LIST_MAIN, ORDER_LIST_OWN };

struct order_link {
	uint32_t prev, next;
};

/* The first member of every slot. */
struct order_slot {
	struct order_link link;
	uint64_t bytes;
	uint64_t at_ns; /* what the policy dates: the last use, the arrival */
	uint8_t tier;   /* where the front is, POLICY_TIER_NONE: there is none */
	uint8_t told;   /* stands in TOLD */
	uint8_t mark;   /* the policy's own; zero when created */
};

/* Lists are numbered from slots->count on, so that a link names a tensor or a list's head. */
struct order {
	const struct policy_slots *slots;
	uint32_t lists_per_tier;
	struct order_link *heads;
};

/* `own` lists a tier beside TOLD, PARKED and MAIN; number i of them is ORDER_LIST_OWN + i. */
int order_create(struct order *o, const struct policy_slots *slots, unsigned own, struct err *err);
void order_destroy(struct order *o);

static inline struct order_slot *order_slot(const struct order *o, uint32_t tensor)
{
	return (struct order_slot *)((char *)o->slots->base + (size_t)tensor * o->slots->stride);
}

static inline uint32_t order_head(const struct order *o, uint8_t tier, unsigned list)
{
	return o->slots->count + tier * o->lists_per_tier + list;
}

uint32_t order_first(const struct order *o, uint32_t head);
uint32_t order_last(const struct order *o, uint32_t head);
uint32_t order_next(const struct order *o, uint32_t node);
uint32_t order_prev(const struct order *o, uint32_t node);
/* Takes a tensor out of the list that it stands in, if any. */
void order_unlink(struct order *o, uint32_t tensor);
/* These take it out of its old list first. */
void order_push_back(struct order *o, uint32_t head, uint32_t tensor);
void order_push_front(struct order *o, uint32_t head, uint32_t tensor);
/* All of `from` goes before the first of `to`. */
void order_splice_front(struct order *o, uint32_t to, uint32_t from);

/* Keeps slot and lists right for every kind of event; call it first. USED and PREFETCH take a
 * tensor out of TOLD. True when the tensor has a front and stands in no list now: the policy places
 * it. */
bool order_event(struct order *o, const struct policy_event *e);

/* Seconds since slot->at_ns; 0 for a date after now. */
double order_idle_s(const struct order_slot *slot, uint64_t now_ns);
/* What a policy thinks of a tensor whose use it guesses to be `seconds` away. */
void order_opinion(const struct order_slot *slot, double seconds, uint64_t now_ns,
		   struct policy_opinion *ret);

struct order_rest {
	uint32_t head, next, stop; /* from next to before stop or head was not asked for yet */
};

struct order_walk {
	struct order *order;
	const struct policy_query *query;
	/* How long until this tensor is needed, as the policy guesses. */
	double (*seconds)(const struct policy *p, const struct order_slot *slot, uint64_t now_ns);
	const struct policy *policy;
	struct policy_pick *picks;
	size_t max, count;
	uint64_t bytes;
	struct order_rest told, parked;
};

/* Picks are full, or their bytes are enough. */
bool order_walk_full(const struct order_walk *w);
/* Picks a tensor unless it is denied: false. Scores never rise from one pick to the next: the order
 * is the policy's word, the score only says how it compares with other classes. */
bool order_walk_offer(struct order_walk *w, uint32_t tensor);
/* TOLD, then PARKED, until ORDER_MISSES of each were denied. */
void order_walk_begin(struct order_walk *w);
/* A list from its first, or from its last; what is denied goes to the list `parked`. */
void order_walk_list(struct order_walk *w, uint32_t head, uint32_t parked);
void order_walk_list_back(struct order_walk *w, uint32_t head, uint32_t parked);
/* Those of TOLD and PARKED that order_walk_begin() left out, unless the query is brief. */
void order_walk_end(struct order_walk *w);
/* For lists of the policy's own that are used as PARKED is. */
struct order_rest order_walk_probe(struct order_walk *w, uint32_t head);
void order_walk_rest(struct order_walk *w, const struct order_rest *rest);
/* The three lists of the tier asked for. Returns the picks made. */
size_t order_walk_all(struct order_walk *w);

#endif

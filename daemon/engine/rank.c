/* SPDX-License-Identifier: Apache-2.0
 *
 * A policy that is asked denies nothing here: it would put aside whom it was denied, and the next
 * look for victims would find another order than without the question. Who may not go is left out
 * of its answer instead.
 */
#include "daemon/engine/rank.h"

#include <math.h>

#include "daemon/engine/reclaim.h"

#define PICKS_MAX 4096u  /* of a class: 96 KiB, on the stack */
#define SLOTS_MAX 65536u /* of clients, in all of them */

struct ranking {
	struct engine *e;
	struct quota_demand demand;
	uint8_t device;
	struct policy_cost cost;
	size_t max;
	struct policy_pick picks[PICKS_MAX];
};

static bool deny_nobody(const void *ctx, uint32_t tensor)
{
	return true;
}

static bool may_go(const struct ranking *k, uint32_t tensor)
{
	return reclaim_eligible(k->e, k->device, tensor) &&
	       quota_yields(k->e, &k->demand, tensor, k->device);
}

/* Its own, while in the picks of a policy no score is above the one before it. */
static double own_score(const struct ranking *k, uint32_t tensor)
{
	const struct record *r = record_of(k->e, tensor);
	struct policy_opinion opinion;

	k->e->policy_ops[r->class_]->opinion(k->e->policies[r->class_], tensor, k->e->now_ns,
					     &opinion);
	return policy_score(MAX(r->bytes, 1u), opinion.needed_in_s, &k->cost);
}

static size_t ask(struct ranking *k, unsigned class_)
{
	const struct policy_query query = { .tier = k->device,
					    .need_bytes = UINT64_MAX,
					    .now_ns = k->e->now_ns,
					    .cost = k->cost,
					    .eligible = deny_nobody };

	return k->e->policy_ops[class_]->victims(k->e->policies[class_], &query, k->picks, k->max);
}

/* Of its own class: those before it, and the score that it would be picked with. */
static bool rank_within(struct ranking *k, uint32_t tensor, struct rank *ret, double *ret_score)
{
	size_t n = ask(k, record_of(k->e, tensor)->class_);
	double score = INFINITY;

	for (size_t i = 0; i < n; i++) {
		uint32_t other = k->picks[i].tensor;

		if (other != tensor && !may_go(k, other))
			continue;
		score = MIN(score, own_score(k, other));
		if (other == tensor) {
			*ret_score = score;
			return true;
		}
		ret->before++;
	}
	ret->least = true;
	return false;
}

/* Of another class: all that are picked with more, or with as much where it is asked before. */
static void rank_beside(struct ranking *k, unsigned class_, bool first, double than,
			struct rank *ret)
{
	size_t n = ask(k, class_);
	double score = INFINITY;

	for (size_t i = 0; i < n; i++) {
		if (!may_go(k, k->picks[i].tensor))
			continue;
		score = MIN(score, own_score(k, k->picks[i].tensor));
		if (first ? score < than : score <= than)
			return;
		ret->before++;
	}
	ret->least |= n == k->max;
}

static void rank_among(struct ranking *k, uint32_t tensor, struct rank *ret)
{
	uint8_t own = record_of(k->e, tensor)->class_;
	double score;

	if (!rank_within(k, tensor, ret, &score))
		return;
	for (unsigned c = 0; c < ENGINE_CLASSES; c++)
		if (c != own)
			rank_beside(k, c, c < own, score, ret);
}

void rank_find(struct engine *e, uint32_t tensor, struct rank *ret)
{
	uint8_t device = record_of(e, tensor)->front;
	struct ranking k;

	*ret = (struct rank){ .known = reclaim_eligible(e, device, tensor) };
	if (!ret->known)
		return;
	k.e = e;
	k.device = device;
	k.demand = (struct quota_demand){ .account = NULL };
	k.cost = reclaim_cost(e, device);
	k.max = MAX(SLOTS_MAX / (1 + e->holder_room) / ENGINE_CLASSES, 64u);
	k.max = MIN(k.max, PICKS_MAX);
	if (!quota_yields(e, &k.demand, tensor, device)) {
		ret->guaranteed = true;
		k.demand = (struct quota_demand){ .account = account_of(e, tensor), .own = true };
	}
	rank_among(&k, tensor, ret);
}

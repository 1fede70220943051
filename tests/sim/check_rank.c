/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank that `why` tells is the order in which tensors go: by each policy, over classes that
 * have different ones, past pins, and in what quotas leave. Asking changes nothing of it.
 */
#include "tests/unit/unit.h"

#include <string.h>

#include "base/compiler.h"
#include "tests/sim/rig.h"

#define HOST    PROTOCOL_PLACE_HOST
#define TENSORS 20u
#define BYTES   WORLD_BLOCK /* dram has 32 of them, and 27 below the low watermark */
#define SEEDS   60u

static struct wire_handle t[TENSORS];

static uint32_t rank_of(struct rig *r, struct wire_handle h, uint32_t *ret_reasons)
{
	struct {
		struct wire_explain x;
		struct wire_pin pins[RIG_CLIENTS];
	} told;

	ck_assert_int_gt(
		engine_explain(r->world.engine, h, &told, sizeof(told), r->world.now_ns, NULL), 0);
	if (ret_reasons != NULL)
		*ret_reasons = told.x.reasons;
	ck_assert_uint_eq(told.x.rank_least, 0);
	ck_assert_uint_eq(told.x.rank > 0, (told.x.reasons & EXPLAIN_MAY_GO) != 0);
	return told.x.rank;
}

static struct wire_handle make(struct rig *r, uint8_t class_, uint64_t bytes)
{
	struct engine_spec spec = { .class_ = class_, .ndim = 1, .shape = { bytes } };
	struct wire_handle h;

	ck_assert_int_eq(engine_create_tensors(r->world.engine, r->client[0].holder, &spec, 1, &h,
					       r->world.now_ns, NULL),
			 0);
	return h;
}

/* Some of each class are used, hinted, told to go, in any order and at any time. */
static void live(struct rig *r)
{
	struct world *w = &r->world;

	for (unsigned i = 0; i < TENSORS; i++) {
		t[i] = make(r, (uint8_t)world_below(w, ENGINE_CLASSES), BYTES);
		rig_use(r, 0, &t[i], 1, HOST, ACCESS_WRITE);
		world_turn(w, world_below(w, 30 * NS_PER_MS));
	}
	for (unsigned i = 0; i < 60; i++) {
		struct wire_handle h = t[world_below(w, TENSORS)];

		if (world_below(w, 8) == 0)
			ck_assert_int_eq(engine_evict(w->engine, r->client[0].holder, &h, 1,
						      w->now_ns, NULL),
					 0);
		else if (world_below(w, 8) == 0)
			rig_hint(r, 0, h, HOST);
		else
			rig_use(r, 0, &h, 1, HOST, ACCESS_READ);
		world_turn(w, world_below(w, 200 * NS_PER_MS));
	}
	for (unsigned i = 0; i < TENSORS; i++)
		ck_assert_int_eq(rig_flush(r, 0, t[i]), 0); /* so that it goes at once */
	rig_settle(r, 200); /* nothing is held for its asker any more */
}

/* Ranks are 1, 2, ... of those that may go. */
static unsigned rank_all(struct rig *r, uint32_t rank[TENSORS])
{
	bool seen[TENSORS + 1] = { false };
	unsigned n = 0;

	for (unsigned i = 0; i < TENSORS; i++) {
		rank[i] = rank_of(r, t[i], NULL);
		n += rank[i] > 0;
	}
	for (unsigned i = 0; i < TENSORS; i++) {
		ck_assert_uint_le(rank[i], n);
		ck_assert(rank[i] == 0 || !seen[rank[i]]);
		seen[rank[i]] = true;
	}
	return n;
}

/* Somebody wants room for `more`: those that go are the first by their ranks. */
static void check_order(struct rig *r, const struct policy_ops *policy, unsigned more)
{
	uint32_t rank[TENSORS], last_gone = 0, first_left = UINT32_MAX;
	unsigned n = rank_all(r, rank);

	ck_assert_uint_ge(n, TENSORS / 2);
	for (unsigned i = 0; i < more; i++)
		rig_pin(r, 1, make(r, 0, BYTES), HOST, ACCESS_WRITE);
	for (unsigned i = 0; i < TENSORS; i++) {
		if (rank[i] == 0)
			ck_assert(rig_stands_at(r, t[i], HOST));
		else if (rig_stands_at(r, t[i], HOST))
			first_left = MIN(first_left, rank[i]);
		else
			last_gone = MAX(last_gone, rank[i]);
	}
	ck_assert_uint_gt(last_gone, 0);
	ck_assert_msg(last_gone < first_left, "%s: number %u went, and %u did not",
		      policy != NULL ? policy->name : "mixed", last_gone, first_left);
}

static void run(const struct policy_ops *policy, uint64_t seed)
{
	struct rig *r = rig_open_by((struct world_shape){ .nvme = 2 }, policy, seed);

	live(r);
	for (unsigned i = 0; i < 3; i++)
		rig_pin(r, 2, t[world_below(&r->world, TENSORS)], HOST, ACCESS_READ);
	rig_settle(r, 200);
	check_order(r, policy, 14);
	rig_close(r);
}

START_TEST(what_goes_first_has_the_first_rank)
{
	for (unsigned p = 0; policy_all[p] != NULL; p++)
		for (uint64_t seed = 1; seed <= SEEDS; seed++)
			run(policy_all[p], seed);
}
END_TEST

START_TEST(classes_of_different_policies_have_one_order)
{
	for (uint64_t seed = 1; seed <= 2 * SEEDS; seed++)
		run(NULL, seed);
}
END_TEST

/* What is guaranteed goes for its own namespace alone, and is before nobody else's. */
START_TEST(what_is_guaranteed_is_ranked_by_itself)
{
	static const struct engine_quota quotas[] = {
		{ .name = "a",
		  .tier = { [TIER_KIND_HBM] = { 8 * BYTES, UINT64_MAX },
			    [TIER_KIND_DRAM] = { 0, UINT64_MAX },
			    [TIER_KIND_NVME] = { 0, UINT64_MAX } } },
	};
	struct rig *r = rig_open(
		(struct world_shape){ .hbm = 1, .nvme = 2, .quotas = quotas, .quota_count = 1 });
	struct wire_handle of[2][4];
	uint32_t reasons;

	for (unsigned i = 0; i < 4; i++)
		for (unsigned client = 0; client < 2; client++) {
			of[client][i] = rig_create(r, client, BYTES);
			rig_use(r, client, &of[client][i], 1, 0, ACCESS_WRITE);
			world_turn(&r->world, NS_PER_MS);
		}
	rig_settle(r, 200);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(rank_of(r, of[0][i], &reasons), i + 1);
		ck_assert_uint_ne(reasons & EXPLAIN_GUARANTEED, 0);
		ck_assert_uint_eq(rank_of(r, of[1][i], &reasons), i + 1);
		ck_assert_uint_eq(reasons & EXPLAIN_GUARANTEED, 0);
	}
	rig_pin(r, 0, of[0][0], 0, ACCESS_READ);
	ck_assert_uint_eq(rank_of(r, of[0][0], NULL), 0);
	ck_assert_uint_eq(rank_of(r, of[0][3], NULL), 3);
	rig_unpin(r, 0, of[0][0], ACCESS_READ);
	rig_close(r);
}
END_TEST

UNIT_MAIN("rank", what_goes_first_has_the_first_rank, classes_of_different_policies_have_one_order,
	  what_is_guaranteed_is_ranked_by_itself)

/* SPDX-License-Identifier: Apache-2.0
 *
 * What every policy owes the engine, whatever it thinks of tensors. Each test runs over all rows of
 * policy_all: a new policy is tested by being there.
 */
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/conformance/policy_world.h"

#define TENSORS   300
#define PICKS_MAX 400
#define KIB_4     4096u

static uint64_t random_state;

/* splitmix64: the same events for the same seed on every machine. */
static uint64_t random_u64(void)
{
	uint64_t z = (random_state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint32_t random_below(uint32_t n)
{
	return (uint32_t)(random_u64() % n);
}

static uint8_t random_tier(void)
{
	static const uint8_t tiers[] = { WORLD_TIER_HBM, WORLD_TIER_DRAM, WORLD_TIER_DRAM,
					 WORLD_TIER_NVME, POLICY_TIER_NONE };

	return tiers[random_below(ARRAY_SIZE(tiers))];
}

static uint64_t random_bytes(void)
{
	return random_below(16) == 0 ? 0 : 1ull << random_below(33) | random_below(KIB_4);
}

/* One event or a change of what the engine would allow. */
static void random_event(struct world *w)
{
	uint32_t t = random_below(w->slots.count);

	if (!w->tensors[t].live) {
		world_create(w, t, random_bytes());
		return;
	}
	switch (random_below(16)) {
	case 0:
		world_free(w, t);
		break;
	case 1:
		world_evict(w, t);
		break;
	case 2:
		world_step(w);
		break;
	case 3:
	case 4:
		world_hint(w, t, random_below(2) ? WORLD_TIER_HBM : WORLD_TIER_DRAM);
		break;
	case 5:
	case 6:
	case 7:
		w->tensors[t].denied = !w->tensors[t].denied;
		break;
	case 8:
		w->now_ns += random_u64() % (random_below(50) ? NS_PER_S : 10000 * NS_PER_S);
		break;
	case 9:
	case 10:
	case 11:
		world_move(w, t, random_tier());
		break;
	default:
		world_use(w, t);
	}
}

static uint64_t takeable_bytes(const struct world *w, uint8_t tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < w->slots.count; i++)
		if (w->tensors[i].live && !w->tensors[i].denied && w->tensors[i].tier == tier)
			bytes += w->tensors[i].bytes;
	return bytes;
}

/* Check notes every assertion that holds; there are tens of millions here. */
#define MUST(cond)                                                           \
	do {                                                                 \
		if (!(cond))                                                 \
			ck_abort_msg("%s: not so: %s", w->ops->name, #cond); \
	} while (0)

/* What holds of every answer, victims or prefetches. Returns the bytes picked. */
static uint64_t check_picks(const struct world *w, const struct policy_pick *picks, size_t n)
{
	bool seen[TENSORS] = { false };
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++) {
		const struct world_tensor *t = &w->tensors[picks[i].tensor];
		bool picked_twice = seen[picks[i].tensor];

		MUST(t->live);
		MUST(!t->denied);
		MUST(!picked_twice);
		MUST(picks[i].bytes == t->bytes);
		MUST(isfinite(picks[i].score));
		MUST(i == 0 || picks[i].score <= picks[i - 1].score);
		seen[picks[i].tensor] = true;
		bytes += picks[i].bytes;
	}
	return bytes;
}

static size_t check_victims(struct world *w, struct policy_pick *picks)
{
	uint8_t tier = random_below(2) ? WORLD_TIER_HBM : WORLD_TIER_DRAM;
	uint64_t there = takeable_bytes(w, tier), bytes;
	uint64_t need = random_u64() % (there + there / 8 + 2);
	size_t max = 1 + random_below(PICKS_MAX), n = world_victims(w, tier, need, picks, max);

	MUST(n <= max);
	bytes = check_picks(w, picks, n);
	for (size_t i = 0; i < n; i++)
		MUST(w->tensors[picks[i].tensor].tier == tier && picks[i].bytes > 0);
	/* Neither short of what is there nor more than needed. */
	MUST(n == max || bytes >= need || bytes == there);
	MUST(n == 0 || bytes - picks[n - 1].bytes < need);
	return n;
}

static size_t check_prefetch(struct world *w, struct policy_pick *picks)
{
	uint8_t tier = random_below(2) ? WORLD_TIER_HBM : WORLD_TIER_DRAM;
	uint64_t budget = 1ull << random_below(40);
	size_t max = 1 + random_below(PICKS_MAX), n = world_prefetch(w, tier, budget, picks, max);

	MUST(n <= max);
	MUST(check_picks(w, picks, n) <= budget);
	for (size_t i = 0; i < n; i++)
		MUST(w->tensors[picks[i].tensor].tier != tier);
	return n;
}

/* Folds picks into one number. */
static uint64_t fold(uint64_t hash, const struct policy_pick *picks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ picks[i].tensor) * 0x100000001b3ull;
	return hash;
}

static uint64_t run_seed(const char *policy, uint64_t seed)
{
	struct policy_pick picks[PICKS_MAX];
	uint64_t hash = 0xcbf29ce484222325ull;
	struct world w;

	random_state = seed;
	world_open(&w, policy, TENSORS, NULL, NULL);
	for (int i = 0; i < 20000; i++) {
		random_event(&w);
		if (i % 8 != 0)
			continue;
		hash = fold(hash, picks, check_victims(&w, picks));
		hash = fold(hash, picks, check_prefetch(&w, picks));
	}
	world_check_slots(&w);
	world_close(&w);
	return hash;
}

#define FOR_EACH_POLICY(ops) \
	for (const struct policy_ops *const *all = policy_all, *ops; (ops = *all) != NULL; all++)

START_TEST(rows_are_complete_and_found_by_name)
{
	size_t n = 0;

	FOR_EACH_POLICY(ops)
	{
		ck_assert_ptr_eq(policy_find(ops->name), ops);
		ck_assert(ops->help != NULL && ops->help[0] != '\0');
		ck_assert(ops->create && ops->destroy && ops->event && ops->victims);
		ck_assert(ops->prefetch && ops->rows && ops->slot_size > 0);
		n++;
	}
	ck_assert_uint_ge(n, 5);
	ck_assert_ptr_null(policy_find("nosuch"));
	ck_assert_ptr_null(policy_find(""));
}
END_TEST

START_TEST(random_events_keep_the_contract)
{
	FOR_EACH_POLICY(ops)
	for (uint64_t seed = 1; seed <= 20; seed++)
		run_seed(ops->name, seed);
}
END_TEST

START_TEST(the_same_events_give_the_same_picks)
{
	FOR_EACH_POLICY(ops)
	{
		ck_assert_uint_eq(run_seed(ops->name, 7), run_seed(ops->name, 7));
		ck_assert_uint_ne(run_seed(ops->name, 7), run_seed(ops->name, 8));
	}
}
END_TEST

START_TEST(a_walk_meets_only_what_the_tier_holds)
{
	static struct policy_pick picks[1000];

	/* 10,000 tensors of 1 MiB, 500 of them in dram, 5 % of those wanted. */
	FOR_EACH_POLICY(ops)
	{
		struct world w;
		size_t n;

		world_open(&w, ops->name, 10000, NULL, NULL);
		for (uint32_t i = 0; i < 10000; i++) {
			world_create(&w, i, MIB(1));
			world_move(&w, i, i % 20 == 0 ? WORLD_TIER_DRAM : WORLD_TIER_NVME);
			world_hint(&w, i, WORLD_TIER_DRAM);
		}
		n = world_victims(&w, WORLD_TIER_DRAM, MIB(25), picks, ARRAY_SIZE(picks));
		ck_assert_uint_eq(n, 25);
		ck_assert_msg(w.visits < 2 * n, "%s: %lu visits", ops->name,
			      (unsigned long)w.visits);
		world_close(&w);
	}
}
END_TEST

START_TEST(pinned_tensors_are_not_met_in_every_walk)
{
	/* The first 2000 to go are pinned; 500 single victims are asked for all the same. */
	FOR_EACH_POLICY(ops)
	{
		struct policy_pick pick;
		struct world w;

		world_open(&w, ops->name, 4000, NULL, NULL);
		for (uint32_t i = 0; i < 4000; i++) {
			world_create(&w, i, MIB(1));
			world_move(&w, i, WORLD_TIER_DRAM);
			w.tensors[i].denied = i < 2000;
		}
		for (uint32_t i = 0; i < 500; i++) {
			ck_assert_uint_eq(world_victims(&w, WORLD_TIER_DRAM, 1, &pick, 1), 1);
			world_move(&w, pick.tensor, WORLD_TIER_NVME);
		}
		ck_assert_msg(w.visits <= 4000 + 500 * 16, "%s: %lu visits", ops->name,
			      (unsigned long)w.visits);
		world_close(&w);
	}
}
END_TEST

START_TEST(a_brief_walk_meets_few_of_those_that_were_denied)
{
	/* Never enough: 4000 pinned ones stand beside those that may go, one at a time. */
	FOR_EACH_POLICY(ops)
	{
		struct policy_pick pick[2];
		struct world w;

		world_open(&w, ops->name, 4500, NULL, NULL);
		for (uint32_t i = 0; i < 4000; i++) {
			world_create(&w, i, MIB(1));
			world_move(&w, i, WORLD_TIER_HBM);
			w.tensors[i].denied = true;
		}
		ck_assert_uint_eq(world_victims(&w, WORLD_TIER_HBM, MIB(2), pick, 2), 0);
		w.brief = true;
		w.visits = 0;
		for (uint32_t i = 4000; i < 4500; i++) {
			world_create(&w, i, MIB(1));
			world_move(&w, i, WORLD_TIER_HBM);
			ck_assert_uint_eq(world_victims(&w, WORLD_TIER_HBM, MIB(2), pick, 2), 1);
			ck_assert_uint_eq(pick[0].tensor, i);
			world_move(&w, i, WORLD_TIER_DRAM);
		}
		ck_assert_msg(w.visits <= 500 * 32, "%s: %lu visits", ops->name,
			      (unsigned long)w.visits);
		/* Those that were let go are found one after the other, or all by a walk that is
		 * not brief. */
		for (uint32_t i = 0; i < 4000; i++)
			w.tensors[i].denied = false;
		ck_assert_uint_eq(world_victims(&w, WORLD_TIER_HBM, MIB(2), pick, 2), 2);
		world_close(&w);
	}
}
END_TEST

START_TEST(what_is_denied_now_is_taken_later)
{
	static struct policy_pick picks[100];

	FOR_EACH_POLICY(ops)
	{
		struct world w;

		world_open(&w, ops->name, 100, NULL, NULL);
		for (uint32_t i = 0; i < 100; i++) {
			world_create(&w, i, KIB_4);
			world_move(&w, i, WORLD_TIER_HBM);
			w.tensors[i].denied = true;
		}
		for (int i = 0; i < 3; i++)
			ck_assert_uint_eq(world_victims(&w, WORLD_TIER_HBM, 1, picks, 100), 0);
		for (uint32_t i = 0; i < 100; i++)
			w.tensors[i].denied = false;
		ck_assert_uint_eq(world_victims(&w, WORLD_TIER_HBM, 100 * KIB_4, picks, 100), 100);
		world_close(&w);
	}
}
END_TEST

START_TEST(what_a_client_does_not_need_goes_first)
{
	static struct policy_pick picks[100];

	FOR_EACH_POLICY(ops)
	{
		struct world w;
		size_t n;

		world_open(&w, ops->name, 100, NULL, NULL);
		for (uint32_t i = 0; i < 100; i++) {
			world_create(&w, i, KIB_4);
			world_move(&w, i, WORLD_TIER_DRAM);
			world_use(&w, i);
		}
		world_evict(&w, 98);
		world_evict(&w, 50);
		world_evict(&w, 99);
		world_use(&w, 50); /* needed after all */
		n = world_victims(&w, WORLD_TIER_DRAM, 100 * KIB_4, picks, 100);
		ck_assert_uint_eq(n, 100);
		ck_assert_uint_eq(picks[0].tensor, 98);
		ck_assert_uint_eq(picks[1].tensor, 99);
		ck_assert_uint_ne(picks[2].tensor, 50);
		world_close(&w);
	}
}
END_TEST

UNIT_MAIN("policies", rows_are_complete_and_found_by_name, random_events_keep_the_contract,
	  the_same_events_give_the_same_picks, a_walk_meets_only_what_the_tier_holds,
	  pinned_tensors_are_not_met_in_every_walk,
	  a_brief_walk_meets_few_of_those_that_were_denied, what_is_denied_now_is_taken_later,
	  what_a_client_does_not_need_goes_first)

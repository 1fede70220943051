/* SPDX-License-Identifier: Apache-2.0
 *
 * What each policy promises of its own; what all owe is in tests/conformance/check_policies.c.
 */
#include "tests/unit/unit.h"

#include "base/compiler.h"
#include "policy/seqset.h"
#include "tests/conformance/policy_world.h"

#define TENSOR_BYTES MIB(1)

static struct policy_pick picks[64];

/* `count` tensors of one size, all in dram, arrived and used in the order of their numbers. */
static void open_full(struct world *w, const char *policy, uint32_t count, const char *key,
		      const char *value)
{
	world_open(w, policy, count, key, value);
	for (uint32_t i = 0; i < count; i++)
		world_create(w, i, TENSOR_BYTES);
	for (uint32_t i = 0; i < count; i++) {
		world_move(w, i, WORLD_TIER_DRAM);
		world_use(w, i);
	}
}

/* The next victims are these, in this order. */
static void expect(struct world *w, const uint32_t *want, size_t n)
{
	ck_assert_uint_eq(world_victims(w, WORLD_TIER_DRAM, n * TENSOR_BYTES, picks, 64), n);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(picks[i].tensor, want[i]);
}

#define EXPECT(w, ...)                                   \
	do {                                             \
		const uint32_t want[] = { __VA_ARGS__ }; \
		expect(w, want, ARRAY_SIZE(want));       \
	} while (0)

/* Hits of 40 sweeps over 64 tensors with room for `room`, the first sweep left out. */
static unsigned sweep_hits(const char *policy, const char *key, const char *value, unsigned room,
			   bool back_and_forth)
{
	unsigned hits = 0;
	struct world w;

	world_open(&w, policy, 64, key, value);
	for (uint32_t i = 0; i < 64; i++)
		world_create(&w, i, TENSOR_BYTES);
	for (unsigned sweep = 0; sweep < 41; sweep++)
		for (uint32_t i = 0; i < 64; i++) {
			uint32_t t = back_and_forth && sweep % 2 ? 63 - i : i;

			if (world_access(&w, t, room * TENSOR_BYTES) && sweep > 0)
				hits++;
		}
	world_close(&w);
	return hits;
}

START_TEST(lru_goes_by_last_use)
{
	struct world w;

	open_full(&w, "lru", 5, NULL, NULL);
	world_use(&w, 0);
	world_use(&w, 2);
	EXPECT(&w, 1, 3, 4, 0, 2);
	ck_assert_double_gt(picks[0].score, picks[4].score);
	world_hint(&w, 1, WORLD_TIER_DRAM); /* will be needed: as good as used */
	EXPECT(&w, 3, 4, 0, 2, 1);
	world_close(&w);
}
END_TEST

START_TEST(lru_remembers_the_order_of_those_it_could_not_take)
{
	struct world w;

	open_full(&w, "lru", 5, NULL, NULL);
	w.tensors[0].denied = w.tensors[1].denied = true;
	EXPECT(&w, 2, 3);
	w.tensors[0].denied = w.tensors[1].denied = false;
	EXPECT(&w, 0, 1, 2, 3, 4);
	world_close(&w);
}
END_TEST

START_TEST(fifo_goes_by_arrival)
{
	struct world w;

	open_full(&w, "fifo", 4, NULL, NULL);
	world_use(&w, 0);
	EXPECT(&w, 0, 1, 2, 3);
	world_move(&w, 0, WORLD_TIER_NVME);
	world_move(&w, 0, WORLD_TIER_DRAM);
	EXPECT(&w, 1, 2, 3, 0);
	world_close(&w);
}
END_TEST

START_TEST(a_sweep_that_starts_over_hits_only_what_is_kept)
{
	/* Room for 48 of 64, and 47 are kept: one place for all that go through. */
	ck_assert_uint_eq(sweep_hits("lru", NULL, NULL, 48, false), 0);
	ck_assert_uint_eq(sweep_hits("fifo", NULL, NULL, 48, false), 0);
	ck_assert_uint_eq(sweep_hits("pin_fraction", "fraction", "74%", 48, false), 40 * 47);
}
END_TEST

START_TEST(a_sweep_hits_even_when_the_fraction_does_not_fit)
{
	/* The kept ones give way at the hot end, so that all others of them stay. */
	ck_assert_uint_ge(sweep_hits("pin_fraction", "fraction", "100%", 16, false), 40 * 15);
}
END_TEST

START_TEST(a_pass_that_comes_back_the_way_it_went_suits_lru)
{
	ck_assert_uint_ge(sweep_hits("lru", NULL, NULL, 48, true), 40 * 47);
	ck_assert_uint_ge(sweep_hits("pin_fraction", "fraction", "50%", 48, true), 40 * 40);
}
END_TEST

START_TEST(pin_fraction_keeps_its_share_against_other_classes)
{
	struct world w;

	open_full(&w, "pin_fraction", 10, "fraction", "40%");
	w.now_ns += 1000 * NS_PER_S;
	EXPECT(&w, 4, 5, 6, 7, 8, 9, 3, 2, 1, 0);
	ck_assert_double_gt(picks[5].score, 0);
	ck_assert_double_eq(picks[6].score, 0); /* 4 of 10 are needed at once, by its word */
	world_close(&w);
}
END_TEST

START_TEST(pin_fraction_follows_the_size_of_the_class)
{
	struct world w;

	open_full(&w, "pin_fraction", 10, "fraction", "40%");
	for (uint32_t i = 5; i < 10; i++)
		world_free(&w, i); /* 40 % of 5 left: two stay */
	EXPECT(&w, 4, 3, 2, 1, 0);
	ck_assert_double_gt(picks[2].score, 0);
	ck_assert_double_eq(picks[3].score, 0);
	world_close(&w);
}
END_TEST

START_TEST(hotness_goes_by_decayed_uses)
{
	struct world w;

	open_full(&w, "hotness", 3, "half_life", "1s");
	for (int i = 0; i < 8; i++)
		world_use(&w, 0);
	world_use(&w, 1);
	EXPECT(&w, 2, 1, 0);
	/* After ten half-lives the eight uses count less than one new. */
	w.now_ns += 10 * NS_PER_S;
	world_use(&w, 2);
	EXPECT(&w, 1, 0, 2);
	world_close(&w);
}
END_TEST

START_TEST(hotness_keeps_its_order_over_any_time)
{
	struct world w;

	open_full(&w, "hotness", 3, "half_life", "1s");
	w.now_ns += 3 * NS_PER_S;
	world_use(&w, 1);
	w.now_ns += 1000000 * NS_PER_S;
	EXPECT(&w, 0, 2, 1);
	for (uint32_t i = 0; i < 3; i++)
		world_use(&w, i);
	world_use(&w, 0);
	EXPECT(&w, 1, 2, 0);
	world_close(&w);
}
END_TEST

START_TEST(hotness_keeps_the_cold_ones_cold_when_its_buckets_go_round)
{
	/* Waits of up to twice what all buckets span, one after the other. */
	for (unsigned wait_s = 1; wait_s < 130; wait_s++) {
		struct world w;

		open_full(&w, "hotness", 3, "half_life", "1s");
		for (uint32_t i = 1; i < 3; i++) {
			w.now_ns += wait_s * NS_PER_S;
			world_use(&w, i);
		}
		EXPECT(&w, 0, 1, 2);
		world_close(&w);
	}
}
END_TEST

START_TEST(hotness_weighs_size_and_the_cost_to_bring_back)
{
	struct world w;

	/* Small ones cost a whole round trip a few bytes each: of two used alike they stay. */
	world_open(&w, "hotness", 3, NULL, NULL);
	world_create(&w, 0, 4096);
	world_create(&w, 1, MIB(16));
	world_create(&w, 2, MIB(1));
	for (uint32_t i = 0; i < 3; i++)
		world_move(&w, i, WORLD_TIER_DRAM);
	ck_assert_uint_eq(world_victims(&w, WORLD_TIER_DRAM, MIB(18), picks, 64), 3);
	ck_assert_uint_eq(picks[0].tensor, 1);
	ck_assert_uint_eq(picks[1].tensor, 2);
	ck_assert_uint_eq(picks[2].tensor, 0);
	world_close(&w);
}
END_TEST

START_TEST(next_use_evicts_what_is_needed_last)
{
	struct world w;

	open_full(&w, "next_use", 6, NULL, NULL);
	for (uint32_t i = 0; i < 4; i++)
		world_hint(&w, (i * 3 + 1) % 4, WORLD_TIER_DRAM); /* need: 1 0 3 2 */
	EXPECT(&w, 4, 5, 2, 3, 0, 1);
	/* A use fulfils the hint. Then recency counts: after those used before, before the hinted.
	 */
	world_use(&w, 1);
	EXPECT(&w, 4, 5, 1, 2, 3, 0);
	/* Two hints before a use: the first counts. */
	world_hint(&w, 0, WORLD_TIER_DRAM);
	EXPECT(&w, 4, 5, 1, 2, 3, 0);
	world_close(&w);
}
END_TEST

START_TEST(next_use_forgets_hints_that_nobody_follows)
{
	struct world w;

	open_full(&w, "next_use", 3, "hint_life", "10s");
	world_hint(&w, 0, WORLD_TIER_DRAM);
	EXPECT(&w, 1, 2, 0);
	w.now_ns += 11 * NS_PER_S;
	EXPECT(&w, 0, 1, 2);
	world_close(&w);
}
END_TEST

/* Where the tensor stands among all victims. */
static size_t victim_number(struct world *w, uint32_t tensor)
{
	static struct policy_pick all[300];
	size_t n = world_victims(w, WORLD_TIER_DRAM, UINT64_MAX, all, ARRAY_SIZE(all)), i = 0;

	ck_assert_uint_eq(n, ARRAY_SIZE(all));
	while (i < n && all[i].tensor != tensor)
		i++;
	return i;
}

START_TEST(next_use_forgets_many_hints_call_by_call)
{
	struct world w;
	size_t at = 0, calls = 0;

	open_full(&w, "next_use", 300, "hint_life", "10s");
	for (uint32_t i = 1; i < 300; i++)
		world_hint(&w, i, WORLD_TIER_DRAM);
	ck_assert_uint_eq(victim_number(&w, 0), 0);
	w.now_ns += 11 * NS_PER_S;
	/* What is forgotten goes before the one that nobody hinted. */
	for (; at < 299; calls++) {
		size_t now = victim_number(&w, 0);

		ck_assert(now > at && now <= at + 64);
		at = now;
	}
	ck_assert_uint_eq(calls, 5);
	world_close(&w);
}
END_TEST

START_TEST(next_use_prefetches_in_the_order_of_need)
{
	struct world w;

	world_open(&w, "next_use", 8, NULL, NULL);
	for (uint32_t i = 0; i < 8; i++) {
		world_create(&w, i, TENSOR_BYTES);
		world_move(&w, i, i == 5 ? WORLD_TIER_DRAM : WORLD_TIER_NVME);
	}
	for (uint32_t i = 0; i < 8; i++)
		world_hint(&w, 7 - i, i == 3 ? WORLD_TIER_HBM : WORLD_TIER_DRAM);
	w.tensors[6].denied = true;
	/* 5 is there, 6 denied, 4 wanted elsewhere; the budget ends it. */
	ck_assert_uint_eq(world_prefetch(&w, WORLD_TIER_DRAM, 4 * TENSOR_BYTES - 1, picks, 64), 3);
	ck_assert_uint_eq(picks[0].tensor, 7);
	ck_assert_uint_eq(picks[1].tensor, 3);
	ck_assert_uint_eq(picks[2].tensor, 2);
	ck_assert_uint_eq(world_prefetch(&w, WORLD_TIER_HBM, MIB(64), picks, 64), 1);
	ck_assert_uint_eq(picks[0].tensor, 4);
	world_close(&w);
}
END_TEST

/* Belady's rule by hand: of those in dram, what is used last from `now` on. */
static uint32_t farthest(const struct world *w, const uint32_t *uses, size_t n, size_t now)
{
	size_t best_at = 0;
	uint32_t best = UINT32_MAX;

	for (uint32_t t = 0; t < w->slots.count; t++) {
		size_t at = now;

		while (at < n && uses[at] != t)
			at++;
		if (w->tensors[t].tier == WORLD_TIER_DRAM && (best == UINT32_MAX || at > best_at)) {
			best = t;
			best_at = at;
		}
	}
	return best;
}

START_TEST(next_use_is_belady_where_everything_is_hinted)
{
	uint32_t uses[1000];
	struct world w;

	/* Rounds of a permutation, hinted a round ahead: positions go round their ring often. */
	world_open(&w, "next_use", 40, NULL, NULL);
	for (uint32_t i = 0; i < 40; i++)
		world_create(&w, i, TENSOR_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(uses); i++)
		uses[i] = (uint32_t)((i % 40) * (i / 40 % 4 * 4 + 3) % 40);
	for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
		if (i % 40 == 0)
			for (size_t j = i; j < i + 40; j++)
				world_hint(&w, uses[j], WORLD_TIER_DRAM);
		if (w.tensors[uses[i]].tier != WORLD_TIER_DRAM &&
		    world_resident_bytes(&w, WORLD_TIER_DRAM) == 10 * TENSOR_BYTES) {
			uint32_t want = farthest(&w, uses, i / 40 * 40 + 40, i);

			ck_assert_uint_eq(world_victims(&w, WORLD_TIER_DRAM, 1, picks, 1), 1);
			/* Those not used any more this round are as far as each other. */
			if (w.tensors[want].tier == WORLD_TIER_DRAM && picks[0].tensor != want)
				for (size_t j = i; j < i / 40 * 40 + 40; j++)
					ck_assert_uint_ne(uses[j], picks[0].tensor);
			world_move(&w, picks[0].tensor, WORLD_TIER_NVME);
		}
		if (w.tensors[uses[i]].tier != WORLD_TIER_DRAM)
			world_move(&w, uses[i], WORLD_TIER_DRAM);
		world_use(&w, uses[i]);
	}
	world_close(&w);
}
END_TEST

START_TEST(seqset_finds_neighbours_as_a_plain_array_does)
{
	enum { N = 10000 };
	static bool in[N];
	struct seqset s;
	uint32_t x = 1;

	ck_assert_int_eq(seqset_create(&s, N), 0);
	for (int i = 0; i < 4000; i++) {
		uint32_t n, at;

		x = x * 1664525u + 1013904223u;
		n = (x >> 8) % N;
		/* Sparse and dense stretches. */
		in[n] = i % 3 != 0 && (n / 1000 % 2 == 0 || n % 64 == 0);
		if (in[n])
			seqset_add(&s, n);
		else
			seqset_remove(&s, n);
		ck_assert_int_eq(seqset_has(&s, n), in[n]);
		n = (x >> 4) % N;
		for (at = n; at < N && !in[at]; at++)
			;
		ck_assert_uint_eq(seqset_at_or_after(&s, n), at < N ? at : SEQSET_NONE);
		for (at = n; at != UINT32_MAX && !in[at]; at--)
			;
		ck_assert_uint_eq(seqset_at_or_before(&s, n), at);
	}
	ck_assert_uint_eq(seqset_at_or_after(&s, N), SEQSET_NONE);
	seqset_destroy(&s);
}
END_TEST

UNIT_MAIN("policy", lru_goes_by_last_use, lru_remembers_the_order_of_those_it_could_not_take,
	  fifo_goes_by_arrival, a_sweep_that_starts_over_hits_only_what_is_kept,
	  a_sweep_hits_even_when_the_fraction_does_not_fit,
	  a_pass_that_comes_back_the_way_it_went_suits_lru,
	  pin_fraction_keeps_its_share_against_other_classes,
	  pin_fraction_follows_the_size_of_the_class, hotness_goes_by_decayed_uses,
	  hotness_keeps_its_order_over_any_time,
	  hotness_keeps_the_cold_ones_cold_when_its_buckets_go_round,
	  hotness_weighs_size_and_the_cost_to_bring_back, next_use_evicts_what_is_needed_last,
	  next_use_forgets_hints_that_nobody_follows, next_use_forgets_many_hints_call_by_call,
	  next_use_prefetches_in_the_order_of_need, next_use_is_belady_where_everything_is_hinted,
	  seqset_finds_neighbours_as_a_plain_array_does)

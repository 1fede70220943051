/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "tiers/extent.h"
#include "tiers/tier.h"

static struct extents *make(uint64_t bytes, uint32_t granule)
{
	struct err err = ERR_INIT;
	struct extents *e;

	ck_assert_int_eq(extents_create(bytes, granule, &e, &err), 0);
	extents_check(e);
	return e;
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

START_TEST(full_capacity_can_be_had_from_an_empty_tier)
{
	/* bytes of each take, and how many fill the tier */
	static const uint64_t cases[][2] = {
		{ 512, 16384 }, { 3584, 4096 }, { 4096, 2048 }, { 28672, 999 },
		{ MIB(1), 64 }, { MIB(8), 8 },  { MIB(64), 1 }, { KIB(33) * 4, 77 },
	};

	for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
		struct extents *e = make(cases[c][0] * cases[c][1], GRANULE_SMALL);
		struct extent x;

		for (uint64_t i = 0; i < cases[c][1]; i++)
			ck_assert_int_eq(extents_take(e, cases[c][0], (uint32_t)i, &x), 0);
		ck_assert_uint_eq(extents_used(e), extents_capacity(e));
		ck_assert_uint_eq(extents_largest_free(e), 0);
		ck_assert_int_eq(extents_take(e, 1, 7, &x), -ENOSPC);
		extents_check(e);
		extents_destroy(e);
	}
}
END_TEST

START_TEST(small_takes_count_granules_and_large_ones_whole_pages)
{
	/* asked, rounded */
	static const uint64_t cases[][2] = {
		{ 0, 512 },
		{ 1, 512 },
		{ 512, 512 },
		{ 513, 1024 },
		{ 3584, 3584 },
		{ 3585, 4096 },
		{ 4095, 4096 },
		{ 4096, 4096 },
		{ 4097, 8192 },
		{ MIB(1) - 1, MIB(1) },
		{ MIB(1) + 1, MIB(1) + 4096 },
		{ 28824000, 28827648 },
	};
	struct extents *e = make(GIB(1), GRANULE_SMALL);
	struct extent x, odd;

	for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
		/* A small one in front makes an odd start likely. */
		ck_assert_int_eq(extents_take(e, 1, 1, &odd), 0);
		ck_assert_uint_eq(extents_rounded(e, cases[c][0]), cases[c][1]);
		ck_assert_int_eq(extents_take(e, cases[c][0], 2, &x), 0);
		ck_assert_uint_eq(x.bytes, cases[c][1]);
		if (x.bytes >= GRANULE)
			ck_assert_uint_eq(x.offset % GRANULE, 0);
		extents_check(e);
	}
	extents_destroy(e);
}
END_TEST

START_TEST(larger_granules_hold_for_every_size)
{
	struct extents *e = make(MIB(1) + 100, MIB(1) / 4);
	struct extent x;

	ck_assert_uint_eq(extents_capacity(e), MIB(1));
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_int_eq(extents_take(e, i * 5000, i, &x), 0);
		ck_assert_uint_eq(x.offset, i * MIB(1) / 4);
		ck_assert_uint_eq(x.bytes, MIB(1) / 4);
	}
	ck_assert_int_eq(extents_take(e, 1, 5, &x), -ENOSPC);
	extents_check(e);
	extents_destroy(e);
}
END_TEST

START_TEST(sizes_beyond_every_tier_are_refused_without_overflow)
{
	struct extents *e = make(MIB(1), GRANULE_SMALL);
	struct err err = ERR_INIT;
	struct extents *none = NULL;
	struct extent x;

	ck_assert_int_eq(extents_take(e, UINT64_MAX, 1, &x), -ENOSPC);
	ck_assert_int_eq(extents_take(e, UINT64_MAX - 4095, 1, &x), -ENOSPC);
	ck_assert_int_eq(extents_take(e, MIB(1) + 1, 1, &x), -ENOSPC);
	ck_assert_int_eq(extents_take(e, MIB(1), 1, &x), 0);
	ck_assert_int_eq(extents_create(511, GRANULE_SMALL, &none, &err), -EINVAL);
	ck_assert_ptr_null(none);
	extents_destroy(e);
}
END_TEST

/* A hole of the very size asked for lies in a bin behind many that are a page too small. */
START_TEST(the_only_fitting_hole_of_a_crowded_bin_is_found)
{
	enum { HOLES = 100 };
	uint64_t less = MIB(8) + 4096, need = MIB(8) + 8192;
	struct extents *e = make(HOLES * (less + 4096) + need, GRANULE_SMALL);
	struct extent holes[HOLES], wall, exact, x;

	ck_assert_int_eq(extents_take(e, need, 1, &exact), 0);
	for (uint32_t i = 0; i < HOLES; i++) {
		ck_assert_int_eq(extents_take(e, 4096, 2, &wall), 0);
		ck_assert_int_eq(extents_take(e, less, 3, &holes[i]), 0);
	}
	extents_give(e, exact.node); /* first in, so last in its bin */
	for (uint32_t i = 0; i < HOLES; i++)
		extents_give(e, holes[i].node);
	extents_check(e);
	ck_assert_uint_eq(extents_largest_free(e), need);
	ck_assert_int_eq(extents_take(e, need, 4, &x), 0);
	ck_assert_uint_eq(x.offset, exact.offset);
	extents_check(e);
	extents_destroy(e);
}
END_TEST

/* Each turn asks for the largest hole, and who waits for room asks for more than there is. */
static void ask_often(uint64_t bytes, uint64_t more)
{
	enum { TAKES = 200000, ASKS = 20000 };
	struct extents *e = make(TAKES * bytes, GRANULE_SMALL);
	struct extent x;
	clock_t begin;

	for (uint32_t i = 0; i < TAKES; i++)
		ck_assert_int_eq(extents_take(e, bytes, i, &x), 0);
	for (uint32_t node = 0; node < TAKES; node += 2)
		extents_give(e, node);
	begin = clock();
	for (unsigned i = 0; i < ASKS; i++) {
		ck_assert_uint_eq(extents_largest_free(e), bytes);
		ck_assert_int_eq(extents_take(e, more, 1, &x), -ENOSPC);
		/* One goes and comes: what was known of the others stays so. */
		ck_assert_int_eq(extents_take(e, bytes, 1, &x), 0);
		extents_give(e, x.node);
	}
	ck_assert_int_lt((clock() - begin) / CLOCKS_PER_SEC, 3);
	extents_check(e);
	extents_destroy(e);
}

START_TEST(holes_of_one_size_are_not_looked_through_again_and_again)
{
	ask_often(GRANULE, 2 * GRANULE);
	/* The same bin. */
	ask_often(MIB(1), MIB(1) + GRANULE);
}
END_TEST

START_TEST(nodes_are_told_in_order)
{
	struct extents *e = make(MIB(1), GRANULE_SMALL);
	struct extent x[3], at;
	uint64_t offset = 0;
	unsigned seen = 0;

	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(extents_take(e, KIB(64), 10 + i, &x[i]), 0);
	extents_give(e, x[1].node);
	extents_set_owner(e, x[2].node, 77);
	for (bool more = extents_next(e, EXTENT_NONE, &at); more;
	     more = extents_next(e, at.node, &at), seen++) {
		ck_assert_uint_eq(at.offset, offset);
		offset += at.bytes;
	}
	ck_assert_uint_eq(seen, 4);
	ck_assert_uint_eq(offset, MIB(1));
	extents_get(e, x[2].node, &at);
	ck_assert_uint_eq(at.owner, 77);
	extents_destroy(e);
}
END_TEST

/* ---- a naive model: one owner a granule ------------------------------------------------------ */

#define MODEL_GRANULES 4096
#define MODEL_TAKEN    512

struct model {
	uint32_t owner[MODEL_GRANULES]; /* 0: free */
	struct extent taken[MODEL_TAKEN];
	uint32_t count;
};

/* The longest run of free granules that starts at a multiple of `step`, in whole steps. */
static uint64_t model_run(const struct model *m, uint64_t step)
{
	uint64_t most = 0;

	for (uint64_t at = 0; at < MODEL_GRANULES; at += step) {
		uint64_t end = at;

		while (end < MODEL_GRANULES && m->owner[end] == 0)
			end++;
		most = MAX(most, ALIGN_DOWN(end - at, step));
	}
	return most * GRANULE_SMALL;
}

static uint64_t model_largest(const struct model *m)
{
	uint64_t pages = model_run(m, GRANULE / GRANULE_SMALL);

	return pages > 0 ? pages : MIN(model_run(m, 1), GRANULE - GRANULE_SMALL);
}

static void model_set(struct model *m, const struct extent *x, uint32_t was, uint32_t owner)
{
	for (uint64_t g = 0; g < x->bytes / GRANULE_SMALL; g++) {
		ck_assert_uint_eq(m->owner[x->offset / GRANULE_SMALL + g], was);
		m->owner[x->offset / GRANULE_SMALL + g] = owner;
	}
}

static void model_take(struct model *m, struct extents *e, uint64_t *seed, uint32_t owner)
{
	uint64_t bytes = next_random(seed) % (1ull << (9 + next_random(seed) % 11));
	uint64_t rounded = extents_rounded(e, bytes);
	bool fits = model_run(m, rounded < GRANULE ? 1 : GRANULE / GRANULE_SMALL) >= rounded;
	struct extent x;
	int r = extents_take(e, bytes, owner, &x);

	ck_assert_int_eq(r, fits ? 0 : -ENOSPC);
	if (r < 0)
		return;
	ck_assert_uint_eq(x.owner, owner);
	ck_assert_uint_eq(x.bytes, rounded);
	model_set(m, &x, 0, owner);
	m->taken[m->count++] = x;
}

static void model_give(struct model *m, struct extents *e, uint64_t *seed)
{
	uint32_t i = (uint32_t)(next_random(seed) % m->count);
	struct extent x;

	extents_get(e, m->taken[i].node, &x); /* the node kept its name */
	ck_assert_int_eq(memcmp(&x, &m->taken[i], sizeof(x)), 0);
	model_set(m, &x, x.owner, 0);
	extents_give(e, x.node);
	m->taken[i] = m->taken[--m->count];
}

START_TEST(random_takes_and_gives_agree_with_a_naive_model)
{
	for (uint64_t round = 1; round <= 4; round++) {
		struct extents *e = make(MODEL_GRANULES * GRANULE_SMALL, GRANULE_SMALL);
		struct model *m = calloc(1, sizeof(*m));
		uint64_t seed = round;

		ck_assert_ptr_nonnull(m);
		for (uint32_t step = 1; step <= 3000; step++) {
			bool filling = step / 500 % 2 == 0;
			bool take = next_random(&seed) % 10 < (filling ? 7u : 3u);

			if (m->count == 0 || (take && m->count < MODEL_TAKEN))
				model_take(m, e, &seed, step);
			else
				model_give(m, e, &seed);
			extents_check(e);
			if (step % 16 == 0)
				ck_assert_uint_eq(extents_largest_free(e), model_largest(m));
		}
		while (m->count > 0)
			model_give(m, e, &seed);
		extents_check(e);
		ck_assert_uint_eq(extents_largest_free(e), extents_capacity(e));
		free(m);
		extents_destroy(e);
	}
}
END_TEST

START_TEST(node_memory_grows_and_is_used_again)
{
	struct extents *e = make(MIB(64), GRANULE_SMALL);
	uint32_t count = MIB(64) / GRANULE_SMALL, *nodes = calloc(count, sizeof(*nodes));
	struct extent x;

	for (unsigned round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < count; i++) {
			ck_assert_int_eq(extents_take(e, 1, i, &x), 0);
			nodes[i] = x.node;
			ck_assert_uint_lt(x.node,
					  count + 2); /* no node is lost to the second round */
		}
		for (uint32_t i = 0; i < count; i += 2)
			extents_give(e, nodes[i]);
		for (uint32_t i = 1; i < count; i += 2)
			extents_give(e, nodes[i]);
		extents_check(e);
	}
	ck_assert_uint_eq(extents_largest_free(e), MIB(64));
	free(nodes);
	extents_destroy(e);
}
END_TEST

START_TEST(a_range_is_taken_where_it_was_asked_for_or_not_at_all)
{
	struct extents *e;
	struct extent x, hole;
	struct err err = ERR_INIT;

	ck_assert_int_eq(extents_create(KIB(64), GRANULE_SMALL, &e, &err), 0);
	ck_assert_int_eq(extents_take_at(e, KIB(16), KIB(16), 7, &x), 0);
	ck_assert_uint_eq(x.offset, KIB(16));
	ck_assert_uint_eq(x.bytes, KIB(16));
	ck_assert_uint_eq(x.owner, 7);
	extents_check(e);
	ck_assert_int_eq(extents_take_at(e, KIB(16), KIB(4), 8, &hole), -ENOSPC);
	ck_assert_int_eq(extents_take_at(e, KIB(12), KIB(8), 8, &hole), -ENOSPC);
	ck_assert_int_eq(extents_take_at(e, KIB(28), KIB(8), 8, &hole), -ENOSPC);
	ck_assert_int_eq(extents_take_at(e, KIB(60), KIB(8), 8, &hole), -ENOSPC);
	ck_assert_int_eq(extents_take_at(e, KIB(64), KIB(4), 8, &hole), -ENOSPC);
	ck_assert_uint_eq(extents_used(e), KIB(16));
	/* What is left on both sides can be had to the last byte. */
	ck_assert_int_eq(extents_take_at(e, 0, KIB(16), 9, &hole), 0);
	ck_assert_int_eq(extents_take_at(e, KIB(32), KIB(32), 9, &hole), 0);
	ck_assert_uint_eq(extents_largest_free(e), 0);
	extents_give(e, x.node);
	extents_check(e);
	ck_assert_int_eq(extents_take_at(e, KIB(20), KIB(4), 8, &x), 0);
	ck_assert_uint_eq(extents_largest_free(e), KIB(8));
	extents_check(e);
	extents_destroy(e);
}
END_TEST

START_TEST(a_taken_range_comes_down_over_the_hole_before_it)
{
	struct extents *e;
	struct extent a, b, c, lead, top;
	struct err err = ERR_INIT;

	ck_assert_int_eq(extents_create(KIB(64), GRANULE_SMALL, &e, &err), 0);
	ck_assert_int_eq(extents_take(e, KIB(8), 1, &a), 0);
	ck_assert_int_eq(extents_take(e, KIB(20), 2, &b), 0);
	ck_assert_int_eq(extents_take(e, KIB(36), 3, &c), 0);
	extents_give(e, a.node);
	ck_assert_int_eq(extents_take_before(e, b.node, KIB(4), 2, &lead), 0);
	ck_assert_uint_eq(lead.offset, KIB(4));
	extents_check(e);
	extents_swap(e, lead.node, b.node);
	extents_give(e, lead.node);
	extents_check(e);
	extents_get(e, b.node, &b);
	ck_assert_uint_eq(b.offset, KIB(4));
	ck_assert_uint_eq(b.bytes, KIB(20));
	ck_assert_int_eq(extents_take_before(e, b.node, KIB(4), 2, &lead), 0);
	extents_swap(e, lead.node, b.node); /* to the very beginning */
	extents_give(e, lead.node);
	extents_check(e);
	ck_assert_uint_eq(extents_largest_free(e), KIB(8));
	ck_assert_int_eq(extents_take_highest(e, 100, 4, KIB(20), &top), 0);
	ck_assert_uint_eq(top.offset, KIB(28) - GRANULE_SMALL);
	ck_assert_int_eq(extents_take_highest(e, 100, 4, KIB(28), &top), -ENOSPC);
	extents_check(e);
	extents_destroy(e);
}
END_TEST

UNIT_MAIN("extent", full_capacity_can_be_had_from_an_empty_tier,
	  small_takes_count_granules_and_large_ones_whole_pages,
	  larger_granules_hold_for_every_size, sizes_beyond_every_tier_are_refused_without_overflow,
	  the_only_fitting_hole_of_a_crowded_bin_is_found,
	  holes_of_one_size_are_not_looked_through_again_and_again, nodes_are_told_in_order,
	  random_takes_and_gives_agree_with_a_naive_model,
	  a_range_is_taken_where_it_was_asked_for_or_not_at_all,
	  a_taken_range_comes_down_over_the_hole_before_it, node_memory_grows_and_is_used_again)

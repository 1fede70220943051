/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest tensors, beside a look at all of them.
 */
#include "tests/unit/unit.h"

#include <stdint.h>

#include "daemon/engine/admission.h"
#include "daemon/engine/largest.h"
#include "daemon/engine/quota.h"

#define TENSORS  3000u
#define ACCOUNTS 3u

static struct engine engine;
static struct record records[TENSORS];
static struct name_space name_spaces[ACCOUNTS];
static struct account accounts[ACCOUNTS];
static uint64_t seed = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

static void open_engine(void)
{
	engine.records = records;
	engine.name_spaces = name_spaces;
	engine.accounts = accounts;
	engine.account_count = ACCOUNTS;
	engine.index_high = TENSORS;
	for (unsigned i = 0; i < ACCOUNTS; i++)
		name_spaces[i].account = (uint16_t)i;
}

static void enter(uint32_t tensor, uint64_t bytes)
{
	records[tensor] = (struct record){
		.bytes = bytes,
		.name_space = (uint16_t)random_below(ACCOUNTS),
		.flags = (uint16_t)(RECORD_LIVE | (random_below(4) == 0 ? RECORD_LARGE : 0) |
				    (random_below(3) == 0 ? RECORD_ZONED : 0)),
	};
	largest_enter(&engine, tensor);
}

static void leave(uint32_t tensor)
{
	largest_leave(&engine, tensor);
	records[tensor].flags = 0;
}

static void check_same(struct largest is, struct largest should)
{
	ck_assert_uint_eq(is.any_bytes, should.any_bytes);
	ck_assert_uint_eq(is.dram_bytes, should.dram_bytes);
	ck_assert_uint_eq(is.second_dram_bytes, should.second_dram_bytes);
}

static void check_all(void)
{
	struct largest part[2] = { 0 }, account[ACCOUNTS] = { 0 };

	for (uint32_t i = 1; i < TENSORS; i++) {
		const struct record *r = &records[i];
		uint64_t bytes = admission_rounded(r->bytes);
		bool large = (r->flags & RECORD_LARGE) != 0;

		if ((r->flags & RECORD_LIVE) == 0)
			continue;
		ck_assert(largest_holds(&engine, i));
		largest_add(&part[(r->flags & RECORD_ZONED) != 0], bytes, large);
		largest_add(&account[r->name_space], bytes, large);
	}
	for (unsigned i = 0; i < 2; i++)
		check_same(largest_of_part(&engine, i), part[i]);
	for (unsigned i = 0; i < ACCOUNTS; i++)
		check_same(largest_of_account(&engine, &accounts[i]), account[i]);
}

START_TEST(whoever_comes_and_goes_the_largest_are_known)
{
	open_engine();
	for (unsigned turn = 0; turn < 20000; turn++) {
		uint32_t tensor = 1 + (uint32_t)random_below(turn < 10000 ? TENSORS - 1 : 40);

		if (records[tensor].flags & RECORD_LIVE)
			leave(tensor);
		else
			enter(tensor, random_below(2) ? random_below(KIB(40)) : KIB(16));
		if (turn % 64 == 0 || turn > 19000)
			check_all();
	}
	for (uint32_t i = 1; i < TENSORS; i++)
		if (records[i].flags & RECORD_LIVE)
			leave(i);
	check_all();
}
END_TEST

/* How many stand on the way from the first along the right. */
static unsigned longest_way(const struct sizes *s)
{
	unsigned n = 0;

	for (uint32_t i = s->largest[0]; i != 0; i = records[i].size[BY_SIZE_PART].right)
		n++;
	return n;
}

/* In any order of coming: what each going costs are these ways. */
START_TEST(no_single_going_is_long)
{
	static const int steps[] = { 1, -1, 0 };

	open_engine();
	for (unsigned order = 0; order < 3; order++) {
		for (uint32_t i = 1; i < TENSORS; i++) {
			uint64_t bytes = MIB(64) + (uint64_t)(steps[order] * (int64_t)i * 4096);

			records[i] = (struct record){ .bytes = bytes, .flags = RECORD_LIVE };
			largest_enter(&engine, i);
			ck_assert_uint_le(longest_way(&engine.part[0].sizes), 12);
		}
		for (uint32_t left = TENSORS - 1; left > 0; left--) {
			uint32_t first = engine.part[0].sizes.largest[0];

			leave(first);
			ck_assert_uint_le(longest_way(&engine.part[0].sizes), 12);
		}
		check_all();
	}
}
END_TEST

UNIT_MAIN("largest", whoever_comes_and_goes_the_largest_are_known, no_single_going_is_long)

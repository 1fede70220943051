/* SPDX-License-Identifier: Apache-2.0
 *
 * Dram alone and nearly full: room that is in pieces is made one, whatever stands between.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/sim/rig.h"

#define HOST  PROTOCOL_PLACE_HOST
#define MANY  200u
#define LARGE KIB(44)
#define HOLE  KIB(4)

/* Admission leaves more room than some of this needs. */
#define OVERCOMMIT .overcommit_permille = 1500

struct one {
	struct wire_handle t;
	uint64_t bytes;
	char with;
	bool live;
};

static struct rig *open_rig(void)
{
	return rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
}

static void put(struct rig *r, struct one *one, uint64_t bytes)
{
	static char with;

	*one = (struct one){ rig_create(r, 0, bytes), bytes, ++with, true };
	memset(rig_pin(r, 0, one->t, HOST, ACCESS_WRITE), one->with, bytes);
	rig_unpin(r, 0, one->t, ACCESS_WRITE);
}

static void drop(struct rig *r, struct one *one)
{
	rig_destroy(r, 0, one->t);
	one->live = false;
}

static void expect(struct rig *r, const struct one *one)
{
	const char *at = rig_pin(r, 0, one->t, HOST, ACCESS_READ);

	ck_assert(rig_all_are(at, one->with, one->bytes));
	rig_unpin(r, 0, one->t, ACCESS_READ);
}

/* Ten large ones with a page between each two, and nothing else free. */
static void fill(struct rig *r, struct one of[20], struct one *rest)
{
	for (unsigned i = 0; i < 20; i++)
		put(r, &of[i], i % 2 == 0 ? LARGE : HOLE);
	if (10 * (LARGE + HOLE) < WORLD_DRAM)
		put(r, rest, WORLD_DRAM - 10 * (LARGE + HOLE));
	for (unsigned i = 1; i < 20; i += 2)
		drop(r, &of[i]);
	rig_settle(r, 200); /* what was brought is held for its asker */
}

START_TEST(what_stands_between_holes_comes_down_over_its_own_place)
{
	struct rig *r = open_rig();
	struct one of[20], rest = { 0 }, last;

	_Static_assert(10 * (LARGE + HOLE) <= WORLD_DRAM, "");
	fill(r, of, &rest);
	ck_assert_uint_eq(r->world.stats->compactions, 0);
	put(r, &last, 10 * HOLE);
	ck_assert_uint_ge(r->world.stats->compactions, 9);
	for (unsigned i = 0; i < 20; i += 2)
		expect(r, &of[i]);
	expect(r, &last);
	expect(r, &rest);
	rig_close(r);
}
END_TEST

START_TEST(only_pins_keep_holes_apart)
{
	struct rig *r = open_rig();
	struct one of[20], rest;
	struct wire_handle t;

	fill(r, of, &rest);
	rig_pin(r, 1, of[10].t, HOST, ACCESS_READ);
	t = rig_create(r, 0, 6 * HOLE);
	rig_acquire(r, 0, 1, t, HOST, ACCESS_READ, 50 * NS_PER_MS);
	ck_assert_int_lt(rig_wait(r, 0, 1, 100), 0);
	/* On either side of it five of them have been, or can be, made one. */
	rig_acquire(r, 0, 1, rig_create(r, 0, 4 * HOLE), HOST, ACCESS_READ, 50 * NS_PER_MS);
	ck_assert_int_eq(rig_wait(r, 0, 1, 100), 0);
	rig_acquire(r, 0, 1, t, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 200), RIG_UNANSWERED);
	rig_unpin(r, 1, of[10].t, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 0, 1, 1000), 0);
	for (unsigned i = 0; i < 20; i += 2)
		expect(r, &of[i]);
	rig_close(r);
}
END_TEST

static uint64_t any_bytes(struct rig *r)
{
	switch (world_below(&r->world, 4)) {
	case 0:
		return world_below(&r->world, GRANULE_SMALL + 1); /* every gap takes it */
	case 1:
		return GRANULE_SMALL + world_below(&r->world, GRANULE - GRANULE_SMALL);
	case 2:
		return GRANULE * (1 + world_below(&r->world, 4));
	default:
		return 1 + world_below(&r->world, KIB(24));
	}
}

static uint64_t takes(uint64_t bytes)
{
	return ALIGN_UP(MAX(bytes, 1), bytes <= GRANULE_SMALL ? GRANULE_SMALL : GRANULE);
}

/* Dram is full to the last granule but for what has just gone; one tensor of all of that comes. */
START_TEST(whatever_is_free_can_be_had_in_one_piece)
{
	struct rig *r = open_rig();
	struct one of[MANY] = { 0 };
	uint64_t free = WORLD_DRAM, bytes = 0;

	for (unsigned round = 0; round < 40; round++) {
		unsigned gone = 0;

		for (unsigned i = 0; i < MANY; i++) {
			bytes = any_bytes(r);
			if (of[i].live || takes(bytes) > free)
				continue;
			put(r, &of[i], bytes);
			free -= takes(bytes);
		}
		for (unsigned tries = 0; tries < 1000 && gone < 8; tries++) {
			struct one *one = &of[world_below(&r->world, MANY)];

			if (!one->live)
				continue;
			expect(r, one);
			drop(r, one);
			free += takes(one->bytes);
			gone++;
		}
		rig_settle(r, 120);
		bytes = free < GRANULE ? MIN(free, GRANULE_SMALL) : ALIGN_DOWN(free, GRANULE);
		for (unsigned i = 0; i < MANY && bytes > 0; i++) {
			if (of[i].live)
				continue;
			put(r, &of[i], bytes);
			expect(r, &of[i]);
			drop(r, &of[i]);
			bytes = 0;
		}
	}
	printf("slide: %llu compactions in 40 rounds\n",
	       (unsigned long long)r->world.stats->compactions);
	for (unsigned i = 0; i < MANY; i++)
		if (of[i].live)
			expect(r, &of[i]);
	rig_close(r);
}
END_TEST

/* nvme is full but for less than the tensor needs, and so is each hole of dram. */
START_TEST(who_comes_down_from_a_gpu_finds_a_hole_where_nvme_is_full)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1, OVERCOMMIT });
	struct wire_handle below[7], beside[6], t;
	struct err err = ERR_INIT;

	for (unsigned i = 0; i < ARRAY_SIZE(beside); i++) {
		beside[i] = rig_create(r, 0, KIB(64));
		ck_assert(rig_pin(r, 0, beside[i], PROTOCOL_PLACE_HOST, ACCESS_WRITE) ==
			  r->world.devices[1].memory + i * KIB(64));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(below); i++) {
		below[i] = rig_create(r, 0, KIB(144));
		rig_use(r, 0, &below[i], 1, 0, ACCESS_WRITE);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(beside); i++) {
		rig_unpin(r, 0, beside[i], ACCESS_WRITE);
		if (i % 3 != 2)
			ck_assert_int_eq(engine_destroy_tensors(r->world.engine,
								r->client[0].holder, &beside[i], 1,
								r->world.now_ns, &err),
					 0);
	}
	t = rig_create(r, 0, KIB(192));
	rig_use(r, 0, &t, 1, 0, ACCESS_WRITE);
	rig_use(r, 0, &below[0], 1, 0, ACCESS_READ);
	ck_assert(rig_stands_at(r, t, PROTOCOL_PLACE_HOST));
	rig_close(r);
}
END_TEST

/* By turns, so that each of the small ones keeps the rest of its page. */
static void fill_by_turns(struct rig *r, struct one *of, uint64_t bytes)
{
	uint64_t free = WORLD_DRAM;

	for (unsigned i = 0; free >= takes(bytes) + GRANULE; i += 2) {
		put(r, &of[i], bytes);
		put(r, &of[i + 1], GRANULE);
		free -= takes(bytes) + GRANULE;
	}
	rig_settle(r, 200);
}

/* What goes leaves room for as many pages, whatever rests of pages are kept beside it. */
START_TEST(small_tensors_between_large_ones_keep_nobody_waiting)
{
	static const uint64_t bytes[] = { 513, 1024, 1537, 2048, 2049, 2560, 3072, 3584, 4095 };

	for (unsigned i = 0; i < ARRAY_SIZE(bytes); i++) {
		struct rig *r = open_rig();
		struct one of[MANY] = { 0 }, last;

		fill_by_turns(r, of, bytes[i]);
		for (unsigned k = 3; k < 128; k += 13) /* small and large ones */
			drop(r, &of[k]);
		put(r, &last, 10 * GRANULE);
		expect(r, &last);
		for (unsigned k = 0; k < MANY; k++)
			if (of[k].live)
				expect(r, &of[k]);
		rig_close(r);
	}
}
END_TEST

/* The last one below each large one fits no hole, those below it do. */
START_TEST(the_smallest_of_those_below_a_large_one_makes_way)
{
	enum { TURN = 6, TURNS = 37 };
	static const uint64_t turn[TURN] = { 512, 512, 512, 3584, 3072, GRANULE };
	struct rig *r = open_rig();
	struct one of[TURN * TURNS], rest, last;
	uint64_t free = WORLD_DRAM;

	for (unsigned i = 0; i < TURN * TURNS; i++)
		put(r, &of[i], turn[i % TURN]);
	for (unsigned i = 4; i < TURN * TURNS; i += TURN)
		drop(r, &of[i]);
	put(r, &rest, WORLD_DRAM - 3 * TURNS * GRANULE);
	rig_settle(r, 200);
	for (unsigned i = 0; i < TURN * TURNS; i++)
		free -= of[i].live ? takes(of[i].bytes) : 0;
	put(r, &last, ALIGN_DOWN(free - rest.bytes, GRANULE));
	for (unsigned i = 0; i < TURN * TURNS; i++)
		if (of[i].live)
			expect(r, &of[i]);
	rig_close(r);
}
END_TEST

START_TEST(small_tensors_are_admitted_as_long_as_each_has_its_page)
{
	struct rig *r = open_rig();
	struct one of[MANY] = { 0 };
	struct wire_handle t;
	struct err err = ERR_INIT;
	const struct engine_spec spec = { .ndim = 1, .shape = { GRANULE } };

	fill_by_turns(r, of, 3072);
	ck_assert_int_eq(engine_create_tensors(r->world.engine, r->client[0].holder, &spec, 1, &t,
					       r->world.now_ns, &err),
			 -ENOSPC);
	drop(r, &of[64]);
	put(r, &of[64], GRANULE);
	rig_close(r);
}
END_TEST

/* Enough is free in dram, but what lies between two pins can neither slide past them nor go: it was
 * written, and nvme has no room for it. That is nobody's affair but that of who has the pins. */
START_TEST(who_pins_the_pieces_while_nvme_is_full_is_told)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2, OVERCOMMIT });
	struct one below, between, above, fillers[22];
	struct wire_handle pin[2], wanted;

	rig_threads(r, 0, 1);
	put(r, &below, KIB(144));
	pin[0] = rig_create(r, 0, KIB(16));
	rig_pin(r, 0, pin[0], HOST, ACCESS_WRITE);
	put(r, &between, KIB(144));
	pin[1] = rig_create(r, 0, KIB(16));
	rig_pin(r, 0, pin[1], HOST, ACCESS_WRITE);
	put(r, &above, KIB(160));
	drop(r, &below);
	drop(r, &above);
	for (unsigned i = 0; i < ARRAY_SIZE(fillers); i++) {
		put(r, &fillers[i], KIB(64));
		ck_assert_int_eq(rig_flush(r, 0, fillers[i].t), 0);
		expect(r, &between); /* used last: it is not among those that go */
	}
	wanted = rig_create(r, 0, KIB(208));
	rig_acquire(r, 0, 2, wanted, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), -EDEADLK);
	rig_unpin(r, 0, pin[0], ACCESS_WRITE);
	rig_acquire(r, 0, 2, wanted, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), 0);
	rig_unpin(r, 0, pin[1], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* 48 KiB of nvme are free, and 8 KiB lack in dram: the youngest alone can make room. */
START_TEST(what_is_too_large_for_nvme_keeps_no_smaller_one_from_it)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2, OVERCOMMIT });
	static const uint64_t sizes[] = { KIB(208), KIB(72), KIB(32) };
	struct one below[21], above[ARRAY_SIZE(sizes)];

	for (unsigned i = 0; i < ARRAY_SIZE(below); i++) {
		put(r, &below[i], KIB(i == 0 ? 208 : 64));
		ck_assert_int_eq(rig_flush(r, 0, below[i].t), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(above); i++)
		put(r, &above[i], sizes[i]);
	rig_acquire(r, 0, 2, below[0].t, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(above); i++)
		expect(r, &above[i]);
	rig_close(r);
}
END_TEST

static void acquire_two(struct rig *r, const struct wire_handle *two)
{
	rig_acquire_all(r, 0, 2, two, 2, HOST, ACCESS_READ, ENGINE_NEVER);
}

/* Overcommit has let in so much that 88 KiB of nvme are free, and 12 KiB of dram: none of those of
 * 100 KiB in dram can go, so none can come, alone or with others. */
START_TEST(what_nothing_can_make_room_for_is_told)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1, OVERCOMMIT });
	struct one all[14], rest;
	struct wire_handle batch[2];

	rig_threads(r, 0, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
		put(r, &all[i], KIB(100));
	put(r, &rest, KIB(36));
	rig_settle(r, 200);
	expect(r, &rest); /* it would be the room in dram */
	for (unsigned i = 0; i < 2; i++) {
		batch[i] = all[i].t;
		ck_assert_int_eq(word0_state(rig_word0(r, batch[i])), STATE_ABSENT);
	}
	acquire_two(r, batch);
	ck_assert_int_eq(rig_wait(r, 0, 2, 100), RIG_UNANSWERED); /* others may destroy something */
	for (unsigned c = 1; c < RIG_CLIENTS; c++) {
		engine_holder_die(r->world.engine, r->client[c].holder, r->world.now_ns);
		r->client[c].holder = NULL;
	}
	rig_rejoin_as(r, 1, 'z'); /* it has nothing to destroy */
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(r->client[0].text[2], "destroy something first"));
	drop(r, &all[ARRAY_SIZE(all) - 1]);
	acquire_two(r, batch);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), 0);
	rig_close(r);
}
END_TEST

/* A GPU above 76 KiB of dram that are free, and 24 of nvme. */
static struct rig *open_full_below(struct one all[14], struct one *rest)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1, OVERCOMMIT });

	for (unsigned i = 0; i < 14; i++)
		put(r, &all[i], KIB(100));
	put(r, rest, KIB(36));
	rig_settle(r, 200);
	expect(r, rest);
	return r;
}

/* The policy names the oldest, and that would be enough. */
START_TEST(what_finds_no_room_below_a_gpu_keeps_no_other_from_going)
{
	struct one all[14], rest;
	struct rig *r = open_full_below(all, &rest);
	struct wire_handle gpu[3];

	for (unsigned i = 0; i < ARRAY_SIZE(gpu); i++) {
		uint8_t access = i == 0 ? ACCESS_WRITE : ACCESS_READ;

		gpu[i] = rig_create(r, 0, KIB(100));
		rig_acquire(r, 0, 2, gpu[i], 0, access, ENGINE_NEVER);
		ck_assert_int_eq(rig_wait(r, 0, 2, 200), 0);
		rig_pin(r, 0, gpu[i], 0, access);
		rig_unpin(r, 0, gpu[i], access);
	}
	ck_assert(rig_stands_at(r, gpu[0], 0));
	rig_close(r);
}
END_TEST

START_TEST(what_finds_no_room_below_a_gpu_is_told)
{
	struct one all[14], rest;
	struct rig *r = open_full_below(all, &rest);
	struct wire_handle gpu[3];

	rig_threads(r, 0, 1);
	for (unsigned c = 1; c < RIG_CLIENTS; c++) {
		engine_holder_die(r->world.engine, r->client[c].holder, r->world.now_ns);
		r->client[c].holder = NULL;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(gpu); i++) {
		gpu[i] = rig_create(r, 0, KIB(100));
		rig_acquire(r, 0, 2, gpu[i], 0, ACCESS_WRITE, ENGINE_NEVER);
		if (i == 2)
			break;
		ck_assert_int_eq(rig_wait(r, 0, 2, 100), 0);
		rig_pin(r, 0, gpu[i], 0, ACCESS_WRITE);
		rig_unpin(r, 0, gpu[i], ACCESS_WRITE);
	}
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(r->client[0].text[2], "hbm0 has no room for it"));
	/* Who pins some of it could make room. */
	rig_pin(r, 0, gpu[0], 0, ACCESS_READ);
	rig_acquire(r, 0, 2, gpu[2], 0, ACCESS_WRITE, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), -EDEADLK);
	rig_unpin(r, 0, gpu[0], ACCESS_READ);
	drop(r, &rest);
	rig_acquire(r, 0, 2, gpu[2], 0, ACCESS_WRITE, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), 0);
	rig_close(r);
}
END_TEST

UNIT_MAIN("slide", what_is_too_large_for_nvme_keeps_no_smaller_one_from_it,
	  what_nothing_can_make_room_for_is_told, what_finds_no_room_below_a_gpu_is_told,
	  what_finds_no_room_below_a_gpu_keeps_no_other_from_going,
	  who_pins_the_pieces_while_nvme_is_full_is_told,
	  what_stands_between_holes_comes_down_over_its_own_place, only_pins_keep_holes_apart,
	  whatever_is_free_can_be_had_in_one_piece,
	  small_tensors_between_large_ones_keep_nobody_waiting,
	  the_smallest_of_those_below_a_large_one_makes_way,
	  small_tensors_are_admitted_as_long_as_each_has_its_page,
	  who_comes_down_from_a_gpu_finds_a_hole_where_nvme_is_full)

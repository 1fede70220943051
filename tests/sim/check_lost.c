/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU that is lost: whose bytes survive, who is told what, and that the rest goes on.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/sim/rig.h"

#define HOST  PROTOCOL_PLACE_HOST
#define BYTES (4 * WORLD_BLOCK)

static int acquire(struct rig *r, struct wire_handle t, uint8_t place, uint8_t access)
{
	rig_acquire(r, 0, 1, t, place, access, ENGINE_NEVER);
	return rig_wait(r, 0, 1, 500);
}

static int flush(struct rig *r, const struct wire_handle *t, size_t n)
{
	rig_flush_all(r, 0, 2, t, n);
	return rig_wait(r, 0, 2, 500);
}

static int copy_out(struct rig *r, struct wire_handle t, char *to, uint64_t bytes)
{
	rig_copy(r, 0, 3, t, false, bytes, to);
	return rig_wait(r, 0, 3, 500);
}

/* Written at `place`, brought to the first GPU. */
static struct wire_handle written(struct rig *r, uint8_t place, char with)
{
	struct wire_handle t = rig_create_written(r, 0, BYTES, place, with);

	rig_pin(r, 0, t, 0, ACCESS_READ);
	rig_unpin(r, 0, t, ACCESS_READ);
	return t;
}

/* Somebody's transfer finds out. */
static void lose(struct rig *r)
{
	struct wire_handle t = rig_create(r, 0, WORLD_BLOCK);

	world_lose(&r->world, 0);
	ck_assert_int_eq(acquire(r, t, 0, ACCESS_READ), -ENODEV);
	rig_settle(r, 10);
}

static bool tells_of(struct rig *r, uint32_t id)
{
	return strstr(r->client[0].text[id], "its bytes were on hbm0, which was lost") != NULL;
}

START_TEST(what_stood_elsewhere_too_survives_and_the_rest_is_named)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2 });
	struct wire_handle shadowed = written(r, HOST, 's'), only = written(r, 0, 'o');
	struct wire_handle flushed = written(r, 0, 'f'), zero = rig_create(r, 0, BYTES);
	struct wire_handle elsewhere = rig_create(r, 0, BYTES);
	char got[WORLD_BLOCK];

	ck_assert_int_eq(flush(r, &flushed, 1), 0);
	ck_assert_int_eq(acquire(r, zero, 0, ACCESS_READ), 0);
	memset(rig_pin(r, 0, elsewhere, 1, ACCESS_WRITE), 'e', BYTES);
	rig_unpin(r, 0, elsewhere, ACCESS_WRITE);
	lose(r);
	ck_assert_uint_eq(r->world.stats->tensors_lost, 1);
	ck_assert_int_eq(rig_pin(r, 0, shadowed, HOST, ACCESS_READ)[9], 's');
	ck_assert_int_eq(rig_pin(r, 0, flushed, HOST, ACCESS_READ)[9], 'f');
	ck_assert_int_eq(rig_pin(r, 0, zero, HOST, ACCESS_READ)[9], 0);
	ck_assert_int_eq(rig_pin(r, 0, elsewhere, 1, ACCESS_READ)[9], 'e');
	ck_assert_int_eq(acquire(r, only, HOST, ACCESS_READ), -EIO);
	ck_assert(tells_of(r, 1));
	ck_assert_int_eq(acquire(r, only, 1, ACCESS_READ | ACCESS_WRITE), -EIO);
	ck_assert_int_eq(copy_out(r, only, got, sizeof(got)), -EIO);
	ck_assert(tells_of(r, 3));
	ck_assert_int_eq(flush(r, &only, 1), -EIO);
	ck_assert(tells_of(r, 2));
	ck_assert_int_eq(flush(r, NULL, 0), -EIO);
	rig_close(r);
}
END_TEST

START_TEST(whoever_overwrites_all_of_it_revives_a_lost_tensor)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2 });
	struct wire_handle t = written(r, 0, 'o');

	lose(r);
	/* One who asks and never writes changes nothing. */
	ck_assert_int_eq(acquire(r, t, 1, ACCESS_WRITE | ACCESS_DISCARD), 0);
	rig_settle(r, 200);
	ck_assert_int_eq(acquire(r, t, HOST, ACCESS_READ), -EIO);
	memset(rig_pin(r, 0, t, 1, ACCESS_WRITE | ACCESS_DISCARD), 'n', BYTES);
	rig_unpin(r, 0, t, ACCESS_WRITE | ACCESS_DISCARD);
	ck_assert_int_eq(rig_pin(r, 0, t, HOST, ACCESS_READ)[9], 'n');
	rig_close(r);
}
END_TEST

START_TEST(a_place_that_is_lost_is_told_and_others_go_on)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2, .slabs = true });
	struct wire_handle t = written(r, HOST, 's');
	struct err err = ERR_INIT;
	uint64_t bytes;

	lose(r);
	ck_assert_int_eq(acquire(r, t, 0, ACCESS_READ), -ENODEV);
	ck_assert_str_eq(r->client[0].text[1], "hbm0 was lost");
	ck_assert_int_eq(engine_prefetch(r->world.engine, r->client[0].holder, &t, 1, 0,
					 r->world.now_ns, &err),
			 -ENODEV);
	ck_assert_int_eq(engine_slab_fd(r->world.engine, r->client[0].holder, 0, 0, &bytes, &err),
			 -ENODEV);
	engine_trim(r->world.engine);
	ck_assert_int_eq(rig_pin(r, 0, t, 1, ACCESS_READ)[9], 's');
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_close(r);
}
END_TEST

START_TEST(pins_on_a_lost_front_count_until_they_are_released)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle kept = written(r, HOST, 'k'), dirty = written(r, HOST, 'd');

	rig_pin(r, 1, kept, 0, ACCESS_READ);
	rig_pin(r, 1, dirty, 0, ACCESS_WRITE); /* what it writes is nowhere else */
	lose(r);
	ck_assert_int_eq(word0_state(rig_word0(r, kept)), STATE_FAILED);
	rig_acquire(r, 0, 1, kept, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 100), RIG_UNANSWERED);
	/* The copy below is not taken for one that stands above, however much room is wanted. */
	rig_flush_all(r, 0, 4, &kept, 1);
	rig_unpin(r, 1, kept, ACCESS_READ);
	rig_unpin(r, 1, dirty, ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 1, 100), 0);
	ck_assert_int_eq(rig_pin(r, 0, kept, HOST, ACCESS_READ)[9], 'k');
	rig_settle(r, 10);
	ck_assert_int_eq(acquire(r, dirty, HOST, ACCESS_READ), -EIO);
	ck_assert(tells_of(r, 1));
	rig_close(r);
}
END_TEST

/* A try that finds the place closed, as libtierd's does. */
static void back_out(struct rig *r, unsigned client, struct wire_handle t)
{
	ck_assert_ptr_null(rig_try(r, client, t, HOST, ACCESS_WRITE));
}

START_TEST(a_writer_who_is_not_let_in_loses_nothing)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle kept = written(r, HOST, 'k');

	rig_pin(r, 1, kept, 0, ACCESS_READ);
	lose(r);
	back_out(r, 0, kept);
	back_out(r, 2, kept);
	engine_holder_die(r->world.engine, r->client[2].holder, r->world.now_ns);
	r->client[2].holder = NULL;
	rig_settle(r, 10);
	rig_unpin(r, 1, kept, ACCESS_READ);
	ck_assert_int_eq(rig_pin(r, 0, kept, HOST, ACCESS_READ)[9], 'k');
	ck_assert_uint_eq(r->world.stats->tensors_lost, 0);
	rig_close(r);
}
END_TEST

START_TEST(who_pins_a_lost_front_is_told_and_others_wait_for_that)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle kept = written(r, HOST, 'k');
	char got[WORLD_BLOCK];

	rig_pin(r, 1, kept, 0, ACCESS_READ);
	lose(r);
	rig_acquire(r, 1, 1, kept, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 500), -EIO);
	ck_assert_str_eq(r->client[1].text[1], "tensor 1:1: it is pinned on hbm0, which was lost");
	ck_assert_int_eq(flush(r, &kept, 1), -EIO);
	ck_assert(!tells_of(r, 2));
	rig_unpin(r, 1, kept, ACCESS_READ);
	rig_settle(r, 5);
	ck_assert_int_eq(copy_out(r, kept, got, sizeof(got)), -EAGAIN); /* in dram: under a pin */
	ck_assert_int_eq(rig_pin(r, 0, kept, HOST, ACCESS_READ)[9], 'k');
	rig_close(r);
}
END_TEST

/* Who pins it may be stopped for as long as he likes; and who pins it himself has no bytes. */
static void copy_below_lost(struct rig *r, struct wire_handle t, char c)
{
	char got[WORLD_BLOCK] = { 1 };

	ck_assert_int_eq(copy_out(r, t, got, sizeof(got)), 0);
	ck_assert(rig_all_are(got, c, sizeof(got)));
	rig_copy(r, 1, 3, t, false, sizeof(got), got);
	ck_assert_int_eq(rig_wait(r, 1, 3, 100), 0);
}

START_TEST(a_copy_reads_what_is_below_a_lost_front)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle shadowed = written(r, HOST, 's'), flushed = written(r, 0, 'f');
	struct wire_handle zero = rig_create(r, 0, BYTES), only = written(r, 0, 'o');
	char got[WORLD_BLOCK];

	ck_assert_int_eq(flush(r, &flushed, 1), 0);
	rig_pin(r, 1, shadowed, 0, ACCESS_READ);
	rig_pin(r, 1, flushed, 0, ACCESS_READ);
	rig_pin(r, 1, zero, 0, ACCESS_READ);
	rig_pin(r, 1, only, 0, ACCESS_READ);
	lose(r);
	copy_below_lost(r, shadowed, 's');
	copy_below_lost(r, flushed, 'f');
	copy_below_lost(r, zero, 0);
	ck_assert_int_eq(copy_out(r, only, got, sizeof(got)), -EIO);
	rig_close(r);
}
END_TEST

START_TEST(a_copy_below_a_lost_front_ends_with_what_its_writer_says)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle unfilled = rig_create_filled(r, 0, 'u');
	char got[WORLD_BLOCK];

	ck_assert_int_eq(acquire(r, unfilled, 0, ACCESS_WRITE | ACCESS_DISCARD), 0);
	ck_assert_ptr_nonnull(rig_try(r, 1, unfilled, 0, ACCESS_WRITE));
	lose(r);
	copy_below_lost(r, unfilled, 'u');
	/* Now the old bytes are given up, and the new ones are lost. */
	atomic_fetch_or(&r->client[1].pins[unfilled.index], PIN_FILLED);
	ck_assert_int_eq(copy_out(r, unfilled, got, sizeof(got)), -EIO);
	rig_close(r);
}
END_TEST

/* The tensor's one move is on its way from the GPU when that is lost. */
START_TEST(a_move_from_a_lost_gpu_is_made_from_elsewhere_or_says_what_is_lost)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle flushed = written(r, 0, 'f'), only = written(r, 0, 'o');
	struct wire_handle cleaned = written(r, 0, 'c');

	ck_assert_int_eq(flush(r, &flushed, 1), 0);
	rig_acquire(r, 0, 1, flushed, HOST, ACCESS_READ, ENGINE_NEVER);
	rig_acquire(r, 0, 4, only, HOST, ACCESS_READ, ENGINE_NEVER);
	rig_flush_all(r, 0, 2, &cleaned, 1);
	ck_assert_uint_gt(r->world.flying, 2);
	world_lose(&r->world, 0);
	ck_assert_int_eq(rig_wait(r, 0, 1, 500), 0);
	ck_assert_int_eq(rig_wait(r, 0, 4, 500), -EIO);
	ck_assert(tells_of(r, 4));
	ck_assert_int_eq(rig_wait(r, 0, 2, 500), -EIO);
	ck_assert(tells_of(r, 2));
	ck_assert_int_eq(rig_pin(r, 0, flushed, HOST, ACCESS_READ)[9], 'f');
	rig_close(r);
}
END_TEST

START_TEST(a_lost_gpu_has_no_memory)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 1, .slabs = true });
	struct wire_handle elsewhere = rig_create(r, 0, BYTES);

	written(r, 0, 'o');
	rig_pin(r, 0, elsewhere, 1, ACCESS_READ);
	ck_assert_uint_gt(r->world.stats->device[0].backed_bytes, 0);
	ck_assert_uint_gt(r->world.stats->device[1].backed_bytes, 0);
	ck_assert_uint_eq(r->world.stats->device[0].lost, 0);
	lose(r);
	ck_assert_uint_eq(r->world.stats->device[0].backed_bytes, 0);
	ck_assert_uint_eq(r->world.stats->device[0].lost, 1);
	ck_assert_uint_eq(r->world.stats->device[1].lost, 0);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_HBM].backed_bytes,
			  r->world.stats->device[1].backed_bytes);
	rig_close(r);
}
END_TEST

/* Neither the lost bytes nor zeros: until the new writer has said `filled` there are none. */
START_TEST(a_copy_beside_a_writer_who_may_revive_it_waits)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle only = written(r, 0, 'o');
	char got[WORLD_BLOCK];

	lose(r);
	rig_acquire(r, 1, 1, only, HOST, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 100), 0);
	ck_assert_ptr_nonnull(rig_try(r, 1, only, HOST, ACCESS_WRITE));
	ck_assert_int_eq(copy_out(r, only, got, sizeof(got)), RIG_UNANSWERED);
	rig_unpin(r, 1, only, ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 3, 500), -EIO);
	rig_close(r);
}
END_TEST

/* And who that is may have been stopped. */
START_TEST(who_writes_below_a_lost_front_is_told_that_it_stays_pinned)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = written(r, HOST, 's');
	char new[WORLD_BLOCK] = "";

	rig_pin(r, 1, t, 0, ACCESS_READ);
	lose(r);
	rig_copy(r, 0, 3, t, true, sizeof(new), new);
	ck_assert_int_eq(rig_wait(r, 0, 3, 995), RIG_UNANSWERED);
	ck_assert_int_eq(rig_wait(r, 0, 3, 10), -EIO);
	ck_assert_str_eq(r->client[0].text[3],
			 "tensor 1:1: it is pinned on hbm0, which was lost; process 101 pins it");
	rig_copy(r, 0, 3, t, true, sizeof(new), new);
	ck_assert_int_eq(rig_wait(r, 0, 3, 500), RIG_UNANSWERED);
	rig_unpin(r, 1, t, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 0, 3, 500), -EAGAIN); /* dram has it */
	rig_close(r);
}
END_TEST

UNIT_MAIN("lost", what_stood_elsewhere_too_survives_and_the_rest_is_named,
	  whoever_overwrites_all_of_it_revives_a_lost_tensor,
	  a_place_that_is_lost_is_told_and_others_go_on,
	  pins_on_a_lost_front_count_until_they_are_released,
	  a_writer_who_is_not_let_in_loses_nothing,
	  who_pins_a_lost_front_is_told_and_others_wait_for_that,
	  a_copy_reads_what_is_below_a_lost_front,
	  a_copy_below_a_lost_front_ends_with_what_its_writer_says,
	  a_move_from_a_lost_gpu_is_made_from_elsewhere_or_says_what_is_lost,
	  a_lost_gpu_has_no_memory, a_copy_beside_a_writer_who_may_revive_it_waits,
	  who_writes_below_a_lost_front_is_told_that_it_stays_pinned)

/* SPDX-License-Identifier: Apache-2.0
 *
 * acquire_on, the engine's side: each rule by hand. check_releases.c has release_on's.
 */
#include "tests/unit/unit.h"

#include <errno.h>

#include "base/compiler.h"
#include "base/log.h"
#include "libclient/protocol/pin.h"
#include "tests/sim/rig.h"

#define HOST  PROTOCOL_PLACE_HOST
#define BYTES RIG_FILLED

static const struct world_shape one_gpu = { .hbm = 1, .nvme = 2 };

static struct fence *fence_of(struct rig *r, unsigned client, uint64_t token)
{
	return &r->client[client].fences[fence_token_index(token)];
}

/* The same on nvme alone. */
static struct wire_handle create_stored(struct rig *r, unsigned client, char c)
{
	struct wire_handle t = rig_create_filled(r, client, c), fill;

	ck_assert_int_eq(rig_flush(r, client, t), 0);
	world_turn(&r->world, NS_PER_S);
	fill = rig_create(r, client, WORLD_DRAM);
	rig_pin(r, client, fill, HOST, ACCESS_READ);
	rig_unpin(r, client, fill, ACCESS_READ);
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_ABSENT);
	rig_destroy(r, client, fill); /* which would leave no room for another one */
	return t;
}

/* Another namespace: recycled bytes are zeroed first from now on, which takes time. */
static struct holder *join_from_elsewhere(struct rig *r)
{
	static pin_slot pins[WORLD_TENSORS];
	struct holder_tables tables = { .pins = pins };
	struct err err = ERR_INIT;
	struct holder *h;

	ck_assert_int_eq(engine_holder_add(r->world.engine, "b", 1, &tables, 300, NULL, &h, &err),
			 0);
	return h;
}

static bool full_of(const char *at, char c)
{
	return rig_all_are(at, c, BYTES);
}

/* Asks, is answered early, and pins what is still FILLING. */
static char *pin_filling(struct rig *r, unsigned client, struct wire_handle t, uint8_t access,
			 uint64_t *ret_token)
{
	char *at;

	rig_acquire_on(r, client, 2, &t, 1, 0, access);
	ck_assert(r->client[client].answered[2]);
	ck_assert_int_eq(r->client[client].result[2], 0);
	*ret_token = r->client[client].value[2];
	ck_assert_uint_ne(*ret_token, 0);
	ck_assert(!rig_passed(r, client, *ret_token));
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_FILLING);
	at = rig_try(r, client, t, 0, access);
	ck_assert_ptr_nonnull(at);
	return at;
}

/* ---- acquire_on ---- */

static void fence_follows(bool stored)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = stored ? create_stored(r, 0, 'x') : rig_create_filled(r, 0, 'x');
	uint64_t token;
	char *at = pin_filling(r, 0, t, ACCESS_READ, &token);

	rig_settle(r, 0);
	ck_assert(rig_passed(r, 0, token));
	ck_assert_uint_eq(atomic_load(&fence_of(r, 0, token)->failed_at), 0);
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_RESIDENT);
	ck_assert_ptr_eq(rig_try(r, 0, t, 0, ACCESS_READ), at);
	ck_assert(full_of(at, 'x'));
	rig_close(r);
}

START_TEST(the_answer_comes_before_the_bytes_and_the_fence_after)
{
	fence_follows(false);
	fence_follows(true);
}
END_TEST

START_TEST(what_is_there_needs_no_fence)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	rig_pin(r, 0, t, 0, ACCESS_READ);
	rig_acquire_on(r, 1, 2, &t, 1, 0, ACCESS_READ);
	ck_assert(r->client[1].answered[2]);
	ck_assert_int_eq(r->client[1].result[2], 0);
	ck_assert_uint_eq(r->client[1].value[2], 0);
	rig_acquire_on(r, 1, 3, &t, 1, HOST, ACCESS_READ);
	ck_assert(r->client[1].answered[3]);
	ck_assert_int_eq(r->client[1].result[3], -ENODEV);
	rig_close(r);
}
END_TEST

START_TEST(a_batch_is_answered_when_its_last_fill_runs)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t[2] = { rig_create_filled(r, 0, 'x'), rig_create_filled(r, 0, 'y') };

	rig_pin(r, 1, t[1], HOST, ACCESS_READ);
	rig_acquire_on(r, 0, 2, t, 2, 0, ACCESS_READ);
	rig_settle(r, 5);
	ck_assert(!r->client[0].answered[2]);
	ck_assert_int_eq(word0_state(rig_word0(r, t[0])), STATE_RESIDENT);
	rig_unpin(r, 1, t[1], ACCESS_READ);
	world_turn(&r->world, NS_PER_MS);
	ck_assert(r->client[0].answered[2]);
	ck_assert_uint_ne(r->client[0].value[2], 0);
	ck_assert_int_eq(word0_state(rig_word0(r, t[1])), STATE_FILLING);
	ck_assert(!rig_passed(r, 0, r->client[0].value[2]));
	rig_settle(r, 0);
	ck_assert(rig_passed(r, 0, r->client[0].value[2]));
	rig_close(r);
}
END_TEST

START_TEST(without_a_free_fence_the_answer_waits_for_the_bytes)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	for (unsigned round = 1; round <= 2; round++) {
		for (unsigned i = 0; i < FENCES; i++) {
			rig_acquire_on(r, 0, 2, &t, 1, 0, ACCESS_READ);
			ck_assert(r->client[0].answered[2]);
			ck_assert_uint_eq(fence_token_value(r->client[0].value[2]), round);
		}
		rig_acquire_on(r, 0, 3, &t, 1, 0, ACCESS_READ);
		ck_assert(!r->client[0].answered[3]);
		ck_assert_int_eq(rig_wait(r, 0, 3, 10), 0);
		ck_assert_uint_eq(r->client[0].value[3], 0);
		for (unsigned i = 0; i < FENCES; i++)
			ck_assert_uint_eq(atomic_load(&r->client[0].fences[i].value), round);
		/* Elsewhere again, so that the next round has something to wait for. */
		world_turn(&r->world, NS_PER_S);
		rig_pin(r, 0, t, HOST, ACCESS_READ);
		rig_unpin(r, 0, t, ACCESS_READ);
	}
	rig_close(r);
}
END_TEST

START_TEST(a_cancel_after_the_answer_does_nothing)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t[2] = { rig_create_filled(r, 0, 'x'), rig_create_filled(r, 0, 'y') };

	rig_pin(r, 1, t[1], HOST, ACCESS_READ);
	rig_acquire_on(r, 0, 2, &t[1], 1, 0, ACCESS_READ);
	engine_cancel(r->world.engine, r->client[0].holder, 2, r->world.now_ns);
	ck_assert(r->client[0].answered[2]);
	ck_assert_int_eq(r->client[0].result[2], -EINTR);

	rig_acquire_on(r, 0, 2, &t[0], 1, 0, ACCESS_READ);
	ck_assert(r->client[0].answered[2]);
	engine_cancel(r->world.engine, r->client[0].holder, 2, r->world.now_ns);
	rig_settle(r, 0); /* a second answer would abort */
	ck_assert(rig_passed(r, 0, r->client[0].value[2]));
	rig_close(r);
}
END_TEST

START_TEST(a_stopped_client_gets_its_fences_and_a_dead_one_none)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 2, 'x');

	for (unsigned i = 0; i < 2; i++)
		rig_acquire_on(r, i, 2, &t, 1, 0, ACCESS_READ);
	engine_holder_stop(r->world.engine, r->client[0].holder);
	engine_holder_die(r->world.engine, r->client[1].holder, r->world.now_ns);
	r->client[1].holder = NULL;
	engine_check(r->world.engine);
	rig_settle(r, 0);
	ck_assert(rig_passed(r, 0, r->client[0].value[2]));
	ck_assert(!rig_passed(r, 1, r->client[1].value[2]));
	rig_close(r);
}
END_TEST

START_TEST(a_discarding_writer_may_say_filled_before_the_fill_ends)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = create_stored(r, 0, 'x');
	struct holder *other;
	uint64_t token;
	char *at;

	other = join_from_elsewhere(r);
	at = pin_filling(r, 0, t, ACCESS_WRITE | ACCESS_DISCARD, &token);
	ck_assert(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED);
	/* What will be left unfilled is nothing that a reader could wait for on its stream. */
	rig_acquire_on(r, 1, 2, &t, 1, 0, ACCESS_READ);
	ck_assert(!r->client[1].answered[2]);
	while (!rig_passed(r, 0, token))
		ck_assert(world_finish_one(&r->world));
	memset(at, 'z', BYTES);
	rig_unpin(r, 0, t, ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 1, 2, 10), 0);
	rig_settle(r, 0);
	ck_assert(full_of(rig_try(r, 1, t, 0, ACCESS_READ), 'z'));
	engine_holder_die(r->world.engine, other, r->world.now_ns);
	rig_close(r);
}
END_TEST

START_TEST(reclaim_leaves_the_asker_time_to_pin)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x'), all = rig_create(r, 0, WORLD_HBM);

	rig_acquire_on(r, 0, 2, &t, 1, 0, ACCESS_READ);
	rig_acquire(r, 1, 1, all, 0, ACCESS_READ, ENGINE_NEVER);
	rig_settle(r, 50);
	ck_assert_ptr_nonnull(rig_try(r, 0, t, 0, ACCESS_READ));
	rig_unpin(r, 0, t, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 1, 1, 200), 0);
	rig_close(r);
}
END_TEST

/* A fence that passed for the one tensor while the other is being brought anew would say what is
 * not. Nobody pins here: all that keeps the first is the fence of both. */
START_TEST(what_a_fence_is_of_stays_until_it_passes)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t[2] = { rig_create_filled(r, 0, 'x'), rig_create_filled(r, 0, 'y') };
	struct wire_handle all = rig_create(r, 0, WORLD_HBM);
	uint64_t token;

	rig_pin(r, 0, t[0], 0, ACCESS_READ);
	rig_unpin(r, 0, t[0], ACCESS_READ);
	rig_acquire_on(r, 0, 2, t, 2, 0, ACCESS_READ);
	ck_assert(r->client[0].answered[2]);
	token = r->client[0].value[2];
	rig_acquire(r, 1, 1, all, 0, ACCESS_READ, ENGINE_NEVER);
	rig_acquire(r, 1, 2, t[0], HOST, ACCESS_READ, ENGINE_NEVER);
	for (unsigned i = 0; i < 10; i++) {
		world_turn(&r->world, 50 * NS_PER_MS);
		engine_check(r->world.engine);
	}
	ck_assert(!rig_passed(r, 0, token));
	ck_assert_int_eq(word0_state(rig_word0(r, t[0])), STATE_RESIDENT);
	ck_assert_uint_eq(word0_place(rig_word0(r, t[0])), 0);
	ck_assert_int_eq(rig_wait(r, 1, 2, 500), 0);
	ck_assert(rig_passed(r, 0, token));
	ck_assert_int_eq(rig_wait(r, 1, 1, 500), 0);
	rig_close(r);
}
END_TEST

START_TEST(a_reader_leaves_an_unfilled_front_to_its_fence)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t[2] = { create_stored(r, 0, 'x'), create_stored(r, 0, 'y') };
	struct holder *other;

	rig_acquire(r, 0, 1, t[0], 0, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	ck_assert(word0_flags(rig_word0(r, t[0])) & FLAG_UNFILLED);
	other = join_from_elsewhere(r);
	rig_acquire_on(r, 0, 2, t, 2, 0, ACCESS_WRITE | ACCESS_DISCARD);
	ck_assert(r->client[0].answered[2]);
	rig_acquire(r, 1, 1, t[0], 0, ACCESS_READ, ENGINE_NEVER);
	for (unsigned i = 0; i < 10; i++)
		world_turn(&r->world, NS_PER_MS);
	ck_assert(word0_flags(rig_word0(r, t[0])) & FLAG_UNFILLED);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), 0);
	ck_assert(rig_passed(r, 0, r->client[0].value[2]));
	ck_assert(full_of(rig_try(r, 1, t[0], 0, ACCESS_READ), 'x'));
	engine_holder_die(r->world.engine, other, r->world.now_ns);
	rig_close(r);
}
END_TEST

/* ---- fills that fail ---- */

START_TEST(a_fill_that_fails_unpinned_leaves_what_was_there)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');
	uint64_t token;

	rig_acquire_on(r, 0, 2, &t, 1, 0, ACCESS_READ);
	token = r->client[0].value[2];
	r->world.fail_mapped_permille = 1000;
	rig_settle(r, 0);
	r->world.fail_mapped_permille = 0;
	ck_assert(rig_passed(r, 0, token));
	ck_assert_uint_eq(atomic_load(&fence_of(r, 0, token)->failed_at), fence_token_value(token));
	ck_assert_int_lt(fence_of(r, 0, token)->result, 0);
	ck_assert_uint_eq(fence_of(r, 0, token)->index, t.index);
	ck_assert_uint_eq(fence_of(r, 0, token)->generation, t.generation);
	ck_assert_ptr_null(rig_try(r, 0, t, 0, ACCESS_READ));
	ck_assert(full_of(rig_try(r, 0, t, HOST, ACCESS_READ), 'x'));
	rig_close(r);
}
END_TEST

/* Nvme refuses the read while pins stand; `refuse`: and the device the 0xff. */
static void fill_fails_pinned(bool refuse)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = create_stored(r, 0, 'x');
	char info[512];
	struct err err = ERR_INIT;
	uint64_t token;
	char *at = pin_filling(r, 0, t, ACCESS_WRITE, &token);

	memset(at, 'w', BYTES); /* a client that does not wait for its fence */
	r->world.fail_permille = 1000;
	r->world.fail_mapped_permille = refuse ? 1000 : 0;
	rig_settle(r, 0);
	r->world.fail_permille = r->world.fail_mapped_permille = 0;
	ck_assert(rig_passed(r, 0, token));
	ck_assert_uint_eq(atomic_load(&fence_of(r, 0, token)->failed_at), fence_token_value(token));
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_FAILED);
	ck_assert(refuse || full_of(at, (char)0xff));
	ck_assert_ptr_null(rig_try(r, 1, t, 0, ACCESS_READ));
	ck_assert_int_gt(engine_stat(r->world.engine, t, info, sizeof(info), &err), 0);
	ck_assert_uint_eq(((struct wire_info *)info)->state, STATE_FAILED);
	ck_assert_int_eq(rig_flush(r, 1, t), -EIO);

	/* Its own plain pin is in the way of itself; others wait. */
	rig_acquire_on(r, 0, 3, &t, 1, 0, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 0, 3, 1), -EIO);
	rig_acquire(r, 1, 2, t, 0, ACCESS_READ, ENGINE_NEVER);
	rig_acquire(r, 1, 3, t, 0, ACCESS_READ, 5 * NS_PER_MS);
	ck_assert_int_eq(rig_wait(r, 1, 3, 50), -EBUSY);
	ck_assert(!r->client[1].answered[2]);
	rig_unpin(r, 0, t, ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	/* What was written on the front that never came is nowhere. */
	ck_assert(full_of(rig_try(r, 1, t, 0, ACCESS_READ), 'x'));
	ck_assert_int_eq(rig_flush(r, 1, t), 0);
	rig_close(r);
}

START_TEST(a_fill_that_fails_pinned_reads_as_ff_until_it_is_released)
{
	fill_fails_pinned(false);
	fill_fails_pinned(true);
}
END_TEST

START_TEST(the_old_front_serves_again_after_a_failed_fill)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');
	uint64_t token;
	char *at = pin_filling(r, 0, t, ACCESS_WRITE, &token);

	r->world.fail_mapped_permille = 1000;
	ck_assert(world_finish_one(&r->world));
	r->world.fail_mapped_permille = 0;
	ck_assert(!rig_passed(r, 0, token)); /* not before the bytes are 0xff */
	rig_settle(r, 0);
	ck_assert(rig_passed(r, 0, token));
	ck_assert(full_of(at, (char)0xff));
	rig_acquire(r, 1, 2, t, HOST, ACCESS_READ, ENGINE_NEVER);
	rig_settle(r, 5);
	ck_assert(!r->client[1].answered[2]);
	rig_defer(r, 0, 7, t, ACCESS_WRITE, 1);
	rig_reach(r, 0, 7, 1);
	ck_assert_int_eq(rig_wait(r, 1, 2, 20), 0);
	ck_assert(full_of(rig_try(r, 1, t, HOST, ACCESS_READ), 'x'));
	rig_close(r);
}
END_TEST

START_TEST(a_tensor_destroyed_under_a_filling_pin_still_comes)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');
	uint64_t token;
	char *at = pin_filling(r, 0, t, ACCESS_READ, &token);

	rig_destroy(r, 0, t);
	rig_settle(r, 5);
	ck_assert(rig_passed(r, 0, token));
	ck_assert_uint_eq(atomic_load(&fence_of(r, 0, token)->failed_at), 0);
	ck_assert(full_of(at, 'x'));
	ck_assert_uint_eq(r->world.stats->tensors, 1);
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_settle(r, 300);
	ck_assert_uint_eq(r->world.stats->tensors, 0);
	rig_close(r);
}
END_TEST

START_TEST(a_tensor_destroyed_before_its_pin_fails_the_fence)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	rig_acquire_on(r, 0, 2, &t, 1, 0, ACCESS_READ);
	rig_destroy(r, 0, t);
	rig_settle(r, 5);
	ck_assert(rig_passed(r, 0, r->client[0].value[2]));
	ck_assert_int_eq(fence_of(r, 0, r->client[0].value[2])->result, -ESTALE);
	ck_assert_uint_eq(r->world.stats->tensors, 0);
	rig_close(r);
}
END_TEST

START_TEST(a_prefetch_that_was_joined_fails_as_any_fill)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = create_stored(r, 0, 'x');
	uint64_t token;
	char *at;

	rig_hint(r, 1, t, 0);
	at = pin_filling(r, 0, t, ACCESS_READ, &token);
	r->world.fail_permille = 1000;
	rig_settle(r, 0);
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_FAILED);
	ck_assert(rig_passed(r, 0, token) && full_of(at, (char)0xff));
	ck_assert_int_lt(fence_of(r, 0, token)->result, 0);
	r->world.fail_permille = 0;
	rig_unpin(r, 0, t, ACCESS_READ);
	ck_assert(full_of(rig_pin(r, 0, t, 0, ACCESS_READ), 'x'));
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_close(r);
}
END_TEST

/* It should have looked at DOOMED; it hurts nobody. */
START_TEST(who_pins_what_was_destroyed_on_its_way_finds_0xff)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');
	uint64_t token;
	char *at;

	rig_acquire_on(r, 0, 2, &t, 1, 0, ACCESS_READ);
	token = r->client[0].value[2];
	ck_assert_uint_ne(token, 0);
	rig_destroy(r, 1, t);
	at = rig_try(r, 0, t, 0, ACCESS_READ);
	ck_assert_ptr_nonnull(at);
	rig_settle(r, 200);
	ck_assert(rig_passed(r, 0, token) && full_of(at, (char)0xff));
	ck_assert_int_eq(fence_of(r, 0, token)->result, -ESTALE);
	ck_assert_uint_eq(r->world.stats->tensors, 1);
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_settle(r, 200);
	ck_assert_uint_eq(r->world.stats->tensors, 0);
	rig_close(r);
}
END_TEST

static void table_goes(bool stored)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = stored ? create_stored(r, 0, 'x') : rig_create_filled(r, 0, 'x');
	uint64_t token;

	pin_filling(r, 0, t, ACCESS_READ, &token);
	ck_assert_ptr_nonnull(rig_try(r, 1, t, 0, ACCESS_WRITE));
	r->world.fail_permille = stored ? 1000 : 0;
	r->world.fail_mapped_permille = stored ? 0 : 1000;
	rig_settle(r, 0);
	r->world.fail_permille = r->world.fail_mapped_permille = 0;
	engine_holder_die(r->world.engine, r->client[1].holder, r->world.now_ns);
	r->client[1].holder = NULL;
	rig_settle(r, 5);
	ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_FAILED);
	ck_assert(r->client[1].gone);
	rig_unpin(r, 0, t, ACCESS_READ);
	ck_assert(full_of(rig_pin(r, 0, t, HOST, ACCESS_READ), 'x'));
	rig_close(r);
}

/* Who pins it may be stopped for as long as he likes. */
START_TEST(the_table_of_a_dead_client_does_not_wait_for_pins_on_a_failed_fill)
{
	table_goes(false);
	table_goes(true);
}
END_TEST

UNIT_MAIN("fences", the_answer_comes_before_the_bytes_and_the_fence_after,
	  what_is_there_needs_no_fence, a_batch_is_answered_when_its_last_fill_runs,
	  without_a_free_fence_the_answer_waits_for_the_bytes,
	  a_cancel_after_the_answer_does_nothing,
	  a_stopped_client_gets_its_fences_and_a_dead_one_none,
	  a_discarding_writer_may_say_filled_before_the_fill_ends,
	  reclaim_leaves_the_asker_time_to_pin, what_a_fence_is_of_stays_until_it_passes,
	  a_reader_leaves_an_unfilled_front_to_its_fence,
	  a_fill_that_fails_unpinned_leaves_what_was_there,
	  a_fill_that_fails_pinned_reads_as_ff_until_it_is_released,
	  the_old_front_serves_again_after_a_failed_fill,
	  a_tensor_destroyed_under_a_filling_pin_still_comes,
	  a_tensor_destroyed_before_its_pin_fails_the_fence,
	  a_prefetch_that_was_joined_fails_as_any_fill,
	  who_pins_what_was_destroyed_on_its_way_finds_0xff,
	  the_table_of_a_dead_client_does_not_wait_for_pins_on_a_failed_fill)

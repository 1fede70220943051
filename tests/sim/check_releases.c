/* SPDX-License-Identifier: Apache-2.0
 *
 * release_on, the engine's side: each rule by hand.
 */
#include "tests/unit/unit.h"

#include <errno.h>

#include "libclient/protocol/pin.h"
#include "tests/sim/rig.h"

#define HOST  PROTOCOL_PLACE_HOST
#define BYTES RIG_FILLED

static const struct world_shape one_gpu = { .hbm = 1, .nvme = 2 };

/* As often as a ring that is new may take to be found. */
static void look_at_rings(struct rig *r, unsigned client)
{
	for (unsigned i = 0; i < STREAMS / 4; i++)
		engine_deferred(r->world.engine, r->client[client].holder, r->world.now_ns);
}

START_TEST(a_deferred_pin_goes_when_the_stream_gets_there)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	rig_pin(r, 0, t, 0, ACCESS_READ);
	rig_try(r, 0, t, 0, ACCESS_WRITE);
	rig_defer(r, 0, 31, t, ACCESS_WRITE, 3);
	rig_defer(r, 0, 31, t, ACCESS_READ, 4);
	rig_acquire(r, 1, 1, t, HOST, ACCESS_READ, ENGINE_NEVER);
	rig_reach(r, 0, 31, 2);
	rig_settle(r, 20);
	ck_assert_uint_eq(atomic_load(&r->client[0].pins[t.index]) & PIN_ANY, PIN_WRITE_ONE + 2);
	rig_reach(r, 0, 31, 3);
	rig_settle(r, 2);
	ck_assert_uint_eq(atomic_load(&r->client[0].pins[t.index]) & PIN_ANY, 1);
	ck_assert_uint_eq(atomic_load(&r->client[0].deferred[31].head), 1);
	ck_assert(!r->client[1].answered[1]);
	rig_reach(r, 0, 31, 9);
	ck_assert_int_eq(rig_wait(r, 1, 1, 2), 0);
	ck_assert(!rig_pinned(r, 0, t));
	rig_close(r);
}
END_TEST

START_TEST(a_deferred_pin_that_does_not_stand_changes_nothing)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	rig_pin(r, 0, t, 0, ACCESS_READ);
	rig_defer(r, 0, 0, t, ACCESS_WRITE, 0); /* a reader's pin is no writer's */
	rig_defer(r, 1, 0, t, ACCESS_READ, 0);
	for (unsigned i = 0; i < 2; i++)
		look_at_rings(r, i);
	ck_assert_uint_eq(atomic_load(&r->client[0].deferred[0].head), 1);
	ck_assert_uint_eq(atomic_load(&r->client[0].pins[t.index]) & PIN_ANY, 1);
	ck_assert_uint_eq(atomic_load(&r->client[1].pins[t.index]) & PIN_ANY, 0);
	ck_assert_uint_eq(r->client[0].misbehaved, 0);
	rig_close(r);
}
END_TEST

START_TEST(rings_wrap)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');
	uint64_t value = 0, old;

	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < DEFERRED_ENTRIES; i++) {
			ck_assert(pin_raise(&r->client[0].pins[t.index], ACCESS_READ, &old));
			rig_defer(r, 0, 1, t, ACCESS_READ, ++value);
		}
		rig_reach(r, 0, 1, value - 1);
		look_at_rings(r, 0);
		ck_assert(rig_pinned(r, 0, t));
		rig_reach(r, 0, 1, value);
		look_at_rings(r, 0);
		ck_assert(!rig_pinned(r, 0, t));
	}
	ck_assert_uint_eq(r->client[0].misbehaved, 0);
	rig_close(r);
}
END_TEST

START_TEST(a_ring_that_makes_no_sense_is_told_once_and_not_read)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	for (unsigned i = 0; i < 2; i++) {
		rig_pin(r, i, t, HOST, ACCESS_READ);
		rig_defer(r, i, 0, t, ACCESS_READ, 5);
	}
	atomic_store(&r->client[0].deferred[1].tail, DEFERRED_ENTRIES + 1);
	rig_defer(r, 1, 1, (struct wire_handle){ .index = WORLD_TENSORS }, ACCESS_READ, 0);
	for (unsigned i = 0; i < 4; i++) {
		look_at_rings(r, i % 2);
		rig_reach(r, i % 2, 0, 5);
	}
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(r->client[i].misbehaved, 1);
		ck_assert(rig_pinned(r, i, t));
	}
	rig_close(r);
}
END_TEST

START_TEST(own_pins_that_streams_will_lower_are_no_deadlock)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	rig_pin(r, 0, t, HOST, ACCESS_READ);
	rig_try(r, 0, t, HOST, ACCESS_WRITE);
	rig_defer(r, 0, 2, t, ACCESS_WRITE, 1);
	rig_acquire_on(r, 0, 2, &t, 1, 0, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 0, 2, 5), -EDEADLK);
	rig_defer(r, 0, 3, t, ACCESS_READ, 1);
	rig_acquire_on(r, 0, 2, &t, 1, 0, ACCESS_READ);
	rig_settle(r, 5);
	ck_assert(!r->client[0].answered[2]);
	rig_reach(r, 0, 2, 1);
	rig_reach(r, 0, 3, 1);
	ck_assert_int_eq(rig_wait(r, 0, 2, 2), 0);
	rig_close(r);
}
END_TEST

START_TEST(a_flush_waits_for_the_callers_own_streams)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	rig_pin(r, 0, t, HOST, ACCESS_WRITE);
	ck_assert_int_eq(rig_flush(r, 0, t), -EBUSY);
	rig_defer(r, 0, 0, t, ACCESS_WRITE, 1);
	ck_assert_int_eq(rig_flush(r, 0, t), RIG_UNANSWERED);
	rig_reach(r, 0, 0, 1);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	rig_close(r);
}
END_TEST

START_TEST(a_stopped_clients_streams_run_on_and_a_dead_ones_are_not_read)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 2, 'x');

	for (unsigned i = 0; i < 2; i++) {
		rig_pin(r, i, t, 0, ACCESS_READ);
		rig_defer(r, i, 0, t, ACCESS_READ, 1);
	}
	engine_holder_stop(r->world.engine, r->client[0].holder);
	engine_holder_die(r->world.engine, r->client[1].holder, r->world.now_ns);
	r->client[1].holder = NULL;
	rig_acquire(r, 2, 1, t, HOST, ACCESS_READ, ENGINE_NEVER);
	rig_settle(r, 5);
	ck_assert(!r->client[2].answered[1]);
	for (unsigned i = 0; i < 2; i++)
		rig_reach(r, i, 0, 1);
	ck_assert_int_eq(rig_wait(r, 2, 1, 10), 0);
	ck_assert(!rig_pinned(r, 0, t));
	ck_assert(rig_pinned(r, 1, t));
	rig_close(r);
}
END_TEST

START_TEST(a_destroyed_tensor_is_buried_when_its_streams_are_done)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create_filled(r, 0, 'x');

	rig_pin(r, 0, t, 0, ACCESS_READ);
	rig_defer(r, 0, 5, t, ACCESS_READ, 1);
	rig_destroy(r, 0, t);
	rig_settle(r, 1000);
	ck_assert_uint_eq(r->world.stats->tensors, 1);
	rig_reach(r, 0, 5, 1);
	rig_settle(r, 2); /* sooner than the doomed are looked at by then */
	ck_assert_uint_eq(r->world.stats->tensors, 0);
	rig_close(r);
}
END_TEST

/* Policies are not asked at every event for all that they were denied; now they are. */
START_TEST(room_that_a_stream_lets_go_is_found_at_once)
{
	enum { N = WORLD_HBM / BYTES * 4 };

	for (uint32_t k = 0; k + 4 <= N; k++) {
		struct rig *r = rig_open(one_gpu);
		struct wire_handle t[N], more = rig_create_filled(r, 1, 'm');

		for (uint32_t i = 0; i < N; i++) {
			t[i] = rig_create(r, 0, BYTES / 4);
			rig_pin(r, 0, t[i], 0, ACCESS_READ);
			rig_defer(r, 0, i, t[i], ACCESS_READ, 1);
		}
		look_at_rings(r, 0);
		rig_acquire(r, 1, 1, more, 0, ACCESS_READ, ENGINE_NEVER);
		rig_settle(r, 200);
		for (uint32_t i = 0; i < 4; i++)
			rig_reach(r, 0, k + i, 1);
		ck_assert(!r->client[1].answered[1]);
		engine_deferred(r->world.engine, r->client[0].holder, r->world.now_ns);
		while (!r->client[1].answered[1])
			ck_assert(world_finish_one(&r->world));
		rig_close(r);
	}
}
END_TEST

UNIT_MAIN("releases", a_deferred_pin_goes_when_the_stream_gets_there,
	  a_deferred_pin_that_does_not_stand_changes_nothing, rings_wrap,
	  a_ring_that_makes_no_sense_is_told_once_and_not_read,
	  own_pins_that_streams_will_lower_are_no_deadlock,
	  a_flush_waits_for_the_callers_own_streams,
	  a_stopped_clients_streams_run_on_and_a_dead_ones_are_not_read,
	  a_destroyed_tensor_is_buried_when_its_streams_are_done,
	  room_that_a_stream_lets_go_is_found_at_once)

/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_in and copy_out beside whatever else is done with the tensor.
 */
#include "tests/unit/unit.h"

#include <errno.h>

#include "tests/sim/rig.h"

#define HOST  PROTOCOL_PLACE_HOST
#define LARGE (WORLD_DRAM + WORLD_BLOCK)

static void copy(struct rig *r, unsigned client, uint32_t id, struct wire_handle t, bool in,
		 uint64_t bytes, void *window)
{
	r->client[client].answered[id] = false;
	engine_copy(r->world.engine, r->client[client].holder, id, t, in, 0, bytes, window,
		    r->world.now_ns);
	engine_check(r->world.engine);
}

/* A dirty tensor on hbm whose write-back takes every staging slot of its direction. */
static void fill_staging(struct rig *r)
{
	struct wire_handle t = rig_create(r, 0, 8 * WORLD_BLOCK);
	char *at = rig_pin(r, 0, t, 0, ACCESS_WRITE);

	memset(at, 1, 8 * WORLD_BLOCK);
	rig_unpin(r, 0, t, ACCESS_WRITE);
	engine_flush(r->world.engine, r->client[0].holder, 1, &t, 1, r->world.now_ns);
}

START_TEST(a_cancelled_copy_leaves_the_old_bytes_or_the_new)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create(r, 1, LARGE);
	char old[WORLD_BLOCK], new[WORLD_BLOCK], got[WORLD_BLOCK] = { 0 };

	memset(old, 'o', sizeof(old));
	memset(new, 'n', sizeof(new));
	copy(r, 1, 1, t, true, sizeof(old), old);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), 0);
	fill_staging(r);
	copy(r, 1, 2, t, true, sizeof(new), new);
	engine_cancel(r->world.engine, r->client[1].holder, 2, r->world.now_ns);
	ck_assert_int_eq(r->client[1].result[2], -EINTR);
	rig_settle(r, 10);
	copy(r, 1, 3, t, false, sizeof(got), got);
	ck_assert_int_eq(rig_wait(r, 1, 3, 10), 0);
	ck_assert(memcmp(got, old, sizeof(got)) == 0 || memcmp(got, new, sizeof(got)) == 0);
	rig_close(r);
}
END_TEST

/* "Resident now" sends the client to pin it: that has to work, or the two would ask each other for
 * ever. */
static void copy_of_unfilled(uint64_t bytes, uint8_t place, bool in)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create(r, 0, bytes);
	char window[WORLD_BLOCK] = { 0 };
	int rc;

	rig_acquire(r, 0, 1, t, place, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	ck_assert(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED);
	copy(r, 1, 2, t, in, sizeof(window), window);
	rc = rig_wait(r, 1, 2, 1000);
	ck_assert(rc == 0 || rc == -EAGAIN);
	if (rc == -EAGAIN) {
		ck_assert_int_eq(word0_state(rig_word0(r, t)), STATE_RESIDENT);
		ck_assert(!(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED));
	}
	rig_close(r);
}

START_TEST(a_copy_of_an_unfilled_front_comes_to_an_end)
{
	copy_of_unfilled(8 * WORLD_BLOCK, HOST, false);
	copy_of_unfilled(8 * WORLD_BLOCK, HOST, true);
	copy_of_unfilled(8 * WORLD_BLOCK, 0, false);
	copy_of_unfilled(8 * WORLD_BLOCK, 0, true);
}
END_TEST

/* The writer has pinned it and was stopped before it said `filled`: the old bytes are the tensor's
 * for as long as he is. */
static void copy_beside_who_was_stopped(struct rig *r, struct wire_handle t, char c)
{
	char window[WORLD_BLOCK], wanted[WORLD_BLOCK];
	char *at;

	memset(wanted, c, sizeof(wanted));
	memset(window, '?', sizeof(window));
	rig_acquire(r, 0, 1, t, 0, ACCESS_WRITE | ACCESS_DISCARD, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	at = rig_try(r, 0, t, 0, ACCESS_WRITE);
	ck_assert_ptr_nonnull(at);
	ck_assert(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED);
	copy(r, 1, 2, t, false, sizeof(window), window);
	ck_assert_int_eq(rig_wait(r, 1, 2, 1000), 0);
	ck_assert_mem_eq(window, wanted, sizeof(window));
	/* Who would overwrite some of it waits: the rest may still become the writer's. */
	copy(r, 1, 3, t, true, sizeof(window), window);
	ck_assert_int_eq(rig_wait(r, 1, 3, 100), RIG_UNANSWERED);
	atomic_fetch_or(&r->client[0].pins[t.index], PIN_FILLED);
	memset(at, 'n', WORLD_BLOCK);
	ck_assert_int_eq(rig_wait(r, 1, 3, 100), -EAGAIN);
	copy(r, 1, 2, t, false, sizeof(window), window);
	ck_assert_int_eq(rig_wait(r, 1, 2, 100), -EAGAIN);
	rig_unpin(r, 0, t, ACCESS_WRITE);
}

START_TEST(a_writer_who_is_stopped_leaves_the_old_bytes_to_copies)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });

	copy_beside_who_was_stopped(r, rig_create_filled(r, 0, 'o'), 'o');
	copy_beside_who_was_stopped(r, rig_create(r, 0, 4 * WORLD_BLOCK), 0);
	rig_close(r);
}
END_TEST

UNIT_MAIN("copies", a_cancelled_copy_leaves_the_old_bytes_or_the_new,
	  a_copy_of_an_unfilled_front_comes_to_an_end,
	  a_writer_who_is_stopped_leaves_the_old_bytes_to_copies)

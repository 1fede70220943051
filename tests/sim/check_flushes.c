/* SPDX-License-Identifier: Apache-2.0
 *
 * Flushes beside those who want the same tensors elsewhere: who flushes waits for nobody who waits
 * for him.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "daemon/engine/state.h"
#include "tests/sim/rig.h"

#define HOST PROTOCOL_PLACE_HOST
#define LONG (12 * WORLD_BLOCK) /* takes several polls to write */

static void flush(struct rig *r, unsigned client, struct wire_handle t)
{
	rig_flush_all(r, client, 2, &t, 1);
}

/* A block a millisecond comes back, and polls between them. */
static int wait_slowly(struct rig *r, unsigned client, uint32_t id, unsigned ms)
{
	for (; !r->client[client].answered[id] && ms > 0; ms--) {
		(void)world_finish_one(&r->world);
		world_turn(&r->world, NS_PER_MS);
		engine_check(r->world.engine);
	}
	return r->client[client].answered[id] ? r->client[client].result[id] : RIG_UNANSWERED;
}

START_TEST(what_the_caller_reads_is_flushed_though_another_wants_it_elsewhere)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create_written(r, 0, LONG, HOST, 'w');

	rig_pin(r, 0, t, HOST, ACCESS_READ);
	rig_acquire(r, 1, 1, t, 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), RIG_UNANSWERED);
	flush(r, 0, t);
	ck_assert_int_eq(wait_slowly(r, 0, 2, 100), 0);
	ck_assert(!r->client[1].answered[1]);
	rig_unpin(r, 0, t, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 1, 1, 100), 0);
	rig_close(r);
}
END_TEST

/* What it lacks is what the caller holds. */
START_TEST(what_another_has_no_room_for_is_flushed)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle all = rig_create(r, 0, WORLD_HBM),
			   t = rig_create_written(r, 0, LONG, HOST, 'w');

	rig_pin(r, 0, all, 0, ACCESS_READ);
	rig_acquire(r, 1, 1, t, 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), RIG_UNANSWERED);
	ck_assert_int_eq(rig_flush(r, 0, t), 0);
	rig_unpin(r, 0, all, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 1, 1, 100), 0);
	rig_close(r);
}
END_TEST

/* The pin went: the clean gives way at once, and is made anew of where the tensor is then. */
START_TEST(a_flush_follows_what_was_taken_elsewhere)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create_written(r, 0, LONG, HOST, 'w');

	rig_pin(r, 2, t, HOST, ACCESS_READ);
	rig_acquire(r, 1, 1, t, 0, ACCESS_READ, ENGINE_NEVER);
	flush(r, 0, t);
	ck_assert_int_eq(wait_slowly(r, 0, 2, 2), RIG_UNANSWERED);
	rig_unpin(r, 2, t, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 1, 1, 100), 0);
	ck_assert(!r->client[0].answered[2]);
	ck_assert_int_eq(rig_wait(r, 0, 2, 100), 0);
	ck_assert(rig_stands_at(r, t, 0));
	rig_close(r);
}
END_TEST

/* Of a namespace with a million tensors only some are looked at before others are served. */
START_TEST(a_flush_of_all_lets_others_come_in_between)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle first = rig_create_written(r, 0, WORLD_BLOCK, HOST, 'f'), last;

	for (unsigned i = 0; i < WORLD_TENSORS * 3 / 4; i++)
		(void)rig_create(r, 0, 16);
	last = rig_create_written(r, 0, WORLD_BLOCK, HOST, 'l');
	rig_flush_all(r, 0, 2, NULL, 0);
	ck_assert(record_of(r->world.engine, first.index)->move != 0);
	ck_assert(record_of(r->world.engine, last.index)->move == 0);
	world_turn(&r->world, 0);
	ck_assert(record_of(r->world.engine, last.index)->move != 0);
	ck_assert_int_eq(rig_wait(r, 0, 2, 100), 0);
	ck_assert((record_of(r->world.engine, first.index)->sources & SOURCE_NVME) != 0);
	ck_assert((record_of(r->world.engine, last.index)->sources & SOURCE_NVME) != 0);
	/* There is nothing left to do, nor a tensor. */
	rig_flush_all(r, 0, 2, NULL, 0);
	ck_assert_int_eq(rig_wait(r, 0, 2, 100), 0);
	rig_flush_all(r, 1, 2, NULL, 0);
	ck_assert_int_eq(rig_wait(r, 1, 2, 100), 0);
	rig_close(r);
}
END_TEST

/* Their words mean something else where they come from: "no such place", "destroyed", or more. */
START_TEST(what_a_disk_says_is_an_io_error_unless_it_is_full)
{
	static const int says[] = { -EAGAIN, -EINVAL, -ESTALE, -EDQUOT, -EBUSY,
				    -ENODEV, -EPERM,  -EINTR,  -EPIPE,  -ETIMEDOUT };

	for (unsigned i = 0; i < ARRAY_SIZE(says); i++) {
		struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
		struct wire_handle t = rig_create_written(r, 0, LONG, HOST, 'w');

		r->world.fail_permille = 1000;
		r->world.fail_result = says[i];
		ck_assert_int_eq(rig_flush(r, 0, t), -EIO);
		r->world.fail_result = -ENOSPC;
		ck_assert_int_eq(rig_flush(r, 0, t), -ENOSPC);
		r->world.fail_permille = 0;
		ck_assert_int_eq(rig_flush(r, 0, t), 0);
		rig_close(r);
	}
}
END_TEST

UNIT_MAIN("flushes", what_the_caller_reads_is_flushed_though_another_wants_it_elsewhere,
	  what_another_has_no_room_for_is_flushed, a_flush_follows_what_was_taken_elsewhere,
	  a_flush_of_all_lets_others_come_in_between,
	  what_a_disk_says_is_an_io_error_unless_it_is_full)

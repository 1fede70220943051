/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of events that a seed meets too seldom, or whose outcome its oracle cannot judge.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "tests/sim/rig.h"

#define HOST PROTOCOL_PLACE_HOST

START_TEST(who_will_not_wait_is_answered_at_once)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create(r, 0, 4 * WORLD_BLOCK);

	rig_pin(r, 0, t, HOST, ACCESS_READ);
	rig_acquire(r, 1, 1, t, 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert(!r->client[1].answered[1]);
	rig_acquire(r, 2, 1, t, HOST, ACCESS_READ, 0);
	ck_assert(r->client[2].answered[1]);
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_close(r);
}
END_TEST

START_TEST(whoever_waits_for_a_destroyed_tensor_is_told_at_once)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 0 });
	struct wire_handle fill[4], t[2];
	char named[64];

	for (unsigned i = 0; i < ARRAY_SIZE(fill); i++) {
		fill[i] = rig_create(r, 0, WORLD_HBM / 4);
		rig_pin(r, 0, fill[i], 0, ACCESS_READ);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		t[i] = rig_create(r, 0, WORLD_HBM / 8);
		rig_acquire(r, 1, i, t[i], 0, ACCESS_READ, ENGINE_NEVER);
		ck_assert(!r->client[1].answered[i]);
	}
	/* The second stands behind the first, which nothing lets go on. */
	rig_destroy(r, 0, t[1]);
	ck_assert(r->client[1].answered[1]);
	ck_assert_int_eq(r->client[1].result[1], -ESTALE);
	snprintf(named, sizeof(named), "tensor %u:%u was destroyed", t[1].index, t[1].generation);
	ck_assert_str_eq(r->client[1].text[1], named);
	/* Another place's turn comes after that of the first: it is told as soon. */
	rig_acquire(r, 2, 3, t[0], HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert(!r->client[2].answered[3]);
	rig_destroy(r, 0, t[0]);
	ck_assert_int_eq(r->client[1].result[0], -ESTALE);
	ck_assert(r->client[2].answered[3]);
	ck_assert_int_eq(r->client[2].result[3], -ESTALE);
	for (unsigned i = 0; i < ARRAY_SIZE(fill); i++)
		rig_unpin(r, 0, fill[i], ACCESS_READ);
	rig_close(r);
}
END_TEST

static void use(struct rig *r, struct wire_handle t, uint8_t place)
{
	rig_pin(r, 0, t, place, ACCESS_READ);
	rig_unpin(r, 0, t, ACCESS_READ);
}

/* What it has pinned and cannot give is denied; the other's tensors keep their order meanwhile. */
START_TEST(what_is_asked_of_one_gpu_changes_nothing_at_the_other)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2 });
	struct wire_handle cold[6], wanted;

	for (unsigned i = 0; i < 6; i++)
		rig_pin(r, 0, rig_create(r, 0, WORLD_HBM / 8), 0, ACCESS_READ);
	for (unsigned i = 0; i < ARRAY_SIZE(cold); i++) {
		cold[i] = rig_create(r, 0, WORLD_HBM / 8);
		use(r, cold[i], 1);
	}
	for (unsigned i = 0; i + 1 < ARRAY_SIZE(cold); i++)
		use(r, cold[i], 1);
	rig_acquire(r, 1, 1, rig_create(r, 0, WORLD_HBM / 2), 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), RIG_UNANSWERED);
	use(r, cold[0], 1);
	wanted = rig_create(r, 0, WORLD_HBM / 16 * 5); /* the watermark wants no more room */
	rig_acquire(r, 2, 1, wanted, 1, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 2, 1, 10), 0);
	/* The last was the coldest, and stood beside the hole. */
	for (unsigned i = 0; i < ARRAY_SIZE(cold); i++)
		ck_assert(rig_stands_at(r, cold[i], 1) == (i + 1 < ARRAY_SIZE(cold)));
	rig_close(r);
}
END_TEST

static struct wire_handle written(struct rig *r, uint64_t bytes)
{
	struct wire_handle t = rig_create(r, 0, bytes);

	rig_pin(r, 0, t, HOST, ACCESS_WRITE);
	rig_unpin(r, 0, t, ACCESS_WRITE);
	rig_settle(r, 200); /* it is nobody's asked for */
	return t;
}

/* Half of dram is pinned, the other half has to be written back, which fails once. */
static struct wire_handle half_broken(struct rig *r, struct wire_handle *ret_pinned)
{
	written(r, WORLD_DRAM / 2);
	*ret_pinned = rig_create(r, 0, WORLD_DRAM / 2);
	rig_pin(r, 0, *ret_pinned, HOST, ACCESS_READ);
	r->world.fail_permille = 1000;
	rig_acquire(r, 1, 1, rig_create(r, 1, WORLD_DRAM / 2), HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), RIG_UNANSWERED);
	r->world.fail_permille = 0;
	ck_assert_uint_gt(r->world.failed, 0);
	return rig_create(r, 2, WORLD_DRAM / 2);
}

START_TEST(a_write_back_that_failed_once_is_tried_again_before_anybody_is_told)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2 });
	struct wire_handle pinned;

	half_broken(r, &pinned);
	ck_assert_int_eq(rig_wait(r, 1, 1, 1100), 0);
	rig_unpin(r, 0, pinned, ACCESS_READ);
	rig_close(r);
}
END_TEST

START_TEST(who_comes_after_a_write_back_that_failed_waits_for_pins_as_ever)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2 });
	struct wire_handle pinned, late = half_broken(r, &pinned);

	engine_cancel(r->world.engine, r->client[1].holder, 1, r->world.now_ns);
	rig_acquire(r, 2, 1, late, HOST, ACCESS_READ, 20 * NS_PER_MS);
	ck_assert_int_eq(rig_wait(r, 2, 1, 50), -ETIMEDOUT);
	ck_assert_ptr_nonnull(
		strstr(r->client[2].text[1], "could not be written back: tensor 1:1"));
	rig_acquire(r, 2, 1, late, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 2, 1, 10), RIG_UNANSWERED);
	rig_unpin(r, 0, pinned, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 2, 1, 20), 0);
	rig_close(r);
}
END_TEST

START_TEST(a_write_back_that_fails_again_is_told)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2 });
	struct wire_handle pinned;

	half_broken(r, &pinned);
	r->world.fail_permille = 1000;
	ck_assert_int_eq(rig_wait(r, 1, 1, 1100), -EIO);
	ck_assert_ptr_nonnull(strstr(r->client[1].text[1], "tensor 1:1"));
	r->world.fail_permille = 0;
	rig_unpin(r, 0, pinned, ACCESS_READ);
	rig_close(r);
}
END_TEST

static struct wire_handle write_that_fails(struct rig *r, uint8_t place)
{
	struct wire_handle t = rig_create(r, 0, WORLD_HBM / 8);

	rig_pin(r, 0, t, place, ACCESS_WRITE);
	rig_unpin(r, 0, t, ACCESS_WRITE);
	r->world.fail_permille = 1000;
	ck_assert_int_lt(rig_flush(r, 0, t), 0);
	r->world.fail_permille = 0;
	return t;
}

/* Client 1 has waited for long for half of dram, and client 0 lets go of what has to be written
 * back for it, while nothing can be. */
static void let_go_while_broken(struct rig *r, struct wire_handle t)
{
	r->world.fail_permille = 1000;
	rig_unpin(r, 0, t, ACCESS_WRITE);
	ck_assert_msg(rig_wait(r, 1, 1, 5) == RIG_UNANSWERED, "%s", r->client[1].text[1]);
	ck_assert_uint_gt(r->world.failed, 0);
}

static struct wire_handle wait_for_long(struct rig *r, struct wire_handle *ret_pinned)
{
	struct wire_handle t = written(r, WORLD_DRAM / 2);

	*ret_pinned = rig_create(r, 0, WORLD_DRAM / 2);
	rig_pin(r, 0, *ret_pinned, HOST, ACCESS_READ);
	rig_pin(r, 0, t, HOST, ACCESS_WRITE);
	rig_acquire(r, 1, 1, rig_create(r, 1, WORLD_DRAM / 2), HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 2000), RIG_UNANSWERED);
	return t;
}

START_TEST(who_has_waited_for_pins_is_not_told_of_a_write_back_that_failed_once)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2 });
	struct wire_handle pinned, t = wait_for_long(r, &pinned);

	let_go_while_broken(r, t);
	r->world.fail_permille = 0;
	ck_assert_int_eq(rig_wait(r, 1, 1, 1100), 0);
	rig_unpin(r, 0, pinned, ACCESS_READ);
	rig_close(r);
}
END_TEST

/* The other has failed nearly a second before. */
START_TEST(each_write_back_that_failed_is_left_alone_for_a_second_of_its_own)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle pinned, t = wait_for_long(r, &pinned);

	write_that_fails(r, 0);
	ck_assert_int_eq(rig_wait(r, 1, 1, 985), RIG_UNANSWERED);
	let_go_while_broken(r, t);
	ck_assert_msg(rig_wait(r, 1, 1, 900) == RIG_UNANSWERED, "%s", r->client[1].text[1]);
	r->world.fail_permille = 0;
	ck_assert_int_eq(rig_wait(r, 1, 1, 200), 0);
	rig_unpin(r, 0, pinned, ACCESS_READ);
	rig_close(r);
}
END_TEST

/* The one here was long ago and is gone, the one that is new stands at another GPU. */
START_TEST(who_waits_for_pins_is_not_told_of_a_write_back_that_failed_elsewhere)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2 });
	struct wire_handle t[8];

	rig_destroy(r, 0, write_that_fails(r, 0));
	rig_settle(r, 1100);
	write_that_fails(r, 1);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		t[i] = rig_create(r, 0, WORLD_HBM / 8);
		rig_pin(r, 0, t[i], 0, ACCESS_READ);
	}
	rig_acquire(r, 1, 1, rig_create(r, 0, WORLD_HBM / 8), 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert_msg(rig_wait(r, 1, 1, 10) == RIG_UNANSWERED, "%s", r->client[1].text[1]);
	rig_unpin(r, 0, t[0], ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), 0);
	rig_close(r);
}
END_TEST

START_TEST(a_hint_without_room_is_in_nobodys_way_but_those_that_need_as_much)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2 });
	struct wire_handle kept = rig_create(r, 0, WORLD_HBM / 8 * 5);
	struct wire_handle large = rig_create(r, 0, WORLD_HBM / 2);
	struct wire_handle as_large = rig_create(r, 0, WORLD_HBM / 2);
	struct wire_handle small[3];

	rig_pin(r, 0, kept, 0, ACCESS_READ);
	rig_hint(r, 0, large, 0);
	rig_hint(r, 0, as_large, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(small); i++) {
		small[i] = rig_create(r, 0, WORLD_HBM / 16 >> i);
		rig_hint(r, 0, small[i], i == 1);
	}
	rig_settle(r, 10);
	for (unsigned i = 0; i < ARRAY_SIZE(small); i++)
		ck_assert(rig_stands_at(r, small[i], i == 1));
	ck_assert_int_eq(word0_state(rig_word0(r, large)), STATE_ABSENT);
	/* It has waited for its room, and before the later one of its size. */
	rig_unpin(r, 0, kept, ACCESS_READ);
	rig_destroy(r, 0, kept);
	rig_settle(r, 10);
	ck_assert(rig_stands_at(r, large, 0));
	ck_assert_int_eq(word0_state(rig_word0(r, as_large)), STATE_ABSENT);
	rig_close(r);
}
END_TEST

/* Index and hint are free again: who gets the one is not refused the other. */
START_TEST(a_hint_that_waits_goes_with_its_tensor)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle kept = rig_create(r, 0, WORLD_HBM / 8 * 5);
	struct wire_handle large = rig_create(r, 0, WORLD_HBM / 2);
	struct wire_handle goes = rig_create(r, 0, WORLD_HBM / 2), small;

	rig_pin(r, 0, kept, 0, ACCESS_READ);
	rig_hint(r, 0, large, 0);
	rig_hint(r, 0, goes, 0);
	rig_settle(r, 10);
	rig_destroy(r, 0, goes);
	small = rig_create(r, 0, WORLD_HBM / 16);
	ck_assert_uint_eq(small.index, goes.index);
	rig_hint(r, 0, small, 0);
	rig_settle(r, 10);
	ck_assert(rig_stands_at(r, small, 0));
	rig_close(r);
}
END_TEST

START_TEST(the_place_that_was_hinted_last_counts)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 2, .nvme = 2 });
	struct wire_handle kept = rig_create(r, 0, WORLD_HBM / 8 * 5);
	struct wire_handle large = rig_create(r, 0, WORLD_HBM / 2);

	rig_pin(r, 0, kept, 0, ACCESS_READ);
	rig_hint(r, 0, large, 0);
	rig_settle(r, 10);
	rig_hint(r, 0, large, 1);
	rig_settle(r, 10);
	ck_assert(rig_stands_at(r, large, 1));
	rig_unpin(r, 0, kept, ACCESS_READ);
	rig_destroy(r, 0, kept);
	rig_settle(r, 10);
	ck_assert(rig_stands_at(r, large, 1)); /* nothing is left of the first */
	rig_close(r);
}
END_TEST

START_TEST(hints_of_destroyed_tensors_do_not_pile_up)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle fill[4];
	struct err err = ERR_INIT;

	for (unsigned i = 0; i < ARRAY_SIZE(fill); i++) {
		fill[i] = rig_create(r, 0, WORLD_HBM / 4);
		rig_pin(r, 0, fill[i], 0, ACCESS_READ);
	}
	for (unsigned i = 0; i < 1000; i++) {
		struct wire_handle t[2] = { rig_create(r, 0, WORLD_BLOCK),
					    rig_create(r, 0, WORLD_BLOCK) };

		ck_assert_int_eq(engine_prefetch(r->world.engine, r->client[0].holder, t, 2, 0,
						 r->world.now_ns, &err),
				 0);
		engine_check(r->world.engine); /* counts the hints */
		rig_destroy(r, 0, t[1]);
		if (i > 0)
			rig_destroy(r, 0, t[0]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(fill); i++)
		rig_unpin(r, 0, fill[i], ACCESS_READ);
	rig_close(r);
}
END_TEST

/* It takes a granule of room like any other, so it has to be known to whoever makes some. */
START_TEST(a_tensor_of_no_bytes_is_in_nobodys_way)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle none = rig_create(r, 0, 0), all = rig_create(r, 0, WORLD_HBM);

	rig_use(r, 0, &none, 1, 0, ACCESS_READ);
	ck_assert(rig_stands_at(r, none, 0));
	rig_use(r, 0, &all, 1, 0, ACCESS_READ);
	ck_assert(rig_stands_at(r, all, 0));
	rig_close(r);
}
END_TEST

/* Creates tensors that never go to nvme, as large as they come, until no more are admitted. */
static unsigned fill_with_small(struct rig *r)
{
	struct engine_spec spec = { .ndim = 1, .shape = { 4095 } };
	struct wire_handle t;
	struct err err = ERR_INIT;
	unsigned n = 0;

	while (engine_create_tensors(r->world.engine, r->client[0].holder, &spec, 1, &t,
				     r->world.now_ns, &err) == 0)
		n++;
	ck_assert_int_eq(err.code, -ENOSPC);
	return n;
}

START_TEST(small_tensors_leave_room_for_the_largest_that_dram_holds)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle big = rig_create(r, 0, WORLD_DRAM / 4);
	struct wire_handle bigger;

	ck_assert_uint_eq(fill_with_small(r), WORLD_DRAM / 4 * 3 / GRANULE);
	rig_acquire(r, 1, 1, big, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 100), 0);
	/* What dram has no room for beside them is large, and is told so at once. */
	bigger = rig_create(r, 0, WORLD_DRAM / 2);
	rig_acquire(r, 1, 2, bigger, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert(r->client[1].answered[2]);
	ck_assert_int_eq(r->client[1].result[2], -ENOSPC);
	/* Nor do hints bring it, whatever room there is just now: small ones may come. */
	rig_hint(r, 0, bigger, HOST);
	rig_settle(r, 100);
	ck_assert_int_eq(word0_state(rig_word0(r, bigger)), STATE_ABSENT);
	rig_close(r);
}
END_TEST

START_TEST(what_small_tensors_leave_no_room_for_is_refused)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t[2];

	for (unsigned i = 0; i < 2; i++)
		t[i] = rig_create(r, 0, WORLD_DRAM / 2 - WORLD_BLOCK);
	rig_pin(r, 1, t[0], HOST, ACCESS_READ);
	for (unsigned i = 0; i < 2; i++) {
		rig_acquire_all(r, 0, 1, t, 2, HOST, ACCESS_READ, ENGINE_NEVER);
		if (i == 0) {
			ck_assert_int_eq(rig_wait(r, 0, 1, 1000), 0);
			for (unsigned j = 0; j < 9; j++)
				rig_create(r, 0, 4095);
		}
	}
	ck_assert(r->client[0].answered[1]);
	ck_assert_int_eq(r->client[0].result[1], -ENOSPC);
	rig_unpin(r, 1, t[0], ACCESS_READ);
	rig_close(r);
}
END_TEST

static void wait_behind_a_copy(bool flushes)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle pinned = rig_create(r, 0, WORLD_DRAM / 4), big, batch[2];

	rig_pin(r, 0, pinned, HOST, ACCESS_READ);
	for (unsigned i = 0; i < 2; i++)
		batch[i] = rig_create(r, 0, WORLD_HBM / 2);
	memset(rig_pin(r, 0, batch[0], HOST, ACCESS_WRITE), 1, WORLD_HBM / 2);
	rig_unpin(r, 0, batch[0], ACCESS_WRITE);
	/* On its way to the gpu when the head of dram's queue comes; a batch behind that waits for
	 * the copy that it will leave, and for more. */
	rig_acquire(r, 0, 1, batch[0], 0, ACCESS_READ, ENGINE_NEVER);
	big = rig_create(r, 0, WORLD_DRAM / 2 + WORLD_BLOCK);
	rig_acquire(r, 1, 1, big, HOST, ACCESS_READ, ENGINE_NEVER);
	rig_acquire_all(r, 2, 1, batch, 2, HOST, ACCESS_READ, ENGINE_NEVER);
	/* A flush waits for the batch, and counts on no copy. */
	if (flushes)
		rig_flush_all(r, 0, 2, batch, 1);
	ck_assert(!r->client[1].answered[1] && !r->client[2].answered[1]);
	ck_assert_int_eq(rig_wait(r, 1, 1, 1000), 0);
	rig_unpin(r, 0, pinned, ACCESS_READ);
	rig_close(r);
}

START_TEST(a_copy_that_is_waited_for_is_in_nobodys_way)
{
	wait_behind_a_copy(false);
	wait_behind_a_copy(true);
}
END_TEST

/* Pieces of the tensor at `begin` that were read from hbm, by a mask of those seen in flight. */
static unsigned reads_seen(const struct rig *r, const char *begin, unsigned seen)
{
	const struct world_device *hbm = &r->world.devices[0];

	for (unsigned i = 0; i < r->world.flying; i++) {
		const struct xfer *x = r->world.flight[i].x;
		const char *at = hbm->memory + x->offset;

		if (r->world.flight[i].device == 0 && x->op == XFER_READ && at >= begin &&
		    at < begin + 5 * WORLD_BLOCK)
			seen |= 1u << ((at - begin) / WORLD_BLOCK);
	}
	return seen;
}

/* Else all of them would arrive at the end, and a disk would see as many streams. */
START_TEST(who_waits_for_staging_first_gets_all_it_needs_first)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t[3];
	unsigned seen[3] = { 0 }, whole = (1u << 5) - 1;
	char *at[3];

	for (unsigned i = 0; i < 3; i++) {
		t[i] = rig_create(r, 0, 5 * WORLD_BLOCK);
		at[i] = rig_pin(r, 0, t[i], 0, ACCESS_WRITE);
		rig_unpin(r, 0, t[i], ACCESS_WRITE);
	}
	rig_flush_all(r, 0, 1, t, 3);
	do {
		for (unsigned i = 0; i < 3; i++)
			seen[i] = reads_seen(r, at[i], seen[i]);
		ck_assert(seen[0] == whole || seen[1] == 0);
		ck_assert(seen[1] == whole || seen[2] == 0);
	} while (world_finish_one(&r->world));
	ck_assert_uint_eq(seen[2], whole);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	rig_close(r);
}
END_TEST

/* What was brought for it is held for 100 ms, until its first use. */
START_TEST(who_dies_before_its_first_use_holds_nothing)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t = rig_create_filled(r, 1, 'a');

	rig_acquire(r, 0, 1, t, 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 10), 0);
	rig_acquire(r, 1, 1, t, PROTOCOL_PLACE_HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), RIG_UNANSWERED);
	engine_holder_die(r->world.engine, r->client[0].holder, r->world.now_ns);
	ck_assert_int_eq(rig_wait(r, 1, 1, 10), 0);
	rig_rejoin(r, 0);
	rig_close(r);
}
END_TEST

UNIT_MAIN("rules", who_dies_before_its_first_use_holds_nothing,
	  a_copy_that_is_waited_for_is_in_nobodys_way,
	  what_small_tensors_leave_no_room_for_is_refused,
	  small_tensors_leave_room_for_the_largest_that_dram_holds,
	  who_will_not_wait_is_answered_at_once,
	  whoever_waits_for_a_destroyed_tensor_is_told_at_once,
	  what_is_asked_of_one_gpu_changes_nothing_at_the_other,
	  a_write_back_that_failed_once_is_tried_again_before_anybody_is_told,
	  who_comes_after_a_write_back_that_failed_waits_for_pins_as_ever,
	  a_write_back_that_fails_again_is_told,
	  who_has_waited_for_pins_is_not_told_of_a_write_back_that_failed_once,
	  each_write_back_that_failed_is_left_alone_for_a_second_of_its_own,
	  who_waits_for_pins_is_not_told_of_a_write_back_that_failed_elsewhere,
	  a_hint_without_room_is_in_nobodys_way_but_those_that_need_as_much,
	  a_hint_that_waits_goes_with_its_tensor, the_place_that_was_hinted_last_counts,
	  hints_of_destroyed_tensors_do_not_pile_up, a_tensor_of_no_bytes_is_in_nobodys_way,
	  who_waits_for_staging_first_gets_all_it_needs_first)

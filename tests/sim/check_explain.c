/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine tells people: why a tensor is where it is, who waits for what, what lanes and
 * tiers have had.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/sim/rig.h"

#define HOST PROTOCOL_PLACE_HOST

static struct {
	struct wire_explain x;
	struct wire_pin pins[RIG_CLIENTS];
} told;

static uint32_t explain(struct rig *r, struct wire_handle t)
{
	struct err err = ERR_INIT;
	int n = engine_explain(r->world.engine, t, &told, sizeof(told), r->world.now_ns, &err);

	ck_assert_int_eq(n, sizeof(told.x) + told.x.pins_listed * sizeof(told.pins[0]));
	ck_assert_uint_eq(told.x.index, t.index);
	return told.x.reasons;
}

/* All of them, by answers of `room` bytes; the first is kept in `ret`. */
static unsigned waits(struct rig *r, size_t room, struct wire_wait *ret)
{
	char answer[4096];
	uint64_t next = 0;
	unsigned n = 0;

	do {
		size_t bytes =
			engine_waits(r->world.engine, next, answer, room, r->world.now_ns, &next);

		for (size_t at = 0; at < bytes; n++) {
			struct wire_wait w;

			memcpy(&w, answer + at, sizeof(w));
			ck_assert_uint_ge(w.bytes, sizeof(w));
			at += w.bytes;
			ck_assert_uint_le(at, bytes);
			if (n == 0)
				*ret = w;
		}
	} while (next != 0);
	return n;
}

static void step(struct rig *r, unsigned client)
{
	engine_step(r->world.engine, r->client[client].holder, r->world.now_ns);
}

START_TEST(a_pin_is_told_with_its_process_and_its_age)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t = rig_create(r, 1, 3 * WORLD_BLOCK);

	ck_assert_uint_eq(explain(r, t) & (EXPLAIN_PINNED | EXPLAIN_UNWRITTEN | EXPLAIN_MAY_GO),
			  EXPLAIN_UNWRITTEN);
	ck_assert_uint_eq(told.x.device, 0xff);
	rig_pin(r, 1, t, HOST, ACCESS_WRITE);
	rig_pin(r, 1, t, HOST, ACCESS_READ);
	for (unsigned i = 0; i < 5; i++)
		step(r, 0);
	world_turn(&r->world, 7 * NS_PER_MS);
	ck_assert_uint_eq(explain(r, t) & (EXPLAIN_PINNED | EXPLAIN_MAY_GO), EXPLAIN_PINNED);
	ck_assert_uint_eq(told.x.pinners, 1);
	ck_assert_uint_eq(told.x.pins_listed, 1);
	ck_assert_uint_gt(told.pins[0].pid, 0);
	ck_assert_uint_eq(told.pins[0].pid, told.x.owner_pid);
	ck_assert_uint_eq(told.pins[0].pins, 2);
	ck_assert_uint_eq(told.pins[0].write_pins, 1);
	ck_assert_uint_eq(told.pins[0].written, 1);
	ck_assert_uint_eq(told.x.used_ago_steps, 5);
	ck_assert_uint_ge(told.x.used_ago_ns, 7 * NS_PER_MS);
	ck_assert_str_ne(told.x.policy, "");
	rig_unpin(r, 1, t, ACCESS_WRITE);
	rig_unpin(r, 1, t, ACCESS_READ);
	ck_assert_uint_eq(explain(r, t) & (EXPLAIN_PINNED | EXPLAIN_CLEAN), 0);
	rig_use(r, 1, &t, 1, HOST, ACCESS_READ);
	explain(r, t);
	ck_assert_uint_eq(told.x.used_ago_steps, 0);
	rig_destroy(r, 1, t);
	ck_assert_int_eq(
		engine_explain(r->world.engine, t, &told, sizeof(told), r->world.now_ns, NULL),
		-ESTALE);
	rig_close(r);
}
END_TEST

START_TEST(ranks_that_step_together_are_one_step)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t = rig_create_filled(r, 0, 'a');

	rig_use(r, 0, &t, 1, HOST, ACCESS_READ);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned client = 0; client < RIG_CLIENTS; client++)
			step(r, client);
	explain(r, t);
	ck_assert_uint_eq(told.x.used_ago_steps, 3);
	ck_assert_uint_eq(atomic_load(&r->world.stats->steps), 3 * RIG_CLIENTS);
	rig_close(r);
}
END_TEST

static struct wire_info stat_of(struct rig *r, struct wire_handle t)
{
	char answer[sizeof(struct wire_info) + 2 * PROTOCOL_NAME_MAX + 8];
	struct wire_info info;

	ck_assert_int_gt(engine_stat(r->world.engine, t, answer, sizeof(answer), NULL), 0);
	memcpy(&info, answer, sizeof(info));
	return info;
}

static void expect_stored(struct rig *r, struct wire_handle t, uint64_t dram, uint64_t nvme,
			  bool dirty)
{
	struct wire_info info = stat_of(r, t);

	ck_assert_uint_eq(info.stored_bytes[TIER_KIND_DRAM], dram);
	ck_assert_uint_eq(info.stored_bytes[TIER_KIND_NVME], nvme);
	ck_assert_uint_eq(info.dirty, dirty);
}

/* What a client wrote is told at once, and not at the engine's next look; what it only took to
 * overwrite is not there yet. */
START_TEST(what_was_just_written_is_stored_at_the_front_alone)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t = rig_create(r, 0, RIG_FILLED);
	const uint8_t access = ACCESS_WRITE | ACCESS_DISCARD;

	expect_stored(r, t, 0, 0, false);
	rig_acquire(r, 0, 4, t, HOST, access, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 4, 100), 0);
	ck_assert_uint_ne(word0_flags(rig_word0(r, t)) & FLAG_UNFILLED, 0);
	expect_stored(r, t, 0, 0, false);
	ck_assert_uint_ne(explain(r, t) & EXPLAIN_UNFILLED, 0);
	ck_assert_ptr_nonnull(rig_try(r, 0, t, HOST, access)); /* and says `filled` */
	expect_stored(r, t, RIG_FILLED, 0, true);
	ck_assert_uint_eq(explain(r, t) & (EXPLAIN_UNFILLED | EXPLAIN_UNWRITTEN | EXPLAIN_CLEAN),
			  0);
	rig_unpin(r, 0, t, access);
	expect_stored(r, t, RIG_FILLED, 0, true);
	ck_assert_int_eq(rig_flush(r, 0, t), 0);
	expect_stored(r, t, RIG_FILLED, RIG_FILLED, false);
	ck_assert_ptr_nonnull(rig_pin(r, 0, t, HOST, ACCESS_WRITE));
	expect_stored(r, t, RIG_FILLED, 0, true); /* what nvme has is old */
	rig_unpin(r, 0, t, ACCESS_WRITE);
	rig_close(r);
}
END_TEST

START_TEST(what_was_flushed_is_clean_and_what_was_hinted_goes_first)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t = rig_create_filled(r, 0, 'a');
	uint64_t before;

	ck_assert_uint_eq(explain(r, t) & (EXPLAIN_CLEAN | EXPLAIN_TOLD), 0);
	ck_assert_uint_ne(told.x.reasons & EXPLAIN_ROOM, 0);
	ck_assert_int_eq(rig_flush(r, 0, t), 0);
	rig_settle(r, 200); /* it is held for its asker no more */
	ck_assert_uint_eq(explain(r, t) & (EXPLAIN_CLEAN | EXPLAIN_MAY_GO),
			  EXPLAIN_CLEAN | EXPLAIN_MAY_GO);
	before = told.x.score;
	ck_assert_int_eq(
		engine_evict(r->world.engine, r->client[0].holder, &t, 1, r->world.now_ns, NULL),
		0);
	ck_assert_uint_ne(explain(r, t) & EXPLAIN_TOLD, 0);
	ck_assert_uint_gt(told.x.score, before);
	ck_assert_uint_gt(told.x.needed_in_ms, 3000000); /* an hour */
	rig_close(r);
}
END_TEST

START_TEST(who_waits_is_told_with_what_is_in_the_way)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t = rig_create_filled(r, 0, 'a');
	struct wire_wait w;

	ck_assert_uint_eq(waits(r, 4096, &w), 0);
	rig_pin(r, 0, t, HOST, ACCESS_READ);
	explain(r, t);
	rig_acquire(r, 1, 4, t, 0, ACCESS_READ, ENGINE_NEVER);
	rig_acquire(r, 2, 5, t, 0, ACCESS_READ, ENGINE_NEVER);
	world_turn(&r->world, 3 * NS_PER_MS);
	ck_assert_uint_eq(waits(r, 4096, &w), 2);
	ck_assert_uint_eq(w.reason, WAIT_FOR_PIN);
	ck_assert_uint_eq(w.blocker_pid, told.pins[0].pid);
	ck_assert_uint_eq(w.kind, WAIT_ACQUIRE);
	ck_assert_uint_eq(w.place, 0);
	ck_assert_uint_eq(w.device, 0);
	ck_assert_uint_eq(w.index, t.index);
	ck_assert_uint_eq(w.tensor_bytes, RIG_FILLED);
	ck_assert_uint_ge(w.since_ns, 3 * NS_PER_MS);
	/* One an answer: nobody is left out, nobody told twice. */
	ck_assert_uint_eq(waits(r, w.bytes, &w), 2);
	ck_assert_uint_eq(explain(r, t) & EXPLAIN_WANTED, EXPLAIN_WANTED);
	ck_assert_uint_eq(told.x.waiters, 2);
	rig_unpin(r, 0, t, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 1, 4, 100), 0);
	ck_assert_int_eq(rig_wait(r, 2, 5, 100), 0);
	ck_assert_uint_eq(waits(r, 4096, &w), 0);
	rig_close(r);
}
END_TEST

/* Of each tensor a slot of each client may be looked at. */
START_TEST(an_answer_is_short_however_many_clients_there_are)
{
	enum { MANY = 4096, TENSORS = 16 };
	static pin_slot nothing[WORLD_TENSORS];
	const struct holder_tables tables = { .pins = nothing };
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t[TENSORS];
	struct wire_wait first[4];
	struct err err = ERR_INIT;
	struct holder *more;
	uint64_t next;
	size_t bytes;

	for (unsigned i = 0; i < MANY; i++)
		ck_assert(engine_holder_add(r->world.engine, "a", 1, &tables, 1, NULL, &more,
					    &err) == 0);
	for (unsigned i = 0; i < TENSORS; i++) {
		t[i] = rig_create(r, 0, WORLD_BLOCK);
		rig_pin(r, 0, t[i], HOST, ACCESS_READ);
	}
	for (unsigned c = 1; c < RIG_CLIENTS; c++)
		rig_acquire_all(r, c, 4, t, TENSORS, 0, ACCESS_READ, ENGINE_NEVER);
	bytes = engine_waits(r->world.engine, 0, first, sizeof(first), r->world.now_ns, &next);
	ck_assert_uint_eq(bytes, first[0].bytes);
	ck_assert_uint_ne(next, 0);
	bytes = engine_waits(r->world.engine, next, first, sizeof(first), r->world.now_ns, &next);
	ck_assert_uint_eq(bytes, first[0].bytes);
	for (unsigned c = 1; c < RIG_CLIENTS; c++)
		engine_cancel(r->world.engine, r->client[c].holder, 4, r->world.now_ns);
	for (unsigned i = 0; i < TENSORS; i++)
		rig_unpin(r, 0, t[i], ACCESS_READ);
	rig_close(r);
}
END_TEST

START_TEST(who_flushes_waits_for_what_is_not_flushed_yet)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle clean = rig_create_filled(r, 0, 'a'), t;
	struct wire_wait w;

	ck_assert_int_eq(rig_flush(r, 0, clean), 0);
	t = rig_create_filled(r, 0, 'b');
	rig_flush_all(r, 0, 4, NULL, 0);
	ck_assert_uint_eq(waits(r, 4096, &w), 1);
	ck_assert_uint_eq(w.kind, WAIT_FLUSH);
	ck_assert_uint_eq(w.tensors, 1);
	ck_assert_uint_eq(w.index, t.index);
	ck_assert_int_eq(rig_wait(r, 0, 4, 100), 0);
	rig_close(r);
}
END_TEST

START_TEST(who_waits_for_room_says_so)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle a = rig_create(r, 0, WORLD_DRAM / 2),
			   b = rig_create(r, 1, WORLD_DRAM / 2);
	struct wire_handle c = rig_create(r, 2, WORLD_DRAM / 2);
	struct wire_wait w;

	rig_pin(r, 0, a, HOST, ACCESS_WRITE);
	rig_acquire(r, 1, 3, b, HOST, ACCESS_WRITE, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 3, 100), 0);
	ck_assert_ptr_nonnull(rig_try(r, 1, b, HOST, ACCESS_WRITE));
	rig_acquire(r, 2, 4, c, HOST, ACCESS_WRITE, ENGINE_NEVER);
	ck_assert_uint_eq(waits(r, 4096, &w), 1);
	ck_assert_uint_eq(w.reason, WAIT_FOR_ROOM);
	ck_assert_uint_gt(w.blocker_pid, 0);
	ck_assert_uint_eq(w.blocker_kib, WORLD_DRAM / 2 / 1024);
	rig_unpin(r, 1, b, ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 2, 4, 1000), 0);
	rig_close(r);
}
END_TEST

/* Of the GPU most is free or another's: what is in the way is its own namespace's. */
START_TEST(who_waits_for_its_quota_says_so_and_who_has_it)
{
	static const struct engine_quota quotas[] = {
		{ .name = "a",
		  .tier = { [TIER_KIND_HBM] = { 0, 4 * KIB(16) },
			    [TIER_KIND_DRAM] = { 0, UINT64_MAX },
			    [TIER_KIND_NVME] = { 0, UINT64_MAX } } },
	};
	struct rig *r = rig_open(
		(struct world_shape){ .hbm = 1, .nvme = 2, .quotas = quotas, .quota_count = 1 });
	struct wire_handle a[5], b[6];
	struct wire_wait w;
	uint32_t pid;

	for (unsigned i = 0; i < 6; i++) {
		b[i] = rig_create(r, 1, KIB(16));
		rig_pin(r, 1, b[i], 0, ACCESS_WRITE);
	}
	for (unsigned i = 0; i < 5; i++)
		a[i] = rig_create(r, 0, KIB(16));
	for (unsigned i = 0; i < 4; i++)
		rig_pin(r, 0, a[i], 0, ACCESS_WRITE);
	explain(r, a[0]);
	pid = told.pins[0].pid;
	rig_acquire(r, 0, 2, a[4], 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 20), RIG_UNANSWERED);
	ck_assert_uint_eq(waits(r, 4096, &w), 1);
	ck_assert_uint_eq(w.reason, WAIT_FOR_QUOTA);
	ck_assert_uint_eq(w.device, 0);
	ck_assert_uint_eq(w.blocker_pid, pid);
	ck_assert_uint_eq(w.blocker_kib, 4 * 16);
	rig_unpin(r, 0, a[0], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 2, 100), 0);
	for (unsigned i = 1; i < 4; i++)
		rig_unpin(r, 0, a[i], ACCESS_WRITE);
	for (unsigned i = 0; i < 6; i++)
		rig_unpin(r, 1, b[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

START_TEST(hints_of_another_user_are_refused)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t = rig_create_filled(r, 0, 'a'), both[2];
	static pin_slot pins[WORLD_TENSORS];
	struct holder_tables tables = { .pins = pins, .uid = 4711 };
	struct err err = ERR_INIT;
	struct holder *h;

	ck_assert_int_eq(
		engine_holder_add(r->world.engine, "else", 4, &tables, 99, &r->client[0], &h, &err),
		0);
	ck_assert_int_eq(engine_evict(r->world.engine, h, &t, 1, r->world.now_ns, &err), -EPERM);
	/* Nor does one that has gone hide it, whichever comes first. */
	for (unsigned i = 0; i < 2; i++) {
		both[i] = t;
		both[1 - i] = (struct wire_handle){ t.index, t.generation + 1 };
		ck_assert_int_eq(engine_evict(r->world.engine, h, both, 2, r->world.now_ns, &err),
				 -EPERM);
		ck_assert_ptr_nonnull(strstr(err.text, "is of uid"));
	}
	ck_assert_uint_eq(explain(r, t) & EXPLAIN_TOLD, 0);
	engine_holder_die(r->world.engine, h, r->world.now_ns);
	rig_close(r);
}
END_TEST

START_TEST(a_peak_keeps_what_was_there)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	const struct stats_page *p = r->world.stats;
	struct wire_handle t[3];
	uint64_t peak;

	for (unsigned i = 0; i < 3; i++)
		t[i] = rig_create_filled(r, 0, 'a');
	peak = atomic_load(&p->tier[TIER_KIND_DRAM].peak_bytes);
	ck_assert_uint_ge(peak, 3 * RIG_FILLED);
	ck_assert_uint_eq(atomic_load(&p->tier[TIER_KIND_DRAM].at_peak_bytes[0]), 3 * RIG_FILLED);
	ck_assert_uint_eq(atomic_load(&p->tier[TIER_KIND_DRAM].class_peak_bytes[0]),
			  3 * RIG_FILLED);
	for (unsigned i = 1; i < 3; i++)
		rig_destroy(r, 0, t[i]);
	rig_settle(r, 10);
	ck_assert_uint_eq(atomic_load(&p->tier[TIER_KIND_DRAM].peak_bytes), peak);
	r->world.now_ns += NS_PER_S; /* nobody asked for anything meanwhile */
	engine_mark(r->world.engine, r->world.now_ns);
	ck_assert_uint_eq(atomic_load(&p->tier[TIER_KIND_DRAM].peak_bytes), RIG_FILLED);
	ck_assert_uint_eq(atomic_load(&p->tier[TIER_KIND_DRAM].at_peak_bytes[0]), RIG_FILLED);
	ck_assert_uint_eq(atomic_load(&p->tier[TIER_KIND_DRAM].class_peak_bytes[0]), RIG_FILLED);
	ck_assert_uint_eq(atomic_load(&p->marked_at_ns), r->world.now_ns);
	rig_close(r);
}
END_TEST

START_TEST(lanes_count_what_they_carry)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	const struct stats_page *p = r->world.stats;
	struct wire_handle t = rig_create_filled(r, 0, 'a');

	rig_use(r, 0, &t, 1, 0, ACCESS_WRITE); /* device 0 is hbm, 1 dram, 2 nvme */
	ck_assert_uint_eq(atomic_load(&p->device[0].in_bytes), RIG_FILLED);
	ck_assert_int_eq(rig_flush(r, 0, t), 0);
	ck_assert_uint_eq(atomic_load(&p->device[0].out_bytes), RIG_FILLED);
	ck_assert_uint_eq(atomic_load(&p->device[2].in_bytes), RIG_FILLED);
	rig_settle(r, 10);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(atomic_load(&p->device[i].flight), 0);
		ck_assert_uint_eq(atomic_load(&p->device[i].flight_bytes), 0);
	}
	rig_close(r);
}
END_TEST

static uint64_t oldest_of(const struct rig *r, unsigned device)
{
	return atomic_load(&r->world.stats->device[device].oldest_ns);
}

/* Of device 0, hbm, 1, dram, and 2, nvme: what does not come back is seen, and for how long. */
START_TEST(what_is_long_out_is_told_with_its_lane)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle a = rig_create_filled(r, 0, 'a'), b = rig_create_filled(r, 0, 'b');
	uint64_t first_ns;

	rig_settle(r, 10);
	explain(r, a);
	ck_assert_uint_eq(told.x.out_device, 0xff);
	ck_assert_uint_eq(oldest_of(r, 0), 0);
	rig_acquire(r, 1, 4, a, 0, ACCESS_READ, ENGINE_NEVER);
	first_ns = r->world.now_ns;
	ck_assert_uint_eq(oldest_of(r, 0), first_ns);
	world_turn(&r->world, 3 * NS_PER_S);
	rig_acquire(r, 2, 5, b, 0, ACCESS_READ, ENGINE_NEVER);
	ck_assert_uint_eq(oldest_of(r, 0), first_ns);
	ck_assert_uint_eq(oldest_of(r, 2), 0);
	ck_assert_uint_ne(explain(r, a) & EXPLAIN_MOVING, 0);
	ck_assert_uint_eq(told.x.out_device, 0);
	ck_assert_uint_eq(told.x.out_ms, 3000);
	explain(r, b);
	ck_assert_uint_eq(told.x.out_device, 0);
	ck_assert_uint_eq(told.x.out_ms, 0);
	ck_assert_int_eq(rig_wait(r, 1, 4, 1000), 0);
	ck_assert_int_eq(rig_wait(r, 2, 5, 1000), 0);
	rig_settle(r, 10);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(oldest_of(r, i), 0);
	rig_close(r);
}
END_TEST

UNIT_MAIN("explain", a_pin_is_told_with_its_process_and_its_age,
	  ranks_that_step_together_are_one_step, what_was_just_written_is_stored_at_the_front_alone,
	  what_was_flushed_is_clean_and_what_was_hinted_goes_first,
	  who_waits_is_told_with_what_is_in_the_way,
	  an_answer_is_short_however_many_clients_there_are,
	  who_flushes_waits_for_what_is_not_flushed_yet, who_waits_for_room_says_so,
	  who_waits_for_its_quota_says_so_and_who_has_it, hints_of_another_user_are_refused,
	  a_peak_keeps_what_was_there, lanes_count_what_they_carry,
	  what_is_long_out_is_told_with_its_lane)

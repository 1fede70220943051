/* SPDX-License-Identifier: Apache-2.0
 *
 * What jobs leave behind goes turn by turn, beside those that come.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/sim/rig.h"

#define HOST PROTOCOL_PLACE_HOST

/* More than a turn ends. */
#define MANY 200u

static struct holder *join(struct rig *r, const char *name_space, pin_slot *pins)
{
	struct holder *h;
	struct err err = ERR_INIT;

	ck_assert_int_eq(engine_holder_add(r->world.engine, name_space, strlen(name_space),
					   &(struct holder_tables){ .pins = pins }, 200, NULL, &h,
					   &err),
			 0);
	return h;
}

static void create_some(struct rig *r, struct holder *h, unsigned n, bool named, uint64_t bytes)
{
	for (unsigned i = 0; i < n; i++) {
		char name[8];
		struct engine_spec spec = { .ndim = 1, .shape = { bytes } };
		struct wire_handle t;
		struct err err = ERR_INIT;
		int rc;

		spec.name_bytes = (size_t)snprintf(name, sizeof(name), "n%u", i);
		spec.name = named ? name : NULL;
		while ((rc = engine_create_tensors(r->world.engine, h, &spec, 1, &t,
						   r->world.now_ns, &err)) == -EAGAIN)
			world_turn(&r->world, NS_PER_MS);
		ck_assert_int_eq(rc, 0);
	}
}

static void create_many(struct rig *r, struct holder *h, bool named, uint64_t bytes)
{
	create_some(r, h, MANY, named, bytes);
}

START_TEST(what_the_dead_leave_behind_is_in_nobodys_way)
{
	static pin_slot pins[WORLD_TENSORS];
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
	const struct engine_spec all = { .ndim = 1, .shape = { WORLD_DRAM } };
	struct holder *h = join(r, "b", pins);
	struct err err = ERR_INIT;
	struct wire_handle t;

	/* The machine is dram alone, and the next tensor wants all of it. */
	create_many(r, h, false, GRANULE_SMALL);
	engine_holder_die(r->world.engine, h, r->world.now_ns);
	ck_assert_uint_gt(r->world.stats->tensors, 0);
	ck_assert_int_eq(engine_create_tensors(r->world.engine, r->client[0].holder, &all, 1, &t,
					       r->world.now_ns, &err),
			 -EAGAIN);
	ck_assert_uint_gt(r->world.stats->tensors, 0); /* nobody waits for all of them at once */
	rig_create(r, 0, WORLD_DRAM);
	ck_assert_uint_eq(r->world.stats->tensors, 1);
	rig_close(r);
}
END_TEST

START_TEST(a_namespace_that_has_lingered_ends_as_a_whole)
{
	static pin_slot pins[2][WORLD_TENSORS];
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct holder *h = join(r, "b", pins[0]);
	struct wire_handle t;
	struct err err = ERR_INIT;

	create_many(r, h, true, 0);
	engine_holder_die(r->world.engine, h, r->world.now_ns);
	world_turn(&r->world, NS_PER_MS);
	ck_assert_uint_eq(r->world.stats->tensors, MANY);
	world_turn(&r->world, NS_PER_S);
	ck_assert_uint_eq(r->world.stats->tensors, MANY - 64);
	h = join(r, "b", pins[1]);
	for (unsigned i = 0; i < MANY; i++) {
		char name[8];
		int n = snprintf(name, sizeof(name), "n%u", i);

		ck_assert_int_eq(engine_lookup(r->world.engine, h, name, (size_t)n, &t, &err),
				 -ENOENT);
	}
	/* What it makes is its own, though it has the names of what goes. */
	create_many(r, h, true, 0);
	rig_settle(r, 10);
	ck_assert_uint_eq(r->world.stats->tensors, MANY);
	ck_assert_int_eq(engine_lookup(r->world.engine, h, "n0", 2, &t, &err), 0);
	engine_holder_die(r->world.engine, h, r->world.now_ns);
	rig_close(r);
}
END_TEST

static bool finds(struct rig *r, struct holder *h, const char *name)
{
	struct wire_handle t;
	struct err err = ERR_INIT;

	return engine_lookup(r->world.engine, h, name, strlen(name), &t, &err) == 0;
}

/* Its last tensors are gone, but it is named yet by what others pin or have to be looked at for. */
START_TEST(all_clients_of_a_name_meet_whatever_has_ended_before)
{
	static pin_slot pins[3][WORLD_TENSORS];
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct holder *h = join(r, "b", pins[0]), *other;
	struct wire_handle doomed = rig_create(r, 0, GRANULE);

	rig_pin(r, 1, doomed, HOST, ACCESS_READ);
	rig_destroy(r, 0, doomed);
	create_many(r, h, true, 0);
	engine_holder_die(r->world.engine, h, r->world.now_ns);
	world_turn(&r->world, NS_PER_MS);
	world_turn(&r->world, NS_PER_S);
	h = join(r, "b", pins[1]);
	ck_assert(!finds(r, h, "n0"));
	rig_settle(r, 10);
	create_many(r, h, true, 0);
	other = join(r, "b", pins[2]);
	ck_assert(finds(r, other, "n0"));
	rig_unpin(r, 1, doomed, ACCESS_READ);
	engine_holder_die(r->world.engine, h, r->world.now_ns);
	engine_holder_die(r->world.engine, other, r->world.now_ns);
	rig_close(r);
}
END_TEST

static void pin_many(struct rig *r, struct wire_handle t[MANY])
{
	for (unsigned i = 0; i < MANY; i++) {
		t[i] = rig_create(r, 0, GRANULE_SMALL);
		rig_pin(r, 1, t[i], HOST, ACCESS_READ);
	}
}

START_TEST(what_is_destroyed_goes_though_more_and_more_is_destroyed)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
	struct wire_handle t[MANY];

	pin_many(r, t);
	for (unsigned i = 0; i < MANY; i++) {
		rig_destroy(r, 0, t[i]);
		rig_unpin(r, 1, t[i], ACCESS_READ);
		world_turn(&r->world, NS_PER_MS / 2);
	}
	ck_assert_uint_lt(r->world.stats->tensors, 10);
	rig_close(r);
}
END_TEST

/* Whoever pins what was destroyed may pin very much of it. */
START_TEST(what_is_pinned_and_destroyed_is_looked_at_bit_by_bit)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
	struct wire_handle t[MANY];
	uint64_t before, looks = 0;

	pin_many(r, t);
	for (unsigned i = 0; i < MANY; i++)
		rig_destroy(r, 0, t[i]);
	ck_assert_uint_eq(r->world.stats->tensors, MANY);
	for (unsigned i = 0; i < MANY; i++)
		rig_unpin(r, 1, t[i], ACCESS_READ);
	for (before = MANY; before > 0 && looks < 100; looks++) {
		world_turn(&r->world, NS_PER_MS);
		ck_assert_uint_le(before - r->world.stats->tensors, 64);
		before = r->world.stats->tensors;
		engine_check(r->world.engine);
	}
	ck_assert_uint_eq(before, 0);
	rig_close(r);
}
END_TEST

static int create_half(struct rig *r, struct err *err)
{
	const struct engine_spec spec = { .ndim = 1, .shape = { WORLD_DRAM / 2 } };
	struct wire_handle t;

	return engine_create_tensors(r->world.engine, r->client[0].holder, &spec, 1, &t,
				     r->world.now_ns, err);
}

/* Nothing more has room, and one dies of whom a tensor is on its way. */
static void die_with_one_on_its_way(struct rig *r)
{
	struct wire_handle moving = rig_create(r, 1, WORLD_DRAM / 2);
	struct err err = ERR_INIT;
	int rc;

	while ((rc = create_half(r, &err)) == 0)
		;
	ck_assert_int_eq(rc, -ENOSPC);
	rig_acquire(r, 1, 1, moving, HOST, ACCESS_WRITE, ENGINE_NEVER);
	engine_holder_die(r->world.engine, r->client[1].holder, r->world.now_ns);
	r->client[1].holder = NULL;
}

/* A job that was killed while much was on its way, and the one that is started in its place. */
START_TEST(what_was_on_its_way_when_its_owner_died_is_in_nobodys_way)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 2 });
	struct err err = ERR_INIT;
	int rc;

	die_with_one_on_its_way(r);
	while ((rc = create_half(r, &err)) == -EAGAIN)
		rig_settle(r, 1);
	ck_assert_msg(rc == 0, "%s", err.text);
	rig_close(r);
}
END_TEST

/* Its device ends nothing, and may never do. */
START_TEST(who_waits_for_what_is_on_its_way_is_told_in_the_end)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 2 });
	struct err err = ERR_INIT;

	die_with_one_on_its_way(r);
	for (unsigned i = 0; i < 9; i++) {
		ck_assert_int_eq(create_half(r, &err), -EAGAIN);
		world_turn(&r->world, NS_PER_S);
	}
	ck_assert_int_eq(create_half(r, &err), -EAGAIN);
	world_turn(&r->world, 2 * NS_PER_S);
	ck_assert_int_eq(create_half(r, &err), -ENOSPC);
	rig_settle(r, 1000);
	ck_assert_int_eq(create_half(r, &err), 0);
	rig_close(r);
}
END_TEST

/* It is doomed, and nobody has looked at it since. */
START_TEST(what_was_destroyed_and_let_go_is_in_nobodys_way)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
	const struct engine_spec all = { .ndim = 1, .shape = { WORLD_DRAM } };
	struct wire_handle kept = rig_create(r, 0, GRANULE_SMALL), t;
	struct err err = ERR_INIT;
	int rc;

	rig_pin(r, 1, kept, HOST, ACCESS_READ);
	rig_destroy(r, 0, kept);
	rig_settle(r, 1000);
	/* It is pinned: he is told, and soon. */
	while ((rc = engine_create_tensors(r->world.engine, r->client[0].holder, &all, 1, &t,
					   r->world.now_ns, &err)) == -EAGAIN)
		world_turn(&r->world, 0);
	ck_assert_int_eq(rc, -ENOSPC);
	rig_settle(r, 1000);
	rig_unpin(r, 1, kept, ACCESS_READ);
	while ((rc = engine_create_tensors(r->world.engine, r->client[0].holder, &all, 1, &t,
					   r->world.now_ns, &err)) == -EAGAIN)
		world_turn(&r->world, 0);
	ck_assert_msg(rc == 0, "%s", err.text);
	rig_close(r);
}
END_TEST

#define TOO_MANY 66u /* a turn looks at 64 */

static void destroy_pinned(struct rig *r, struct wire_handle t[TOO_MANY])
{
	for (unsigned i = 0; i < TOO_MANY; i++) {
		t[i] = rig_create(r, 0, GRANULE_SMALL);
		rig_pin(r, 1, t[i], HOST, ACCESS_WRITE);
		rig_destroy(r, 0, t[i]);
	}
}

/* They come faster than they are looked at. */
START_TEST(what_was_let_go_is_looked_at_though_more_is_destroyed_than_a_turn_looks_at)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
	struct wire_handle first[TOO_MANY], more[TOO_MANY];

	destroy_pinned(r, first);
	world_turn(&r->world, NS_PER_MS);
	rig_let_go(r, 1, first, TOO_MANY);
	for (unsigned i = 0; i < 20; i++) {
		destroy_pinned(r, more);
		rig_let_go(r, 1, more, TOO_MANY);
		world_turn(&r->world, NS_PER_MS);
	}
	ck_assert_uint_ne(word0_generation(rig_word0(r, first[0])), first[0].generation);
	rig_close(r);
}
END_TEST

/* Each beginning before the one before has ended. */
START_TEST(a_create_waits_only_for_what_had_ended_before_it)
{
	static pin_slot pins[2][WORLD_TENSORS];
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
	const struct engine_spec too_much = { .ndim = 1, .shape = { WORLD_DRAM + 1 } };
	struct holder *h = join(r, "b", pins[0]), *next;
	struct err err = ERR_INIT;
	struct wire_handle t;
	int rc = -EAGAIN;

	create_some(r, h, 100, false, 0);
	for (unsigned job = 0; job < 20 && rc == -EAGAIN; job++) {
		next = join(r, "b", pins[(job + 1) % 2]);
		create_some(r, next, 100, false, 0);
		engine_holder_die(r->world.engine, h, r->world.now_ns);
		h = next;
		rc = engine_create_tensors(r->world.engine, r->client[0].holder, &too_much, 1, &t,
					   r->world.now_ns, &err);
		world_turn(&r->world, 1);
	}
	ck_assert_int_eq(rc, -ENOSPC);
	engine_holder_die(r->world.engine, h, r->world.now_ns);
	rig_close(r);
}
END_TEST

START_TEST(empty_namespaces_do_not_pile_up)
{
	static pin_slot pins[WORLD_TENSORS];
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });
	struct wire_handle doomed = rig_create(r, 0, GRANULE);

	rig_pin(r, 1, doomed, HOST, ACCESS_READ); /* another one's, and as long as it likes */
	rig_destroy(r, 0, doomed);
	/* More than there can be at once, in less time than one lingers. */
	for (unsigned i = 0; i < 70000; i++) {
		char name[8];

		snprintf(name, sizeof(name), "b%u", i);
		engine_holder_die(r->world.engine, join(r, name, pins), r->world.now_ns);
		world_turn(&r->world, 1);
	}
	rig_unpin(r, 1, doomed, ACCESS_READ);
	rig_close(r);
}
END_TEST

/* As many as go in a turn are not those of each. */
START_TEST(namespaces_that_end_together_take_turns)
{
	static pin_slot pins[WORLD_TENSORS];
	struct rig *r = rig_open((struct world_shape){ .hbm = 0, .nvme = 0 });

	for (unsigned i = 0; i < MANY / 2; i++) {
		char name[8];
		struct holder *h;

		snprintf(name, sizeof(name), "b%u", i);
		h = join(r, name, pins);
		create_some(r, h, 2, true, 0);
		engine_holder_die(r->world.engine, h, r->world.now_ns);
	}
	world_turn(&r->world, NS_PER_MS);
	ck_assert_uint_eq(r->world.stats->tensors, MANY);
	for (unsigned left = MANY; left > 0;) {
		unsigned now;

		world_turn(&r->world, left == MANY ? NS_PER_S : 1);
		now = (unsigned)r->world.stats->tensors;
		ck_assert_uint_lt(now, left);
		ck_assert_uint_le(left - now, 64);
		left = now;
	}
	rig_close(r);
}
END_TEST

UNIT_MAIN("ends", what_the_dead_leave_behind_is_in_nobodys_way,
	  a_namespace_that_has_lingered_ends_as_a_whole,
	  all_clients_of_a_name_meet_whatever_has_ended_before,
	  what_is_destroyed_goes_though_more_and_more_is_destroyed,
	  what_is_pinned_and_destroyed_is_looked_at_bit_by_bit,
	  what_was_on_its_way_when_its_owner_died_is_in_nobodys_way,
	  who_waits_for_what_is_on_its_way_is_told_in_the_end,
	  what_was_destroyed_and_let_go_is_in_nobodys_way,
	  what_was_let_go_is_looked_at_though_more_is_destroyed_than_a_turn_looks_at,
	  a_create_waits_only_for_what_had_ended_before_it, empty_namespaces_do_not_pile_up,
	  namespaces_that_end_together_take_turns)

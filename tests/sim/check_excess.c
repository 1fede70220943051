/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins that keep others from what is theirs, for too long: the engine names the client that has
 * most of them, and nobody who keeps within what is his. The clients of the rig are of 'a', 'b' and
 * 'c'; hbm has 16 units.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "daemon/engine/quota.h"
#include "tests/sim/rig.h"
#include "tests/sim/units.h"

#define NEVER    ENGINE_NEVER
#define GPU      0
#define HOST     PROTOCOL_PLACE_HOST
#define PATIENCE 80u /* ms; it is looked at eight times as often */
#define SOON     (PATIENCE / 2)
#define LATE     (PATIENCE * 3 / 2)

static struct rig *open_rig(const struct engine_quota *quotas, unsigned n)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1,
						       .nvme = 2,
						       .quotas = quotas,
						       .quota_count = n,
						       .excess_ns = PATIENCE * NS_PER_MS });

	return r;
}

static void pin_units(struct rig *r, unsigned owner, unsigned client, struct wire_handle *t,
		      size_t n)
{
	rig_hold(r, owner, client, UNIT, GPU, t, n);
}

/* By request 2, together. */
static void want_at(struct rig *r, unsigned client, unsigned units, uint8_t place,
		    uint64_t timeout_ns)
{
	struct wire_handle t[16];

	for (unsigned i = 0; i < units; i++)
		t[i] = rig_create(r, client, UNIT);
	rig_acquire_all(r, client, 2, t, units, place, ACCESS_READ, timeout_ns);
}

static void want(struct rig *r, unsigned client, unsigned units)
{
	want_at(r, client, units, GPU, NEVER);
}

static void expect_excesses(const struct rig *r, unsigned a, unsigned b, unsigned c)
{
	ck_assert_uint_eq(r->client[0].excesses, a);
	ck_assert_uint_eq(r->client[1].excesses, b);
	ck_assert_uint_eq(r->client[2].excesses, c);
	ck_assert_uint_eq(r->world.stats->excesses, a + b + c);
}

/* a has borrowed what b did not use, and does not give it back. */
START_TEST(who_keeps_another_from_his_guarantee_is_named)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle t[12];

	pin_units(r, 0, 0, t, 12);
	rig_settle(r, LATE);
	want(r, 1, 6);
	ck_assert_int_eq(rig_wait(r, 1, 2, SOON), RIG_UNANSWERED);
	expect_excesses(r, 0, 0, 0);
	ck_assert_int_eq(rig_wait(r, 1, 2, LATE), RIG_UNANSWERED);
	expect_excesses(r, 1, 0, 0);
	ck_assert_ptr_nonnull(strstr(r->client[0].excess, "196608 bytes of hbm0"));
	ck_assert_ptr_nonnull(strstr(r->client[0].excess,
				     "all of namespaces[0] ('a'), whose guarantee of 131072"));
	ck_assert_ptr_nonnull(strstr(r->client[0].excess, "while process 101 waits"));
	/* Served no more, it lives, and what it has pinned stays. It is not named again. */
	engine_holder_stop(r->world.engine, r->client[0].holder);
	ck_assert_int_eq(rig_wait(r, 1, 2, 4 * PATIENCE), RIG_UNANSWERED);
	for (unsigned i = 0; i < 12; i++)
		ck_assert(rig_stands_at(r, t[i], GPU));
	expect_excesses(r, 1, 0, 0);
	engine_holder_die(r->world.engine, r->client[0].holder, r->world.now_ns);
	r->client[0].holder = NULL;
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	rig_close(r);
}
END_TEST

START_TEST(who_lets_go_in_time_is_not)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle t[12];

	pin_units(r, 0, 0, t, 12);
	want(r, 1, 6);
	ck_assert_int_eq(rig_wait(r, 1, 2, SOON), RIG_UNANSWERED);
	rig_let_go(r, 0, t, 4);
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	rig_settle(r, 4 * PATIENCE);
	expect_excesses(r, 0, 0, 0);
	rig_let_go(r, 0, t + 4, 8);
	rig_close(r);
}
END_TEST

/* Time begins anew when nobody has waited for a while. */
START_TEST(each_wait_has_its_own_patience)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle t[12];

	pin_units(r, 0, 0, t, 12);
	for (unsigned round = 0; round < 4; round++) {
		want_at(r, 1, 6, GPU, SOON * NS_PER_MS);
		ck_assert_int_eq(rig_wait(r, 1, 2, PATIENCE), -ETIMEDOUT);
		rig_settle(r, SOON);
	}
	expect_excesses(r, 0, 0, 0);
	rig_let_go(r, 0, t, 12);
	rig_close(r);
}
END_TEST

/* What all of b's is guaranteed for stands there, but others have it in hand. */
START_TEST(pins_on_what_is_anothers_are_the_pinners)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle a[8], b[8];

	pin_units(r, 0, 0, a, 8);
	pin_units(r, 1, 2, b, 8);
	want(r, 1, 1);
	ck_assert_int_eq(rig_wait(r, 1, 2, LATE), RIG_UNANSWERED);
	expect_excesses(r, 0, 0, 1);
	ck_assert_ptr_nonnull(strstr(r->client[2].excess, "namespaces without a row"));
	rig_let_go(r, 2, b, 1);
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	rig_let_go(r, 2, b + 1, 7);
	rig_let_go(r, 0, a, 8);
	rig_close(r);
}
END_TEST

START_TEST(nobody_is_named_for_who_wants_more_than_is_his)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle a[8], b[8];

	/* Both have what they are guaranteed, in hand. */
	pin_units(r, 0, 0, a, 8);
	pin_units(r, 1, 1, b, 8);
	want(r, 0, 1);
	want(r, 1, 1);
	ck_assert_int_eq(rig_wait(r, 1, 2, 4 * PATIENCE), RIG_UNANSWERED);
	expect_excesses(r, 0, 0, 0);
	rig_let_go(r, 1, b, 8);
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	rig_let_go(r, 0, a, 8);
	rig_close(r);
}
END_TEST

/* A namespace may fill its limit with its own and then hold what is others'. */
START_TEST(who_is_above_its_limit_is_named_when_anybody_waits)
{
	struct rig *r = open_rig(limited, 1);
	struct wire_handle a[4], b[12];

	pin_units(r, 0, 0, a, 4);
	pin_units(r, 1, 0, b, 12);
	rig_settle(r, LATE);
	expect_excesses(r, 0, 0, 0);
	want(r, 2, 1);
	ck_assert_int_eq(rig_wait(r, 2, 2, LATE), RIG_UNANSWERED);
	expect_excesses(r, 1, 0, 0);
	ck_assert_ptr_nonnull(strstr(r->client[0].excess, "whose limit of 65536"));
	rig_let_go(r, 0, b, 12);
	ck_assert_int_eq(rig_wait(r, 2, 2, 50), 0);
	rig_let_go(r, 0, a, 4);
	rig_close(r);
}
END_TEST

/* Those of no row have no guarantee; the others are within theirs, together with what they hold of
 * the same tensors. */
START_TEST(the_one_that_holds_most_of_the_worst_is_named_first)
{
	static const struct engine_quota q[] = {
		{ .name = "a", .tier = HBM(4 * UNIT, ALL) },
		{ .name = "b", .tier = HBM(6 * UNIT, ALL) },
		{ .name = "c", .tier = HBM(1 * UNIT, ALL) },
	};
	struct rig *r = open_rig(q, 3);
	struct wire_handle a[5], c[8];

	pin_units(r, 0, 0, a, 5); /* one more than it is guaranteed */
	pin_units(r, 2, 2, c, 8); /* seven more */
	rig_pin(r, 2, a[0], GPU, ACCESS_WRITE);
	want(r, 1, 6);
	ck_assert_int_eq(rig_wait(r, 1, 2, LATE), RIG_UNANSWERED);
	expect_excesses(r, 0, 0, 1);
	rig_let_go(r, 2, c, 8);
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	rig_unpin(r, 2, a[0], ACCESS_WRITE);
	rig_let_go(r, 0, a, 5);
	rig_close(r);
}
END_TEST

/* The second is named when the first, who lives on, has had as long again to end. */
START_TEST(clients_of_a_namespace_are_named_one_after_the_other)
{
	static const struct engine_quota q[] = {
		{ .name = "b", .tier = HBM(12 * UNIT, ALL) },
	};
	struct rig *r = open_rig(q, 1);
	struct wire_handle a[6], c[5];

	pin_units(r, 0, 0, a, 6);
	pin_units(r, 2, 2, c, 5);
	want(r, 1, 12);
	ck_assert_int_eq(rig_wait(r, 1, 2, LATE), RIG_UNANSWERED);
	expect_excesses(r, 1, 0, 0);
	engine_holder_stop(r->world.engine, r->client[0].holder);
	ck_assert_int_eq(rig_wait(r, 1, 2, PATIENCE), RIG_UNANSWERED);
	expect_excesses(r, 1, 0, 1);
	rig_let_go(r, 2, c, 5);
	ck_assert_int_eq(rig_wait(r, 1, 2, 2 * PATIENCE), RIG_UNANSWERED);
	rig_let_go(r, 0, a, 2);
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	expect_excesses(r, 1, 0, 1);
	rig_let_go(r, 0, a + 2, 4);
	rig_close(r);
}
END_TEST

#define DRAM(guarantee)                                                        \
	{                                                                      \
		[TIER_KIND_HBM] = FREE, [TIER_KIND_DRAM] = { guarantee, ALL }, \
		[TIER_KIND_NVME] = FREE                                        \
	}

/* Small tensors stay in dram whoever pins them: a could give nothing, though it has most. */
START_TEST(what_stays_anyhow_counts_for_nobody)
{
	static const struct engine_quota q[] = {
		{ .name = "b", .tier = DRAM(14 * UNIT) },
		{ .name = "c", .tier = DRAM(12 * UNIT) },
	};
	struct rig *r = open_rig(q, 2);
	struct wire_handle small[16], b[5], c[15];

	for (unsigned i = 0; i < 16; i++) {
		small[i] = rig_create(r, 0, 3584);
		rig_pin(r, 0, small[i], HOST, ACCESS_WRITE);
	}
	rig_hold(r, 1, 1, UNIT, HOST, b, 5);
	rig_hold(r, 2, 2, UNIT, HOST, c, 15);
	want_at(r, 1, 9, HOST, NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 2, LATE), RIG_UNANSWERED);
	expect_excesses(r, 0, 0, 1);
	ck_assert_ptr_nonnull(strstr(r->client[2].excess, "245760 bytes of dram0"));
	rig_let_go(r, 2, c, 15);
	ck_assert_int_eq(rig_wait(r, 1, 2, 200), 0);
	rig_let_go(r, 0, small, 16);
	rig_let_go(r, 1, b, 5);
	rig_close(r);
}
END_TEST

/* Of many clients a look takes long, and is taken more rarely. */
START_TEST(looks_take_a_small_part_of_the_time)
{
	static pin_slot none[WORLD_TENSORS];
	struct rig *r = open_rig(halves, 2);
	struct holder *other[4000];
	struct wire_handle t[60];
	struct err err = ERR_INIT;

	for (unsigned i = 0; i < ARRAY_SIZE(other); i++)
		ck_assert_int_eq(engine_holder_add(r->world.engine, "a", 1,
						   &(struct holder_tables){ .pins = none }, 1,
						   &r->client[2], &other[i], &err),
				 0);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		t[i] = rig_create(r, 0, KIB(4));
		rig_pin(r, 0, t[i], GPU, ACCESS_WRITE);
	}
	want(r, 1, 6);
	ck_assert_int_eq(rig_wait(r, 1, 2, 2 * PATIENCE), RIG_UNANSWERED);
	expect_excesses(r, 1, 0, 0);
	/* Twenty times 5 ns a slot. */
	ck_assert_uint_ge(r->world.engine->excess_rest_ns, 100 * ARRAY_SIZE(t) * ARRAY_SIZE(other));
	rig_let_go(r, 0, t, ARRAY_SIZE(t));
	for (unsigned i = 0; i < ARRAY_SIZE(other); i++)
		engine_holder_die(r->world.engine, other[i], r->world.now_ns);
	ck_assert_int_eq(rig_wait(r, 1, 2, 50), 0);
	rig_close(r);
}
END_TEST

/* ---- by chance ---- */

#define TENSORS 14u /* a client */

static const struct engine_quota thirds[] = {
	{ .name = "a", .tier = HBM(6 * UNIT, ALL) },
	{ .name = "b", .tier = HBM(6 * UNIT, ALL) },
	{ .name = "c", .tier = HBM(3 * UNIT, ALL) },
};
static const unsigned guarantee[RIG_CLIENTS] = { 6, 6, 3 };

/* It pins more and more, and seldom lets go. */
struct actor {
	struct wire_handle t[TENSORS];
	bool pinned[TENSORS];
	unsigned pins, asks, excesses, waited_ms;
	bool waits, within;
};

static void actor_enter(struct rig *r, unsigned c, struct actor *a)
{
	*a = (struct actor){ .excesses = r->client[c].excesses };
	for (unsigned i = 0; i < TENSORS; i++)
		a->t[i] = rig_create(r, c, UNIT);
}

static bool asks_for(const struct actor *a, unsigned i)
{
	return !a->pinned[i] && (a->asks >> i & 1) != 0;
}

static void actor_ask(struct rig *r, unsigned c, struct actor *a)
{
	struct wire_handle t[TENSORS];
	size_t n = 0;

	a->asks = (unsigned)world_random(&r->world) & (unsigned)world_random(&r->world);
	for (unsigned i = 0; i < TENSORS; i++)
		if (asks_for(a, i))
			t[n++] = a->t[i];
	/* More than is sure is refused. */
	if (n == 0 || n > guarantee[c])
		return;
	a->waits = true;
	a->waited_ms = 0;
	a->within = a->pins + n <= guarantee[c];
	rig_acquire_all(r, c, 2, t, n, GPU, ACCESS_READ, NEVER);
}

static void actor_act(struct rig *r, unsigned c, struct actor *a)
{
	if (a->waits && r->client[c].answered[2]) {
		ck_assert_int_eq(r->client[c].result[2], 0);
		a->waits = false;
		for (unsigned i = 0; i < TENSORS; i++) {
			if (!asks_for(a, i))
				continue;
			a->pinned[i] = rig_try(r, c, a->t[i], GPU, ACCESS_READ) != NULL;
			a->pins += a->pinned[i];
		}
	} else if (!a->waits && world_below(&r->world, 40) == 0) {
		for (unsigned i = 0; i < TENSORS; i++)
			if (a->pinned[i])
				rig_unpin(r, c, a->t[i], ACCESS_READ);
		memset(a->pinned, 0, sizeof(a->pinned));
		a->pins = 0;
	} else if (!a->waits) {
		actor_ask(r, c, a);
	}
}

/* Whoever is named has more than its guarantee, and another waits for what is his. It ends. */
static void end_named(struct rig *r, struct actor *all)
{
	for (unsigned c = 0; c < RIG_CLIENTS; c++) {
		bool waited = false;

		if (r->client[c].excesses == all[c].excesses)
			continue;
		for (unsigned i = 0; i < RIG_CLIENTS; i++)
			waited |= i != c && all[i].waits && all[i].within;
		ck_assert(waited);
		ck_assert_uint_gt(all[c].pins, guarantee[c]);
		engine_holder_die(r->world.engine, r->client[c].holder, r->world.now_ns);
		rig_settle(r, 20);
		memset(r->client[c].pins, 0, sizeof(r->client[c].pins));
		rig_rejoin(r, c);
		actor_enter(r, c, &all[c]);
	}
}

static void step_by_chance(struct rig *r, struct actor *all)
{
	unsigned c = (unsigned)world_below(&r->world, RIG_CLIENTS);

	actor_act(r, c, &all[c]);
	if (!world_finish_one(&r->world)) {
		world_turn(&r->world, NS_PER_MS);
		for (unsigned i = 0; i < RIG_CLIENTS; i++)
			all[i].waited_ms += all[i].waits && !r->client[i].answered[2];
	}
	engine_check(r->world.engine);
	end_named(r, all);
}

START_TEST(who_keeps_within_his_guarantee_is_served_when_those_that_are_named_end)
{
	struct actor all[RIG_CLIENTS];
	uint64_t named = 0;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct rig *r = open_rig(thirds, 3);

		r->world.random = seed * 2 + 1;
		for (unsigned c = 0; c < RIG_CLIENTS; c++)
			actor_enter(r, c, &all[c]);
		for (unsigned step = 0; step < 4000; step++) {
			step_by_chance(r, all);
			/* Two may be above, one after the other. */
			for (unsigned c = 0; c < RIG_CLIENTS; c++)
				ck_assert_msg(!all[c].within || all[c].waited_ms < 3 * PATIENCE,
					      "seed %u, step %u: %u is not served", (unsigned)seed,
					      step, c);
		}
		named += r->world.stats->excesses;
		for (unsigned c = 0; c < RIG_CLIENTS; c++)
			memset(r->client[c].pins, 0, sizeof(r->client[c].pins));
		rig_close(r);
	}
	ck_assert_uint_gt(named, 20);
}
END_TEST

UNIT_MAIN("excess", who_keeps_another_from_his_guarantee_is_named, who_lets_go_in_time_is_not,
	  each_wait_has_its_own_patience, pins_on_what_is_anothers_are_the_pinners,
	  nobody_is_named_for_who_wants_more_than_is_his,
	  who_is_above_its_limit_is_named_when_anybody_waits,
	  the_one_that_holds_most_of_the_worst_is_named_first,
	  clients_of_a_namespace_are_named_one_after_the_other, what_stays_anyhow_counts_for_nobody,
	  looks_take_a_small_part_of_the_time,
	  who_keeps_within_his_guarantee_is_served_when_those_that_are_named_end)

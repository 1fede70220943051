/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that wait for pins of each other, or of their own: the last of them is told, and nobody
 * who could be served by somebody that does not wait.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine/state.h"
#include "tests/sim/rig.h"

#define UNIT  KIB(16)
#define UNITS 16u /* of the GPU */
#define GPU   0
#define HOST  PROTOCOL_PLACE_HOST
#define LONG  60 /* ms */

/* A client per half, third or all of the GPU, pinned. */
struct held {
	struct rig *r;
	struct wire_handle t[RIG_CLIENTS][UNITS];
	unsigned n;
};

static void hold(struct held *x, struct world_shape shape, unsigned clients, unsigned threads)
{
	x->r = rig_open(shape);
	x->n = UNITS / clients;
	for (unsigned c = 0; c < clients; c++) {
		rig_threads(x->r, c, threads);
		rig_hold(x->r, c, c, UNIT, GPU, x->t[c], x->n);
	}
}

static void let_go(struct held *x, unsigned client)
{
	rig_let_go(x->r, client, x->t[client], x->n);
}

static const struct world_shape one_gpu = { .hbm = 1, .nvme = 2 };

static void want(struct held *x, unsigned client, uint32_t id, uint64_t bytes, uint8_t place)
{
	rig_acquire(x->r, client, id, rig_create(x->r, client, bytes), place, ACCESS_READ,
		    ENGINE_NEVER);
}

START_TEST(the_later_of_two_that_hold_all_and_want_more_is_told)
{
	struct held x;

	hold(&x, one_gpu, 2, 1);
	want(&x, 0, 2, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), RIG_UNANSWERED);
	want(&x, 1, 2, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 5), -EDEADLK);
	ck_assert_ptr_nonnull(strstr(x.r->client[1].text[2], "hbm0"));
	ck_assert_ptr_nonnull(strstr(x.r->client[1].text[2], "2 clients"));
	ck_assert_uint_eq(x.r->world.stats->deadlocks, 1);
	/* The other goes on, as soon as the one that was told does as it should. */
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), RIG_UNANSWERED);
	let_go(&x, 1);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), 0);
	let_go(&x, 0);
	rig_close(x.r);
}
END_TEST

START_TEST(whoever_holds_all_of_it_alone_is_told_at_once)
{
	struct held x;
	struct wire_handle batch[2];

	hold(&x, one_gpu, 1, 1);
	want(&x, 0, 2, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, 5), -EDEADLK);
	ck_assert_ptr_nonnull(strstr(x.r->client[0].text[2], "this client alone"));
	for (unsigned i = 0; i < 2; i++)
		batch[i] = rig_create(x.r, 0, UNIT);
	rig_acquire_on(x.r, 0, 3, batch, 2, GPU, ACCESS_READ);
	ck_assert_int_eq(rig_wait(x.r, 0, 3, 5), -EDEADLK);
	/* One of them goes by a stream that is not there yet: that is worth waiting for. */
	rig_defer(x.r, 0, 0, x.t[0][0], ACCESS_WRITE, 7);
	want(&x, 0, 4, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 4, LONG), RIG_UNANSWERED);
	rig_reach(x.r, 0, 0, 7);
	ck_assert_int_eq(rig_wait(x.r, 0, 4, LONG), 0);
	for (unsigned i = 1; i < UNITS; i++)
		rig_unpin(x.r, 0, x.t[0][i], ACCESS_WRITE);
	rig_close(x.r);
}
END_TEST

START_TEST(nobody_is_told_while_one_that_holds_some_does_not_wait)
{
	struct held x;

	hold(&x, one_gpu, 2, 1);
	for (unsigned i = 1; i < x.n; i++)
		rig_unpin(x.r, 1, x.t[1][i], ACCESS_WRITE);
	/* The second keeps one pin and computes. */
	want(&x, 0, 2, 8 * UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), RIG_UNANSWERED);
	rig_unpin(x.r, 1, x.t[1][0], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), 0);
	let_go(&x, 0);
	rig_close(x.r);
}
END_TEST

START_TEST(nobody_is_told_while_another_thread_of_it_may_let_go)
{
	struct held x;

	hold(&x, one_gpu, 1, 2);
	want(&x, 0, 2, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), RIG_UNANSWERED);
	/* Now the other waits, too. */
	want(&x, 0, 3, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 3, 5), -EDEADLK);
	ck_assert(!x.r->client[0].answered[2]);
	rig_unpin(x.r, 0, x.t[0][0], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), 0);
	for (unsigned i = 1; i < UNITS; i++)
		rig_unpin(x.r, 0, x.t[0][i], ACCESS_WRITE);
	rig_close(x.r);
}
END_TEST

/* More threads than have logs may be anywhere. */
START_TEST(nobody_is_told_where_threads_are_not_counted)
{
	struct held x;

	hold(&x, one_gpu, 1, RIG_LOGS);
	for (uint32_t i = 0; i < RIG_LOGS; i++)
		want(&x, 0, 2 + i, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), RIG_UNANSWERED);
	let_go(&x, 0);
	for (uint32_t i = 0; i < RIG_LOGS; i++)
		ck_assert_int_eq(rig_wait(x.r, 0, 2 + i, LONG), 0);
	rig_close(x.r);
}
END_TEST

/* a holds the GPU and waits for dram, which b and c hold; b waits for the GPU, c for dram. */
START_TEST(three_in_a_ring_over_two_tiers_are_told_once)
{
	struct held x;
	struct wire_handle d[2][8];
	struct rig *r;

	hold(&x, (struct world_shape){ .hbm = 1, .nvme = 2 }, 1, 1);
	r = x.r;
	for (unsigned c = 0; c < 2; c++) {
		rig_threads(r, 1 + c, 1);
		for (unsigned i = 0; i < 8; i++) {
			d[c][i] = rig_create(r, 1 + c, 2 * UNIT);
			rig_pin(r, 1 + c, d[c][i], HOST, ACCESS_WRITE);
		}
	}
	want(&x, 0, 2, 2 * UNIT, HOST);
	want(&x, 1, 2, UNIT, GPU);
	rig_settle(r, LONG);
	ck_assert(!r->client[0].answered[2] && !r->client[1].answered[2]);
	want(&x, 2, 2, 2 * UNIT, HOST);
	ck_assert_int_eq(rig_wait(r, 2, 2, 10), -EDEADLK);
	rig_settle(r, LONG);
	ck_assert(!r->client[0].answered[2] && !r->client[1].answered[2]);
	for (unsigned i = 0; i < 8; i++)
		rig_unpin(r, 2, d[1][i], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 2, LONG), 0);
	let_go(&x, 0);
	ck_assert_int_eq(rig_wait(r, 1, 2, LONG), 0);
	for (unsigned i = 0; i < 8; i++)
		rig_unpin(r, 1, d[0][i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* Each wants on the GPU what the other has pinned on the host: no room lacks. */
START_TEST(pins_of_each_other_at_another_place_are_a_ring_too)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t[2];

	for (unsigned c = 0; c < 2; c++) {
		rig_threads(r, c, 1);
		t[c] = rig_create(r, c, UNIT);
		rig_pin(r, c, t[c], HOST, ACCESS_WRITE);
	}
	rig_acquire(r, 0, 2, t[1], GPU, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, LONG), RIG_UNANSWERED);
	rig_acquire(r, 1, 2, t[0], GPU, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 2, 5), -EDEADLK);
	rig_unpin(r, 1, t[1], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 2, LONG), 0);
	rig_unpin(r, 0, t[0], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* One who waits behind them, and holds nothing, would help nobody by going. */
START_TEST(whoever_holds_nothing_is_not_told)
{
	struct held x;

	hold(&x, one_gpu, 2, 1);
	rig_threads(x.r, 2, 1);
	want(&x, 0, 2, UNIT, GPU);
	want(&x, 1, 2, UNIT, GPU);
	want(&x, 2, 2, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 5), -EDEADLK);
	ck_assert(!x.r->client[0].answered[2] && !x.r->client[2].answered[2]);
	let_go(&x, 1);
	ck_assert_int_eq(rig_wait(x.r, 2, 2, LONG), 0);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), 0);
	let_go(&x, 0);
	rig_close(x.r);
}
END_TEST

/* A deadline that passes first is that, and names who holds it. */
START_TEST(what_only_others_hold_is_busy_at_the_deadline)
{
	struct rig *r = rig_open(one_gpu);
	struct wire_handle t = rig_create(r, 0, UNIT);

	rig_threads(r, 0, 1);
	rig_threads(r, 1, 1);
	rig_pin(r, 0, t, HOST, ACCESS_WRITE);
	rig_acquire(r, 1, 2, t, GPU, ACCESS_READ, 20 * NS_PER_MS);
	ck_assert_int_eq(rig_wait(r, 1, 2, LONG), -EBUSY);
	ck_assert_ptr_nonnull(strstr(r->client[1].text[2], "100"));
	rig_unpin(r, 0, t, ACCESS_WRITE);
	rig_close(r);
}
END_TEST

static const struct engine_quota limited[] = {
	{ .name = "a",
	  .tier = { [TIER_KIND_HBM] = { 0, 4 * UNIT },
		    [TIER_KIND_DRAM] = { 0, UINT64_MAX },
		    [TIER_KIND_NVME] = { 0, UINT64_MAX } } },
};

/* At its limit a namespace waits for its own pins alone: what others hold and do is no way out. */
START_TEST(whoever_fills_its_own_limit_is_told)
{
	struct rig *r = rig_open(
		(struct world_shape){ .hbm = 1, .nvme = 2, .quotas = limited, .quota_count = 1 });
	struct wire_handle t[5], b = rig_create(r, 1, UNIT);

	rig_threads(r, 0, 1);
	rig_pin(r, 1, b, GPU, ACCESS_WRITE);
	for (unsigned i = 0; i < 5; i++)
		t[i] = rig_create(r, 0, UNIT);
	for (unsigned i = 0; i < 4; i++)
		rig_pin(r, 0, t[i], GPU, ACCESS_WRITE);
	rig_acquire(r, 0, 2, t[4], GPU, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 5), -EDEADLK);
	for (unsigned i = 0; i < 4; i++)
		rig_unpin(r, 0, t[i], ACCESS_WRITE);
	rig_unpin(r, 1, b, ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* ---- where a GPU has its memory in slabs ---- */

/* So much is to be had, and each of the clients has its part of it pinned. */
static void hold_memory(struct held *x, unsigned clients, uint64_t bytes)
{
	x->r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2, .slabs = true });
	x->r->world.physical_bytes = bytes;
	x->n = (unsigned)(bytes / UNIT) / clients;
	for (unsigned c = 0; c < clients; c++) {
		rig_threads(x->r, c, 1);
		for (unsigned i = 0; i < x->n; i++) {
			x->t[c][i] = rig_create(x->r, c, UNIT);
			rig_pin(x->r, c, x->t[c][i], GPU, ACCESS_WRITE);
		}
	}
}

START_TEST(all_the_memory_that_there_is_may_be_held_in_a_ring)
{
	struct held x;

	hold_memory(&x, 2, 4 * WORLD_HBM_SLAB);
	want(&x, 0, 2, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), RIG_UNANSWERED);
	want(&x, 1, 2, UNIT, GPU);
	/* Memory is asked for once more: there might be some by now. */
	ck_assert_int_eq(rig_wait(x.r, 1, 2, 1100), -EDEADLK);
	ck_assert_ptr_nonnull(strstr(x.r->client[1].text[2], "2 clients"));
	ck_assert(!x.r->client[0].answered[2]);
	let_go(&x, 1);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), 0);
	let_go(&x, 0);
	rig_close(x.r);
}
END_TEST

/* That there is no more is known from before; there is now. */
START_TEST(nobody_is_told_before_memory_was_asked_for_again)
{
	struct held x;

	hold_memory(&x, 1, 4 * WORLD_HBM_SLAB);
	want(&x, 0, 2, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, 5), -EDEADLK);
	x.r->world.physical_bytes = 5 * WORLD_HBM_SLAB;
	rig_settle(x.r, 100);
	want(&x, 0, 3, UNIT, GPU);
	ck_assert_int_eq(rig_wait(x.r, 0, 3, 1100), 0);
	let_go(&x, 0);
	rig_close(x.r);
}
END_TEST

/* Dram that does not come, likewise. */
START_TEST(dram_that_does_not_come_may_be_held_in_a_ring)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2, .slabs = true });
	struct wire_handle t[WORLD_DRAM_SLAB / UNIT + 1];
	size_t n = ARRAY_SIZE(t) - 1;

	r->world.refuse_permille = 1000;
	rig_threads(r, 0, 1);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = rig_create(r, 0, UNIT);
	for (size_t i = 0; i < n; i++)
		rig_pin(r, 0, t[i], HOST, ACCESS_WRITE);
	rig_acquire(r, 0, 2, t[n], HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 1100), -EDEADLK);
	r->world.refuse_permille = 0;
	rig_settle(r, 100);
	rig_acquire(r, 0, 3, t[n], HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 3, 1100), 0);
	for (size_t i = 0; i < n; i++)
		rig_unpin(r, 0, t[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* It waits for its own pins alone, though the GPU could have more memory. */
START_TEST(whoever_fills_its_own_limit_is_told_where_memory_could_come)
{
	struct rig *r = rig_open((struct world_shape){
		.hbm = 1, .nvme = 2, .slabs = true, .quotas = limited, .quota_count = 1 });
	struct wire_handle t[5];

	rig_threads(r, 0, 1);
	for (unsigned i = 0; i < 5; i++)
		t[i] = rig_create(r, 0, UNIT);
	for (unsigned i = 0; i < 4; i++)
		rig_pin(r, 0, t[i], GPU, ACCESS_WRITE);
	rig_acquire(r, 0, 2, t[4], GPU, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 5), -EDEADLK);
	for (unsigned i = 0; i < 4; i++)
		rig_unpin(r, 0, t[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* ---- by chance ---- */

#define TENSORS 12u /* a client */
#define BATCH   4u

/* A client of one thread: it waits, or does something else. */
struct actor {
	bool waits;
	struct wire_handle asked[BATCH];
	size_t n;
	uint8_t place;
	struct wire_handle pinned[64];
	size_t pins;
	unsigned waited_ms;
};

static void release_some(struct rig *r, unsigned c, struct actor *a, size_t left)
{
	while (a->pins > left)
		rig_unpin(r, c, a->pinned[--a->pins], ACCESS_READ);
}

static void ask(struct rig *r, unsigned c, struct actor *a, struct wire_handle t[][TENSORS])
{
	a->n = 1 + world_below(&r->world, BATCH);
	a->place = world_below(&r->world, 4) ? GPU : HOST;
	for (size_t i = 0; i < a->n; i++)
		a->asked[i] = t[world_below(&r->world, 8) ? c : world_below(&r->world, RIG_CLIENTS)]
			       [world_below(&r->world, TENSORS)];
	a->waits = true;
	a->waited_ms = 0;
	rig_acquire_all(r, c, 2, a->asked, a->n, a->place, ACCESS_READ, ENGINE_NEVER);
}

/* Whoever is told of a deadlock can not be helped by anybody who holds something and does not wait.
 */
static void answered(struct rig *r, unsigned c, struct actor *all, unsigned *deadlocks)
{
	struct actor *a = &all[c];
	int result = r->client[c].result[2];

	a->waits = false;
	if (result == 0) {
		for (size_t i = 0; i < a->n && a->pins < ARRAY_SIZE(a->pinned); i++)
			if (rig_try(r, c, a->asked[i], a->place, ACCESS_READ) != NULL)
				a->pinned[a->pins++] = a->asked[i];
		return;
	}
	ck_assert_int_eq(result, -EDEADLK);
	ck_assert_uint_gt(a->pins, 0);
	/* Its own plain pin at another place is the other kind, which needs no second client. */
	if (strstr(r->client[c].text[2], "at another place") == NULL) {
		++*deadlocks;
		if (strstr(r->client[c].text[2], "alone") == NULL) {
			unsigned others = 0;

			for (unsigned i = 0; i < RIG_CLIENTS; i++)
				others += i != c && all[i].waits && all[i].pins > 0;
			ck_assert_uint_gt(others, 0);
		}
	}
	release_some(r, c, a, 0);
}

static void act(struct rig *r, unsigned c, struct actor *all, struct wire_handle t[][TENSORS],
		unsigned *deadlocks)
{
	struct actor *a = &all[c];

	if (a->waits && r->client[c].answered[2])
		answered(r, c, all, deadlocks);
	else if (!a->waits && world_below(&r->world, 5) == 0)
		release_some(r, c, a, world_below(&r->world, a->pins + 1));
	else if (!a->waits)
		ask(r, c, a, t);
}

/* They have nothing, but a slot for each tensor. */
static struct engine *crowd(struct held *x)
{
	static pin_slot nothing[WORLD_TENSORS];
	const struct holder_tables tables = { .pins = nothing };
	struct engine *e = x->r->world.engine;
	struct holder *more;

	for (unsigned i = 0; i < 2000; i++)
		ck_assert(engine_holder_add(e, "a", 1, &tables, 1, NULL, &more, NULL) == 0);
	return e;
}

/* However many slots there are to be looked at, and wherever the pin stands that is in the way. */
START_TEST(who_waits_costs_others_a_twentieth_of_the_time)
{
	uint64_t asked = 0, judged = 0, asks = 0, judgements = 0;
	struct engine *e;
	struct held x;

	hold(&x, one_gpu, 1, 1);
	e = crowd(&x);
	rig_pin(x.r, 2, x.t[0][UNITS - 1], GPU, ACCESS_READ);
	want(&x, 0, 2, UNIT, GPU);
	for (unsigned i = 0; i < LONG; i++) {
		rig_pin(x.r, 2, x.t[0][UNITS - 2 + i % 2], GPU, ACCESS_READ);
		rig_unpin(x.r, 2, x.t[0][UNITS - 1 - i % 2], ACCESS_READ);
		ck_assert_int_eq(rig_wait(x.r, 0, 2, 1), RIG_UNANSWERED);
		asks += e->devices[0].ask_all_at_ns != asked;
		judgements += e->judge_at_ns != judged;
		asked = e->devices[0].ask_all_at_ns;
		judged = e->judge_at_ns;
	}
	/* 16 tensors of 2000 slots: 0.16 ms. */
	ck_assert(asks >= 5 && MAX(asks, judgements) <= LONG / 3 + 1);
	rig_unpin(x.r, 2, x.t[0][UNITS - 1 - LONG % 2], ACCESS_READ);
	let_go(&x, 0);
	ck_assert_int_eq(rig_wait(x.r, 0, 2, LONG), 0);
	rig_close(x.r);
}
END_TEST

/* Likewise, where room is free in pieces, and what stands between them cannot be moved. */
START_TEST(who_waits_for_a_hole_costs_no_more)
{
	uint64_t looked = 0, looks = 0;
	struct engine *e;
	struct held x;

	hold(&x, one_gpu, 1, 2);
	e = crowd(&x);
	for (unsigned i = 0; i < UNITS; i += 2) {
		rig_unpin(x.r, 0, x.t[0][i], ACCESS_WRITE);
		rig_destroy(x.r, 0, x.t[0][i]);
	}
	want(&x, 1, 2, 2 * UNIT, GPU);
	for (unsigned i = 0; i < LONG; i++) {
		ck_assert_int_eq(rig_wait(x.r, 1, 2, 1), RIG_UNANSWERED);
		looks += e->devices[0].compact_at_ns != looked;
		looked = e->devices[0].compact_at_ns;
	}
	ck_assert(looks >= 2 && looks <= LONG / 3);
	for (unsigned i = 1; i < UNITS; i += 2)
		rig_unpin(x.r, 0, x.t[0][i], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(x.r, 1, 2, LONG), 0);
	rig_close(x.r);
}
END_TEST

/* Memory that may have come since is asked for within a second, before anybody is told. */
static void run_by_chance(uint64_t seed, bool slabs, unsigned *deadlocks)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2, .slabs = slabs });
	unsigned patience = slabs ? 1500 : 400;
	struct wire_handle t[RIG_CLIENTS][TENSORS];
	struct actor all[RIG_CLIENTS] = { 0 };

	r->world.random = seed * 2 + 1;
	if (slabs)
		r->world.physical_bytes = (2 + seed % 4) * WORLD_HBM_SLAB;
	for (unsigned c = 0; c < RIG_CLIENTS; c++) {
		rig_threads(r, c, 1);
		for (unsigned i = 0; i < TENSORS; i++)
			t[c][i] = rig_create(r, c, UNIT);
	}
	for (unsigned step = 0; step < 3000; step++) {
		unsigned waiting = 0;

		act(r, (unsigned)world_below(&r->world, RIG_CLIENTS), all, t, deadlocks);
		if (!world_finish_one(&r->world))
			world_turn(&r->world, NS_PER_MS);
		engine_check(r->world.engine);
		for (unsigned c = 0; c < RIG_CLIENTS; c++) {
			waiting += all[c].waits && !r->client[c].answered[2];
			all[c].waited_ms++;
		}
		/* When all of them wait, one of them is answered. */
		for (unsigned c = 0; waiting == RIG_CLIENTS && c < RIG_CLIENTS; c++)
			waiting -= all[c].waited_ms < patience;
		ck_assert_msg(waiting < RIG_CLIENTS, "seed %llu, step %u: nobody goes on",
			      (unsigned long long)seed, step);
	}
	for (unsigned c = 0; c < RIG_CLIENTS; c++)
		release_some(r, c, &all[c], 0);
	rig_settle(r, LONG);
	rig_close(r);
}

START_TEST(clients_of_one_thread_always_go_on_and_are_told_for_cause)
{
	unsigned deadlocks = 0;

	for (uint64_t seed = 1; seed <= 40; seed++)
		run_by_chance(seed, false, &deadlocks);
	ck_assert_uint_gt(deadlocks, 40);
	printf("deadlock: %u acquires were told\n", deadlocks);
}
END_TEST

START_TEST(clients_of_one_thread_always_go_on_where_memory_lacks)
{
	unsigned deadlocks = 0;

	for (uint64_t seed = 1; seed <= 40; seed++)
		run_by_chance(seed, true, &deadlocks);
	ck_assert_uint_gt(deadlocks, 40);
	printf("deadlock: %u acquires were told where memory lacks\n", deadlocks);
}
END_TEST

UNIT_MAIN("deadlock", the_later_of_two_that_hold_all_and_want_more_is_told,
	  whoever_holds_all_of_it_alone_is_told_at_once,
	  nobody_is_told_while_one_that_holds_some_does_not_wait,
	  nobody_is_told_while_another_thread_of_it_may_let_go,
	  nobody_is_told_where_threads_are_not_counted,
	  three_in_a_ring_over_two_tiers_are_told_once,
	  pins_of_each_other_at_another_place_are_a_ring_too, whoever_holds_nothing_is_not_told,
	  what_only_others_hold_is_busy_at_the_deadline, whoever_fills_its_own_limit_is_told,
	  all_the_memory_that_there_is_may_be_held_in_a_ring,
	  nobody_is_told_before_memory_was_asked_for_again,
	  dram_that_does_not_come_may_be_held_in_a_ring,
	  whoever_fills_its_own_limit_is_told_where_memory_could_come,
	  who_waits_costs_others_a_twentieth_of_the_time, who_waits_for_a_hole_costs_no_more,
	  clients_of_one_thread_always_go_on_and_are_told_for_cause,
	  clients_of_one_thread_always_go_on_where_memory_lacks)

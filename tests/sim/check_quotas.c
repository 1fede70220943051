/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotas of namespaces: who is at its limit makes room by itself, what is guaranteed stays, and
 * nobody waits for what is another's affair. The clients of the rig are of 'a', 'b' and 'c'.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "daemon/engine/quota.h"
#include "tests/sim/rig.h"
#include "tests/sim/units.h"

#define NEVER ENGINE_NEVER
#define GPU   0

static struct rig *open_rig(const struct engine_quota *quotas, unsigned n)
{
	return rig_open(
		(struct world_shape){ .hbm = 1, .nvme = 2, .quotas = quotas, .quota_count = n });
}

static uint64_t used(const struct rig *r, unsigned client)
{
	const struct engine *e = r->world.engine;

	return e->accounts[e->name_spaces[client].account].pool[GPU].used_bytes;
}

static void create(struct rig *r, unsigned client, uint64_t bytes, struct wire_handle *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		t[i] = rig_create(r, client, bytes);
}

static void use_each(struct rig *r, unsigned client, const struct wire_handle *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rig_use(r, client, &t[i], 1, GPU, ACCESS_WRITE);
}

/* ---- limits ---- */

START_TEST(at_the_limit_its_own_tensors_make_room)
{
	struct rig *r = open_rig(limited, 1);
	struct wire_handle a[8], b[4];

	create(r, 0, UNIT, a, 8);
	create(r, 1, UNIT, b, 4);
	use_each(r, 1, b, 4);
	for (unsigned round = 0; round < 3; round++)
		use_each(r, 0, a, 8);
	ck_assert_uint_eq(used(r, 0), 4 * UNIT);
	ck_assert_uint_eq(used(r, 1), 4 * UNIT);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(rig_stands_at(r, b[i], GPU));
	rig_close(r);
}
END_TEST

/* Half of the GPU is free all the time. */
START_TEST(at_the_limit_it_waits_for_its_own_pins_and_others_pass)
{
	struct rig *r = open_rig(limited, 1);
	struct wire_handle a[5], b[2];

	create(r, 0, UNIT, a, 5);
	create(r, 1, UNIT, b, 2);
	for (unsigned i = 0; i < 4; i++)
		rig_pin(r, 0, a[i], GPU, ACCESS_WRITE);
	rig_acquire(r, 0, 2, a[4], GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 20), RIG_UNANSWERED);
	use_each(r, 1, b, 2);
	rig_hint(r, 1, b[0], PROTOCOL_PLACE_HOST);
	rig_unpin(r, 0, a[1], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 2, 50), 0);
	ck_assert_uint_eq(used(r, 0), 4 * UNIT);
	for (unsigned i = 0; i < 4; i++)
		if (i != 1)
			rig_unpin(r, 0, a[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* Another's tensors fail again and again, and who waits for their room is told of that. */
START_TEST(at_the_limit_it_is_not_told_of_others_write_backs)
{
	struct rig *r = open_rig(limited, 1);
	struct wire_handle a[6], b[12], c;

	create(r, 0, UNIT, a, 6);
	create(r, 1, UNIT, b, 12);
	create(r, 2, UNIT, &c, 1);
	for (unsigned i = 0; i < 4; i++)
		rig_pin(r, 0, a[i], GPU, ACCESS_WRITE);
	for (unsigned i = 0; i < 12; i++)
		rig_pin(r, 1, b[i], GPU, ACCESS_WRITE);
	rig_acquire(r, 0, 2, a[4], GPU, ACCESS_READ, NEVER);
	rig_let_go(r, 1, b, 12);
	r->world.fail_result = -EIO;
	r->world.fail_mapped_permille = 1000;
	rig_acquire(r, 2, 2, c, GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 2, 2, 1200), -EIO);
	rig_acquire(r, 0, 3, a[5], GPU, ACCESS_READ, 20 * NS_PER_MS);
	ck_assert_int_eq(rig_wait(r, 0, 3, 50), -ETIMEDOUT);
	ck_assert_ptr_null(strstr(r->client[0].text[3], "written back"));
	ck_assert_msg(rig_wait(r, 0, 2, 1200) == RIG_UNANSWERED, "%s", r->client[0].text[2]);
	r->world.fail_mapped_permille = 0;
	rig_unpin(r, 0, a[1], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 2, 50), 0);
	for (unsigned i = 0; i < 4; i++)
		if (i != 1)
			rig_unpin(r, 0, a[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* As it is without quotas: half of the GPU is free, in pieces that its own pins lie between. */
START_TEST(whoever_has_left_holes_alone_by_its_pins_is_told)
{
	struct rig *r = open_rig(limited, 1);
	struct wire_handle b[16], large;

	rig_threads(r, 1, 1);
	create(r, 1, UNIT, b, 16);
	large = rig_create(r, 1, 2 * UNIT);
	for (unsigned i = 0; i < 16; i++)
		rig_pin(r, 1, b[i], GPU, ACCESS_WRITE);
	for (unsigned i = 0; i < 16; i += 2)
		rig_unpin(r, 1, b[i], ACCESS_WRITE);
	rig_acquire(r, 1, 2, large, GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 2, 1000), -EDEADLK);
	for (unsigned i = 1; i < 16; i += 2)
		rig_unpin(r, 1, b[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

START_TEST(a_hint_at_the_limit_brings_nothing)
{
	struct rig *r = open_rig(limited, 1);
	struct wire_handle a[5], b;

	create(r, 0, UNIT, a, 5);
	create(r, 1, UNIT, &b, 1);
	use_each(r, 0, a, 4);
	rig_hint(r, 0, a[4], GPU);
	rig_hint(r, 1, b, GPU);
	rig_settle(r, 20);
	ck_assert(rig_stands_at(r, b, GPU));
	ck_assert(!rig_stands_at(r, a[4], GPU));
	ck_assert_uint_eq(used(r, 0), 4 * UNIT);
	rig_close(r);
}
END_TEST

START_TEST(more_than_the_limit_is_refused_at_once)
{
	struct rig *r = open_rig(limited, 1);
	struct wire_handle large = rig_create(r, 0, 5 * UNIT), a[5];

	create(r, 0, UNIT, a, 5);
	rig_acquire(r, 0, 2, large, GPU, ACCESS_READ, NEVER);
	ck_assert(r->client[0].answered[2]);
	ck_assert_int_eq(r->client[0].result[2], -EDQUOT);
	ck_assert_ptr_nonnull(strstr(r->client[0].text[2], "namespaces[0] ('a')"));
	ck_assert_ptr_nonnull(strstr(r->client[0].text[2], "hbm.limit"));
	ck_assert_ptr_nonnull(strstr(r->client[0].text[2], "65536"));
	rig_acquire_on(r, 0, 3, a, 5, GPU, ACCESS_READ);
	ck_assert(r->client[0].answered[3]);
	ck_assert_int_eq(r->client[0].result[3], -EDQUOT);
	/* Another namespace's batch as large, and the same tensors on the host. */
	rig_acquire(r, 0, 4, large, PROTOCOL_PLACE_HOST, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 4, 50), 0);
	rig_close(r);
}
END_TEST

/* What a has in dram finds no room below: nvme is full of it to its limit. Others are in no way
 * held up by that, though it was used before all of theirs. */
START_TEST(at_the_limit_below_it_stays_and_others_make_room)
{
	static const struct engine_quota q[] = {
		{ .name = "a",
		  .tier = { [TIER_KIND_HBM] = FREE,
			    [TIER_KIND_DRAM] = { 0, KIB(128) },
			    [TIER_KIND_NVME] = { 0, KIB(128) } } },
	};
	struct rig *r = open_rig(q, 1);
	struct wire_handle a[14], b[40];

	create(r, 0, UNIT, a, 14);
	create(r, 1, UNIT, b, 40);
	for (unsigned i = 0; i < 14; i++)
		rig_use(r, 0, &a[i], 1, PROTOCOL_PLACE_HOST, ACCESS_WRITE);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 40; i++)
			rig_use(r, 1, &b[i], 1, PROTOCOL_PLACE_HOST, ACCESS_WRITE);
	/* Nor is a by others: what it brings up leaves room below for what goes down. */
	for (unsigned i = 0; i < 14; i++)
		rig_use(r, 0, &a[i], 1, i % 2 ? GPU : PROTOCOL_PLACE_HOST, ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* Of a 100 KiB go to nvme, so 300 stay in dram whoever wants them to go. */
START_TEST(what_others_must_keep_in_dram_cannot_be_asked_for)
{
	static const struct engine_quota q[] = {
		{ .name = "a",
		  .tier = { [TIER_KIND_HBM] = FREE,
			    [TIER_KIND_DRAM] = FREE,
			    [TIER_KIND_NVME] = { 0, KIB(100) } } },
	};
	struct rig *r = open_rig(q, 1);
	struct wire_handle a[4], b[3];

	create(r, 0, KIB(100), a, 4);
	create(r, 1, KIB(100), b, 3);
	for (unsigned i = 0; i < 4; i++)
		rig_use(r, 0, &a[i], 1, PROTOCOL_PLACE_HOST, ACCESS_WRITE);
	rig_acquire_all(r, 1, 2, b, 3, PROTOCOL_PLACE_HOST, ACCESS_READ, NEVER);
	ck_assert(r->client[1].answered[2]);
	ck_assert_int_eq(r->client[1].result[2], -EDQUOT);
	ck_assert_ptr_nonnull(strstr(r->client[1].text[2], "307200 bytes of dram"));
	/* What can be had is had, also by a, of its own. */
	rig_use(r, 1, b, 2, PROTOCOL_PLACE_HOST, ACCESS_WRITE);
	rig_use(r, 0, a, 4, PROTOCOL_PLACE_HOST, ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* Overcommit has let in more than both limits hold, and all of it was written. */
START_TEST(who_is_full_to_both_limits_is_told)
{
	static const struct engine_quota q[] = {
		{ .name = "a",
		  .tier = { [TIER_KIND_HBM] = FREE,
			    [TIER_KIND_DRAM] = { 0, 8 * UNIT },
			    [TIER_KIND_NVME] = { 0, 8 * UNIT } } },
	};
	struct rig *r = rig_open((struct world_shape){
		.nvme = 1, .quotas = q, .quota_count = 1, .overcommit_permille = 1500 });
	struct wire_handle a[17];

	rig_threads(r, 0, 1);
	for (unsigned c = 1; c < RIG_CLIENTS; c++) {
		engine_holder_die(r->world.engine, r->client[c].holder, r->world.now_ns);
		r->client[c].holder = NULL;
	}
	create(r, 0, UNIT, a, 17);
	for (unsigned i = 0; i < 16; i++)
		rig_use(r, 0, &a[i], 1, PROTOCOL_PLACE_HOST, ACCESS_WRITE);
	rig_acquire(r, 0, 2, a[16], PROTOCOL_PLACE_HOST, ACCESS_WRITE, NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), -EDQUOT);
	ck_assert_ptr_nonnull(strstr(r->client[0].text[2], "the limit of namespaces[0] ('a')"));
	rig_destroy(r, 0, a[0]);
	rig_acquire(r, 0, 2, a[16], PROTOCOL_PLACE_HOST, ACCESS_WRITE, NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 3000), 0);
	rig_close(r);
}
END_TEST

START_TEST(create_refuses_what_the_limits_never_hold)
{
	static const struct engine_quota q[] = {
		{ .name = "a",
		  .tier = { [TIER_KIND_HBM] = FREE,
			    [TIER_KIND_DRAM] = { 0, KIB(128) },
			    [TIER_KIND_NVME] = { 0, KIB(128) } } },
	};
	struct rig *r = open_rig(q, 1);
	struct engine_spec spec = { .ndim = 1, .shape = { UNIT } };
	struct err err = ERR_INIT;
	struct wire_handle t;
	unsigned n = 0;
	int rc;

	while ((rc = engine_create_tensors(r->world.engine, r->client[0].holder, &spec, 1, &t,
					   r->world.now_ns, &err)) == 0)
		n++;
	/* 256 KiB, less two tensors for moves. */
	ck_assert_int_eq(rc, -EDQUOT);
	ck_assert_uint_eq(n, 14);
	ck_assert_ptr_nonnull(strstr(err.text, "namespaces[0] ('a')"));
	ck_assert_ptr_nonnull(strstr(err.text, "dram.limit and nvme.limit"));
	ck_assert_ptr_nonnull(strstr(err.text, "229376"));
	ck_assert_int_eq(engine_create_tensors(r->world.engine, r->client[1].holder, &spec, 1, &t,
					       r->world.now_ns, &err),
			 0);
	rig_close(r);
}
END_TEST

/* ---- guarantees ---- */

START_TEST(guarantees_beyond_the_tier_are_refused_with_figures)
{
	static const struct engine_quota q[] = {
		{ .name = "a", .tier = HBM(9 * UNIT, ALL) },
		{ .name = "b", .tier = HBM(8 * UNIT, ALL) },
	};
	static const struct engine_quota alone[] = {
		{ .name = "a", .tier = { FREE, FREE, FREE } },
		{ .name = "b", .tier = { FREE, FREE, [TIER_KIND_NVME] = { INT64_MAX, ALL } } },
	};
	struct rig *r = open_rig(halves, 2);
	struct engine_params params = r->world.engine->params;
	struct engine *e;
	struct err err = ERR_INIT;

	params.quotas = q;
	ck_assert_int_eq(engine_create(&params, &e, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "hbm.guarantee: together 278528 bytes"));
	ck_assert_ptr_nonnull(strstr(err.text, "262144 that hbm0 has"));
	/* One alone, whatever it would be with the others. */
	params.quotas = alone;
	ck_assert_int_eq(engine_create(&params, &e, &err), -EINVAL);
	ck_assert_str_eq(err.text, "namespaces[1] ('b'): nvme.guarantee: 9223372036854775807 "
				   "bytes, more than the 1572864 that nvme has");
	rig_close(r);
}
END_TEST

/* Client `b` does nothing; whatever the other does, `b` keeps what it has up to its guarantee. */
static void press(struct rig *r, unsigned a, unsigned b, const struct wire_handle *t, size_t n,
		  uint64_t least)
{
	struct world *w = &r->world;
	bool pinned[64] = { false };

	for (unsigned step = 0; step < 2000; step++) {
		size_t i = world_below(w, n);
		uint8_t access = world_below(w, 2) ? ACCESS_READ : ACCESS_WRITE;
		uint32_t id = 2 + (uint32_t)world_below(w, 8);

		switch (world_below(w, 8)) {
		case 0:
			rig_hint(r, a, t[i], GPU);
			break;
		case 1:
		case 2:
			if (pinned[i])
				rig_unpin(r, a, t[i], ACCESS_WRITE);
			else if (rig_stands_at(r, t[i], GPU))
				ck_assert(rig_try(r, a, t[i], GPU, ACCESS_WRITE) != NULL);
			else
				break;
			pinned[i] = !pinned[i];
			break;
		case 3:
			world_turn(w, NS_PER_MS);
			break;
		case 4:
		case 5:
			if (r->client[a].answered[id] || step < 10)
				rig_acquire(r, a, id, t[i], GPU, access, 20 * NS_PER_MS);
			break;
		default:
			world_finish_one(w);
		}
		engine_check(w->engine);
		ck_assert_msg(used(r, b) >= least, "step %u: %llu bytes are left", step,
			      (unsigned long long)used(r, b));
	}
	for (size_t i = 0; i < n; i++)
		if (pinned[i])
			rig_unpin(r, a, t[i], ACCESS_WRITE);
	rig_settle(r, 30);
}

START_TEST(two_jobs_on_a_gpu_keep_what_each_is_guaranteed)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle t[2][16];

	for (unsigned i = 0; i < 2; i++)
		create(r, i, UNIT, t[i], 16);
	for (unsigned i = 0; i < RIG_REQUESTS; i++)
		r->client[0].answered[i] = r->client[1].answered[i] = true;
	for (unsigned round = 0; round < 4; round++) {
		unsigned a = round % 2, b = !a;

		/* Alone it has all of it, and then gives half of it up, and no more. */
		use_each(r, b, t[b], 16);
		ck_assert_uint_ge(used(r, b), 8 * UNIT);
		press(r, a, b, t[a], 16, 8 * UNIT);
		ck_assert_uint_eq(used(r, b), 8 * UNIT);
	}
	rig_close(r);
}
END_TEST

/* Tensors go as a whole: who is above its guarantee may be below it by a part of one, and then
 * loses nothing more. */
START_TEST(who_is_below_its_guarantee_loses_nothing)
{
	static const struct engine_quota q[] = {
		{ .name = "a", .tier = HBM(0, ALL) },
		{ .name = "b", .tier = HBM(7 * UNIT + GRANULE, ALL) },
	};
	struct rig *r = open_rig(q, 2);
	struct wire_handle a[40], b[16];

	for (unsigned i = 0; i < RIG_REQUESTS; i++)
		r->client[0].answered[i] = r->client[1].answered[i] = true;
	create(r, 1, UNIT, b, 16);
	create(r, 0, UNIT, a, 40);
	for (unsigned round = 0; round < 3; round++) {
		use_each(r, 1, b, 16);
		press(r, 0, 1, a, 40, 7 * UNIT);
		ck_assert_uint_le(used(r, 1), 8 * UNIT);
	}
	rig_close(r);
}
END_TEST

/* The head of the queue waits for pins. Behind it, whose guarantee has room is not held up. */
START_TEST(who_is_within_its_guarantee_waits_for_nobody_else)
{
	static const struct engine_quota q[] = {
		{ .name = "a", .tier = HBM(0, ALL) },
		{ .name = "b", .tier = HBM(4 * UNIT, ALL) },
	};
	struct rig *r = open_rig(q, 2);
	struct wire_handle a[15], b[5], c = rig_create(r, 2, UNIT);

	create(r, 0, UNIT, a, 15);
	create(r, 1, UNIT, b, 5);
	/* While b does not want what is free, others may have it. */
	for (unsigned i = 0; i < 13; i++)
		rig_pin(r, 0, a[i], GPU, ACCESS_WRITE);
	for (unsigned i = 0; i < 2; i++)
		rig_pin(r, 1, b[i], GPU, ACCESS_WRITE);
	rig_acquire_on(r, 0, 2, &a[13], 2, GPU, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 0, 2, 20), RIG_UNANSWERED);
	rig_acquire(r, 2, 2, c, GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 2, 2, 20), RIG_UNANSWERED);
	rig_acquire(r, 1, 2, b[2], GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 2, 20), 0);
	/* And what comes free is b's, as long as its guarantee has room, though a was first. */
	rig_acquire(r, 1, 3, b[3], GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 1, 3, 20), RIG_UNANSWERED);
	rig_unpin(r, 0, a[0], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 1, 3, 20), 0);
	ck_assert(!r->client[0].answered[2]);
	for (unsigned i = 1; i < 13; i++)
		rig_unpin(r, 0, a[i], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 2, 20), 0);
	ck_assert_int_eq(rig_wait(r, 2, 2, 20), 0);
	for (unsigned i = 0; i < 2; i++)
		rig_unpin(r, 1, b[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* All of the GPU is guaranteed to others. */
START_TEST(what_is_guaranteed_to_others_cannot_be_asked_for)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle a[9], c = rig_create(r, 2, UNIT);

	create(r, 0, UNIT, a, 9);
	rig_acquire(r, 2, 2, c, GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 2, 2, 20), -EDQUOT);
	ck_assert_ptr_nonnull(strstr(r->client[2].text[2], "without a row"));
	rig_acquire_on(r, 0, 2, a, 9, GPU, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 0, 2, 20), -EDQUOT);
	use_each(r, 0, a, 9);
	ck_assert_uint_eq(used(r, 0), 9 * UNIT);
	rig_close(r);
}
END_TEST

/* b has its guarantee full of its own and changes what stands there, behind a's wait for pins. */
START_TEST(who_changes_what_stands_in_its_guarantee_passes_the_head)
{
	struct rig *r = open_rig(halves, 2);
	struct wire_handle a[10], b[16];

	create(r, 0, UNIT, a, 10);
	create(r, 1, UNIT, b, 16);
	for (unsigned i = 0; i < 8; i++)
		rig_pin(r, 0, a[i], GPU, ACCESS_WRITE);
	use_each(r, 1, b, 8);
	rig_acquire(r, 0, 2, a[8], GPU, ACCESS_READ, NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 2, 20), RIG_UNANSWERED);
	for (unsigned round = 0; round < 3; round++)
		use_each(r, 1, b, 16);
	ck_assert(!r->client[0].answered[2]);
	ck_assert_uint_eq(used(r, 1), 8 * UNIT);
	rig_unpin(r, 0, a[0], ACCESS_WRITE);
	ck_assert_int_eq(rig_wait(r, 0, 2, 50), 0);
	for (unsigned i = 1; i < 8; i++)
		rig_unpin(r, 0, a[i], ACCESS_WRITE);
	rig_close(r);
}
END_TEST

/* ---- names ---- */

START_TEST(the_row_that_says_most_of_a_name_holds)
{
	static const struct engine_quota q[] = {
		{ .name = "job", .prefix = true, .tier = HBM(0, ALL) },
		{ .name = "job-a", .tier = HBM(0, ALL) },
		{ .name = "job-", .prefix = true, .tier = HBM(0, ALL) },
		{ .name = "x", .tier = HBM(0, ALL) },
		{ .name = "", .prefix = true, .tier = HBM(0, ALL) },
	};
	static const struct {
		const char *name;
		uint16_t account;
	} cases[] = { { "job", 1 },  { "job1", 1 }, { "job-a", 2 }, { "job-ab", 3 },
		      { "job-", 3 }, { "x", 4 },    { "xy", 5 },    { "jo", 5 } };
	struct rig *r = open_rig(q, 5);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ck_assert_uint_eq(quota_find(r->world.engine, cases[i].name, strlen(cases[i].name)),
				  cases[i].account);
	rig_close(r);
	r = open_rig(q, 4);
	ck_assert_uint_eq(quota_find(r->world.engine, "jo", 2), 0);
	rig_close(r);
}
END_TEST

UNIT_MAIN("quotas", at_the_limit_its_own_tensors_make_room,
	  at_the_limit_it_waits_for_its_own_pins_and_others_pass,
	  at_the_limit_it_is_not_told_of_others_write_backs,
	  whoever_has_left_holes_alone_by_its_pins_is_told, a_hint_at_the_limit_brings_nothing,
	  more_than_the_limit_is_refused_at_once, at_the_limit_below_it_stays_and_others_make_room,
	  what_others_must_keep_in_dram_cannot_be_asked_for, who_is_full_to_both_limits_is_told,
	  create_refuses_what_the_limits_never_hold,
	  guarantees_beyond_the_tier_are_refused_with_figures,
	  two_jobs_on_a_gpu_keep_what_each_is_guaranteed, who_is_below_its_guarantee_loses_nothing,
	  what_is_guaranteed_to_others_cannot_be_asked_for,
	  who_is_within_its_guarantee_waits_for_nobody_else,
	  who_changes_what_stands_in_its_guarantee_passes_the_head,
	  the_row_that_says_most_of_a_name_holds)

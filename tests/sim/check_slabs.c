/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that comes and goes in slabs, one rule at a time.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"
#include "tests/sim/rig.h"

#define HOST PROTOCOL_PLACE_HOST
#define GPU  0
#define SLAB WORLD_HBM_SLAB

static struct rig *open_rig(unsigned hbm, unsigned nvme)
{
	return rig_open((struct world_shape){ .hbm = hbm, .nvme = nvme, .slabs = true });
}

static uint64_t backed(struct rig *r, enum tier_kind kind)
{
	return r->world.stats->tier[kind].backed_bytes;
}

static uint64_t drops(struct rig *r)
{
	return r->world.stats->drops_clean + r->world.stats->cleans;
}

/* Brought, used, let go. */
static struct wire_handle brought(struct rig *r, uint64_t bytes, uint8_t place)
{
	struct wire_handle t = rig_create(r, 0, bytes);

	rig_acquire(r, 0, 1, t, place, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 1000), 0);
	engine_used(r->world.engine, r->client[0].holder, t.index, place, ACCESS_READ,
		    r->world.now_ns);
	return t;
}

static uint64_t offset_of(struct rig *r, struct wire_handle t)
{
	return word1_offset(atomic_load(&r->world.descriptors[t.index].word1));
}

static int map_slab(struct rig *r, unsigned client, uint64_t offset)
{
	struct err err = ERR_INIT;
	uint64_t bytes = 0;
	int rc = engine_slab_fd(r->world.engine, r->client[client].holder, GPU, offset, &bytes,
				&err);

	ck_assert((rc < 0) == (err.text[0] != '\0'));
	ck_assert(rc < 0 || bytes == MIN(SLAB, WORLD_HBM - GRANULE - offset));
	return rc;
}

static int unmap_slab(struct rig *r, unsigned client, uint64_t offset)
{
	struct err err = ERR_INIT;
	int rc = engine_slab_gone(r->world.engine, r->client[client].holder, GPU, offset,
				  r->world.now_ns, &err);

	engine_check(r->world.engine);
	return rc;
}

static void destroy(struct rig *r, struct wire_handle t)
{
	struct err err = ERR_INIT;

	ck_assert_int_eq(engine_destroy_tensors(r->world.engine, r->client[0].holder, &t, 1,
						r->world.now_ns, &err),
			 0);
}

START_TEST(dram_that_is_still_coming_is_waited_for)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle first = rig_create(r, 0, WORLD_DRAM_SLAB), second;

	/* The first slab serves at once, before the engine had a turn. */
	rig_acquire(r, 0, 1, first, HOST, ACCESS_READ, ENGINE_NEVER);
	while (!r->client[0].answered[1])
		ck_assert(world_finish_one(&r->world));
	ck_assert_uint_eq(backed(r, TIER_KIND_DRAM), WORLD_DRAM_SLAB);
	second = rig_create(r, 0, WORLD_DRAM_SLAB);
	rig_acquire(r, 0, 2, second, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert(!r->client[0].answered[2]);
	ck_assert_int_eq(rig_wait(r, 0, 2, 1000), 0);
	ck_assert_uint_eq(drops(r), 0);
	ck_assert(rig_stands_at(r, first, HOST));
	rig_settle(r, 10);
	ck_assert_uint_eq(backed(r, TIER_KIND_DRAM), WORLD_DRAM);
	rig_close(r);
}
END_TEST

START_TEST(dram_that_does_not_come_is_asked_for_each_second)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle t, u;

	r->world.refuse_permille = 1000;
	rig_settle(r, 100);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_DRAM].slabs_refused, 1);
	/* Nobody waits for what may never come: others have to go. */
	t = brought(r, WORLD_DRAM_SLAB, HOST);
	rig_settle(r, 200); /* the hold */
	u = brought(r, WORLD_DRAM_SLAB, HOST);
	ck_assert(!rig_stands_at(r, t, HOST) && rig_stands_at(r, u, HOST));
	r->world.refuse_permille = 0;
	rig_settle(r, 1100);
	ck_assert_uint_eq(backed(r, TIER_KIND_DRAM), WORLD_DRAM);
	rig_close(r);
}
END_TEST

/* What the engine says in `ms`, as lines that have `text`. */
static unsigned said(struct rig *r, unsigned ms, const char *text)
{
	FILE *f = tmpfile();
	int was = dup(STDERR_FILENO);
	unsigned n = 0;
	char line[512];

	ck_assert(f != NULL && was >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
	rig_settle(r, ms);
	log_flush();
	dup2(was, STDERR_FILENO);
	close(was);
	rewind(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

/* Each refusal has figures of its own; what is news is that there are any, or of another kind. */
START_TEST(dram_that_does_not_come_is_told_of_once)
{
	static const char told[] = "no more is to be had now: refusal ";
	struct rig *r = open_rig(1, 1);

	r->world.refuse_permille = 1000;
	ck_assert_uint_eq(said(r, 5500, told), 1);
	ck_assert_uint_ge(r->world.refusals, 5);
	r->world.refuse_result = -EMFILE;
	ck_assert_uint_eq(said(r, 3500, told), 1);
	r->world.refuse_permille = 0;
	ck_assert_uint_eq(said(r, 1100, told), 0);
	ck_assert_uint_eq(backed(r, TIER_KIND_DRAM), WORLD_DRAM);
	rig_close(r);
}
END_TEST

START_TEST(hbm_is_made_as_it_is_wanted_and_not_more)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle t[3];

	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 0);
	t[0] = brought(r, SLAB / 2, GPU);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), SLAB);
	/* What is free is taken first, and extended where it is not enough. */
	t[1] = brought(r, SLAB / 4, GPU);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), SLAB);
	t[2] = brought(r, 2 * SLAB, GPU);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 3 * SLAB);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_HBM].slabs_made, 3);
	ck_assert_uint_eq(drops(r), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		ck_assert(rig_stands_at(r, t[i], GPU));
	/* Used is what tensors have, not what is not there. */
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_HBM].reserved_bytes,
			  2 * SLAB + SLAB * 3 / 4);
	rig_close(r);
}
END_TEST

START_TEST(out_of_gpu_memory_is_a_full_tier_and_no_error)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle t[3];

	r->world.physical_bytes = 2 * SLAB;
	t[0] = brought(r, SLAB, GPU);
	t[1] = brought(r, SLAB, GPU);
	rig_settle(r, 200);
	t[2] = brought(r, SLAB, GPU);
	ck_assert(rig_stands_at(r, t[2], GPU));
	ck_assert(!rig_stands_at(r, t[0], GPU)); /* the oldest; the watermark may take the other */
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 2 * SLAB);
	ck_assert_uint_gt(r->world.stats->tier[TIER_KIND_HBM].slabs_refused, 0);
	/* What no memory is had for is waited for, and comes when there is some. */
	rig_settle(r, 200);
	t[0] = rig_create(r, 0, 4 * SLAB);
	rig_acquire(r, 0, 1, t[0], GPU, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 3000), RIG_UNANSWERED);
	r->world.physical_bytes = 4 * SLAB;
	ck_assert_int_eq(rig_wait(r, 0, 1, 3000), 0);
	rig_close(r);
}
END_TEST

START_TEST(memory_between_others_is_traded_for_an_empty_slab)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle t[5], big;

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = brought(r, SLAB, GPU);
	/* One stays, and all that is free stands on both sides of it. */
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		if (offset_of(r, t[i]) == 2 * SLAB)
			rig_pin(r, 1, t[i], GPU, ACCESS_READ);
		else
			destroy(r, t[i]);
	r->world.physical_bytes = 5 * SLAB;
	big = rig_create(r, 0, 4 * SLAB);
	rig_acquire(r, 0, 1, big, GPU, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 9000), 0);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 5 * SLAB);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_HBM].slabs_given, 2);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		r->client[1].pins[t[i].index] = 0;
	rig_close(r);
}
END_TEST

/* Slabs 0, 1 and 3 to 6 have memory, and there is no more; a written tensor stands in slab 1. A
 * batch of all the rest needs two slabs, and has one to give, in the window beside the tensor; in
 * that over it it needs one. */
START_TEST(a_batch_that_needs_all_there_is_finds_its_way_over_who_could_leave)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle low = brought(r, 53248, GPU), small = rig_create(r, 0, 8192);
	struct wire_handle gap, high, batch[2];

	rig_pin(r, 0, small, GPU, ACCESS_WRITE);
	rig_unpin(r, 0, small, ACCESS_WRITE);
	gap = brought(r, 3 * SLAB - 61440, GPU);
	high = brought(r, 4 * SLAB, GPU);
	ck_assert_uint_eq(offset_of(r, small), 53248);
	ck_assert_uint_eq(offset_of(r, high), 3 * SLAB);
	destroy(r, gap);
	engine_trim(r->world.engine);
	rig_settle(r, 200); /* the hold */
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 6 * SLAB);
	destroy(r, low);
	destroy(r, high);
	r->world.physical_bytes = 6 * SLAB;
	batch[0] = rig_create(r, 0, 116014);
	batch[1] = rig_create(r, 0, 68414);
	rig_use(r, 0, batch, 2, GPU, ACCESS_READ);
	ck_assert(rig_stands_at(r, batch[0], GPU) && rig_stands_at(r, batch[1], GPU));
	ck_assert(!rig_stands_at(r, small, GPU));
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 6 * SLAB);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_HBM].slabs_given, 2); /* one by the trim */
	ck_assert_uint_eq(r->world.stats->cleans, 1);
	rig_close(r);
}
END_TEST

/* Slab 2 keeps what stands there, and the hole is wanted above it: 6 has to come for 0 or 1. */
static struct wire_handle wants_a_trade(struct rig *r, struct wire_handle *ret_stays)
{
	struct wire_handle t[6], big;

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = brought(r, SLAB, GPU);
	for (unsigned client = 0; client < 2; client++)
		ck_assert_int_eq(map_slab(r, client, (1 - client) * SLAB), 1000 + 1 - (int)client);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		if (offset_of(r, t[i]) == 2 * SLAB)
			*ret_stays = t[i];
		else
			destroy(r, t[i]);
	rig_pin(r, 2, *ret_stays, GPU, ACCESS_READ);
	r->world.physical_bytes = 6 * SLAB;
	big = rig_create(r, 0, 4 * SLAB);
	rig_acquire(r, 0, 1, big, GPU, ACCESS_READ, ENGINE_NEVER);
	return big;
}

START_TEST(a_slab_is_traded_that_its_client_lets_go)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle stays, big = wants_a_trade(r, &stays);

	/* The last one is asked for first, and its client makes no call. */
	ck_assert_int_eq(rig_wait(r, 0, 1, 50), RIG_UNANSWERED);
	ck_assert_uint_eq(r->client[0].unmaps, 1);
	ck_assert_uint_eq(r->client[0].unmap_offset, SLAB);
	ck_assert_uint_eq(r->client[1].unmaps, 0);
	ck_assert_int_eq(rig_wait(r, 0, 1, 100), RIG_UNANSWERED);
	ck_assert_uint_eq(r->client[1].unmaps, 1);
	ck_assert_uint_eq(r->client[1].unmap_offset, 0);
	ck_assert_int_eq(unmap_slab(r, 1, 0), 0);
	ck_assert_int_eq(rig_wait(r, 0, 1, 50), 0);
	ck_assert_uint_eq(offset_of(r, big), 3 * SLAB);
	ck_assert_uint_eq(r->client[0].unmaps, 1);
	rig_unpin(r, 2, stays, ACCESS_READ);
	rig_close(r);
}
END_TEST

START_TEST(a_slab_that_was_kept_is_asked_for_again_when_a_client_has_let_go)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle stays, big = wants_a_trade(r, &stays);

	/* Neither lets go in time: both have their slab, none goes round, and all wait. */
	ck_assert_int_eq(rig_wait(r, 0, 1, 3000), RIG_UNANSWERED);
	ck_assert_uint_eq(r->client[0].unmaps, 1);
	ck_assert_uint_eq(r->client[1].unmaps, 1);
	ck_assert_int_eq(unmap_slab(r, 0, SLAB), 0);
	ck_assert_int_eq(rig_wait(r, 0, 1, 50), 0);
	ck_assert_uint_eq(offset_of(r, big), 3 * SLAB);
	rig_unpin(r, 2, stays, ACCESS_READ);
	rig_close(r);
}
END_TEST

static int keep_slab(struct rig *r, unsigned client, uint64_t offset)
{
	struct err err = ERR_INIT;
	int rc = engine_slab_kept(r->world.engine, r->client[client].holder, GPU, offset, &err);

	engine_check(r->world.engine);
	return rc;
}

/* One that is stopped, or makes no call. */
START_TEST(a_client_that_does_not_let_go_keeps_nobody_from_its_slab)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle t = brought(r, 4 * GRANULE, GPU);

	r->world.physical_bytes = SLAB;
	ck_assert_int_eq(map_slab(r, 0, 0), 1000);
	destroy(r, t);
	rig_settle(r, 11000);
	ck_assert_uint_eq(r->client[0].unmaps, 1);
	ck_assert_int_eq(map_slab(r, 1, 0), -EAGAIN); /* it leaves */
	ck_assert_int_eq(keep_slab(r, 0, 0), 0);
	ck_assert_uint_eq(r->client[0].unmaps, 2); /* nothing stands there: asked again */
	ck_assert_int_eq(keep_slab(r, 1, 0), 0);
	ck_assert_uint_eq(r->client[1].unmaps, 0); /* it has none */
	t = brought(r, SLAB, GPU);
	ck_assert_uint_eq(offset_of(r, t), 0);
	ck_assert_int_eq(map_slab(r, 1, 0), 1000);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_HBM].slabs_given, 0);
	/* Now it answers, in either way; both have the slab or not, and it stays. */
	ck_assert_int_eq(keep_slab(r, 0, 0), 0);
	ck_assert_uint_eq(r->client[0].unmaps, 2);
	ck_assert_int_eq(keep_slab(r, 0, GRANULE), -EINVAL);
	ck_assert_int_eq(unmap_slab(r, 0, 0), 0);
	rig_settle(r, 1000);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), SLAB);
	destroy(r, t);
	rig_settle(r, 11000);
	ck_assert_uint_eq(r->client[1].unmaps, 1);
	ck_assert_int_eq(unmap_slab(r, 1, 0), 0);
	rig_settle(r, 1000);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 0);
	rig_close(r);
}
END_TEST

START_TEST(an_empty_slab_is_given_back_when_it_was_idle_and_all_have_let_go)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle t = brought(r, 4 * GRANULE, GPU);

	ck_assert_int_eq(map_slab(r, 0, 0), 1000);
	ck_assert_int_eq(map_slab(r, 1, 0), 1000);
	ck_assert_int_eq(map_slab(r, 1, 0), 1000); /* a second time is the same */
	destroy(r, t);
	rig_settle(r, 9000);
	ck_assert_uint_eq(r->client[0].unmaps, 0);
	rig_settle(r, 2000);
	ck_assert_uint_eq(r->client[0].unmaps, 1);
	ck_assert_uint_eq(r->client[1].unmaps, 1);
	ck_assert_uint_eq(r->client[2].unmaps, 0);
	ck_assert_int_eq(map_slab(r, 2, 0), -EAGAIN);
	ck_assert_int_eq(unmap_slab(r, 0, 0), 0);
	ck_assert_int_eq(unmap_slab(r, 0, 0), 0); /* said twice */
	rig_settle(r, 1000);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), SLAB);
	/* The other one never answers: it dies. */
	engine_holder_die(r->world.engine, r->client[1].holder, r->world.now_ns);
	rig_settle(r, 1);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), 0);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_HBM].slabs_given, 1);
	rig_rejoin(r, 1);
	/* And is made anew, for whoever asks anew. */
	t = brought(r, GRANULE, GPU);
	ck_assert_int_eq(map_slab(r, 2, 0), 1000);
	rig_close(r);
}
END_TEST

START_TEST(trim_gives_empty_slabs_back_at_once)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle keep = brought(r, SLAB, GPU), t = brought(r, 3 * SLAB, GPU);

	destroy(r, t);
	engine_trim(r->world.engine);
	rig_settle(r, 10);
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), SLAB);
	ck_assert(rig_stands_at(r, keep, GPU));
	rig_close(r);
}
END_TEST

START_TEST(a_prefetch_makes_memory_within_its_share_and_evicts_nothing)
{
	struct rig *r = open_rig(1, 1);
	struct wire_handle t = rig_create(r, 0, SLAB / 2), kept;
	struct err err = ERR_INIT;

	ck_assert_int_eq(engine_prefetch(r->world.engine, r->client[0].holder, &t, 1, GPU,
					 r->world.now_ns, &err),
			 0);
	rig_settle(r, 10);
	ck_assert(rig_stands_at(r, t, GPU));
	ck_assert_uint_eq(backed(r, TIER_KIND_HBM), SLAB);
	r->world.physical_bytes = SLAB;
	kept = brought(r, SLAB / 4, GPU);
	rig_settle(r, 200);
	t = rig_create(r, 0, SLAB / 2);
	ck_assert_int_eq(engine_prefetch(r->world.engine, r->client[0].holder, &t, 1, GPU,
					 r->world.now_ns, &err),
			 0);
	rig_settle(r, 2000);
	ck_assert(!rig_stands_at(r, t, GPU) && rig_stands_at(r, kept, GPU));
	ck_assert_uint_gt(r->world.stats->tier[TIER_KIND_HBM].slabs_refused, 1); /* asked again */
	r->world.physical_bytes = 2 * SLAB;
	rig_settle(r, 2000);
	ck_assert(rig_stands_at(r, t, GPU));
	rig_close(r);
}
END_TEST

START_TEST(only_slabs_that_are_there_have_descriptors)
{
	struct rig *r = open_rig(1, 1);
	struct err err = ERR_INIT;
	uint64_t bytes;

	brought(r, GRANULE, GPU);
	ck_assert_int_eq(map_slab(r, 0, 0), 1000);
	ck_assert_int_eq(map_slab(r, 0, SLAB), -EAGAIN);
	ck_assert_int_eq(map_slab(r, 0, GRANULE), -EINVAL);
	ck_assert_int_eq(map_slab(r, 0, 8 * SLAB), -EINVAL);
	ck_assert_int_eq(unmap_slab(r, 0, GRANULE), -EINVAL);
	for (unsigned device = 1; device < 99; device++) /* dram is one mapping; the rest nothing */
		ck_assert_int_eq(engine_slab_fd(r->world.engine, r->client[0].holder, device, 0,
						&bytes, &err),
				 -EINVAL);
	rig_close(r);
}
END_TEST

UNIT_MAIN("slabs", dram_that_is_still_coming_is_waited_for,
	  dram_that_does_not_come_is_asked_for_each_second, dram_that_does_not_come_is_told_of_once,
	  hbm_is_made_as_it_is_wanted_and_not_more, out_of_gpu_memory_is_a_full_tier_and_no_error,
	  memory_between_others_is_traded_for_an_empty_slab,
	  a_batch_that_needs_all_there_is_finds_its_way_over_who_could_leave,
	  a_slab_is_traded_that_its_client_lets_go,
	  a_slab_that_was_kept_is_asked_for_again_when_a_client_has_let_go,
	  a_client_that_does_not_let_go_keeps_nobody_from_its_slab,
	  an_empty_slab_is_given_back_when_it_was_idle_and_all_have_let_go,
	  trim_gives_empty_slabs_back_at_once,
	  a_prefetch_makes_memory_within_its_share_and_evicts_nothing,
	  only_slabs_that_are_there_have_descriptors)

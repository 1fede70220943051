/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapped tiers whose memory comes in slabs, as the system sees it: what is there after each step,
 * that the lane goes on meanwhile, and that an end does not wait. The lane is driven by hand.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "tests/unit/dram_rig.h"
#include "tiers/arena.h"
#include "tiers/dram.h"
#include "tiers/memory.h"

static void start_by_hand(struct tier *t)
{
	struct err err = ERR_INIT;

	ck_assert_msg(t->base.ops->lane_start(t, -1, &err) == 0, "%s", err.text);
}

static void wait_for(struct tier *t, struct xfer *x)
{
	struct xfer *done[1];

	while (t->base.ops->reap(t, done, 1) == 0)
		t->base.ops->wait(t, -1);
	ck_assert_ptr_eq(done[0], x);
}

static struct xfer slab_xfer(const struct tier *t, enum xfer_op op, uint64_t i)
{
	uint64_t at = i * t->base.slab_bytes;

	return (struct xfer){ .op = op,
			      .offset = at,
			      .bytes = MIN(t->base.slab_bytes, t->base.bytes - at) };
}

static int run_slab(struct tier *t, enum xfer_op op, uint64_t i, char *cause)
{
	struct xfer x = slab_xfer(t, op, i);

	ck_assert_int_eq(t->base.ops->queue(t, &x), 0);
	wait_for(t, &x);
	ck_assert((x.result == 0) == (x.cause[0] == '\0'));
	if (cause != NULL)
		memcpy(cause, x.cause, sizeof(x.cause));
	return x.result;
}

START_TEST(dram_is_there_slab_by_slab_and_all_of_it_at_last)
{
	struct topology *topo = this_machine();
	char host[4096], seen[4096];

	memset(host, 7, sizeof(host));
	for (int huge = ARENA_HUGE_TRY; huge <= ARENA_HUGE_OFF; huge++) {
		uint64_t page =
			huge == ARENA_HUGE_TRY && hugepage_pool_bytes() >= MIB(22) ? MIB(2) : 4096;
		struct dram_config c = { .size.bytes = MIB(20) + 4096,
					 .slab = MIB(8) - 5, /* whole large pages */
					 .huge_pages = huge };
		struct tier *t = open_dram(&c, topo);
		struct xfer x = { .op = XFER_WRITE, .bytes = sizeof(host), .host = host };

		ck_assert_uint_eq(t->base.slab_bytes, MIB(8));
		ck_assert_uint_eq(t->base.backed_bytes, MIB(8));
		ck_assert(!t->base.on_demand);
		ck_assert_uint_eq(file_bytes(t), MIB(8));
		start_by_hand(t);
		ck_assert_int_eq(run_slab(t, XFER_BACK, 2, NULL), 0); /* a short one */
		ck_assert_uint_eq(file_bytes(t), ALIGN_UP(t->base.bytes, page) - MIB(8));
		ck_assert_int_eq(run_slab(t, XFER_BACK, 1, NULL), 0);
		ck_assert_uint_eq(file_bytes(t), ALIGN_UP(t->base.bytes, page));
		x.offset = MIB(8) - 100;
		ck_assert_int_eq(t->base.ops->queue(t, &x), 0);
		wait_for(t, &x);
		ck_assert_int_eq(run_slab(t, XFER_UNBACK, 2, NULL), 0);
		ck_assert_uint_eq(file_bytes(t), MIB(16));
		x.op = XFER_READ;
		x.host = seen;
		ck_assert_int_eq(t->base.ops->queue(t, &x), 0);
		wait_for(t, &x);
		ck_assert_int_eq(memcmp(host, seen, sizeof(host)), 0);
		t->base.ops->lane_stop(t);
		t->base.ops->close(t);
	}
	topo_close(topo);
}
END_TEST

START_TEST(dram_of_one_slab_is_there_at_once)
{
	struct topology *topo = this_machine();
	struct dram_config c = { .size.bytes = MIB(8), .slab = MIB(8) };
	struct tier *t = open_dram(&c, topo);

	ck_assert_uint_eq(t->base.slab_bytes, 0);
	ck_assert_uint_eq(file_bytes(t), t->base.bytes);
	t->base.ops->close(t);
	topo_close(topo);
}
END_TEST

/* The lane copies on while the helper makes a slab: a copy lent later comes back sooner. */
START_TEST(copies_do_not_wait_for_a_slab)
{
	struct topology *topo = this_machine();
	struct dram_config c = { .size.bytes = MIB(512),
				 .slab = MIB(256),
				 .huge_pages = ARENA_HUGE_OFF };
	struct tier *t = open_dram(&c, topo);
	bool overtaken = false;
	char host[512];

	start_by_hand(t);
	for (unsigned tries = 0; !overtaken; tries++) {
		struct xfer slab = slab_xfer(t, XFER_BACK, 1), *done[1];
		struct xfer copy = { .op = XFER_READ, .bytes = sizeof(host), .host = host };

		ck_assert_uint_lt(tries, 100);
		ck_assert_int_eq(t->base.ops->queue(t, &slab), 0);
		ck_assert_int_eq(t->base.ops->queue(t, &copy), 0);
		while (t->base.ops->reap(t, done, 1) == 0)
			t->base.ops->wait(t, -1);
		overtaken = done[0] == &copy;
		wait_for(t, overtaken ? &slab : &copy);
		ck_assert_int_eq(slab.result | copy.result, 0);
		ck_assert_int_eq(run_slab(t, XFER_UNBACK, 1, NULL), 0);
	}
	t->base.ops->lane_stop(t);
	t->base.ops->close(t);
	topo_close(topo);
}
END_TEST

START_TEST(an_end_does_not_wait_for_slabs)
{
	struct topology *topo = this_machine();
	struct dram_config c = { .size.bytes = MIB(768),
				 .slab = MIB(256),
				 .huge_pages = ARENA_HUGE_OFF };
	bool cut = false;

	/* A fast machine may be done with a slab before it is told. */
	for (unsigned tries = 0; !cut; tries++) {
		struct tier *t = open_dram(&c, topo);
		struct xfer x = slab_xfer(t, XFER_BACK, 2);

		ck_assert_uint_lt(tries, 100);
		start_by_hand(t);
		ck_assert_int_eq(t->base.ops->queue(t, &x), 0);
		while (file_bytes(t) == MIB(256))
			;
		t->base.ops->ending(t);
		wait_for(t, &x);
		cut = x.result < 0;
		if (cut) {
			ck_assert_int_eq(x.result, -ECANCELED);
			ck_assert_ptr_nonnull(strstr(x.cause, "told to stop"));
			ck_assert_uint_eq(file_bytes(t), MIB(256));
		}
		ck_assert_int_eq(run_slab(t, XFER_BACK, 1, NULL), -ECANCELED);
		t->base.ops->lane_stop(t);
		t->base.ops->close(t);
	}
	topo_close(topo);
}
END_TEST

START_TEST(the_memory_backend_makes_slabs_up_to_its_physical_memory)
{
	struct memory_config c = { .size.bytes = MIB(10), .slab = MIB(4), .physical = MIB(6) };
	char cause[sizeof(((struct xfer *)0)->cause)];
	struct err err = ERR_INIT;
	struct tier *t;

	log_configure("warn");
	ck_assert_int_eq(memory_ops.open(&c, 0, NULL, &t, &err), 0);
	ck_assert(t->base.on_demand);
	ck_assert_uint_eq(t->base.bytes, MIB(10));
	ck_assert_uint_eq(t->base.slab_bytes, MIB(4));
	ck_assert_uint_eq(t->base.backed_bytes, 0);
	ck_assert_uint_eq(file_bytes(t), 0);
	start_by_hand(t);
	ck_assert_int_eq(run_slab(t, XFER_BACK, 1, NULL), 0);
	ck_assert_int_eq(run_slab(t, XFER_BACK, 0, cause), -ENOMEM);
	ck_assert_msg(strstr(cause, "4 of 6 MiB are taken") != NULL, "%s", cause);
	ck_assert_uint_eq(file_bytes(t), MIB(4));
	ck_assert_int_eq(run_slab(t, XFER_BACK, 2, NULL), 0); /* 2 MiB */
	ck_assert_int_eq(run_slab(t, XFER_UNBACK, 1, NULL), 0);
	ck_assert_uint_eq(file_bytes(t), MIB(2));
	ck_assert_int_eq(run_slab(t, XFER_BACK, 0, NULL), 0);
	ck_assert_uint_eq(file_bytes(t), MIB(6));
	t->base.ops->lane_stop(t);
	t->base.ops->close(t);
	c.slab = MIB(11);
	ck_assert_int_eq(memory_ops.check(&c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "slab: 11534336 bytes are more than `size`"));
}
END_TEST

UNIT_MAIN("mapped_slabs", dram_is_there_slab_by_slab_and_all_of_it_at_last,
	  dram_of_one_slab_is_there_at_once, copies_do_not_wait_for_a_slab,
	  an_end_does_not_wait_for_slabs, the_memory_backend_makes_slabs_up_to_its_physical_memory)

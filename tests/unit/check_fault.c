/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "tiers/fault.h"

struct tally {
	unsigned none, eio, enospc, cut, corrupt;
};

static struct tally run(const struct fault_config *config, bool write, uint64_t bytes,
			unsigned calls)
{
	struct fault_state state = { .config = config };
	struct tally t = { 0 };

	for (unsigned i = 0; i < calls; i++) {
		struct fault_decision d =
			fault_decide(&state, write ? XFER_WRITE : XFER_READ, bytes);
		bool cut = d.kind == FAULT_SHORT_READ || d.kind == FAULT_SHORT_WRITE;

		t.none += d.kind == FAULT_NONE;
		t.eio += d.error == -EIO;
		t.enospc += d.error == -ENOSPC;
		t.cut += cut;
		t.corrupt += d.kind == FAULT_CORRUPT;
		if (cut)
			ck_assert_uint_lt(d.bytes, bytes);
		if (d.kind == FAULT_CORRUPT)
			ck_assert_uint_lt(d.where, bytes);
	}
	ck_assert_uint_eq(state.calls, calls);
	ck_assert_uint_eq(t.none + t.eio + t.enospc + t.cut + t.corrupt, calls);
	return t;
}

static void near(unsigned got, unsigned want)
{
	ck_assert_uint_ge(got, want * 9 / 10);
	ck_assert_uint_le(got, want * 11 / 10);
}

START_TEST(shares_of_reads_and_writes_are_as_configured)
{
	struct fault_config c = { .seed = 3,
				  .read_error = 100,
				  .write_error = 50,
				  .no_space = 150,
				  .short_read = 200,
				  .short_write = 100,
				  .corrupt = 300 };
	struct tally r = run(&c, false, MIB(1), 20000), w = run(&c, true, MIB(1), 20000);

	near(r.eio, 2000);
	near(r.cut, 4000);
	near(r.corrupt, 6000);
	ck_assert_uint_eq(r.enospc, 0);
	near(w.eio, 1000);
	near(w.enospc, 3000);
	near(w.cut, 2000);
	ck_assert_uint_eq(w.corrupt, 0);
}
END_TEST

START_TEST(a_seed_repeats_its_decisions_and_another_differs)
{
	struct fault_config c = { .seed = 9, .read_error = 300, .short_read = 300, .corrupt = 300 };
	struct fault_config other = c;
	struct fault_state a = { .config = &c }, b = { .config = &c }, o = { .config = &other };
	unsigned different = 0;

	other.seed = 10;
	for (unsigned i = 0; i < 1000; i++) {
		struct fault_decision x = fault_decide(&a, XFER_READ, 5000);
		struct fault_decision y = fault_decide(&b, XFER_READ, 5000);

		ck_assert_int_eq(x.kind, y.kind);
		ck_assert_uint_eq(x.bytes, y.bytes);
		ck_assert_uint_eq(x.where, y.where);
		different += fault_decide(&o, XFER_READ, 5000).kind != x.kind;
	}
	ck_assert_uint_gt(different, 100);
}
END_TEST

START_TEST(only_calls_in_the_window_are_harmed)
{
	struct fault_config c = {
		.seed = 1, .read_error = 1000, .delay_ns = 5, .after = 10, .count = 3
	};
	struct fault_state s = { .config = &c };

	for (unsigned i = 0; i < 20; i++) {
		struct fault_decision d = fault_decide(&s, XFER_READ, 1);

		ck_assert_int_eq(d.kind, i >= 10 && i < 13 ? FAULT_READ_ERROR : FAULT_NONE);
		ck_assert_uint_eq(d.delay_ns, i >= 10 && i < 13 ? 5 : 0);
	}
	c.count = 0;
	ck_assert_int_eq(fault_decide(&s, XFER_READ, 1).kind, FAULT_READ_ERROR);
}
END_TEST

START_TEST(short_lengths_cover_the_ones_that_code_trips_over)
{
	struct fault_config c = { .seed = 1, .short_read = 1000 };
	struct fault_state s = { .config = &c };
	unsigned zero = 0, sector = 0, block = 0, odd = 0, last = 0;

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t left = fault_decide(&s, XFER_READ, MIB(1)).bytes;

		zero += left == 0;
		sector += left == 512;
		block += left == 4096;
		odd += left == 4097;
		last += left == MIB(1) - 1;
	}
	ck_assert(zero > 50 && sector > 50 && block > 50 && odd > 50 && last > 50);
	ck_assert_uint_eq(run(&c, false, 1, 100).cut, 100); /* 0 of 1 */
	ck_assert_uint_eq(run(&c, false, 0, 100).none, 100);
}
END_TEST

START_TEST(shares_of_each_operation_are_100_percent_at_most)
{
	struct fault_config c = { .presence.present = true, .no_memory = 400, .late = 600 };
	struct err err = ERR_INIT;

	ck_assert_int_eq(fault_check(&c, TIER_KIND_DRAM, true, &err), 0);
	c.no_memory = 401;
	ck_assert_int_eq(fault_check(&c, TIER_KIND_DRAM, true, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "the shares of slabs add up to 100.1%"));
	c.read_error = 401;
	ck_assert_int_eq(fault_check(&c, TIER_KIND_DRAM, true, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "the shares of reads add up to 100.1%"));
}
END_TEST

/* ---- around a tier that fails itself ------------------------------------------------------- */

struct broken {
	struct tier_base base;
	struct xfer *held;
	int result;
};

static int broken_queue(struct tier *t, struct xfer *x)
{
	((struct broken *)t)->held = x;
	return 0;
}

static unsigned broken_reap(struct tier *t, struct xfer **done, unsigned max)
{
	struct broken *b = (struct broken *)t;

	if (b->held == NULL)
		return 0;
	b->held->result = b->result;
	strcpy(b->held->cause, b->result < 0 ? "its own" : "");
	*done = b->held;
	b->held = NULL;
	return 1;
}

static void broken_close(struct tier *t)
{
	((struct broken *)t)->base.magic = 0;
}

static const struct tier_ops broken_ops = {
	.name = "broken", .queue = broken_queue, .reap = broken_reap, .close = broken_close
};

/* How many of a hundred xfers came back as the tier inside had it. */
static unsigned own_results(const struct fault_config *c, uint8_t op, int result)
{
	struct broken b = { .base = { .magic = TIER_MAGIC, .ops = &broken_ops }, .result = result };
	struct err err = ERR_INIT;
	struct tier *t;
	unsigned own = 0;

	ck_assert_int_eq(fault_wrap((struct tier *)&b, c, &t, &err), 0);
	for (unsigned i = 0; i < 100; i++) {
		struct xfer x = { .op = op, .bytes = GRANULE }, *done[1];

		ck_assert_int_eq(t->base.ops->queue(t, &x), 0);
		ck_assert_uint_eq(t->base.ops->reap(t, done, 1), 1);
		ck_assert_ptr_eq(done[0], &x);
		ck_assert_int_lt(x.result, 0);
		own += x.result == result;
		ck_assert((strcmp(x.cause, "its own") == 0) == (x.result == result));
	}
	t->base.ops->close(t);
	ck_assert_uint_eq(b.base.magic, 0);
	return own;
}

/* A device that is lost has to be known as lost in a rehearsal, too. */
START_TEST(a_real_failure_is_not_covered_up)
{
	struct fault_config c = { .seed = 1, .write_error = 1000, .short_read = 1000 };
	unsigned own = own_results(&c, XFER_WRITE, -ENODEV);

	/* Of the others the tier was not asked. */
	ck_assert(own > 20 && own < 80);
	ck_assert_uint_gt(own_results(&c, XFER_READ, -ENODEV), 50);
	/* A checksum of less than all is as short as that. */
	ck_assert_uint_eq(own_results(&c, XFER_READ, -EBADMSG), 0);
}
END_TEST

UNIT_MAIN("fault", shares_of_reads_and_writes_are_as_configured,
	  a_seed_repeats_its_decisions_and_another_differs, only_calls_in_the_window_are_harmed,
	  short_lengths_cover_the_ones_that_code_trips_over,
	  shares_of_each_operation_are_100_percent_at_most, a_real_failure_is_not_covered_up)

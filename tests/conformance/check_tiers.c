/* SPDX-License-Identifier: Apache-2.0
 *
 * What every tier backend owes, over the array of backends and through a real lane. Where only
 * mapped tiers have an operation, the others are left out by a question, never by name.
 */
#define _GNU_SOURCE
#include "tests/conformance/tier_rig.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/fake/bytes.h"

#define TIER_BYTES MIB(48)

#define for_each_backend(ops, rig, fault)                                            \
	for (const struct tier_ops *const *ops##_at = tier_backends, *ops;           \
	     (ops = *ops##_at) != NULL; ops##_at++)                                  \
		for (unsigned ops##_way = 0; rig_setup(ops, ops##_way); ops##_way++) \
			if (rig_open(rig, ops, ops##_way, TIER_BYTES, fault))

static const uint64_t sizes[] = { 1,    3,    511,        512,    513,        4095,    4096,
				  4097, 8191, MIB(1) - 1, MIB(1), MIB(1) + 1, 28824000 };

START_TEST(every_size_comes_back_whole_and_nothing_beside_it)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		unsigned char *back = rig.host + MIB(32);
		struct rig_range all[ARRAY_SIZE(sizes)];
		uint64_t offset = 0;

		/* All of them side by side first, so that a write past its end is seen. */
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			rig_fill(rig.host, sizes[i], i);
			ck_assert_int_eq(rig_write(&rig, &all[i], offset, rig.host, sizes[i]), 0);
			offset += ALIGN_UP(sizes[i], GRANULE);
		}
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			uint64_t rounded = ALIGN_UP(sizes[i], GRANULE), beside;

			bytes_fill(back, 0xee, rounded + GRANULE);
			ck_assert_int_eq(rig_read(&rig, &all[i], back), 0);
			rig_fill(rig.host, sizes[i], i);
			ck_assert_msg(memcmp(back, rig.host, sizes[i]) == 0, "%s: %lu bytes",
				      ops->name, sizes[i]);
			beside = rig_mapped(&rig) ? sizes[i] : rounded;
			ck_assert(rig_all(back + beside, rounded + GRANULE - beside, 0xee));
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(mapped_tiers_take_any_offset_and_any_host_address)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		for (uint64_t odd = 1; rig_mapped(&rig) && odd < 5000; odd = odd * 3 + 1) {
			unsigned char *to = rig.host + MIB(8) + 2 * odd + 1;
			struct rig_range range;

			rig_fill(rig.host + odd, 100000 + odd, odd);
			ck_assert_int_eq(rig_write(&rig, &range, MIB(3) + odd * 7, rig.host + odd,
						   100000 + odd),
					 0);
			bytes_fill(to, 0, 100000 + odd);
			ck_assert_int_eq(rig_read(&rig, &range, to), 0);
			ck_assert(bytes_equal(to, rig.host + odd, 100000 + odd));
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(the_last_bytes_of_the_tier_can_be_used)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		uint64_t end = rig.tier->base.bytes;
		struct rig_range range;

		ck_assert_uint_ge(end, TIER_BYTES);
		ck_assert_uint_le(end, TIER_BYTES + MIB(2)); /* exact, but for a large page */
		for (uint64_t bytes = GRANULE; bytes <= MIB(4); bytes *= 16) {
			rig_fill(rig.host, bytes, bytes);
			ck_assert_int_eq(rig_write(&rig, &range, end - bytes, rig.host, bytes), 0);
			bytes_fill(rig.host + MIB(8), 0, bytes);
			ck_assert_int_eq(rig_read(&rig, &range, rig.host + MIB(8)), 0);
			ck_assert(bytes_equal(rig.host, rig.host + MIB(8), bytes));
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(devices_of_one_configuration_have_nothing_in_common)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		struct err err = ERR_INIT;
		struct rig_range range;
		struct tier *first;

		if (rig.devices > 1 && rig.tier->base.host_base != NULL) {
			ck_assert_int_eq(ops->open(rig.config, 0, rig.topo, &first, &err), 0);
			ck_assert_str_ne(first->base.name, rig.tier->base.name);
			rig_fill(rig.host, MIB(4), 1);
			ck_assert_int_eq(rig_write(&rig, &range, 0, rig.host, MIB(4)), 0);
			ck_assert(rig_all(first->base.host_base, MIB(4), 0));
			first->base.ops->close(first);
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(demands_come_before_what_was_lent_earlier)
{
	enum { LOW = 24, HIGH = 4 };
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		struct xfer x[LOW + HIGH], *done[LOW + HIGH];
		unsigned last_high = 0;

		for (unsigned i = 0; i < LOW + HIGH; i++) {
			x[i] = (struct xfer){ .op = XFER_WRITE,
					      .offset = MIB(1) * i,
					      .bytes = MIB(1),
					      .host = rig.host + MIB(1) * i,
					      .part = i };
			x[i].priority = i >= LOW ? XFER_DEMAND
					: i % 2  ? XFER_PREFETCH
						 : XFER_WRITE_BACK;
			rig_lend(&rig, &x[i]);
		}
		rig_wait(&rig, done, LOW + HIGH);
		for (unsigned i = 0; i < LOW + HIGH; i++) {
			ck_assert_int_eq(done[i]->result, 0);
			if (done[i]->part >= LOW)
				last_high = i;
		}
		/* A device that works on many at once may finish some others first. */
		ck_assert_msg(last_high < (LOW + HIGH) / 2, "%s: a demand came back as number %u",
			      ops->name, last_high);
		rig_close(&rig);
	}
}
END_TEST

/* Lends a long write-back, then a demand; true when the demand came back first. */
static bool overtakes(struct rig *rig)
{
	struct xfer low = {
		.op = XFER_WRITE, .priority = XFER_WRITE_BACK, .bytes = MIB(40), .host = rig->host
	};
	struct xfer high = {
		.op = XFER_READ, .offset = MIB(44), .bytes = 4096, .host = rig->host + MIB(50)
	};
	struct timespec pause = { 0, 500000 };
	struct xfer *done[2];

	rig_lend(rig, &low);
	lane_kick(rig->lane);
	nanosleep(&pause, NULL); /* most often it has begun by then, and is not done */
	rig_lend(rig, &high);
	rig_wait(rig, done, 2);
	ck_assert_int_eq(low.result | high.result, 0);
	return done[0] == &high && low.begin_ns < high.begin_ns;
}

START_TEST(a_demand_overtakes_a_long_write_back_under_way)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		unsigned tries = 0;

		/* A busy machine may let the first one end before the second is lent. */
		while (rig_mapped(&rig) && !overtakes(&rig))
			ck_assert_msg(++tries < 100, "%s: never", ops->name);
		rig_close(&rig);
	}
}
END_TEST

START_TEST(zero_clears_exactly_its_range)
{
	/* offset, bytes: odd, touched and never touched, whole pages and parts */
	static const uint64_t ranges[][2] = {
		{ 5, 1 },
		{ 4096, 4096 },
		{ 100001, 300007 },
		{ MIB(1) - 3, MIB(3) },
		{ MIB(30), MIB(4) },
		{ MIB(20) - 1, MIB(9) },
	};
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		for (size_t i = 0; rig_mapped(&rig) && i < ARRAY_SIZE(ranges); i++) {
			struct rig_range range, zero = { .op = XFER_ZERO,
							 .offset = ranges[i][0],
							 .bytes = ranges[i][1] };
			uint64_t end = zero.offset + zero.bytes;
			const unsigned char *base;

			bytes_fill(rig.host, 0xaa, MIB(24));
			ck_assert_int_eq(rig_write(&rig, &range, 0, rig.host, MIB(24)), 0);
			ck_assert_int_eq(rig_run(&rig, &zero, NULL), 0);
			base = rig_look(&rig, 0, rig.tier->base.bytes);
			ck_assert(rig_all(base + zero.offset, zero.bytes, 0));
			ck_assert(zero.offset > MIB(24) || zero.offset == 0 ||
				  base[zero.offset - 1] == 0xaa);
			ck_assert(end >= MIB(24) || base[end] == 0xaa);
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(copies_that_overlap_move_every_byte)
{
	/* from, to, bytes */
	static const uint64_t moves[][3] = {
		{ 0, 1, 100 },
		{ 1, 0, 100 },
		{ 0, 4096, MIB(5) },
		{ 4096, 0, MIB(5) },
		{ MIB(1), MIB(1) + 7, MIB(3) },
		{ MIB(2) + 9, MIB(2), MIB(3) + 1 },
		{ 0, MIB(10), MIB(4) },
		{ 3 * 4096, 3 * 4096, MIB(2) },
	};
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		for (size_t i = 0; rig_mapped(&rig) && i < ARRAY_SIZE(moves); i++) {
			struct rig_range range, copy = { .op = XFER_COPY,
							 .from = moves[i][0],
							 .offset = moves[i][1],
							 .bytes = moves[i][2] };

			rig_fill(rig.host, MIB(16), i);
			ck_assert_int_eq(rig_write(&rig, &range, 0, rig.host, MIB(16)), 0);
			ck_assert_int_eq(rig_run(&rig, &copy, NULL), 0);
			memmove(rig.host + copy.offset, rig.host + copy.from, copy.bytes);
			ck_assert(bytes_equal(rig_look(&rig, 0, MIB(16)), rig.host, MIB(16)));
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(an_exported_arena_is_the_same_memory_and_cannot_change_size)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		const struct tier_ops *own = rig.tier->base.ops;
		struct arena_token token = { .fd = -1 };
		struct rig_range range;
		struct err err = ERR_INIT;
		unsigned char *client;

		if (own->export_arena != NULL) {
			ck_assert_int_eq(own->export_arena(rig.tier, &token, &err), 0);
			ck_assert_uint_ge(token.bytes, rig.tier->base.bytes);
			ck_assert_uint_ge(token.alignment, 512);
			ck_assert(token.fd >= 0 || token.slab_bytes == rig.tier->base.slab_bytes);
		}
		if (token.fd >= 0) {
			client = mmap(NULL, token.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				      token.fd, 0);
			ck_assert_ptr_ne(client, MAP_FAILED);
			rig_fill(rig.host, MIB(2), 5);
			ck_assert_int_eq(rig_write(&rig, &range, MIB(7), rig.host, MIB(2)), 0);
			ck_assert(bytes_equal(client + MIB(7), rig.host, MIB(2)));
			memset(client + MIB(7), 0x11, 4096);
			ck_assert_int_eq(rig_read(&rig, &range, rig.host), 0);
			ck_assert_uint_eq(rig.host[4095], 0x11);
			ck_assert_int_lt(ftruncate(token.fd, 0), 0);
			ck_assert_int_lt(ftruncate(token.fd, (off_t)token.bytes * 2), 0);
			ck_assert_int_eq(fcntl(token.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
			munmap(client, token.bytes);
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(trimmed_ranges_read_as_zeros_and_can_be_used_again)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		const struct tier_ops *own = rig.tier->base.ops;
		const unsigned char *base = rig.tier->base.host_base;
		struct rig_range range;

		if (own->trim != NULL && rig_mapped(&rig)) {
			rig_fill(rig.host, MIB(16), 1);
			ck_assert_int_eq(rig_write(&rig, &range, 0, rig.host, MIB(16)), 0);
			own->trim(rig.tier, MIB(4) - 1, MIB(4) + 2);
			ck_assert_uint_eq(base[MIB(4) - 1], rig.host[MIB(4) - 1]);
			ck_assert_uint_eq(base[MIB(8)], rig.host[MIB(8)]);
			ck_assert(rig_all(base + MIB(4), MIB(4), 0));
			ck_assert_int_eq(rig_write(&rig, &range, 0, rig.host, MIB(16)), 0);
			ck_assert(bytes_equal(base, rig.host, MIB(16)));
		}
		rig_close(&rig);
	}
}
END_TEST

START_TEST(a_slab_goes_and_comes_and_its_neighbours_stay)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		uint64_t slab = rig.tier->base.slab_bytes, end = rig.tier->base.bytes;
		uint64_t last = slab > 0 ? (end - 1) / slab * slab : 0;
		unsigned char *back = rig.host + MIB(32);
		struct rig_range range, after;

		if (slab > 0) {
			/* Across the border into the second slab, and the end of the last. */
			rig_fill(rig.host, MIB(4), 6);
			ck_assert_int_eq(rig_write(&rig, &range, slab - MIB(2), rig.host, MIB(4)),
					 0);
			ck_assert_int_eq(rig_write(&rig, &after, end - 4096, rig.host, 4096), 0);
			ck_assert_int_eq(rig_slab(&rig, XFER_UNBACK, last), 0);
			ck_assert_int_eq(rig_read(&rig, &range, back), 0);
			ck_assert(bytes_equal(rig.host, back, MIB(4)));
			ck_assert_int_eq(rig_slab(&rig, XFER_BACK, last), 0);
			ck_assert_int_eq(rig_write(&rig, &after, end - 4096, rig.host, 4096), 0);
			ck_assert_int_eq(rig_read(&rig, &after, back), 0);
			ck_assert_int_eq(memcmp(rig.host, back, 4096), 0);
		}
		rig_close(&rig);
	}
}
END_TEST

/* A few hundred xfers of mixed kinds at once, over ranges of their own. */
START_TEST(a_crowd_of_xfers_comes_back_exactly_once_each)
{
	enum { COUNT = 400, EACH = 65536 };
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		struct xfer *x = calloc(COUNT, sizeof(*x)), *done[COUNT];
		bool seen[COUNT] = { false };

		for (unsigned round = 0; round < 3; round++) {
			if (round < 2)
				rig_fill(rig.host, COUNT * EACH, round);
			for (unsigned i = 0; i < COUNT; i++) {
				x[i].op = round == 1 ? XFER_READ : XFER_WRITE;
				x[i].priority = (uint8_t)(i * 7 % XFER_PRIORITIES);
				x[i].offset = (uint64_t)EACH * i;
				x[i].bytes = 4096 * (1 + i % 16) - i % 3;
				x[i].host = rig.host + x[i].offset;
				x[i].part = i;
			}
			/* First out, then back over bytes of another pattern, then out again. */
			memset(seen, 0, sizeof(seen));
			for (unsigned i = 0; i < COUNT; i++) {
				rig_lend(&rig, &x[i]);
				if (i % 37 == 0)
					lane_kick(rig.lane);
			}
			rig_wait(&rig, done, COUNT);
			for (unsigned i = 0; i < COUNT; i++) {
				ck_assert_int_eq(done[i]->result, 0);
				ck_assert(!seen[done[i]->part]);
				seen[done[i]->part] = true;
			}
		}
		rig_fill(rig.host + MIB(32), COUNT * EACH, 0);
		for (unsigned i = 0; i < COUNT; i++)
			ck_assert(bytes_equal(x[i].host, rig.host + MIB(32) + x[i].offset,
					      x[i].bytes));
		free(x);
		rig_close(&rig);
	}
}
END_TEST

START_TEST(sync_and_empty_ranges_succeed)
{
	struct rig rig;

	for_each_backend(ops, &rig, NULL)
	{
		struct xfer sync = { .op = XFER_SYNC, .priority = XFER_WRITE_BACK }, *done[1];
		struct rig_range range;

		ck_assert_int_eq(rig_write(&rig, &range, 0, rig.host, 0), 0);
		ck_assert_int_eq(rig_read(&rig, &range, rig.host), 0);
		rig_lend(&rig, &sync);
		rig_wait(&rig, done, 1);
		ck_assert_int_eq(sync.result, 0);
		rig_close(&rig);
	}
}
END_TEST

/* ---- faults around every backend ------------------------------------------------------------- */

static void expect_failure(const struct fault_config *fault, uint8_t op, int result,
			   const char *cause)
{
	struct rig rig;

	for_each_backend(ops, &rig, fault)
	{
		struct rig_range range;
		struct xfer failed;

		rig_fill(rig.host, MIB(1), 3);
		range = (struct rig_range){ .op = XFER_WRITE, .bytes = MIB(1), .host = rig.host };
		if (op == XFER_READ) {
			ck_assert_int_eq(rig_run(&rig, &range, NULL), 0);
			range.op = XFER_READ;
			range.host = rig.host + MIB(8);
		}
		ck_assert_int_eq(rig_run(&rig, &range, &failed), result);
		ck_assert_msg(strstr(failed.cause, cause) != NULL, "%s: cause is \"%s\"", ops->name,
			      failed.cause);
		ck_assert_uint_eq(failed.bytes, MIB(1)); /* as it was lent */
		ck_assert_ptr_nonnull(strstr(rig.tier->base.chosen, "seed 1"));
		/* The window has passed: the same call succeeds. */
		ck_assert_int_eq(rig_run(&rig, &range, NULL), 0);
		if (op == XFER_READ)
			ck_assert(bytes_equal(rig.host, rig.host + MIB(8), MIB(1)));
		rig_close(&rig);
	}
}

START_TEST(injected_errors_reach_the_waiter_with_their_cause)
{
	struct fault_config error = { .seed = 1, .read_error = 1000, .after = 1, .count = 1 };
	struct fault_config full = { .seed = 1, .no_space = 1000, .count = 1 };

	expect_failure(&error, XFER_READ, -EIO, "read of 1048576 bytes at 0x0: injected EIO");
	expect_failure(&full, XFER_WRITE, -ENOSPC,
		       "write of 1048576 bytes at 0x0: injected ENOSPC");
}
END_TEST

START_TEST(short_xfers_are_failures_that_tell_both_lengths)
{
	struct fault_config reads = { .seed = 1, .short_read = 1000, .after = 1, .count = 1 };
	struct fault_config writes = { .seed = 1, .short_write = 1000, .count = 1 };

	expect_failure(&reads, XFER_READ, -EIO, "of 1048576 bytes");
	expect_failure(&writes, XFER_WRITE, -EIO, "of 1048576 bytes");
}
END_TEST

START_TEST(a_flipped_byte_is_seen)
{
	struct fault_config fault = { .seed = 1, .corrupt = 1000, .after = 1, .count = 1 };
	struct rig rig;

	for_each_backend(ops, &rig, &fault)
	{
		struct rig_range range;
		unsigned differ = 0;
		int r;

		rig_fill(rig.host, MIB(1), 4);
		ck_assert_int_eq(rig_write(&rig, &range, 0, rig.host, MIB(1)), 0);
		r = rig_read(&rig, &range, rig.host + MIB(8));
		for (uint64_t k = 0; k < MIB(1); k++)
			differ += rig.host[k] != rig.host[MIB(8) + k];
		/* Where blocks carry a CRC the tier says so; elsewhere only the bytes tell. */
		ck_assert_int_eq(r, ops->kind == TIER_KIND_NVME ? -EBADMSG : 0);
		ck_assert_uint_eq(differ, 1);
		rig_close(&rig);
	}
}
END_TEST

START_TEST(delays_hold_completions_and_lose_none)
{
	struct fault_config fault = { .seed = 1, .delay_ns = 20 * NS_PER_MS };
	struct rig rig;

	for_each_backend(ops, &rig, &fault)
	{
		enum { COUNT = 100 };
		struct xfer x[COUNT], *done[COUNT];
		uint64_t begin = clock_now_ns();

		for (unsigned i = 0; i < COUNT; i++) {
			x[i] = (struct xfer){ .op = XFER_WRITE,
					      .offset = (uint64_t)i * GRANULE,
					      .bytes = GRANULE,
					      .host = rig.host };
			rig_lend(&rig, &x[i]);
		}
		rig_wait(&rig, done, COUNT);
		ck_assert_uint_ge(clock_now_ns() - begin, 20 * NS_PER_MS);
		for (unsigned i = 0; i < COUNT; i++)
			ck_assert_uint_ge(x[i].end_ns - x[i].begin_ns, 20 * NS_PER_MS);
		rig_close(&rig);
	}
}
END_TEST

UNIT_MAIN("tiers", every_size_comes_back_whole_and_nothing_beside_it,
	  mapped_tiers_take_any_offset_and_any_host_address, the_last_bytes_of_the_tier_can_be_used,
	  devices_of_one_configuration_have_nothing_in_common,
	  demands_come_before_what_was_lent_earlier, a_demand_overtakes_a_long_write_back_under_way,
	  zero_clears_exactly_its_range, copies_that_overlap_move_every_byte,
	  an_exported_arena_is_the_same_memory_and_cannot_change_size,
	  trimmed_ranges_read_as_zeros_and_can_be_used_again,
	  a_slab_goes_and_comes_and_its_neighbours_stay,
	  a_crowd_of_xfers_comes_back_exactly_once_each, sync_and_empty_ranges_succeed,
	  injected_errors_reach_the_waiter_with_their_cause,
	  short_xfers_are_failures_that_tell_both_lengths, a_flipped_byte_is_seen,
	  delays_hold_completions_and_lose_none)

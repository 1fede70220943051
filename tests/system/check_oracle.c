/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/system/oracle.h"
#include "tests/system/system.h"

#define TINY                                                                           \
	"tensors: 4Ki\n"                                                               \
	"linger: 5s\n"                                                                 \
	"tiers:\n"                                                                     \
	"  hbm: {backend: memory, size: 2MiB}\n"                                       \
	"  dram: {size: 6MiB}\n"                                                       \
	"  nvme: {paths: [{path: @NVME@, size: 48MiB}, {path: @NVME@, size: 24MiB}], " \
	"block: 64KiB}\n"                                                              \
	"classes:\n"                                                                   \
	"  parameter: {policy: next_use}\n"                                            \
	"  gradient: {policy: hotness, half_life: 1s}\n"                               \
	"  optimizer: {policy: pin_fraction, fraction: 60%}\n"                         \
	"  activation: {policy: lru}\n"                                                \
	"  other: {policy: fifo}\n"

static struct system tierd_system;
static struct system *const s = &tierd_system;
static struct tierd *td;

static unsigned seconds(unsigned plain, unsigned at_length)
{
	return getenv("TIERD_TEST_LONG") ? at_length : plain;
}

static void start(const char *config)
{
	system_start(s, config);
	ck_assert_msg(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &td) == 0, "%s",
		      tierd_error(NULL));
}

static void stop(struct oracle *o)
{
	tierd_close(td);
	oracle_close(o);
	system_stop(s);
}

/* Every pair of tiers must have been crossed, or the run showed nothing. */
static void moved_between_all_tiers(void)
{
	struct tierd_stats stats;

	ck_assert_int_eq(tierd_stats(td, &stats), 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_HBM][TIERD_DRAM], 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_DRAM][TIERD_HBM], 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_DRAM][TIERD_NVME], MIB(6));
	ck_assert_uint_gt(stats.moved_bytes[TIERD_NVME][TIERD_DRAM], MIB(6));
}

START_TEST(bytes_stay_whole_while_everything_moves)
{
	const uint64_t sizes[] = { 0,          1,      3,          511,     512,   513,
				   4095,       4096,   4097,       65535,   65536, 65537,
				   MIB(1) - 1, MIB(1), MIB(1) + 1, KIB(700) };
	const struct oracle_params params = { .host_max = MIB(2),
					      .gpu_max = MIB(2) - KIB(512),
					      .batch_max = MIB(1) };
	struct oracle *o = oracle_open(&params, MIB(128));

	start(TINY);
	for (unsigned i = 0; i < 64; i++)
		oracle_add(o, td, sizes[i % ARRAY_SIZE(sizes)]);
	oracle_run(s, o, 4, seconds(8, 120));
	oracle_check_all(s, o);
	moved_between_all_tiers();
	stop(o);
}
END_TEST

START_TEST(tensors_larger_than_dram_live_on_nvme_and_are_copied)
{
	const struct oracle_params params = { .host_max = MIB(1), .batch_max = 0 };
	struct oracle *o = oracle_open(&params, MIB(128));

	start(TINY);
	oracle_add(o, td, MIB(8) + 1);
	oracle_add(o, td, MIB(12) - 3);
	oracle_add(o, td, KIB(300));
	oracle_add(o, td, KIB(900));
	oracle_run(s, o, 3, seconds(4, 60));
	oracle_check_all(s, o);
	stop(o);
}
END_TEST

START_TEST(tensors_of_a_layer_come_back_whole)
{
	const struct oracle_params params = { .host_max = 28824000,
					      .gpu_max = 28824000,
					      .batch_max = 28824000 };
	struct oracle *o = oracle_open(&params, MIB(256));

	start("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: memory, size: 40MiB}\n"
	      "  dram: {size: 80MiB}\n"
	      "  nvme: {paths: [{path: @NVME@, size: 256MiB}]}\n");
	for (unsigned i = 0; i < 5; i++)
		oracle_add(o, td, 28824000);
	oracle_add(o, td, 5000);
	oracle_run(s, o, 3, seconds(8, 60));
	oracle_check_all(s, o);
	stop(o);
}
END_TEST

START_TEST(a_tensor_above_4_gib_comes_back_whole)
{
	const uint64_t bytes = GIB(4) + MIB(3) + 5;
	const struct oracle_params params = { .host_max = GIB(5), .patience_s = 600 };
	struct oracle *o;

	if (!getenv("TIERD_TEST_LONG"))
		return;
	o = oracle_open(&params, GIB(6));
	start("tensors: 4Ki\n"
	      "tiers:\n"
	      "  dram: {size: 5GiB, huge_pages: off}\n"
	      "  nvme: {paths: [{path: @NVME@, size: 10GiB}]}\n");
	oracle_add(o, td, bytes);
	oracle_add(o, td, GIB(1));
	oracle_rewrite(o, td, 0);
	oracle_rewrite(o, td, 1); /* dram does not take both */
	oracle_check_all(s, o);
	oracle_rewrite(o, td, 0);
	oracle_check_all(s, o);
	stop(o);
}
END_TEST

/* A doomed tensor keeps its bytes until the last pin ends, and gives them back then. */
START_TEST(a_tensor_destroyed_while_pinned_stays_readable)
{
	struct tierd_spec spec = { .name = "doomed", .ndim = 1, .shape = { MIB(3) } };
	struct tierd_view v, other;
	tierd_tensor tensor, again;
	struct tierd *second;

	start(TINY);
	ck_assert_int_eq(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &second), 0);
	ck_assert_int_eq(tierd_create(td, &spec, 1, &tensor), 0);
	ck_assert_int_eq(tierd_acquire(td, tensor, TIERD_HOST, TIERD_WRITE, -1, &v), 0);
	memset(v.data, 0x77, v.bytes);
	ck_assert_int_eq(tierd_destroy(second, &tensor, 1), 0);
	ck_assert_int_eq(tierd_acquire(second, tensor, TIERD_HOST, TIERD_READ, -1, &other),
			 -ESTALE);
	ck_assert_int_eq(tierd_lookup(second, "doomed", &again), -ENOENT);
	/* The name is free at once, and what comes anew is another tensor of zeros. */
	ck_assert_int_eq(tierd_create(second, &spec, 1, &again), 0);
	for (unsigned i = 0; i < 8; i++) {
		struct tierd_view w;

		ck_assert_int_eq(tierd_acquire(second, again, TIERD_HOST, TIERD_WRITE,
					       200 * (int64_t)NS_PER_MS, &w),
				 -ETIMEDOUT);
		ck_assert(system_bytes_are(v.data, 0x77, v.bytes));
	}
	tierd_release(td, &v);
	ck_assert_int_eq(
		tierd_acquire(second, again, TIERD_HOST, TIERD_READ, 10 * (int64_t)NS_PER_S, &v),
		0);
	ck_assert(system_bytes_are(v.data, 0, v.bytes));
	tierd_release(second, &v);
	tierd_close(second);
	tierd_close(td);
	system_stop(s);
}
END_TEST

UNIT_MAIN("oracle", bytes_stay_whole_while_everything_moves,
	  tensors_larger_than_dram_live_on_nvme_and_are_copied, tensors_of_a_layer_come_back_whole,
	  a_tensor_above_4_gib_comes_back_whole, a_tensor_destroyed_while_pinned_stays_readable)

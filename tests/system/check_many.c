/* SPDX-License-Identifier: Apache-2.0
 *
 * Very many tensors on a real tierd: what each costs beside its bytes, that they are packed, listed
 * and given back. A tenth of them always, all with TIERD_TEST_LONG.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/system/client_rig.h"

#define MOST  1000000u
#define BATCH 1000u

/* Of the daemon's own for each. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define BYTES_A_TENSOR 100000u /* says nothing there */
#else
#define BYTES_A_TENSOR 400u
#endif

static tierd_tensor h[MOST];

static unsigned many(unsigned at_length)
{
	return getenv("TIERD_TEST_LONG") ? at_length : at_length / 10;
}

static void begin(unsigned dram_mib)
{
	char config[256];

	snprintf(config, sizeof(config),
		 "tensors: 1100Ki\n"
		 "tiers:\n"
		 "  dram: {size: %uMiB}\n"
		 "  nvme: {paths: [{path: @NVME@, size: 512MiB}]}\n",
		 dram_mib);
	system_start(s, config);
	connect_as("job");
}

static void make_all(unsigned n, uint64_t bytes)
{
	static struct tierd_spec specs[BATCH];

	for (unsigned i = 0; i < BATCH; i++)
		specs[i] = (struct tierd_spec){ .ndim = 1, .shape = { bytes } };
	for (unsigned i = 0; i < n; i += BATCH)
		ck_assert_msg(tierd_create(t, specs, BATCH, h + i) == 0, "%s", tierd_error(t));
}

static void destroy_all(unsigned n)
{
	struct tierd_stats stats;

	for (unsigned i = 0; i < n; i += BATCH)
		ck_assert_msg(tierd_destroy(t, h + i, BATCH) == 0, "%s", tierd_error(t));
	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	ck_assert_uint_eq(stats.tensors, 0);
	ck_assert_uint_eq(stats.committed_bytes, 0);
	for (unsigned tier = 0; tier < TIERD_TIERS; tier++)
		ck_assert_uint_eq(stats.tier[tier].reserved_bytes, 0);
}

static void write_each(unsigned n, unsigned every)
{
	for (unsigned i = 0; i < n; i += every)
		fill(h[i], TIERD_HOST, (int)(i % 251) + 1);
}

static void read_each(unsigned n, unsigned every)
{
	for (unsigned i = 0; i < n; i += every)
		expect(h[i], TIERD_HOST, (int)(i % 251) + 1);
}

/* How many lines tierctl has for them. */
static unsigned listed(void)
{
	char command[512], line[64] = "";
	FILE *f;

	snprintf(command, sizeof(command), "%s --socket %s --json list | grep -c index",
		 TIERCTL_PATH, s->socket);
	f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_int_eq(pclose(f), 0);
	return (unsigned)strtoul(line, NULL, 10);
}

START_TEST(tiny_tensors_cost_little_and_are_all_listed)
{
	struct system_holdings before, after;
	unsigned n = many(MOST);

	begin(many(640));
	make_all(BATCH, 16);
	before = system_holdings(s->pid);
	make_all(n, 16);
	write_each(n, 100);
	read_each(n, 100);
	after = system_holdings(s->pid);
	ck_assert_uint_eq(after.descriptors, before.descriptors);
	ck_assert_uint_le(after.resident_bytes - before.resident_bytes,
			  (uint64_t)n * BYTES_A_TENSOR);
	ck_assert_uint_eq(listed(), n + BATCH);
	tierd_close(t);
	connect_as("other");
	end();
}
END_TEST

/* They go some a turn, and who has no room before waits for that alone. */
START_TEST(who_comes_after_very_many_gets_their_room)
{
	unsigned n = many(MOST);

	begin(many(640));
	make_all(n, 16);
	for (unsigned job = 0; job < 3; job++) {
		tierd_close(t);
		connect_as(job % 2 ? "job" : "other");
		make_all(n, 16);
		fill(h[n - 1], TIERD_HOST, (int)job + 1);
		expect(h[n - 1], TIERD_HOST, (int)job + 1);
	}
	destroy_all(n);
	end();
}
END_TEST

/* Pages of one tensor each: what they take of nvme is what they have. */
START_TEST(tensors_of_a_page_are_packed_and_come_back)
{
	unsigned n = many(100000);
	struct tierd_stats stats;

	begin(16);
	make_all(n, 4096);
	write_each(n, 1);
	ck_assert_int_eq(tierd_flush(t, NULL, 0), 0);
	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	ck_assert_uint_ge(stats.tier[TIERD_NVME].reserved_bytes, (uint64_t)n * 4096);
	ck_assert_uint_lt(stats.tier[TIERD_NVME].peak_bytes, (uint64_t)n * 4096 * 13 / 10);
	ck_assert_uint_lt(stats.moved_bytes[TIERD_DRAM][TIERD_NVME], (uint64_t)n * 4096 * 13 / 10);
	read_each(n, 1);
	destroy_all(n);
	end();
}
END_TEST

UNIT_MAIN("many", tiny_tensors_cost_little_and_are_all_listed,
	  who_comes_after_very_many_gets_their_room, tensors_of_a_page_are_packed_and_come_back)

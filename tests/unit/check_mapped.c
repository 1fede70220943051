/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of mapped tiers as the system sees it: exact size, all of it there, refused when it is
 * not to be had, and the time that a slower device would take. Memory that comes in slabs is in
 * check_mapped_slabs.c, what every tier owes in tests/conformance/check_tiers.c.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/cgroup_rig.h"
#include "tests/unit/dram_rig.h"
#include "tiers/arena.h"
#include "tiers/dram.h"
#include "tiers/hugepage.h"
#include "tiers/limits.h"
#include "tiers/memory.h"

static uint64_t status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	uint64_t kib = 0;
	char line[256];

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			kib = strtoull(line + strlen(key), NULL, 10);
	fclose(f);
	return kib << 10;
}

/* The lane by hand. */
static void run_by_hand(struct tier *t, struct xfer *x)
{
	struct xfer *done[1];

	ck_assert_int_eq(t->base.ops->queue(t, x), 0);
	t->base.ops->commit(t);
	while (t->base.ops->reap(t, done, 1) == 0)
		t->base.ops->wait(t, -1);
	ck_assert_ptr_eq(done[0], x);
}

START_TEST(dram_is_exactly_as_large_as_configured_and_all_of_it_is_there)
{
	static const uint64_t sizes[] = { MIB(1), MIB(257), MIB(300) + 4096 };
	struct topology *topo = this_machine();

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (int numa = TOPO_NEAREST; numa <= TOPO_OFF; numa++) {
			struct dram_config c = { .size.bytes = sizes[i],
						 .numa = numa,
						 .huge_pages = ARENA_HUGE_OFF };
			uint64_t before = status_bytes("VmRSS:"), real;
			struct tier *t = open_dram(&c, topo);

			real = status_bytes("VmRSS:") - before;
			ck_assert_uint_eq(t->base.bytes, sizes[i]);
			ck_assert_uint_eq(file_bytes(t), sizes[i]);
			ck_assert_uint_ge(real, sizes[i] - sizes[i] / 50);
			ck_assert_uint_le(real, sizes[i] + sizes[i] / 50 + MIB(64));
			t->base.ops->close(t);
		}
	}
	topo_close(topo);
}
END_TEST

START_TEST(memory_that_is_not_there_is_refused_with_numbers_before_it_is_touched)
{
	struct topology *topo = this_machine();
	struct limits limits;
	struct err err = ERR_INIT;
	struct dram_config c = { .huge_pages = ARENA_HUGE_OFF };
	uint64_t before = status_bytes("VmHWM:"), all;
	struct tier *t = NULL;
	char wanted[64], there[64];

	ck_assert_int_eq(limits_read("", &limits, &err), 0);
	all = ALIGN_DOWN(limits.total.bytes, MIB(2)); /* never available: this runs on it */
	c.size.bytes = all;
	ck_assert_int_eq(dram_ops.open(&c, 0, topo, &t, &err), -ENOMEM);
	ck_assert_ptr_null(t);
	snprintf(wanted, sizeof(wanted), "dram: %" PRIu64 " MiB are wanted", c.size.bytes >> 20);
	ck_assert_msg(strstr(err.text, wanted) != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(strstr(err.text, "MiB are available"));
	ck_assert_uint_lt(status_bytes("VmHWM:") - before, MIB(16));
	/* What comes later counts, and so does what will be taken beside it. */
	c.slab = MIB(64);
	ck_assert_int_eq(dram_ops.open(&c, 0, topo, &t, &err), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(err.text, wanted));
	c.size.bytes = all / 2;
	c.beside_bytes = all - all / 2;
	ck_assert_int_eq(dram_ops.open(&c, 0, topo, &t, &err), -ENOMEM);
	/* More than all there is will be too much another time as well. */
	c.beside_bytes = limits.total.bytes;
	ck_assert_int_eq(dram_ops.open(&c, 0, topo, &t, &err), -EINVAL);
	snprintf(wanted, sizeof(wanted), "dram: %" PRIu64 " MiB are wanted, ",
		 (c.size.bytes + c.beside_bytes) >> 20);
	snprintf(there, sizeof(there), "%" PRIu64 " MiB are all there is",
		 limits.total.bytes >> 20);
	ck_assert_msg(strstr(err.text, wanted) && strstr(err.text, there), "%s", err.text);
	ck_assert_uint_lt(status_bytes("VmHWM:") - before, MIB(16));
	topo_close(topo);
}
END_TEST

START_TEST(the_memory_backend_is_refused_alike)
{
	struct limits limits;
	struct memory_config c = { 0 };
	struct err err = ERR_INIT;
	struct tier *t = NULL;

	ck_assert_int_eq(limits_read("", &limits, &err), 0);
	c.size.bytes = ALIGN_DOWN(limits.total.bytes, MIB(2));
	ck_assert_int_eq(memory_ops.open(&c, 0, NULL, &t, &err), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(err.text, "MiB are available"));
}
END_TEST

START_TEST(a_stop_does_not_wait_for_memory_to_be_touched)
{
	struct topology *topo = this_machine();
	struct dram_config c = { .size.bytes = MIB(256), .huge_pages = ARENA_HUGE_TRY };
	uint64_t before = status_bytes("VmHWM:");
	struct err err = ERR_INIT;
	struct tier *t = NULL;
	sigset_t term;
	int signal;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	kill(getpid(), SIGTERM);
	ck_assert_int_eq(dram_ops.open(&c, 0, topo, &t, &err), -EINTR);
	ck_assert_msg(strstr(err.text, "told to stop") != NULL, "%s", err.text);
	ck_assert_uint_lt(status_bytes("VmHWM:") - before, MIB(64));
	ck_assert_int_eq(sigwait(&term, &signal), 0);
	t = open_dram(&c, topo);
	t->base.ops->close(t);
	topo_close(topo);
}
END_TEST

START_TEST(a_size_in_percent_is_of_the_machine_or_its_container)
{
	struct topology *topo = this_machine();
	struct dram_config c = { .size.permille = 5, .huge_pages = ARENA_HUGE_OFF };
	struct limits limits;
	struct err err = ERR_INIT;
	struct tier *t = open_dram(&c, topo);

	ck_assert_int_eq(limits_read("", &limits, &err), 0);
	ck_assert_uint_eq(t->base.bytes, ALIGN_UP(limits.total.bytes / 1000 * 5, 4096));
	t->base.ops->close(t);
	topo_close(topo);
}
END_TEST

START_TEST(a_container_limit_is_seen_before_the_kernel_kills)
{
	struct dram_config c = { .size.bytes = MIB(128), .huge_pages = ARENA_HUGE_OFF };
	struct topology *topo = this_machine();
	struct err err = ERR_INIT;
	struct tier *t = NULL;
	char folder[128];

	if (!cgroup_enter(MIB(64), folder, sizeof(folder))) {
		printf("skipped: no memory cgroup can be made here (root, and a controller)\n");
		topo_close(topo);
		return;
	}
	ck_assert_int_eq(dram_ops.open(&c, 0, topo, &t, &err), -EINVAL);
	ck_assert_msg(strstr(err.text, folder) != NULL, "%s", err.text);
	c.size = (struct config_bytes){ .permille = 500 };
	t = open_dram(&c, topo);
	ck_assert_uint_eq(t->base.bytes, ALIGN_UP(MIB(64) / 1000 * 500, 4096));
	t->base.ops->close(t);
	cgroup_leave(folder);
	topo_close(topo);
}
END_TEST

/* Somebody else has taken it since the start. */
START_TEST(a_slab_that_is_not_to_be_had_takes_nothing)
{
	struct dram_config c = { .size.bytes = MIB(64),
				 .slab = MIB(32),
				 .huge_pages = ARENA_HUGE_OFF };
	struct topology *topo = this_machine();
	struct tier *t = open_dram(&c, topo);
	struct xfer x = { .op = XFER_BACK, .offset = MIB(32), .bytes = MIB(32) };
	struct err err = ERR_INIT;
	char folder[128];

	ck_assert_int_eq(t->base.ops->lane_start(t, -1, &err), 0);
	if (cgroup_enter(MIB(16), folder, sizeof(folder))) {
		run_by_hand(t, &x);
		ck_assert_int_eq(x.result, -ENOMEM);
		ck_assert_msg(strstr(x.cause, "dram: 32 MiB are wanted") != NULL, "%s", x.cause);
		ck_assert_uint_eq(file_bytes(t), MIB(32));
		cgroup_leave(folder);
	} else {
		printf("skipped: no memory cgroup can be made here (root, and a controller)\n");
	}
	run_by_hand(t, &x);
	ck_assert_int_eq(x.result, 0);
	ck_assert_uint_eq(file_bytes(t), MIB(64));
	t->base.ops->lane_stop(t);
	t->base.ops->close(t);
	topo_close(topo);
}
END_TEST

START_TEST(huge_pages_are_had_refused_or_done_without_as_asked)
{
	struct topology *topo = this_machine();
	struct dram_config c = { .size.bytes = MIB(33), .huge_pages = ARENA_HUGE_REQUIRE };
	bool pool = hugepage_pool_bytes() >= MIB(34);
	struct err err = ERR_INIT;
	struct tier *t;
	int r = dram_ops.open(&c, 0, topo, &t, &err);

	if (pool) {
		ck_assert_msg(r == 0, "%s", err.text);
		ck_assert_uint_eq(t->base.bytes, MIB(33));
		ck_assert_uint_eq(file_bytes(t), MIB(34));
		ck_assert_ptr_nonnull(strstr(t->base.chosen, "2 MiB pages of the pool"));
	} else if (r < 0) {
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_msg(strstr(err.text, "free in the pool") != NULL, "%s", err.text);
		ck_assert_ptr_nonnull(strstr(err.text, "transparent 2 MiB pages"));
	} else {
		ck_assert_uint_ge(hugepage_mapped_bytes(t->base.host_base, MIB(33)), MIB(31));
	}
	if (r == 0)
		t->base.ops->close(t);
	c.huge_pages = ARENA_HUGE_TRY;
	t = open_dram(&c, topo);
	ck_assert_ptr_nonnull(strstr(t->base.chosen, pool     ? "pool"
						     : r == 0 ? "transparent"
							      : " pages"));
	t->base.ops->close(t);
	topo_close(topo);
}
END_TEST

/* Where the pool has room it holds 34 MiB, and still 33 are given. */
START_TEST(a_tier_has_what_was_asked_for_though_its_last_page_is_larger)
{
	struct dram_config c = { .size.bytes = MIB(33), .slab = MIB(32) };
	bool pool = hugepage_pool_bytes() >= MIB(34);
	struct topology *topo = this_machine();
	struct tier *t = open_dram(&c, topo);
	struct xfer x = { .op = XFER_BACK, .offset = MIB(32), .bytes = MIB(1) };
	struct err err = ERR_INIT;

	ck_assert_uint_eq(t->base.bytes, MIB(33));
	ck_assert_uint_eq(t->base.backed_bytes, MIB(32));
	ck_assert_uint_eq(file_bytes(t), MIB(32));
	ck_assert_int_eq(t->base.ops->lane_start(t, -1, &err), 0);
	run_by_hand(t, &x);
	ck_assert_int_eq(x.result, 0);
	ck_assert_uint_eq(file_bytes(t), pool ? MIB(34) : MIB(33));
	x.op = XFER_UNBACK;
	run_by_hand(t, &x);
	ck_assert_int_eq(x.result, 0);
	ck_assert_uint_eq(file_bytes(t), MIB(32));
	t->base.ops->lane_stop(t);
	t->base.ops->close(t);
	topo_close(topo);
}
END_TEST

START_TEST(moving_to_2_mib_pages_keeps_what_was_written)
{
	struct arena_options o = {
		.name = "collapse", .bytes = MIB(9), .huge = ARENA_HUGE_OFF, .touch = true
	};
	struct err err = ERR_INIT;
	uint64_t *words, came;
	unsigned failed;
	struct arena a;

	ck_assert_int_eq(arena_create(&o, &a, &err), 0);
	words = a.base;
	for (uint64_t i = 0; i < MIB(9) / 8; i++)
		words[i] = i * i;
	/* Not from the start: what is not a whole page stays as it is. */
	failed = hugepage_collapse((char *)a.base + MIB(1), MIB(8), &came);
	ck_assert_uint_eq(came, (3 - failed) * MIB(2));
	ck_assert_uint_le(failed, 3);
	ck_assert_uint_eq(hugepage_mapped_bytes(a.base, a.bytes), (3 - failed) * MIB(2));
	for (uint64_t i = 0; i < MIB(9) / 8; i++)
		ck_assert_uint_eq(words[i], i * i);
	arena_destroy(&a);
}
END_TEST

START_TEST(the_memory_backend_reserves_all_and_touches_nothing)
{
	struct memory_config c = { .size.bytes = MIB(200) };
	uint64_t before = status_bytes("VmRSS:");
	struct err err = ERR_INIT;
	struct tier *t;

	log_configure("warn");
	ck_assert_int_eq(memory_ops.open(&c, 0, NULL, &t, &err), 0);
	ck_assert_uint_eq(file_bytes(t), MIB(200));
	ck_assert_uint_lt(status_bytes("VmRSS:") - before, MIB(8));
	t->base.ops->close(t);
	c.size = (struct config_bytes){ .permille = 100 };
	ck_assert_int_eq(memory_ops.check(&c, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "size: no %"));
}
END_TEST

START_TEST(zeroing_leaves_pages_alone_that_were_never_touched)
{
	struct arena_options o = { .name = "zero", .bytes = MIB(64), .huge = ARENA_HUGE_OFF };
	struct err err = ERR_INIT;
	struct arena a;
	uint64_t before;

	ck_assert_int_eq(arena_create(&o, &a, &err), 0);
	memset((char *)a.base + MIB(32) + 100, 1, 8192);
	before = status_bytes("VmRSS:");
	arena_zero(&a, 0, MIB(64));
	ck_assert_uint_lt(status_bytes("VmRSS:") - before, MIB(1));
	for (uint64_t i = 0; i < 3 * 4096; i++)
		ck_assert_uint_eq(((char *)a.base)[MIB(32) + i], 0);
	arena_destroy(&a);
}
END_TEST

START_TEST(trim_gives_memory_back_and_a_later_write_reserves_it_anew)
{
	struct arena_options o = { .name = "trim", .bytes = MIB(32), .huge = ARENA_HUGE_OFF };
	struct err err = ERR_INIT;
	struct stat st;
	struct arena a;

	ck_assert_int_eq(arena_create(&o, &a, &err), 0);
	arena_trim(&a, MIB(8), MIB(16));
	ck_assert_int_eq(fstat(a.fd, &st), 0);
	ck_assert_int_eq(st.st_blocks * 512, MIB(16));
	arena_trim(&a, 0, 4095); /* no whole page */
	ck_assert_int_eq(arena_reserve(&a, MIB(8) + 1, MIB(4)), 0);
	ck_assert_int_eq(fstat(a.fd, &st), 0);
	ck_assert_int_eq(st.st_blocks * 512, MIB(20) + 4096);
	arena_destroy(&a);
}
END_TEST

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* The lane by hand, so that its processor time can be told: 64 MB/s, without a busy loop. */
START_TEST(a_bandwidth_is_kept_asleep)
{
	struct memory_config c = { .size.bytes = MIB(32), .bandwidth = 64000000 };
	struct xfer x = { .op = XFER_READ, .bytes = MIB(16), .host = malloc(MIB(16)) }, *done[1];
	struct err err = ERR_INIT;
	uint64_t begin, ns;
	unsigned turns = 0;
	struct tier *t;
	double cpu;

	ck_assert_int_eq(memory_ops.open(&c, 0, NULL, &t, &err), 0);
	ck_assert_int_eq(t->base.ops->lane_start(t, -1, &err), 0);
	memset(x.host, 1, x.bytes);
	memset(t->base.host_base, 1, x.bytes);
	cpu = cpu_seconds();
	begin = clock_now_ns();
	ck_assert_int_eq(t->base.ops->queue(t, &x), 0);
	t->base.ops->commit(t);
	for (; t->base.ops->reap(t, done, 1) == 0; turns++)
		t->base.ops->wait(t, -1);
	ns = clock_now_ns() - begin;
	cpu = cpu_seconds() - cpu;
	ck_assert_uint_ge(ns, 255 * NS_PER_MS); /* 262 ms less the slack */
	ck_assert_uint_lt(turns, 64);           /* two a piece, or four when woken early */
	ck_assert_msg(cpu < 0.1, "%.3f s of processor time in %.3f s", cpu, (double)ns * 1e-9);
	t->base.ops->lane_stop(t);
	t->base.ops->close(t);
	free(x.host);
}
END_TEST

/* As the daemon does it: the configuration alone asks for faults. */
START_TEST(faults_of_the_configuration_stand_around_the_tier)
{
	static const char text[] = "size: 4MiB\nfault: {seed: 7, write_error: 100%, count: 1}\n";
	struct memory_config c = { 0 };
	struct xfer x = { .op = XFER_WRITE, .bytes = 4096, .host = malloc(4096) }, *done[1];
	struct err err = ERR_INIT;
	struct tier *t;

	ck_assert_msg(config_load_text(memory_rows, "t", text, strlen(text), &c, &err) == 0, "%s",
		      err.text);
	ck_assert_uint_eq(c.size.bytes, MIB(4));
	ck_assert_uint_eq(c.bandwidth, 0);
	ck_assert_int_eq(memory_ops.open(&c, 0, NULL, &t, &err), 0);
	ck_assert_ptr_ne(t->base.ops, &memory_ops);
	ck_assert_int_eq(t->base.ops->lane_start(t, -1, &err), 0);
	memset(x.host, 3, x.bytes);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(t->base.ops->queue(t, &x), 0);
		t->base.ops->commit(t);
		while (t->base.ops->reap(t, done, 1) == 0)
			t->base.ops->wait(t, 0);
		ck_assert_int_eq(x.result, i == 0 ? -EIO : 0);
		x.result = 0;
	}
	ck_assert_int_eq(memcmp(t->base.host_base, x.host, x.bytes), 0);
	t->base.ops->lane_stop(t);
	t->base.ops->close(t);
	config_free(memory_rows, &c);
	free(x.host);
}
END_TEST

UNIT_MAIN("mapped", dram_is_exactly_as_large_as_configured_and_all_of_it_is_there,
	  memory_that_is_not_there_is_refused_with_numbers_before_it_is_touched,
	  the_memory_backend_is_refused_alike, a_stop_does_not_wait_for_memory_to_be_touched,
	  a_slab_that_is_not_to_be_had_takes_nothing,
	  a_size_in_percent_is_of_the_machine_or_its_container,
	  a_container_limit_is_seen_before_the_kernel_kills,
	  huge_pages_are_had_refused_or_done_without_as_asked,
	  a_tier_has_what_was_asked_for_though_its_last_page_is_larger,
	  moving_to_2_mib_pages_keeps_what_was_written,
	  the_memory_backend_reserves_all_and_touches_nothing,
	  zeroing_leaves_pages_alone_that_were_never_touched,
	  trim_gives_memory_back_and_a_later_write_reserves_it_anew, a_bandwidth_is_kept_asleep,
	  faults_of_the_configuration_stand_around_the_tier)

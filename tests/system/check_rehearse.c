/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator can rehearse by `fault:`: each kind in a running daemon has the effect that the
 * design promises, is told at start, and is refused where it makes no sense. Beside
 * check_faults.c, which has those that are errors of single copies.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/system/oracle.h"
#include "tests/system/system.h"

static struct system tierd_system;
static struct system *const s = &tierd_system;
static struct tierd *td;

/* dram takes three tensors of 1 MiB, not four. */
#define FAULTY(fault)            \
	"tensors: 4Ki\n"         \
	"tiers:\n"               \
	"  dram: {size: 4MiB}\n" \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB, fault: {" fault "}}\n"

#define TENSORS 8u

static tierd_tensor tensors[TENSORS];

static void start(const char *config)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { MIB(1) } };

	system_start(s, config);
	ck_assert(system_log_has(s, "faults are injected, as `fault:` says: seed 1"));
	ck_assert_int_eq(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &td), 0);
	for (unsigned i = 0; i < TENSORS; i++)
		ck_assert_int_eq(tierd_create(td, &spec, 1, &tensors[i]), 0);
}

static void stop(void)
{
	tierd_close(td);
	system_stop(s);
}

static int use(unsigned i, uint32_t access, int64_t timeout_ns)
{
	struct tierd_view v;
	int rc = tierd_acquire(td, tensors[i], TIERD_HOST, access, timeout_ns, &v);

	if (rc < 0)
		return rc;
	if (access & TIERD_WRITE)
		memset(v.data, (int)i + 1, v.bytes);
	else
		ck_assert(system_bytes_are(v.data, (unsigned char)(i + 1), v.bytes));
	tierd_release(td, &v);
	return 0;
}

static void write_all(void)
{
	for (unsigned i = 0; i < TENSORS; i++)
		ck_assert_msg(use(i, TIERD_WRITE | TIERD_DISCARD, 20 * (int64_t)NS_PER_S) == 0,
			      "%s", tierd_error(td));
}

static void read_all(void)
{
	for (unsigned i = 0; i < TENSORS; i++)
		ck_assert_msg(use(i, TIERD_READ, 20 * (int64_t)NS_PER_S) == 0, "%s",
			      tierd_error(td));
}

START_TEST(what_is_late_is_waited_for)
{
	start(FAULTY("late: 10%, late_by: 200ms"));
	write_all();
	read_all();
	stop();
}
END_TEST

/* Its buffer may be written still, so nothing ends but the waits; others go on. */
START_TEST(what_never_comes_holds_up_who_waits_for_it_and_nobody_else)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { KIB(64) } };
	tierd_tensor small;
	struct tierd_view v;
	uint64_t begin_ns;

	start(FAULTY("lost: 100%"));
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(use(i, TIERD_WRITE | TIERD_DISCARD, 10 * (int64_t)NS_PER_S), 0);
	begin_ns = clock_now_ns();
	ck_assert_int_eq(use(3, TIERD_WRITE | TIERD_DISCARD, NS_PER_S), -ETIMEDOUT);
	ck_assert_uint_lt(clock_now_ns() - begin_ns, 10 * NS_PER_S);
	ck_assert_int_eq(tierd_create(td, &spec, 1, &small), 0);
	ck_assert_int_eq(
		tierd_acquire(td, small, TIERD_HOST, TIERD_WRITE, 10 * (int64_t)NS_PER_S, &v), 0);
	tierd_release(td, &v);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(use(i, TIERD_READ, 10 * (int64_t)NS_PER_S), 0);
	stop(); /* and the daemon ends, without waiting for what is lost */
}
END_TEST

START_TEST(what_comes_twice_is_passed_over)
{
	start(FAULTY("doubled: 50%"));
	write_all();
	read_all();
	write_all();
	read_all();
	ck_assert(system_log_has(s, "completed a request that was not on its way"));
	stop();
}
END_TEST

/* Who reads it is told; who overwrites all of it has it again. */
START_TEST(what_has_rotted_is_told_and_never_handed_out)
{
	unsigned broken = 0;

	start(FAULTY("rot: 100%, count: 64"));
	write_all();
	for (unsigned i = 0; i < TENSORS; i++) {
		int rc = use(i, TIERD_READ, 20 * (int64_t)NS_PER_S);

		ck_assert_msg(rc == 0 || rc == -EIO, "%s", tierd_error(td));
		if (rc < 0)
			ck_assert_msg(strstr(tierd_error(td), "CRC") != NULL, "%s",
				      tierd_error(td));
		broken += rc < 0;
	}
	ck_assert_uint_gt(broken, 0);
	write_all();
	read_all();
	stop();
}
END_TEST

START_TEST(without_registered_memory_all_works)
{
	start(FAULTY("no_register: true"));
	ck_assert(system_log_has(s, "buffers 0 of"));
	write_all();
	read_all();
	stop();
}
END_TEST

/* The tier is full for a while: what there is of it goes on. */
START_TEST(a_slab_that_is_not_to_be_had_is_a_full_tier)
{
	start("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: memory, size: 8MiB, slab: 2MiB, fault: {no_memory: 100%, count: "
	      "2}}\n"
	      "  dram: {size: 16MiB}\n");
	write_all();
	for (unsigned i = 0; i < TENSORS; i++) {
		struct tierd_view v;

		ck_assert_msg(tierd_acquire(td, tensors[i], 0, TIERD_READ, 20 * (int64_t)NS_PER_S,
					    &v) == 0,
			      "%s", tierd_error(td));
		tierd_release(td, &v);
	}
	read_all();
	stop();
}
END_TEST

/* Nobody can have a place on it, and all else goes on. */
START_TEST(a_slab_that_never_comes_holds_up_its_tier_alone)
{
	start("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: memory, size: 8MiB, slab: 2MiB, fault: {lost: 100%}}\n"
	      "  dram: {size: 16MiB}\n");
	write_all();
	for (unsigned i = 0; i < 2; i++) {
		struct tierd_view v;

		ck_assert_int_eq(tierd_acquire(td, tensors[i], 0, TIERD_READ, NS_PER_S / 4, &v),
				 -ETIMEDOUT);
	}
	read_all();
	stop(); /* which waits for no slab */
}
END_TEST

static void expect_end(const char *config, int status, const char *text)
{
	int got;

	system_prepare(s, config);
	ck_assert(!system_tries(s, &got));
	ck_assert_msg(WIFEXITED(got) && WEXITSTATUS(got) == status && system_log_has(s, text),
		      "%#x, and the log does not have: %s", (unsigned)got, text);
	system_stop(s);
}

START_TEST(a_start_that_fails_says_why)
{
	expect_end(FAULTY("start: no_space"), 1, "no space left on its disk (injected");
	expect_end(FAULTY("start: no_memory"), 1, "no memory (injected");
	expect_end("tiers: {dram: {size: 4MiB, fault: {start: no_memory}}}\n", 1,
		   "no memory (injected");
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
	expect_end("tiers: {dram: {size: 4MiB, fault: {corrupt: 1%}}}\n", 78,
		   "fault.corrupt: only nvme has checksums");
	expect_end("tiers: {dram: {size: 4MiB, fault: {no_space: 1%}}}\n", 78,
		   "fault.no_space: dram does not fail like that");
	expect_end(FAULTY("no_memory: 1%"), 78, "fault.no_memory: nvme does not fail like that");
	expect_end(FAULTY("read_error: 60%, short_read: 50%"), 78,
		   "the shares of reads add up to 110.0%");
	expect_end("tiers: {dram: {size: 4MiB}}\nfault: {after: 7}\n", 78,
		   "fault: it says nothing that is to fail");
	expect_end(FAULTY("seed: 7"), 78, "it says nothing that is to fail");
}
END_TEST

UNIT_MAIN("rehearse", what_is_late_is_waited_for,
	  what_never_comes_holds_up_who_waits_for_it_and_nobody_else,
	  what_comes_twice_is_passed_over, what_has_rotted_is_told_and_never_handed_out,
	  without_registered_memory_all_works, a_slab_that_is_not_to_be_had_is_a_full_tier,
	  a_slab_that_never_comes_holds_up_its_tier_alone, a_start_that_fails_says_why,
	  what_makes_no_sense_is_refused)

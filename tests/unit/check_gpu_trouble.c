/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda backend over a fake driver that fails.
 */
#define _GNU_SOURCE
#include "tests/unit/gpu_rig.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda.h"
#include "base/log.h"
#include "tests/fake/bytes.h"

START_TEST(memory_that_cannot_be_registered_is_used_as_it_is)
{
	struct gpu_rig rig = { .seed = 1 };
	struct err err = ERR_INIT;
	struct xfer pin = { .op = XFER_PIN };
	struct xfer x = { .op = XFER_WRITE, .bytes = MIB(3) };

	fake_cuda_fail("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(gpu_rig_open(&rig, 0, &err), 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 1);
	ck_assert_int_eq(gpu_rig_back(&rig, 0, 1), 0);
	x.host = rig.host;
	gpu_rig_fill(rig.host, MIB(3), 1);
	ck_assert_int_eq(gpu_rig_run(&rig, &x), 0);
	ck_assert(bytes_equal(gpu_rig_memory(&rig), rig.host, MIB(3)));
	ck_assert_uint_gt(fake_cuda_counts().unregistered, 0);
	/* One that is registered already is as good. */
	pin.host = rig.host;
	pin.bytes = RIG_HOST;
	ck_assert_int_eq(gpu_rig_run(&rig, &pin), 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 2);
	ck_assert_int_eq(gpu_rig_run(&rig, &pin), 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 2);
	gpu_rig_close(&rig);
}
END_TEST

START_TEST(a_gpu_without_memory_of_its_own_is_refused)
{
	struct gpu_rig rig = { .seed = 1 };
	struct err err = ERR_INIT;

	setenv("FAKE_CUDA_INTEGRATED", "1", 1);
	ck_assert_int_eq(gpu_rig_open(&rig, 0, &err), -ENOTSUP);
	ck_assert_msg(strstr(err.text, "hbm0: GPU 0 has no memory but the host's") != NULL, "%s",
		      err.text);
	unsetenv("FAKE_CUDA_INTEGRATED");
	ck_assert_int_eq(gpu_rig_open(&rig, 0, &err), 0);
	gpu_rig_close(&rig);
}
END_TEST

/* A GPU that is lost after `steps` of the driver. */
static void lose(unsigned steps)
{
	enum { COUNT = 30 };
	struct gpu_rig rig = gpu_rig_new(0), other = gpu_rig_new(1);
	struct xfer x[COUNT], *done[COUNT];
	struct xfer more = { .op = XFER_READ, .bytes = 4096, .host = rig.host };
	struct xfer back = { .op = XFER_BACK, .offset = RIG_SLAB * 3, .bytes = RIG_SLAB };
	struct xfer away = { .op = XFER_UNBACK, .bytes = RIG_SLAB };
	unsigned failed = 0;

	ck_assert_int_eq(gpu_rig_back(&rig, 0, 3), 0);
	ck_assert_int_eq(gpu_rig_back(&other, 0, 1), 0);
	for (unsigned i = 0; i < COUNT; i++) {
		x[i] = (struct xfer){ .op = i % 2 == 0 ? XFER_READ : XFER_WRITE,
				      .priority = (uint8_t)(i % XFER_PRIORITIES),
				      .offset = MIB(1) * i,
				      .bytes = MIB(1),
				      .host = rig.host + MIB(2) * i };
		gpu_rig_lend(&rig, &x[i]);
	}
	gpu_rig_turn(&rig, done, COUNT);
	for (unsigned i = 0; i < steps; i++)
		ck_assert(fake_cuda_step(rig.seed++));
	fake_cuda_lose(0, CUDA_ERROR_ECC_UNCORRECTABLE);
	gpu_rig_finish(&rig);
	for (unsigned i = 0; i < COUNT; i++) {
		failed += x[i].result != 0;
		ck_assert(x[i].result == 0 || x[i].result == -ENODEV);
		ck_assert(x[i].result == 0 || strstr(x[i].cause, "hbm0: CUDA_ERROR_ECC"));
	}
	ck_assert_uint_gt(failed, 0);
	ck_assert_int_eq(gpu_rig_run(&rig, &more), -ENODEV);
	ck_assert_int_eq(gpu_rig_run(&rig, &back), -ENODEV);
	ck_assert_int_eq(gpu_rig_run(&rig, &away), -ENODEV);
	more.host = other.host;
	ck_assert_int_eq(gpu_rig_run(&other, &more), 0);
	gpu_rig_close(&rig);
	gpu_rig_close(&other);
}

START_TEST(a_gpu_lost_before_a_copy_gives_all_back_and_the_other_goes_on)
{
	lose(0);
}
END_TEST

START_TEST(a_gpu_lost_among_copies_gives_all_back_and_the_other_goes_on)
{
	lose(5);
}
END_TEST

START_TEST(a_gpu_lost_late_gives_all_back_and_the_other_goes_on)
{
	lose(12);
}
END_TEST

/* How many lines lose() writes to the log. */
static unsigned lines_of_loss(void)
{
	FILE *f = tmpfile();
	int was = dup(STDERR_FILENO);
	unsigned n = 0;
	char line[512];

	ck_assert(f != NULL && was >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
	log_configure("warn");
	lose(5);
	log_flush();
	fflush(stderr);
	dup2(was, STDERR_FILENO);
	close(was);
	rewind(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		ck_assert_msg(strstr(line, " is lost: ") != NULL, "%s", line);
		n++;
	}
	fclose(f);
	return n;
}

START_TEST(a_lost_gpu_is_told_of_once)
{
	ck_assert_uint_eq(lines_of_loss(), 1);
}
END_TEST

/* Everything a tier does, once, where any call may fail; returns how many xfers failed. */
static void use_all(struct gpu_rig *rig)
{
	unsigned char *host = rig->host;
	struct xfer x[] = {
		{ .op = XFER_BACK, .bytes = RIG_SLAB },
		{ .op = XFER_WRITE, .bytes = MIB(3), .host = host },
		{ .op = XFER_COPY, .from = 0, .offset = MIB(4), .bytes = MIB(3) },
		{ .op = XFER_ZERO, .offset = MIB(8), .bytes = MIB(2) },
		{ .op = XFER_READ, .offset = MIB(4), .bytes = MIB(3), .host = host + MIB(8) },
		{ .op = XFER_READ, .offset = MIB(8), .bytes = MIB(2), .host = host + MIB(12) },
		{ .op = XFER_SYNC },
		{ .op = XFER_PIN, .bytes = MIB(16), .host = host },
		{ .op = XFER_UNBACK, .bytes = RIG_SLAB },
	};
	bool moved = true;

	gpu_rig_fill(host, MIB(3), 8);
	bytes_fill(host + MIB(12), 1, MIB(2));
	for (size_t i = 0; i < ARRAY_SIZE(x); i++) {
		int r = gpu_rig_run(rig, &x[i]);

		ck_assert_msg(r <= 0 && (x[i].op != XFER_PIN || r == 0), "%s", x[i].cause);
		if (i == 0 && r < 0)
			return;
		moved &= i > 4 || r == 0;
		ck_assert(r < 0 || i != 4 || !moved || memcmp(host, host + MIB(8), MIB(3)) == 0);
		ck_assert(r < 0 || i != 5 || x[3].result < 0 ||
			  gpu_rig_all(host + MIB(12), MIB(2), 0));
	}
}

/* What gives something back: where it fails, that is left, and all else goes on. */
static bool gives_back(const char *name)
{
	static const char *const names[] = {
		"cuDevicePrimaryCtxRelease", "cuMemFreeHost", "cuMemHostUnregister",
		"cuMemAddressFree",          "cuMemRelease",  "cuMemUnmap",
		"cuStreamDestroy",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* Returns how many calls failed. */
static unsigned fail_each_call(CUresult result, bool back)
{
	static const char *const names[] = {
#define X(member, symbol, version) #symbol,
		CUDA_ENTRY_POINTS(X)
#undef X
	};
	const struct cuda *cuda;
	unsigned failures = 0;

	ck_assert_int_eq(cuda_open(&cuda, NULL), 0); /* which is tried once a process */
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		bool reached = gives_back(names[i]) == back;

		for (uint64_t nth = 1; reached && nth < 40; nth++) {
			struct gpu_rig rig = { .seed = nth };
			struct err err = ERR_INIT;
			uint64_t before = fake_cuda_calls(names[i]);
			int r;

			fake_cuda_fail(names[i], nth, result);
			r = gpu_rig_open(&rig, 0, &err);
			ck_assert_msg(r == 0 || err.code == r, "%s: %d", names[i], r);
			if (r == 0) {
				use_all(&rig);
				gpu_rig_close(&rig);
			}
			reached = fake_cuda_calls(names[i]) - before >= nth;
			failures += reached;
		}
	}
	return failures;
}

START_TEST(every_call_may_fail_once)
{
	ck_assert_uint_ge(fail_each_call(CUDA_ERROR_OUT_OF_MEMORY, false), 40);
}
END_TEST

START_TEST(every_call_may_find_the_device_lost)
{
	ck_assert_uint_ge(fail_each_call(CUDA_ERROR_ILLEGAL_ADDRESS, false), 40);
}
END_TEST

START_TEST(what_cannot_be_given_back_is_left_alone)
{
	gpu_rig_leaks = true;
	ck_assert_uint_ge(fail_each_call(CUDA_ERROR_INVALID_VALUE, true), 7);
}
END_TEST

UNIT_MAIN_WITH(gpu_rig_begin, gpu_rig_end, "gpu_trouble",
	       memory_that_cannot_be_registered_is_used_as_it_is,
	       a_gpu_without_memory_of_its_own_is_refused,
	       a_gpu_lost_before_a_copy_gives_all_back_and_the_other_goes_on,
	       a_gpu_lost_among_copies_gives_all_back_and_the_other_goes_on,
	       a_gpu_lost_late_gives_all_back_and_the_other_goes_on, a_lost_gpu_is_told_of_once,
	       every_call_may_fail_once, every_call_may_find_the_device_lost,
	       what_cannot_be_given_back_is_left_alone)

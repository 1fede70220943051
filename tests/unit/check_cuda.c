/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include "base/cuda.h"

#include <errno.h>
#include <pthread.h>

#include "tests/fake/cuda/fake_cuda.h"

#define THREADS 8

START_TEST(opens_and_fills_every_entry)
{
	const struct cuda *cuda = NULL, *again = NULL;
	struct err err = ERR_INIT;

	fake_cuda_begin();
	ck_assert_int_eq(cuda_open(&cuda, &err), 0);
	ck_assert_str_eq(err.text, "");
#define X(member, symbol, version) ck_assert_msg(cuda->member != NULL, "%s", #symbol);
	CUDA_ENTRY_POINTS(X)
#undef X
	ck_assert_int_eq(cuda->driver_version, 13000);
	ck_assert_str_eq(cuda->opened, getenv(CUDA_LIBRARY_VARIABLE));
	ck_assert_int_eq(cuda_open(&again, NULL), 0);
	ck_assert_ptr_eq(cuda, again);
	ck_assert_uint_eq(fake_cuda_calls("cuInit"), 1);
}
END_TEST

static void *open_it(void *unused)
{
	const struct cuda *cuda = NULL;

	(void)unused;
	return cuda_open(&cuda, NULL) == 0 ? (void *)cuda : NULL;
}

START_TEST(many_threads_open_it_once)
{
	pthread_t threads[THREADS];
	void *first = NULL, *got;

	fake_cuda_begin();
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, open_it, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &got), 0);
		ck_assert_ptr_nonnull(got);
		ck_assert(first == NULL || first == got);
		first = got;
	}
	ck_assert_uint_eq(fake_cuda_calls("cuInit"), 1);
}
END_TEST

static void expect_failure(int code, const char *part)
{
	const struct cuda *cuda = NULL;
	struct err err = ERR_INIT, again = ERR_INIT;

	ck_assert_int_eq(cuda_open(&cuda, &err), code);
	ck_assert_int_eq(err.code, code);
	ck_assert_msg(strstr(err.text, part) != NULL, "%s", err.text);
	ck_assert_int_eq(cuda_open(&cuda, &again), code);
	ck_assert_str_eq(err.text, again.text);
	ck_assert_ptr_null(cuda);
}

START_TEST(no_driver_says_what_was_looked_for)
{
	setenv(CUDA_LIBRARY_VARIABLE, "/nowhere/libcuda.so.1", 1);
	expect_failure(-ENODEV, "/nowhere/libcuda.so.1");
	setenv(CUDA_LIBRARY_VARIABLE, "/nowhere/another", 1);
	expect_failure(-ENODEV, "/dev/nvidiactl is ");
}
END_TEST

START_TEST(a_library_that_is_no_driver_is_refused)
{
	setenv(CUDA_LIBRARY_VARIABLE, "libc.so.6", 1);
	expect_failure(-ENOTSUP, "has no cuGetProcAddress_v2");
}
END_TEST

START_TEST(too_old_a_driver_says_both_versions)
{
	setenv("FAKE_CUDA_VERSION", "12030", 1);
	fake_cuda_begin();
	expect_failure(-ENOTSUP, "CUDA 12.3; 12.4 or newer is needed");
	ck_assert_uint_eq(fake_cuda_calls("cuInit"), 0);
}
END_TEST

START_TEST(no_device_is_remembered)
{
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	fake_cuda_begin();
	expect_failure(-ENODEV, "cuInit: CUDA_ERROR_NO_DEVICE");
	ck_assert_uint_eq(fake_cuda_calls("cuInit"), 1);
}
END_TEST

START_TEST(init_that_fails_is_no_device)
{
	fake_cuda_begin();
	fake_cuda_fail("cuInit", 1, CUDA_ERROR_UNKNOWN);
	expect_failure(-ENODEV, "CUDA_ERROR_UNKNOWN");
	ck_assert_uint_eq(fake_cuda_calls("cuInit"), 1);
}
END_TEST

START_TEST(the_funnel_has_an_errno_for_every_result)
{
	static const struct {
		CUresult result;
		int code;
	} rows[] = {
		{ CUDA_SUCCESS, 0 },
		{ CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM },
		{ CUDA_ERROR_NOT_READY, -EAGAIN },
		{ CUDA_ERROR_INVALID_VALUE, -EINVAL },
		{ CUDA_ERROR_ECC_UNCORRECTABLE, -ENODEV },
		{ CUDA_ERROR_ILLEGAL_ADDRESS, -ENODEV },
		{ CUDA_ERROR_NOT_SUPPORTED, -EIO },
		{ (CUresult)12345, -EIO },
	};
	const struct cuda *cuda = NULL;

	fake_cuda_begin();
	ck_assert_int_eq(cuda_open(&cuda, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = ERR_INIT;

		ck_assert_int_eq(cuda_check(cuda, rows[i].result, &err, "try %d", 7), rows[i].code);
		ck_assert_int_eq(err.code, rows[i].code);
		ck_assert_int_eq(cuda_check(cuda, rows[i].result, NULL, "try"), rows[i].code);
		ck_assert_int_eq(cuda_is_lost(rows[i].result), rows[i].code == -ENODEV);
		if (rows[i].code != 0)
			ck_assert_int_eq(strncmp(err.text, "try 7: ", 7), 0);
	}
}
END_TEST

START_TEST(the_funnel_says_name_and_sentence)
{
	const struct cuda *cuda = NULL;
	struct err err = ERR_INIT;

	fake_cuda_begin();
	ck_assert_int_eq(cuda_open(&cuda, NULL), 0);
	(void)cuda_check(cuda, CUDA_ERROR_OUT_OF_MEMORY, &err, "hbm0: slab %u", 3u);
	ck_assert_str_eq(err.text, "hbm0: slab 3: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)");
}
END_TEST

UNIT_MAIN("cuda", opens_and_fills_every_entry, many_threads_open_it_once,
	  no_driver_says_what_was_looked_for, a_library_that_is_no_driver_is_refused,
	  too_old_a_driver_says_both_versions, no_device_is_remembered,
	  init_that_fails_is_no_device, the_funnel_has_an_errno_for_every_result,
	  the_funnel_says_name_and_sentence)

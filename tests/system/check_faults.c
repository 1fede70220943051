/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/system/oracle.h"
#include "tests/system/system.h"
#include "tests/system/wire.h"

static struct system tierd_system;
static struct system *const s = &tierd_system;
static struct tierd *td;

/* dram takes three tensors of 1 MiB, not four. */
#define FAULTY(fault)            \
	"tensors: 4Ki\n"         \
	"tiers:\n"               \
	"  dram: {size: 4MiB}\n" \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB, fault: {" fault "}}\n"

#define TENSORS  8u
#define PATIENCE 400 /* tries until the faults are over */

static tierd_tensor tensors[TENSORS];

static void start(const char *config)
{
	system_start(s, config);
	ck_assert_msg(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &td) == 0, "%s",
		      tierd_error(NULL));
	for (unsigned i = 0; i < TENSORS; i++) {
		char name[16];
		struct tierd_spec spec = { .name = name, .ndim = 1, .shape = { MIB(1) } };

		snprintf(name, sizeof(name), "victim-%u", i);
		ck_assert_int_eq(tierd_create(td, &spec, 1, &tensors[i]), 0);
	}
}

static void stop(void)
{
	tierd_close(td);
	system_stop(s);
}

static int write_one(unsigned i)
{
	struct tierd_view v;
	int rc = tierd_acquire(td, tensors[i], TIERD_HOST, TIERD_WRITE | TIERD_DISCARD,
			       20 * (int64_t)NS_PER_S, &v);

	if (rc < 0)
		return rc;
	bytes_fill(v.data, (int)i + 1, v.bytes);
	tierd_release(td, &v);
	return 0;
}

static int read_one(unsigned i)
{
	struct tierd_view v;
	int rc = tierd_acquire(td, tensors[i], TIERD_HOST, TIERD_READ, 20 * (int64_t)NS_PER_S, &v);

	if (rc < 0)
		return rc;
	ck_assert(system_bytes_are(v.data, (unsigned char)(i + 1), v.bytes));
	tierd_release(td, &v);
	return 0;
}

static void error_names(const char *const *words)
{
	for (; *words; words++)
		ck_assert_msg(strstr(tierd_error(td), *words) != NULL, "no \"%s\" in: %s", *words,
			      tierd_error(td));
}

static uint64_t counter(size_t offset)
{
	struct wire w;
	uint64_t n;

	ck_assert_int_eq(wire_open(s->socket, "counter", &w), 0);
	n = atomic_load((_Atomic uint64_t *)(void *)((char *)w.stats + offset));
	wire_bye(&w);
	return n;
}
#define COUNTER(name) counter(offsetof(struct stats_page, name))

/* The first tensors are below by now; reading them back fails until the faults are over. */
static void reads_fail_then_come_back(const char *const *words)
{
	unsigned failed = 0;
	int rc;

	for (unsigned i = 0; i < TENSORS; i++)
		ck_assert_int_eq(write_one(i), 0);
	ck_assert_int_eq(read_one(0), -EIO);
	error_names(words);
	/* Who asks for something else is not harmed. */
	ck_assert_int_eq(read_one(TENSORS - 1), 0);
	for (unsigned i = 0; i < TENSORS; i++) {
		while ((rc = read_one(i)) == -EIO && failed < PATIENCE)
			failed++;
		ck_assert_msg(rc == 0, "tensor %u: %s", i, tierd_error(td));
	}
	ck_assert_uint_gt(failed, 0);
	ck_assert_uint_gt(COUNTER(read_errors), 0);
	stop();
}

START_TEST(a_read_that_fails_names_tensor_device_and_cause_and_loses_nothing)
{
	start(FAULTY("read_error: 100%, count: 400"));
	reads_fail_then_come_back((const char *const[]){ "victim-0", "nvme0", "EIO", NULL });
}
END_TEST

START_TEST(bytes_that_differ_from_their_checksum_are_never_handed_out)
{
	start(FAULTY("corrupt: 100%, count: 400"));
	reads_fail_then_come_back((const char *const[]){ "victim-0", "nvme0", "CRC", NULL });
}
END_TEST

/* Nothing can leave dram: who needs room is told why, and what is there stays. */
static void writes_fail_then_come_back(int result, const char *const *words)
{
	unsigned i = 0, failed = 0;
	int rc = 0;

	while (i < TENSORS && (rc = write_one(i)) == 0)
		i++;
	ck_assert_uint_ge(i, 3);
	ck_assert_msg(rc == result, "%d: %s", rc, tierd_error(td));
	error_names(words);
	for (unsigned k = 0; k < i; k++)
		ck_assert_int_eq(read_one(k), 0);
	for (; i < TENSORS; i++) {
		while ((rc = write_one(i)) == result && failed < PATIENCE) {
			failed++;
			usleep(5000); /* a failed write-back is tried again after a while */
		}
		ck_assert_msg(rc == 0, "tensor %u: %s", i, tierd_error(td));
	}
	for (i = 0; i < TENSORS; i++)
		ck_assert_msg(read_one(i) == 0, "tensor %u: %s", i, tierd_error(td));
	ck_assert_uint_gt(COUNTER(write_errors), 0);
	stop();
}

START_TEST(a_full_device_is_told_to_who_needs_room_and_loses_nothing)
{
	start(FAULTY("no_space: 100%, count: 130"));
	writes_fail_then_come_back(-ENOSPC, (const char *const[]){ "nvme0", "ENOSPC", NULL });
}
END_TEST

START_TEST(a_write_that_fails_is_told_to_who_needs_room_and_loses_nothing)
{
	start(FAULTY("write_error: 100%, count: 500"));
	writes_fail_then_come_back(-EIO, (const char *const[]){ "nvme0", "EIO", NULL });
}
END_TEST

#define LONG_FOLDER "a-folder-whose-name-leaves-little-room-for-what-went-wrong"

/* The cause stands at the end of the sentence. */
START_TEST(a_long_path_does_not_hide_the_cause)
{
	char path[sizeof(s->nvme) + sizeof(LONG_FOLDER)];
	struct tierd_spec spec = { .name = "a tensor whose name is as long as one is ever told",
				   .ndim = 1,
				   .shape = { MIB(1) } };

	system_prepare(s, "tensors: 4Ki\n"
			  "tiers:\n"
			  "  dram: {size: 4MiB}\n"
			  "  nvme: {paths: [{path: @NVME@/" LONG_FOLDER ", size: 32MiB}], "
			  "block: 64KiB, fault: {write_error: 100%}}\n");
	snprintf(path, sizeof(path), "%s/" LONG_FOLDER, s->nvme);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	system_launch(s);
	ck_assert_int_eq(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &td), 0);
	ck_assert_int_eq(tierd_create(td, &spec, 1, &tensors[0]), 0);
	ck_assert_int_eq(write_one(0), 0);
	ck_assert_int_eq(tierd_flush(td, &tensors[0], 1), -EIO);
	error_names((const char *const[]){ spec.name, "nvme0", "from byte", "EIO", NULL });
	ck_assert_int_eq(rmdir(path), 0);
	stop();
}
END_TEST

START_TEST(a_flush_that_fails_says_so)
{
	start(FAULTY("write_error: 100%"));
	ck_assert_int_eq(write_one(0), 0);
	ck_assert_int_eq(tierd_flush(td, &tensors[0], 1), -EIO);
	error_names((const char *const[]){ "victim-0", "nvme0", "EIO", NULL });
	ck_assert_int_eq(read_one(0), 0);
	stop();
}
END_TEST

/* Everything at once, at rates that retries mostly mend: bytes may be late, never wrong. */
START_TEST(a_bad_device_never_gives_wrong_bytes)
{
	const uint64_t sizes[] = { 4096, 65537, KIB(300), MIB(1) };
	const struct oracle_params params = {
		.host_max = MIB(2), .gpu_max = MIB(1), .batch_max = MIB(1), .io_fails = true
	};
	struct oracle *o = oracle_open(&params, MIB(64));

	system_start(s, "tensors: 4Ki\n"
			"tiers:\n"
			"  hbm: {backend: memory, size: 2MiB}\n"
			"  dram: {size: 6MiB}\n"
			"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB, fault: "
			"{seed: 7, read_error: 5%, write_error: 5%, short_read: 10%, "
			"short_write: 10%, corrupt: 5%, no_space: 1%, delay: 100us}}\n");
	ck_assert_int_eq(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &td), 0);
	for (unsigned i = 0; i < 32; i++)
		oracle_add(o, td, sizes[i % ARRAY_SIZE(sizes)]);
	oracle_run(s, o, 3, getenv("TIERD_TEST_LONG") ? 60 : 6);
	oracle_check_all(s, o);
	ck_assert_uint_gt(COUNTER(retries), 100);
	oracle_close(o);
	stop();
}
END_TEST

UNIT_MAIN("faults", a_read_that_fails_names_tensor_device_and_cause_and_loses_nothing,
	  bytes_that_differ_from_their_checksum_are_never_handed_out,
	  a_full_device_is_told_to_who_needs_room_and_loses_nothing,
	  a_write_that_fails_is_told_to_who_needs_room_and_loses_nothing,
	  a_long_path_does_not_hide_the_cause, a_flush_that_fails_says_so,
	  a_bad_device_never_gives_wrong_bytes)

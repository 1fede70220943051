/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs by the cuda backend, over the fake driver in the daemon and in every client: tensors on the
 * GPU that was asked for, slabs that come and go, memory that is not to be had, a GPU that is lost.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/system/client_rig.h"
#include "tests/system/oracle.h"

#define GPUS 2
#define CONFIG                                                \
	"tensors: 4Ki\n"                                      \
	"tiers:\n"                                            \
	"  hbm: {backend: cuda, size: 192MiB, slab: 64MiB}\n" \
	"  dram: {size: 96MiB}\n"                             \
	"  nvme: {paths: [{path: @NVME@, size: 256MiB}], block: 64KiB}\n"

static void begin(const char *config)
{
	void (*before_exec)(void) = s->before_exec;

	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	system_prepare(s, config);
	s->before_exec = before_exec;
	system_launch(s);
	connect_as(ORACLE_NAME_SPACE);
}

START_TEST(bytes_go_through_gpus_and_back)
{
	enum { COUNT = 16 };
	struct tierd_stats stats;
	tierd_tensor h[COUNT];

	begin(CONFIG);
	for (int i = 0; i < COUNT; i++) {
		h[i] = make(MIB(8) + (unsigned)i);
		fill(h[i], i % 3 - 1, i + 1);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < COUNT; i++)
			expect(h[i], (i + round) % 3 - 1, i + 1);
	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_DRAM][TIERD_HBM], 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_HBM][TIERD_DRAM], 0);
	end();
}
END_TEST

/* Also not once the lanes have copied and slabs are there. */
START_TEST(gpus_that_have_nothing_to_do_sleep)
{
	uint64_t cpu_ns, switches;
	tierd_tensor h;

	begin(CONFIG);
	h = make(MIB(8));
	fill(h, 0, 1);
	expect(h, TIERD_HOST, 1);
	expect(h, 1, 1);
	usleep(500000); /* the daemon naps until 100 ms after the last progress */
	cpu_ns = system_cpu_ns(s);
	switches = system_switches(s);
	sleep(2);
	ck_assert_uint_le(system_switches(s) - switches, SYSTEM_FOREIGN_SWITCHES);
	ck_assert_uint_le(system_cpu_ns(s) - cpu_ns, 2 * NS_PER_S / 200);
	end();
}
END_TEST

static void crowd(const char *config)
{
	const uint64_t sizes[] = { 1, 511, 4095, 4097, 65537, KIB(300), KIB(700), MIB(1) + 1 };
	const struct oracle_params params = {
		.host_max = MIB(2), .gpu_max = MIB(1) + KIB(512), .gpus = GPUS, .batch_max = MIB(1)
	};
	struct oracle *o = oracle_open(&params, MIB(64));

	begin(config);
	for (unsigned i = 0; i < 24; i++)
		oracle_add(o, t, sizes[i % ARRAY_SIZE(sizes)]);
	oracle_run(s, o, 4, getenv("TIERD_TEST_LONG") ? 60 : 4);
	oracle_check_all(s, o);
	end();
	oracle_close(o);
}

START_TEST(bytes_stay_whole_on_gpus)
{
	crowd("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: cuda, size: 128MiB, slab: 64MiB}\n"
	      "  dram: {size: 8MiB}\n"
	      "  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n");
}
END_TEST

START_TEST(more_slabs_than_a_client_takes_are_refused)
{
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_BYTES", "274877906944", 1);
	system_prepare(s, "tiers:\n"
			  "  hbm: {backend: cuda, size: 129GiB, slab: 2MiB}\n"
			  "  dram: {size: 64MiB}\n");
	ck_assert_int_eq(system_run_again(s), 78);
	ck_assert(system_log_has(s, "in slabs of 2097152 bytes there may be 65536 of them"));
	system_stop(s);
}
END_TEST

/* ---- trouble --------------------------------------------------------------------------------- */

static void two_slabs_fail(void)
{
	setenv("FAKE_CUDA_FAIL", "cuMemCreate:2:2,cuMemCreate:3:2", 1);
}

static const char *failing;

static void four_gpus_of_which_one_fails(void)
{
	setenv("FAKE_CUDA_DEVICES", "4", 1);
	setenv("FAKE_CUDA_FAIL", failing, 1);
}

static bool starts_on(const char *devices, int *ret_status)
{
	char config[256];

	snprintf(config, sizeof(config),
		 "tensors: 4Ki\n"
		 "tiers:\n"
		 "  hbm: {backend: cuda, size: 64MiB, slab: 16MiB, devices: %s}\n"
		 "  dram: {size: 64MiB}\n",
		 devices);
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	system_prepare(s, config);
	s->before_exec = four_gpus_of_which_one_fails;
	return system_tries(s, ret_status);
}

/* Of many GPUs it is told by its UUID, and can be left out. */
START_TEST(one_gpu_of_four_that_cannot_be_opened_is_named)
{
	static const struct {
		const char *call, *fails;
	} calls[] = {
		{ "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain:3:2" },
		{ "cuMemHostAlloc", "cuMemHostAlloc:3:2" },
		{ "cuMemAddressReserve", "cuMemAddressReserve:3:2" },
	};
	char text[160];
	int status;

	for (unsigned i = 0; i < ARRAY_SIZE(calls); i++) {
		failing = calls[i].fails;
		ck_assert(!starts_on("[all]", &status));
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
		snprintf(text, sizeof(text),
			 "GPU 2, GPU-74696572-6420-6661-6b65-206770750002: hbm2: %s: CUDA_ERROR_",
			 calls[i].call);
		if (!system_log_has(s, text))
			system_fail(s, "not said: %s", text);
		system_stop(s);
	}
	failing = "cuDevicePrimaryCtxRetain:4:2"; /* which would be the one left out */
	ck_assert(starts_on("[0, 1, GPU-74696572-6420-6661-6b65-206770750003]", &status));
	system_stop(s);
}
END_TEST

/* Somebody else has the GPU's memory for a while: the tier is full, no tensor fails. */
START_TEST(a_gpu_without_memory_is_full_for_a_while)
{
	enum { COUNT = 16 };
	tierd_tensor h[COUNT];

	s->before_exec = two_slabs_fail;
	begin(CONFIG);
	for (int i = 0; i < COUNT; i++) {
		h[i] = make(MIB(8));
		fill(h[i], 0, i + 1);
	}
	for (int i = 0; i < COUNT; i++)
		expect(h[i], 0, i + 1);
	end();
}
END_TEST

static void few_descriptors(void)
{
	struct rlimit few = { 128, 128 };

	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		_exit(99);
}

/* Of a client that holds nothing. */
static void must_wait_for_a_descriptor(struct tierd *waits)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { MIB(2) } };
	struct tierd_view v;
	tierd_tensor h;

	ck_assert_int_eq(tierd_create(waits, &spec, 1, &h), 0);
	ck_assert_int_eq(tierd_acquire(waits, h, 0, TIERD_WRITE, NS_PER_S, &v), -ETIMEDOUT);
	ck_assert_msg(strstr(tierd_error(waits), "no descriptor is free for it"), "%s",
		      tierd_error(waits));
}

/* More slabs than there can be descriptors: those who wait are told, whoever has all there is is
 * not left waiting for itself, and when clients go the others get theirs. */
START_TEST(a_slab_waits_for_a_descriptor_and_the_client_is_told)
{
	enum { CLIENTS = 128, COUNT = 120 };
	struct tierd *others[CLIENTS], *waits;
	struct tierd_view v[COUNT];
	tierd_tensor h;
	int n = 0, held = 0, rc = 0;

	s->before_exec = few_descriptors;
	begin("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: cuda, size: 256MiB, slab: 2MiB, devices: [0]}\n"
	      "  dram: {size: 320MiB}\n");
	ck_assert(system_log_has(s, "hbm may have 128 slabs, and only "));
	ck_assert_int_eq(tierd_open(s->socket, "waits", 0, &waits), 0);
	while (n < CLIENTS && tierd_open(s->socket, "flood", 0, &others[n]) == 0)
		n++;
	ck_assert(n > 2 && n < CLIENTS);
	for (; held < COUNT; held++) {
		h = make(MIB(2));
		rc = tierd_acquire(t, h, 0, TIERD_WRITE, NS_PER_S, &v[held]);
		if (rc < 0)
			break;
		bytes_fill(v[held].data, held + 1, v[held].bytes);
	}
	ck_assert_msg(rc == -EDEADLK && held >= 8, "%d after %d: %s", rc, held, tierd_error(t));
	must_wait_for_a_descriptor(waits);
	ck_assert(system_log_has(s, "no more is to be had now: backing of "));
	while (n > 0)
		tierd_close(others[--n]);
	tierd_close(waits);
	do /* it may ask before the daemon has heard of all that went */
		rc = tierd_acquire(t, h, 0, TIERD_WRITE, -1, &v[held]);
	while (rc == -EDEADLK);
	ck_assert_msg(rc == 0, "%s", tierd_error(t));
	bytes_fill(v[held].data, held + 1, v[held].bytes);
	for (; held >= 0; held--) {
		ck_assert(system_bytes_are(v[held].data, (unsigned char)(held + 1), v[held].bytes));
		tierd_release(t, &v[held]);
	}
	end();
}
END_TEST

/* Of 112 MiB, 16 are staging, and each lane has 6 of its own. */
#define PINNED(dram, more)                                   \
	"tensors: 4Ki\n"                                     \
	"staging: 16MiB\n"                                   \
	"tiers:\n"                                           \
	"  hbm: {backend: cuda, size: 64MiB, slab: 16MiB}\n" \
	"  dram: {size: 112MiB" dram "}\n"                   \
	"  nvme: {paths: [{path: @NVME@, size: 256MiB}], block: 64KiB}\n" more

static const char *pin_bytes;

static void little_to_pin(void)
{
	setenv("FAKE_CUDA_PIN_BYTES", pin_bytes, 1);
}

/* From some total on nothing more is pinned, whoever asks. */
static void pin_until(const char *limit, const char *config)
{
	enum { COUNT = 20 };
	tierd_tensor h[COUNT];

	pin_bytes = limit;
	s->before_exec = little_to_pin;
	begin(config);
	for (int i = 0; i < COUNT; i++) {
		h[i] = make(MIB(5) - 1);
		fill(h[i], i % 3 - 1, i + 1);
	}
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < COUNT; i++)
			expect(h[i], (i + round) % 3 - 1, i + 1);
}

/* What there is serves all GPUs, and copies of the rest go as they can. Which total it is can be
 * read, once a GPU. */
START_TEST(a_total_limit_of_pinned_memory_ends_registration_and_nothing_else)
{
	pin_until("67108864", PINNED(", slab: 16MiB", ""));
	ck_assert(system_log_waits(s, "all 96 MiB are there", SYSTEM_READY_MS));
	ck_assert_uint_eq(system_log_count(s, "hbm0: cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY"),
			  1);
	ck_assert_uint_eq(system_log_count(s, "hbm1: cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY"),
			  1);
	/* 64 MiB without 2 * 6 of lanes: 8 of staging and two slabs. */
	ck_assert_uint_eq(system_log_count(s, "after 40 MiB of host memory the next 16 stay"), 2);
	end();
}
END_TEST

/* Whoever starts first could register so much that the next lane has no memory of its own. */
START_TEST(what_lanes_need_is_pinned_before_what_can_do_without)
{
	pin_until("109051904", PINNED("", "")); /* 104 MiB */
	ck_assert_uint_eq(system_log_count(s, "after 8 MiB of host memory the next 96 stay"), 2);
	end();
	pin_until("62914560", /* 60 MiB: 24 of lanes, of two domains */
		  PINNED("", "domains: [{name: red, users: [65534], hbm: 32MiB, dram: 32MiB,\n"
			     "           nvme: 64MiB}]\n"));
	end();
}
END_TEST

START_TEST(without_any_pinned_memory_it_does_not_start)
{
	int status;

	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	pin_bytes = "1048576";
	system_prepare(s, PINNED("", ""));
	s->before_exec = little_to_pin;
	ck_assert(!system_tries(s, &status));
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert(system_log_has(s, "hbm0: cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY"));
	system_stop(s);
}
END_TEST

static void lost_early(void)
{
	setenv("FAKE_CUDA_LOSE", "0:16", 1);
}

/* Right bytes or a failure that says why: the place is no more, or the bytes are nowhere else.
 * Returns whether it failed. */
static bool is_gone(tierd_tensor h, int place, int byte)
{
	struct tierd_view v;
	int rc = tierd_acquire(t, h, place, TIERD_READ, WAIT, &v);

	if (rc < 0) {
		ck_assert_msg(rc == (place == TIERD_HOST ? -EIO : -ENODEV), "%d: %s", rc,
			      tierd_error(t));
		ck_assert_msg(strstr(tierd_error(t), "hbm0") != NULL, "%s", tierd_error(t));
		return true;
	}
	ck_assert(system_bytes_are(v.data, (unsigned char)byte, v.bytes));
	tierd_release(t, &v);
	return false;
}

/* What also stands below is still there, and all else goes on. */
START_TEST(a_lost_gpu_takes_what_stood_there_alone)
{
	enum { COUNT = 16 };
	tierd_tensor below[COUNT], there, other;
	unsigned gone = 0;

	s->before_exec = lost_early;
	begin(CONFIG);
	there = make(MIB(4));
	fill(there, 0, 99); /* is perhaps cleaned before the GPU goes */
	for (int i = 0; i < COUNT; i++) {
		below[i] = make(MIB(4));
		fill(below[i], TIERD_HOST, i + 1);
	}
	for (int i = 0; gone == 0 && i < COUNT; i++)
		gone += is_gone(below[i], 0, i + 1);
	ck_assert_uint_eq(gone, 1);
	ck_assert(system_log_has(s, " is lost: CUDA_ERROR_ECC_UNCORRECTABLE"));
	for (int i = 0; i < COUNT; i++)
		ck_assert(!is_gone(below[i], TIERD_HOST, i + 1));
	is_gone(there, TIERD_HOST, 99);
	other = make(MIB(4));
	fill(other, 1, 77);
	ck_assert(!is_gone(other, TIERD_HOST, 77));
	end();
}
END_TEST

UNIT_MAIN("cuda", more_slabs_than_a_client_takes_are_refused, bytes_go_through_gpus_and_back,
	  gpus_that_have_nothing_to_do_sleep, bytes_stay_whole_on_gpus,
	  a_gpu_without_memory_is_full_for_a_while, one_gpu_of_four_that_cannot_be_opened_is_named,
	  a_slab_waits_for_a_descriptor_and_the_client_is_told,
	  a_total_limit_of_pinned_memory_ends_registration_and_nothing_else,
	  what_lanes_need_is_pinned_before_what_can_do_without,
	  without_any_pinned_memory_it_does_not_start, a_lost_gpu_takes_what_stood_there_alone)

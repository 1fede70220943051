/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda backend over the fake driver, step by step.
 */
#define _GNU_SOURCE
#include "tests/unit/gpu_rig.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/nofile.h"
#include "tests/fake/bytes.h"
#include "tiers/gpu_inside.h"

/* ---- which GPU and how much ------------------------------------------------------------------ */

START_TEST(every_gpu_is_a_tier_that_takes_nothing_before_it_is_used)
{
	struct gpu_config config = { .size.bytes = MIB(100), .slab_bytes = MIB(16) };
	struct tier *t[2];
	struct arena_token token[2];
	struct err err = ERR_INIT;

	ck_assert_int_eq(gpu_ops.count(&config, &err), 2);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(gpu_ops.open(&config, i, NULL, &t[i], &err), 0);
		ck_assert_str_eq(t[i]->base.name, i == 0 ? "hbm0" : "hbm1");
		ck_assert_uint_eq(t[i]->base.bytes, MIB(96)); /* whole slabs */
		ck_assert_uint_eq(t[i]->base.slab_bytes, MIB(16));
		ck_assert_uint_eq(t[i]->base.backed_bytes, 0);
		ck_assert(t[i]->base.on_demand);
		ck_assert_ptr_null(t[i]->base.host_base);
		ck_assert_ptr_nonnull(strstr(t[i]->base.chosen, "GPU-"));
		ck_assert_ptr_nonnull(strstr(t[i]->base.chosen, "driver 13.0, slabs of 16 MiB"));
		ck_assert_int_eq(gpu_ops.export_arena(t[i], &token[i], &err), 0);
		ck_assert_int_eq(token[i].fd, -1);
		ck_assert_uint_eq(token[i].bytes, MIB(96));
		ck_assert_uint_eq(token[i].slab_bytes, MIB(16));
		ck_assert_uint_eq(fake_cuda_used_bytes((int)i), 0);
	}
	ck_assert_int_ne(memcmp(token[0].uuid, token[1].uuid, 16), 0);
	for (unsigned i = 0; i < 2; i++)
		gpu_ops.close(t[i]);
}
END_TEST

static void uuid_of(unsigned index, char *ret)
{
	struct gpu_config config = { .size.bytes = MIB(64) };
	struct err err = ERR_INIT;
	struct tier *t;

	ck_assert_int_eq(gpu_ops.open(&config, index, NULL, &t, &err), 0);
	sscanf(strstr(t->base.chosen, "GPU-"), "%40[^,]", ret);
	gpu_ops.close(t);
}

static int count_of(struct gpu_name *names, size_t n, struct err *err)
{
	struct gpu_config config = { .devices = { names, n }, .size.bytes = MIB(64) };

	return gpu_ops.count(&config, err);
}

START_TEST(gpus_are_chosen_by_ordinal_and_by_uuid)
{
	char uuids[2][64], mig[64];
	struct gpu_name names[3];
	struct gpu_config config = { .devices = { names, 2 }, .size.bytes = MIB(64) };
	struct err err = ERR_INIT;
	struct tier *t;

	uuid_of(0, uuids[0]);
	uuid_of(1, uuids[1]);
	ck_assert_str_ne(uuids[0], uuids[1]);
	names[0].device = "1";
	names[1].device = uuids[0];
	ck_assert_int_eq(count_of(names, 2, &err), 2);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(gpu_ops.open(&config, i, NULL, &t, &err), 0);
		ck_assert_ptr_nonnull(strstr(t->base.chosen, uuids[1 - i]));
		gpu_ops.close(t);
	}
	snprintf(mig, sizeof(mig), "mig-%s", uuids[1] + 4);
	names[0].device = mig;
	ck_assert_int_eq(count_of(names, 1, &err), 1);
	names[0].device = "all";
	ck_assert_int_eq(count_of(names, 1, &err), 2);
}
END_TEST

START_TEST(a_gpu_that_is_not_there_is_refused_with_those_that_are)
{
	struct gpu_name names[2] = { { "7" }, { "0" } };
	char uuid[64];
	struct err err = ERR_INIT;

	uuid_of(1, uuid);
	ck_assert_int_eq(count_of(names, 1, &err), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "no GPU '7'; the driver has 2: 0 GPU-"));
	ck_assert_ptr_nonnull(strstr(err.text, uuid));
	names[0].device = "H200";
	ck_assert_int_eq(count_of(names, 1, &err), -ENODEV);
	names[0].device = "0";
	ck_assert_int_eq(count_of(names, 2, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "twice"));
	names[0].device = "all";
	ck_assert_int_eq(count_of(names, 2, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "'all' and others"));
}
END_TEST

START_TEST(sizes_that_do_not_fit_are_refused_with_both_numbers)
{
	static const struct {
		struct gpu_config config;
		int result;
		const char *text;
	} cases[] = {
		{ { .size.bytes = MIB(512) }, -EINVAL, "536870912 bytes: the GPU has 268435456" },
		{ { .size.bytes = MIB(32) }, -EINVAL, "must hold a slab of 67108864" },
		{ { .size.bytes = MIB(96), .slab_bytes = MIB(1) }, -EINVAL, "device's 2097152" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = ERR_INIT;
		struct tier *t;

		ck_assert_int_eq(gpu_ops.open(&cases[i].config, 0, NULL, &t, &err),
				 cases[i].result);
		ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%s", err.text);
	}
}
END_TEST

START_TEST(slabs_are_a_quarter_of_the_size_within_limits)
{
	struct gpu_config half = { .size.permille = 500 };
	struct err err = ERR_INIT;
	struct tier *t;

	ck_assert_uint_eq(gpu_slab_bytes(MIB(64)), MIB(64));
	ck_assert_uint_eq(gpu_slab_bytes(MIB(511)), MIB(64));
	ck_assert_uint_eq(gpu_slab_bytes(MIB(512)), MIB(128));
	ck_assert_uint_eq(gpu_slab_bytes(GIB(1)), MIB(256));
	ck_assert_uint_eq(gpu_slab_bytes(GIB(80)), MIB(256));
	ck_assert_int_eq(gpu_ops.open(&half, 0, NULL, &t, &err), 0);
	ck_assert_uint_eq(t->base.bytes, MIB(128));
	gpu_ops.close(t);
}
END_TEST

/* ---- slabs ----------------------------------------------------------------------------------- */

START_TEST(a_slab_comes_with_a_descriptor_and_goes_whole)
{
	struct gpu_rig rig = gpu_rig_new(0);
	struct xfer away = { .op = XFER_UNBACK, .offset = RIG_SLAB, .bytes = RIG_SLAB };
	int fd;

	ck_assert_int_eq(gpu_rig_back(&rig, 1, 2), 0);
	ck_assert_uint_eq(fake_cuda_used_bytes(0), 2 * RIG_SLAB);
	fd = gpu_ops.slab_fd(rig.tier, RIG_SLAB);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ne(fd, gpu_ops.slab_fd(rig.tier, 2 * RIG_SLAB));
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(gpu_rig_run(&rig, &away), 0);
	ck_assert_uint_eq(fake_cuda_used_bytes(0), RIG_SLAB);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_int_eq(gpu_rig_back(&rig, 1, 1), 0);
	gpu_rig_close(&rig); /* with slabs */
}
END_TEST

/* The fake driver gives new memory with bytes that somebody left in it. */
START_TEST(a_scrubbed_slab_comes_as_zeros_or_not_at_all)
{
	struct gpu_rig rig = { .seed = 1, .config.scrub = true };
	struct gpu_rig plain = gpu_rig_new(1);
	struct xfer x = { .op = XFER_BACK, .offset = RIG_SLAB, .bytes = RIG_SLAB };
	struct err err = ERR_INIT;

	ck_assert_int_eq(gpu_rig_back(&plain, 0, 1), 0);
	ck_assert(!gpu_rig_all(gpu_rig_memory(&plain), RIG_SLAB, 0));
	gpu_rig_close(&plain);
	ck_assert_int_eq(gpu_rig_open(&rig, 0, &err), 0);
	ck_assert_int_eq(gpu_rig_back(&rig, 0, 1), 0);
	ck_assert(gpu_rig_all(gpu_rig_memory(&rig), RIG_SLAB, 0));
	fake_cuda_fail("cuMemcpyHtoDAsync", 3, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_lt(gpu_rig_run(&rig, &x), 0);
	ck_assert_uint_eq(fake_cuda_used_bytes(0), RIG_SLAB);
	ck_assert_int_eq(gpu_rig_back(&rig, 1, 1), 0);
	ck_assert(gpu_rig_all(gpu_rig_memory(&rig), 2 * RIG_SLAB, 0));
	gpu_rig_close(&rig);
}
END_TEST

START_TEST(a_full_device_is_no_memory_and_leaves_nothing_behind)
{
	struct gpu_rig full = { .seed = 1,
				.config = { .size.bytes = MIB(256), .slab_bytes = MIB(128) } };
	struct gpu_rig rig = gpu_rig_new(0);
	struct err err = ERR_INIT;
	struct xfer x = { .op = XFER_BACK, .bytes = MIB(128), .offset = MIB(128) };
	uint64_t used;

	ck_assert_int_eq(gpu_rig_back(&rig, 0, 1), 0);
	ck_assert_int_eq(gpu_rig_open(&full, 0, &err), 0);
	ck_assert_int_eq(gpu_rig_back(&full, 0, 1), 0);
	used = fake_cuda_used_bytes(0);
	ck_assert_int_eq(gpu_rig_run(&full, &x), -ENOMEM);
	ck_assert_str_eq(x.cause, "backing of 134217728 bytes: hbm0: "
				  "CUDA_ERROR_OUT_OF_MEMORY");
	ck_assert_uint_eq(fake_cuda_used_bytes(0), used);
	/* Once others have gone there is room. */
	gpu_rig_close(&rig);
	ck_assert_int_eq(gpu_rig_run(&full, &x), 0);
	gpu_rig_close(&full);
}
END_TEST

/* So many can be opened, and not one more. */
static void leave_fds(unsigned n)
{
	struct nofile now = { 0 };
	struct err err = ERR_INIT;
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 3;
	do {
		limit.rlim_cur++;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		ck_assert_int_eq(nofile_read(&now, &err), 0);
	} while (now.limit - now.open < n);
	ck_assert_uint_eq(now.limit - now.open, n);
}

START_TEST(without_a_descriptor_there_is_no_slab_and_it_says_so)
{
	struct gpu_rig rig = gpu_rig_new(0);
	struct xfer x = { .op = XFER_BACK, .bytes = RIG_SLAB, .offset = RIG_SLAB };

	ck_assert_uint_eq(rig.tier->base.later_fds, RIG_SLABS);
	ck_assert_int_eq(gpu_rig_back(&rig, 0, 1), 0);
	leave_fds(0);
	ck_assert_int_eq(gpu_rig_run(&rig, &x), -EMFILE);
	ck_assert_str_eq(x.cause, "backing of 16777216 bytes: hbm0: "
				  "no descriptor is free for it");
	ck_assert_uint_eq(fake_cuda_used_bytes(0), RIG_SLAB);
	leave_fds(1);
	ck_assert_int_eq(gpu_rig_run(&rig, &x), 0);
	leave_fds(8);
	gpu_rig_close(&rig);
}
END_TEST

/* The driver has its own name for it, and what it made for the export goes again. */
START_TEST(a_slab_that_cannot_be_exported_is_not_kept)
{
	struct gpu_rig rig = gpu_rig_new(0);
	struct xfer x = { .op = XFER_BACK, .bytes = RIG_SLAB, .offset = RIG_SLAB };

	fake_cuda_fail("cuMemExportToShareableHandle", 1, CUDA_ERROR_OPERATING_SYSTEM);
	ck_assert_int_eq(gpu_rig_run(&rig, &x), -EIO);
	ck_assert_ptr_nonnull(strstr(x.cause, "hbm0: CUDA_ERROR_OPERATING_SYSTEM"));
	ck_assert_uint_eq(fake_cuda_used_bytes(0), 0);
	ck_assert_int_eq(gpu_rig_run(&rig, &x), 0);
	gpu_rig_close(&rig);
}
END_TEST

START_TEST(a_context_is_not_begun_with_too_few_descriptors)
{
	struct gpu_config config = { .size.bytes = MIB(64) };
	struct err err = ERR_INIT;
	struct tier *t;

	ck_assert_int_eq(gpu_ops.count(&config, &err), 2); /* the driver has what it takes */
	leave_fds(20);
	ck_assert_int_eq(gpu_ops.open(&config, 0, NULL, &t, &err), -EMFILE);
	ck_assert_ptr_nonnull(
		strstr(err.text, "hbm0: about 24 descriptors are wanted, 20 are free"));
	leave_fds(24);
	ck_assert_int_eq(gpu_ops.open(&config, 0, NULL, &t, &err), 0);
	gpu_ops.close(t);
}
END_TEST

/* ---- copies ---------------------------------------------------------------------------------- */

START_TEST(what_has_come_back_is_all_there_and_nothing_comes_back_before)
{
	for (uint64_t seed = 1; seed < 20; seed++) {
		enum { COUNT = 24, EACH = 100000 };
		struct gpu_rig rig = gpu_rig_new(0);
		struct xfer x[COUNT], *done[COUNT];
		unsigned back = 0;

		rig.seed = seed * 1000;
		ck_assert_int_eq(gpu_rig_back(&rig, 0, RIG_SLABS), 0);
		gpu_rig_fill(rig.host, COUNT * EACH, (unsigned)seed);
		for (unsigned i = 0; i < COUNT; i++) {
			x[i] = (struct xfer){ .op = XFER_WRITE,
					      .priority = (uint8_t)(i % XFER_PRIORITIES),
					      .offset = (COUNT - i) * MIB(1),
					      .bytes = EACH,
					      .host = rig.host + i * EACH };
			gpu_rig_lend(&rig, &x[i]);
		}
		while (back < COUNT) {
			unsigned n = gpu_rig_turn(&rig, done, COUNT);

			for (unsigned i = 0; i < n; i++)
				ck_assert_int_eq(memcmp(gpu_rig_memory(&rig) + done[i]->offset,
							done[i]->host, EACH),
						 0);
			back += n;
			ck_assert(fake_cuda_step(rig.seed++) || back == COUNT);
		}
		gpu_rig_close(&rig);
	}
}
END_TEST

START_TEST(copies_are_split_where_registrations_meet)
{
	struct gpu_rig rig = { .seed = 1 };
	uint64_t bytes = 3 * GIB(1) - MIB(8);
	unsigned char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct err err = ERR_INIT;
	struct xfer write = { .op = XFER_WRITE,
			      .bytes = MIB(10) + 5,
			      .offset = 3,
			      .host = host + GIB(1) - MIB(3) - 1 };
	struct xfer read = {
		.op = XFER_READ, .bytes = MIB(10), .offset = 5, .host = host + 2 * GIB(1) - MIB(6)
	};
	struct xfer pin = { .op = XFER_PIN, .host = host + GIB(1), .bytes = bytes - GIB(1) };
	int wake_fd;

	ck_assert_ptr_ne(host, MAP_FAILED);
	ck_assert_int_eq(gpu_rig_open(&rig, 0, &err), 0);
	wake_fd = rig.wake_fd;
	gpu_ops.lane_stop(rig.tier);
	gpu_ops.host_memory(rig.tier, host, bytes, GIB(1)); /* the rest comes by PIN */
	ck_assert_int_eq(gpu_ops.lane_start(rig.tier, wake_fd, &err), 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 3); /* the lane's own, too */
	ck_assert_int_eq(gpu_rig_run(&rig, &pin), 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 5);
	ck_assert_int_eq(gpu_rig_back(&rig, 0, 2), 0);
	gpu_rig_fill(write.host, write.bytes, 3);
	ck_assert_int_eq(gpu_rig_run(&rig, &write), 0);
	ck_assert_int_eq(memcmp(gpu_rig_memory(&rig) + 3, write.host, write.bytes), 0);
	ck_assert_int_eq(gpu_rig_run(&rig, &read), 0);
	ck_assert_int_eq(memcmp(gpu_rig_memory(&rig) + 5, read.host, read.bytes), 0);
	ck_assert_uint_eq(fake_cuda_counts().unregistered, 0);
	gpu_rig_close(&rig);
	munmap(host, bytes);
}
END_TEST

START_TEST(pieces_that_continue_each_other_are_one_copy)
{
	struct gpu_rig rig = gpu_rig_new(0);
	struct xfer x[10];
	uint64_t before;

	ck_assert_int_eq(gpu_rig_back(&rig, 0, RIG_SLABS), 0);
	gpu_rig_fill(rig.host, MIB(40), 9);
	for (unsigned i = 0; i < 10; i++) {
		x[i] = (struct xfer){ .op = XFER_WRITE,
				      .offset = i * MIB(4),
				      .bytes = MIB(4),
				      .host = rig.host + i * MIB(4) };
		gpu_rig_lend(&rig, &x[i]);
	}
	before = fake_cuda_calls("cuMemcpyHtoDAsync");
	gpu_rig_finish(&rig);
	ck_assert_uint_eq(fake_cuda_calls("cuMemcpyHtoDAsync") - before, 3); /* 4, 32, 4 MiB */
	ck_assert(bytes_equal(gpu_rig_memory(&rig), rig.host, MIB(40)));
	gpu_rig_close(&rig);
}
END_TEST

static void *step_later(void *arg)
{
	_Atomic bool *stop = arg;

	for (uint64_t seed = 1; !atomic_load(stop); seed++) {
		usleep(100);
		fake_cuda_run(seed);
	}
	return NULL;
}

/* The lane sleeps until it expects a copy. One that it expects late it finds late, which must not
 * look as if it had been right. */
START_TEST(a_rate_that_was_seen_once_is_not_believed_for_ever)
{
	struct gpu_rig rig = gpu_rig_new(0);
	struct gpu_stream *s = &((struct gpu *)rig.tier)->streams[GPU_UP];
	const uint64_t slow = 100000000;
	_Atomic bool stop = false;
	pthread_t thread;

	ck_assert_int_eq(gpu_rig_back(&rig, 0, 1), 0);
	s->rate = slow; /* 42 ms for 4 MiB */
	ck_assert_int_eq(pthread_create(&thread, NULL, step_later, &stop), 0);
	for (unsigned i = 0; i < 30; i++) {
		struct xfer x = { .op = XFER_WRITE, .bytes = MIB(4), .host = rig.host }, *done;

		gpu_rig_lend(&rig, &x);
		while (gpu_rig_turn(&rig, &done, 1) == 0)
			gpu_ops.wait(rig.tier, NS_PER_S);
		ck_assert_int_eq(x.result, 0);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ck_assert_uint_gt(s->rate, 4 * slow);
	gpu_rig_close(&rig);
}
END_TEST

START_TEST(zeros_and_copies_inside_use_copies_alone)
{
	/* from, to, bytes */
	static const uint64_t moves[][3] = {
		{ 0, 1, 100 },           { 4096, 0, MIB(5) },
		{ 0, 4096, MIB(5) + 3 }, { MIB(2) + 9, MIB(2), MIB(3) },
		{ 0, MIB(30), MIB(4) },
	};
	struct gpu_rig rig = gpu_rig_new(0);
	unsigned char *memory = gpu_rig_memory(&rig);

	ck_assert_int_eq(gpu_rig_back(&rig, 0, RIG_SLABS), 0);
	for (size_t i = 0; i < ARRAY_SIZE(moves); i++) {
		struct xfer write = { .op = XFER_WRITE, .bytes = MIB(40), .host = rig.host };
		struct xfer move = { .op = XFER_COPY,
				     .from = moves[i][0],
				     .offset = moves[i][1],
				     .bytes = moves[i][2] };
		struct xfer zero = { .op = XFER_ZERO,
				     .offset = MIB(1) + i,
				     .bytes = MIB(2) + i,
				     .value = i % 2 == 0 ? 0 : 0xff };

		gpu_rig_fill(rig.host, MIB(40), (unsigned)i);
		ck_assert_int_eq(gpu_rig_run(&rig, &write), 0);
		ck_assert_int_eq(gpu_rig_run(&rig, &move), 0);
		memmove(rig.host + move.offset, rig.host + move.from, move.bytes);
		ck_assert(bytes_equal(memory, rig.host, MIB(40)));
		ck_assert_int_eq(gpu_rig_run(&rig, &zero), 0);
		ck_assert(gpu_rig_all(memory + zero.offset, zero.bytes, zero.value));
		ck_assert_int_eq(memcmp(memory, rig.host, zero.offset), 0);
		ck_assert_uint_eq(memory[zero.offset + zero.bytes],
				  rig.host[zero.offset + zero.bytes]);
	}
	ck_assert_uint_eq(fake_cuda_calls("cuMemsetD8Async") + fake_cuda_calls("cuLaunchKernel") +
				  fake_cuda_calls("cuMemcpyDtoDAsync"),
			  0);
	gpu_rig_close(&rig);
}
END_TEST

START_TEST(a_demand_waits_for_a_bounded_part_of_what_is_less_urgent)
{
	enum { LOW = 16 };
	struct gpu_rig rig = gpu_rig_new(0);
	struct xfer low[2][LOW], high[2], *done[LOW];
	unsigned late = 0, highs = 0;

	ck_assert_int_eq(gpu_rig_back(&rig, 0, RIG_SLABS), 0);
	for (unsigned i = 0; i < 2 * LOW; i++) {
		struct xfer *x = &low[i % 2][i / 2];

		/* Nothing continues what was before it. */
		*x = (struct xfer){ .op = i % 2 == 0 ? XFER_READ : XFER_WRITE,
				    .priority = i % 2 == 0 ? XFER_WRITE_BACK : XFER_PREFETCH,
				    .offset = MIB(4) * (LOW - 1 - i / 2),
				    .bytes = MIB(4),
				    .host = rig.host + MIB(4) * (i % 2 * (LOW / 2) + i / 2 % 8) };
		gpu_rig_lend(&rig, x);
	}
	ck_assert_uint_eq(gpu_rig_turn(&rig, done, LOW), 0);
	ck_assert_uint_le(fake_cuda_counts().queued, 2 * (MIB(16) / MIB(4) + 3));
	for (unsigned i = 0; i < 2; i++) {
		high[i] = (struct xfer){ .op = i == 0 ? XFER_READ : XFER_WRITE,
					 .offset = MIB(1) * i,
					 .bytes = 4096,
					 .host = rig.host + MIB(80) + i * 4096 };
		gpu_rig_lend(&rig, &high[i]);
	}
	while (rig.lent > 0) {
		unsigned n = gpu_rig_turn(&rig, done, LOW);

		for (unsigned i = 0; i < n; i++) {
			ck_assert_int_eq(done[i]->result, 0);
			highs += done[i]->priority == XFER_DEMAND;
			late += done[i]->priority != XFER_DEMAND && highs == 2;
		}
		ck_assert(fake_cuda_step(rig.seed++) || rig.lent == 0);
	}
	/* Only what the driver had before may have gone first. */
	ck_assert_uint_ge(late, 2 * (LOW - MIB(16) / MIB(4)));
	gpu_rig_close(&rig);
}
END_TEST

START_TEST(two_gpus_keep_their_bytes_apart)
{
	struct gpu_rig rig[2] = { gpu_rig_new(0), gpu_rig_new(1) };
	struct xfer x[2];

	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(gpu_rig_back(&rig[i], 0, 1), 0);
		gpu_rig_fill(rig[i].host, RIG_SLAB, i);
		x[i] = (struct xfer){ .op = XFER_WRITE, .bytes = RIG_SLAB, .host = rig[i].host };
		gpu_rig_lend(&rig[i], &x[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		gpu_rig_finish(&rig[i]);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(x[i].result, 0);
		ck_assert(bytes_equal(gpu_rig_memory(&rig[i]), rig[i].host, RIG_SLAB));
		ck_assert_uint_eq(fake_cuda_used_bytes(i), RIG_SLAB);
	}
	for (unsigned i = 0; i < 2; i++)
		gpu_rig_close(&rig[i]);
}
END_TEST

UNIT_MAIN_WITH(
	gpu_rig_begin, gpu_rig_end, "gpu", every_gpu_is_a_tier_that_takes_nothing_before_it_is_used,
	gpus_are_chosen_by_ordinal_and_by_uuid,
	a_gpu_that_is_not_there_is_refused_with_those_that_are,
	sizes_that_do_not_fit_are_refused_with_both_numbers,
	slabs_are_a_quarter_of_the_size_within_limits,
	a_slab_comes_with_a_descriptor_and_goes_whole, a_scrubbed_slab_comes_as_zeros_or_not_at_all,
	a_full_device_is_no_memory_and_leaves_nothing_behind,
	without_a_descriptor_there_is_no_slab_and_it_says_so,
	a_slab_that_cannot_be_exported_is_not_kept, a_context_is_not_begun_with_too_few_descriptors,
	what_has_come_back_is_all_there_and_nothing_comes_back_before,
	copies_are_split_where_registrations_meet,
	a_rate_that_was_seen_once_is_not_believed_for_ever,
	pieces_that_continue_each_other_are_one_copy, zeros_and_copies_inside_use_copies_alone,
	a_demand_waits_for_a_bounded_part_of_what_is_less_urgent, two_gpus_keep_their_bytes_apart)

/* SPDX-License-Identifier: Apache-2.0
 *
 * What an nvme lane gives the device and its helpers, and when it sleeps.
 */
#include "tests/unit/nvme_rig.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"

START_TEST(the_device_has_its_depth_and_an_eighth_for_demand)
{
	struct xfer x[12], *done[16];
	unsigned taken = 0, came = 0;
	struct nvme *n;
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.delay_ns = 50 * NS_PER_MS; /* so that none is back too soon */
	rig_start(&rig);
	n = (struct nvme *)rig.tier;
	for (unsigned i = 0; i < 12; i++) {
		x[i] = rig_xfer(XFER_WRITE, i * MIB(1), rig.host, GRANULE);
		x[i].priority = i < 10 ? XFER_WRITE_BACK : XFER_DEMAND;
	}
	while (taken < 10 && nvme_ops.queue(rig.tier, &x[taken]) == 0)
		taken++;
	/* Eight on the device, one more staged. */
	ck_assert_uint_eq(taken, 9);
	ck_assert_uint_eq(n->in_flight, 8);
	nvme_ops.commit(rig.tier);
	x[10].op = XFER_READ;
	x[10].crc = crc32c(0, rig.host, GRANULE) ^ 1; /* whatever is read: it only has to come */
	ck_assert_int_eq(nvme_ops.queue(rig.tier, &x[10]), 0);
	ck_assert_uint_eq(n->in_flight, 9);
	/* One more waits in the lane. */
	x[11].op = XFER_READ;
	ck_assert_int_eq(nvme_ops.queue(rig.tier, &x[11]), 0);
	ck_assert_uint_eq(n->in_flight, 9);
	while (came < 11) {
		unsigned count = nvme_ops.reap(rig.tier, done, 16);

		ck_assert_uint_le(n->in_flight, 9);
		came += count;
		if (count == 0)
			nvme_ops.wait(rig.tier, -1);
	}
	ck_assert_uint_eq(n->in_flight, 0);
	rig_end(&rig);
}
END_TEST

/* With all helpers that may be, and with none. */
START_TEST(many_blocks_come_back_whole_whoever_sums_them)
{
	enum { N = 20 }; /* twice that is the rig's memory */
	struct xfer out[N], in[N];

	for (unsigned threads = 0; threads <= DIGEST_THREADS_MAX; threads += DIGEST_THREADS_MAX) {
		struct rig rig;

		rig_init(&rig);
		rig.config.options.checksum_threads = threads;
		rig_start(&rig);
		rig_fill(rig.host, N * MIB(1), threads + 1);
		for (unsigned i = 0; i < N; i++)
			out[i] = rig_xfer(XFER_WRITE, i * MIB(1), rig.host + i * MIB(1),
					  MIB(1) - i * 5001);
		rig_run(&rig, out, N, NULL);
		for (unsigned i = 0; i < N; i++) {
			ck_assert_int_eq(out[i].result, 0);
			ck_assert_uint_eq(out[i].crc, crc32c(0, out[i].host, out[i].bytes));
			in[i] = rig_xfer(XFER_READ, i * MIB(1), rig.host + (N + i) * MIB(1),
					 out[i].bytes);
			in[i].crc = out[i].crc ^ (i == 7);
		}
		rig_run(&rig, in, N, NULL);
		for (unsigned i = 0; i < N; i++) {
			ck_assert_int_eq(in[i].result, i == 7 ? -EBADMSG : 0);
			if (i != 7)
				ck_assert_int_eq(memcmp(in[i].host, out[i].host, in[i].bytes), 0);
		}
		ck_assert(rig_all(in[7].host, in[7].bytes, 0));
		rig_end(&rig);
	}
}
END_TEST

/* Much that is to be written back is no reason to be late for who waits. */
START_TEST(demand_is_summed_before_what_was_queued_earlier)
{
	struct xfer x[6];
	struct nvme *n;
	struct rig rig;
	unsigned came = 0;

	rig_init(&rig);
	rig.config.options.checksum_threads = 0;
	rig_start(&rig);
	n = (struct nvme *)rig.tier;
	for (unsigned i = 0; i < 6; i++) {
		x[i] = rig_xfer(XFER_WRITE, i * MIB(1), rig.host, MIB(1));
		x[i].priority = i == 5 ? XFER_DEMAND : XFER_WRITE_BACK;
		ck_assert_int_eq(nvme_ops.queue(rig.tier, &x[i]), 0);
	}
	ck_assert(nvme_xfer_sum(n)); /* a block, and then the device is looked after */
	ck_assert(!list_empty(&n->ready[0]));
	ck_assert(list_empty(&n->ready[1]));
	while (came < 6) {
		struct xfer *done[6];
		unsigned count = nvme_ops.reap(rig.tier, done, 6);

		came += count;
		if (count == 0)
			nvme_ops.wait(rig.tier, -1);
	}
	for (unsigned i = 0; i < 6; i++)
		ck_assert_int_eq(x[i].result, 0);
	rig_end(&rig);
}
END_TEST

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Before Linux 5.11 a wait has its timeout by a request, for which liburing keeps a number. */
static void without_ext_arg(struct rig *rig)
{
	((struct nvme *)rig->tier)->ring.uring.features &= ~IORING_FEAT_EXT_ARG;
}

static void sleeps_until_its_time_or_a_wake_up(bool old_kernel)
{
	const uint64_t one = 1;
	uint64_t begin_ns, cpu, value;
	struct xfer *done[1];
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	if (old_kernel)
		without_ext_arg(&rig);
	begin_ns = clock_now_ns();
	cpu = cpu_ns();
	nvme_ops.wait(rig.tier, 100 * (int64_t)NS_PER_MS);
	ck_assert_uint_ge(clock_now_ns() - begin_ns, 95 * NS_PER_MS);
	ck_assert_uint_lt(cpu_ns() - cpu, 50 * NS_PER_MS);
	/* A wake-up that is there already, twice: wait() tells a level, not a change. */
	ck_assert_int_eq(write(rig.wake_fd, &one, sizeof(one)), sizeof(one));
	nvme_ops.wait(rig.tier, -1);
	ck_assert_uint_eq(nvme_ops.reap(rig.tier, done, 1), 0);
	nvme_ops.wait(rig.tier, -1);
	ck_assert_uint_eq(nvme_ops.reap(rig.tier, done, 1), 0);
	ck_assert_int_eq(read(rig.wake_fd, &value, sizeof(value)), sizeof(value));
	begin_ns = clock_now_ns();
	nvme_ops.wait(rig.tier, 20 * (int64_t)NS_PER_MS);
	ck_assert_uint_ge(clock_now_ns() - begin_ns, 19 * NS_PER_MS);
	/* The lane does not reap while nothing is lent: a wake-up that is over ends no later wait.
	 */
	ck_assert_int_eq(write(rig.wake_fd, &one, sizeof(one)), sizeof(one));
	nvme_ops.wait(rig.tier, -1);
	ck_assert_int_eq(read(rig.wake_fd, &value, sizeof(value)), sizeof(value));
	begin_ns = clock_now_ns();
	nvme_ops.wait(rig.tier, 20 * (int64_t)NS_PER_MS);
	ck_assert_uint_ge(clock_now_ns() - begin_ns, 19 * NS_PER_MS);
	rig_end(&rig);
}

START_TEST(wait_sleeps_until_its_time_or_a_wake_up)
{
	sleeps_until_its_time_or_a_wake_up(false);
	sleeps_until_its_time_or_a_wake_up(true);
}
END_TEST

/* What nobody waits for must not keep a lane awake that has nothing to do. */
START_TEST(a_completion_too_many_ends_no_wait)
{
	struct io_uring_sqe *sqe;
	uint64_t begin_ns;
	struct nvme *n;
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	n = (struct nvme *)rig.tier;
	sqe = nvme_take_sqe(n);
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, NVME_DATA(3, 77));
	nvme_submit(n);
	for (unsigned i = 0; i < 2; i++) { /* the first one may end as it comes */
		begin_ns = clock_now_ns();
		nvme_ops.wait(rig.tier, 20 * (int64_t)NS_PER_MS);
	}
	ck_assert_uint_ge(clock_now_ns() - begin_ns, 19 * NS_PER_MS);
	ck_assert_uint_eq(n->strays, 1);
	rig_round_trip(&rig);
	rig_end(&rig);
}
END_TEST

UNIT_MAIN("nvme_turn", the_device_has_its_depth_and_an_eighth_for_demand,
	  many_blocks_come_back_whole_whoever_sums_them,
	  demand_is_summed_before_what_was_queued_earlier, wait_sleeps_until_its_time_or_a_wake_up,
	  a_completion_too_many_ends_no_wait)

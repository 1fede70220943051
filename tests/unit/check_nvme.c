/* SPDX-License-Identifier: Apache-2.0
 *
 * The nvme lane: bytes there and back, and what happens when completions fail, come short, come
 * late or come damaged.
 */
#include "tests/unit/nvme_rig.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"

static const uint64_t sizes[] = { 0,    1,    3,    511,        512,    513,   4095,
				  4096, 4097, 8191, MIB(1) - 1, MIB(1), 65537, 300001 };

START_TEST(every_size_comes_back_whole_with_its_crc)
{
	struct rig rig;
	uint64_t offset = 0;

	rig_init(&rig);
	rig_start(&rig);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t bytes = sizes[i], rounded = ALIGN_UP(bytes, GRANULE);
		unsigned char *to = rig.host + MIB(4);
		uint32_t crc = 1;

		rig_fill(rig.host, bytes, i);
		memset(to, 0xee, rounded + GRANULE);
		ck_assert_int_eq(rig_write(&rig, offset, rig.host, bytes, &crc), 0);
		ck_assert_uint_eq(crc, crc32c(0, rig.host, bytes));
		ck_assert_int_eq(rig_read(&rig, offset, to, bytes, crc), 0);
		ck_assert_int_eq(memcmp(to, rig.host, bytes), 0);
		ck_assert_msg(rig_all(to + bytes, rounded - bytes, 0), "tail of %lu", bytes);
		ck_assert(rig_all(to + rounded, GRANULE, 0xee));
		offset += rounded;
	}
	rig_end(&rig);
}
END_TEST

/* 28,824,000 bytes in blocks, all of them queued at once: more than the depth takes. */
START_TEST(a_large_tensor_goes_in_blocks)
{
	const uint64_t bytes = 28824000, block = MIB(1);
	const unsigned n = (unsigned)((bytes + block - 1) / block);
	struct xfer x[64];
	uint32_t crc[64];
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	rig_fill(rig.host, bytes, 7);
	for (unsigned i = 0; i < n; i++)
		x[i] = rig_xfer(XFER_WRITE, i * block, rig.host + i * block,
				MIN(block, bytes - i * block));
	rig_run(&rig, x, n, NULL);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_int_eq(x[i].result, 0);
		crc[i] = x[i].crc;
		x[i].op = XFER_READ;
		x[i].result = 1;
	}
	memset(rig.host, 0, bytes);
	rig_run(&rig, x, n, NULL);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(x[i].result, 0);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(crc[i], crc32c(0, rig.host + i * block, x[i].bytes));
	rig_end(&rig);
}
END_TEST

START_TEST(a_shorter_rewrite_shows_nothing_of_what_was_there)
{
	unsigned char *to;
	uint32_t crc;
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	to = rig.host + MIB(1);
	memset(rig.host, 0xff, 8192);
	ck_assert_int_eq(rig_write(&rig, 0, rig.host, 8192, &crc), 0);
	rig_fill(rig.host, 4097, 1);
	ck_assert_int_eq(rig_write(&rig, 0, rig.host, 4097, &crc), 0);
	memset(to, 0xee, 8192);
	ck_assert_int_eq(rig_read(&rig, 0, to, 4097, crc), 0);
	ck_assert_int_eq(memcmp(to, rig.host, 4097), 0);
	ck_assert(rig_all(to + 4097, 8192 - 4097, 0));
	/* The slot itself: the rest of the last granule is zeros on the device too. */
	ck_assert_int_eq(rig_read(&rig, 4096, to, 4096, 0), -EBADMSG);
	rig_end(&rig);
}
END_TEST

START_TEST(offsets_beyond_4_gib_are_kept_apart)
{
	const uint64_t at[] = { 0, GIB(4) - MIB(1), GIB(4), GIB(4) + MIB(1), GIB(5) - MIB(1) };
	uint32_t crc[ARRAY_SIZE(at)];
	struct rig rig;

	rig_init(&rig);
	rig.config.path.size.bytes = GIB(5);
	rig_start(&rig);
	ck_assert_uint_eq(rig.tier->base.bytes, GIB(5));
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		rig_fill(rig.host, MIB(1), i);
		ck_assert_int_eq(rig_write(&rig, at[i], rig.host, MIB(1), &crc[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		ck_assert_int_eq(rig_read(&rig, at[i], rig.host, MIB(1), crc[i]), 0);
		rig_fill(rig.host + MIB(1), MIB(1), i);
		ck_assert_int_eq(memcmp(rig.host, rig.host + MIB(1), MIB(1)), 0);
	}
	rig_end(&rig);
}
END_TEST

START_TEST(a_wrong_crc_is_read_again_once_and_nothing_of_it_stays)
{
	struct xfer x;
	uint32_t crc;
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	rig_fill(rig.host, MIB(1), 3);
	ck_assert_int_eq(rig_write(&rig, MIB(2), rig.host, MIB(1), &crc), 0);
	x = rig_xfer(XFER_READ, MIB(2), rig.host, MIB(1));
	x.crc = crc ^ 1;
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, -EBADMSG);
	ck_assert_uint_eq(x.retries, 1);
	ck_assert_ptr_nonnull(strstr(x.cause, "nvme0: read of 1048576 bytes at 0x200000"));
	ck_assert_ptr_nonnull(strstr(x.cause, "CRC"));
	ck_assert(rig_all(rig.host, MIB(1), 0));
	rig_end(&rig);
}
END_TEST

START_TEST(eio_is_tried_again_a_few_times_and_then_named)
{
	struct xfer x;
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.read_error = rig.config.options.fault.write_error = 1000;
	rig_start(&rig);
	memset(rig.host, 0xaa, GRANULE);
	x = rig_xfer(XFER_WRITE, MIB(1), rig.host, 100);
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, -EIO);
	ck_assert_uint_eq(x.retries, 3);
	ck_assert_str_eq(x.cause, "nvme0: write of 100 bytes at 0x100000, from byte 0 on: EIO");
	x = rig_xfer(XFER_READ, MIB(1), rig.host, 100);
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, -EIO);
	ck_assert(rig_all(rig.host, GRANULE, 0));
	rig_end(&rig);
}
END_TEST

START_TEST(a_passing_eio_costs_retries_and_nothing_else)
{
	struct xfer x;
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.write_error = 1000;
	rig.config.options.fault.count = 2;
	rig_start(&rig);
	rig_fill(rig.host, 5000, 1);
	x = rig_xfer(XFER_WRITE, 0, rig.host, 5000);
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, 0);
	ck_assert_uint_eq(x.retries, 2);
	ck_assert_str_eq(x.cause, "");
	ck_assert_int_eq(rig_read(&rig, 0, rig.host, 5000, x.crc), 0);
	rig_end(&rig);
}
END_TEST

START_TEST(one_bad_write_of_64_harms_no_other)
{
	struct xfer x[64];
	unsigned bad = 0;
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.no_space = 1000;
	rig.config.options.fault.after = 31;
	rig.config.options.fault.count = 1;
	rig_start(&rig);
	for (unsigned i = 0; i < 64; i++) {
		rig_fill(rig.host + i * KIB(64), KIB(64), i);
		x[i] = rig_xfer(XFER_WRITE, i * KIB(64), rig.host + i * KIB(64), KIB(64));
	}
	rig_run(&rig, x, 64, NULL);
	for (unsigned i = 0; i < 64; i++) {
		unsigned char *host = x[i].host;

		bad += x[i].result == -ENOSPC && x[i].retries == 0;
		if (x[i].result == 0)
			ck_assert_int_eq(rig_read(&rig, x[i].offset, host, KIB(64), x[i].crc), 0);
	}
	ck_assert_uint_eq(bad, 1);
	rig_end(&rig);
}
END_TEST

/* One request in two is cut to 512, 4096, 4097, all but one byte, nothing or anything; some fail.
 * Each unit of continuation: a 512-byte disk, a 4096-byte one, and buffered I/O. */
static void go_on_by(uint32_t unit)
{
	struct nvme *n;
	struct rig rig;
	uint64_t retries = 0;
	/* Three units and 64 operations a round: 100,000 of them where there is time. */
	unsigned rounds = getenv("TIERD_TEST_LONG") != NULL ? 521 : 60;

	rig_init_faulty(&rig);
	rig.config.options.fault.short_read = rig.config.options.fault.short_write = 500;
	rig.config.options.fault.read_error = rig.config.options.fault.write_error = 10;
	rig.config.options.direct = unit == 1 ? NVME_DIRECT_OFF : NVME_DIRECT_TRY;
	rig_start(&rig);
	n = (struct nvme *)rig.tier;
	n->file.unit = MAX(n->file.unit, unit);
	for (unsigned round = 0; round < rounds; round++) {
		struct xfer x[32];

		for (unsigned i = 0; i < 32; i++) {
			uint64_t bytes = 1 + (round * 7919 + i * 4099) % KIB(64);

			rig_fill(rig.host + i * KIB(64), bytes, round + i);
			x[i] = rig_xfer(XFER_WRITE, i * KIB(64), rig.host + i * KIB(64), bytes);
		}
		rig_run(&rig, x, 32, NULL);
		for (unsigned i = 0; i < 32; i++) {
			ck_assert_msg(x[i].result == 0, "write: %s", x[i].cause);
			ck_assert_uint_eq(x[i].crc, crc32c(0, x[i].host, x[i].bytes));
			retries += x[i].retries;
			x[i].op = XFER_READ;
		}
		memset(rig.host, 0x77, 32 * KIB(64));
		rig_run(&rig, x, 32, NULL);
		for (unsigned i = 0; i < 32; i++) {
			unsigned char *end = (unsigned char *)x[i].host + x[i].bytes;

			/* The CRC of what was written: equal bytes, by a check that is not the
			 * lane's own. */
			ck_assert_msg(x[i].result == 0, "read: %s", x[i].cause);
			ck_assert_uint_eq(x[i].crc, crc32c(0, x[i].host, x[i].bytes));
			ck_assert(rig_all(end, ALIGN_UP(x[i].bytes, GRANULE) - x[i].bytes, 0));
		}
	}
	ck_assert_uint_gt(retries, 1000);
	rig_end(&rig);
}

START_TEST(short_completions_go_on_where_they_stopped)
{
	go_on_by(512);
	go_on_by(4096);
	go_on_by(1);
}
END_TEST

static int interrupted(uint8_t op, uint64_t bytes)
{
	static unsigned calls;

	switch (calls++ % 4) {
	case 0:
		return -EINTR;
	case 1:
		return -EAGAIN;
	default:
		return 0;
	}
}

START_TEST(interrupted_requests_are_tried_again)
{
	struct xfer x[8];
	unsigned retries = 0;
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	nvme_refusals.completion = interrupted;
	rig_fill(rig.host, KIB(512), 2);
	for (unsigned i = 0; i < 8; i++)
		x[i] = rig_xfer(XFER_WRITE, i * KIB(64), rig.host + i * KIB(64), KIB(64));
	rig_run(&rig, x, 8, NULL);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert_int_eq(x[i].result, 0);
		retries += x[i].retries;
		ck_assert_int_eq(rig_read(&rig, x[i].offset, x[i].host, x[i].bytes, x[i].crc), 0);
	}
	ck_assert_uint_ge(retries, 8);
	nvme_refusals.completion = NULL;
	rig_end(&rig);
}
END_TEST

static int always_again(uint8_t op, uint64_t bytes)
{
	return -EAGAIN;
}

START_TEST(a_device_that_never_has_time_is_given_up)
{
	struct xfer x;
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	nvme_refusals.completion = always_again;
	x = rig_xfer(XFER_WRITE, 0, rig.host, GRANULE);
	rig_run(&rig, &x, 1, NULL);
	nvme_refusals.completion = NULL;
	ck_assert_int_eq(x.result, -EAGAIN);
	ck_assert_uint_eq(x.retries, 200);
	rig_end(&rig);
}
END_TEST

/* Registered memory whose pages were taken away and replaced: the device fills the old ones. */
START_TEST(punched_host_memory_costs_a_second_read_and_no_data)
{
	struct xfer x;
	uint32_t crc;
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	rig_fill(rig.host, MIB(1), 4);
	ck_assert_int_eq(rig_write(&rig, 0, rig.host, MIB(1), &crc), 0);
	ck_assert_int_eq(madvise(rig.host, MIB(1), MADV_REMOVE), 0);
	x = rig_xfer(XFER_READ, 0, rig.host, MIB(1));
	x.crc = crc;
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, 0);
	ck_assert_uint_eq(crc, crc32c(0, rig.host, MIB(1)));
	if (((struct nvme *)rig.tier)->ring.registered_count == 2)
		ck_assert_uint_eq(x.retries, 1);
	rig_end(&rig);
}
END_TEST

START_TEST(requests_that_move_nothing_end_in_eio)
{
	struct xfer x;
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.short_write = 1000;
	rig_start(&rig);
	/* Each is short and the device can only be written by the granule: nothing is ever done. */
	((struct nvme *)rig.tier)->file.unit = GRANULE;
	x = rig_xfer(XFER_WRITE, 0, rig.host, GRANULE);
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, -EIO);
	ck_assert_ptr_nonnull(strstr(x.cause, "without progress"));
	ck_assert_uint_lt(x.retries, 100);
	rig_end(&rig);
}
END_TEST

START_TEST(a_flipped_byte_is_found_and_read_again)
{
	uint32_t crc;
	struct xfer x;
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.corrupt = 1000;
	rig.config.options.fault.after = 1;
	rig.config.options.fault.count = 1;
	rig_start(&rig);
	rig_fill(rig.host, 70000, 5);
	ck_assert_int_eq(rig_write(&rig, 0, rig.host, 70000, &crc), 0);
	memset(rig.host, 0, 70000);
	x = rig_xfer(XFER_READ, 0, rig.host, 70000);
	x.crc = crc;
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, 0);
	ck_assert_uint_eq(x.retries, 1);
	ck_assert_uint_eq(crc, crc32c(0, rig.host, 70000));
	rig_end(&rig);
}
END_TEST

/* Until `n` have come in all. */
static void reap_until(struct rig *rig, unsigned *came, unsigned n)
{
	struct xfer *done[4];

	while (*came < n) {
		unsigned count = nvme_ops.reap(rig->tier, done, ARRAY_SIZE(done));

		*came += count;
		if (count == 0)
			nvme_ops.wait(rig->tier, -1);
	}
}

/* The first completion is late for as long as the test wants; the three behind it do not wait. */
START_TEST(a_late_completion_holds_up_no_other)
{
	struct nvme_slot *late;
	struct xfer x[4];
	unsigned came = 0;
	struct rig rig;
	struct nvme *n;

	rig_init_faulty(&rig);
	rig.config.options.fault.delay_ns = 24 * 3600 * NS_PER_S;
	rig.config.options.fault.count = 1;
	rig_start(&rig);
	n = (struct nvme *)rig.tier;
	for (unsigned i = 0; i < 4; i++) {
		x[i] = rig_xfer(XFER_WRITE, i * MIB(1), rig.host, GRANULE);
		ck_assert_int_eq(nvme_ops.queue(rig.tier, &x[i]), 0);
	}
	nvme_ops.commit(rig.tier);
	reap_until(&rig, &came, 3);
	ck_assert_uint_eq(came, 3);
	late = list_first(&n->timed, struct nvme_slot, link);
	ck_assert_int_eq(late->state, NVME_SLOT_HELD);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(x[i].result, &x[i] == late->xfer ? 1 : 0);
	late->due_ns = clock_now_ns();
	reap_until(&rig, &came, 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(x[i].result, 0);
	rig_end(&rig);
}
END_TEST

START_TEST(a_sync_comes_after_the_writes_before_it)
{
	unsigned order[6], at[6];
	struct xfer x[6];
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.delay_ns = 20 * NS_PER_MS;
	rig.config.options.fault.count = 3;
	rig_start(&rig);
	rig_fill(rig.host, MIB(1), 9);
	for (unsigned i = 0; i < 6; i++)
		x[i] = rig_xfer(XFER_WRITE, i * MIB(1), rig.host, MIB(1));
	x[4] = rig_xfer(XFER_SYNC, 0, NULL, 0);
	rig_run(&rig, x, 6, order);
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_int_eq(x[i].result, 0);
		at[order[i]] = i;
	}
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_lt(at[i], at[4]);
	rig_end(&rig);
}
END_TEST

START_TEST(a_failed_sync_is_not_tried_again)
{
	struct xfer x = rig_xfer(XFER_SYNC, 0, NULL, 0);
	struct rig rig;

	rig_init_faulty(&rig);
	rig.config.options.fault.write_error = 1000;
	rig_start(&rig);
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, -EIO);
	ck_assert_uint_eq(x.retries, 0);
	ck_assert_str_eq(x.cause, "nvme0: sync: EIO");
	rig_end(&rig);
}
END_TEST

UNIT_MAIN("nvme", every_size_comes_back_whole_with_its_crc, a_large_tensor_goes_in_blocks,
	  a_shorter_rewrite_shows_nothing_of_what_was_there, offsets_beyond_4_gib_are_kept_apart,
	  a_wrong_crc_is_read_again_once_and_nothing_of_it_stays,
	  eio_is_tried_again_a_few_times_and_then_named,
	  a_passing_eio_costs_retries_and_nothing_else, one_bad_write_of_64_harms_no_other,
	  short_completions_go_on_where_they_stopped, interrupted_requests_are_tried_again,
	  a_device_that_never_has_time_is_given_up,
	  punched_host_memory_costs_a_second_read_and_no_data,
	  requests_that_move_nothing_end_in_eio, a_flipped_byte_is_found_and_read_again,
	  a_late_completion_holds_up_no_other, a_sync_comes_after_the_writes_before_it,
	  a_failed_sync_is_not_tried_again)

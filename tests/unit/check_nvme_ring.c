/* SPDX-License-Identifier: Apache-2.0
 *
 * The io_uring of an nvme lane where the kernel takes less than it is asked for: buffers that
 * cannot be registered, little lockable memory, system calls that a container forbids.
 */
#define _GNU_SOURCE
#include "tests/unit/nvme_rig.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned refuse_from;
static int refuse_code;

static int refuse_some(unsigned number, uint64_t bytes)
{
	return number >= refuse_from ? refuse_code : 0;
}

static void registers_up_to(unsigned from, int code, const char *chosen)
{
	struct rig rig;

	rig_init(&rig);
	refuse_from = from;
	refuse_code = code;
	nvme_refusals.register_buffer = refuse_some;
	rig_start(&rig);
	nvme_refusals.register_buffer = NULL;
	ck_assert_msg(strstr(rig.tier->base.chosen, chosen) != NULL, "%s", rig.tier->base.chosen);
	rig_round_trip(&rig);
	rig_end(&rig);
}

START_TEST(buffers_that_are_refused_go_unregistered)
{
	registers_up_to(2, 0, "2 of 2 registered");
	registers_up_to(1, -ENOMEM, "1 of 2 registered");
	registers_up_to(0, -EOPNOTSUPP, "0 of 2 registered");
	registers_up_to(0, -EFAULT, "0 of 2 registered");
	/* "Two were taken" of one that was offered: not believed. */
	registers_up_to(1, 2, "1 of 2 registered");
}
END_TEST

START_TEST(pieces_are_found_by_address_and_never_across_their_ends)
{
	struct nvme_ring ring = { .open = false };
	unsigned char *base = (unsigned char *)(uintptr_t)GIB(64);

	ck_assert_int_eq(nvme_ring_memory(&ring, base, GIB(2) + MIB(512), GIB(2)), 0);
	ck_assert_uint_eq(ring.piece_count, 3);
	for (unsigned i = 0; i < 3; i++)
		ring.pieces[i].index = (int)i;
	ck_assert_uint_eq(ring.pieces[2].bytes, MIB(512));
	ck_assert_int_eq(nvme_ring_find(&ring, base, MIB(1)), 0);
	ck_assert_int_eq(nvme_ring_find(&ring, base - 1, 1), -1);
	ck_assert_int_eq(nvme_ring_find(&ring, base + GIB(1) - 4096, 4096), 0);
	ck_assert_int_eq(nvme_ring_find(&ring, base + GIB(1) - 4096, 8192), -1);
	ck_assert_int_eq(nvme_ring_find(&ring, base + GIB(1), GIB(1)), 1);
	ck_assert_int_eq(nvme_ring_find(&ring, base + GIB(2) + MIB(512) - 1, 1), 2);
	ck_assert_int_eq(nvme_ring_find(&ring, base + GIB(2) + MIB(512), 1), -1);
	ck_assert_int_eq(nvme_ring_memory(&ring, base, UINT64_MAX / 2, 0), -ENOMEM);
	free(ring.pieces);
}
END_TEST

START_TEST(host_memory_above_one_gib_is_registered_in_pieces)
{
	const uint64_t bytes = GIB(1) + MIB(1);
	struct rig rig;

	rig_init(&rig);
	munmap(rig.host, rig.host_bytes);
	rig.host_bytes = bytes;
	rig.host = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(rig.host, MAP_FAILED);
	rig_start(&rig);
	if (geteuid() == 0)
		ck_assert_ptr_nonnull(strstr(rig.tier->base.chosen, "3 of 3 registered"));
	/* Across the border of two pieces, where no registered buffer holds all of it. */
	rig_fill(rig.host + GIB(1) - GRANULE, 2 * GRANULE, 4);
	ck_assert_int_eq(nvme_ring_find(&((struct nvme *)rig.tier)->ring,
					rig.host + GIB(1) - GRANULE, 2 * GRANULE),
			 -1);
	struct xfer x = rig_xfer(XFER_WRITE, 0, rig.host + GIB(1) - GRANULE, 2 * GRANULE);
	rig_run(&rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, 0);
	ck_assert_int_eq(rig_read(&rig, 0, rig.host + GIB(1) - GRANULE, 2 * GRANULE, x.crc), 0);
	rig_end(&rig);
}
END_TEST

/* As rig_start(), with host memory in two ranges of which nothing but `ready` bytes of the first is
 * there when the lane starts. */
static struct nvme_ring *start_with_ready(struct rig *rig, uint64_t ready)
{
	uint64_t half = rig->host_bytes / 2;
	struct err err = ERR_INIT;

	ck_assert_msg(rig_try(rig, &err) == 0, "%s", err.text);
	rig->staging_bytes = rig->tier->base.staging_want_bytes;
	rig->staging = mmap(NULL, rig->staging_bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(rig->staging, MAP_FAILED);
	nvme_ops.staging(rig->tier, rig->staging, rig->staging_bytes);
	nvme_ops.host_memory(rig->tier, rig->host + half, half, 0);
	nvme_ops.host_memory(rig->tier, rig->host, half, ready);
	ck_assert_msg(nvme_ops.lane_start(rig->tier, rig->wake_fd, &err) == 0, "%s", err.text);
	return &((struct nvme *)rig->tier)->ring;
}

static void pin(struct rig *rig, uint64_t offset, uint64_t bytes)
{
	struct xfer x = rig_xfer(XFER_PIN, 0, rig->host + offset, bytes);

	rig_run(rig, &x, 1, NULL);
	ck_assert_int_eq(x.result, 0);
}

static unsigned asked;

static int count_asked(unsigned number, uint64_t bytes)
{
	asked++;
	return refuse_code;
}

START_TEST(memory_that_comes_later_is_registered_when_all_of_a_piece_is_there)
{
	struct nvme_ring *ring;
	struct rig rig;

	rig_init(&rig);
	ring = start_with_ready(&rig, MIB(12));
	ck_assert_ptr_nonnull(strstr(rig.tier->base.chosen, "1 of 3 registered"));
	ck_assert_int_eq(nvme_ring_find(ring, rig.host, MIB(1)), -1);
	rig_round_trip(&rig);
	pin(&rig, MIB(12), MIB(4));
	ck_assert_int_eq(nvme_ring_find(ring, rig.host, MIB(1)), -1);
	/* Across the border of the ranges: the first is whole with it, the second is not. */
	pin(&rig, MIB(16), MIB(8));
	ck_assert_int_eq(nvme_ring_find(ring, rig.host, MIB(1)), 2);
	ck_assert_int_eq(nvme_ring_find(ring, rig.host + MIB(20), MIB(1)), -1);
	rig_round_trip(&rig);
	pin(&rig, MIB(24), MIB(16));
	ck_assert_int_eq(nvme_ring_find(ring, rig.host + MIB(20), MIB(1)), 1);
	ck_assert_int_eq(nvme_ring_find(ring, rig.staging, MIB(1)), 0);
	ck_assert_uint_eq(ring->registered_count, 3);
	rig_round_trip(&rig);
	/* Said twice: it stands registered as it is. */
	pin(&rig, 0, MIB(40));
	ck_assert_uint_eq(ring->registered_count, 3);
	rig_end(&rig);
}
END_TEST

START_TEST(memory_that_comes_later_and_is_refused_goes_unregistered)
{
	struct nvme_ring *ring;
	struct rig rig;

	rig_init(&rig);
	ring = start_with_ready(&rig, 0);
	asked = 0;
	refuse_code = -ENOMEM;
	nvme_refusals.register_buffer = count_asked;
	pin(&rig, 0, MIB(20));
	pin(&rig, MIB(20), MIB(20));
	nvme_refusals.register_buffer = NULL;
	ck_assert_uint_eq(asked, 1); /* one warning, and no more attempts */
	ck_assert_uint_eq(ring->registered_count, 1);
	ck_assert_int_eq(nvme_ring_find(ring, rig.host, MIB(1)), -1);
	rig_round_trip(&rig);
	rig_end(&rig);
}
END_TEST

static void small_memlock(struct rig *rig)
{
	struct rlimit limit;
	struct err err = ERR_INIT;
	uint32_t crc = 0;

	CHILD(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	rig->config.options.queue_depth = 4;
	limit.rlim_cur = MIN(limit.rlim_max, MIB(8));
	CHILD(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	CHILD(rig_try(rig, &err) == 0);
	rig->staging_bytes = rig->tier->base.staging_want_bytes;
	rig->staging = mmap(NULL, rig->staging_bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	nvme_ops.staging(rig->tier, rig->staging, rig->staging_bytes);
	nvme_ops.host_memory(rig->tier, rig->host, rig->host_bytes, rig->host_bytes);
	CHILD(nvme_ops.lane_start(rig->tier, rig->wake_fd, &err) == 0);
	/* 4 MiB of staging may fit, unless another process of this user has locked as much; 40 MiB
	 * of host memory do not. */
	CHILD(strstr(rig->tier->base.chosen, "1 of 2 registered") != NULL ||
	      strstr(rig->tier->base.chosen, "0 of 2 registered") != NULL);
	rig_fill(rig->host, MIB(1), 1);
	CHILD(rig_write(rig, 0, rig->host, MIB(1), &crc) == 0);
	CHILD(rig_read(rig, 0, rig->host, MIB(1), crc) == 0);
	rig_stop(rig);
}

START_TEST(little_lockable_memory_costs_registration_and_nothing_else)
{
	rig_in_child(small_memlock, true);
}
END_TEST

static void forbid(int call, int code)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { ARRAY_SIZE(filter), filter };

	CHILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHILD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void no_setup_eperm(struct rig *rig)
{
	struct err err = ERR_INIT;

	forbid(SYS_io_uring_setup, EPERM);
	CHILD(rig_try(rig, &err) == -EPERM);
	CHILD(strstr(err.text, "seccomp") != NULL && strstr(err.text, "sysctl") != NULL);
}

static void no_setup_enosys(struct rig *rig)
{
	struct err err = ERR_INIT;

	forbid(SYS_io_uring_setup, ENOSYS);
	CHILD(rig_try(rig, &err) == -ENOSYS);
	CHILD(strstr(err.text, "seccomp") != NULL);
}

static void no_enter(struct rig *rig)
{
	struct err err = ERR_INIT;

	forbid(SYS_io_uring_enter, EPERM);
	CHILD(rig_try(rig, &err) == -EPERM);
	CHILD(strstr(err.text, "io_uring_enter") != NULL);
}

static void no_register(struct rig *rig)
{
	uint32_t crc = 0;

	forbid(SYS_io_uring_register, EPERM);
	rig_start(rig);
	CHILD(strstr(rig->tier->base.chosen, "0 of 2 registered") != NULL);
	CHILD(rig_write(rig, 0, rig->host, MIB(1), &crc) == 0);
	CHILD(rig_read(rig, 0, rig->host, MIB(1), crc) == 0);
	rig_stop(rig);
}

START_TEST(a_forbidden_io_uring_is_named_at_the_start)
{
	rig_in_child(no_setup_eperm, false);
	rig_in_child(no_setup_enosys, false);
	rig_in_child(no_enter, false);
	rig_in_child(no_register, false);
}
END_TEST

#define STEADY 6u

/* What nobody changes meanwhile is not copied, and needs no staging. */
START_TEST(a_steady_write_goes_as_it_is)
{
	struct xfer writes[STEADY], *x;
	unsigned char *to;
	struct rig rig;

	rig_init(&rig);
	rig_start(&rig);
	to = rig.host + MIB(1);
	for (unsigned i = 0; i < STEADY; i++) {
		writes[i] = rig_xfer(XFER_WRITE, i * KIB(8), rig.host + i * KIB(8), 5000);
		writes[i].steady = true;
		rig_fill(writes[i].host, 5000, i);
		ck_assert_int_eq(nvme_ops.queue(rig.tier, &writes[i]), 0);
	}
	ck_assert_uint_eq(((struct nvme *)rig.tier)->bounce_free,
			  ((struct nvme *)rig.tier)->bounce_count);
	nvme_ops.commit(rig.tier);
	for (unsigned done = 0; done < STEADY; nvme_ops.wait(rig.tier, 0))
		done += nvme_ops.reap(rig.tier, &x, 1);
	for (unsigned i = 0; i < STEADY; i++) {
		memset(to, 0xee, KIB(8));
		ck_assert_int_eq(rig_read(&rig, i * KIB(8), to, 5000, writes[i].crc), 0);
		ck_assert_int_eq(memcmp(to, rig.host + i * KIB(8), 5000), 0);
		ck_assert(rig_all(to + 5000, 8192 - 5000, 0));
	}
	rig_end(&rig);
}
END_TEST

UNIT_MAIN("nvme_ring", buffers_that_are_refused_go_unregistered,
	  pieces_are_found_by_address_and_never_across_their_ends,
	  host_memory_above_one_gib_is_registered_in_pieces,
	  memory_that_comes_later_is_registered_when_all_of_a_piece_is_there,
	  memory_that_comes_later_and_is_refused_goes_unregistered,
	  little_lockable_memory_costs_registration_and_nothing_else,
	  a_forbidden_io_uring_is_named_at_the_start, a_steady_write_goes_as_it_is)

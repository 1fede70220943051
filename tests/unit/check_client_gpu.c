/* SPDX-License-Identifier: Apache-2.0
 *
 * libtierd's half of GPU memory: places by UUID and slabs, against a daemon in a thread and a
 * driver on host memory that moves bytes by steps.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "libclient/protocol/pin.h"
#include "tests/unit/client_gpu_rig.h"

/* ---- places ---- */

START_TEST(users_of_the_host_never_open_the_driver)
{
	uint64_t before;
	struct tierd_view v;

	setup();
	before = fake_cuda_calls("cuDeviceGetUuid");
	take(host, TIERD_HOST, &v);
	tierd_release(t, &v);
	ck_assert_int_eq(tierd_prefetch(t, &host, 1, TIERD_HOST), 0);
	ck_assert_uint_eq(fake_cuda_calls("cuDeviceGetUuid"), before);
	ck_assert_uint_eq(fake_cuda_counts().reservations, 0);
	end();
}
END_TEST

START_TEST(a_gpu_is_found_by_its_uuid)
{
	struct tierd_view v;

	setup();
	take(near, 0, &v);
	ck_assert_int_eq(v.place, 0);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	ck_assert_uint_eq(word0_place(atomic_load(&fake.descriptors[1].word0)), FAKE_GPU);
	ck_assert_uint_eq((uint8_t)(atomic_load(&fake.logs[0].entries[0]) >> 32), FAKE_GPU);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(a_gpu_of_another_machine_part_is_refused_by_name)
{
	struct tierd_view v;

	setup();
	tierd_close(t);
	fake_stop(&fake);
	fake.uuid[0] ^= 0xff;
	memset(fake.counts, 0, sizeof(fake.counts));
	fake.bye = fake.hung_up = fake.sq_head = fake.cq_tail = 0;
	fake_start(&fake);
	open_it(0);
	ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, 0, &v), -ENODEV);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "GPU-"));
	ck_assert_int_eq(tierd_acquire(t, near, 1, TIERD_READ, 0, &v), -ENODEV);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "sees 1 GPU"));
	ck_assert_int_eq(tierd_acquire(t, near, 16, TIERD_READ, 0, &v), -ENODEV);
	ck_assert_int_eq(tierd_acquire(t, near, -2, TIERD_READ, 0, &v), -ENODEV);
	ck_assert_int_eq(tierd_prefetch(t, &near, 1, 0), -ENODEV);
	end();
}
END_TEST

/* ---- slabs ---- */

START_TEST(a_slab_is_mapped_once_and_bytes_are_right)
{
	struct tierd_view v, w;
	CUdeviceptr mine;

	setup();
	mine = map_slab(memory[0]);
	memset((char *)(uintptr_t)mine + 4096, 0x5c, 1000);
	take(near, 0, &v);
	ck_assert(is_all(v.data, 1000, 0x5c));
	take(near, 0, &w);
	ck_assert_ptr_eq(v.data, w.data);
	ck_assert_uint_eq(asked(OP_SLAB), 1);
	ck_assert_uint_eq(fake_cuda_counts().reservations, 2);
	tierd_release(t, &w);
	take(wide, 0, &w);
	ck_assert_uint_eq(asked(OP_SLAB), 3);
	memset(w.data, 0x21, 8192);
	ck_assert_int_eq((char *)w.data - (char *)v.data, 5 * (int64_t)SLAB - 8192);
	tierd_release(t, &w);
	tierd_release(t, &v);
	/* No handle is kept: memory is held by maps alone. */
	ck_assert_uint_eq(fake_cuda_counts().handles, handles_before);
	cuda->mem_unmap(mine, SLAB);
	cuda->mem_address_free(mine, SLAB);
	end();
}
END_TEST

START_TEST(every_failure_of_a_mapping_gives_all_back)
{
	static const char *const calls[] = { "cuMemAddressReserve",
					     "cuMemImportFromShareableHandle", "cuMemMap",
					     "cuMemSetAccess" };
	struct tierd_view v = { 0 };

	setup();
	for (unsigned i = 0; i < ARRAY_SIZE(calls); i++) {
		uint32_t gone = asked(OP_SLAB_GONE);

		fake_cuda_fail(calls[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
		ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, -1, &v), -ENOMEM);
		ck_assert_ptr_nonnull(strstr(tierd_error(t), "OUT_OF_MEMORY"));
		ck_assert_ptr_null(v.data);
		ck_assert_uint_eq(slot(1), 0);
		ck_assert_uint_eq(fake_cuda_counts().mappings, 0);
		ck_assert_uint_eq(fake_cuda_counts().handles, handles_before);
		if (i > 0)
			wait_asked(OP_SLAB_GONE, gone + 1);
	}
	memory_is(0, 0);
	ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, -1, &v), -ENOMEM);
	ck_assert_uint_eq(slot(1), 0);
	memory_is(0, make_slab());
	take(near, 0, &v);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(a_slab_goes_when_the_daemon_wants_it_and_comes_again)
{
	struct tierd_view v, w;

	setup();
	take(near, 0, &v);
	tierd_release(t, &v);
	take(far, 0, &w);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 2);
	fake_say_slab(&fake, SLAB_UNMAP, 0, -1);
	/* Nobody watches: the next request sees it. */
	ck_assert_int_eq(tierd_step(t), 0);
	wait_asked(OP_SLAB_GONE, 1);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 1);
	memset(w.data, 1, 1000); /* the other one stands */
	take(near, 0, &v);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 2);
	ck_assert_uint_eq(asked(OP_SLAB), 3);
	/* A message that is there when a slab is asked for. */
	tierd_release(t, &v);
	fake_say_slab(&fake, SLAB_UNMAP, 0, -1);
	fake_say_slab(&fake, SLAB_UNMAP, 7 * SLAB, -1);
	tierd_release(t, &w);
	take(wide, 0, &w);
	wait_asked(OP_SLAB_GONE, 3);
	/* One that came late: the slab is in use again. */
	fake_say_slab(&fake, SLAB_UNMAP, 4 * SLAB, -1);
	ck_assert_int_eq(tierd_step(t), 0);
	wait_asked(OP_SLAB_KEPT, 1);
	memset(w.data, 2, 1000);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 3);
	tierd_release(t, &w);
	end();
}
END_TEST

START_TEST(a_slab_that_the_driver_keeps_stays_in_use)
{
	struct tierd_view v;

	setup();
	take(near, 0, &v);
	tierd_release(t, &v);
	fake_cuda_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
	fake_say_slab(&fake, SLAB_UNMAP, 0, -1);
	ck_assert_int_eq(tierd_step(t), 0);
	/* To GONE the daemon would count its memory as free, and to KEPT it would ask at once. */
	ck_assert_uint_eq(asked(OP_SLAB_GONE), 0);
	ck_assert_uint_eq(asked(OP_SLAB_KEPT), 0);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 1);
	take(near, 0, &v);
	memset(v.data, 3, 1000);
	ck_assert_uint_eq(asked(OP_SLAB), 1);
	tierd_release(t, &v);
	end();
}
END_TEST

static _Atomic bool enough;

static void *take_two(void *arg)
{
	const tierd_tensor two[2] = { near, wide };
	struct tierd_view v[2];
	char byte;

	while (!atomic_load(&enough)) {
		ck_assert_int_eq(tierd_acquire_batch(t, two, 2, 0, TIERD_READ, -1, v), 0);
		ck_assert_ptr_nonnull(v[0].data);
		ck_assert_ptr_nonnull(v[1].data);
		tierd_release(t, &v[0]);
		tierd_release(t, &v[1]);
		ck_assert_msg(tierd_copy_out(t, near, 0, &byte, 1) == 0, "%s", tierd_error(t));
	}
	return NULL;
}

/* While it is found out that they are in use. */
START_TEST(slabs_that_are_kept_stay_where_they_are)
{
	struct tierd_view v, w;
	pthread_t thread;

	setup();
	take(near, 0, &v);
	take(wide, 0, &w);
	ck_assert_int_eq(pthread_create(&thread, NULL, take_two, NULL), 0);
	while (asked(OP_SLAB_KEPT) < 20000) {
		fake_say_slab(&fake, SLAB_UNMAP, 0, -1);
		fake_say_slab(&fake, SLAB_UNMAP, 4 * SLAB, -1);
		ck_assert_int_eq(tierd_step(t), 0);
	}
	atomic_store(&enough, true);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(asked(OP_SLAB_GONE), 0);
	tierd_release(t, &v);
	tierd_release(t, &w);
	end();
}
END_TEST

static bool bad_map(struct fake *f, const struct sq_entry *e)
{
	struct hello_slab junk = { .magic = 1 };

	if (e->opcode != OP_SLAB)
		return false;
	/* Junk, a MAP that nobody asked for, two descriptors too few: then nothing. */
	ck_assert_int_eq(send(f->socket_fd, &junk, 3, 0), 3);
	ck_assert_int_eq(send(f->socket_fd, &junk, sizeof(junk), 0), sizeof(junk));
	fake_say_slab(f, SLAB_MAP, 3 * SLAB, slab_fd(f, 3 * SLAB));
	fake_complete(f, e->id, 0, 0, 0, "");
	return true;
}

static bool map_without_fd(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_SLAB)
		return false;
	fake_say_slab(f, SLAB_MAP, e->offset, -1);
	fake_complete(f, e->id, 0, 0, 0, "");
	return true;
}

START_TEST(messages_that_cannot_be_end_nothing_and_leak_nothing)
{
	struct tierd_view v;

	setup();
	answer_by(bad_map);
	ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, -1, &v), -EPROTO);
	wait_asked(OP_SLAB_GONE, 2); /* of the one that was not asked for, and of ours */
	answer_by(map_without_fd);
	ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, -1, &v), -EMFILE);
	answer_by(NULL);
	take(near, 0, &v);
	tierd_release(t, &v);
	end();
}
END_TEST

static bool full_socket(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_SLAB || f->counts[OP_SLAB] > 2)
		return false;
	fake_say_slab(f, SLAB_UNMAP, 7 * SLAB, -1);
	fake_complete(f, e->id, -EAGAIN, 0, 0, "the socket is full");
	return true;
}

START_TEST(a_full_socket_is_read_and_the_slab_asked_for_again)
{
	struct tierd_view v;

	setup();
	answer_by(full_socket);
	take(near, 0, &v);
	ck_assert_uint_eq(asked(OP_SLAB), 3);
	wait_asked(OP_SLAB_GONE, 2);
	tierd_release(t, &v);
	end();
}
END_TEST

static bool always_full(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_SLAB)
		return false;
	fake_complete(f, e->id, -EAGAIN, 0, 0, "too many descriptors are on their way");
	return true;
}

START_TEST(a_slab_that_does_not_come_fails_the_acquire)
{
	struct tierd_view v;

	setup();
	answer_by(always_full);
	ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, -1, &v), -EMFILE);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "too many descriptors"));
	ck_assert_uint_eq(slot(1), 0);
	ck_assert_uint_eq(asked(OP_SLAB_GONE), 0);
	end();
}
END_TEST

static struct sq_entry unanswered;

static bool no_answer(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_SLAB)
		return false;
	unanswered = *e;
	return true;
}

static void *take_far(void *arg)
{
	take(far, 0, arg);
	return NULL;
}

/* Its answer comes when nobody waits any more, or somebody else. */
static void answer_late(void)
{
	pthread_mutex_lock(&fake.lock);
	fake_say_slab(&fake, SLAB_MAP, unanswered.offset, slab_fd(&fake, unanswered.offset));
	fake_complete(&fake, unanswered.id, 0, 0, 0, "");
	pthread_mutex_unlock(&fake.lock);
}

START_TEST(a_slab_that_is_not_answered_holds_no_deadline)
{
	struct tierd_view v = { 0 }, w;
	pthread_t thread;

	setup();
	answer_by(no_answer);
	ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, 0, &v), -ETIMEDOUT);
	ck_assert_ptr_null(v.data);
	ck_assert_uint_eq(slot(1), 0);
	answer_late();
	/* Nor does one for which another thread waits for ever. */
	ck_assert_int_eq(pthread_create(&thread, NULL, take_far, &w), 0);
	wait_asked(OP_SLAB, 2);
	ck_assert_int_eq(tierd_acquire(t, near, 0, TIERD_READ, 0, &v), -ETIMEDOUT);
	ck_assert_uint_eq(slot(1), 0);
	ck_assert_uint_eq(asked(OP_SLAB), 2);
	answer_by(NULL);
	answer_late();
	pthread_join(thread, NULL);
	/* The one that came for nobody is given back. */
	wait_asked(OP_SLAB_GONE, 1);
	take(near, 0, &v);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 2);
	tierd_release(t, &v);
	tierd_release(t, &w);
	end();
}
END_TEST

static void *use_slabs(void *arg)
{
	for (unsigned i = 0; i < 200; i++) {
		struct tierd_view v;
		tierd_tensor h = { 1 + (i + (unsigned)(uintptr_t)arg) % 3, 1 };

		take(h, 0, &v);
		tierd_release(t, &v);
	}
	return NULL;
}

START_TEST(threads_that_need_slabs_at_once_map_each_once)
{
	pthread_t threads[4];

	setup();
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use_slabs, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(asked(OP_SLAB), 4);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 4);
	end();
}
END_TEST

START_TEST(copies_reach_a_tensor_on_a_gpu)
{
	char in[100], out[100] = { 0 };

	setup();
	memset(in, 0x44, sizeof(in));
	ck_assert_msg(tierd_copy_in(t, near, 10, in, sizeof(in)) == 0, "%s", tierd_error(t));
	ck_assert_msg(tierd_copy_out(t, near, 10, out, sizeof(out)) == 0, "%s", tierd_error(t));
	ck_assert(is_all(out, sizeof(out), 0x44));
	ck_assert_uint_eq(slot(1), PIN_WRITTEN);
	ck_assert_uint_eq(fake_cuda_counts().streams, 1);
	fake_cuda_fail("cuMemcpyDtoHAsync", 1, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(tierd_copy_out(t, near, 10, out, sizeof(out)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "INVALID_VALUE"));
	ck_assert_uint_eq(slot(1), PIN_WRITTEN);
	end();
}
END_TEST

UNIT_MAIN("client_gpu", users_of_the_host_never_open_the_driver, a_gpu_is_found_by_its_uuid,
	  a_gpu_of_another_machine_part_is_refused_by_name,
	  a_slab_is_mapped_once_and_bytes_are_right, every_failure_of_a_mapping_gives_all_back,
	  a_slab_goes_when_the_daemon_wants_it_and_comes_again,
	  a_slab_that_the_driver_keeps_stays_in_use, slabs_that_are_kept_stay_where_they_are,
	  messages_that_cannot_be_end_nothing_and_leak_nothing,
	  a_full_socket_is_read_and_the_slab_asked_for_again,
	  a_slab_that_does_not_come_fails_the_acquire,
	  a_slab_that_is_not_answered_holds_no_deadline,
	  threads_that_need_slabs_at_once_map_each_once, copies_reach_a_tensor_on_a_gpu)

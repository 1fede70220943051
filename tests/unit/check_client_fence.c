/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires that a stream waits for: fences, what becomes of them, the watcher, and captures.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/connect.h"
#include "libclient/protocol/pin.h"
#include "libclient/watcher.h"
#include "tests/unit/client_gpu_rig.h"

static bool filling(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_ACQUIRE_ON)
		return false;
	fake_gpu_tensor(f, e->index, STATE_FILLING, 2 * SLAB, 1000);
	fake_complete(f, e->id, 0, fence_token(5, 7), 0, "");
	return true;
}

/* far is in no tier; an acquire_on brings fence 5, value 7. */
static void acquire_far(struct tierd_view *ret)
{
	fake_gpu_tensor(&fake, 2, STATE_ABSENT, 0, 1000);
	atomic_store(&fake.fences[5].value, 6);
	answer_by(filling);
	ck_assert_msg(tierd_acquire_on(t, &far, 1, 0, TIERD_READ, stream, ret) == 0, "%s",
		      tierd_error(t));
}

static void fill_ends(int result)
{
	fake_gpu_tensor(&fake, 2, result < 0 ? STATE_FAILED : STATE_RESIDENT, 2 * SLAB, 1000);
	if (result < 0) {
		fake.fences[5].result = result;
		fake.fences[5].index = 2;
		fake.fences[5].generation = 1;
		atomic_store(&fake.fences[5].failed_at, 7);
	}
	atomic_store(&fake.fences[5].value, 7);
}

START_TEST(a_hit_on_a_stream_costs_the_stream_nothing)
{
	struct tierd_view v;

	setup();
	take(near, 0, &v);
	tierd_release(t, &v);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, 0, TIERD_READ, stream, &v), 0);
	ck_assert_uint_eq(asked(OP_ACQUIRE_ON), 0);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 0);
	tierd_release(t, &v);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, -1, TIERD_READ, stream, &v), -EINVAL);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, 0, 0, stream, &v), -EINVAL);
	ck_assert_int_eq(tierd_acquire_on(t, NULL, 0, 0, TIERD_READ, stream, NULL), 0);
	end();
}
END_TEST

static CUstream stream_of_gpu_1(CUcontext *ret_context)
{
	CUstream other;

	ck_assert_int_eq(cuda->primary_ctx_retain(ret_context, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_set_current(*ret_context), CUDA_SUCCESS);
	other = stream_new();
	ck_assert_int_eq(cuda->ctx_set_current(ctx), CUDA_SUCCESS);
	return other;
}

START_TEST(a_stream_of_another_gpu_is_refused_but_may_release)
{
	struct tierd_view v;
	CUcontext second;
	CUstream other;

	setenv("FAKE_CUDA_DEVICES", "2", 1);
	setup();
	other = stream_of_gpu_1(&second);
	fake_gpu_tensor(&fake, 2, STATE_ABSENT, 0, 1000);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, 0, TIERD_READ, other, &v), -EINVAL);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "of GPU 1, and"));
	ck_assert_int_eq(tierd_acquire_on(t, &far, 1, 0, TIERD_READ, other, &v), -EINVAL);
	/* The legacy stream is that of the current context. */
	ck_assert_int_eq(cuda->ctx_set_current(second), CUDA_SUCCESS);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, 0, TIERD_READ, NULL, &v), -EINVAL);
	ck_assert_uint_eq(asked(OP_ACQUIRE_ON), 0);
	ck_assert_uint_eq(slot(1) | slot(2), 0);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, 0, TIERD_READ, stream, &v), 0);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, other), 0);
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), 0);
	cuda->stream_destroy(other);
	ck_assert_int_eq(cuda->ctx_set_current(ctx), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->primary_ctx_release(1), CUDA_SUCCESS);
	end();
}
END_TEST

START_TEST(a_stream_waits_for_the_bytes_and_later_work_sees_them)
{
	struct tierd_view v;
	CUdeviceptr to;

	setup();
	to = device_memory(1000);
	acquire_far(&v);
	ck_assert_uint_eq(slot(2), PIN_ONE);
	ck_assert_uint_eq(v.bytes, 1000);
	cuda->memcpy_dtod_async(to, (CUdeviceptr)(uintptr_t)v.data, 1000, stream);
	fake_cuda_run(1);
	ck_assert_uint_eq(fake_cuda_counts().queued, 2);
	memset(v.data, 0x66, 1000); /* as the daemon's copy would */
	fill_ends(0);
	fake_cuda_run(2);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	ck_assert(is_all((void *)(uintptr_t)to, 1000, 0x66));
	cuda->mem_free(to);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	ck_assert_ptr_null(v.data);
	fake_cuda_run(3);
	end();
}
END_TEST

static bool moves_on_twice(struct fake *f, const struct sq_entry *e)
{
	uint32_t n = f->counts[OP_ACQUIRE_ON];

	if (e->opcode != OP_ACQUIRE_ON)
		return false;
	/* First it is gone again; then a fill that the token does not speak of, for its fence has
	 * passed; then it is there. */
	fake_gpu_tensor(f, 2,
			n == 1   ? STATE_ABSENT
			: n == 2 ? STATE_FILLING
				 : STATE_RESIDENT,
			2 * SLAB, 1000);
	fake_complete(f, e->id, 0, n == 2 ? fence_token(5, 6) : 0, 0, "");
	return true;
}

START_TEST(a_tensor_that_moved_on_is_asked_for_again)
{
	struct tierd_view v;

	setup();
	answer_by(moves_on_twice);
	fake_gpu_tensor(&fake, 2, STATE_ABSENT, 0, 1000);
	atomic_store(&fake.fences[5].value, 6);
	ck_assert_int_eq(tierd_acquire_on(t, &far, 1, 0, TIERD_WRITE, stream, &v), 0);
	ck_assert_uint_eq(asked(OP_ACQUIRE_ON), 3);
	ck_assert_uint_eq(slot(2), PIN_ONE | PIN_WRITE_ONE | PIN_WRITTEN);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(a_fill_that_failed_is_told_by_name)
{
	struct tierd_view v;

	setup();
	acquire_far(&v);
	fill_ends(-EIO);
	fake_cuda_run(1);
	ck_assert_int_eq(tierd_step(t), -EIO);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "2:1"));
	ck_assert_int_eq(tierd_step(t), 0);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), -EIO);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "2:1"));
	ck_assert_ptr_null(v.data);
	wait_asked(OP_STEP, 2);
	fake_cuda_run(2);
	end();
}
END_TEST

static bool fails_at_once(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_ACQUIRE_ON)
		return false;
	ck_assert_uint_eq(f->counts[OP_ACQUIRE_ON], 1); /* it would fail again and again */
	fill_ends(-ENODATA);
	fake_gpu_tensor(f, 2, STATE_ABSENT, 0, 1000);
	fake_complete(f, e->id, 0, fence_token(5, 7), 0, "");
	return true;
}

START_TEST(a_fill_that_failed_before_the_pin_fails_the_acquire)
{
	struct tierd_view v;

	setup();
	fake_gpu_tensor(&fake, 2, STATE_ABSENT, 0, 1000);
	answer_by(fails_at_once);
	ck_assert_int_eq(tierd_acquire_on(t, &far, 1, 0, TIERD_READ, stream, &v), -EIO);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "2:1"));
	ck_assert_ptr_nonnull(strstr(tierd_error(t), strerror(ENODATA)));
	ck_assert_uint_eq(slot(2), 0);
	ck_assert_int_eq(tierd_step(t), 0); /* that was told */
	end();
}
END_TEST

START_TEST(a_failure_is_told_once)
{
	struct tierd_view v;

	setup();
	acquire_far(&v);
	fill_ends(-EIO);
	fake_cuda_run(1);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), -EIO);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "2:1"));
	ck_assert_int_eq(tierd_step(t), 0);
	ck_assert_int_eq(tierd_flush(t, NULL, 0), 0);
	fake_cuda_run(2);
	end();
}
END_TEST

/* Of a batch a fence names one; a failure that was told is no cause of another's. */
START_TEST(a_release_says_why_a_tensor_is_not_there)
{
	struct tierd_view v[2];

	setup();
	take(near, 0, &v[1]);
	acquire_far(&v[0]);
	fill_ends(-ENODATA);
	fake_cuda_run(1);
	ck_assert_int_eq(tierd_step(t), -EIO);
	ck_assert_int_eq(tierd_release_on(t, &v[0], 1, stream), -EIO);
	ck_assert_str_eq(tierd_error(t), "tensor 2:1 did not come to its GPU: No data available");
	fake_gpu_tensor(&fake, 1, STATE_FAILED, 4096, 1000);
	ck_assert_int_eq(tierd_release_on(t, &v[1], 1, stream), -EIO);
	ck_assert_str_eq(tierd_error(t), "tensor 1:1 did not come to its GPU");
	fake_cuda_run(3);
	end();
}
END_TEST

START_TEST(a_lost_gpu_is_named_as_the_cause_wherever_the_bytes_were)
{
	struct tierd_view v;

	setup();
	acquire_far(&v);
	fill_ends(-ENODEV);
	fake_cuda_run(1);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), -EIO);
	ck_assert_str_eq(tierd_error(t), "tensor 2:1 did not come to its GPU: it was on or for a "
					 "GPU which was lost");
	fake_cuda_run(2);
	end();
}
END_TEST

/* No fence fails with what stood there already. */
START_TEST(a_release_names_the_gpu_that_was_lost)
{
	struct tierd_view v;

	setup();
	take(near, 0, &v);
	atomic_store(&fake.stats->device[FAKE_GPU].lost, 1);
	fake_gpu_tensor(&fake, 1, STATE_FAILED, 4096, 1000);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), -EIO);
	ck_assert_str_eq(tierd_error(t), "tensor 1:1 is on GPU 0, which was lost");
	ck_assert_ptr_null(v.data);
	fake_cuda_run(1);
	end();
}
END_TEST

static bool token_of_no_fence(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_ACQUIRE_ON)
		return false;
	fake_gpu_tensor(f, e->index, STATE_FILLING, 2 * SLAB, 1000);
	fake_complete(f, e->id, f->counts[OP_ACQUIRE_ON] == 1, fence_token(0xffff, 7), 0, "");
	return true;
}

START_TEST(a_token_of_no_fence_is_refused)
{
	struct tierd_view v;

	setup();
	fake_gpu_tensor(&fake, 2, STATE_ABSENT, 0, 1000);
	answer_by(token_of_no_fence);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(tierd_acquire_on(t, &far, 1, 0, TIERD_READ, stream, &v), -EPROTO);
	ck_assert_uint_eq(slot(2), 0);
	end();
}
END_TEST

START_TEST(streams_are_let_go_when_the_daemon_dies)
{
	struct tierd_view v, w;

	setup();
	acquire_far(&v);
	fake_cuda_run(1);
	ck_assert_uint_eq(fake_cuda_counts().queued, 1);
	fake_die(&fake);
	while (atomic_load(&fake.fences[5].value) < 7)
		sched_yield();
	fake_cuda_run(2);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, 0, TIERD_READ, stream, &w), -EPIPE);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), -EPIPE);
	ck_assert_ptr_null(v.data);
	end();
}
END_TEST

/* The fill takes longer than tierd_close() waits. */
START_TEST(streams_are_let_go_when_the_daemon_dies_after_the_close)
{
	struct tierd_view v;

	setup();
	acquire_far(&v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	tierd_close(t);
	fake_cuda_run(1);
	ck_assert_uint_eq(fake_cuda_counts().queued, 2);
	fake_die(&fake);
	while (atomic_load(&fake.fences[5].value) < 7)
		sched_yield();
	fake_cuda_run(2);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	watcher_stop(t);
	map_undo(t);
	fake_stop(&fake);
}
END_TEST

START_TEST(the_watcher_gives_slabs_back_without_a_call)
{
	struct tierd_view v, w;

	setup();
	acquire_far(&v);
	take(near, 0, &w);
	tierd_release(t, &w);
	fake_say_slab(&fake, SLAB_UNMAP, 0, -1);
	wait_asked(OP_SLAB_GONE, 1);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 1);
	fill_ends(0);
	fake_cuda_run(1);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(without_a_thread_the_cpu_waits)
{
	struct tierd_view v;

	setup_with(TIERD_NO_THREAD);
	fake_gpu_tensor(&fake, 2, STATE_ABSENT, 2 * SLAB, 1000);
	atomic_store(&fake.descriptors[2].word1, word1_make(1, 2 * SLAB));
	ck_assert_msg(tierd_acquire_on(t, &far, 1, 0, TIERD_READ, stream, &v) == 0, "%s",
		      tierd_error(t));
	ck_assert_uint_eq(asked(OP_ACQUIRE_ON), 0);
	ck_assert_uint_eq(asked(OP_ACQUIRE), 1);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(a_stream_under_capture_is_refused)
{
	struct tierd_view v, w;

	setup();
	take(near, 0, &v);
	fake_cuda_capture(stream, true);
	ck_assert_int_eq(tierd_acquire_on(t, &near, 1, 0, TIERD_READ, stream, &w), -EBUSY);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), -EBUSY);
	ck_assert_int_eq(tierd_read_into(t, host, NULL, stream), -EBUSY);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	fake_cuda_capture(stream, false);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(captures_of_other_streams_go_on)
{
	CUstream captured;
	struct tierd_view v, w;
	char byte = 3;

	setup();
	ck_assert_int_eq(cuda->stream_create(&captured, 0, 0), CUDA_SUCCESS);
	fake_cuda_capture(captured, true);
	/* All that the library asks of the driver: a range, slabs, words, copies, a slab back. */
	acquire_far(&v);
	take(near, 0, &w);
	tierd_release(t, &w);
	ck_assert_int_eq(tierd_copy_in(t, near, 0, &byte, 1), 0);
	ck_assert_int_eq(tierd_read_into(t, host, v.data, stream), 0);
	fake_say_slab(&fake, SLAB_UNMAP, 0, -1);
	wait_asked(OP_SLAB_GONE, 1);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 1);
	fill_ends(0);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	/* The legacy stream would wait for the captured one. */
	take(near, 0, &w);
	ck_assert_int_eq(tierd_release_on(t, &w, 1, NULL), -EBUSY);
	tierd_release(t, &w);
	fake_cuda_run(1);
	end();
	ck_assert(!fake_cuda_capture(captured, false));
	/* And this thread's mode is what it was. */
	fake_cuda_capture(captured, true);
	ck_assert_int_eq(cuda->stream_query(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ck_assert(fake_cuda_capture(captured, false));
	cuda->stream_destroy(captured);
}
END_TEST

START_TEST(a_wait_that_cannot_be_enqueued_leaves_nothing)
{
	struct tierd_view v = { 0 };

	setup();
	fake_cuda_fail("cuStreamWaitValue64", 1, CUDA_ERROR_OUT_OF_MEMORY);
	answer_by(filling);
	fake_gpu_tensor(&fake, 2, STATE_ABSENT, 0, 1000);
	atomic_store(&fake.fences[5].value, 6);
	ck_assert_int_eq(tierd_acquire_on(t, &far, 1, 0, TIERD_READ, stream, &v), -ENOMEM);
	ck_assert_ptr_null(v.data);
	ck_assert_uint_eq(slot(2), 0);
	fill_ends(0);
	fake_cuda_fail("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
	end();
}
END_TEST

START_TEST(a_child_has_nothing_of_it)
{
	struct tierd_view v;
	int status;
	pid_t pid;

	setup();
	acquire_far(&v);
	pid = fork();
	if (pid == 0) {
		struct tierd_view w;
		int rc = tierd_acquire_on(t, &near, 1, 0, TIERD_READ, stream, &w);

		rc = rc == -EPERM && tierd_release_on(t, &v, 1, stream) == -EPERM ? 0 : 1;
		tierd_close(t);
		_exit(rc);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	fill_ends(0);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	fake_cuda_run(1);
	end();
}
END_TEST

UNIT_MAIN("client_fence", a_hit_on_a_stream_costs_the_stream_nothing,
	  a_stream_of_another_gpu_is_refused_but_may_release,
	  a_stream_waits_for_the_bytes_and_later_work_sees_them,
	  a_tensor_that_moved_on_is_asked_for_again, a_fill_that_failed_is_told_by_name,
	  a_fill_that_failed_before_the_pin_fails_the_acquire, a_failure_is_told_once,
	  a_release_says_why_a_tensor_is_not_there,
	  a_lost_gpu_is_named_as_the_cause_wherever_the_bytes_were,
	  a_release_names_the_gpu_that_was_lost, a_token_of_no_fence_is_refused,
	  streams_are_let_go_when_the_daemon_dies,
	  streams_are_let_go_when_the_daemon_dies_after_the_close,
	  the_watcher_gives_slabs_back_without_a_call, without_a_thread_the_cpu_waits,
	  a_stream_under_capture_is_refused, captures_of_other_streams_go_on,
	  a_wait_that_cannot_be_enqueued_leaves_nothing, a_child_has_nothing_of_it)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins that end with a stream, what tierd_close() does about them, and copies on streams.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "libclient/connect.h"
#include "libclient/protocol/pin.h"
#include "tests/unit/client_gpu_rig.h"

/* ---- deferred releases ---- */

START_TEST(a_pin_ends_when_the_stream_gets_there)
{
	struct tierd_view v[3] = { 0 };
	CUdeviceptr to;

	setup();
	to = device_memory(4096);
	take(near, 0, &v[0]);
	take(host, TIERD_HOST, &v[2]);
	cuda->memset_d8_async(to, 1, 4096, stream);
	ck_assert_int_eq(tierd_release_on(t, v, 3, stream), 0);
	ck_assert_ptr_null(v[0].data);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	ck_assert_uint_eq(slot(4), PIN_ONE);
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), 0);
	ck_assert_uint_eq(slot(4), 0);
	ck_assert_int_eq(tierd_release_on(t, v, 3, stream), 0); /* nothing is no view */
	cuda->mem_free(to);
	end();
}
END_TEST

START_TEST(each_stream_has_its_word_and_the_rest_wait)
{
	CUstream streams[STREAMS + 1];
	struct tierd_view v;

	setup();
	for (unsigned i = 0; i <= STREAMS; i++) {
		streams[i] = stream_new();
		take(near, 0, &v);
		ck_assert_int_eq(tierd_release_on(t, &v, 1, streams[i]), 0);
	}
	/* The last found no word, so it waited for its stream and released by itself. */
	ck_assert_uint_eq(slot(1), STREAMS * PIN_ONE);
	fake_cuda_run(3);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), 0);
	/* Now words are free for it. */
	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, streams[STREAMS]), 0);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	for (unsigned i = 0; i <= STREAMS; i++)
		cuda->stream_destroy(streams[i]);
	fake_cuda_run(4);
	end();
}
END_TEST

START_TEST(a_full_ring_waits_for_the_stream)
{
	struct tierd_view v;
	unsigned i;

	setup();
	for (i = 0; i < DEFERRED_ENTRIES; i++) {
		take(near, 0, &v);
		ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	}
	ck_assert_uint_eq(slot(1), DEFERRED_ENTRIES);
	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), 0);
	ck_assert_uint_eq(fake_peek(&fake, &fake.deferred_head[0]), DEFERRED_ENTRIES);
	end();
}
END_TEST

/* In a thread that has no context. */
static void *release_host(void *arg)
{
	struct tierd_view v;

	take(host, TIERD_HOST, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, arg), 0);
	return NULL;
}

START_TEST(a_stream_brings_its_own_context)
{
	uint64_t before;
	pthread_t thread;

	setup();
	before = fake_cuda_calls("cuDevicePrimaryCtxRetain");
	ck_assert_int_eq(pthread_create(&thread, NULL, release_host, stream), 0);
	pthread_join(thread, NULL);
	/* The first GPU's may be one that this process has no use for. */
	ck_assert_uint_eq(fake_cuda_calls("cuDevicePrimaryCtxRetain"), before);
	/* The legacy stream is one of a context, and some is needed. */
	ck_assert_int_eq(pthread_create(&thread, NULL, release_host, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(fake_cuda_calls("cuDevicePrimaryCtxRetain"), before + 1);
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(4), 0);
	end();
}
END_TEST

/* One that waits for `word` until somebody stores 1, and has taken all that it can. */
static CUstream full_stream(_Atomic uint64_t *word)
{
	CUstream full = stream_new();
	CUdeviceptr at;

	ck_assert_int_eq(cuda->mem_host_register(word, 4096, CU_MEMHOSTREGISTER_DEVICEMAP),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_get_device_pointer(&at, word, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->stream_wait_value64(full, at, 1, CU_STREAM_WAIT_VALUE_GEQ),
			 CUDA_SUCCESS);
	fake_cuda_queue(1);
	return full;
}

static void *release_it(void *arg)
{
	struct tierd_view v;

	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, arg), 0);
	return NULL;
}

START_TEST(a_stream_that_is_full_keeps_no_other_from_releasing)
{
	static _Alignas(4096) _Atomic uint64_t word[512];
	uint64_t before = fake_cuda_calls("cuStreamWriteValue64");
	struct tierd_view v;
	pthread_t thread;
	CUstream full;

	setup();
	full = full_stream(word);
	ck_assert_int_eq(pthread_create(&thread, NULL, release_it, full), 0);
	while (fake_cuda_calls("cuStreamWriteValue64") == before)
		sched_yield();
	/* What the full one waits for may come of this alone. */
	take(far, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(2), 0);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	atomic_store(word, 1);
	pthread_join(thread, NULL);
	fake_cuda_queue(0);
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), 0);
	cuda->mem_host_unregister(word);
	cuda->stream_destroy(full);
	end();
}
END_TEST

START_TEST(a_release_that_cannot_be_enqueued_ends_its_pin)
{
	struct tierd_view v;

	setup();
	take(near, 0, &v);
	fake_cuda_fail("cuStreamWriteValue64", 1, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), -ENOMEM);
	ck_assert_ptr_null(v.data);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), 0);
	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	fake_cuda_run(1);
	end();
}
END_TEST

START_TEST(wrong_views_release_nothing)
{
	struct tierd_view v[2];

	setup();
	take(near, 0, &v[0]);
	take(host, TIERD_HOST, &v[1]);
	v[1].cookie ^= 1u << 20;
	ck_assert_int_eq(tierd_release_on(t, v, 2, stream), -EINVAL);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	v[1].cookie ^= 1u << 20;
	ck_assert_int_eq(tierd_release_on(t, v, 2, stream), 0);
	fake_cuda_run(1);
	end();
}
END_TEST

START_TEST(a_lost_gpu_holds_no_pins)
{
	struct tierd_view v[2];

	setup();
	take(near, 0, &v[0]);
	take(far, 0, &v[1]);
	ck_assert_int_eq(tierd_release_on(t, &v[0], 1, stream), 0);
	fake_cuda_lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(tierd_release_on(t, &v[1], 1, stream), -ENODEV);
	ck_assert_msg(strstr(tierd_error(t), "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", tierd_error(t));
	ck_assert_uint_eq(slot(2), 0);
	ck_assert_uint_eq(slot(1), PIN_ONE);
	tierd_close(t);
	ck_assert_uint_eq(slot(1), 0);
	fake_wait_bye(&fake);
	fake_stop(&fake);
}
END_TEST

static void *run_the_gpu(void *arg)
{
	_Atomic bool *go = arg;

	while (!atomic_load(go))
		sched_yield();
	for (unsigned i = 0; fake_cuda_counts().queued > 0; i++)
		fake_cuda_run(i);
	return NULL;
}

START_TEST(close_waits_for_streams_and_says_bye_after)
{
	static _Atomic bool go;
	struct tierd_view v;
	pthread_t thread;

	setup();
	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, run_the_gpu, &go), 0);
	ck_assert_uint_eq(fake_peek(&fake, &fake.bye), 0);
	atomic_store(&go, true);
	tierd_close(t);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(slot(1), 0);
	fake_wait_bye(&fake);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 0);
	fake_stop(&fake);
}
END_TEST

static void *close_it(void *arg)
{
	tierd_close(t);
	return NULL;
}

START_TEST(close_spoils_no_capture)
{
	static _Atomic bool go;
	CUstream captured;
	struct tierd_view v;
	pthread_t thread, closer;
	uint64_t before;

	setup();
	ck_assert_int_eq(cuda->stream_create(&captured, 0, 0), CUDA_SUCCESS);
	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	fake_cuda_capture(captured, true);
	before = fake_cuda_calls("cuStreamQuery");
	ck_assert_int_eq(pthread_create(&thread, NULL, run_the_gpu, &go), 0);
	ck_assert_int_eq(pthread_create(&closer, NULL, close_it, NULL), 0);
	/* It looks whether the GPU is lost, once that takes long. */
	while (fake_cuda_calls("cuStreamQuery") == before)
		sched_yield();
	atomic_store(&go, true);
	pthread_join(thread, NULL);
	pthread_join(closer, NULL);
	ck_assert(!fake_cuda_capture(captured, false));
	cuda->stream_destroy(captured);
	fake_wait_bye(&fake);
	fake_stop(&fake);
}
END_TEST

START_TEST(a_dead_daemon_does_not_keep_close_from_ending)
{
	struct tierd_view v;

	setup();
	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	fake_die(&fake);
	fake_cuda_run(1);
	end();
}
END_TEST

START_TEST(a_stream_that_never_gets_there_keeps_all_it_uses)
{
	struct tierd_view v;

	setup();
	take(near, 0, &v);
	ck_assert_int_eq(tierd_release_on(t, &v, 1, stream), 0);
	tierd_close(t); /* its patience is 10 s */
	ck_assert_uint_eq(slot(1), PIN_ONE);
	ck_assert_uint_eq(fake_peek(&fake, &fake.bye), 0);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 1);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 1);
	/* It may get there after all. */
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(1), 0);
	map_undo(t);
	fake_stop(&fake);
}
END_TEST

START_TEST(views_outlive_close_with_their_maps)
{
	struct tierd_view v, w;

	setup();
	take(near, 0, &v);
	take(far, 0, &w);
	ck_assert_int_eq(tierd_release_on(t, &w, 1, stream), 0);
	fake_cuda_run(1);
	tierd_close(t);
	memset(v.data, 9, 1000);
	ck_assert_uint_eq(fake_peek(&fake, &fake.bye), 0);
	tierd_release(t, &v);
	fake_wait_bye(&fake);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 0);
	fake_stop(&fake);
}
END_TEST

/* ---- copies on a stream ---- */

START_TEST(a_tensor_goes_to_memory_of_the_caller_and_back)
{
	unsigned char *bytes;
	CUdeviceptr gpu;

	setup();
	bytes = (unsigned char *)fake.arena + 4 * FAKE_TENSOR_SIZE;
	gpu = device_memory(4096);
	memset(bytes, 0x17, 4096);
	ck_assert_msg(tierd_read_into(t, host, (void *)(uintptr_t)gpu, stream) == 0, "%s",
		      tierd_error(t));
	ck_assert_uint_eq(slot(4), PIN_ONE);
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(4), 0);
	ck_assert(is_all((void *)(uintptr_t)gpu, 4096, 0x17));
	ck_assert_uint_eq(fake_cuda_counts().unregistered, 0);
	cuda->memset_d8_async(gpu, 0x2a, 4096, stream);
	ck_assert_int_eq(tierd_write_from(t, host, (void *)(uintptr_t)gpu, stream), 0);
	ck_assert_uint_eq(slot(4), PIN_ONE | PIN_WRITE_ONE | PIN_WRITTEN);
	fake_cuda_run(2);
	fake_deferred(&fake);
	ck_assert(is_all(bytes, 4096, 0x2a));
	ck_assert_uint_eq(slot(4), PIN_WRITTEN);
	cuda->mem_free(gpu);
	end();
}
END_TEST

START_TEST(a_tensor_outside_the_zone_is_refused_and_keeps_its_bytes)
{
	tierd_tensor outside = { 20, 1 };
	struct tierd_spec spec = { .ndim = 1, .shape = { 64 }, .flags = TIERD_DEVICE_COPY };
	tierd_tensor made;

	setup();
	fake_tensor(&fake, 20, 1, STATE_RESIDENT, PROTOCOL_PLACE_HOST, FLAG_UNFILLED, 4096);
	ck_assert_int_eq(tierd_write_from(t, outside, NULL, stream), -EINVAL);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "TIERD_DEVICE_COPY"));
	/* `filled` would have thrown the old bytes away. */
	ck_assert_uint_eq(slot(20), PIN_WRITTEN);
	ck_assert_int_eq(tierd_create(t, &spec, 1, &made), 0);
	spec.flags = 2;
	ck_assert_int_eq(tierd_create(t, &spec, 1, &made), -EINVAL);
	end();
}
END_TEST

/* As the end of the context that had them does. */
static void registrations_go(void)
{
	ck_assert_int_eq(cuda->mem_host_unregister(t->fences), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_unregister(t->zone.base), CUDA_SUCCESS);
}

START_TEST(a_context_that_goes_takes_nothing_along)
{
	CUdeviceptr gpu;
	struct tierd_view v;

	setup();
	gpu = device_memory(4096);
	for (unsigned i = 0; i < 2; i++) {
		take(near, 0, &v);
		ck_assert_msg(tierd_release_on(t, &v, 1, stream) == 0, "%s", tierd_error(t));
		ck_assert_msg(tierd_read_into(t, host, (void *)(uintptr_t)gpu, stream) == 0, "%s",
			      tierd_error(t));
		ck_assert_uint_eq(fake_cuda_counts().registrations, 2);
		fake_cuda_run(i);
		fake_deferred(&fake);
		ck_assert_uint_eq(slot(1), 0);
		ck_assert_uint_eq(slot(4), 0);
		ck_assert_uint_eq(fake_cuda_counts().unregistered, 0);
		if (i == 0)
			registrations_go();
	}
	cuda->mem_free(gpu);
	end();
}
END_TEST

START_TEST(a_copy_that_the_driver_refuses_leaves_the_old_bytes)
{
	CUdeviceptr gpu;

	setup();
	gpu = device_memory(4096);
	fake_tensor(&fake, 4, 1, STATE_RESIDENT, PROTOCOL_PLACE_HOST, FLAG_UNFILLED, 4096);
	fake_cuda_fail("cuMemcpyDtoHAsync", 1, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(tierd_write_from(t, host, (void *)(uintptr_t)gpu, stream), -EINVAL);
	fake_cuda_run(1);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(4), PIN_WRITTEN);
	ck_assert_int_eq(tierd_write_from(t, host, (void *)(uintptr_t)gpu, stream), 0);
	fake_cuda_run(2);
	fake_deferred(&fake);
	ck_assert_uint_eq(slot(4), PIN_WRITTEN | PIN_FILLED);
	cuda->mem_free(gpu);
	end();
}
END_TEST

UNIT_MAIN("client_stream", a_pin_ends_when_the_stream_gets_there,
	  each_stream_has_its_word_and_the_rest_wait, a_full_ring_waits_for_the_stream,
	  a_stream_brings_its_own_context, a_stream_that_is_full_keeps_no_other_from_releasing,
	  a_release_that_cannot_be_enqueued_ends_its_pin, wrong_views_release_nothing,
	  a_lost_gpu_holds_no_pins, close_waits_for_streams_and_says_bye_after,
	  close_spoils_no_capture, a_dead_daemon_does_not_keep_close_from_ending,
	  a_stream_that_never_gets_there_keeps_all_it_uses, views_outlive_close_with_their_maps,
	  a_tensor_goes_to_memory_of_the_caller_and_back,
	  a_tensor_outside_the_zone_is_refused_and_keeps_its_bytes,
	  a_context_that_goes_takes_nothing_along,
	  a_copy_that_the_driver_refuses_leaves_the_old_bytes)

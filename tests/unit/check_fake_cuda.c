/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake driver itself: what tests of GPU code rely on.
 */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/cuda_rig.h"

#define SLAB  FAKE_CUDA_GRANULARITY
#define BYTES ((size_t)8192)

START_TEST(bytes_move_when_stepped_and_are_poison_until_then)
{
	unsigned char *from, *to;
	CUdeviceptr device;
	CUstream stream;

	begin();
	device = device_memory(BYTES);
	from = pinned(BYTES, 1);
	to = pinned(BYTES, 2);
	stream = stream_new();
	memset((void *)device, 3, BYTES);
	ck_assert_int_eq(cuda->memcpy_htod_async(device, from, BYTES, stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->memcpy_dtoh_async(to, device, BYTES, stream), CUDA_SUCCESS);
	ck_assert(is_all((void *)device, BYTES, FAKE_CUDA_POISON));
	ck_assert(is_all(to, BYTES, 2)); /* its copy may not start yet */
	ck_assert_int_eq(cuda->stream_query(stream), CUDA_ERROR_NOT_READY);
	memset(from, 4, BYTES); /* too early: it shows */
	ck_assert(fake_cuda_step(1));
	ck_assert(is_all((void *)device, BYTES, 4));
	ck_assert(is_all(to, BYTES, FAKE_CUDA_POISON));
	ck_assert(fake_cuda_step(1));
	ck_assert(is_all(to, BYTES, 4));
	ck_assert(!fake_cuda_step(1));
	ck_assert_int_eq(cuda->stream_query(stream), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_counts().unregistered, 0);
	ck_assert_uint_eq(fake_cuda_counts().copies, 2);
}
END_TEST

START_TEST(streams_go_in_every_order_and_events_order_them)
{
	unsigned char *a, *b;
	CUdeviceptr device;
	CUstream one, two;
	CUevent event;
	int first_won = 0;

	begin();
	device = device_memory(BYTES);
	a = pinned(BYTES, 1);
	b = pinned(BYTES, 2);
	one = stream_new();
	two = stream_new();
	event = event_new();
	for (uint64_t seed = 0; seed < 64; seed++) {
		ck_assert_int_eq(cuda->memcpy_htod_async(device, a, BYTES, one), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->memcpy_htod_async(device, b, BYTES, two), CUDA_SUCCESS);
		ck_assert_uint_eq(fake_cuda_run(seed), 2);
		first_won += is_all((void *)device, BYTES, 1);
	}
	ck_assert_int_gt(first_won, 0);
	ck_assert_int_lt(first_won, 64);
	for (uint64_t seed = 0; seed < 64; seed++) {
		ck_assert_int_eq(cuda->memcpy_htod_async(device, a, BYTES, one), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->event_record(event, one), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->event_query(event), CUDA_ERROR_NOT_READY);
		ck_assert_int_eq(cuda->stream_wait_event(two, event, 0), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->memcpy_htod_async(device, b, BYTES, two), CUDA_SUCCESS);
		ck_assert_uint_eq(fake_cuda_run(seed), 4);
		ck_assert_int_eq(cuda->event_query(event), CUDA_SUCCESS);
		ck_assert(is_all((void *)device, BYTES, 2));
	}
}
END_TEST

/* A later record of the same event on another stream has no say. */
START_TEST(a_wait_is_for_the_record_that_was_the_last_then)
{
	unsigned char *a, *b;
	CUdeviceptr device;
	CUstream one, two, three;
	CUevent event;

	begin();
	device = device_memory(BYTES);
	a = pinned(BYTES, 1);
	b = pinned(BYTES, 2);
	one = stream_new();
	two = stream_new();
	three = stream_new();
	event = event_new();
	for (uint64_t seed = 0; seed < 64; seed++) {
		ck_assert_int_eq(cuda->memcpy_htod_async(device, a, BYTES, one), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->event_record(event, one), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->stream_wait_event(two, event, 0), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->event_record(event, three), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->memcpy_htod_async(device, b, BYTES, two), CUDA_SUCCESS);
		ck_assert_uint_eq(fake_cuda_run(seed), 5);
		ck_assert_int_eq(cuda->event_query(event), CUDA_SUCCESS);
		ck_assert(is_all((void *)device, BYTES, 2));
	}
}
END_TEST

START_TEST(words_hold_a_stream_back_and_are_written_by_it)
{
	CUdeviceptr device, word;
	unsigned char *memory;
	uint64_t *words;
	CUstream stream;

	begin();
	device = device_memory(BYTES);
	memory = pinned(BYTES, 0);
	words = (uint64_t *)memory;
	stream = stream_new();
	ck_assert_int_eq(cuda->mem_host_get_device_pointer(&word, words, 0), CUDA_SUCCESS);
	ck_assert_ptr_eq(fake_cuda_host(word), words);
	/* The host's own address is not the device's. */
	ck_assert_int_eq(cuda->stream_wait_value64(stream, (CUdeviceptr)words, 1, 0),
			 CUDA_ERROR_INVALID_VALUE);
	words[0] = UINT64_MAX - 1;
	ck_assert_int_eq(cuda->stream_wait_value64(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->memset_d8_async(device, 7, BYTES, stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->stream_write_value64(stream, word + 8, 5, 0), CUDA_SUCCESS);
	ck_assert(!fake_cuda_step(1));
	words[0] = 2; /* past 1, though it wrapped */
	ck_assert(fake_cuda_step(1));
	ck_assert(fake_cuda_step(1));
	ck_assert_uint_eq(words[1], 0);
	ck_assert(fake_cuda_step(1));
	ck_assert_uint_eq(words[1], 5);
	ck_assert(is_all((void *)device, BYTES, 7));
}
END_TEST

START_TEST(a_word_needs_devicemap)
{
	unsigned char *memory;
	CUdeviceptr word;

	begin();
	memory = host_memory(BYTES, 0);
	ck_assert_int_eq(cuda->mem_host_get_device_pointer(&word, memory, 0),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->mem_host_register(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_get_device_pointer(&word, memory, 0),
			 CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(registrations_have_edges)
{
	unsigned char *memory;
	CUdeviceptr device;
	CUstream stream;

	begin();
	device = device_memory(4 * BYTES);
	stream = stream_new();
	memory = host_memory(4 * BYTES, 9);
	ck_assert_int_eq(cuda->mem_host_register(memory, BYTES, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_register(memory + BYTES, BYTES, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_register(memory + BYTES / 2, BYTES, 0),
			 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	/* Over two of them, and from one into nothing. */
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory + BYTES / 2, BYTES, stream),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory + BYTES, 2 * BYTES, stream),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory, BYTES, stream), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_counts().queued, 1);
	/* Pageable memory: done when the call returns, and counted. */
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory + 2 * BYTES, BYTES, stream),
			 CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	ck_assert_uint_eq(fake_cuda_counts().unregistered, 1);
	ck_assert_int_eq(cuda->mem_host_unregister(memory), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_unregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 1);
}
END_TEST

START_TEST(memory_that_goes_under_a_copy_loses_the_context)
{
	unsigned char *memory;
	CUdeviceptr device;
	CUstream stream;

	begin();
	device = device_memory(BYTES);
	memory = pinned(BYTES, 1);
	stream = stream_new();
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory, BYTES, stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_unregister(memory), CUDA_SUCCESS);
	ck_assert(fake_cuda_step(1));
	ck_assert_int_eq(cuda->stream_query(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cuda->stream_synchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(a_slab_unmapped_under_a_copy_loses_the_context)
{
	CUdeviceptr at;
	CUstream stream;

	begin();
	at = map_slab(make_slab());
	stream = stream_new();
	ck_assert_int_eq(cuda->memcpy_htod_async(at, pinned(BYTES, 1), BYTES, stream),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_unmap(at, SLAB), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(a_registration_is_of_its_context_unless_portable)
{
	unsigned char *memory;
	CUdeviceptr device;
	CUcontext other;

	setenv("FAKE_CUDA_DEVICES", "2", 1);
	begin();
	memory = pinned(2 * BYTES, 1);
	ck_assert_int_eq(cuda->primary_ctx_retain(&other, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_set_current(other), CUDA_SUCCESS);
	device = device_memory(BYTES);
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory, BYTES, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_counts().unregistered, 1);
	ck_assert_int_eq(cuda->mem_host_unregister(memory), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_set_current(ctx), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_register(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_set_current(other), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory, BYTES, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_counts().unregistered, 1);
	ck_assert_uint_eq(fake_cuda_counts().queued, 1);
}
END_TEST

START_TEST(slabs_are_whole_and_aligned)
{
	CUmemAllocationProp prop;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	begin();
	prop = slab_prop(0);
	ck_assert_int_eq(cuda->mem_create(&handle, SLAB + 4096, &prop, 0),
			 CUDA_ERROR_INVALID_VALUE);
	handle = make_slab();
	ck_assert_uint_eq(fake_cuda_used_bytes(0), SLAB);
	ck_assert_int_eq(cuda->mem_address_reserve(&at, 4 * SLAB, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(at % SLAB, 0);
	ck_assert_int_eq(cuda->mem_map(at + 4096, SLAB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->mem_map(at, SLAB / 2, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->mem_map(at + 4 * SLAB, SLAB, 0, handle, 0),
			 CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(give_access(at, SLAB), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->mem_map(at + SLAB, SLAB, 0, handle, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_map(at + SLAB, SLAB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->memset_d8_async(at + SLAB, 1, SLAB, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(give_access(at + SLAB, SLAB), CUDA_SUCCESS);
	ck_assert(is_all((void *)(at + SLAB), 4096, FAKE_CUDA_POISON));
	ck_assert_int_eq(cuda->memset_d8_async(at + SLAB, 1, SLAB, NULL), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_synchronize(), CUDA_SUCCESS);
	/* The mapping keeps the memory, and the range stays while it is there. */
	ck_assert_int_eq(cuda->mem_release(handle), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_release(handle), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_cuda_used_bytes(0), SLAB);
	ck_assert(is_all((void *)(at + SLAB), SLAB, 1));
	ck_assert_int_eq(cuda->mem_address_free(at, 4 * SLAB), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->mem_unmap(at, 2 * SLAB), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuda->mem_unmap(at + SLAB, SLAB), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_unmap(at + SLAB, SLAB), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_cuda_used_bytes(0), 0);
	ck_assert_int_eq(cuda->mem_address_free(at, 4 * SLAB), CUDA_SUCCESS);
}
END_TEST

START_TEST(access_comes_with_set_access_and_goes_with_the_mapping)
{
	CUdeviceptr at;
	int status;
	pid_t child;

	begin();
	at = map_slab(make_slab());
	*(volatile char *)at = 1;
	ck_assert_int_eq(cuda->mem_unmap(at, SLAB), CUDA_SUCCESS);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would print */
		*(volatile char *)at = 1;
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
END_TEST

START_TEST(a_device_is_full_when_its_bytes_are_taken)
{
	CUmemAllocationProp prop = slab_prop(0);
	CUmemGenericAllocationHandle one, two, three;
	size_t free_bytes, total;

	setenv("FAKE_CUDA_BYTES", "4194304", 1);
	begin();
	ck_assert_int_eq(cuda->mem_create(&one, SLAB, &prop, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_create(&two, SLAB, &prop, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_create(&three, SLAB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(cuda->mem_get_info(&free_bytes, &total), CUDA_SUCCESS);
	ck_assert_uint_eq(free_bytes, 0);
	ck_assert_uint_eq(total, 2 * SLAB);
	ck_assert_int_eq(cuda->mem_release(one), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_create(&three, SLAB, &prop, 0), CUDA_SUCCESS);
}
END_TEST

static bool is_memory(const char *task, int fd)
{
	char path[64], target[64] = "";

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/fd/%d", task, fd);
	return readlink(path, target, sizeof(target) - 1) > 0 && strncmp(target, "/memfd:", 7) == 0;
}

/* A report of a sanitizer was written into a slab. */
START_TEST(memory_is_no_threads_stderr)
{
	struct dirent *task;
	DIR *d;

	begin();
	for (unsigned i = 0; i < 4; i++)
		map_slab(make_slab());
	d = opendir("/proc/self/task");
	ck_assert_ptr_nonnull(d);
	while ((task = readdir(d)) != NULL)
		for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
			ck_assert(!is_memory(task->d_name, fd));
	closedir(d);
}
END_TEST

/* As 580.159 does it. */
START_TEST(only_an_export_takes_a_descriptor_and_says_when_there_is_none)
{
	CUmemGenericAllocationHandle handle, again;
	struct rlimit limit, low;
	CUdeviceptr at;
	int fd = -1, spare;

	begin();
	getrlimit(RLIMIT_NOFILE, &limit);
	spare = dup(STDERR_FILENO);
	close(spare);
	low = limit;
	low.rlim_cur = (rlim_t)spare; /* not one more */
	setrlimit(RLIMIT_NOFILE, &low);
	handle = make_slab();
	at = map_slab(handle);
	ck_assert_int_eq(cuda->mem_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_ERROR_OPERATING_SYSTEM);
	ck_assert_int_eq(fd, -1);
	low.rlim_cur++;
	setrlimit(RLIMIT_NOFILE, &low);
	ck_assert_int_eq(cuda->mem_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_SUCCESS);
	ck_assert_int_eq(fd, spare);
	ck_assert_int_eq(cuda->mem_import(&again, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
			 CUDA_SUCCESS);
	close(fd);
	memset((void *)at, 7, SLAB);
	ck_assert(is_all((void *)map_slab(again), SLAB, 7));
	setrlimit(RLIMIT_NOFILE, &limit);
}
END_TEST

START_TEST(a_call_fails_when_told)
{
	CUmemAllocationProp prop = slab_prop(0);
	CUmemGenericAllocationHandle handle;
	CUstream stream;

	setenv("FAKE_CUDA_FAIL", "cuMemCreate:2:2,cuStreamCreateWithPriority:1:999", 1);
	begin();
	ck_assert_int_eq(cuda->mem_create(&handle, SLAB, &prop, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_create(&handle, SLAB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(cuda->mem_create(&handle, SLAB, &prop, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->stream_create(&stream, 0, 0), CUDA_ERROR_UNKNOWN);
	fake_cuda_fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuda->mem_create(&handle, SLAB, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(fake_cuda_counts().handles, 2);
	ck_assert_uint_eq(fake_cuda_calls("cuMemCreate"), 4);
}
END_TEST

START_TEST(a_lost_device_runs_nothing_and_gives_back)
{
	unsigned char *memory;
	CUdeviceptr device;
	CUstream stream;
	CUevent event;

	setenv("FAKE_CUDA_LOSE", "0:1", 1);
	begin();
	device = device_memory(BYTES);
	memory = pinned(BYTES, 1);
	stream = stream_new();
	event = event_new();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(cuda->memcpy_htod_async(device, memory, BYTES, stream),
				 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->event_record(event, stream), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_run(1), 1);
	ck_assert_int_eq(cuda->event_query(event), CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_assert_int_eq(cuda->event_synchronize(event), CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_assert_int_eq(cuda->memcpy_htod_async(device, memory, BYTES, stream),
			 CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_assert_int_eq(cuda->stream_destroy(stream), CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_assert_int_eq(cuda->event_destroy(event), CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_assert_int_eq(cuda->mem_host_unregister(memory), CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_assert_int_eq(cuda->mem_free(device), CUDA_ERROR_ECC_UNCORRECTABLE);
	ck_assert_int_eq(cuda->primary_ctx_release(0), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_counts().queued, 0);
	ck_assert_uint_eq(fake_cuda_counts().streams + fake_cuda_counts().events, 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations + fake_cuda_counts().allocations, 0);
	ck_assert_uint_eq(fake_cuda_counts().contexts, 0);
}
END_TEST

START_TEST(a_call_needs_a_context)
{
	CUstream stream;
	CUcontext popped;

	begin();
	ck_assert_int_eq(cuda->ctx_pop(&popped), CUDA_SUCCESS);
	ck_assert_ptr_eq(popped, ctx);
	ck_assert_int_eq(cuda->stream_create(&stream, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_int_eq(cuda->ctx_push(ctx), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->stream_create(&stream, 0, 0), CUDA_SUCCESS);
	fake_cuda_capture(stream, true);
	ck_assert_int_eq(cuda->stream_synchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}
END_TEST

START_TEST(visible_devices_are_numbers_and_uuids)
{
	CUuuid uuid;
	char id[32], name[32];
	int count;

	setenv("FAKE_CUDA_DEVICES", "4", 1);
	/* The letters of "tierd fake gpu" and 2. */
	setenv("CUDA_VISIBLE_DEVICES", "GPU-74696572-6420-6661-6b65-206770750002,0,9,1", 1);
	begin();
	ck_assert_int_eq(cuda->device_get_count(&count), CUDA_SUCCESS);
	ck_assert_int_eq(count, 2);
	ck_assert_int_eq(cuda->device_get_uuid(&uuid, 0), CUDA_SUCCESS);
	ck_assert_int_eq(uuid.bytes[15], 2);
	ck_assert_int_eq(cuda->device_get_uuid(&uuid, 1), CUDA_SUCCESS);
	ck_assert_int_eq(uuid.bytes[15], 0);
	ck_assert_int_eq(cuda->device_get_name(name, sizeof(name), 0), CUDA_SUCCESS);
	ck_assert_str_eq(name, "Fake GPU 2");
	ck_assert_int_eq(cuda->device_get_pci_bus_id(id, sizeof(id), 0), CUDA_SUCCESS);
	ck_assert_str_eq(id, "FA4E:03:00.0");
	ck_assert_int_eq(cuda->device_get_uuid(&uuid, 2), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(the_default_stream_goes_between)
{
	CUdeviceptr device;
	CUstream blocking;

	begin();
	device = device_memory(BYTES);
	ck_assert_int_eq(cuda->stream_create(&blocking, CU_STREAM_DEFAULT, 0), CUDA_SUCCESS);
	for (uint64_t seed = 0; seed < 16; seed++) {
		ck_assert_int_eq(cuda->memset_d8_async(device, 1, BYTES, blocking), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->memset_d8_async(device, 2, BYTES, NULL), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->memset_d8_async(device, 3, BYTES, blocking), CUDA_SUCCESS);
		for (unsigned char want = 1; want <= 3; want++) {
			ck_assert(fake_cuda_step(seed));
			ck_assert_int_eq(*(unsigned char *)device,
					 want == 3 ? 3 : FAKE_CUDA_POISON);
		}
	}
}
END_TEST

START_TEST(kernels_run_in_their_place)
{
	uint32_t byte = 6;
	uint64_t bytes = BYTES;
	CUdeviceptr device, count;
	void *fill_params[] = { &device, &bytes, &byte };
	void *compare_params[] = { &device, &bytes, &byte, &count };
	CUfunction fill, compare;
	CUmodule module;
	CUstream stream;

	begin();
	device = device_memory(BYTES);
	stream = stream_new();
	ck_assert_int_eq(cuda->mem_host_get_device_pointer(&count, pinned(4096, 0), 0),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->module_load_data(&module, "any"), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->module_get_function(&fill, module, "fill"), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->module_get_function(&compare, module, "compare"), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->module_get_function(&fill, module, "none"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(
		cuda->launch_kernel(compare, 1, 1, 1, 32, 1, 1, 0, stream, compare_params, NULL),
		CUDA_SUCCESS);
	ck_assert_int_eq(cuda->launch_kernel(fill, 1, 1, 1, 32, 1, 1, 0, stream, fill_params, NULL),
			 CUDA_SUCCESS);
	ck_assert_int_eq(
		cuda->launch_kernel(compare, 1, 1, 1, 32, 1, 1, 0, stream, compare_params, NULL),
		CUDA_SUCCESS);
	byte = 9; /* parameters were copied */
	ck_assert_int_eq(cuda->stream_synchronize(stream), CUDA_SUCCESS);
	ck_assert(is_all((void *)device, BYTES, 6));
	ck_assert_uint_eq(*(uint64_t *)fake_cuda_host(count), BYTES);
	ck_assert_int_eq(cuda->module_unload(module), CUDA_SUCCESS);
}
END_TEST

UNIT_MAIN("fake_cuda", a_slab_unmapped_under_a_copy_loses_the_context,
	  a_registration_is_of_its_context_unless_portable,
	  bytes_move_when_stepped_and_are_poison_until_then,
	  streams_go_in_every_order_and_events_order_them,
	  a_wait_is_for_the_record_that_was_the_last_then,
	  words_hold_a_stream_back_and_are_written_by_it, a_word_needs_devicemap,
	  registrations_have_edges, memory_that_goes_under_a_copy_loses_the_context,
	  slabs_are_whole_and_aligned, access_comes_with_set_access_and_goes_with_the_mapping,
	  a_device_is_full_when_its_bytes_are_taken, memory_is_no_threads_stderr,
	  only_an_export_takes_a_descriptor_and_says_when_there_is_none, a_call_fails_when_told,
	  a_lost_device_runs_nothing_and_gives_back, a_call_needs_a_context,
	  visible_devices_are_numbers_and_uuids, the_default_stream_goes_between,
	  kernels_run_in_their_place)

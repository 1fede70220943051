/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake driver as whole processes have it: a thread of its own moves the bytes.
 */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/cuda_rig.h"
#include "tests/unit/leftovers.h"

#define SLAB    FAKE_CUDA_GRANULARITY
#define BYTES   ((size_t)8192)
#define THREADS 4
#define ROUNDS  100

/* Of the process that imports: waits in a stream for the word, then copies the slab out. */
static int importer(int socket, unsigned char *shared)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at, word;
	CUstream stream;
	int fd = receive_fd(socket);

	open_fake();
	ck_assert_int_eq(cuda->mem_import(&handle, (void *)(uintptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
			 CUDA_SUCCESS);
	close(fd);
	at = map_slab(handle);
	ck_assert_int_eq(cuda->mem_release(handle), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_register(shared, 2 * BYTES, CU_MEMHOSTREGISTER_DEVICEMAP),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_get_device_pointer(&word, shared, 0), CUDA_SUCCESS);
	stream = stream_new();
	ck_assert_int_eq(cuda->stream_wait_value64(stream, word, 3, CU_STREAM_WAIT_VALUE_GEQ),
			 CUDA_SUCCESS);
	ck_assert_int_eq(cuda->memcpy_dtoh_async(shared + BYTES, at, BYTES, stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->stream_write_value64(stream, word + 8, 1, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->stream_synchronize(stream), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_cuda_used_bytes(0), 0);
	return 0;
}

/* Both have a thread that steps, as whole processes do. */
START_TEST(two_processes_share_a_slab_and_a_word)
{
	unsigned char *shared = host_memory(2 * BYTES, 0);
	uint64_t *words = (uint64_t *)shared;
	CUmemGenericAllocationHandle handle;
	int sockets[2], fd, status;
	CUdeviceptr at;
	pid_t child;

	setenv(CUDA_LIBRARY_VARIABLE, fake_cuda_path(), 1);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
	child = fork(); /* before there is a driver: none survives a fork */
	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(importer(sockets[1], shared));
	open_fake();
	handle = make_slab();
	at = map_slab(handle);
	ck_assert_int_eq(cuda->mem_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_SUCCESS);
	send_fd(sockets[0], fd);
	ck_assert_int_eq(cuda->memset_d8_async(at, 0x5a, SLAB, NULL), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_synchronize(), CUDA_SUCCESS);
	ck_assert_uint_eq(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(&words[0], 3, __ATOMIC_RELEASE);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_uint_eq(words[1], 1);
	ck_assert(is_all(shared + BYTES, BYTES, 0x5a));
	ck_assert_uint_eq(fake_cuda_used_bytes(0), SLAB);
}
END_TEST

static void *copy_round(void *unused)
{
	unsigned char *memory;
	CUdeviceptr device;
	CUstream stream;
	CUevent event;

	(void)unused;
	ck_assert_int_eq(cuda->ctx_set_current(ctx), CUDA_SUCCESS);
	device = device_memory(BYTES);
	memory = pinned(BYTES, 0);
	stream = stream_new();
	event = event_new();
	for (int i = 1; i <= ROUNDS; i++) {
		memset(memory, i, BYTES);
		ck_assert_int_eq(cuda->memcpy_htod_async(device, memory, BYTES, stream),
				 CUDA_SUCCESS);
		ck_assert_int_eq(cuda->memcpy_dtoh_async(memory, device, BYTES, stream),
				 CUDA_SUCCESS);
		ck_assert_int_eq(cuda->event_record(event, stream), CUDA_SUCCESS);
		ck_assert_int_eq(cuda->event_synchronize(event), CUDA_SUCCESS);
		ck_assert(is_all(memory, BYTES, (unsigned char)i));
	}
	ck_assert_int_eq(cuda->event_destroy(event), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->stream_destroy(stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_host_unregister(memory), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_free(device), CUDA_SUCCESS);
	return NULL;
}

START_TEST(threads_use_it_while_a_thread_steps)
{
	struct fake_cuda_counts counts;
	pthread_t threads[THREADS];

	setenv(CUDA_LIBRARY_VARIABLE, fake_cuda_path(), 1);
	open_fake();
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_round, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	counts = fake_cuda_counts();
	ck_assert_uint_eq(counts.copies, 2ull * THREADS * ROUNDS);
	ck_assert_uint_eq(counts.unregistered + counts.queued, 0);
	ck_assert_uint_eq(counts.streams + counts.events + counts.registrations, 0);
	ck_assert_uint_eq(fake_cuda_used_bytes(0), 0);
}
END_TEST

/* Of one name in what a process left behind. */
static unsigned long reported(const char *folder, pid_t pid, const char *name)
{
	unsigned long value = 0;
	char path[128], got[64];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%d", folder, (int)pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (!found && fscanf(file, "%63s %lu", got, &value) == 2)
		found = strcmp(got, name) == 0;
	ck_assert(found);
	fclose(file);
	return value;
}

START_TEST(a_process_that_ends_reports_what_it_kept)
{
	char folder[LEFTOVERS_ROOM], path[128];
	int status;
	pid_t child;

	leftovers_folder(folder);
	setenv("FAKE_CUDA_REPORT", folder, 1);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		begin();
		(void)stream_new();
		(void)map_slab(make_slab());
		exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_uint_eq(reported(folder, child, "streams"), 1);
	ck_assert_uint_eq(reported(folder, child, "mappings"), 1);
	ck_assert_uint_eq(reported(folder, child, "events"), 0);
	snprintf(path, sizeof(path), "%s/%d", folder, (int)child);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
	unsetenv("FAKE_CUDA_REPORT");
}
END_TEST

UNIT_MAIN("fake_cuda_auto", threads_use_it_while_a_thread_steps,
	  two_processes_share_a_slab_and_a_word, a_process_that_ends_reports_what_it_kept)

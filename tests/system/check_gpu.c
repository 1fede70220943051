/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory through processes: a real tierd with `backend: cuda`, clients with streams, each with
 * a driver on host memory of its own. What clients hold crosses as it would on a GPU, by
 * descriptors of slabs; and "the GPU" of a client is a thread of the fake driver.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/cuda.h"
#include "libclient/client.h"
#include "tests/fake/bytes.h"
#include "tests/system/system.h"

#define CONFIG                                                \
	"tensors: 64Ki\n"                                     \
	"tiers:\n"                                            \
	"  hbm: {backend: cuda, size: 128MiB, slab: 64MiB}\n" \
	"  dram: {size: 384MiB, zone: 64MiB}\n"
#define WAIT_NS  (20 * (int64_t)NS_PER_S)
#define CHILD_MS 120000

static struct system tierd_system;
static struct system *const s = &tierd_system;

/* Of a client's process. */
static struct tierd *t;
static const struct cuda *cuda;
static CUstream stream;
static int ready[2], go[2];

/* ---- in a client's process: no Check there ---- */

static _Noreturn void died(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

static void must(int rc, const char *what)
{
	if (rc < 0)
		died("%s: %d: %s", what, rc, tierd_error(t));
}

static void expect_rc(int rc, int want, const char *what)
{
	if (rc != want)
		died("%s: %d and not %d: %s", what, rc, want, tierd_error(t));
}

static void cu_must(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		died("%s: CUDA says %d", what, (int)result);
}

static void client_open(uint64_t flags)
{
	struct err err = ERR_INIT;
	CUcontext context;

	if (cuda_open(&cuda, &err) < 0)
		died("%s", err.text);
	cu_must(cuda->primary_ctx_retain(&context, 0), "context");
	cu_must(cuda->ctx_set_current(context), "context");
	cu_must(cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0), "stream");
	must(tierd_open(s->socket, "gpu", flags, &t), "open");
}

static tierd_tensor made(const char *name, uint64_t bytes, uint64_t flags)
{
	struct tierd_spec spec = { .name = name, .ndim = 1, .shape = { bytes }, .flags = flags };
	tierd_tensor h;

	must(tierd_create(t, &spec, 1, &h), "create");
	return h;
}

static CUdeviceptr gpu_bytes(uint64_t bytes)
{
	CUdeviceptr at;

	cu_must(cuda->mem_alloc(&at, bytes), "cuMemAlloc");
	return at;
}

/* Device pointers of the fake driver are the host's. */
static void *on_gpu(const struct tierd_view *v)
{
	return v->data;
}

static void fill(tierd_tensor h, int place, int byte)
{
	struct tierd_view v;

	must(tierd_acquire(t, h, place, TIERD_WRITE, WAIT_NS, &v), "acquire to fill");
	bytes_fill(on_gpu(&v), byte, v.bytes);
	tierd_release(t, &v);
}

static void expect(tierd_tensor h, int place, int byte)
{
	struct tierd_view v;

	must(tierd_acquire(t, h, place, TIERD_READ, WAIT_NS, &v), "acquire to read");
	if (!system_bytes_are(on_gpu(&v), (unsigned char)byte, v.bytes))
		died("tensor %u: not all bytes are %d", h.index, byte);
	tierd_release(t, &v);
}

static void say(int pipe_end)
{
	if (write(pipe_end, "", 1) != 1)
		died("a pipe is gone");
}

static void hear(int pipe_end)
{
	char byte;

	if (read(pipe_end, &byte, 1) != 1)
		died("a pipe is gone");
}

/* ---- in the test's process, which opens no driver ---- */

static void begin_with(const char *config, const char *devices)
{
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", devices, 1);
	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(go), 0);
	system_start(s, config);
}

static void begin(void)
{
	begin_with(CONFIG, "1");
}

/* Runs one client to its end. */
static void client(void (*body)(struct system *s, void *arg), void *arg)
{
	system_child_end(s, system_child(body, s, arg), CHILD_MS);
}

/* ---- bytes ---- */

#define MINE    10u
#define AT_ONCE 3u
#define ROUNDS  40u

/* Tensors of this client alone, more than there is room on the GPU with those of the others. What a
 * stream finds in each must be what the last stream left there. */
static void stream_user(struct system *unused, void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg, was[MINE];
	const uint64_t bytes = MIB(7) + 512 * seed;
	tierd_tensor h[MINE];
	CUdeviceptr seen[AT_ONCE];

	client_open(seed % 3 == 2 ? TIERD_NO_THREAD : 0);
	for (unsigned i = 0; i < MINE; i++) {
		h[i] = made(NULL, bytes, 0);
		was[i] = 1 + i;
		fill(h[i], TIERD_HOST, (int)was[i]);
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		seen[i] = gpu_bytes(bytes);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct tierd_view v[AT_ONCE];
		unsigned first = (round * 5 + seed) % MINE;

		for (unsigned i = 0; i < AT_ONCE; i++) {
			unsigned k = (first + i) % MINE;
			CUdeviceptr at;

			must(tierd_acquire_on(t, &h[k], 1, 0, TIERD_READ | TIERD_WRITE, stream,
					      &v[i]),
			     "acquire_on");
			at = (CUdeviceptr)(uintptr_t)on_gpu(&v[i]);
			cu_must(cuda->memcpy_dtod_async(seen[i], at, bytes, stream), "copy");
			cu_must(cuda->memset_d8_async(at, (unsigned char)(was[k] + 1), bytes,
						      stream),
				"fill");
			must(tierd_release_on(t, &v[i], 1, stream), "release_on");
		}
		cu_must(cuda->stream_synchronize(stream), "synchronize");
		for (unsigned i = 0; i < AT_ONCE; i++) {
			unsigned k = (first + i) % MINE;

			if (!system_bytes_are((void *)(uintptr_t)seen[i], (unsigned char)was[k],
					      bytes))
				died("round %u: tensor %u is not all %u", round, k, was[k]);
			was[k] = (was[k] + 1) % 256;
		}
		must(tierd_step(t), "step");
	}
	for (unsigned i = 0; i < MINE; i++)
		expect(h[i], TIERD_HOST, (int)was[i]);
	tierd_close(t);
}

START_TEST(streams_of_several_processes_find_their_bytes)
{
	pid_t pid[3];

	begin();
	for (uintptr_t i = 0; i < ARRAY_SIZE(pid); i++)
		pid[i] = system_child(stream_user, s, (void *)i);
	for (unsigned i = 0; i < ARRAY_SIZE(pid); i++)
		system_child_end(s, pid[i], CHILD_MS);
	system_stop(s);
}
END_TEST

/* ---- places ---- */

static void at_the_other_end(struct system *unused, void *arg)
{
	struct tierd_info info;
	tierd_tensor h;

	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	client_open(0);
	h = made("x", MIB(1), 0);
	fill(h, 0, 0x31);
	must(tierd_stat(t, h, &info), "stat");
	if (info.place != 0)
		died("place %d", info.place);
	say(ready[1]);
	hear(go[0]);
	tierd_close(t);
}

static void sees_it_as_one(struct system *unused, void *arg)
{
	struct tierd_info info;
	struct tierd_view v;
	tierd_tensor h;

	unsetenv("CUDA_VISIBLE_DEVICES");
	client_open(0);
	must(tierd_lookup(t, "x", &h), "lookup");
	must(tierd_stat(t, h, &info), "stat");
	if (info.place != TIERD_ELSEWHERE)
		died("place %d before a GPU was used", info.place);
	must(tierd_acquire(t, h, 1, TIERD_READ, 0, &v), "a hit at 1");
	if (!system_bytes_are(on_gpu(&v), 0x31, v.bytes))
		died("not the bytes that were written there");
	expect_rc(tierd_acquire(t, h, 0, TIERD_READ, WAIT_NS, &v), -EDEADLK,
		  "at 0, while held at 1");
	must(tierd_stat(t, h, &info), "stat");
	if (info.place != 1)
		died("place %d", info.place);
	tierd_release(t, &v);
	tierd_close(t);
}

static void sees_one_only(struct system *unused, void *arg)
{
	char bytes[100];
	struct tierd_view v;
	tierd_tensor h;

	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	client_open(0);
	must(tierd_lookup(t, "x", &h), "lookup");
	expect_rc(tierd_acquire(t, h, 1, TIERD_READ, 0, &v), -ENODEV, "a GPU it does not see");
	/* Its bytes can be had all the same, by way of dram. */
	must(tierd_copy_out(t, h, 5, bytes, sizeof(bytes)), "copy_out");
	if (!system_bytes_are(bytes, 0x31, sizeof(bytes)))
		died("copy_out of a GPU that is not seen");
	tierd_close(t);
}

START_TEST(an_ordinal_is_the_callers_own)
{
	pid_t pid;
	char byte;

	begin_with(CONFIG, "2");
	pid = system_child(at_the_other_end, s, NULL);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	client(sees_it_as_one, NULL);
	client(sees_one_only, NULL);
	ck_assert_int_eq(write(go[1], "", 1), 1);
	system_child_end(s, pid, CHILD_MS);
	system_stop(s);
}
END_TEST

/* ---- ends ---- */

static void waits_while_the_daemon_dies(struct system *unused, void *arg)
{
	CUdeviceptr seen;
	struct tierd_view v[4], w;
	tierd_tensor h[4];

	unsetenv("FAKE_CUDA_AUTO");
	client_open(0);
	seen = gpu_bytes(4096);
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		h[i] = made(NULL, MIB(24), 0);
		fill(h[i], TIERD_HOST, 1);
	}
	must(tierd_acquire_on(t, h, ARRAY_SIZE(h), 0, TIERD_READ, stream, v), "acquire_on");
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		cu_must(cuda->memcpy_dtod_async(seen, (CUdeviceptr)(uintptr_t)on_gpu(&v[i]), 4096,
						stream),
			"copy");
	if (cuda->stream_query(stream) != CUDA_ERROR_NOT_READY)
		died("the stream does not wait");
	say(ready[1]);
	hear(go[0]); /* the daemon is dead */
	cu_must(cuda->stream_synchronize(stream), "a stream that must be let go");
	expect_rc(tierd_acquire_on(t, h, 1, 0, TIERD_READ, stream, &w), -EPIPE, "after its death");
	expect_rc(tierd_release_on(t, v, ARRAY_SIZE(h), stream), -EPIPE, "after its death");
	tierd_close(t);
}

START_TEST(streams_are_let_go_when_the_daemon_is_killed)
{
	pid_t pid;
	char byte;

	/* The daemon's GPU copies nothing by itself, so that no fence passes. */
	setenv("FAKE_CUDA_AUTO", "0", 1);
	begin();
	pid = system_child(waits_while_the_daemon_dies, s, NULL);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	system_kill(s);
	ck_assert_int_eq(write(go[1], "", 1), 1);
	system_child_end(s, pid, CHILD_MS);
	system_launch(s);
	system_stop(s);
}
END_TEST

/* A client that the daemon takes for gone, whose "kernel" goes on. */
static void writes_after_its_hang_up(struct system *unused, void *arg)
{
	struct tierd_view v;
	tierd_tensor h;

	client_open(0);
	h = made(NULL, MIB(40), 0);
	must(tierd_acquire(t, h, 0, TIERD_WRITE, WAIT_NS, &v), "acquire");
	close(t->socket_fd);
	say(ready[1]);
	for (unsigned char byte = 0;; byte++)
		bytes_fill(on_gpu(&v), byte, v.bytes);
}

static void wants_all_of_it(struct system *unused, void *arg)
{
	pid_t other = *(pid_t *)arg;
	struct tierd_view v[3];
	tierd_tensor h[3];

	client_open(0);
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		h[i] = made(NULL, MIB(40), 0);
		fill(h[i], TIERD_HOST, 0x40 + (int)i);
	}
	expect(h[0], 0, 0x40);
	/* The other one's pin stands though it hung up: 120 of 128 MiB cannot be had. */
	if (tierd_acquire_batch(t, h, 3, 0, TIERD_READ, 300 * (int64_t)NS_PER_MS, v) == 0)
		died("the memory of a process that lives was given away");
	expect(h[0], 0, 0x40);
	expect(h[1], 0, 0x41);
	kill(other, SIGKILL);
	must(tierd_acquire_batch(t, h, 3, 0, TIERD_READ, WAIT_NS, v), "after its death");
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		if (!system_bytes_are(on_gpu(&v[i]), (unsigned char)(0x40 + i), v[i].bytes))
			died("tensor %u has foreign bytes", i);
		tierd_release(t, &v[i]);
	}
	tierd_close(t);
}

START_TEST(memory_that_a_kernel_writes_is_used_again_only_after_its_process)
{
	pid_t writer;
	char byte;
	int status;

	begin();
	writer = system_child(writes_after_its_hang_up, s, NULL);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	client(wants_all_of_it, &writer);
	ck_assert_int_eq(waitpid(writer, &status, 0), writer);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	system_stop(s);
}
END_TEST

/* ---- slabs ---- */

static void gives_back(struct system *unused, void *arg)
{
	uint64_t end_ns = clock_now_ns() + (uint64_t)WAIT_NS;
	tierd_tensor h[2];

	client_open(0);
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		h[i] = made(NULL, MIB(48), 0);
		fill(h[i], 0, 0x51 + (int)i);
	}
	if (atomic_load(&t->slabs_mapped) != 2)
		died("%u slabs are mapped", atomic_load(&t->slabs_mapped));
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		expect(h[i], TIERD_HOST, 0x51 + (int)i);
	while (atomic_load(&t->slabs_mapped) != 0) {
		must(tierd_trim(t), "trim");
		if (clock_now_ns() > end_ns)
			died("%u slabs are mapped still", atomic_load(&t->slabs_mapped));
		usleep(1000);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		expect(h[i], 0, 0x51 + (int)i);
	tierd_close(t);
}

START_TEST(slabs_are_given_back_and_mapped_again)
{
	begin();
	client(gives_back, NULL);
	system_stop(s);
}
END_TEST

static void maps_none(struct system *unused, void *arg)
{
	struct tierd_view v = { 0 };
	tierd_tensor h;

	setenv("FAKE_CUDA_FAIL", "cuMemMap:1:2,cuMemSetAccess:1:2", 1);
	client_open(0);
	h = made(NULL, MIB(1), 0);
	fill(h, TIERD_HOST, 7);
	/* The first maps nothing, the second maps and may not use it, the third is right. */
	expect_rc(tierd_acquire(t, h, 0, TIERD_READ, WAIT_NS, &v), -ENOMEM, "no room for a map");
	expect_rc(tierd_acquire_on(t, &h, 1, 0, TIERD_READ, stream, &v), -ENOMEM, "no access");
	if (v.data != NULL)
		died("a view was filled");
	expect(h, 0, 7);
	expect(h, TIERD_HOST, 7);
	tierd_close(t);
}

START_TEST(a_process_without_room_for_a_slab_holds_nothing)
{
	begin();
	client(maps_none, NULL);
	system_stop(s);
}
END_TEST

/* ---- copies on a stream ---- */

static void copies(struct system *unused, void *arg)
{
	const uint64_t bytes = MIB(3) + 17;
	CUdeviceptr gpu;
	tierd_tensor h, plain;

	client_open(0);
	gpu = gpu_bytes(bytes);
	h = made(NULL, bytes, TIERD_DEVICE_COPY);
	plain = made(NULL, bytes, 0);
	fill(plain, TIERD_HOST, 3);
	for (int round = 1; round < 20; round++) {
		cu_must(cuda->memset_d8_async(gpu, (unsigned char)round, bytes, stream), "fill");
		must(tierd_write_from(t, h, (void *)(uintptr_t)gpu, stream), "write_from");
		cu_must(cuda->memset_d8_async(gpu, 0, bytes, stream), "fill");
		must(tierd_read_into(t, h, (void *)(uintptr_t)gpu, stream), "read_into");
		cu_must(cuda->stream_synchronize(stream), "synchronize");
		if (!system_bytes_are((void *)(uintptr_t)gpu, (unsigned char)round, bytes))
			died("round %d: other bytes came back", round);
		if (round % 5 == 0)
			expect(h, 0, round); /* and away from dram */
	}
	expect(h, TIERD_HOST, 19);
	expect_rc(tierd_write_from(t, plain, (void *)(uintptr_t)gpu, stream), -EINVAL,
		  "a tensor without the flag");
	expect(plain, TIERD_HOST, 3);
	tierd_close(t);
}

START_TEST(tensors_go_to_a_frameworks_memory_and_back)
{
	begin();
	client(copies, NULL);
	system_stop(s);
}
END_TEST

UNIT_MAIN("gpu", streams_of_several_processes_find_their_bytes, an_ordinal_is_the_callers_own,
	  streams_are_let_go_when_the_daemon_is_killed,
	  memory_that_a_kernel_writes_is_used_again_only_after_its_process,
	  slabs_are_given_back_and_mapped_again, a_process_without_room_for_a_slab_holds_nothing,
	  tensors_go_to_a_frameworks_memory_and_back)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call of the driver that fails once, in the daemon and in a client: either one refuses to
 * start, with a sentence, or all goes on; no byte is wrong, nothing hangs, and both end in order.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/fake/cuda/fake_cuda.h"
#include "tests/system/gpu_client.h"
#include "tests/system/system.h"

#define CONFIG                                                \
	"tensors: 4Ki\n"                                      \
	"tiers:\n"                                            \
	"  hbm: {backend: cuda, size: 128MiB, slab: 64MiB}\n" \
	"  dram: {size: 192MiB, slab: 32MiB, zone: 32MiB}\n"
#define TENSORS  5u
#define BYTES    (MIB(20) + 3)
#define SMALL    MIB(3)
#define CHILD_MS 60000

static struct system tierd_system;
static struct system *const s = &tierd_system;
static char failing[64];

#define X(member, symbol, version) #symbol,
static const char *const calls[] = { CUDA_ENTRY_POINTS(X) };
#undef X

/* Once is nothing that is told of a device again: out of memory, and what a driver calls anything.
 */
static const unsigned results[] = { 2, 1, 999 };

/* ---- in a client's process ---- */

/* What the daemon's device or the client's driver refuses comes with a sentence. */
static bool went(struct gpu_client *c, int rc, const char *what)
{
	if (rc >= 0)
		return true;
	if (rc != -ENODEV && rc != -EIO && rc != -ENOMEM && rc != -EINVAL && rc != -EAGAIN &&
	    rc != -ENOSPC)
		gpu_client_died("%s: %s: %d: %s", failing, what, rc, tierd_error(c->t));
	if (tierd_error(c->t)[0] == '\0')
		gpu_client_died("%s: %s: %d without a sentence", failing, what, rc);
	return false;
}

static bool cpu_check(struct gpu_client *c, tierd_tensor h, uint64_t seed, const char *what)
{
	struct tierd_view v;

	if (!went(c, tierd_acquire(c->t, h, TIERD_HOST, TIERD_READ, GPU_CLIENT_WAIT_NS, &v), what))
		return false;
	if (!gpu_client_check_cpu(v.data, v.bytes, 0, seed))
		gpu_client_died("%s: %s: other bytes", failing, what);
	tierd_release(c->t, &v);
	return true;
}

/* A view of acquire_on whose fill fails later has 0xff, so its bytes are looked at only where the
 * release says nothing. Returns the version that the tensor then has; 0: nobody knows. */
static uint64_t by_stream(struct gpu_client *c, tierd_tensor h, uint64_t seed)
{
	struct tierd_view v;
	bool same;
	int rc;

	if (!went(c, tierd_acquire_on(c->t, &h, 1, 0, TIERD_READ | TIERD_WRITE, c->stream[0], &v),
		  "acquire_on"))
		return seed;
	if (c->cuda->stream_synchronize(c->stream[0]) != CUDA_SUCCESS) {
		tierd_release(c->t, &v);
		return seed;
	}
	same = gpu_client_check_cpu(v.data, v.bytes, 0, seed);
	gpu_client_write_cpu(v.data, v.bytes, seed + 1);
	rc = tierd_release_on(c->t, &v, 1, c->stream[0]);
	if (!went(c, rc, "release_on")) {
		tierd_release(c->t, &v); /* where it released nothing */
		return 0;
	}
	if (!same && tierd_step(c->t) >= 0)
		gpu_client_died("%s: acquire_on: other bytes", failing);
	return same ? seed + 1 : 0;
}

static void copies(struct gpu_client *c)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { SMALL }, .flags = TIERD_DEVICE_COPY };
	CUdeviceptr gpu = 0;
	tierd_tensor h;

	if (c->cuda->mem_alloc(&gpu, SMALL) != CUDA_SUCCESS)
		return;
	gpu_client_must(c, tierd_create(c->t, &spec, 1, &h), "create");
	memset((void *)(uintptr_t)gpu, 0, SMALL);
	gpu_client_write_cpu((void *)(uintptr_t)gpu, SMALL, 77);
	if (went(c, tierd_write_from(c->t, h, (void *)(uintptr_t)gpu, c->stream[1]),
		 "write_from") &&
	    c->cuda->stream_synchronize(c->stream[1]) == CUDA_SUCCESS) {
		cpu_check(c, h, 77, "after write_from");
		memset((void *)(uintptr_t)gpu, 0, SMALL);
		if (went(c, tierd_read_into(c->t, h, (void *)(uintptr_t)gpu, c->stream[1]),
			 "read_into") &&
		    c->cuda->stream_synchronize(c->stream[1]) == CUDA_SUCCESS &&
		    !gpu_client_check_cpu((void *)(uintptr_t)gpu, SMALL, 0, 77))
			gpu_client_died("%s: read_into: other bytes", failing);
	}
	c->cuda->stream_synchronize(c->stream[1]);
	c->cuda->mem_free(gpu);
}

static void uses_all(struct gpu_client *c)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { BYTES } };
	tierd_tensor h[TENSORS];
	uint64_t seed[TENSORS];
	struct tierd_view v;

	for (unsigned i = 0; i < TENSORS; i++) {
		seed[i] = 10 * i + 1;
		gpu_client_must(c, tierd_create(c->t, &spec, 1, &h[i]), "create");
		if (!went(c,
			  tierd_acquire(c->t, h[i], TIERD_HOST, TIERD_WRITE, GPU_CLIENT_WAIT_NS,
					&v),
			  "acquire to write"))
			gpu_client_died("%s: dram: %s", failing, tierd_error(c->t));
		gpu_client_write_cpu(v.data, v.bytes, seed[i]);
		tierd_release(c->t, &v);
	}
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < TENSORS; i++) {
			if (seed[i] != 0)
				seed[i] = by_stream(c, h[i], seed[i]);
			if (seed[i] != 0 && i % 2 == round)
				cpu_check(c, h[i], seed[i], "back in dram");
		}
	for (unsigned i = 0; i < TENSORS; i++) {
		went(c, tierd_evict(c->t, &h[i], 1), "evict");
		went(c, tierd_trim(c->t), "trim");
	}
	copies(c);
	/* Failed fills that nobody waited for are told once. */
	went(c, tierd_step(c->t), "step");
}

static void uses_sound_driver(struct system *unused, void *arg)
{
	struct gpu_client c;

	unsetenv("FAKE_CUDA_FAIL");
	gpu_client_start(&c, 0, 1);
	gpu_client_open(&c, s->socket, 0);
	uses_all(&c);
	gpu_client_stop(&c);
}

/* Only what the library calls fails: the client's own calls are made before. */
static void uses_failing_driver(struct system *unused, void *arg)
{
	struct gpu_client c;
	char call[64];
	unsigned nth, result;

	gpu_client_start(&c, 0, 1);
	gpu_client_open(&c, s->socket, 0);
	if (sscanf(failing, "%63[^:]:%u:%u", call, &nth, &result) != 3)
		gpu_client_died("%s", failing);
	fake_cuda_fail(call, nth, (CUresult)result);
	uses_all(&c);
	tierd_close(c.t);
}

/* ---- in the test's ---- */

static void fail_in_daemon(void)
{
	setenv("FAKE_CUDA_FAIL", failing, 1);
}

static void begin(void)
{
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "1", 1);
	unsetenv("FAKE_CUDA_FAIL");
	system_prepare(s, CONFIG);
}

/* The others take minutes. */
static const char *const often[] = {
	"cuMemCreate",         "cuMemMap",
	"cuMemSetAccess",      "cuMemExportToShareableHandle",
	"cuMemHostRegister",   "cuMemImportFromShareableHandle",
	"cuMemcpyHtoDAsync",   "cuMemcpyDtoHAsync",
	"cuStreamWaitValue64", "cuStreamWriteValue64",
	"cuMemAddressReserve", "cuMemHostGetDevicePointer",
};

static void every(void (*body)(const char *call, unsigned nth, unsigned result))
{
	bool all = getenv("TIERD_TEST_LONG") != NULL;
	const char *only = getenv("TIERD_TEST_CALL");
	const char *const *names = all ? calls : often;
	size_t n = all ? ARRAY_SIZE(calls) : ARRAY_SIZE(often);

	for (size_t i = 0; i < n; i++)
		for (unsigned nth = 1; nth <= (all ? 10u : 1u); nth++)
			for (unsigned k = 0; k < (all ? ARRAY_SIZE(results) : 1u); k++)
				if (only == NULL || strcmp(only, names[i]) == 0)
					body(names[i], nth, results[k]);
}

static void daemon_with(const char *call, unsigned nth, unsigned result)
{
	int status;

	snprintf(failing, sizeof(failing), "%s:%u:%u", call, nth, result);
	begin();
	s->before_exec = fail_in_daemon;
	if (!system_tries(s, &status)) {
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 1)
			system_fail(s, "%s: wait status %d", failing, status);
		if (!system_log_has(s, "error: "))
			system_fail(s, "%s: no sentence", failing);
	} else {
		pid_t pid = system_child(uses_sound_driver, s, NULL);

		system_child_end(s, pid, CHILD_MS);
	}
	system_stop(s);
}

START_TEST(each_call_of_the_daemon_fails_once)
{
	every(daemon_with);
}
END_TEST

static void client_with(const char *call, unsigned nth, unsigned result)
{
	snprintf(failing, sizeof(failing), "%s:%u:%u", call, nth, result);
	system_child_end(s, system_child(uses_failing_driver, s, NULL), CHILD_MS);
}

START_TEST(each_call_of_a_client_fails_once)
{
	begin();
	system_launch(s);
	every(client_with);
	system_stop(s);
}
END_TEST

UNIT_MAIN("gpu_failing", each_call_of_the_daemon_fails_once, each_call_of_a_client_fails_once)

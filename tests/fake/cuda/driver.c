/* SPDX-License-Identifier: Apache-2.0
 *
 * The door: cuGetProcAddress, what every call begins and ends with, failures on demand.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "tests/fake/cuda/inside.h"

#define FAILURES_MAX 64

struct failure {
	int call;
	uint64_t at; /* count of calls; 0: free */
	CUresult result;
};

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct failure failures[FAILURES_MAX];

static const struct {
	const char *symbol;
	int version;
	void *function;
} entries[CALLS] = {
#define X(member, symbol, version) { #symbol, version, (void *)fake_##member },
	CUDA_ENTRY_POINTS(X)
#undef X
};

static const struct {
	CUresult result;
	const char *name, *sentence;
} results[] = {
	{ CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
#define R(name, sentence)             \
	{                             \
		name, #name, sentence \
	}
	R(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	R(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	R(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	R(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
	R(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	R(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	R(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
	R(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed"),
	R(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	R(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	R(CUDA_ERROR_NOT_READY, "device not ready"),
	R(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
	R(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
	R(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory is registered already"),
	R(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory is not registered"),
	R(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
	R(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	R(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted when the stream is capturing"),
	R(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream depends on a capturing one"),
	R(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef R
};

/* Exported, and not in a header of ours: cuda.h declares it. */
CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **ret, int version, cuuint64_t flags,
				     CUdriverProcAddressQueryResult *status)
{
	int call = fake_call_of(symbol);
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;

	(void)flags;
	*ret = NULL;
	if (call < 0)
		found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	else if (version < entries[call].version)
		found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	else
		*ret = entries[call].function;
	if (status != NULL)
		*status = found;
	return found == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

int fake_call_of(const char *symbol)
{
	for (int i = 0; i < CALLS; i++)
		if (strcmp(entries[i].symbol, symbol) == 0)
			return i;
	return -1;
}

/* A wrong variable of a test is a wrong test. */
static uint64_t number(const char *text, char **end, const char *what)
{
	uint64_t value;

	errno = 0;
	value = strtoull(text, end, 10);
	if (errno != 0 || *end == text) {
		fprintf(stderr, "fake cuda: %s: not a number: %s\n", what, text);
		abort();
	}
	return value;
}

uint64_t fake_env(const char *name, uint64_t without)
{
	const char *text = getenv(name);
	uint64_t value;
	char *end;

	if (text == NULL || text[0] == '\0')
		return without;
	value = number(text, &end, name);
	ASSERT(*end == '\0');
	return value;
}

static void add_failure(const char *symbol, uint64_t nth, CUresult result)
{
	int call = fake_call_of(symbol);

	ASSERT(call >= 0 && nth > 0);
	for (size_t i = 0; i < FAILURES_MAX; i++)
		if (failures[i].at == 0) {
			failures[i] = (struct failure){ call, fake.calls[call] + nth, result };
			return;
		}
	ASSERT(!"too many failures");
}

static void read_failures(void)
{
	const char *text = getenv("FAKE_CUDA_FAIL");
	char call[64], *end;
	size_t length;

	while (text != NULL && text[0] != '\0') {
		uint64_t nth, result;

		length = strcspn(text, ":");
		ASSERT(length < sizeof(call) && text[length] == ':');
		memcpy(call, text, length);
		call[length] = '\0';
		nth = number(text + length + 1, &end, "FAKE_CUDA_FAIL");
		ASSERT(*end == ':');
		result = number(end + 1, &end, "FAKE_CUDA_FAIL");
		add_failure(call, nth, (CUresult)result);
		text = *end == ',' ? end + 1 : end;
	}
}

static void read_lose(void)
{
	const char *text = getenv("FAKE_CUDA_LOSE");
	uint64_t device;
	char *end;

	if (text == NULL || text[0] == '\0')
		return;
	device = number(text, &end, "FAKE_CUDA_LOSE");
	ASSERT(*end == ':' && device < (uint64_t)FAKE_DEVICES_MAX);
	fake.ctx[device].lose_at = number(end + 1, &end, "FAKE_CUDA_LOSE");
}

/* A driver does not survive a fork, and neither does the thread that steps. */
static void before_fork(void)
{
	pthread_mutex_lock(&fake.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&fake.lock);
}

static void in_the_child(void)
{
	fake.forked = fake.initialised;
	pthread_mutex_unlock(&fake.lock);
}

static void setup(void)
{
	ASSERT(pthread_atfork(before_fork, after_fork, in_the_child) == 0);
	list_init(&fake.streams);
	list_init(&fake.events);
	fake.manual = fake_env("FAKE_CUDA_AUTO", 1) == 0;
	fake.version = (int)fake_env("FAKE_CUDA_VERSION", 13000);
	fake.device_bytes = fake_env("FAKE_CUDA_BYTES", GIB(4));
	fake.seed = fake_env("FAKE_CUDA_SEED", 1);
	fake_devices_setup();
	read_failures();
	read_lose();
}

static CUresult planned(enum fake_call call)
{
	for (size_t i = 0; i < FAILURES_MAX; i++)
		if (failures[i].at != 0 && failures[i].call == (int)call &&
		    failures[i].at == fake.calls[call]) {
			failures[i].at = 0;
			return failures[i].result;
		}
	return CUDA_SUCCESS;
}

static CUresult permitted(enum fake_need need)
{
	const struct fake_ctx *ctx;

	if (fake.forked || (need >= NEED_INIT && !fake.initialised))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (need < NEED_CONTEXT)
		return CUDA_SUCCESS;
	ctx = fake_current();
	if (ctx == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	return ctx->retained == 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

/* Which calls are unsafe while a stream is captured the driver does not list: more than less. */
static bool unsafe_in_capture(enum fake_call call)
{
	switch (call) {
	case CALL_primary_ctx_retain:
	case CALL_primary_ctx_release:
	case CALL_ctx_synchronize:
	case CALL_mem_alloc:
	case CALL_mem_free:
	case CALL_mem_host_alloc:
	case CALL_mem_free_host:
	case CALL_mem_host_register:
	case CALL_mem_host_unregister:
	case CALL_mem_address_reserve:
	case CALL_mem_address_free:
	case CALL_mem_create:
	case CALL_mem_release:
	case CALL_mem_map:
	case CALL_mem_unmap:
	case CALL_mem_set_access:
	case CALL_mem_export:
	case CALL_mem_import:
	case CALL_stream_create:
	case CALL_stream_destroy:
	case CALL_stream_synchronize:
	case CALL_stream_query:
	case CALL_event_query:
	case CALL_event_synchronize:
	case CALL_module_load_data:
	case CALL_module_unload:
		return true;
	default:
		return false;
	}
}

static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult fake_exchange_capture_mode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode was = capture_mode;

	ENTER(exchange_capture_mode, NEED_INIT);
	if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return leave(CUDA_ERROR_INVALID_VALUE);
	capture_mode = *mode;
	*mode = was;
	return leave(CUDA_SUCCESS);
}

CUresult fake_enter(enum fake_call call, enum fake_need need)
{
	CUresult result;

	pthread_once(&once, setup);
	pthread_mutex_lock(&fake.lock);
	fake.calls[call]++;
	result = planned(call);
	if (result == CUDA_SUCCESS)
		result = permitted(need);
	if (result == CUDA_SUCCESS && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    unsafe_in_capture(call) && fake_spoil_captures())
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (result != CUDA_SUCCESS)
		pthread_mutex_unlock(&fake.lock);
	return result;
}

CUresult fake_leave(CUresult result)
{
	pthread_mutex_unlock(&fake.lock);
	return result;
}

CUresult fake_init(unsigned flags)
{
	ENTER(init, NEED_NOTHING);
	if (flags != 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (fake.n_devices == 0)
		return leave(CUDA_ERROR_NO_DEVICE);
	if (!fake_keeper_start())
		return leave(CUDA_ERROR_OPERATING_SYSTEM);
	fake.initialised = true;
	return leave(CUDA_SUCCESS);
}

CUresult fake_driver_get_version(int *ret)
{
	ENTER(driver_get_version, NEED_NOTHING);
	*ret = fake.version;
	return leave(CUDA_SUCCESS);
}

/* The two of them are no calls to count or to fail: the funnel uses them to speak. */
CUresult fake_get_error_name(CUresult result, const char **ret)
{
	*ret = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(results); i++)
		if (results[i].result == result) {
			*ret = results[i].name;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_get_error_string(CUresult result, const char **ret)
{
	*ret = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(results); i++)
		if (results[i].result == result) {
			*ret = results[i].sentence;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

static void control(void)
{
	pthread_once(&once, setup);
	pthread_mutex_lock(&fake.lock);
}

static void release(void)
{
	pthread_mutex_unlock(&fake.lock);
}

const char *fake_cuda_path(void)
{
	static char path[PATH_MAX];
	Dl_info info;

	ASSERT(dladdr((void *)cuGetProcAddress_v2, &info) != 0);
	ASSERT(realpath(info.dli_fname, path) != NULL);
	return path;
}

void fake_cuda_begin(void)
{
	ASSERT(setenv(CUDA_LIBRARY_VARIABLE, fake_cuda_path(), 1) == 0);
	control();
	ASSERT(!fake.worker);
	fake.manual = true;
	release();
}

bool fake_cuda_step(uint64_t seed)
{
	bool did;

	control();
	did = fake_step(seed);
	release();
	return did;
}

uint64_t fake_cuda_run(uint64_t seed)
{
	uint64_t did = 0;

	while (fake_cuda_step(seed + did * 0x9e3779b97f4a7c15ull))
		did++;
	return did;
}

void fake_cuda_fail(const char *call, uint64_t nth, CUresult result)
{
	control();
	add_failure(call, nth, result);
	release();
}

void fake_cuda_queue(uint64_t n)
{
	control();
	fake.queue_max = n;
	release();
}

void fake_cuda_lose(int device, CUresult result)
{
	control();
	(void)fake_lose_ctx(fake_ctx_of_device(device), result);
	release();
}

bool fake_cuda_capture(CUstream stream, bool capturing)
{
	struct fake_stream *found;
	bool spoilt;

	control();
	found = fake_stream_of(stream);
	ASSERT(found != NULL);
	spoilt = found->spoilt;
	found->capturing = capturing;
	found->spoilt = false;
	release();
	return spoilt;
}

struct fake_cuda_counts fake_cuda_counts(void)
{
	struct fake_cuda_counts counts;

	control();
	counts = fake.counts;
	release();
	return counts;
}

uint64_t fake_cuda_calls(const char *symbol)
{
	int call = fake_call_of(symbol);
	uint64_t n;

	ASSERT(call >= 0);
	control();
	n = fake.calls[call];
	release();
	return n;
}

uint64_t fake_cuda_used_bytes(int device)
{
	uint64_t bytes;

	control();
	bytes = fake_ctx_of_device(device)->used_bytes;
	release();
	return bytes;
}

/* No lock: a thread that dies in a call must not keep the process from its end. */
__attribute__((destructor)) static void report(void)
{
	const char *folder = getenv("FAKE_CUDA_REPORT");
	const struct fake_cuda_counts *counts = &fake.counts;
	char path[PATH_MAX];
	FILE *file;

	if (folder == NULL || !fake.initialised)
		return;
	snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid());
	file = fopen(path, "w");
	ASSERT(file != NULL);
#define COUNT(name) fprintf(file, #name " %" PRIu64 "\n", counts->name)
	COUNT(contexts);
	COUNT(handles);
	COUNT(reservations);
	COUNT(mappings);
	COUNT(allocations);
	COUNT(registrations);
	COUNT(modules);
	COUNT(streams);
	COUNT(events);
	COUNT(queued);
	COUNT(copies);
	COUNT(unregistered);
	COUNT(exports);
	COUNT(imports);
#undef COUNT
	ASSERT(fclose(file) == 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tests/fake/device.h"
#include "tests/fake/device_stream.h"
#include "tests/unit/cuda_rig.h"

#define ARGS_MAX 192

/* One piece of work on the stream; freed by who does it. */
struct job {
	void (*run)(const struct job *job);
	enum kernel kernel;
	size_t items;
	unsigned char args[ARGS_MAX];
	struct gemm gemm;
	void *to;
	size_t bytes;
	unsigned char data[];
};

static struct stream_device {
	struct device device;
	struct device *cpu; /* that computes */
	CUstream stream;
	CUfunction function;
	CUmodule module;
} own;

static const size_t args_bytes[] = {
#define X(name, lanes) sizeof(struct name##_args),
	KERNELS(X)
#undef X
};

static void check(CUresult result, const char *what)
{
	struct err err;

	if (cuda_check(cuda, result, &err, "%s", what) != 0) {
		fprintf(stderr, "fake device: %s\n", err.text);
		abort();
	}
}

/* The kernel that the driver runs: a pointer to a job. */
static void run_job(void *const *params)
{
	struct job *job;

	memcpy(&job, params[0], sizeof(job));
	job->run(job);
	free(job);
}

static struct job *job_new(void (*run)(const struct job *job), size_t bytes)
{
	struct job *job = calloc(1, sizeof(*job) + bytes);

	ASSERT(job != NULL);
	job->run = run;
	job->bytes = bytes;
	return job;
}

static void submit(struct job *job)
{
	void *params[] = { &job };

	check(cuda->launch_kernel(own.function, 1, 1, 1, 1, 1, 1, 0, own.stream, params, NULL),
	      "launch");
}

static void *stream_alloc(void *state, size_t bytes)
{
	CUdeviceptr p;

	check(cuda->mem_alloc(&p, bytes), "alloc");
	return (void *)(uintptr_t)p;
}

static void stream_wait(void *state)
{
	check(cuda->stream_synchronize(own.stream), "wait");
}

static void stream_free(void *state, void *memory)
{
	stream_wait(state);
	check(cuda->mem_free((CUdeviceptr)(uintptr_t)memory), "free");
}

static void run_upload(const struct job *job)
{
	memcpy(job->to, job->data, job->bytes);
}

static void stream_upload(void *state, void *to, const void *from, size_t bytes)
{
	struct job *job = job_new(run_upload, bytes);

	job->to = to;
	memcpy(job->data, from, bytes);
	submit(job);
}

static void stream_download(void *state, void *to, const void *from, size_t bytes)
{
	stream_wait(state);
	memcpy(to, from, bytes);
}

static void stream_clear(void *state, void *to, size_t bytes)
{
	check(cuda->memset_d8_async((CUdeviceptr)(uintptr_t)to, 0, bytes, own.stream), "clear");
}

static void run_launch(const struct job *job)
{
	own.cpu->calls->launch(own.cpu->state, job->kernel, job->items, job->args);
}

static void stream_launch(void *state, enum kernel kernel, size_t items, const void *args)
{
	struct job *job = job_new(run_launch, 0);

	ASSERT(args_bytes[kernel] <= sizeof(job->args));
	job->kernel = kernel;
	job->items = items;
	memcpy(job->args, args, args_bytes[kernel]);
	submit(job);
}

static void run_multiply(const struct job *job)
{
	own.cpu->calls->multiply(own.cpu->state, &job->gemm);
}

static void stream_multiply(void *state, const struct gemm *gemm)
{
	struct job *job = job_new(run_multiply, 0);

	job->gemm = *gemm;
	submit(job);
}

static void stream_close(void *state)
{
	stream_wait(state);
	check(cuda->stream_destroy(own.stream), "close");
	check(cuda->module_unload(own.module), "close");
	device_close(own.cpu);
}

static const struct device_calls stream_calls = {
	.alloc = stream_alloc,
	.free = stream_free,
	.upload = stream_upload,
	.download = stream_download,
	.clear = stream_clear,
	.launch = stream_launch,
	.multiply = stream_multiply,
	.wait = stream_wait,
	.close = stream_close,
};

struct device *fake_device_stream_open(void)
{
	static const struct fake_cuda_kernel kernel = { "job", run_job, { sizeof(void *), 0 } };

	fake_cuda_add_kernel(&kernel);
	own = (struct stream_device){ .cpu = fake_device_open(), .stream = stream_new() };
	check(cuda->module_load_data(&own.module, "none"), "module");
	check(cuda->module_get_function(&own.function, own.module, "job"), "job");
	own.device = (struct device){ &stream_calls, NULL, own.stream };
	return &own.device;
}

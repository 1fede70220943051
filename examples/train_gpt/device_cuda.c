/* SPDX-License-Identifier: Apache-2.0
 *
 * The device on CUDA: the driver and cuBLAS, both opened at run time, so that the same program runs
 * on the CPU where they are missing. The kernels come as an image inside the program.
 *
 * That a run in memory and a run on tierd have equal bits needs that cuBLAS chooses by shape and
 * alignment alone: one stream, one workspace of its own, no tensor cores for floats, no atomics
 * (its default). Both stores align to STORE_ALIGN.
 */
#include "examples/train_gpt/device.h"

#include <cublas_v2.h>
#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include "examples/train_gpt/fatal.h"

#define DRIVER_CALLS(X)              \
	X(cuGetErrorString)          \
	X(cuInit)                    \
	X(cuDeviceGet)               \
	X(cuDevicePrimaryCtxRetain)  \
	X(cuDevicePrimaryCtxRelease) \
	X(cuCtxSetCurrent)           \
	X(cuModuleLoadData)          \
	X(cuModuleGetFunction)       \
	X(cuModuleUnload)            \
	X(cuLaunchKernel)            \
	X(cuMemAlloc)                \
	X(cuMemFree)                 \
	X(cuMemcpyHtoDAsync)         \
	X(cuMemcpyDtoHAsync)         \
	X(cuMemsetD8Async)           \
	X(cuStreamCreate)            \
	X(cuStreamSynchronize)       \
	X(cuStreamDestroy)

#define CUBLAS_CALLS(X)          \
	X(cublasCreate)          \
	X(cublasDestroy)         \
	X(cublasSetStream)       \
	X(cublasSetWorkspace)    \
	X(cublasSetMathMode)     \
	X(cublasGetStatusString) \
	X(cublasSgemm)           \
	X(cublasSgemmStridedBatched)

/* Another driver than the loader's, as libtierd has it. */
#define DRIVER_VARIABLE "TIERD_LIBCUDA"
/* What cuBLAS asks for on the largest GPUs of today; it may not take memory of its own. */
#define WORKSPACE_BYTES (32u << 20)

/* cuda.h and cublas_v2.h name the present form of a call by macros: cuMemFree is cuMemFree_v2. */
#define NAME_OF(symbol) #symbol
#define NAME(symbol)    NAME_OF(symbol)

struct cuda_device {
	struct device device;
#define X(symbol) __typeof__(&symbol) symbol;
	DRIVER_CALLS(X)
	CUBLAS_CALLS(X)
#undef X
	CUdevice ordinal;
	CUcontext context;
	CUstream stream;
	CUmodule module;
	CUfunction kernels[KERNEL_COUNT];
	cublasHandle_t cublas;
	void *workspace;
};

static const char *const kernel_names[] = {
#define X(name, lanes) #name "_kernel",
	KERNELS(X)
#undef X
};

static const unsigned kernel_lanes[] = {
#define X(name, lanes) lanes,
	KERNELS(X)
#undef X
};

static void check(const struct cuda_device *d, CUresult result, const char *what)
{
	const char *text = NULL;

	if (result == CUDA_SUCCESS)
		return;
	d->cuGetErrorString(result, &text);
	fatal("%s: %s", what, text != NULL ? text : "an error that the driver does not know");
}

static void check_cublas(const struct cuda_device *d, cublasStatus_t status, const char *what)
{
	if (status != CUBLAS_STATUS_SUCCESS)
		fatal("%s: %s", what, d->cublasGetStatusString(status));
}

#define DRIVER(d, call, ...) check(d, (d)->call(__VA_ARGS__), NAME(call))
#define CUBLAS(d, call, ...) check_cublas(d, (d)->call(__VA_ARGS__), NAME(call))

static CUdeviceptr address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

static void *cuda_alloc(void *state, size_t bytes)
{
	struct cuda_device *d = state;
	CUdeviceptr p;

	DRIVER(d, cuMemAlloc, &p, bytes);
	return (void *)(uintptr_t)p;
}

static void cuda_wait(void *state)
{
	struct cuda_device *d = state;

	DRIVER(d, cuStreamSynchronize, d->stream);
}

static void cuda_free(void *state, void *memory)
{
	struct cuda_device *d = state;

	cuda_wait(d);
	DRIVER(d, cuMemFree, address(memory));
}

/* From pageable memory: staged before the call returns. */
static void cuda_upload(void *state, void *to, const void *from, size_t bytes)
{
	struct cuda_device *d = state;

	DRIVER(d, cuMemcpyHtoDAsync, address(to), from, bytes, d->stream);
}

static void cuda_download(void *state, void *to, const void *from, size_t bytes)
{
	struct cuda_device *d = state;

	DRIVER(d, cuMemcpyDtoHAsync, to, address(from), bytes, d->stream);
	cuda_wait(d);
}

static void cuda_clear(void *state, void *to, size_t bytes)
{
	struct cuda_device *d = state;

	DRIVER(d, cuMemsetD8Async, address(to), 0, bytes, d->stream);
}

static void cuda_launch(void *state, enum kernel kernel, size_t items, const void *args)
{
	struct cuda_device *d = state;
	size_t threads = items * kernel_lanes[kernel];
	size_t blocks = (threads + KERNEL_THREADS - 1) / KERNEL_THREADS;
	void *params[] = { (void *)args };

	REQUIRE(blocks > 0 && blocks <= INT_MAX);
	check(d,
	      d->cuLaunchKernel(d->kernels[kernel], (unsigned)blocks, 1, 1, KERNEL_THREADS, 1, 1, 0,
				d->stream, params, NULL),
	      kernel_names[kernel]);
}

static void cuda_multiply(void *state, const struct gemm *g)
{
	struct cuda_device *d = state;
	cublasOperation_t a = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t b = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	const float zero = 0;

	if (g->count == 1)
		CUBLAS(d, cublasSgemm, d->cublas, a, b, (int)g->m, (int)g->n, (int)g->k, &g->alpha,
		       g->a, (int)g->lda, g->b, (int)g->ldb, &zero, g->c, (int)g->ldc);
	else
		CUBLAS(d, cublasSgemmStridedBatched, d->cublas, a, b, (int)g->m, (int)g->n,
		       (int)g->k, &g->alpha, g->a, (int)g->lda, (long long)g->step_a, g->b,
		       (int)g->ldb, (long long)g->step_b, &zero, g->c, (int)g->ldc,
		       (long long)g->step_c, (int)g->count);
}

static void cuda_close(void *state)
{
	struct cuda_device *d = state;

	cuda_wait(d);
	CUBLAS(d, cublasDestroy, d->cublas);
	cuda_free(d, d->workspace);
	DRIVER(d, cuModuleUnload, d->module);
	DRIVER(d, cuStreamDestroy, d->stream);
	DRIVER(d, cuDevicePrimaryCtxRelease, d->ordinal);
	free(d);
}

static const struct device_calls cuda_calls = {
	.alloc = cuda_alloc,
	.free = cuda_free,
	.upload = cuda_upload,
	.download = cuda_download,
	.clear = cuda_clear,
	.launch = cuda_launch,
	.multiply = cuda_multiply,
	.wait = cuda_wait,
	.close = cuda_close,
};

static void *symbol_of(void *library, const char *name)
{
	void *at = dlsym(library, name);

	if (at == NULL)
		fatal("--gpu: %s", dlerror());
	return at;
}

/* Data and function pointers are one on every system that has CUDA. */
#define RESOLVE(symbol) *(void **)&d->symbol = symbol_of(library, NAME(symbol));

static void open_driver(struct cuda_device *d)
{
	const char *other = getenv(DRIVER_VARIABLE);
	void *library = dlopen(other != NULL ? other : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL)
		fatal("--gpu: no CUDA driver: %s", dlerror());
	DRIVER_CALLS(RESOLVE)
}

static void open_cublas(struct cuda_device *d)
{
	static const char *const names[] = {
		"libcublas.so." NAME(CUBLAS_VER_MAJOR),
		CUDA_FOLDER "/lib64/libcublas.so." NAME(CUBLAS_VER_MAJOR),
	};
	void *library = NULL;

	for (size_t i = 0; library == NULL && i < sizeof(names) / sizeof(names[0]); i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		fatal("--gpu: no cuBLAS: %s", dlerror());
	CUBLAS_CALLS(RESOLVE)
}

static void open_context(struct cuda_device *d, int ordinal)
{
	DRIVER(d, cuInit, 0);
	DRIVER(d, cuDeviceGet, &d->ordinal, ordinal);
	DRIVER(d, cuDevicePrimaryCtxRetain, &d->context, d->ordinal);
	DRIVER(d, cuCtxSetCurrent, d->context);
	DRIVER(d, cuStreamCreate, &d->stream, CU_STREAM_NON_BLOCKING);
}

static void load_kernels(struct cuda_device *d)
{
	DRIVER(d, cuModuleLoadData, &d->module, kernel_image);
	for (size_t i = 0; i < KERNEL_COUNT; i++)
		check(d, d->cuModuleGetFunction(&d->kernels[i], d->module, kernel_names[i]),
		      kernel_names[i]);
}

/* The stream first: setting it makes cuBLAS forget its workspace. */
static void start_cublas(struct cuda_device *d)
{
	d->workspace = cuda_alloc(d, WORKSPACE_BYTES);
	CUBLAS(d, cublasCreate, &d->cublas);
	CUBLAS(d, cublasSetStream, d->cublas, d->stream);
	CUBLAS(d, cublasSetWorkspace, d->cublas, d->workspace, WORKSPACE_BYTES);
	CUBLAS(d, cublasSetMathMode, d->cublas, CUBLAS_PEDANTIC_MATH);
}

struct device *device_open_cuda(int ordinal)
{
	struct cuda_device *d = calloc(1, sizeof(*d));

	if (d == NULL)
		fatal("device: out of memory");
	open_driver(d);
	open_cublas(d);
	open_context(d, ordinal);
	load_kernels(d);
	start_cublas(d);
	d->device = (struct device){ &cuda_calls, d, d->stream };
	return &d->device;
}

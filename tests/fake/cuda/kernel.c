/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of the fake driver: functions of this process, found by name in any module.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tests/fake/bytes.h"
#include "tests/fake/cuda/inside.h"

#define KERNELS_MAX 32
#define MODULES_MAX 32

/* fill(pointer, bytes, byte) */
static void run_fill(void *const *params)
{
	CUdeviceptr at;
	uint64_t bytes;
	uint32_t byte;

	memcpy(&at, params[0], sizeof(at));
	memcpy(&bytes, params[1], sizeof(bytes));
	memcpy(&byte, params[2], sizeof(byte));
	bytes_fill(fake_cuda_host(at), (int)byte, bytes);
}

BYTES_UNSEEN static uint64_t count_others(const unsigned char *data, uint64_t bytes,
					  unsigned char byte)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < bytes; i++)
		n += data[i] != byte;
	return n;
}

/* compare(pointer, bytes, byte, pointer to a 64-bit count): adds how many bytes differ. */
static void run_compare(void *const *params)
{
	CUdeviceptr at, count;
	const unsigned char *data;
	uint64_t bytes, differ;
	uint32_t byte;

	memcpy(&at, params[0], sizeof(at));
	memcpy(&bytes, params[1], sizeof(bytes));
	memcpy(&byte, params[2], sizeof(byte));
	memcpy(&count, params[3], sizeof(count));
	data = fake_cuda_host(at);
	memcpy(&differ, fake_cuda_host(count), sizeof(differ));
	bytes_are_read(data, bytes);
	differ += count_others(data, bytes, (unsigned char)byte);
	memcpy(fake_cuda_host(count), &differ, sizeof(differ));
}

static struct fake_cuda_kernel kernels[KERNELS_MAX] = {
	{ "fill", run_fill, { 8, 8, 4, 0 } },
	{ "compare", run_compare, { 8, 8, 4, 8, 0 } },
	{ "bench_fill", fake_bench_fill, { 8, 8, 4, 0 } },
	{ "bench_check", fake_bench_check, { 8, 8, 4, 8, 0 } },
	{ "bench_spin", fake_bench_load, { 8, 4, 0 } },
	{ "bench_sweep", fake_bench_load, { 8, 8, 0 } },
};
static int n_kernels = 6;
static bool modules[MODULES_MAX];

void fake_cuda_add_kernel(const struct fake_cuda_kernel *kernel)
{
	pthread_mutex_lock(&fake.lock);
	ASSERT(n_kernels < KERNELS_MAX);
	kernels[n_kernels++] = *kernel;
	pthread_mutex_unlock(&fake.lock);
}

/* A module is its number in the table and one more. */
static bool *module_of(CUmodule module)
{
	uintptr_t i = (uintptr_t)module - 1;

	return i < MODULES_MAX && modules[i] ? &modules[i] : NULL;
}

CUresult fake_module_load_data(CUmodule *ret, const void *image)
{
	ENTER(module_load_data, NEED_CONTEXT);
	if (fake_current()->lost != CUDA_SUCCESS)
		return leave(fake_current()->lost);
	if (image == NULL)
		return leave(CUDA_ERROR_INVALID_VALUE);
	for (uintptr_t i = 0; i < MODULES_MAX; i++)
		if (!modules[i]) {
			modules[i] = true;
			fake.counts.modules++;
			*ret = (CUmodule)(i + 1);
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult fake_module_unload(CUmodule module)
{
	ENTER(module_unload, NEED_CONTEXT);
	if (module_of(module) == NULL)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	*module_of(module) = false;
	fake.counts.modules--;
	return leave(fake_current()->lost);
}

CUresult fake_module_get_function(CUfunction *ret, CUmodule module, const char *name)
{
	ENTER(module_get_function, NEED_CONTEXT);
	if (module_of(module) == NULL)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	for (int i = 0; i < n_kernels; i++)
		if (strcmp(kernels[i].name, name) == 0) {
			*ret = (CUfunction)&kernels[i];
			return leave(CUDA_SUCCESS);
		}
	return leave(CUDA_ERROR_NOT_FOUND);
}

static const struct fake_cuda_kernel *kernel_of(CUfunction function)
{
	for (int i = 0; i < n_kernels; i++)
		if (function == (CUfunction)&kernels[i])
			return &kernels[i];
	return NULL;
}

CUresult fake_launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
			    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
			    CUstream handle, void **params, void **extra)
{
	const struct fake_cuda_kernel *kernel;
	struct fake_stream *stream;
	struct fake_op *op;
	CUresult result;

	ENTER(launch_kernel, NEED_CONTEXT);
	stream = fake_stream_of(handle);
	kernel = kernel_of(function);
	if (stream == NULL || kernel == NULL || stream->ctx != fake_current())
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0 ||
	    block_x * block_y * block_z > 1024)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (extra != NULL || shared > 48 << 10)
		return leave(CUDA_ERROR_NOT_SUPPORTED);
	result = fake_op_new(stream, OP_KERNEL, &op);
	if (result != CUDA_SUCCESS)
		return leave(result);
	op->kernel = kernel;
	for (int i = 0; kernel->sizes[i] != 0; i++)
		memcpy(op->params[i], params[i], kernel->sizes[i]);
	fake_queued();
	return leave(CUDA_SUCCESS);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Slabs of a GPU's memory: made, mapped at their place of the reserved range and exported; and the
 * way back. What fails half-way is undone in reverse, so a slab is there whole or not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/nofile.h"
#include "tiers/gpu_inside.h"

static CUdeviceptr place_of(const struct gpu *g, unsigned i)
{
	return g->range + i * g->base.slab_bytes;
}

static CUresult slab_map(struct gpu *g, unsigned i, CUmemGenericAllocationHandle handle,
			 int *ret_fd)
{
	const struct cuda *cuda = g->cuda;
	CUdeviceptr at = place_of(g, i);
	uint64_t bytes = g->base.slab_bytes;
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						 .id = g->device },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult result = cuda->mem_map(at, bytes, 0, handle, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda->mem_set_access(at, bytes, &access, 1);
	if (result == CUDA_SUCCESS)
		result = cuda->mem_export(ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  0);
	if (result != CUDA_SUCCESS)
		gpu_say(g, cuda->mem_unmap(at, bytes), "cuMemUnmap");
	return result;
}

static CUresult zeros_copy(struct gpu *g, unsigned i, CUstream stream)
{
	CUresult result = CUDA_SUCCESS, end;

	for (uint64_t at = 0; result == CUDA_SUCCESS && at < g->base.slab_bytes; at += GPU_BLOCK)
		result =
			g->cuda->memcpy_htod_async(place_of(g, i) + at, g->zeros,
						   MIN(g->base.slab_bytes - at, GPU_BLOCK), stream);
	/* Also after a failure: what was begun must not go on when the slab is gone. */
	end = g->cuda->stream_synchronize(stream);
	return result != CUDA_SUCCESS ? result : end;
}

/* The driver clears what another process had, but not what this one gave back: that may have been
 * another domain's. By copies, as a memset would be a kernel beside those of clients; the helper
 * has a stream of its own for it, the least urgent. */
static CUresult slab_scrub(struct gpu *g, unsigned i)
{
	CUstream stream;
	int least, greatest;
	CUresult result = g->cuda->ctx_get_stream_priority_range(&least, &greatest);

	if (result == CUDA_SUCCESS)
		result = g->cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING, least);
	if (result != CUDA_SUCCESS)
		return result;
	result = zeros_copy(g, i, stream);
	gpu_say(g, g->cuda->stream_destroy(stream), "cuStreamDestroy");
	return result;
}

static CUresult slab_make(struct gpu *g, unsigned i)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = g->device },
	};
	CUmemGenericAllocationHandle handle;
	CUresult result = g->cuda->mem_create(&handle, g->base.slab_bytes, &prop, 0);
	int fd = -1;

	if (result != CUDA_SUCCESS)
		return result;
	result = slab_map(g, i, handle, &fd);
	if (result != CUDA_SUCCESS) {
		gpu_say(g, g->cuda->mem_release(handle), "cuMemRelease");
		return result;
	}
	ASSERT(fd >= 0);
	if (g->config->scrub)
		result = slab_scrub(g, i);
	if (result != CUDA_SUCCESS) {
		gpu_say(g, g->cuda->mem_unmap(place_of(g, i), g->base.slab_bytes), "cuMemUnmap");
		gpu_say(g, g->cuda->mem_release(handle), "cuMemRelease");
		close(fd);
		return result;
	}
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		log_warn(TIER, "%s: descriptor of a slab stays open across exec: %m", g->base.name);
	g->slabs[i] = (struct gpu_slab){ handle, fd };
	return CUDA_SUCCESS;
}

void gpu_slab_free(struct gpu *g, unsigned i)
{
	struct gpu_slab *slab = &g->slabs[i];

	ASSERT(slab->fd >= 0);
	gpu_say(g, g->cuda->mem_unmap(place_of(g, i), g->base.slab_bytes), "cuMemUnmap");
	gpu_say(g, g->cuda->mem_release(slab->handle), "cuMemRelease");
	close(slab->fd);
	*slab = (struct gpu_slab){ .fd = -1 };
}

/* Without a descriptor to export it by the driver is not even asked: its name for that is
 * "operating system", and memory that was made would have to go again. */
static void back(struct gpu *g, struct xfer *x, unsigned i)
{
	CUresult result = CUDA_SUCCESS;
	int r = nofile_try();

	if (r == 0)
		result = slab_make(g, i);
	if (result == CUDA_ERROR_OPERATING_SYSTEM)
		r = nofile_try(); /* somebody may have taken it meanwhile */
	if (r < 0)
		gpu_refuse(g, x, r, "no descriptor is free for it");
	else if (result != CUDA_SUCCESS)
		gpu_fail(g, x, result);
}

void gpu_slab_run(struct gpu *g, struct xfer *x)
{
	unsigned i = (unsigned)(x->offset / g->base.slab_bytes);

	ASSERT(x->offset % g->base.slab_bytes == 0 && x->bytes == g->base.slab_bytes);
	if (x->op == XFER_UNBACK) {
		gpu_slab_free(g, i);
		if (gpu_is_lost(g))
			gpu_fail(g, x, atomic_load(&g->lost));
		return;
	}
	ASSERT(x->op == XFER_BACK && g->slabs[i].fd < 0);
	if (gpu_is_lost(g))
		gpu_fail(g, x, (CUresult)atomic_load(&g->lost));
	else
		back(g, x, i);
}

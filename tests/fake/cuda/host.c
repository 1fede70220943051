/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that the fake driver knows: registered ranges and its own host allocations.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/fake/cuda/inside.h"

/* A device pointer to host memory is not the host's: who mixes them up is refused. */
#define DEVICE_BIT ((CUdeviceptr)1 << 62)

struct range {
	struct list link;
	unsigned char *at;
	size_t bytes;
	unsigned flags; /* CU_MEMHOSTREGISTER_... */
	bool own;       /* of cuMemHostAlloc */
	struct fake_ctx *ctx;
};

static struct list ranges = { &ranges, &ranges };

static bool overlaps(const struct range *range, const unsigned char *at, size_t bytes)
{
	return at < range->at + range->bytes && range->at < at + bytes;
}

static struct range *range_at(const unsigned char *at, size_t bytes)
{
	struct list *it;

	list_for_each (it, &ranges) {
		struct range *range = list_entry(it, struct range, link);

		if (overlaps(range, at, bytes))
			return range;
	}
	return NULL;
}

static bool seen_by(const struct range *range, const struct fake_ctx *ctx)
{
	return range->ctx == ctx || (range->flags & CU_MEMHOSTREGISTER_PORTABLE) != 0;
}

static bool is_whole(const struct range *range, const unsigned char *at, size_t bytes)
{
	return at >= range->at && at + bytes <= range->at + range->bytes;
}

CUresult fake_host_place(const struct fake_ctx *ctx, const void *at, size_t bytes,
			 enum fake_place *ret)
{
	const struct range *range = range_at(at, bytes);

	if (range != NULL && !is_whole(range, at, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = range != NULL && seen_by(range, ctx) ? PLACE_PINNED : PLACE_PAGEABLE;
	return CUDA_SUCCESS;
}

uint64_t *fake_word(const struct fake_ctx *ctx, CUdeviceptr pointer)
{
	unsigned char *at = (unsigned char *)(pointer & ~DEVICE_BIT);
	const struct range *range;

	if (pointer % sizeof(uint64_t) != 0)
		return NULL;
	if ((pointer & DEVICE_BIT) == 0)
		return fake_device_range(at, sizeof(uint64_t), true) ? (uint64_t *)at : NULL;
	range = range_at(at, sizeof(uint64_t));
	if (range == NULL || !is_whole(range, at, sizeof(uint64_t)) || !seen_by(range, ctx) ||
	    (range->flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0)
		return NULL;
	return (uint64_t *)at;
}

void *fake_cuda_host(CUdeviceptr pointer)
{
	return (void *)(pointer & ~DEVICE_BIT);
}

/* The platform's limit of pinned memory, over all devices. */
static bool may_pin(size_t bytes)
{
	const uint64_t limit = fake_env("FAKE_CUDA_PIN_BYTES", UINT64_MAX);
	uint64_t pinned = 0;
	struct list *it;

	list_for_each (it, &ranges)
		pinned += list_entry(it, struct range, link)->bytes;
	return pinned <= limit && bytes <= limit - pinned;
}

static void range_new(void *at, size_t bytes, unsigned flags, bool own)
{
	struct range *range = calloc(1, sizeof(*range));

	ASSERT(range != NULL);
	*range = (struct range){ .at = at, .bytes = bytes, .flags = flags, .own = own };
	range->ctx = fake_current();
	list_push_back(&ranges, &range->link);
	fake.counts.registrations++;
}

static void range_free(struct range *range)
{
	list_remove(&range->link);
	free(range);
	fake.counts.registrations--;
}

/* Of nothing that is not mapped: the driver pins pages, so they must be there. */
static bool is_memory(const void *at, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)at & ~(page - 1);

	return msync((void *)start, (uintptr_t)at + bytes - start, MS_ASYNC) == 0;
}

CUresult fake_mem_host_register(void *at, size_t bytes, unsigned flags)
{
	const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
			       CU_MEMHOSTREGISTER_READ_ONLY;

	ENTER(mem_host_register, NEED_CONTEXT);
	if (fake_current()->lost != CUDA_SUCCESS)
		return leave(fake_current()->lost);
	if (at == NULL || bytes == 0 || (flags & ~known) != 0 || !is_memory(at, bytes))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (range_at(at, bytes) != NULL)
		return leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	if (!may_pin(bytes))
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	range_new(at, bytes, flags, false);
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_host_unregister(void *at)
{
	struct range *range;

	ENTER(mem_host_unregister, NEED_CONTEXT);
	range = range_at(at, 1);
	if (range == NULL || range->at != at || range->own)
		return leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	range_free(range);
	return leave(fake_current()->lost);
}

CUresult fake_mem_host_get_device_pointer(CUdeviceptr *ret, void *at, unsigned flags)
{
	const struct range *range;

	ENTER(mem_host_get_device_pointer, NEED_CONTEXT);
	if (fake_current()->lost != CUDA_SUCCESS)
		return leave(fake_current()->lost);
	range = range_at(at, 1);
	if (flags != 0 || range == NULL || !seen_by(range, fake_current()) ||
	    (range->flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret = (CUdeviceptr)(uintptr_t)at | DEVICE_BIT;
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_host_alloc(void **ret, size_t bytes, unsigned flags)
{
	void *at;

	ENTER(mem_host_alloc, NEED_CONTEXT);
	if (fake_current()->lost != CUDA_SUCCESS)
		return leave(fake_current()->lost);
	if (bytes == 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!may_pin(bytes))
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	/* PORTABLE and DEVICEMAP have the values that they have in a registration. */
	range_new(at, bytes, flags & (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP), true);
	*ret = at;
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_free_host(void *at)
{
	struct range *range;
	CUresult result;

	ENTER(mem_free_host, NEED_CONTEXT);
	result = fake_drain_ctx(fake_current());
	range = range_at(at, 1);
	if (range == NULL || range->at != at || !range->own)
		return leave(CUDA_ERROR_INVALID_VALUE);
	munmap(range->at, range->bytes);
	range_free(range);
	return leave(result);
}

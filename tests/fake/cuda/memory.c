/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory of the fake driver: handles, address ranges and what is mapped where, allocations.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/fake/cuda/inside.h"

/* The name of a memfd says whose memory it is, also to another process. */
#define MEMFD_NAME "fake-cuda-%d"
#define MEMFD_LINK "/memfd:" MEMFD_NAME

struct handle {
	struct list link;
	int physical;
	int fd; /* of the keeper's table */
	size_t bytes;
	unsigned refs, mappings;
	bool exportable;
	struct fake_ctx *counted; /* NULL: imported */
};

struct reservation {
	struct list link;
	unsigned char *at;
	size_t bytes;
};

struct mapping {
	struct list link;
	unsigned char *at;
	size_t bytes;
	struct handle *handle; /* NULL: an allocation */
	struct fake_ctx *counted;
	int access; /* PROT_... */
};

static struct list handles = { &handles, &handles };
static struct list reservations = { &reservations, &reservations };
static struct list mappings = { &mappings, &mappings };

static bool within(const unsigned char *at, size_t bytes, const unsigned char *outer, size_t room)
{
	return at >= outer && bytes <= room && (size_t)(at - outer) <= room - bytes;
}

static bool overlap(const unsigned char *a, size_t a_bytes, const unsigned char *b, size_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static bool aligned(size_t bytes)
{
	return bytes != 0 && bytes % FAKE_CUDA_GRANULARITY == 0;
}

/* Every byte of the range lies in mappings with the access wanted. */
bool fake_device_range(const void *start, size_t bytes, bool write)
{
	const unsigned char *at = start, *end = at + bytes;
	struct list *it;

	while (at < end) {
		struct mapping *found = NULL;

		list_for_each (it, &mappings) {
			struct mapping *m = list_entry(it, struct mapping, link);

			if (at >= m->at && at < m->at + m->bytes)
				found = m;
		}
		if (found == NULL || !(found->access & (write ? PROT_WRITE : PROT_READ)))
			return false;
		at = found->at + found->bytes;
	}
	return true;
}

static struct handle *handle_of(CUmemGenericAllocationHandle value)
{
	struct list *it;

	list_for_each (it, &handles) {
		struct handle *handle = list_entry(it, struct handle, link);

		if ((CUmemGenericAllocationHandle)(uintptr_t)handle == value)
			return handle->refs == 0 ? NULL : handle;
	}
	return NULL;
}

static struct handle *handle_new(int fd, size_t bytes, int physical, struct fake_ctx *counted)
{
	struct handle *handle = calloc(1, sizeof(*handle));

	ASSERT(handle != NULL);
	*handle = (struct handle){ .physical = physical,
				   .fd = fd,
				   .bytes = bytes,
				   .refs = 1,
				   .exportable = true,
				   .counted = counted };
	if (counted != NULL)
		counted->used_bytes += bytes;
	list_push_back(&handles, &handle->link);
	fake.counts.handles++;
	return handle;
}

static void handle_put(struct handle *handle)
{
	if (handle->refs > 0 || handle->mappings > 0)
		return;
	if (handle->counted != NULL)
		handle->counted->used_bytes -= handle->bytes;
	list_remove(&handle->link);
	fake_keeper_close(handle->fd);
	free(handle);
}

static struct fake_ctx *ctx_of_prop(const CUmemAllocationProp *prop)
{
	if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
	     prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return NULL;
	return fake_ctx_of_device(prop->location.id);
}

CUresult fake_mem_get_allocation_granularity(size_t *ret, const CUmemAllocationProp *prop,
					     CUmemAllocationGranularity_flags flags)
{
	(void)flags;
	ENTER(mem_get_allocation_granularity, NEED_INIT);
	if (ctx_of_prop(prop) == NULL)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*ret = FAKE_CUDA_GRANULARITY;
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_create(CUmemGenericAllocationHandle *ret, size_t bytes,
			 const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct fake_ctx *ctx;
	struct handle *handle;
	char name[32];
	int fd;

	ENTER(mem_create, NEED_INIT);
	ctx = ctx_of_prop(prop);
	if (ctx == NULL || !aligned(bytes) || flags != 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (ctx->lost != CUDA_SUCCESS)
		return leave(ctx->lost);
	if (bytes > fake.device_bytes - ctx->used_bytes)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	snprintf(name, sizeof(name), MEMFD_NAME, ctx->physical);
	fd = fake_keeper_create(name, bytes);
	if (fd < 0)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	handle = handle_new(fd, bytes, ctx->physical, ctx);
	handle->exportable = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
	*ret = (CUmemGenericAllocationHandle)(uintptr_t)handle;
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_release(CUmemGenericAllocationHandle value)
{
	struct handle *handle;

	ENTER(mem_release, NEED_INIT);
	handle = handle_of(value);
	if (handle == NULL)
		return leave(CUDA_ERROR_INVALID_VALUE);
	handle->refs--;
	fake.counts.handles--;
	handle_put(handle);
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_export(void *ret, CUmemGenericAllocationHandle value,
			 CUmemAllocationHandleType type, unsigned long long flags)
{
	struct handle *handle;
	int fd;

	ENTER(mem_export, NEED_INIT);
	handle = handle_of(value);
	if (handle == NULL || !handle->exportable || flags != 0 ||
	    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return leave(CUDA_ERROR_INVALID_VALUE);
	fd = fake_keeper_export(handle->fd);
	if (fd < 0)
		return leave(CUDA_ERROR_OPERATING_SYSTEM);
	fake.counts.exports++;
	memcpy(ret, &fd, sizeof(fd));
	return leave(CUDA_SUCCESS);
}

/* The device whose memory it is; -1: of none that there is. */
static int physical_of_fd(int fd)
{
	char path[64], target[64];
	int physical;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return -1;
	target[n] = '\0';
	if (sscanf(target, MEMFD_LINK, &physical) != 1)
		return -1;
	return physical < fake.n_physical ? physical : -1;
}

/* The descriptor stays the caller's. */
CUresult fake_mem_import(CUmemGenericAllocationHandle *ret, void *os_handle,
			 CUmemAllocationHandleType type)
{
	int fd = (int)(uintptr_t)os_handle, physical, own;
	struct stat st;

	ENTER(mem_import, NEED_INIT);
	physical = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? physical_of_fd(fd) : -1;
	if (physical < 0 || fstat(fd, &st) != 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	own = fake_keeper_import(fd);
	if (own < 0)
		return leave(CUDA_ERROR_OPERATING_SYSTEM);
	fake.counts.imports++;
	*ret = (CUmemGenericAllocationHandle)(uintptr_t)handle_new(own, (size_t)st.st_size,
								   physical, NULL);
	return leave(CUDA_SUCCESS);
}

static struct reservation *reservation_of(const unsigned char *at, size_t bytes)
{
	struct list *it;

	list_for_each (it, &reservations) {
		struct reservation *r = list_entry(it, struct reservation, link);

		if (within(at, bytes, r->at, r->bytes))
			return r;
	}
	return NULL;
}

static bool anything_mapped(const unsigned char *at, size_t bytes)
{
	struct list *it;

	list_for_each (it, &mappings) {
		struct mapping *m = list_entry(it, struct mapping, link);

		if (overlap(at, bytes, m->at, m->bytes))
			return true;
	}
	return false;
}

CUresult fake_mem_address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment,
				  CUdeviceptr hint, unsigned long long flags)
{
	size_t align = alignment < FAKE_CUDA_GRANULARITY ? FAKE_CUDA_GRANULARITY : alignment;
	struct reservation *r;
	uintptr_t start, at;
	void *room;

	ENTER(mem_address_reserve, NEED_INIT);
	if (!aligned(bytes) || (alignment & (alignment - 1)) != 0 || flags != 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	room = mmap((void *)(uintptr_t)hint, bytes + align, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	start = (uintptr_t)room;
	at = (start + align - 1) & ~(uintptr_t)(align - 1);
	if (at > start)
		munmap(room, at - start);
	if (start + align > at)
		munmap((void *)(at + bytes), start + align - at);
	r = calloc(1, sizeof(*r));
	ASSERT(r != NULL);
	r->at = (unsigned char *)at;
	r->bytes = bytes;
	list_push_back(&reservations, &r->link);
	fake.counts.reservations++;
	*ret = at;
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_address_free(CUdeviceptr at, size_t bytes)
{
	struct reservation *r;

	ENTER(mem_address_free, NEED_INIT);
	r = reservation_of((unsigned char *)at, bytes);
	if (r == NULL || r->at != (unsigned char *)at || r->bytes != bytes ||
	    anything_mapped(r->at, r->bytes))
		return leave(CUDA_ERROR_INVALID_VALUE);
	munmap(r->at, r->bytes);
	list_remove(&r->link);
	free(r);
	fake.counts.reservations--;
	return leave(CUDA_SUCCESS);
}

static void mapping_new(unsigned char *at, size_t bytes, struct handle *handle,
			struct fake_ctx *counted, int access)
{
	struct mapping *m = calloc(1, sizeof(*m));

	ASSERT(m != NULL);
	*m = (struct mapping){
		.at = at, .bytes = bytes, .handle = handle, .counted = counted, .access = access
	};
	list_push_back(&mappings, &m->link);
}

CUresult fake_mem_map(CUdeviceptr at, size_t bytes, size_t offset,
		      CUmemGenericAllocationHandle value, unsigned long long flags)
{
	unsigned char *to = (unsigned char *)at;
	struct handle *handle;

	ENTER(mem_map, NEED_INIT);
	handle = handle_of(value);
	if (handle == NULL || offset != 0 || flags != 0 || bytes != handle->bytes ||
	    at % FAKE_CUDA_GRANULARITY != 0 || reservation_of(to, bytes) == NULL ||
	    anything_mapped(to, bytes))
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!fake_keeper_map(handle->fd, to, bytes))
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	mapping_new(to, bytes, handle, NULL, PROT_NONE);
	handle->mappings++;
	fake.counts.mappings++;
	return leave(CUDA_SUCCESS);
}

/* How many bytes of mappings of handles lie wholly in the range; `ret_cut`: one lies there in part.
 */
static size_t mapped_within(const unsigned char *at, size_t bytes, bool *ret_cut)
{
	size_t found = 0;
	struct list *it;

	*ret_cut = false;
	list_for_each (it, &mappings) {
		struct mapping *m = list_entry(it, struct mapping, link);

		if (m->handle != NULL && within(m->at, m->bytes, at, bytes))
			found += m->bytes;
		else if (overlap(at, bytes, m->at, m->bytes))
			*ret_cut = true;
	}
	return found;
}

static void mapping_free(struct mapping *m)
{
	void *again = mmap(m->at, m->bytes, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	ASSERT(again == m->at);
	m->handle->mappings--;
	handle_put(m->handle);
	list_remove(&m->link);
	free(m);
	fake.counts.mappings--;
}

/* What is mapped there must be unmapped whole, and all of the range must be mapped. */
CUresult fake_mem_unmap(CUdeviceptr start, size_t bytes)
{
	const unsigned char *at = (unsigned char *)start;
	struct list *it, *next;
	bool cut;

	ENTER(mem_unmap, NEED_INIT);
	if (!aligned(bytes) || mapped_within(at, bytes, &cut) != bytes || cut)
		return leave(CUDA_ERROR_INVALID_VALUE);
	list_for_each_safe (it, next, &mappings) {
		struct mapping *m = list_entry(it, struct mapping, link);

		if (within(m->at, m->bytes, at, bytes))
			mapping_free(m);
	}
	return leave(CUDA_SUCCESS);
}

static int access_of(const CUmemAccessDesc *desc)
{
	switch (desc->flags) {
	case CU_MEM_ACCESS_FLAGS_PROT_NONE:
		return PROT_NONE;
	case CU_MEM_ACCESS_FLAGS_PROT_READ:
		return PROT_READ;
	case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
		return PROT_READ | PROT_WRITE;
	default:
		return -1;
	}
}

CUresult fake_mem_set_access(CUdeviceptr start, size_t bytes, const CUmemAccessDesc *desc,
			     size_t count)
{
	const unsigned char *at = (unsigned char *)start;
	struct list *it;
	int access;
	bool cut;

	ENTER(mem_set_access, NEED_INIT);
	if (count != 1 || desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || access_of(desc) < 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (fake_ctx_of_device(desc->location.id) == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	if (!aligned(bytes) || mapped_within(at, bytes, &cut) != bytes || cut)
		return leave(CUDA_ERROR_INVALID_VALUE);
	access = access_of(desc);
	list_for_each (it, &mappings) {
		struct mapping *m = list_entry(it, struct mapping, link);

		if (within(m->at, m->bytes, at, bytes)) {
			ASSERT(mprotect(m->at, m->bytes, access) == 0);
			m->access = access;
		}
	}
	return leave(CUDA_SUCCESS);
}

CUresult fake_mem_alloc(CUdeviceptr *ret, size_t bytes)
{
	struct fake_ctx *ctx;
	void *at;

	ENTER(mem_alloc, NEED_CONTEXT);
	ctx = fake_current();
	if (ctx->lost != CUDA_SUCCESS)
		return leave(ctx->lost);
	if (bytes == 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (bytes > fake.device_bytes - ctx->used_bytes)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	memset(at, FAKE_CUDA_POISON, bytes);
	mapping_new(at, bytes, NULL, ctx, PROT_READ | PROT_WRITE);
	ctx->used_bytes += bytes;
	fake.counts.allocations++;
	*ret = (CUdeviceptr)(uintptr_t)at;
	return leave(CUDA_SUCCESS);
}

static struct mapping *allocation_at(CUdeviceptr at)
{
	struct list *it;

	list_for_each (it, &mappings) {
		struct mapping *m = list_entry(it, struct mapping, link);

		if (m->handle == NULL && (CUdeviceptr)(uintptr_t)m->at == at)
			return m;
	}
	return NULL;
}

/* It waits for what is queued, as the driver's does. */
CUresult fake_mem_free(CUdeviceptr at)
{
	struct mapping *m;
	CUresult result;

	ENTER(mem_free, NEED_CONTEXT);
	if (allocation_at(at) == NULL)
		return leave(CUDA_ERROR_INVALID_VALUE);
	result = fake_drain_ctx(fake_current());
	m = allocation_at(at); /* the lock was open in between */
	if (m == NULL)
		return leave(CUDA_ERROR_INVALID_VALUE);
	munmap(m->at, m->bytes);
	m->counted->used_bytes -= m->bytes;
	list_remove(&m->link);
	free(m);
	fake.counts.allocations--;
	return leave(result);
}

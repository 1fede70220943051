/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices of the fake driver, which of them this process sees, and their primary contexts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "tests/fake/cuda/inside.h"

#define STACK_MAX  16
#define UUID_BYTES 16
#define UUID_TEXT  48

static _Thread_local struct {
	struct fake_ctx *ctx[STACK_MAX];
	int n;
} stack;

/* The same in all processes. */
static void uuid_of(int physical, unsigned char ret[UUID_BYTES])
{
	memcpy(ret, "tierd fake gpu", 14);
	ret[14] = (unsigned char)(physical >> 8);
	ret[15] = (unsigned char)physical;
}

static void uuid_text(int physical, char ret[UUID_TEXT])
{
	unsigned char uuid[UUID_BYTES];
	int n = snprintf(ret, UUID_TEXT, "GPU-");

	uuid_of(physical, uuid);
	for (int i = 0; i < UUID_BYTES; i++)
		n += snprintf(ret + n, UUID_TEXT - (size_t)n, "%s%02x",
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* A number or the beginning of a UUID; -1: neither. */
static int physical_of(const char *word)
{
	char uuid[UUID_TEXT], *end;
	long number;

	if (strncasecmp(word, "GPU-", 4) == 0) {
		for (int i = 0; i < fake.n_physical; i++) {
			uuid_text(i, uuid);
			if (strncasecmp(word, uuid, strlen(word)) == 0)
				return i;
		}
		return -1;
	}
	number = strtol(word, &end, 10);
	return end != word && *end == '\0' && number >= 0 && number < fake.n_physical ? (int)number
										      : -1;
}

static void add_device(int physical)
{
	struct fake_ctx *ctx = &fake.ctx[fake.n_devices++];

	ctx->physical = physical;
	ctx->stream.ctx = ctx;
	ctx->stream.is_default = true;
	ctx->stream.id = ++fake.stream_ids;
	list_init(&ctx->stream.ops);
	list_push_back(&fake.streams, &ctx->stream.link);
}

/* The list ends at its first wrong word, as the driver's does. */
void fake_devices_setup(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char words[512], *at = words, *word;

	fake.n_physical = (int)fake_env("FAKE_CUDA_DEVICES", 1);
	ASSERT(fake.n_physical >= 0 && fake.n_physical <= FAKE_DEVICES_MAX);
	if (visible == NULL) {
		for (int i = 0; i < fake.n_physical; i++)
			add_device(i);
		return;
	}
	snprintf(words, sizeof(words), "%s", visible);
	while ((word = strsep(&at, ",")) != NULL) {
		int physical = physical_of(word);

		if (physical < 0 || fake.n_devices == FAKE_DEVICES_MAX)
			return;
		add_device(physical);
	}
}

struct fake_ctx *fake_ctx_of_device(CUdevice device)
{
	return device >= 0 && device < fake.n_devices ? &fake.ctx[device] : NULL;
}

int fake_device_of(const struct fake_ctx *ctx)
{
	return (int)(ctx - fake.ctx);
}

struct fake_ctx *fake_current(void)
{
	return stack.n == 0 ? NULL : stack.ctx[stack.n - 1];
}

CUresult fake_lose_ctx(struct fake_ctx *ctx, CUresult result)
{
	ASSERT(ctx != NULL && result != CUDA_SUCCESS);
	if (ctx->lost == CUDA_SUCCESS)
		ctx->lost = result;
	pthread_cond_broadcast(&fake.moved);
	return ctx->lost;
}

CUresult fake_device_get_count(int *ret)
{
	ENTER(device_get_count, NEED_INIT);
	*ret = fake.n_devices;
	return leave(CUDA_SUCCESS);
}

CUresult fake_device_get(CUdevice *ret, int ordinal)
{
	ENTER(device_get, NEED_INIT);
	if (fake_ctx_of_device(ordinal) == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	*ret = ordinal;
	return leave(CUDA_SUCCESS);
}

CUresult fake_device_get_name(char *name, int bytes, CUdevice device)
{
	ENTER(device_get_name, NEED_INIT);
	if (fake_ctx_of_device(device) == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	if (bytes <= 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(name, (size_t)bytes, "Fake GPU %d", fake_ctx_of_device(device)->physical);
	return leave(CUDA_SUCCESS);
}

CUresult fake_device_get_uuid(CUuuid *ret, CUdevice device)
{
	ENTER(device_get_uuid, NEED_INIT);
	if (fake_ctx_of_device(device) == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	uuid_of(fake_ctx_of_device(device)->physical, (unsigned char *)ret->bytes);
	return leave(CUDA_SUCCESS);
}

CUresult fake_device_get_pci_bus_id(char *id, int bytes, CUdevice device)
{
	ENTER(device_get_pci_bus_id, NEED_INIT);
	if (fake_ctx_of_device(device) == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	if (bytes < 13)
		return leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(id, (size_t)bytes, "FA4E:%02X:00.0", fake_ctx_of_device(device)->physical + 1);
	return leave(CUDA_SUCCESS);
}

CUresult fake_device_total_mem(size_t *ret, CUdevice device)
{
	ENTER(device_total_mem, NEED_INIT);
	if (fake_ctx_of_device(device) == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	*ret = fake.device_bytes;
	return leave(CUDA_SUCCESS);
}

static int attribute(const struct fake_ctx *ctx, CUdevice_attribute which)
{
	switch (which) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return 4;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		return 3;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		return 0xfa4e;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return ctx->physical + 1;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
	case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
		return 1;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
	case CU_DEVICE_ATTRIBUTE_NUMA_ID:
		return -1;
	case CU_DEVICE_ATTRIBUTE_INTEGRATED:
		return (int)fake_env("FAKE_CUDA_INTEGRATED", 0);
	default:
		return 0;
	}
}

CUresult fake_device_get_attribute(int *ret, CUdevice_attribute which, CUdevice device)
{
	ENTER(device_get_attribute, NEED_INIT);
	if (fake_ctx_of_device(device) == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	*ret = attribute(fake_ctx_of_device(device), which);
	return leave(CUDA_SUCCESS);
}

CUresult fake_primary_ctx_retain(CUcontext *ret, CUdevice device)
{
	struct fake_ctx *ctx;

	ENTER(primary_ctx_retain, NEED_INIT);
	ctx = fake_ctx_of_device(device);
	if (ctx == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	if (ctx->lost != CUDA_SUCCESS)
		return leave(ctx->lost);
	ctx->retained++;
	fake.counts.contexts++;
	*ret = (CUcontext)ctx;
	return leave(CUDA_SUCCESS);
}

CUresult fake_primary_ctx_release(CUdevice device)
{
	struct fake_ctx *ctx;

	ENTER(primary_ctx_release, NEED_INIT);
	ctx = fake_ctx_of_device(device);
	if (ctx == NULL)
		return leave(CUDA_ERROR_INVALID_DEVICE);
	if (ctx->retained == 0)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	ctx->retained--;
	fake.counts.contexts--;
	return leave(CUDA_SUCCESS);
}

static bool is_ctx(CUcontext ctx)
{
	for (int i = 0; i < fake.n_devices; i++)
		if (ctx == (CUcontext)&fake.ctx[i])
			return fake.ctx[i].retained > 0;
	return false;
}

CUresult fake_ctx_push(CUcontext ctx)
{
	ENTER(ctx_push, NEED_INIT);
	if (!is_ctx(ctx))
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	ASSERT(stack.n < STACK_MAX);
	stack.ctx[stack.n++] = (struct fake_ctx *)ctx;
	return leave(CUDA_SUCCESS);
}

CUresult fake_ctx_pop(CUcontext *ret)
{
	ENTER(ctx_pop, NEED_INIT);
	if (stack.n == 0)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	stack.n--;
	if (ret != NULL)
		*ret = (CUcontext)stack.ctx[stack.n];
	return leave(CUDA_SUCCESS);
}

CUresult fake_ctx_set_current(CUcontext ctx)
{
	ENTER(ctx_set_current, NEED_INIT);
	if (ctx != NULL && !is_ctx(ctx))
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (stack.n > 0)
		stack.n--;
	if (ctx != NULL)
		stack.ctx[stack.n++] = (struct fake_ctx *)ctx;
	return leave(CUDA_SUCCESS);
}

CUresult fake_ctx_get_current(CUcontext *ret)
{
	ENTER(ctx_get_current, NEED_INIT);
	*ret = (CUcontext)fake_current();
	return leave(CUDA_SUCCESS);
}

CUresult fake_ctx_get_device(CUdevice *ret)
{
	ENTER(ctx_get_device, NEED_CONTEXT);
	*ret = fake_device_of(fake_current());
	return leave(CUDA_SUCCESS);
}

CUresult fake_ctx_synchronize(void)
{
	ENTER(ctx_synchronize, NEED_CONTEXT);
	return leave(fake_drain_ctx(fake_current()));
}

CUresult fake_ctx_get_stream_priority_range(int *least, int *greatest)
{
	ENTER(ctx_get_stream_priority_range, NEED_CONTEXT);
	if (least != NULL)
		*least = 0;
	if (greatest != NULL)
		*greatest = -5;
	return leave(fake_current()->lost);
}

CUresult fake_mem_get_info(size_t *ret_free, size_t *ret_total)
{
	ENTER(mem_get_info, NEED_CONTEXT);
	if (fake_current()->lost != CUDA_SUCCESS)
		return leave(fake_current()->lost);
	*ret_free = fake.device_bytes - fake_current()->used_bytes;
	*ret_total = fake.device_bytes;
	return leave(CUDA_SUCCESS);
}

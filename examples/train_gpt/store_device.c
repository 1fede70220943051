/* SPDX-License-Identifier: Apache-2.0
 *
 * The store without tierd on a GPU: every tensor in memory of the device for the whole run.
 */
#include "examples/train_gpt/store.h"

#include <stdlib.h>

#include "examples/train_gpt/device.h"
#include "examples/train_gpt/fatal.h"

struct device_store {
	struct device *device;
	unsigned char *memory; /* of all tensors */
};

static uint64_t room_of(const struct tensor *t)
{
	return (t->bytes + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;
}

/* One allocation: the device's allocator has a coarse unit of its own. */
static void device_create(void *state, struct tensor *const *tensors, size_t n,
			  unsigned element_bytes)
{
	struct device_store *s = state;
	uint64_t bytes = 0, offset = 0;

	for (size_t i = 0; i < n; i++)
		bytes += room_of(tensors[i]);
	s->memory = s->device->calls->alloc(s->device->state, bytes);
	s->device->calls->clear(s->device->state, s->memory, bytes);
	for (size_t i = 0; i < n; i++) {
		tensors[i]->memory = s->memory + offset;
		offset += room_of(tensors[i]);
	}
}

static void device_acquire(void *state, int place, struct use *uses, size_t n)
{
	for (size_t i = 0; i < n; i++)
		uses[i].data = uses[i].tensor != NULL ? uses[i].tensor->memory : NULL;
}

static void device_release(void *state, struct use *uses, size_t n)
{
}

static void device_write(void *state, int place, struct tensor *t, const void *from)
{
	struct device_store *s = state;

	s->device->calls->upload(s->device->state, t->memory, from, t->bytes);
}

static void device_read(void *state, int place, struct tensor *t, void *to)
{
	struct device_store *s = state;

	s->device->calls->download(s->device->state, to, t->memory, t->bytes);
}

static void device_hint(void *state, int place, struct tensor *const *tensors, size_t n)
{
}

static void device_evict(void *state, struct tensor *const *tensors, size_t n)
{
}

static void device_step(void *state)
{
}

static bool device_stats(void *state, struct tierd_stats *ret)
{
	return false;
}

static void device_close_store(void *state, struct tensor *const *tensors, size_t n)
{
	struct device_store *s = state;

	if (s->memory != NULL)
		s->device->calls->free(s->device->state, s->memory);
	free(s);
}

static const struct store_ops device_ops = {
	.name = "device",
	.create = device_create,
	.acquire = device_acquire,
	.release = device_release,
	.write = device_write,
	.read = device_read,
	.prefetch = device_hint,
	.evict = device_evict,
	.step = device_step,
	.stats = device_stats,
	.close = device_close_store,
};

struct store *store_open_device(struct device *device)
{
	struct device_store *s = calloc(1, sizeof(*s));

	if (s == NULL)
		fatal("store: out of memory");
	s->device = device;
	return store_open(&device_ops, s);
}

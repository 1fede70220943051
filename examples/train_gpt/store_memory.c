/* SPDX-License-Identifier: Apache-2.0
 *
 * The store without tierd: every tensor in memory of its own for the whole run.
 */
#include "examples/train_gpt/store.h"

#include <stdlib.h>
#include <string.h>

#include "examples/train_gpt/fatal.h"

static void memory_create(void *state, struct tensor *const *tensors, size_t n,
			  unsigned element_bytes)
{
	for (size_t i = 0; i < n; i++) {
		size_t bytes = (tensors[i]->bytes + STORE_ALIGN - 1) / STORE_ALIGN * STORE_ALIGN;

		tensors[i]->memory = aligned_alloc(STORE_ALIGN, bytes);
		if (tensors[i]->memory == NULL)
			fatal("%s: no memory for %zu bytes", tensors[i]->name, bytes);
		memset(tensors[i]->memory, 0, bytes);
	}
}

static void memory_acquire(void *state, int place, struct use *uses, size_t n)
{
	for (size_t i = 0; i < n; i++)
		uses[i].data = uses[i].tensor != NULL ? uses[i].tensor->memory : NULL;
}

static void memory_release(void *state, struct use *uses, size_t n)
{
}

static void memory_write(void *state, int place, struct tensor *t, const void *from)
{
	memcpy(t->memory, from, t->bytes);
}

static void memory_read(void *state, int place, struct tensor *t, void *to)
{
	memcpy(to, t->memory, t->bytes);
}

static void memory_prefetch(void *state, int place, struct tensor *const *tensors, size_t n)
{
}

static void memory_evict(void *state, struct tensor *const *tensors, size_t n)
{
}

static void memory_step(void *state)
{
}

static bool memory_stats(void *state, struct tierd_stats *ret)
{
	return false;
}

static void memory_close(void *state, struct tensor *const *tensors, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(tensors[i]->memory);
		tensors[i]->memory = NULL;
	}
}

static const struct store_ops memory_ops = {
	.name = "memory",
	.create = memory_create,
	.acquire = memory_acquire,
	.release = memory_release,
	.write = memory_write,
	.read = memory_read,
	.prefetch = memory_prefetch,
	.evict = memory_evict,
	.step = memory_step,
	.stats = memory_stats,
	.close = memory_close,
};

struct store *store_open_memory(void)
{
	return store_open(&memory_ops, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config/block.h"

#include <stdalign.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"

struct block {
	struct block *next;
	size_t used;
	alignas(max_align_t) char bytes[BLOCK_BYTES];
};

void *block_take(struct block_pool *pool, size_t bytes)
{
	struct block *block = pool->first;
	size_t rounded = ALIGN_UP(bytes, alignof(max_align_t));

	ASSERT(rounded <= BLOCK_BYTES);
	if (block == NULL || BLOCK_BYTES - block->used < rounded) {
		block = heap_zeros(1, sizeof(*block));
		if (block == NULL)
			return NULL;
		block->next = pool->first;
		pool->first = block;
	}
	block->used += rounded;
	return block->bytes + block->used - rounded;
}

void block_free_all(struct block_pool *pool)
{
	while (pool->first != NULL) {
		struct block *block = pool->first;

		pool->first = block->next;
		heap_free(block);
	}
}

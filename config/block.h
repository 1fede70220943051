/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of one document: handed out piece by piece, freed all at once. One owner.
 */
#ifndef TIERD_CONFIG_BLOCK_H
#define TIERD_CONFIG_BLOCK_H

#include <stddef.h>

enum { BLOCK_BYTES = 16 << 10 };

struct block;

struct block_pool {
	struct block *first;
};

/* Zero bytes, aligned for any object; at most BLOCK_BYTES. NULL when there is no memory. */
void *block_take(struct block_pool *pool, size_t bytes);
void block_free_all(struct block_pool *pool);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the loader's memory comes from. It stands in a file of its own so that a test can bring
 * another memory.c, which fails at the n-th call. Any thread.
 */
#ifndef TIERD_CONFIG_MEMORY_H
#define TIERD_CONFIG_MEMORY_H

#include <stddef.h>

/* `count` times `bytes` zero bytes, never NULL for want of size; NULL when there is no memory. */
void *config_memory_zeros(size_t count, size_t bytes);
/* A copy of `text`. */
char *config_memory_text(const char *text);
void config_memory_free(void *memory);

#endif

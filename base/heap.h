/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's own memory: where all of it that is not a tier's comes from. What there is not is
 * NULL with errno ENOMEM. Each call stands in a table of places, so that a test or a rehearsal can
 * refuse it there, and can tell which places there are. Any thread.
 */
#ifndef TIERD_BASE_HEAP_H
#define TIERD_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_site {
	const char *file, *function;
	uint64_t line;
};

/* The linker makes one table of all that are in the program. */
#define HEAP_SITE                                                                       \
	({                                                                              \
		static struct heap_site heap_site                                       \
			__attribute__((section("heap_site_table"), used,                \
				       aligned(8))) = { __FILE__, __func__, __LINE__ }; \
		&heap_site;                                                             \
	})

/* Zeros; never NULL for want of size. */
#define heap_zeros(count, bytes) heap_zeros_at(HEAP_SITE, (count), (bytes))
#define heap_aligned_zeros(alignment, bytes) \
	heap_aligned_zeros_at(HEAP_SITE, (alignment), (bytes)) /* `bytes` is a multiple */
#define heap_text(text) heap_text_at(HEAP_SITE, (text))
/* What `was` held stays, what comes behind it is anything; where there is no memory `was` stays. */
#define heap_grow(was, count, bytes) heap_grow_at(HEAP_SITE, (was), (count), (bytes))
/* Addresses whose pages come as they are touched. */
#define heap_map(bytes) heap_map_at(HEAP_SITE, (bytes))
/* Before any other call that takes memory of the process. */
#define heap_refused() heap_refuses(HEAP_SITE)

void *heap_zeros_at(const struct heap_site *site, size_t count, size_t bytes);
void *heap_aligned_zeros_at(const struct heap_site *site, size_t alignment, size_t bytes);
char *heap_text_at(const struct heap_site *site, const char *text);
void *heap_grow_at(const struct heap_site *site, void *was, size_t count, size_t bytes);
void *heap_map_at(const struct heap_site *site, size_t bytes);
void heap_free(void *memory);
void heap_unmap(void *at, size_t bytes);

/* How many have been taken and not given back. */
uint64_t heap_taken(void);

/* Who says of each call whether it is refused. */
struct heap_refusal {
	bool (*refuses)(const struct heap_refusal *r, const struct heap_site *site);
};
/* NULL: nobody, which is so at first. It stays valid while any thread may take memory. */
void heap_refuse(const struct heap_refusal *r);
bool heap_refuses(const struct heap_site *site);

/* All places of this program. */
const struct heap_site *heap_sites(size_t *ret_count);
/* Its file from the top of the sources on. */
const char *heap_site_file(const struct heap_site *site);

#endif

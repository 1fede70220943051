/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/compiler.h"

static _Atomic(const struct heap_refusal *) refusal;
static _Atomic uint64_t taken;

/* By the linker; a program without any has none. */
extern const struct heap_site sites_begin[] __asm__("__start_heap_site_table")
	__attribute__((weak));
extern const struct heap_site sites_end[] __asm__("__stop_heap_site_table") __attribute__((weak));

const struct heap_site *heap_sites(size_t *ret_count)
{
	*ret_count = (size_t)(sites_end - sites_begin);
	return sites_begin;
}

/* However the sources were named to the compiler: this file has what all others have before it. */
const char *heap_site_file(const struct heap_site *site)
{
	static const char own[] = __FILE__;
	size_t before = sizeof(own) - sizeof("base/heap.c");

	return strncmp(site->file, own, before) == 0 ? site->file + before : site->file;
}

void heap_refuse(const struct heap_refusal *r)
{
	atomic_store(&refusal, r);
}

bool heap_refuses(const struct heap_site *site)
{
	const struct heap_refusal *r = atomic_load_explicit(&refusal, memory_order_acquire);

	if (r == NULL || !r->refuses(r, site))
		return false;
	errno = ENOMEM;
	return true;
}

static void *counted(void *memory)
{
	if (memory != NULL)
		atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
	return memory;
}

uint64_t heap_taken(void)
{
	return atomic_load_explicit(&taken, memory_order_relaxed);
}

void *heap_zeros_at(const struct heap_site *site, size_t count, size_t bytes)
{
	if (heap_refuses(site))
		return NULL;
	return counted(calloc(MAX(count, 1u), MAX(bytes, 1u)));
}

void *heap_aligned_zeros_at(const struct heap_site *site, size_t alignment, size_t bytes)
{
	void *memory = heap_refuses(site) ? NULL : aligned_alloc(alignment, bytes);

	ASSERT(bytes > 0 && bytes % alignment == 0);
	if (memory != NULL)
		memset(memory, 0, bytes);
	return counted(memory);
}

char *heap_text_at(const struct heap_site *site, const char *text)
{
	return heap_refuses(site) ? NULL : counted(strdup(text));
}

void *heap_grow_at(const struct heap_site *site, void *was, size_t count, size_t bytes)
{
	void *grown = NULL;
	size_t all;

	ASSERT(count > 0 && bytes > 0);
	if (__builtin_mul_overflow(count, bytes, &all))
		errno = ENOMEM;
	else if (!heap_refuses(site))
		grown = realloc(was, all);
	return was == NULL ? counted(grown) : grown;
}

void *heap_map_at(const struct heap_site *site, size_t bytes)
{
	void *at = heap_refuses(site) ? MAP_FAILED
				      : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at != MAP_FAILED ? counted(at) : NULL;
}

static void gone(void)
{
	ASSERT(atomic_fetch_sub_explicit(&taken, 1, memory_order_relaxed) > 0);
}

void heap_free(void *memory)
{
	if (memory != NULL)
		gone();
	free(memory);
}

void heap_unmap(void *at, size_t bytes)
{
	if (at == NULL)
		return;
	gone();
	ASSERT(munmap(at, bytes) == 0);
}

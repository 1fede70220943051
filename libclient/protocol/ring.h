/* SPDX-License-Identifier: Apache-2.0
 *
 * Single-producer single-consumer rings of 64-byte entries in shared memory. Indices run freely;
 * each side keeps its own index in private memory and never trusts the other's beyond a range
 * check. An entry is copied out in one pass of relaxed atomic loads and only the copy is looked at.
 */
#ifndef TIERD_PROTOCOL_RING_H
#define TIERD_PROTOCOL_RING_H

#include <stdbool.h>
#include <string.h>

#include "libclient/protocol/layout.h"

#define RING_ENTRY_BYTES 64u

static inline void ring_copy_out(void *to, const void *entry)
{
	const _Atomic uint64_t *from = entry;
	uint64_t words[RING_ENTRY_BYTES / 8];

	for (unsigned i = 0; i < RING_ENTRY_BYTES / 8; i++)
		words[i] = atomic_load_explicit((_Atomic uint64_t *)&from[i], memory_order_relaxed);
	memcpy(to, words, sizeof(words));
}

static inline void ring_copy_in(void *entry, const void *from)
{
	_Atomic uint64_t *to = entry;
	uint64_t words[RING_ENTRY_BYTES / 8];

	memcpy(words, from, sizeof(words));
	for (unsigned i = 0; i < RING_ENTRY_BYTES / 8; i++)
		atomic_store_explicit(&to[i], words[i], memory_order_relaxed);
}

/* The full fence of an eventcount: between the store of a tail and the look at the sleeper's flag,
 * and between the store of that flag and the second look at the tail. ThreadSanitizer knows no
 * fences; under it an exchange on a word of its own stands in. */
static inline void ring_fence(void)
{
#ifdef __SANITIZE_THREAD__
	static _Atomic uint32_t word;

	atomic_exchange_explicit(&word, 0, memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Consumer: takes the entry at private index *head. 1: taken; 0: empty; -1: the producer's tail is
 * out of range (a broken or hostile peer). Publishing the new head is the caller's. */
static inline int ring_take(const void *entries, uint32_t count, _Atomic uint32_t *shared_tail,
			    uint32_t *head, void *ret)
{
	/* Pairs with the release store of the tail in ring_put(). */
	uint32_t tail = atomic_load_explicit(shared_tail, memory_order_acquire);

	if (tail == *head)
		return 0;
	if (tail - *head > count)
		return -1;
	ring_copy_out(ret,
		      (const char *)entries + (size_t)(*head & (count - 1)) * RING_ENTRY_BYTES);
	*head += 1;
	return 1;
}

/* Producer: the caller knows by its credits that there is room. */
static inline void ring_put(void *entries, uint32_t count, _Atomic uint32_t *shared_tail,
			    uint32_t *tail, const void *entry)
{
	ring_copy_in((char *)entries + (size_t)(*tail & (count - 1)) * RING_ENTRY_BYTES, entry);
	*tail += 1;
	atomic_store_explicit(shared_tail, *tail, memory_order_release);
}

#endif

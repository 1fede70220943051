/* SPDX-License-Identifier: Apache-2.0
 *
 * The pin slot: how a client raises and lowers its own pins, and how the daemon lowers those whose
 * release was deferred. Both sides only ever change a slot by read-modify-write. Every raise that
 * could overflow and every lowering that has nothing to lower is refused and changes nothing. Any
 * thread.
 */
#ifndef TIERD_PROTOCOL_PIN_H
#define TIERD_PROTOCOL_PIN_H

#include <stdbool.h>

#include "libclient/protocol/layout.h"

/* What one pin of this access adds to the counts; a writer counts in both. */
static inline uint64_t pin_counts(uint32_t access)
{
	return PIN_ONE + (access & ACCESS_WRITE ? PIN_WRITE_ONE : 0);
}

static inline bool pin_full(uint64_t slot, uint64_t counts)
{
	return (slot & PIN_MASK) == PIN_MASK ||
	       (counts > PIN_WRITE_ONE && (slot & PIN_WRITE_MASK) == PIN_WRITE_MASK);
}

/* Whether a pin with these counts stands in the slot: a reader's is one that is no writer's. */
static inline bool pin_held(uint64_t slot, uint64_t counts)
{
	uint64_t pins = slot & PIN_MASK, writers = (slot & PIN_WRITE_MASK) / PIN_WRITE_ONE;

	return counts > PIN_WRITE_ONE ? writers > 0 && pins > 0 : pins > writers;
}

/* One seq_cst exchange: what the daemon's scan pairs with. `written` goes up with a writer's pin
 * and stays, whatever follows. False: the counts are full. *ret_old: the slot before. */
static inline bool pin_raise(pin_slot *slot, uint32_t access, uint64_t *ret_old)
{
	uint64_t counts = pin_counts(access);
	uint64_t written = access & ACCESS_WRITE ? PIN_WRITTEN : 0;
	uint64_t old = atomic_load_explicit(slot, memory_order_relaxed);

	do {
		if (__builtin_expect(pin_full(old, counts), 0))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		slot, &old, (old + counts) | written, memory_order_seq_cst, memory_order_relaxed));
	*ret_old = old;
	return true;
}

/* False: no such pin stands. Release order: what was read or written comes before. */
static inline bool pin_lower(pin_slot *slot, uint32_t access, uint64_t *ret_old)
{
	uint64_t counts = pin_counts(access);
	uint64_t old = atomic_load_explicit(slot, memory_order_relaxed);

	do {
		if (__builtin_expect(!pin_held(old, counts), 0))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		slot, &old, old - counts, memory_order_release, memory_order_relaxed));
	*ret_old = old;
	return true;
}

#endif

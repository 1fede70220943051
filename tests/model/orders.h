/* SPDX-License-Identifier: Apache-2.0
 *
 * Included by the compiler before anything else (-include), for a litmus in which one memory order
 * is weaker than it has to be: the same sources, as the preprocessor makes them.
 */
#ifndef TIERD_TESTS_MODEL_ORDERS_H
#define TIERD_TESTS_MODEL_ORDERS_H

#include <stdatomic.h>

#ifdef LITMUS_PLAIN_PIN
/* The pin by a load and a store: no barrier. The slot has one writer in the litmus. */
#undef atomic_compare_exchange_weak_explicit
#define atomic_compare_exchange_weak_explicit(object, old, value, success, failure) \
	(atomic_load_explicit(object, memory_order_relaxed) == *(old)               \
		 ? (atomic_store_explicit(object, value, memory_order_release), 1)  \
		 : (*(old) = atomic_load_explicit(object, memory_order_relaxed), 0))
#endif

#ifdef LITMUS_RELEASE_PUBLISH
/* EVICTING is published by release, and the slots are read by acquire at best. */
#undef atomic_store
#define atomic_store(object, value) atomic_store_explicit(object, value, memory_order_release)
#endif

#ifdef LITMUS_NO_FENCE
/* ring_fence() keeps the compiler in order and no more. */
#undef atomic_thread_fence
#define atomic_thread_fence(order) atomic_signal_fence(order)
#endif

#endif

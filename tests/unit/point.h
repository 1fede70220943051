/* SPDX-License-Identifier: Apache-2.0
 *
 * Check, but for this: an assertion that holds tells the parent where it stands, so that a crash
 * later is said to be behind it. That is a message to a file, which the parent moves about byte by
 * byte under ASan, and loops make millions. Each place is told once in the life of a test.
 */
#ifndef TIERD_TESTS_POINT_H
#define TIERD_TESTS_POINT_H

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>

#define _mark_point(file, line)                                                    \
	({                                                                         \
		static atomic_bool told_; /* assertions stand in threads, too */   \
                                                                                   \
		if (!atomic_load_explicit(&told_, memory_order_relaxed)) {         \
			atomic_store_explicit(&told_, true, memory_order_relaxed); \
			(_mark_point)(file, line);                                 \
		}                                                                  \
	})

#endif

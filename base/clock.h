/* SPDX-License-Identifier: Apache-2.0
 *
 * The monotonic clock in nanoseconds. Only main programs, lanes and the library read it; engine and
 * policies are handed the time. Any thread.
 */
#ifndef TIERD_BASE_CLOCK_H
#define TIERD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

#endif

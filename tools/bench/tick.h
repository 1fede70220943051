/* SPDX-License-Identifier: Apache-2.0
 *
 * A clock for things of a few nanoseconds: the time stamp counter between fences where there is
 * one. What an empty measurement takes (tick_overhead()) is subtracted by those who use it. Any
 * thread.
 */
#ifndef TIERD_TOOLS_BENCH_TICK_H
#define TIERD_TOOLS_BENCH_TICK_H

#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/hist.h"

static inline uint64_t tick_now(void)
{
#if defined(__x86_64__)
	uint32_t aux;
	uint64_t now;

	__builtin_ia32_lfence();
	now = __builtin_ia32_rdtscp(&aux);
	__builtin_ia32_lfence();
	return now;
#else
	return clock_now_ns();
#endif
}

/* Nanoseconds a tick, measured over 20 ms. */
static inline double tick_ns(void)
{
	uint64_t ns = clock_now_ns(), ticks = tick_now(), end;

	do
		end = clock_now_ns();
	while (end - ns < 20 * NS_PER_MS);
	return (double)(end - ns) / (double)(tick_now() - ticks);
}

/* The median of empty measurements, in ticks. */
static inline uint64_t tick_overhead(void)
{
	static struct hist h;

	hist_init(&h);
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t begin = tick_now();

		hist_record(&h, tick_now() - begin);
	}
	return hist_percentile(&h, 500);
}

#endif

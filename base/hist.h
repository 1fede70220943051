/* SPDX-License-Identifier: Apache-2.0
 *
 * A histogram of latencies (or any u64) in fixed memory: exact below 128, then 64 steps an octave,
 * so that a percentile is at most 1.6 % above the true one. Recording does not allocate, lock or
 * fail. One owning thread; threads keep one each and merge.
 */
#ifndef TIERD_BASE_HIST_H
#define TIERD_BASE_HIST_H

#include <stdint.h>

#define HIST_STEP_BITS 6u
#define HIST_STEPS     (1u << HIST_STEP_BITS)
#define HIST_BUCKETS   ((64 - HIST_STEP_BITS + 1) * HIST_STEPS)

struct hist {
	uint64_t count;
	uint64_t min, max; /* 0 when empty */
	uint64_t buckets[HIST_BUCKETS];
};

void hist_init(struct hist *);
/* Adds what `from` holds; `from` stays as it is. */
void hist_merge(struct hist *to, const struct hist *from);

/* The smallest value that `permille` of the values do not exceed, rounded up to the end of its step
 * and never above the maximum: 500 is the median, 999 the p99.9, 1000 the maximum. 0 when empty. */
uint64_t hist_percentile(const struct hist *, uint32_t permille);

/* Which bucket a value counts in. Values of one octave differ in their top bits only. */
static inline uint32_t hist_bucket(uint64_t value)
{
	uint32_t octave;

	if (value < HIST_STEPS)
		return (uint32_t)value;
	octave = 63 - (uint32_t)__builtin_clzll(value) - HIST_STEP_BITS;
	return octave * HIST_STEPS + (uint32_t)(value >> octave);
}

static inline void hist_record(struct hist *h, uint64_t value)
{
	if (h->count == 0 || value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
	h->count++;
	h->buckets[hist_bucket(value)]++;
}

#endif

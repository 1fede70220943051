/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hist.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
}

void hist_merge(struct hist *to, const struct hist *from)
{
	if (from->count == 0)
		return;
	to->min = to->count == 0 ? from->min : MIN(to->min, from->min);
	to->max = MAX(to->max, from->max);
	to->count += from->count;
	for (uint32_t i = 0; i < HIST_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

/* The largest value that counts in bucket `i`. */
static uint64_t bucket_end(uint32_t i)
{
	uint32_t octave = i < 2 * HIST_STEPS ? 0 : i / HIST_STEPS - 1;
	uint64_t top = i - octave * HIST_STEPS;

	return (top << octave) + ((1ull << octave) - 1);
}

uint64_t hist_percentile(const struct hist *h, uint32_t permille)
{
	uint64_t rank, seen = 0;

	ASSERT(permille <= 1000);
	if (h->count == 0)
		return 0;
	/* Split, so that no count overflows; rounded up, so that it is a value that came. */
	rank = h->count / 1000 * permille + (h->count % 1000 * permille + 999) / 1000;
	rank = MAX(rank, 1);
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen >= rank)
			return MIN(bucket_end(i), h->max);
	}
	ASSERT(seen == h->count && !"the ranks end with the last value");
	return h->max;
}

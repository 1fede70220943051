/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "base/hist.h"

static struct hist h, other;

START_TEST(hist_without_values_says_zero)
{
	hist_init(&h);
	ck_assert_uint_eq(hist_percentile(&h, 0), 0);
	ck_assert_uint_eq(hist_percentile(&h, 999), 0);
}
END_TEST

START_TEST(hist_is_exact_for_small_values)
{
	hist_init(&h);
	for (uint64_t v = 1; v <= 100; v++)
		hist_record(&h, v);
	ck_assert_uint_eq(hist_percentile(&h, 0), 1);
	ck_assert_uint_eq(hist_percentile(&h, 10), 1);
	ck_assert_uint_eq(hist_percentile(&h, 500), 50);
	ck_assert_uint_eq(hist_percentile(&h, 501), 51);
	ck_assert_uint_eq(hist_percentile(&h, 990), 99);
	ck_assert_uint_eq(hist_percentile(&h, 999), 100);
	ck_assert_uint_eq(hist_percentile(&h, 1000), 100);
}
END_TEST

START_TEST(hist_has_a_bucket_for_every_value_and_they_rise)
{
	uint32_t last = 0;

	for (unsigned bit = 0; bit < 64; bit++)
		for (int64_t d = -1; d <= 1; d++) {
			uint64_t v = (1ull << bit) + (uint64_t)d;

			if (d < 0 && bit < 2)
				continue;
			ck_assert_uint_ge(hist_bucket(v), last);
			ck_assert_uint_lt(hist_bucket(v), HIST_BUCKETS);
			last = hist_bucket(v);
		}
	ck_assert_uint_eq(hist_bucket(UINT64_MAX), HIST_BUCKETS - 1);
	hist_init(&h);
	hist_record(&h, UINT64_MAX);
	ck_assert_uint_eq(hist_percentile(&h, 500), UINT64_MAX);
}
END_TEST

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

START_TEST(hist_is_never_below_the_true_percentile_and_little_above)
{
	enum { VALUES = 20000 };
	static uint64_t values[VALUES];
	uint64_t state = 1;

	hist_init(&h);
	for (unsigned i = 0; i < VALUES; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		values[i] = state >> (state >> 58); /* every octave alike */
		hist_record(&h, values[i]);
	}
	qsort(values, VALUES, sizeof(values[0]), compare);
	for (uint32_t permille = 1; permille <= 1000; permille++) {
		uint64_t truth = values[VALUES / 1000 * permille - 1];
		uint64_t got = hist_percentile(&h, permille);

		ck_assert_uint_ge(got, truth);
		ck_assert_uint_le(got - truth, truth / HIST_STEPS);
	}
	ck_assert_uint_eq(h.min, values[0]);
	ck_assert_uint_eq(h.max, values[VALUES - 1]);
}
END_TEST

START_TEST(hist_merged_is_as_if_recorded_in_one)
{
	static struct hist both;

	hist_init(&h);
	hist_init(&other);
	hist_init(&both);
	hist_merge(&h, &other);
	ck_assert_uint_eq(h.count, 0);
	for (uint64_t v = 1; v < 5000; v++) {
		hist_record(v % 3 == 0 ? &h : &other, v * v);
		hist_record(&both, v * v);
	}
	hist_merge(&h, &other);
	ck_assert_mem_eq(&h, &both, sizeof(h));
}
END_TEST

UNIT_MAIN("hist", hist_without_values_says_zero, hist_is_exact_for_small_values,
	  hist_has_a_bucket_for_every_value_and_they_rise,
	  hist_is_never_below_the_true_percentile_and_little_above,
	  hist_merged_is_as_if_recorded_in_one)

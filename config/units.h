/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers with units, as people write them in a configuration. One spelling means one value: what
 * could be read in two ways (64G, 010, 1e9) is refused with the likely spellings. Pure; any thread.
 */
#ifndef TIERD_CONFIG_UNITS_H
#define TIERD_CONFIG_UNITS_H

#include <stdint.h>

/* What is wrong with a value: continues "path: ". */
struct why {
	char text[320];
};

struct unit_scale;
extern const struct unit_scale unit_sizes;     /* bytes */
extern const struct unit_scale unit_rates;     /* bytes a second */
extern const struct unit_scale unit_durations; /* nanoseconds */
extern const struct unit_scale unit_counts;    /* plain numbers */

#define UNIT_TEXT_BYTES 40

struct unit_range {
	uint64_t min, max;
};

/* 0 or -EINVAL with `why`. A fraction is rounded down to the scale's whole steps, never to 0.
 * `range` is not checked: what `why` proposes to write lies in it. NULL: not known. */
int unit_read(const struct unit_scale *scale, const char *text, const struct unit_range *range,
	      uint64_t *ret, struct why *why);
/* In the largest unit of which `value` is a whole number. Returns `ret`. */
const char *unit_format(const struct unit_scale *scale, uint64_t value, char ret[UNIT_TEXT_BYTES]);

/* "92.5%" as 925. At most UINT32_MAX / 10 %; the caller checks its range. */
int unit_read_permille(const char *text, uint32_t *ret, struct why *why);
const char *unit_format_permille(uint32_t permille, char ret[UNIT_TEXT_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program says while and after it trains, one record a line: `kind key=value ...`, or one
 * JSON object a line. One list of calls makes both. One thread.
 */
#ifndef TRAIN_GPT_REPORT_H
#define TRAIN_GPT_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct report {
	FILE *to;
	bool json;
};

void report_begin(const struct report *r, const char *kind);
void report_count(const struct report *r, const char *key, uint64_t value);
void report_real(const struct report *r, const char *key, double value, int decimals);
/* `value` is of the program's own words: nothing in it needs quoting. */
void report_word(const struct report *r, const char *key, const char *value);
void report_end(const struct report *r);

#endif

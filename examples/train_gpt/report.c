/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/report.h"

#include <inttypes.h>
#include <math.h>

static void key_begin(const struct report *r, const char *key)
{
	fprintf(r->to, r->json ? ",\"%s\":" : " %s=", key);
}

void report_begin(const struct report *r, const char *kind)
{
	fprintf(r->to, r->json ? "{\"report\":\"%s\"" : "%s", kind);
}

void report_count(const struct report *r, const char *key, uint64_t value)
{
	key_begin(r, key);
	fprintf(r->to, "%" PRIu64, value);
}

void report_real(const struct report *r, const char *key, double value, int decimals)
{
	key_begin(r, key);
	if (r->json && !isfinite(value)) /* JSON has no word for it */
		fputs("null", r->to);
	else
		fprintf(r->to, "%.*f", decimals, value);
}

void report_word(const struct report *r, const char *key, const char *value)
{
	key_begin(r, key);
	fprintf(r->to, r->json ? "\"%s\"" : "%s", value);
}

void report_end(const struct report *r)
{
	fputs(r->json ? "}\n" : "\n", r->to);
	fflush(r->to);
}

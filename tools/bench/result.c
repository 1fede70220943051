/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdlib.h>

#include "libclient/tierd.h"
#include "tools/bench/bench.h"

void result_begin(struct result *r, const struct bench_options *o, const char *bench)
{
	r->json = o->json;
	printf(r->json ? "{\"bench\":\"%s\"" : "%-8s", bench);
}

void result_count(struct result *r, const char *key, uint64_t value)
{
	printf(r->json ? ",\"%s\":%llu" : "  %s %llu", key, (unsigned long long)value);
}

void result_real(struct result *r, const char *key, double value)
{
	if (r->json)
		printf(",\"%s\":%.10g", key, value);
	else
		printf(value < 1000 ? "  %s %.4g" : "  %s %.0f", key, value);
}

void result_flag(struct result *r, const char *key, bool value)
{
	printf(r->json ? ",\"%s\":%s" : "  %s %s", key, value ? "true" : "false");
}

/* Keys and texts are the benchmarks' own: nothing in them needs an escape. */
void result_text(struct result *r, const char *key, const char *value)
{
	printf(r->json ? ",\"%s\":\"%s\"" : "  %s %s", key, value);
}

void result_end(struct result *r)
{
	puts(r->json ? "}" : "");
	fflush(stdout);
}

void result_note(const struct bench_options *o, const char *fmt, ...)
{
	va_list args;

	if (o->json)
		return;
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static int compare_real(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

double median(double *values, unsigned n)
{
	qsort(values, n, sizeof(*values), compare_real);
	return values[n / 2];
}

int bench_failed(const char *what)
{
	fprintf(stderr, "tierd-bench: %s: %s\n", what, tierd_error(NULL));
	return 1;
}

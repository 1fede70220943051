/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/exposition.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "tiers/tier.h"

enum kind { STATS_GAUGE, STATS_COUNTER, STATS_SINCE };

struct row {
	const char *name, *unit, *help;
	enum kind kind;
	size_t offset;
};

static const struct row scalars[] = {
#define X(name, unit, kind, help) { #name, unit, help, STATS_##kind, offsetof(struct page, name) },
	STATS_SCALARS(X)
#undef X
};
static const struct row per_tier[] = {
#define X(name, unit, kind, help) \
	{ #name, unit, help, STATS_##kind, offsetof(struct page_tier, name) },
	STATS_PER_TIER(X)
#undef X
};
static const struct row per_device[] = {
#define X(name, unit, kind, help) \
	{ #name, unit, help, STATS_##kind, offsetof(struct page_device, name) },
	STATS_PER_DEVICE(X)
#undef X
};

/* Arrays by class have no rows. */
static const struct row per_class[] = {
	{ "class_bytes", "bytes", "valid bytes of the class in the tier", STATS_GAUGE,
	  offsetof(struct page_tier, class_bytes) },
	{ "class_peak_bytes", "bytes", "highest class_bytes since start or the last mark",
	  STATS_GAUGE, offsetof(struct page_tier, class_peak_bytes) },
	{ "at_peak_bytes", "bytes", "class_bytes when the tier was at peak_bytes", STATS_GAUGE,
	  offsetof(struct page_tier, at_peak_bytes) },
};
static const struct row moved = { "moved_bytes", "bytes", "moved from tier to tier", STATS_COUNTER,
				  0 };
static const struct row moves = { "moves", "moves", "ended, from tier to tier", STATS_COUNTER, 0 };
static const struct row class_stall = { "class_stall_ns", "ns",
					"that acquires of the class waited, summed over waiters",
					STATS_COUNTER, 0 };

struct out {
	FILE *to;
	const struct exposition *of;
	size_t n;
};

/* ---- names, labels, numbers ----------------------------------------------------------------- */

static bool in_ns(const struct row *row)
{
	return strcmp(row->unit, "ns") == 0;
}

/* "stall_ns", a counter, is "tierd_stall_seconds_total". */
static void put_name(const struct out *o, const char *group, const struct row *row)
{
	size_t n = strlen(row->name);

	fprintf(o->to, "tierd_%s", group);
	if (in_ns(row) && n > 3 && strcmp(row->name + n - 3, "_ns") == 0)
		fprintf(o->to, "%.*s_seconds", (int)n - 3, row->name);
	else
		fputs(row->name, o->to);
	fputs(row->kind == STATS_COUNTER ? "_total" : "", o->to);
}

static void put_head(const struct out *o, const char *group, const struct row *row)
{
	fputs("# HELP ", o->to);
	put_name(o, group, row);
	fprintf(o->to, " %s\n# TYPE ", row->help);
	put_name(o, group, row);
	fprintf(o->to, " %s\n", row->kind == STATS_COUNTER ? "counter" : "gauge");
}

/* Names are what the configuration says: UTF-8, without control characters. */
static void put_label(const struct out *o, char before, const char *key, const char *value,
		      size_t bytes)
{
	fprintf(o->to, "%c%s=\"", before, key);
	for (size_t i = 0; i < bytes; i++) {
		if (value[i] == '"' || value[i] == '\\')
			fputc('\\', o->to);
		fputc(value[i], o->to);
	}
	fputc('"', o->to);
}

static void put_text_label(const struct out *o, const char *key, const char *value)
{
	put_label(o, ',', key, value, strlen(value));
}

/* The name and the label that each sample has; others and put_value() follow. */
static void put_begin(const struct out *o, const char *group, const struct row *row, size_t i)
{
	put_name(o, group, row);
	put_label(o, '{', "domain", o->of[i].domain, strlen(o->of[i].domain));
}

static void put_value(const struct out *o, const struct row *row, uint64_t value)
{
	if (in_ns(row))
		fprintf(o->to, "} %llu.%09llu\n", (unsigned long long)(value / NS_PER_S),
			(unsigned long long)(value % NS_PER_S));
	else
		fprintf(o->to, "} %" PRIu64 "\n", value);
}

/* Number `i` of the array that begins at the row's offset, 0 where it is no array. */
static uint64_t member(const void *base, const struct row *row, unsigned i)
{
	return ((const uint64_t *)(const void *)((const char *)base + row->offset))[i];
}

/* ---- metrics -------------------------------------------------------------------------------- */

static void put_scalar(const struct out *o, const struct row *row)
{
	put_head(o, "", row);
	for (size_t i = 0; i < o->n; i++) {
		put_begin(o, "", row, i);
		put_value(o, row, member(&o->of[i].page, row, 0));
	}
}

/* Tiers and devices that are not there have no samples. */
static void put_per_tier(const struct out *o, const struct row *row, bool by_class)
{
	put_head(o, "tier_", row);
	for (size_t i = 0; i < o->n; i++)
		for (unsigned t = 0; t < STATS_TIERS; t++) {
			const struct page_tier *tier = &o->of[i].page.tier[t];

			for (unsigned c = 0; c < (by_class ? STATS_CLASSES : 1); c++) {
				if (tier->limit_bytes == 0)
					continue;
				put_begin(o, "tier_", row, i);
				put_text_label(o, "tier", tier_kind_name(t));
				if (by_class)
					put_text_label(o, "class", page_classes[c]);
				put_value(o, row, member(tier, row, c));
			}
		}
}

static void put_per_device(const struct out *o, const struct row *row)
{
	put_head(o, "device_", row);
	for (size_t i = 0; i < o->n; i++)
		for (unsigned d = 0; d < STATS_DEVICES; d++) {
			const struct page *p = &o->of[i].page;

			if (p->device[d].limit_bytes == 0)
				continue;
			put_begin(o, "device_", row, i);
			put_label(o, ',', "device", p->chosen[d], page_device_bytes(p, d));
			put_value(o, row, member(&p->device[d], row, 0));
		}
}

static void put_moved(const struct out *o)
{
	put_head(o, "", &moved);
	for (size_t i = 0; i < o->n; i++)
		for (unsigned from = 0; from < STATS_TIERS; from++)
			for (unsigned to = 0; to < STATS_TIERS; to++) {
				put_begin(o, "", &moved, i);
				put_text_label(o, "from", tier_kind_name(from));
				put_text_label(o, "to", tier_kind_name(to));
				put_value(o, &moved, o->of[i].page.moved_bytes[from][to]);
			}
}

static void put_moves_of(const struct out *o, size_t i, unsigned c)
{
	for (unsigned from = 0; from < STATS_TIERS; from++)
		for (unsigned to = 0; to < STATS_TIERS; to++) {
			put_begin(o, "", &moves, i);
			put_text_label(o, "class", page_classes[c]);
			put_text_label(o, "from", tier_kind_name(from));
			put_text_label(o, "to", tier_kind_name(to));
			put_value(o, &moves, o->of[i].page.moves[c][from][to]);
		}
}

static void put_classes(const struct out *o)
{
	put_head(o, "", &moves);
	for (size_t i = 0; i < o->n; i++)
		for (unsigned c = 0; c < STATS_CLASSES; c++)
			put_moves_of(o, i, c);
	put_head(o, "", &class_stall);
	for (size_t i = 0; i < o->n; i++)
		for (unsigned c = 0; c < STATS_CLASSES; c++) {
			put_begin(o, "", &class_stall, i);
			put_text_label(o, "class", page_classes[c]);
			put_value(o, &class_stall, o->of[i].page.class_stall_ns[c]);
		}
}

void exposition_write(FILE *to, const char *version, const struct exposition *of, size_t n)
{
	const struct out o = { to, of, n };

	fprintf(to,
		"# HELP tierd_build_info 1, with the version as a label\n"
		"# TYPE tierd_build_info gauge\n"
		"tierd_build_info{version=\"%s\"} 1\n",
		version);
	for (size_t i = 0; i < ARRAY_SIZE(scalars); i++)
		put_scalar(&o, &scalars[i]);
	for (size_t i = 0; i < ARRAY_SIZE(per_tier); i++)
		put_per_tier(&o, &per_tier[i], false);
	for (size_t i = 0; i < ARRAY_SIZE(per_class); i++)
		put_per_tier(&o, &per_class[i], true);
	for (size_t i = 0; i < ARRAY_SIZE(per_device); i++)
		put_per_device(&o, &per_device[i]);
	put_moved(&o);
	put_classes(&o);
}

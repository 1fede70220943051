/* SPDX-License-Identifier: Apache-2.0 */
#include "config/value.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "config/suggest.h"
#include "config/text.h"

bool value_is_scalar(enum config_kind kind)
{
	return kind != CONFIG_MAP && kind != CONFIG_LIST && kind != CONFIG_VARIANT;
}

static const struct unit_scale *scale_of(enum config_kind kind)
{
	switch (kind) {
	case CONFIG_COUNT:
		return &unit_counts;
	case CONFIG_DURATION:
		return &unit_durations;
	case CONFIG_RATE:
		return &unit_rates;
	default:
		return &unit_sizes;
	}
}

static void read_limit(const struct unit_scale *scale, const char *limit, uint64_t *ret)
{
	struct why why;

	/* A share sets none. */
	if (limit != NULL)
		(void)unit_read(scale, limit, NULL, ret, &why);
}

static int read_number(const struct config_row *row, const char *text, struct value *ret,
		       struct why *why)
{
	const struct unit_scale *scale = scale_of(row->kind);
	struct unit_range range = { 0, UINT64_MAX };

	if (unit_read(scale, text, NULL, &ret->number, why) == 0)
		return 0;
	/* Once more, to be told what would be right here. */
	read_limit(scale, row->min, &range.min);
	read_limit(scale, row->max, &range.max);
	return unit_read(scale, text, &range, &ret->number, why);
}

static int read_share(const char *text, struct value *ret, struct why *why)
{
	uint32_t permille;
	int res = unit_read_permille(text, &permille, why);

	if (res == 0)
		*ret = (struct value){ .number = permille, .share = true };
	return res;
}

/* 0% would look like "not a share, 0 bytes" in struct config_bytes. */
static int read_bytes(const struct config_row *row, const char *text, struct value *ret,
		      struct why *why)
{
	size_t length = strlen(text);
	int res;

	if (length == 0 || text[length - 1] != '%')
		return read_number(row, text, ret, why);
	res = read_share(text, ret, why);
	if (res == 0 && (ret->number == 0 || ret->number > 1000)) {
		snprintf(why->text, sizeof(why->text), "'%s' is out of range; from 0.1%% to 100%%",
			 text);
		return -EINVAL;
	}
	return res;
}

static int read_bool(const char *text, struct value *ret, struct why *why)
{
	char quoted[TEXT_QUOTE_BYTES];

	ret->number = strcmp(text, "true") == 0;
	if (ret->number == 1 || strcmp(text, "false") == 0)
		return 0;
	snprintf(why->text, sizeof(why->text), "%s is not true or false", text_quote(text, quoted));
	return -EINVAL;
}

static int read_choice(const struct config_row *row, const char *text, struct value *ret,
		       struct why *why)
{
	char quoted[TEXT_QUOTE_BYTES];
	const char *nearest;
	int n;

	ASSERT(row->choices != NULL);
	for (size_t i = 0; row->choices[i] != NULL; i++)
		if (strcmp(row->choices[i], text) == 0) {
			ret->number = i;
			return 0;
		}
	n = snprintf(why->text, sizeof(why->text), "%s is none of", text_quote(text, quoted));
	for (size_t i = 0; row->choices[i] != NULL && n < (int)sizeof(why->text); i++)
		n += snprintf(why->text + n, sizeof(why->text) - (size_t)n, "%s %s",
			      i != 0 ? "," : "", row->choices[i]);
	nearest = suggest_name(row->choices, text);
	if (nearest != NULL && n < (int)sizeof(why->text))
		snprintf(why->text + n, sizeof(why->text) - (size_t)n, "; the nearest is '%s'",
			 nearest);
	return -EINVAL;
}

static int read_text(const struct config_row *row, const char *text, struct value *ret,
		     struct why *why)
{
	char quoted[TEXT_QUOTE_BYTES];

	ret->text = text;
	if (*text == '\0') {
		snprintf(why->text, sizeof(why->text), "is empty");
		return -EINVAL;
	}
	if (row->kind == CONFIG_TEXT)
		return 0;
	if (*text == '/' && strlen(text) < PATH_MAX)
		return 0;
	snprintf(why->text, sizeof(why->text), "%s is %s", text_quote(text, quoted),
		 *text != '/' ? "not an absolute path" : "too long for a path");
	return -EINVAL;
}

int value_read(const struct config_row *row, const char *text, struct value *ret, struct why *why)
{
	ASSERT(value_is_scalar(row->kind));
	*ret = (struct value){ 0 };
	switch (row->kind) {
	case CONFIG_BYTES:
		return read_bytes(row, text, ret, why);
	case CONFIG_PERMILLE:
		return read_share(text, ret, why);
	case CONFIG_BOOL:
		return read_bool(text, ret, why);
	case CONFIG_CHOICE:
		return read_choice(row, text, ret, why);
	case CONFIG_TEXT:
	case CONFIG_PATH:
		return read_text(row, text, ret, why);
	default:
		return read_number(row, text, ret, why);
	}
}

/* `limit` is text of the table, so it must be right. A share and a size do not compare: true. */
static bool within(const struct config_row *row, const struct value *value, const char *limit,
		   bool upper)
{
	struct value edge;
	struct why why;
	int res;

	if (limit == NULL)
		return true;
	res = value_read(row, limit, &edge, &why);
	ASSERT(res == 0);
	if (edge.share != value->share)
		return true;
	return upper ? value->number <= edge.number : value->number >= edge.number;
}

int value_check_range(const struct config_row *row, const struct value *value, struct why *why)
{
	const char *max = row->max;
	char spelled[VALUE_TEXT_BYTES];

	if (value->text != NULL)
		return 0;
	if (row->kind == CONFIG_PERMILLE && max == NULL)
		max = "100%";
	if (within(row, value, row->min, false) && within(row, value, max, true))
		return 0;
	value_format(row, value, spelled);
	if (row->min == NULL || max == NULL)
		snprintf(why->text, sizeof(why->text), "%s is out of range; at %s %s", spelled,
			 max != NULL ? "most" : "least", max != NULL ? max : row->min);
	else
		snprintf(why->text, sizeof(why->text), "%s is out of range; from %s to %s", spelled,
			 row->min, max);
	return -EINVAL;
}

int value_store(const struct config_row *row, const struct value *value, void *member)
{
	char *copy;

	switch (row->kind) {
	case CONFIG_BYTES:
		*(struct config_bytes *)member =
			value->share ? (struct config_bytes){ 0, (uint32_t)value->number }
				     : (struct config_bytes){ value->number, 0 };
		return 0;
	case CONFIG_PERMILLE:
		*(uint32_t *)member = (uint32_t)value->number;
		return 0;
	case CONFIG_BOOL:
		*(bool *)member = value->number != 0;
		return 0;
	case CONFIG_CHOICE:
		*(int *)member = (int)value->number;
		return 0;
	case CONFIG_TEXT:
	case CONFIG_PATH:
		copy = heap_text(value->text);
		*(char **)member = copy;
		return copy != NULL ? 0 : -ENOMEM;
	default:
		*(uint64_t *)member = value->number;
		return 0;
	}
}

struct value value_load(const struct config_row *row, const void *member)
{
	const struct config_bytes *bytes = member;

	switch (row->kind) {
	case CONFIG_BYTES:
		if (bytes->permille != 0)
			return (struct value){ .number = bytes->permille, .share = true };
		return (struct value){ .number = bytes->bytes };
	case CONFIG_PERMILLE:
		return (struct value){ .number = *(const uint32_t *)member, .share = true };
	case CONFIG_BOOL:
		return (struct value){ .number = *(const bool *)member };
	case CONFIG_CHOICE:
		return (struct value){ .number = (uint64_t) * (const int *)member };
	case CONFIG_TEXT:
	case CONFIG_PATH:
		return (struct value){ .text = *(char *const *)member };
	default:
		return (struct value){ .number = *(const uint64_t *)member };
	}
}

bool value_is_zero(const struct value *value)
{
	return value->number == 0 && value->text == NULL;
}

bool value_equal(const struct value *a, const struct value *b)
{
	if (a->text != NULL && b->text != NULL)
		return strcmp(a->text, b->text) == 0;
	return a->text == b->text && a->number == b->number && a->share == b->share;
}

const char *value_format(const struct config_row *row, const struct value *value,
			 char ret[VALUE_TEXT_BYTES])
{
	ASSERT(row->kind != CONFIG_TEXT && row->kind != CONFIG_PATH);
	if (value->share)
		return unit_format_permille((uint32_t)value->number, ret);
	if (row->kind == CONFIG_BOOL)
		return value->number != 0 ? "true" : "false";
	if (row->kind == CONFIG_CHOICE)
		return row->choices[value->number];
	return unit_format(scale_of(row->kind), value->number, ret);
}

void value_spell_bytes(uint64_t bytes, char *ret, size_t room)
{
	snprintf(ret, room, "%" PRIu64 " bytes = %.2f GiB", bytes, (double)bytes / (double)GIB(1));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <string.h>

#include "base/check.h"
#include "config/value.h"

enum {
	PATH_BYTES = 128,
	SUBS_MAX = 64,
};

/* Where a sub-table was printed, so that the second key with it only points there. */
struct printed {
	const struct config_sub *sub;
	char path[PATH_BYTES];
};

struct reference {
	FILE *to;
	struct printed printed[SUBS_MAX];
	unsigned count;
};

static const char units_text[] =
	"A configuration is one YAML document: maps, lists and values, UTF-8, at most 1 MiB, "
	"nested at most\n"
	"32 deep, at most 8192 keys and values. Quoted and unquoted values mean the same. Anchors "
	"and aliases\n"
	"are taken (at most 64 anchors, what they stand for counts); tags, directives, merge keys "
	"(`<<`), a\n"
	"second document, keys that stand twice, unknown keys and empty values are refused with "
	"their line and\n"
	"column. An empty file stands for an empty map. A byte order mark and CR LF are ignored.\n"
	"\n"
	"| kind | is written as |\n"
	"| --- | --- |\n"
	"| size | a number with `B KB MB GB TB` (powers of 1000) or `KiB MiB GiB TiB` (powers of "
	"1024), as"
	" `64GiB`, `1.5 GB`; at most 2^63-1 bytes; a fraction is rounded down to whole bytes |\n"
	"| size or share | a size, or `%` of the device or tier, as `40%` |\n"
	"| share | a number with `%` and at most one digit after the point, as `92.5%` |\n"
	"| rate | a size with `/s`, as `2GB/s` |\n"
	"| time | a number with `ns us ms s min h`, as `30s` |\n"
	"| number | digits, or digits with `Ki Mi Gi` (powers of 1024), as `4Mi` |\n"
	"| yes or no | `true` or `false` |\n"
	"| path | an absolute path |\n"
	"\n"
	"What could be read in two ways is refused with the likely spellings: `64G`, `64gb`, `64` "
	"for a size,\n"
	"`1e9`, `010`, `0x10`, `1_000`, `5m`.\n";

void config_reference_units(FILE *to)
{
	fputs(units_text, to);
}

static const char *kind_name(enum config_kind kind)
{
	static const char *const names[] = {
		[CONFIG_BYTES] = "size or share", [CONFIG_SIZE] = "size",
		[CONFIG_COUNT] = "number",        [CONFIG_PERMILLE] = "share",
		[CONFIG_DURATION] = "time",       [CONFIG_RATE] = "rate",
		[CONFIG_BOOL] = "yes or no",      [CONFIG_TEXT] = "text",
		[CONFIG_PATH] = "path",           [CONFIG_MAP] = "map",
		[CONFIG_LIST] = "list",           [CONFIG_VARIANT] = "map",
	};

	return names[kind];
}

static void reference_rows(struct reference *r, const struct config_row *rows, const char *parent);

/* A bar would end the cell. */
static void put_cell(FILE *to, const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text == '|')
			fputc('\\', to);
		fputc(*text, to);
	}
}

static void put_kind(const struct config_row *row, FILE *to)
{
	if (row->kind != CONFIG_CHOICE) {
		fputs(kind_name(row->kind), to);
		return;
	}
	for (size_t i = 0; row->choices[i] != NULL; i++)
		fprintf(to, "%s`%s`", i != 0 ? ", " : "", row->choices[i]);
}

static void put_default(const struct config_row *row, FILE *to)
{
	if (row->flags & CONFIG_REQUIRED)
		fputs("required", to);
	else if (row->default_text != NULL)
		fprintf(to, "`%s`", row->default_text);
	else if (value_is_scalar(row->kind) || (row->flags & CONFIG_OPTIONAL))
		fputs("not set", to);
	else if (row->kind == CONFIG_LIST)
		fputs("empty", to);
}

static void put_range(const struct config_row *row, FILE *to)
{
	const char *max = row->max;

	if (max == NULL && row->kind == CONFIG_PERMILLE)
		max = "100%";
	if (row->min != NULL && max != NULL)
		fprintf(to, "%s to %s", row->min, max);
	else if (row->min != NULL)
		fprintf(to, "at least %s", row->min);
	else if (max != NULL)
		fprintf(to, "at most %s", max);
	if (row->kind == CONFIG_LIST && (row->min != NULL || max != NULL))
		fputs(" items", to);
}

static void put_line(const char *path, const struct config_row *row, FILE *to)
{
	fprintf(to, "| `%s` | ", path);
	put_kind(row, to);
	fputs(" | ", to);
	put_default(row, to);
	fputs(" | ", to);
	put_range(row, to);
	fputs(" | ", to);
	put_cell(to, row->help != NULL ? row->help : "");
	if (row->kind == CONFIG_LIST && row->sub->scalar_key != NULL)
		fprintf(to,
			" An item that is no map stands for its `%s`, and needs no list "
			"where it is alone.",
			row->sub->scalar_key);
	fputs(" |\n", to);
}

static void put_selector(const struct config_sub *sub, const char *path, FILE *to)
{
	struct config_choice choice;

	fprintf(to, "| `%s.%s` | ", path, sub->selector);
	for (size_t i = 0; sub->variant(i, &choice); i++)
		fprintf(to, "%s`%s`", i != 0 ? ", " : "", choice.name);
	fprintf(to, " | %s%s%s | | ", sub->selector_default != NULL ? "`" : "",
		sub->selector_default != NULL ? sub->selector_default : "required",
		sub->selector_default != NULL ? "`" : "");
	for (size_t i = 0; sub->variant(i, &choice); i++) {
		fprintf(to, "%s`%s`: ", i != 0 ? " " : "", choice.name);
		put_cell(to, choice.help != NULL ? choice.help : "");
	}
	fputs(" |\n", to);
}

static void reference_variant(struct reference *r, const struct config_sub *sub, const char *path)
{
	struct config_choice choice;
	char parent[PATH_BYTES];
	int n;

	put_selector(sub, path, r->to);
	if (sub->rows != NULL)
		reference_rows(r, sub->rows, path);
	for (size_t i = 0; sub->variant(i, &choice); i++) {
		n = snprintf(parent, sizeof(parent), "%s(%s)", path, choice.name);
		ASSERT(n > 0 && n < PATH_BYTES);
		if (choice.rows != NULL)
			reference_rows(r, choice.rows, parent);
	}
}

/* The path below which `sub` was printed before, or NULL the first time. */
static const char *remember(struct reference *r, const struct config_sub *sub, const char *path)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->printed[i].sub == sub)
			return r->printed[i].path;
	ASSERT(r->count < SUBS_MAX);
	r->printed[r->count].sub = sub;
	snprintf(r->printed[r->count++].path, PATH_BYTES, "%s", path);
	return NULL;
}

static void reference_sub(struct reference *r, const struct config_row *row, const char *path)
{
	const char *before = remember(r, row->sub, path);

	if (before != NULL)
		fprintf(r->to, "| `%s.*` | | | | as `%s.*` |\n", path, before);
	else if (row->kind == CONFIG_VARIANT)
		reference_variant(r, row->sub, path);
	else
		reference_rows(r, row->sub->rows, path);
}

static void reference_rows(struct reference *r, const struct config_row *rows, const char *parent)
{
	char path[PATH_BYTES];
	int n;

	for (; rows->key != NULL; rows++) {
		if (rows->flags & CONFIG_HIDDEN)
			continue;
		n = snprintf(path, sizeof(path), "%s%s%s%s", parent, *parent != '\0' ? "." : "",
			     rows->key, rows->kind == CONFIG_LIST ? "[]" : "");
		ASSERT(n > 0 && n < PATH_BYTES);
		put_line(path, rows, r->to);
		if (rows->sub != NULL)
			reference_sub(r, rows, path);
	}
}

void config_reference(const struct config_row *rows, FILE *to)
{
	struct reference r = { .to = to };

	fputs("`a.b` is the key `b` in the map `a`, `a[].b` the key `b` of each item of the list\n"
	      "`a`, and `a(c).b` a key that is there when the map `a` chooses `c`.\n\n"
	      "| key | kind | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
	      to);
	reference_rows(&r, rows, "");
}

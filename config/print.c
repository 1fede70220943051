/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <string.h>

#include "base/check.h"
#include "config/value.h"

/* Where the next key goes: `indent` spaces, but behind "- " at the first key of an item. */
struct printer {
	FILE *to;
	unsigned indent;
	bool item;
};

static void print_rows(struct printer *p, const struct config_row *rows, const void *base);

static void begin_line(struct printer *p)
{
	if (p->item)
		fprintf(p->to, "%*s- ", (int)p->indent - 2, "");
	else
		fprintf(p->to, "%*s", (int)p->indent, "");
	p->item = false;
}

static bool is_plain(const char *text)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		"_./-";

	return *text != '\0' && *text != '-' && *text != '.' && text[strspn(text, letters)] == '\0';
}

/* Control characters cannot stand in a loaded text, so two escapes are all there are. */
static void print_text(FILE *to, const char *text)
{
	if (is_plain(text)) {
		fputs(text, to);
		return;
	}
	fputc('"', to);
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', to);
		fputc(*text, to);
	}
	fputc('"', to);
}

static bool is_default(const struct config_row *row, const struct value *value)
{
	struct value preset;
	struct why why;
	int res;

	if (row->default_text == NULL)
		return false;
	res = value_read(row, row->default_text, &preset, &why);
	ASSERT(res == 0);
	return value_equal(&preset, value);
}

/* "# 64000000000 bytes = 59.60 GiB, default" */
static void print_comment(FILE *to, const struct config_row *row, const struct value *value)
{
	bool preset = is_default(row, value);
	bool size = (row->kind == CONFIG_SIZE || row->kind == CONFIG_BYTES) && !value->share;
	char spelled[64];

	value_spell_bytes(value->number, spelled, sizeof(spelled));
	if (size)
		fprintf(to, "  # %s", spelled);
	if (preset)
		fputs(size ? ", default" : "  # default", to);
	fputc('\n', to);
}

static void print_value(FILE *to, const struct config_row *row, const struct value *value)
{
	char spelled[VALUE_TEXT_BYTES];

	if (value->text != NULL)
		print_text(to, value->text);
	else if (is_default(row, value)) /* in the words of the reference: 60s, not 1min */
		fputs(row->default_text, to);
	else
		fputs(value_format(row, value, spelled), to);
	print_comment(to, row, value);
}

/* Not set: zero, and neither the default nor the text could have said so. */
static bool is_unset(const struct config_row *row, const struct value *value)
{
	if (!value_is_zero(value))
		return false;
	return row->kind == CONFIG_TEXT || row->kind == CONFIG_PATH ||
	       (row->default_text == NULL && !(row->flags & CONFIG_REQUIRED));
}

static bool is_absent(const struct config_row *row, const void *member)
{
	struct value value;

	if (row->kind == CONFIG_MAP)
		return (row->flags & CONFIG_OPTIONAL) &&
		       !((const struct config_presence *)member)->present;
	if (row->kind == CONFIG_VARIANT)
		return ((const struct config_variant *)member)->config == NULL;
	if (row->kind == CONFIG_LIST)
		return false;
	value = value_load(row, member);
	return is_unset(row, &value) || ((row->flags & CONFIG_HIDDEN) && is_default(row, &value));
}

static bool has_rows(const struct config_row *rows, const void *base)
{
	for (; rows != NULL && rows->key != NULL; rows++)
		if (!is_absent(rows, (const char *)base + rows->offset))
			return true;
	return false;
}

/* A map without keys must be written {}: nothing at all is no map. */
static void print_map(struct printer *p, const struct config_row *rows, const void *base)
{
	struct printer inner = { p->to, p->indent + 2, false };

	if (!has_rows(rows, base)) {
		fputs(" {}\n", p->to);
		return;
	}
	fputc('\n', p->to);
	print_rows(&inner, rows, base);
}

static void print_item(struct printer *p, const struct config_sub *sub, const void *item)
{
	struct printer inner = { p->to, p->indent + 4, true };
	const struct config_row *only = sub->rows;

	if (sub->scalar_key != NULL && only[1].key == NULL && value_is_scalar(only->kind)) {
		struct value value = value_load(only, (const char *)item + only->offset);

		begin_line(&inner);
		print_value(p->to, only, &value);
	} else if (!has_rows(sub->rows, item)) {
		begin_line(&inner);
		fputs("{}\n", p->to);
	} else {
		print_rows(&inner, sub->rows, item);
	}
}

static void print_list(struct printer *p, const struct config_sub *sub,
		       const struct config_list *list)
{
	fputs(list->count == 0 ? " []\n" : "\n", p->to);
	for (size_t i = 0; i < list->count; i++)
		print_item(p, sub, (const char *)list->items + i * sub->size);
}

static void print_variant(struct printer *p, const struct config_sub *sub,
			  const struct config_variant *variant)
{
	struct printer inner = { p->to, p->indent + 2, false };
	struct config_choice choice;
	bool known = sub->variant((size_t)variant->choice, &choice);

	ASSERT(known);
	fputc('\n', p->to);
	begin_line(&inner);
	fprintf(p->to, "%s: %s%s\n", sub->selector, choice.name,
		sub->selector_default != NULL && strcmp(sub->selector_default, choice.name) == 0
			? "  # default"
			: "");
	if (choice.rows != NULL)
		print_rows(&inner, choice.rows, variant->config);
	if (sub->rows != NULL)
		print_rows(&inner, sub->rows, variant);
}

static void print_row(struct printer *p, const struct config_row *row, const void *member)
{
	struct value value;

	begin_line(p);
	fprintf(p->to, "%s:", row->key);
	switch (row->kind) {
	case CONFIG_MAP:
		print_map(p, row->sub->rows, member);
		return;
	case CONFIG_LIST:
		print_list(p, row->sub, member);
		return;
	case CONFIG_VARIANT:
		print_variant(p, row->sub, member);
		return;
	default:
		value = value_load(row, member);
		fputc(' ', p->to);
		print_value(p->to, row, &value);
	}
}

static void print_rows(struct printer *p, const struct config_row *rows, const void *base)
{
	for (; rows->key != NULL; rows++) {
		const void *member = (const char *)base + rows->offset;

		if (!is_absent(rows, member))
			print_row(p, rows, member);
		else if (!(rows->flags & CONFIG_HIDDEN) && !p->item)
			fprintf(p->to, "%*s# %s: not set\n", (int)p->indent, "", rows->key);
	}
}

void config_print(const struct config_row *rows, const void *filled, FILE *to)
{
	struct printer p = { to, 0, false };

	print_rows(&p, rows, filled);
}

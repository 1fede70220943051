/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a table keeps its own contract. Tables are code, so a mistake is found by `make check`
 * and never by a user.
 */
#include "config/config.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>

#include "base/compiler.h"
#include "config/value.h"

enum {
	DEPTH_MAX = 16,
	PATH_BYTES = 128,
};

/* A table and the struct it fills. */
struct table {
	const struct config_row *rows;
	size_t size;
	const char *path;
	unsigned depth;
};

static int check_table(const struct table *t, struct err *err);

static int fail(const char *path, struct err *err, const char *what)
{
	return err_set(err, EINVAL, "%s: %s", path, what);
}

static size_t member_bytes(enum config_kind kind)
{
	switch (kind) {
	case CONFIG_BYTES:
		return sizeof(struct config_bytes);
	case CONFIG_PERMILLE:
		return sizeof(uint32_t);
	case CONFIG_BOOL:
		return sizeof(bool);
	case CONFIG_CHOICE:
		return sizeof(int);
	case CONFIG_LIST:
		return sizeof(struct config_list);
	case CONFIG_TEXT:
	case CONFIG_PATH:
		return sizeof(char *);
	default:
		return sizeof(uint64_t);
	}
}

static size_t member_alignment(enum config_kind kind)
{
	switch (kind) {
	case CONFIG_PERMILLE:
	case CONFIG_CHOICE:
		return alignof(uint32_t);
	case CONFIG_BOOL:
	case CONFIG_MAP: /* as its own members need it */
		return 1;
	default:
		return alignof(uint64_t);
	}
}

static size_t row_bytes(const struct config_row *row)
{
	bool nested = row->kind == CONFIG_MAP || row->kind == CONFIG_VARIANT;

	return nested ? row->sub->size : member_bytes(row->kind);
}

/* Default, min and max are read as a user's text would be. */
static int check_text(const struct config_row *row, const char *text, bool in_range,
		      const char *path, struct err *err)
{
	struct value value;
	struct why why;
	int res;

	if (text == NULL)
		return 0;
	res = value_read(row, text, &value, &why);
	if (res == 0 && in_range)
		res = value_check_range(row, &value, &why);
	return res == 0 ? 0 : err_set(err, EINVAL, "%s: the table says %s", path, why.text);
}

static int check_scalar(const struct config_row *row, const char *path, struct err *err)
{
	int res;

	if (row->sub != NULL || (row->flags & CONFIG_OPTIONAL))
		return fail(path, err, "a scalar with sub or OPTIONAL");
	if ((row->kind == CONFIG_CHOICE) != (row->choices != NULL))
		return fail(path, err, "choices belong to a CHOICE");
	if (row->default_text != NULL && (row->flags & CONFIG_REQUIRED))
		return fail(path, err, "REQUIRED with a default");
	res = check_text(row, row->min, false, path, err);
	if (res == 0)
		res = check_text(row, row->max, false, path, err);
	return res == 0 ? check_text(row, row->default_text, true, path, err) : res;
}

static const struct config_row *find_row(const struct config_row *rows, const char *key)
{
	for (; rows != NULL && rows->key != NULL; rows++)
		if (strcmp(rows->key, key) == 0)
			return rows;
	return NULL;
}

static int check_sub_table(const struct config_row *rows, size_t size, const char *path,
			   unsigned depth, struct err *err)
{
	struct table inner = { rows, size, path, depth + 1 };

	return rows != NULL ? check_table(&inner, err) : 0;
}

static int check_choice(const struct config_sub *sub, const struct config_choice *choice,
			const char *path, unsigned depth, struct err *err)
{
	for (const struct config_row *row = choice->rows; row != NULL && row->key != NULL; row++)
		if (strcmp(row->key, sub->selector) == 0 || find_row(sub->rows, row->key) != NULL)
			return fail(path, err, "a key of a choice stands beside it too");
	return check_sub_table(choice->rows, choice->size, path, depth, err);
}

static int check_variant(const struct config_sub *sub, const char *path, unsigned depth,
			 struct err *err)
{
	bool found = sub->selector_default == NULL;
	struct config_choice choice;
	int res;

	if (sub->selector == NULL || sub->variant == NULL ||
	    sub->size < sizeof(struct config_variant))
		return fail(path, err,
			    "a VARIANT needs selector, variant and a struct config_variant");
	res = check_sub_table(sub->rows, sub->size, path, depth, err);
	for (size_t i = 0; res == 0 && sub->variant(i, &choice); i++) {
		found = found || strcmp(choice.name, sub->selector_default) == 0;
		res = check_choice(sub, &choice, path, depth, err);
	}
	return res == 0 && !found ? fail(path, err, "the selector's default is no choice") : res;
}

static int check_nested(const struct config_row *row, const char *path, unsigned depth,
			struct err *err)
{
	const struct config_row *scalar;

	if (row->default_text != NULL || row->choices != NULL)
		return fail(path, err, "a MAP, LIST or VARIANT has no default or choices");
	if ((row->flags & CONFIG_REQUIRED) && (row->flags & CONFIG_OPTIONAL))
		return fail(path, err, "REQUIRED and OPTIONAL");
	if (row->kind == CONFIG_VARIANT)
		return check_variant(row->sub, path, depth, err);
	if (row->sub->rows == NULL || row->sub->size == 0)
		return fail(path, err, "a MAP or LIST needs rows and a size");
	if (row->sub->scalar_key != NULL) {
		scalar = find_row(row->sub->rows, row->sub->scalar_key);
		if (scalar == NULL || !value_is_scalar(scalar->kind))
			return fail(path, err, "scalar_key names no scalar");
	}
	return check_sub_table(row->sub->rows, row->sub->size, path, depth, err);
}

static int check_row(const struct table *t, const struct config_row *row, const char *path,
		     struct err *err)
{
	bool scalar = value_is_scalar(row->kind);

	if (row->kind == CONFIG_END_KIND || row->help == NULL || *row->help == '\0')
		return fail(path, err, "needs a kind and a help");
	if (find_row(t->rows, row->key) != row)
		return fail(path, err, "the key stands twice");
	if (!scalar && row->sub == NULL)
		return fail(path, err, "a MAP, LIST or VARIANT needs a sub");
	if (row->offset + row_bytes(row) > t->size)
		return fail(path, err, "the member ends behind its struct");
	if (row->offset % member_alignment(row->kind) != 0)
		return fail(path, err, "the offset is not that of such a member");
	return scalar ? check_scalar(row, path, err) : check_nested(row, path, t->depth, err);
}

static int check_table(const struct table *t, struct err *err)
{
	char path[PATH_BYTES];
	int res = 0, n;

	if (t->depth > DEPTH_MAX)
		return fail(t->path, err, "tables inside tables without end");
	for (const struct config_row *row = t->rows; res == 0 && row->key != NULL; row++) {
		n = snprintf(path, sizeof(path), "%s%s%s", t->path, *t->path != '\0' ? "." : "",
			     row->key);
		if (n < 0 || n >= PATH_BYTES)
			return fail(t->path, err, "the path of a key is too long");
		res = check_row(t, row, path, err);
	}
	return res;
}

int config_check_rows(const struct config_row *rows, size_t size, struct err *err)
{
	struct table root = { rows, size, "", 0 };

	return check_table(&root, err);
}

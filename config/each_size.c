/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "base/check.h"
#include "config/value.h"

enum {
	PATH_BYTES = 256,
	TEXT_BYTES = 64,
};

/* Who is told, and the place in the tree. */
struct walk {
	void (*say)(void *ctx, const char *path, const char *text);
	void *ctx;
};

static void walk_rows(const struct walk *w, const struct config_row *rows, const void *base,
		      const char *parent);

static void walk_list(const struct walk *w, const struct config_sub *sub,
		      const struct config_list *list, const char *path)
{
	char item[PATH_BYTES];

	for (size_t i = 0; i < list->count; i++) {
		int n = snprintf(item, sizeof(item), "%s[%zu]", path, i);

		ASSERT(n > 0 && n < PATH_BYTES);
		walk_rows(w, sub->rows, (const char *)list->items + i * sub->size, item);
	}
}

static void walk_variant(const struct walk *w, const struct config_sub *sub,
			 const struct config_variant *variant, const char *path)
{
	struct config_choice choice;

	if (variant->config == NULL)
		return;
	if (sub->variant((size_t)variant->choice, &choice) && choice.rows != NULL)
		walk_rows(w, choice.rows, variant->config, path);
	if (sub->rows != NULL)
		walk_rows(w, sub->rows, variant, path);
}

static void walk_size(const struct walk *w, const struct config_row *row, const void *member,
		      const char *path)
{
	struct value value = value_load(row, member);
	char text[TEXT_BYTES];

	if (value_is_zero(&value))
		return;
	if (value.share)
		unit_format_permille((uint32_t)value.number, text);
	else
		value_spell_bytes(value.number, text, sizeof(text));
	w->say(w->ctx, path, text);
}

static void walk_rows(const struct walk *w, const struct config_row *rows, const void *base,
		      const char *parent)
{
	char path[PATH_BYTES];

	for (; rows->key != NULL; rows++) {
		const void *member = (const char *)base + rows->offset;
		int n = snprintf(path, sizeof(path), "%s%s%s", parent, *parent != '\0' ? "." : "",
				 rows->key);

		ASSERT(n > 0 && n < PATH_BYTES);
		if (rows->kind == CONFIG_MAP)
			walk_rows(w, rows->sub->rows, member, path);
		else if (rows->kind == CONFIG_LIST)
			walk_list(w, rows->sub, member, path);
		else if (rows->kind == CONFIG_VARIANT)
			walk_variant(w, rows->sub, member, path);
		else if (rows->kind == CONFIG_SIZE || rows->kind == CONFIG_BYTES)
			walk_size(w, rows, member, path);
	}
}

void config_each_size(const struct config_row *rows, const void *filled,
		      void (*say)(void *ctx, const char *path, const char *text), void *ctx)
{
	struct walk w = { say, ctx };

	walk_rows(&w, rows, filled, "");
}

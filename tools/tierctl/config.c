/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl config check, show and reference: the daemon's own rows, without a daemon. The JSON form
 * of a configuration is YAML as well and loads to the same.
 */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "config/value.h"
#include "daemon/settings.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/json.h"

#define PATH_BYTES 160

static int load(const struct arguments *a, struct settings *ret)
{
	struct err err = ERR_INIT;
	int rc = settings_load(a->operand, ret, &err);

	return rc < 0 ? command_failed(a, rc, err.text) : STATUS_OK;
}

int config_check_run(const struct arguments *a)
{
	struct json j = { stdout, false };
	struct settings settings;
	int status = load(a, &settings);

	if (status != STATUS_OK)
		return status;
	settings_free(&settings);
	if (a->json == NULL) {
		json_plain(stdout, a->operand, strlen(a->operand));
		fputs(": valid\n", stdout);
		return STATUS_OK;
	}
	json_open(&j, NULL, '{');
	json_name(&j, "file", a->operand, strlen(a->operand));
	json_bool(&j, "valid", true);
	json_close(&j, '}');
	json_end(&j);
	return STATUS_OK;
}

static void put_rows(struct json *j, const struct config_row *rows, const void *base);

static void put_scalar(struct json *j, const struct config_row *row, const void *member)
{
	struct value value = value_load(row, member);
	char spelled[VALUE_TEXT_BYTES];

	/* Zero and not the default: it was not given and has none. */
	if (value_is_zero(&value) && row->default_text == NULL)
		return;
	if (row->kind == CONFIG_BOOL)
		json_bool(j, row->key, value.number != 0);
	else if (row->kind == CONFIG_TEXT || row->kind == CONFIG_PATH)
		json_text(j, row->key, value.text); /* loaded: UTF-8, no control characters */
	else
		json_text(j, row->key, value_format(row, &value, spelled));
}

static void put_variant(struct json *j, const struct config_row *row,
			const struct config_variant *variant)
{
	struct config_choice choice;
	bool known;

	if (variant->config == NULL)
		return;
	known = row->sub->variant((size_t)variant->choice, &choice);
	ASSERT(known);
	json_open(j, row->key, '{');
	json_text(j, row->sub->selector, choice.name);
	if (choice.rows != NULL)
		put_rows(j, choice.rows, variant->config);
	if (row->sub->rows != NULL)
		put_rows(j, row->sub->rows, variant);
	json_close(j, '}');
}

static void put_list(struct json *j, const struct config_row *row, const struct config_list *list)
{
	json_open(j, row->key, '[');
	for (size_t i = 0; i < list->count; i++) {
		json_open(j, NULL, '{');
		put_rows(j, row->sub->rows, (const char *)list->items + i * row->sub->size);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void put_map(struct json *j, const struct config_row *row, const void *member)
{
	if ((row->flags & CONFIG_OPTIONAL) && !((const struct config_presence *)member)->present)
		return;
	json_open(j, row->key, '{');
	put_rows(j, row->sub->rows, member);
	json_close(j, '}');
}

static void put_rows(struct json *j, const struct config_row *rows, const void *base)
{
	for (; rows->key != NULL; rows++) {
		const void *member = (const char *)base + rows->offset;

		switch (rows->kind) {
		case CONFIG_MAP:
			put_map(j, rows, member);
			break;
		case CONFIG_LIST:
			put_list(j, rows, member);
			break;
		case CONFIG_VARIANT:
			put_variant(j, rows, member);
			break;
		default:
			put_scalar(j, rows, member);
		}
	}
}

int config_show_run(const struct arguments *a)
{
	struct json j = { stdout, false };
	struct settings settings;
	int status = load(a, &settings);

	if (status != STATUS_OK)
		return status;
	if (a->json == NULL) {
		config_print(settings_rows, &settings, stdout);
	} else {
		json_open(&j, NULL, '{');
		put_rows(&j, settings_rows, &settings);
		json_close(&j, '}');
		json_end(&j);
	}
	settings_free(&settings);
	return STATUS_OK;
}

static void put_optional(struct json *j, const char *key, const char *text)
{
	if (text != NULL)
		json_text(j, key, text);
	else
		json_null(j, key);
}

static const char *kind_name(const struct config_row *row)
{
	static const char *const names[] = {
		[CONFIG_BYTES] = "size or share",
		[CONFIG_SIZE] = "size",
		[CONFIG_COUNT] = "number",
		[CONFIG_PERMILLE] = "share",
		[CONFIG_DURATION] = "time",
		[CONFIG_RATE] = "rate",
		[CONFIG_BOOL] = "yes or no",
		[CONFIG_CHOICE] = "choice",
		[CONFIG_TEXT] = "text",
		[CONFIG_PATH] = "path",
		[CONFIG_MAP] = "map",
		[CONFIG_LIST] = "list",
		[CONFIG_VARIANT] = "map",
	};

	ASSERT(row->kind < ARRAY_SIZE(names) && names[row->kind] != NULL);
	return names[row->kind];
}

static void put_key(struct json *j, const char *path, const struct config_row *row)
{
	json_open(j, NULL, '{');
	json_text(j, "key", path);
	json_text(j, "kind", kind_name(row));
	json_bool(j, "required", row->flags & CONFIG_REQUIRED);
	put_optional(j, "default", row->default_text);
	put_optional(j, "min", row->min);
	put_optional(j, "max", row->max);
	if (row->kind == CONFIG_CHOICE) {
		json_open(j, "choices", '[');
		for (size_t i = 0; row->choices[i] != NULL; i++)
			json_text(j, NULL, row->choices[i]);
		json_close(j, ']');
	}
	put_optional(j, "help", row->help);
	json_close(j, '}');
	json_end(j);
}

static void reference_rows(struct json *j, const char *parent, const struct config_row *rows);

static void put_selector(struct json *j, const char *path, const struct config_sub *sub)
{
	struct config_choice choice;

	json_open(j, NULL, '{');
	json_text(j, "key", path);
	json_text(j, "kind", "choice");
	json_bool(j, "required", sub->selector_default == NULL);
	put_optional(j, "default", sub->selector_default);
	json_open(j, "choices", '[');
	for (size_t i = 0; sub->variant(i, &choice); i++)
		json_text(j, NULL, choice.name);
	json_close(j, ']');
	json_close(j, '}');
	json_end(j);
}

static void reference_variant(struct json *j, const char *path, const struct config_sub *sub)
{
	struct config_choice choice;
	char inner[PATH_BYTES];
	int n = snprintf(inner, sizeof(inner), "%s.%s", path, sub->selector);

	ASSERT(n > 0 && n < PATH_BYTES);
	put_selector(j, inner, sub);
	if (sub->rows != NULL)
		reference_rows(j, path, sub->rows);
	for (size_t i = 0; sub->variant(i, &choice); i++) {
		n = snprintf(inner, sizeof(inner), "%s(%s)", path, choice.name);
		ASSERT(n > 0 && n < PATH_BYTES);
		if (choice.rows != NULL)
			reference_rows(j, inner, choice.rows);
	}
}

static void reference_rows(struct json *j, const char *parent, const struct config_row *rows)
{
	char path[PATH_BYTES];
	int n;

	for (; rows->key != NULL; rows++) {
		if (rows->flags & CONFIG_HIDDEN)
			continue;
		n = snprintf(path, sizeof(path), "%s%s%s%s", parent, *parent != '\0' ? "." : "",
			     rows->key, rows->kind == CONFIG_LIST ? "[]" : "");
		ASSERT(n > 0 && n < PATH_BYTES);
		put_key(j, path, rows);
		if (rows->kind == CONFIG_VARIANT)
			reference_variant(j, path, rows->sub);
		else if (rows->sub != NULL)
			reference_rows(j, path, rows->sub->rows);
	}
}

int config_reference_run(const struct arguments *a)
{
	struct json j = { stdout, false };

	if (a->json != NULL) {
		reference_rows(&j, "", settings_rows);
		return STATUS_OK;
	}
	fputs("# Configuration\n\nThis page is printed by `tierctl config reference`; `make docs` "
	      "writes it anew.\n\n",
	      stdout);
	settings_reference(stdout);
	return STATUS_OK;
}

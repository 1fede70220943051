/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "config/document.h"
#include "config/suggest.h"
#include "config/text.h"
#include "config/value.h"

enum {
	PATH_BYTES = 256,
	SUGGESTION_BYTES = 256,
	CHOICES_MAX = 32, /* of one variant */
};

struct fill {
	const char *name; /* of the text */
	const struct config_row *root;
	struct err *err;
	char path[PATH_BYTES]; /* of the key that is being filled */
	size_t path_used;
};

/* The structs that one map fills: tables and where their offsets begin. */
struct target {
	struct shape shape;
	void *bases[2];
	const char *selector_value; /* for messages */
};

static int fill_map(struct fill *f, const struct target *target, const struct node *map);
static int fill_row(struct fill *f, const struct config_row *row, const struct node *node,
		    void *member);

static int fill_fail(struct fill *f, struct place at, const char *fmt, ...) PRINTF(3, 4);
static int fill_fail(struct fill *f, struct place at, const char *fmt, ...)
{
	char what[ERR_TEXT_BYTES];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	return err_set(f->err, EINVAL, "%s:%u:%u: %s%s%s", f->name, at.line, at.column, f->path,
		       *f->path != '\0' ? ": " : "", what);
}

static int fill_fail_memory(struct fill *f)
{
	return err_set(f->err, ENOMEM, "%s: no memory for %s", f->name, f->path);
}

/* Goes one key or item down in the path; the result goes to path_up(). */
static size_t path_down(struct fill *f, const char *key, size_t item)
{
	size_t was = f->path_used, room = PATH_BYTES - was;
	int n;

	if (key == NULL)
		n = snprintf(f->path + was, room, "[%zu]", item);
	else
		n = snprintf(f->path + was, room, "%s%s", was != 0 ? "." : "", key);
	f->path_used = MIN(was + (size_t)n, PATH_BYTES - 1);
	return was;
}

static void path_up(struct fill *f, size_t was)
{
	f->path_used = was;
	f->path[was] = '\0';
}

static const char *kind_wanted(enum node_kind kind)
{
	static const char *const names[] = {
		[NODE_SCALAR] = "a single value",
		[NODE_MAP] = "a map of keys",
		[NODE_LIST] = "a list",
	};

	return names[kind];
}

/* "a:1" is a text; people mean a map. */
static int check_kind(struct fill *f, const struct node *node, enum node_kind want)
{
	char quoted[TEXT_QUOTE_BYTES];

	if (node->kind == want)
		return 0;
	if (node->kind != NODE_SCALAR)
		return fill_fail(f, node->at, "%s is expected here, not %s", kind_wanted(want),
				 kind_wanted(node->kind));
	if (*node->text == '\0')
		return fill_fail(f, node->at, "has no value; %s is expected", kind_wanted(want));
	return fill_fail(f, node->at, "%s is expected here, not %s%s", kind_wanted(want),
			 text_quote(node->text, quoted),
			 want == NODE_MAP && strchr(node->text, ':') != NULL
				 ? "; a colon needs a space after it"
				 : "");
}

static int fill_scalar(struct fill *f, const struct config_row *row, const struct node *node,
		       void *member)
{
	struct value value;
	struct why why;
	int res = check_kind(f, node, NODE_SCALAR);

	if (res != 0)
		return res;
	res = value_read(row, node->text, &value, &why);
	if (res == 0)
		res = value_check_range(row, &value, &why);
	if (res != 0)
		return fill_fail(f, node->at, "%s", why.text);
	return value_store(row, &value, member) == 0 ? 0 : fill_fail_memory(f);
}

static int fill_sub_map(struct fill *f, const struct config_row *row, const struct node *node,
			void *member)
{
	struct target target = { .shape.rows = { row->sub->rows }, .bases = { member } };

	if (row->flags & CONFIG_OPTIONAL)
		((struct config_presence *)member)->present = true;
	return fill_map(f, &target, node);
}

/* An item that is a scalar stands for a map with one key. */
static int fill_item(struct fill *f, const struct config_row *row, const struct node *node,
		     void *item)
{
	struct target target = { .shape.rows = { row->sub->rows }, .bases = { item } };
	struct node key = *node, map = { .kind = NODE_MAP, .at = node->at, .first = &key };

	if (node->kind != NODE_SCALAR || row->sub->scalar_key == NULL)
		return fill_map(f, &target, node);
	key.key = row->sub->scalar_key;
	key.key_at = node->at;
	key.next = NULL;
	return fill_map(f, &target, &map);
}

static int check_count(struct fill *f, const struct config_row *row, const struct node *node,
		       size_t count)
{
	static const struct config_row counts = { .kind = CONFIG_COUNT };
	struct config_row range = counts;
	struct value value = { .number = count };
	struct why why;

	range.min = row->min == NULL && (row->flags & CONFIG_REQUIRED) ? "1" : row->min;
	range.max = row->max;
	if (value_check_range(&range, &value, &why) == 0)
		return 0;
	return fill_fail(f, node->at, "the number of items, %s", why.text);
}

static int fill_list(struct fill *f, const struct config_row *row, const struct node *node,
		     struct config_list *list)
{
	struct node item_alone = *node, list_of_one = { .kind = NODE_LIST, .at = node->at };
	size_t count = 0, i = 0;
	int res;

	/* What a key stands for may stand alone. */
	if (node->kind == NODE_SCALAR && *node->text != '\0' && row->sub->scalar_key != NULL) {
		item_alone.next = NULL;
		list_of_one.first = &item_alone;
		node = &list_of_one;
	}
	res = check_kind(f, node, NODE_LIST);

	for (const struct node *item = node->first; res == 0 && item != NULL; item = item->next)
		count++;
	if (res == 0)
		res = check_count(f, row, node, count);
	if (res != 0 || count == 0)
		return res;
	list->items = heap_zeros(count, row->sub->size);
	if (list->items == NULL)
		return fill_fail_memory(f);
	list->count = count;
	for (const struct node *item = node->first; res == 0 && item != NULL; item = item->next) {
		size_t was = path_down(f, NULL, i);

		res = fill_item(f, row, item, (char *)list->items + i++ * row->sub->size);
		path_up(f, was);
	}
	return res;
}

static const struct node *find_child(const struct node *map, const char *key)
{
	for (const struct node *child = map->first; child != NULL; child = child->next)
		if (strcmp(child->key, key) == 0)
			return child;
	return NULL;
}

static int fail_choice(struct fill *f, const struct config_sub *sub, const struct node *given)
{
	const char *names[CHOICES_MAX + 1] = { NULL };
	const struct config_row row = { .kind = CONFIG_CHOICE, .choices = names };
	struct config_choice choice;
	struct value value;
	struct why why;
	int res;

	for (size_t i = 0; sub->variant(i, &choice); i++) {
		ASSERT(i < CHOICES_MAX);
		names[i] = choice.name;
	}
	res = value_read(&row, given->text, &value, &why);
	ASSERT(res != 0);
	path_down(f, sub->selector, 0);
	for (const struct config_absent *a = sub->absent; a != NULL && a->name != NULL; a++)
		if (strcmp(a->name, given->text) == 0)
			return fill_fail(f, given->at, "%s is not in this build: %s", a->name,
					 a->why);
	return fill_fail(f, given->at, "%s", why.text);
}

static int pick_choice(struct fill *f, const struct config_sub *sub, const struct node *map,
		       int *ret_index, struct config_choice *ret)
{
	const struct node *given = find_child(map, sub->selector);
	const char *name = given != NULL ? given->text : sub->selector_default;
	size_t was = path_down(f, sub->selector, 0);
	int res = given != NULL ? check_kind(f, given, NODE_SCALAR) : 0;

	path_up(f, was);
	if (res != 0)
		return res;
	if (name == NULL)
		return fill_fail(f, map->at, "the key '%s' is missing", sub->selector);
	for (size_t i = 0; sub->variant(i, ret); i++)
		if (strcmp(ret->name, name) == 0) {
			*ret_index = (int)i;
			return 0;
		}
	ASSERT(given != NULL); /* the table's own default is a choice */
	return fail_choice(f, sub, given);
}

static int fill_variant(struct fill *f, const struct config_row *row, const struct node *node,
			struct config_variant *variant)
{
	const struct config_sub *sub = row->sub;
	struct config_choice choice;
	struct target target;
	int index = -1, res = check_kind(f, node, NODE_MAP);

	if (res == 0)
		res = pick_choice(f, sub, node, &index, &choice);
	if (res != 0)
		return res;
	variant->config = heap_zeros(1, choice.size);
	if (variant->config == NULL)
		return fill_fail_memory(f);
	variant->choice = index;
	target = (struct target){
		.shape = { { choice.rows, sub->rows }, sub->selector },
		.bases = { variant->config, variant },
		.selector_value = choice.name,
	};
	return fill_map(f, &target, node);
}

static int fill_row(struct fill *f, const struct config_row *row, const struct node *node,
		    void *member)
{
	switch (row->kind) {
	case CONFIG_MAP:
		return fill_sub_map(f, row, node, member);
	case CONFIG_LIST:
		return fill_list(f, row, node, member);
	case CONFIG_VARIANT:
		return fill_variant(f, row, node, member);
	default:
		return fill_scalar(f, row, node, member);
	}
}

/* A row that the text does not name. Its place is that of the map around it. */
static int fill_missing(struct fill *f, const struct config_row *row, struct place at, void *member)
{
	struct node node = { .kind = NODE_SCALAR, .at = at, .text = row->default_text };

	if (row->flags & CONFIG_REQUIRED)
		return fill_fail(f, at, "the key '%s' is missing", row->key);
	if (row->kind == CONFIG_VARIANT && (row->flags & CONFIG_OPTIONAL))
		((struct config_variant *)member)->choice = -1;
	if (row->kind == CONFIG_LIST || (row->flags & CONFIG_OPTIONAL))
		return 0;
	if (value_is_scalar(row->kind) && row->default_text == NULL)
		return 0;
	if (!value_is_scalar(row->kind))
		node.kind = NODE_MAP;
	return fill_row(f, row, &node, member);
}

static int fill_missing_rows(struct fill *f, const struct config_row *rows, const struct node *map,
			     void *base)
{
	int res = 0;

	for (; res == 0 && rows != NULL && rows->key != NULL; rows++) {
		size_t was;

		if (find_child(map, rows->key) != NULL)
			continue;
		/* REQUIRED speaks of the map, defaults of their own key. */
		was = path_down(f, rows->key, 0);
		if (rows->flags & CONFIG_REQUIRED)
			path_up(f, was);
		res = fill_missing(f, rows, map->at, (char *)base + rows->offset);
		path_up(f, was);
	}
	return res;
}

static int fail_unknown(struct fill *f, const struct target *target, const struct node *child)
{
	char suggestion[SUGGESTION_BYTES];

	suggest_key(f->root, &target->shape, child->key, suggestion, sizeof(suggestion));
	path_down(f, child->key, 0);
	if (target->selector_value != NULL)
		return fill_fail(f, child->key_at, "unknown key with %s %s%s",
				 target->shape.selector, target->selector_value, suggestion);
	return fill_fail(f, child->key_at, "unknown key%s", suggestion);
}

static const struct config_row *find_row(const struct target *target, const char *key,
					 void **ret_member)
{
	for (unsigned t = 0; t < ARRAY_SIZE(target->bases); t++)
		for (const struct config_row *row = target->shape.rows[t];
		     row != NULL && row->key != NULL; row++)
			if (strcmp(row->key, key) == 0) {
				*ret_member = (char *)target->bases[t] + row->offset;
				return row;
			}
	return NULL;
}

static int fill_child(struct fill *f, const struct target *target, const struct node *map,
		      const struct node *child)
{
	void *member = NULL;
	const struct config_row *row = find_row(target, child->key, &member);
	const struct node *first = find_child(map, child->key);
	const char *selector = target->shape.selector;
	size_t was;
	int res = 0;

	if (row == NULL && (selector == NULL || strcmp(selector, child->key) != 0))
		return fail_unknown(f, target, child);
	was = path_down(f, child->key, 0);
	if (first != child)
		res = fill_fail(f, child->key_at, "the key stands twice; first at %u:%u",
				first->key_at.line, first->key_at.column);
	else if (row != NULL)
		res = fill_row(f, row, child, member);
	path_up(f, was);
	return res;
}

static int fill_map(struct fill *f, const struct target *target, const struct node *map)
{
	int res = check_kind(f, map, NODE_MAP);

	for (const struct node *child = map->first; res == 0 && child != NULL; child = child->next)
		res = fill_child(f, target, map, child);
	for (unsigned t = 0; res == 0 && t < ARRAY_SIZE(target->bases); t++)
		res = fill_missing_rows(f, target->shape.rows[t], map, target->bases[t]);
	return res;
}

int config_load_text(const struct config_row *rows, const char *name, const char *text,
		     size_t bytes, void *ret, struct err *err)
{
	struct fill f = { .name = name, .root = rows, .err = err };
	struct target target = { .shape.rows = { rows }, .bases = { ret } };
	struct document doc;
	int res = document_parse(name, text, bytes, &doc, err);

	if (res != 0)
		return res;
	res = fill_map(&f, &target, doc.root);
	document_free(&doc);
	if (res != 0)
		config_free(rows, ret);
	return res;
}

int config_load_file(const struct config_row *rows, const char *path, void *ret, struct err *err)
{
	char *text;
	size_t bytes;
	int res = document_read_file(path, &text, &bytes, err);

	if (res != 0)
		return res;
	res = config_load_text(rows, path, text, bytes, ret, err);
	heap_free(text);
	return res;
}

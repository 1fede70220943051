/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "config/document.h"

static const struct node *child_named(const struct node *map, const char *key, size_t bytes)
{
	const struct node *child = map->kind == NODE_MAP ? map->first : NULL;

	while (child != NULL &&
	       (strlen(child->key) != bytes || memcmp(child->key, key, bytes) != 0))
		child = child->next;
	return child;
}

/* "[2]" after a key: that item, where there is one. */
static const struct node *item_numbered(const struct node *node, const char *brackets)
{
	unsigned item = 0;

	if (node->kind != NODE_LIST || sscanf(brackets, "[%u]", &item) != 1)
		return NULL;
	node = node->first;
	while (node != NULL && item-- > 0)
		node = node->next;
	return node;
}

int config_locate_text(const char *text, size_t bytes, const char *path, unsigned *ret_line,
		       unsigned *ret_column)
{
	struct document doc;
	const struct node *node;
	struct place at;
	int rc = document_parse("", text, bytes, &doc, NULL);

	if (rc != 0)
		return rc;
	at = doc.root->at;
	for (node = doc.root; node != NULL && *path != '\0';) {
		size_t n = strcspn(path, "."), key = strcspn(path, ".[");

		node = child_named(node, path, key);
		if (node != NULL)
			at = node->key_at;
		if (node != NULL && path[key] == '[') {
			node = item_numbered(node, path + key);
			at = node != NULL ? node->at : at;
		}
		path += n + (path[n] == '.');
	}
	document_free(&doc);
	*ret_line = at.line;
	*ret_column = at.column;
	return 0;
}

int config_locate_file(const char *name, const char *path, unsigned *ret_line, unsigned *ret_column)
{
	char *text;
	size_t bytes;
	int rc = document_read_file(name, &text, &bytes, NULL);

	if (rc != 0)
		return rc;
	rc = config_locate_text(text, bytes, path, ret_line, ret_column);
	heap_free(text);
	return rc;
}

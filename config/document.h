/* SPDX-License-Identifier: Apache-2.0
 *
 * A YAML text as a tree of nodes with their places. The subset: one document, UTF-8, maps with text
 * keys, lists, scalars (quoted or not means the same), anchors and aliases; no tags, directives,
 * complex keys, merge keys or control characters. A byte order mark and CR LF are taken.
 *
 * The tree is made from libyaml's events, with a stack of our own, and every limit is checked as
 * the events come: libyaml's own loader takes 16 s for 100,000 brackets. An alias shares the nodes
 * of what it names, yet counts as if they were copied, so whoever walks the tree is bounded too.
 */
#ifndef TIERD_CONFIG_DOCUMENT_H
#define TIERD_CONFIG_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/block.h"

enum document_limit {
	DOCUMENT_BYTES_MAX = 1 << 20, /* of the text */
	DOCUMENT_DEPTH_MAX = 32,      /* maps and lists inside each other, aliases included */
	DOCUMENT_NODES_MAX = 8192,    /* with everything that aliases stand for */
	DOCUMENT_ANCHORS_MAX = 64,
	DOCUMENT_SCALAR_MAX = 4096, /* bytes */
};

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

struct place {
	unsigned line, column; /* from 1; columns are characters, not bytes */
};

struct node {
	enum node_kind kind;
	struct place at;
	const char *text;         /* SCALAR */
	const struct node *first; /* MAP, LIST: children */
	const struct node *next;
	const char *key; /* child of a MAP */
	struct place key_at;
	uint32_t nodes;  /* itself and all below, aliases expanded */
	uint32_t height; /* of a scalar 0 */
};

struct document {
	struct node *root; /* an empty MAP when the text holds nothing */
	struct block_pool pool;
};

/* Reads a regular file of at most DOCUMENT_BYTES_MAX; `ret_text` is freed by the caller. */
int document_read_file(const char *path, char **ret_text, size_t *ret_bytes, struct err *err);
/* `name` stands in messages. On failure nothing stays allocated. */
int document_parse(const char *name, const char *text, size_t bytes, struct document *ret,
		   struct err *err);
void document_free(struct document *doc);

#endif

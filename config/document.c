/* SPDX-License-Identifier: Apache-2.0 */
#include "config/document.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#include "base/check.h"
#include "base/compiler.h"
#include "config/text.h"

/* A map or list that is not closed yet. */
struct frame {
	struct node *node;
	const struct node **tail; /* where the next child is linked */
	const char *key;          /* MAP: the key whose value comes next */
	struct place key_at;
};

struct anchor {
	const char *name;
	struct node *node;
};

struct builder {
	const char *name, *text;
	size_t bytes;
	struct err *err;
	struct document *doc;
	struct frame frames[DOCUMENT_DEPTH_MAX];
	unsigned depth;
	struct anchor anchors[DOCUMENT_ANCHORS_MAX];
	unsigned anchor_count;
	unsigned documents;
	uint32_t nodes;
};

static struct place place_of(const yaml_mark_t *mark)
{
	return (struct place){ (unsigned)mark->line + 1, (unsigned)mark->column + 1 };
}

static int fail_at(struct builder *b, struct place at, const char *what)
{
	return err_set(b->err, EINVAL, "%s:%u:%u: %s", b->name, at.line, at.column, what);
}

static int fail_memory(struct builder *b)
{
	return err_set(b->err, ENOMEM, "%s: no memory to parse it", b->name);
}

static struct frame *top_of(struct builder *b)
{
	return b->depth != 0 ? &b->frames[b->depth - 1] : NULL;
}

static bool wants_key(struct builder *b)
{
	struct frame *top = top_of(b);

	return top != NULL && top->node->kind == NODE_MAP && top->key == NULL;
}

static char *copy_text(struct builder *b, const void *text, size_t bytes)
{
	char *copy = block_take(&b->doc->pool, bytes + 1);

	if (copy != NULL)
		memcpy(copy, text, bytes);
	return copy;
}

/* Counts what a node or an alias stands for; the bomb of nine times nine aliases ends here. */
static int count_nodes(struct builder *b, uint32_t nodes, struct place at)
{
	if (nodes > DOCUMENT_NODES_MAX - b->nodes)
		return fail_at(b, at, "more than 8192 keys and values, aliases expanded");
	b->nodes += nodes;
	return 0;
}

static int make_node(struct builder *b, enum node_kind kind, struct place at, struct node **ret)
{
	struct node *node;
	int res = count_nodes(b, 1, at);

	if (res != 0)
		return res;
	node = block_take(&b->doc->pool, sizeof(*node));
	if (node == NULL)
		return fail_memory(b);
	node->kind = kind;
	node->at = at;
	node->nodes = 1;
	*ret = node;
	return 0;
}

/* Links a node into the map or list that is open, or makes it the root. */
static void attach(struct builder *b, struct node *node)
{
	struct frame *top = top_of(b);

	if (top == NULL) {
		ASSERT(b->doc->root == NULL);
		b->doc->root = node;
		return;
	}
	if (top->node->kind == NODE_MAP) {
		ASSERT(top->key != NULL);
		node->key = top->key;
		node->key_at = top->key_at;
		top->key = NULL;
	}
	*top->tail = node;
	top->tail = &node->next;
}

/* A child is complete: what it weighs goes to its parent. */
static void account(struct builder *b, const struct node *child)
{
	struct frame *top = top_of(b);

	if (top == NULL)
		return;
	top->node->nodes += child->nodes;
	top->node->height = MAX(top->node->height, child->height + 1);
}

static int set_anchor(struct builder *b, const yaml_char_t *name, struct node *node)
{
	struct anchor *anchor = &b->anchors[b->anchor_count];

	if (name == NULL)
		return 0;
	if (b->anchor_count == DOCUMENT_ANCHORS_MAX)
		return fail_at(b, node->at, "more than 64 anchors");
	if (strlen((const char *)name) > DOCUMENT_SCALAR_MAX)
		return fail_at(b, node->at, "an anchor of more than 4096 bytes");
	anchor->name = copy_text(b, name, strlen((const char *)name));
	if (anchor->name == NULL)
		return fail_memory(b);
	anchor->node = node;
	b->anchor_count++;
	return 0;
}

/* The latest of that name, as YAML has it. */
static struct node *find_anchor(struct builder *b, const yaml_char_t *name)
{
	for (unsigned i = b->anchor_count; i-- > 0;)
		if (strcmp(b->anchors[i].name, (const char *)name) == 0)
			return b->anchors[i].node;
	return NULL;
}

static bool is_open(struct builder *b, const struct node *node)
{
	for (unsigned i = 0; i < b->depth; i++)
		if (b->frames[i].node == node)
			return true;
	return false;
}

static int take_alias(struct builder *b, const yaml_event_t *event)
{
	struct place at = place_of(&event->start_mark);
	struct node *target = find_anchor(b, event->data.alias.anchor), *node;
	int res;

	if (wants_key(b))
		return fail_at(b, at, "an alias cannot be a key");
	if (target == NULL)
		return fail_at(b, at, "the alias names no anchor before it");
	if (is_open(b, target))
		return fail_at(b, at, "the alias stands inside what it names");
	if (b->depth + target->height > DOCUMENT_DEPTH_MAX)
		return fail_at(b, at, "nested deeper than 32, aliases expanded");
	res = make_node(b, target->kind, at, &node);
	if (res == 0)
		res = count_nodes(b, target->nodes - 1, at);
	if (res != 0)
		return res;
	node->text = target->text;
	node->first = target->first;
	node->nodes = target->nodes;
	node->height = target->height;
	attach(b, node);
	account(b, node);
	return 0;
}

static int check_scalar(struct builder *b, const yaml_event_t *event, struct place at)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t bytes = event->data.scalar.length;
	struct text_fault fault;

	if (event->data.scalar.tag != NULL)
		return fail_at(b, at, "tags are not taken; write the plain value");
	if (bytes > DOCUMENT_SCALAR_MAX)
		return fail_at(b, at, "a text of more than 4096 bytes");
	if (!text_check(text, bytes, false, &fault))
		return err_set(b->err, EINVAL, "%s:%u:%u: the text holds %s", b->name, at.line,
			       at.column, fault.what);
	return 0;
}

static int take_key(struct builder *b, const yaml_event_t *event, struct place at)
{
	struct frame *top = top_of(b);

	if (event->data.scalar.anchor != NULL)
		return fail_at(b, at, "a key cannot have an anchor");
	if (event->data.scalar.length == 0)
		return fail_at(b, at, "a key is empty");
	if (strcmp((const char *)event->data.scalar.value, "<<") == 0)
		return fail_at(b, at, "merge keys (<<) are not taken; write the keys out");
	top->key = copy_text(b, event->data.scalar.value, event->data.scalar.length);
	top->key_at = at;
	return top->key != NULL ? 0 : fail_memory(b);
}

static int take_scalar(struct builder *b, const yaml_event_t *event)
{
	struct place at = place_of(&event->start_mark);
	struct node *node;
	int res = check_scalar(b, event, at);

	if (res != 0)
		return res;
	if (wants_key(b))
		return take_key(b, event, at);
	res = make_node(b, NODE_SCALAR, at, &node);
	if (res != 0)
		return res;
	node->text = copy_text(b, event->data.scalar.value, event->data.scalar.length);
	if (node->text == NULL)
		return fail_memory(b);
	attach(b, node);
	account(b, node);
	return set_anchor(b, event->data.scalar.anchor, node);
}

static int open_node(struct builder *b, const yaml_event_t *event, enum node_kind kind,
		     const yaml_char_t *anchor, const yaml_char_t *tag)
{
	struct place at = place_of(&event->start_mark);
	struct node *node;
	int res;

	if (wants_key(b))
		return fail_at(b, at, "a key must be plain text");
	if (tag != NULL)
		return fail_at(b, at, "tags are not taken; write the plain value");
	if (b->depth == DOCUMENT_DEPTH_MAX)
		return fail_at(b, at, "nested deeper than 32");
	res = make_node(b, kind, at, &node);
	if (res != 0)
		return res;
	attach(b, node);
	b->frames[b->depth++] = (struct frame){ .node = node, .tail = &node->first };
	return set_anchor(b, anchor, node);
}

static void close_node(struct builder *b)
{
	struct node *node;

	ASSERT(b->depth != 0);
	node = b->frames[--b->depth].node;
	account(b, node);
}

static int take_event(struct builder *b, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (b->documents++ != 0)
			return fail_at(b, place_of(&event->start_mark),
				       "a second document; a configuration is one");
		return 0;
	case YAML_ALIAS_EVENT:
		return take_alias(b, event);
	case YAML_SCALAR_EVENT:
		return take_scalar(b, event);
	case YAML_SEQUENCE_START_EVENT:
		return open_node(b, event, NODE_LIST, event->data.sequence_start.anchor,
				 event->data.sequence_start.tag);
	case YAML_MAPPING_START_EVENT:
		return open_node(b, event, NODE_MAP, event->data.mapping_start.anchor,
				 event->data.mapping_start.tag);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		close_node(b);
		return 0;
	default:
		return 0;
	}
}

/* Where `offset` is, as editors count. */
static struct place place_in(const char *text, size_t offset)
{
	struct place at = { 1, 1 };

	for (size_t i = 0; i < offset; i++) {
		bool crlf = text[i] == '\r' && i + 1 < offset && text[i + 1] == '\n';

		if ((text[i] == '\n' || text[i] == '\r') && !crlf)
			at = (struct place){ at.line + 1, 1 };
		else if (((unsigned char)text[i] & 0xc0) != 0x80 && !crlf)
			at.column++;
	}
	return at;
}

/* Whether a tab indents that line: libyaml's sentence does not say what is wrong with it. */
static bool tab_indents(const struct builder *b, unsigned line)
{
	const char *at = b->text, *end = b->text + b->bytes;

	for (unsigned i = 1; i < line && at != NULL; i++) {
		at = memchr(at, '\n', (size_t)(end - at));
		at = at != NULL ? at + 1 : NULL;
	}
	while (at != NULL && at < end && *at == ' ')
		at++;
	return at != NULL && at < end && *at == '\t';
}

/* libyaml places the end of a text that lacks its last line break on a line that does not exist. */
static int fail_parser(struct builder *b, const yaml_parser_t *parser)
{
	struct place at = place_of(&parser->problem_mark), end = place_in(b->text, b->bytes);
	const char *context = parser->context != NULL ? parser->context : "";

	if (parser->error == YAML_MEMORY_ERROR)
		return fail_memory(b);
	if (at.line > end.line)
		at = end;
	return err_set(b->err, EINVAL, "%s:%u:%u: %s%s%s%s", b->name, at.line, at.column, context,
		       *context != '\0' ? ": " : "",
		       parser->problem != NULL ? parser->problem : "is not YAML",
		       tab_indents(b, at.line) ? "; a tab cannot indent, write spaces" : "");
}

static int take_events(struct builder *b, yaml_parser_t *parser)
{
	bool end = false;
	int res = 0;

	while (res == 0 && !end) {
		yaml_event_t event;

		if (!yaml_parser_parse(parser, &event))
			return fail_parser(b, parser);
		end = event.type == YAML_STREAM_END_EVENT;
		res = take_event(b, &event);
		yaml_event_delete(&event);
	}
	return res;
}

/* What libyaml would take slowly or count differently: directives (it compares each %TAG with all
 * before it) and characters that nobody sees. */
static int check_text(struct builder *b)
{
	const char *text = b->text;
	size_t bytes = b->bytes;
	struct text_fault fault;

	if (bytes > DOCUMENT_BYTES_MAX)
		return err_set(b->err, EFBIG, "%s: has %zu bytes; a configuration has at most %d",
			       b->name, bytes, DOCUMENT_BYTES_MAX);
	if (!text_check(text, bytes, true, &fault))
		return fail_at(b, place_in(text, fault.offset), fault.what);
	for (size_t i = 0; i < bytes; i++)
		if (text[i] == '%' && (i == 0 || text[i - 1] == '\n' || text[i - 1] == '\r'))
			return fail_at(b, place_in(text, i), "directives are not taken");
	return 0;
}

static int parse_text(struct builder *b)
{
	yaml_parser_t parser;
	int res;

	if (!yaml_parser_initialize(&parser))
		return fail_memory(b);
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)b->text, b->bytes);
	res = take_events(b, &parser);
	yaml_parser_delete(&parser);
	if (res != 0 || b->doc->root != NULL)
		return res;
	return make_node(b, NODE_MAP, (struct place){ 1, 1 }, &b->doc->root);
}

int document_parse(const char *name, const char *text, size_t bytes, struct document *ret,
		   struct err *err)
{
	struct document doc = { 0 };
	struct builder b = { .name = name, .text = text, .bytes = bytes, .err = err, .doc = &doc };
	int res;

	if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		b.text += 3;
		b.bytes -= 3;
	}
	res = check_text(&b);
	if (res == 0)
		res = parse_text(&b);
	if (res == 0)
		*ret = doc;
	else
		document_free(&doc);
	return res;
}

void document_free(struct document *doc)
{
	block_free_all(&doc->pool);
	doc->root = NULL;
}

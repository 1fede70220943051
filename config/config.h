/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML into typed, validated structs. A module that wants a key writes one row (and one struct
 * member) in its own file; reading, validation, `--print-config` and the reference all come from
 * the rows. A text is refused with `file:line:column`, the path of the key and the nearest valid
 * one. Limits on size, depth, nodes and aliases are checked while parsing. One thread at a time; no
 * globals.
 */
#ifndef TIERD_CONFIG_CONFIG_H
#define TIERD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum config_kind {
	CONFIG_END_KIND = 0,
	CONFIG_BYTES,    /* struct config_bytes: a size with unit, or % of something known later */
	CONFIG_SIZE,     /* uint64_t: a size in bytes with unit, no %; at most INT64_MAX */
	CONFIG_COUNT,    /* uint64_t: a plain number, with Ki Mi Gi allowed */
	CONFIG_PERMILLE, /* uint32_t: written in %, kept in 1/1000; at most 100% unless max says
			    more */
	CONFIG_DURATION, /* uint64_t ns: ns us ms s min h; at most INT64_MAX */
	CONFIG_RATE,     /* uint64_t bytes a second: a size with /s; at most INT64_MAX */
	CONFIG_BOOL,     /* bool: true false */
	CONFIG_CHOICE,   /* int: index into choices[] */
	CONFIG_TEXT,     /* char *: any text, owned by the struct */
	CONFIG_PATH,     /* char *: an absolute path, owned by the struct */
	CONFIG_MAP,      /* nested struct at offset, by sub->rows */
	CONFIG_LIST,     /* struct config_list of structs by sub->rows; a scalar item fills
			    sub->scalar_key */
	CONFIG_VARIANT,  /* struct config_variant: the key sub->selector picks which rows hold */
};

enum config_flags {
	CONFIG_REQUIRED = 1, /* no default; its absence is an error, and a LIST has items */
	CONFIG_OPTIONAL = 2, /* a MAP or VARIANT that may be missing, see config_presence; without
				it a missing MAP or VARIANT is filled with its defaults */
	CONFIG_HIDDEN = 4,   /* for tests and rehearsal; left out of the short reference */
};

struct config_bytes {
	uint64_t bytes;    /* when permille is 0 */
	uint32_t permille; /* of the device or tier, when not 0 */
};

struct config_list {
	void *items; /* count structs of sub->size, owned */
	size_t count;
};

/* What the selector may pick: `rows` fill a struct of `size` bytes. */
struct config_choice {
	const char *name, *help;
	const struct config_row *rows;
	size_t size;
};

/* A choice that other builds have: who asks for it is told why this one has not. */
struct config_absent {
	const char *name, *why;
};

/* Begins a struct of sub->size bytes whose other members sub->rows fill (offsets from here). */
struct config_variant {
	int choice;   /* the i of sub->variant(); -1 when an OPTIONAL one is missing */
	void *config; /* struct of that choice, owned; never NULL otherwise, even with no rows */
};

/* How a MAP, LIST or VARIANT goes on. */
struct config_sub {
	/* MAP, LIST: of the map or an item; VARIANT: what stands beside the selector, or NULL */
	const struct config_row *rows;
	size_t size;                  /* of the struct that rows fill */
	const char *scalar_key;       /* LIST: an item that is a scalar stands for this key */
	const char *selector;         /* VARIANT: the key that picks */
	const char *selector_default; /* VARIANT: when it is missing; NULL: required */
	/* VARIANT: fills `ret` with choice i, false past the end. */
	bool (*variant)(size_t i, struct config_choice *ret);
	const struct config_absent *absent; /* VARIANT: ends with a NULL name; NULL: none */
};

struct config_row {
	const char *key;
	enum config_kind kind;
	size_t offset; /* of the member in the struct that the table fills */
	/* Read as if the text said so. NULL with REQUIRED, MAP, LIST, VARIANT; NULL elsewhere
	 * leaves the member zero (a TEXT or PATH: NULL), which means "not set". */
	const char *default_text;
	/* In the same spelling; NULL: the kind's own; LIST: the number of items. */
	const char *min, *max;
	unsigned flags;
	const char *help;             /* one sentence or two: meaning and effect */
	const char *const *choices;   /* CHOICE: names, ends with NULL */
	const struct config_sub *sub; /* MAP, LIST, VARIANT */
};

#define CONFIG_END                                                              \
	{                                                                       \
		NULL, CONFIG_END_KIND, 0, NULL, NULL, NULL, 0, NULL, NULL, NULL \
	}

/* An OPTIONAL MAP has this as the first member of the nested struct; when it is missing, all of the
 * struct is zero. (An OPTIONAL VARIANT that is missing has choice -1 and no config.) */
struct config_presence {
	bool present;
};

/* Fills `ret` (of `rows`' struct, zeroed by the caller) from a file ("-": not allowed) or a text.
 * 0, or -EINVAL with "name:line:column: path: what, nearest key"; -EFBIG, -ENOMEM, or the errno of
 * the file. On failure nothing stays allocated, and what scalars hold is undefined. config_free()
 * frees what was filled and may be called on a zeroed struct. An empty text is the empty map. */
int config_load_file(const struct config_row *rows, const char *path, void *ret, struct err *err);
int config_load_text(const struct config_row *rows, const char *name, const char *text,
		     size_t bytes, void *ret, struct err *err);
void config_free(const struct config_row *rows, void *filled);

/* Where the key at `path` ("tiers.dram.size", "domains[1].dram") stands in a text that loads, or
 * the innermost map around it that stands there: for messages about values that are wrong only
 * together. */
int config_locate_file(const char *name, const char *path, unsigned *ret_line,
		       unsigned *ret_column);
int config_locate_text(const char *text, size_t bytes, const char *path, unsigned *ret_line,
		       unsigned *ret_column);

/* Writes `filled` as YAML that loads to the same, each value with its unit; comments name the
 * defaults and spell sizes out in bytes and GiB. */
void config_print(const struct config_row *rows, const void *filled, FILE *to);
/* Says every size that is set in bytes and GiB: say(ctx, "tiers.dram.size", "64000000000 bytes
 * = 59.60 GiB"). For the log at start, where a unit that was misunderstood can still be seen. */
void config_each_size(const struct config_row *rows, const void *filled,
		      void (*say)(void *ctx, const char *path, const char *text), void *ctx);
/* How values are written: units, lists, what is refused. Markdown without a headline. */
void config_reference_units(FILE *to);
/* The reference of a table as Markdown: path of the key, kind, unit, default, range, help. */
void config_reference(const struct config_row *rows, FILE *to);

/* Whether a table keeps this contract: defaults and limits that can be read, members inside their
 * structs, keys that stand once, a help on each row. `size` is that of the struct that rows fill.
 * -EINVAL with "path: what". For tests. */
int config_check_rows(const struct config_row *rows, size_t size, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "config/suggest.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "config/text.h"

enum {
	KEY_LETTERS_MAX = 63, /* longer keys are near to nothing */
	PATH_BYTES = 128,
	PLACES_MAX = 2,
	TABLE_DEPTH_MAX = 16,
};

/* Optimal string alignment, three rows of the table at a time. */
unsigned suggest_distance(const char *a, const char *b, unsigned limit)
{
	unsigned rows[3][KEY_LETTERS_MAX + 1];
	size_t na = strlen(a), nb = strlen(b);

	if (na > KEY_LETTERS_MAX || nb > KEY_LETTERS_MAX)
		return limit;
	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			now[j] = last[j - 1] + (a[i - 1] != b[j - 1]);
			now[j] = MIN(now[j], MIN(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = MIN(now[j], before[j - 2] + 1);
		}
	}
	return MIN(rows[na % 3][nb], limit);
}

/* One letter of three may be wrong, at least one and at most three: sizes of one less are near. */
static unsigned near_limit(const char *key)
{
	size_t n = strlen(key) / 3;

	return (unsigned)MIN(MAX(n, 1), 3) + 1;
}

const char *suggest_name(const char *const *names, const char *name)
{
	unsigned best = near_limit(name);
	const char *ret = NULL;

	for (; *names != NULL; names++) {
		unsigned distance = suggest_distance(*names, name, best);

		if (distance < best) {
			best = distance;
			ret = *names;
		}
	}
	return ret;
}

/* Walks all keys of a table for the nearest to `key`, and where it is valid. */
struct search {
	const char *key;
	unsigned best; /* distance of what was found; nothing yet: the limit */
	unsigned places;
	char where[PLACES_MAX][PATH_BYTES]; /* parents: "tiers.dram" */
	const char *selector, *choice;      /* of the variant whose rows are walked; or NULL */
	const char *found;
	unsigned depth;
};

static void consider(struct search *s, const char *key, const char *parent)
{
	unsigned distance = suggest_distance(key, s->key, s->best);

	if (distance < s->best) {
		s->best = distance;
		s->found = key;
		s->places = 0;
	} else if (s->found == NULL || strcmp(s->found, key) != 0) {
		return;
	}
	if (s->places < PLACES_MAX)
		snprintf(s->where[s->places], PATH_BYTES, "%s%s%s%s%s", parent,
			 s->choice != NULL ? " with " : "", s->choice != NULL ? s->selector : "",
			 s->choice != NULL ? " " : "", s->choice != NULL ? s->choice : "");
	s->places++;
}

static void search_rows(struct search *s, const struct config_row *rows, const char *parent);

static void search_variant(struct search *s, const struct config_sub *sub, const char *path)
{
	const char *outer_selector = s->selector, *outer_choice = s->choice;
	struct config_choice choice;

	consider(s, sub->selector, path);
	if (sub->rows != NULL)
		search_rows(s, sub->rows, path);
	s->selector = sub->selector;
	for (size_t i = 0; sub->variant(i, &choice); i++) {
		s->choice = choice.name;
		if (choice.rows != NULL)
			search_rows(s, choice.rows, path);
	}
	s->selector = outer_selector;
	s->choice = outer_choice;
}

static void search_row(struct search *s, const struct config_row *row, const char *parent)
{
	char path[PATH_BYTES];
	int n;

	if (row->flags & CONFIG_HIDDEN)
		return;
	consider(s, row->key, parent);
	if (row->sub == NULL)
		return;
	n = snprintf(path, sizeof(path), "%s%s%s%s", parent, *parent != '\0' ? "." : "", row->key,
		     row->kind == CONFIG_LIST ? "[0]" : "");
	ASSERT(n > 0 && n < PATH_BYTES);
	if (row->kind == CONFIG_VARIANT)
		search_variant(s, row->sub, path);
	else
		search_rows(s, row->sub->rows, path);
}

static void search_rows(struct search *s, const struct config_row *rows, const char *parent)
{
	ASSERT(s->depth < TABLE_DEPTH_MAX);
	s->depth++;
	for (; rows->key != NULL; rows++)
		search_row(s, rows, parent);
	s->depth--;
}

/* Appends to a text that may be full. */
static void append(char *to, size_t room, const char *fmt, ...) PRINTF(3, 4);
static void append(char *to, size_t room, const char *fmt, ...)
{
	size_t used = strlen(to);
	va_list args;

	va_start(args, fmt);
	vsnprintf(to + used, room - used, fmt, args);
	va_end(args);
}

/* Whoever is in a map of hidden keys alone knows of them. */
static bool is_hidden(const struct shape *here, const struct config_row *row)
{
	if ((row->flags & CONFIG_HIDDEN) == 0)
		return false;
	for (size_t t = 0; t < ARRAY_SIZE(here->rows); t++)
		for (row = here->rows[t]; row != NULL && row->key != NULL; row++)
			if ((row->flags & CONFIG_HIDDEN) == 0)
				return true;
	return here->selector != NULL;
}

static const char *nearest_here(const struct shape *here, const char *key)
{
	struct search s = { .key = key, .best = near_limit(key) };

	if (here->selector != NULL)
		consider(&s, here->selector, "");
	for (size_t t = 0; t < ARRAY_SIZE(here->rows); t++)
		for (const struct config_row *row = here->rows[t]; row != NULL && row->key != NULL;
		     row++)
			if (!is_hidden(here, row))
				consider(&s, row->key, "");
	return s.found;
}

static void append_keys(const struct shape *here, char *ret, size_t room)
{
	const char *between = "";

	append(ret, room, "; the keys here are ");
	if (here->selector != NULL) {
		append(ret, room, "%s", here->selector);
		between = ", ";
	}
	for (size_t t = 0; t < ARRAY_SIZE(here->rows); t++)
		for (const struct config_row *row = here->rows[t]; row != NULL && row->key != NULL;
		     row++)
			if (!is_hidden(here, row)) {
				append(ret, room, "%s%s", between, row->key);
				between = ", ";
			}
}

static const char *place_name(const char *where)
{
	return *where != '\0' ? where : "the top level";
}

static void append_places(const struct search *s, char *ret, size_t room)
{
	char quoted[TEXT_QUOTE_BYTES];

	append(ret, room, "; %s is a key of %s", text_quote(s->found, quoted),
	       place_name(s->where[0]));
	if (s->places > 1)
		append(ret, room, "%s%s", s->places > PLACES_MAX ? ", " : " and of ",
		       place_name(s->where[1]));
	if (s->places > PLACES_MAX)
		append(ret, room, " and others");
}

void suggest_key(const struct config_row *root, const struct shape *here, const char *key,
		 char *ret, size_t room)
{
	struct search elsewhere = { .key = key, .best = near_limit(key) };
	const char *nearest = nearest_here(here, key);
	char quoted[TEXT_QUOTE_BYTES];

	*ret = '\0';
	search_rows(&elsewhere, root, "");
	if (nearest != NULL)
		append(ret, room, "; the nearest is %s", text_quote(nearest, quoted));
	/* A key that is right elsewhere is worth saying even beside a near one here. */
	if (elsewhere.found != NULL && (elsewhere.best == 0 || nearest == NULL))
		append_places(&elsewhere, ret, room);
	if (nearest == NULL && elsewhere.found == NULL)
		append_keys(here, ret, room);
}

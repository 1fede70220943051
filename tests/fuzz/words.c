/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/words.h"

#include <string.h>

#include "base/check.h"

static void add(struct words *w, const char *word)
{
	if (word == NULL)
		return;
	for (size_t i = 0; i < w->count; i++)
		if (strcmp(w->word[i], word) == 0)
			return;
	ASSERT(w->count < WORDS_MAX);
	w->word[w->count++] = word;
}

static void add_sub(struct words *w, const struct config_sub *sub)
{
	struct config_choice choice;

	if (sub->rows != NULL)
		words_add(w, sub->rows);
	add(w, sub->selector);
	for (size_t i = 0; sub->variant != NULL && sub->variant(i, &choice); i++) {
		add(w, choice.name);
		if (choice.rows != NULL)
			words_add(w, choice.rows);
	}
}

void words_add(struct words *w, const struct config_row *rows)
{
	for (const struct config_row *r = rows; r->key != NULL; r++) {
		add(w, r->key);
		add(w, r->default_text);
		add(w, r->min);
		add(w, r->max);
		for (size_t i = 0; r->choices != NULL && r->choices[i] != NULL; i++)
			add(w, r->choices[i]);
		if (r->sub != NULL)
			add_sub(w, r->sub);
	}
}

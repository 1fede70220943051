/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of tables of configuration rows: keys, defaults, limits and choices. A new row is
 * fuzzed without a line here or in a dictionary. One thread.
 */
#ifndef TIERD_TESTS_FUZZ_WORDS_H
#define TIERD_TESTS_FUZZ_WORDS_H

#include "config/config.h"

#define WORDS_MAX 1024u

struct words {
	const char *word[WORDS_MAX];
	size_t count;
};

void words_add(struct words *words, const struct config_row *rows);

#endif

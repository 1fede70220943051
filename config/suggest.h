/* SPDX-License-Identifier: Apache-2.0
 *
 * What somebody who wrote an unknown key may have meant: the nearest key here, or the place where
 * that key is valid. Pure; any thread.
 */
#ifndef TIERD_CONFIG_SUGGEST_H
#define TIERD_CONFIG_SUGGEST_H

#include <stddef.h>

#include "config/config.h"

/* The keys of one place: up to two tables, and the selector of a variant. */
struct shape {
	const struct config_row *rows[2]; /* NULL: none */
	const char *selector;
};

/* Letters added, left out, changed or swapped with their neighbour; at most `limit` is told. */
unsigned suggest_distance(const char *a, const char *b, unsigned limit);
/* Writes "; ..." about `key`, unknown at `here` in a configuration of `root`. */
void suggest_key(const struct config_row *root, const struct shape *here, const char *key,
		 char *ret, size_t room);
/* The nearest of `names` (ends with NULL), or NULL when none is near. */
const char *suggest_name(const char *const *names, const char *name);

#endif

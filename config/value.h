/* SPDX-License-Identifier: Apache-2.0
 *
 * One scalar: its text, its value, the member that holds it. Every kind but MAP, LIST and VARIANT.
 * One thread at a time.
 */
#ifndef TIERD_CONFIG_VALUE_H
#define TIERD_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "config/units.h"

struct value {
	uint64_t number;  /* in the kind's unit; a share in 1/1000 when `share` */
	bool share;       /* BYTES and PERMILLE: written in % */
	const char *text; /* TEXT, PATH: borrowed */
};

bool value_is_scalar(enum config_kind kind);
/* Reads `text` by the row's kind, without its range. 0, or -EINVAL with `why`. */
int value_read(const struct config_row *row, const char *text, struct value *ret, struct why *why);
/* Whether the row's min and max hold. */
int value_check_range(const struct config_row *row, const struct value *value, struct why *why);
/* To and from the member; store copies texts and returns -ENOMEM when it cannot. */
int value_store(const struct config_row *row, const struct value *value, void *member);
struct value value_load(const struct config_row *row, const void *member);
/* Zero, or no text: "not set" where neither default nor text could have said so. */
bool value_is_zero(const struct value *value);
bool value_equal(const struct value *a, const struct value *b);

#define VALUE_TEXT_BYTES UNIT_TEXT_BYTES
/* The spelling of a value that is no text: `ret`, or a name of the row. */
const char *value_format(const struct config_row *row, const struct value *value,
			 char ret[VALUE_TEXT_BYTES]);
/* "64000000000 bytes = 59.60 GiB" */
void value_spell_bytes(uint64_t bytes, char *ret, size_t room);

#endif

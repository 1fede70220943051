/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON as it goes, and names so that a terminal and a parser stay whole. A name is any
 * bytes: what is no UTF-8, and what could steer a terminal (control characters, changes of writing
 * direction), is written \xNN a byte, and a backslash as two, in text and inside JSON strings
 * alike, so that both show the same and nothing is lost. One thread.
 */
#ifndef TIERD_TIERCTL_JSON_H
#define TIERD_TIERCTL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *to;
	bool follows; /* a member or element stands before, in the same map or list */
};

/* The bytes of a name, escaped as above. */
void json_plain(FILE *to, const char *bytes, size_t count);

/* `key` NULL: an element of a list, or the whole. */
void json_open(struct json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);                 /* '}' or ']' */
void json_u64(struct json *j, const char *key, uint64_t value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_double(struct json *j, const char *key, double value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
/* A text of this program. */
void json_text(struct json *j, const char *key, const char *text);
/* A name or text from elsewhere, escaped. */
void json_name(struct json *j, const char *key, const char *bytes, size_t count);
/* Ends a line. */
void json_end(struct json *j);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters: whether bytes are UTF-8 that a person can read, and how a value is quoted in a
 * message. Pure; any thread.
 */
#ifndef TIERD_CONFIG_TEXT_H
#define TIERD_CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text_fault {
	size_t offset;
	const char *what; /* "a NUL byte", ... */
};

/* True when all of `bytes` are UTF-8 and nothing is a control character; `breaks` lets tab, LF and
 * CR pass. Otherwise `ret` says where and what. */
bool text_check(const char *text, size_t bytes, bool breaks, struct text_fault *ret);

/* Room for text_quote(): two quotes, 50 bytes and dots. */
#define TEXT_QUOTE_BYTES 56
/* 'text', cut at a character's end when it is long. Returns `ret`. */
const char *text_quote(const char *text, char ret[TEXT_QUOTE_BYTES]);

#endif

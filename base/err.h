/* SPDX-License-Identifier: Apache-2.0
 *
 * An error is `-errno` and one sentence. The function that detects it fills the sentence; callers
 * pass it on and only the place that decides logs it, once.
 */
#ifndef TIERD_BASE_ERR_H
#define TIERD_BASE_ERR_H

#include <stdarg.h>

#include "base/compiler.h"

#define ERR_TEXT_BYTES 512

struct err {
	int code; /* -errno, 0 when nothing was said */
	char text[ERR_TEXT_BYTES];
};

#define ERR_INIT      \
	{             \
		0, "" \
	}

/* Fills `err` (which may be NULL) and returns `-code`. `code` is a positive errno; the text is
 * lower case, names the object first and has no full stop. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF(3, 4);
/* Puts "prefix: " before the sentence that is there; returns the code that is there. */
int err_prefix(struct err *err, const char *fmt, ...) PRINTF(2, 3);

#endif

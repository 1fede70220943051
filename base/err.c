/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list args;

	ASSERT(code > 0);
	if (err == NULL)
		return -code;
	err->code = -code;
	va_start(args, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return -code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
	char was[ERR_TEXT_BYTES];
	va_list args;
	int n;

	if (err == NULL)
		return 0;
	memcpy(was, err->text, sizeof(was));
	va_start(args, fmt);
	n = vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	if (n >= 0 && (size_t)n < sizeof(err->text))
		n = snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", was);
	ASSERT(n >= 0); /* what does not fit is cut */
	return err->code;
}

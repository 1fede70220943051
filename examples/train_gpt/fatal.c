/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/fatal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void fatal(const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fputs("train_gpt: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(EXIT_FAILURE);
}

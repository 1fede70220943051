/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

static void (*panic_hook)(void *);
static void *panic_ctx;

void check_set_panic_hook(void (*hook)(void *), void *ctx)
{
	panic_hook = hook;
	panic_ctx = ctx;
}

_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func)
{
	void (*hook)(void *) = panic_hook;

	fprintf(stderr, "tierd: assertion failed: %s, at %s:%d in %s()\n", expr, file, line, func);
	panic_hook = NULL; /* a hook that fails itself must not come back here */
	if (hook != NULL)
		hook(panic_ctx);
	fflush(stderr);
	abort();
}

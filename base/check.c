/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void (*panic_hook)(void *);
static void *panic_ctx;

void check_set_panic_hook(void (*hook)(void *), void *ctx)
{
	panic_hook = hook;
	panic_ctx = ctx;
}

/* Not by stdio: whoever fails may hold its lock, or the heap's. */
static void say(const char *line)
{
	size_t n = strlen(line);

	while (n > 0) {
		ssize_t written = write(STDERR_FILENO, line, n);

		if (written <= 0)
			return;
		line += written;
		n -= (size_t)written;
	}
}

static _Noreturn void panic(void)
{
	void (*hook)(void *) = panic_hook;

	panic_hook = NULL; /* a hook that fails itself must not come back here */
	if (hook != NULL)
		hook(panic_ctx);
	abort();
}

_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func)
{
	char text[512];

	snprintf(text, sizeof(text), "tierd: assertion failed: %s, at %s:%d in %s()\n", expr, file,
		 line, func);
	say(text);
	panic();
}

/* Magics are four letters, first the one that is least in memory order. */
static void spell(uint32_t magic, char ret[5])
{
	for (unsigned i = 0; i < 4; i++) {
		char c = (char)(magic >> (24 - 8 * i));

		ret[i] = '?';
		if (c >= 0x20 && c < 0x7f)
			ret[i] = c;
	}
	ret[4] = '\0';
}

_Noreturn void check_object_failed(const char *expr, const void *object, uint32_t magic,
				   uint32_t want, const char *file, int line, const char *func)
{
	char text[512], is[5], wanted[5];

	spell(magic, is);
	spell(want, wanted);
	snprintf(text, sizeof(text),
		 "tierd: assertion failed: %s at %p is %s '%s' (%#x) and not '%s', at %s:%d in "
		 "%s()\n",
		 expr, object, object != NULL ? "an object of magic" : "no object, magic", is,
		 magic, wanted, file, line, func);
	say(text);
	panic();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Assertions that stay on in production: a daemon that holds the only copy of somebody's training
 * state stops rather than guesses. An assertion is for what cannot happen; what can happen is an
 * error and is returned (base/err.h).
 */
#ifndef TIERD_BASE_CHECK_H
#define TIERD_BASE_CHECK_H

#include <stdint.h>

/* Prints the place, runs the panic hook once and aborts. */
_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func);

/* The hook prints what the daemon knows of the moment (tensor, move, tiers); one a process. */
void check_set_panic_hook(void (*hook)(void *), void *ctx);

#define ASSERT(expr) \
	((expr) ? (void)0 : check_failed(#expr, __FILE__, __LINE__, __func__))

/* Pointers that cross a `void *` carry a magic as their first member. */
#define ASSERT_OBJ(ptr, want) ASSERT((ptr) != NULL && (ptr)->magic == (want))

#endif

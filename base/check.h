/* SPDX-License-Identifier: Apache-2.0
 *
 * Assertions that stay on in production: a daemon that holds the only copy of somebody's training
 * state stops rather than guesses. An assertion is for what cannot happen; what can happen is an
 * error and is returned (base/err.h).
 */
#ifndef TIERD_BASE_CHECK_H
#define TIERD_BASE_CHECK_H

#include <stdint.h>

/* Prints the place, runs the panic hook once and aborts. Takes no lock and no memory. */
_Noreturn void check_failed(const char *expr, const char *file, int line, const char *func);

/* The hook prints what the daemon knows of the moment (tensor, move, tiers); one a process. */
void check_set_panic_hook(void (*hook)(void *), void *ctx);

#define ASSERT(expr) ((expr) ? (void)0 : check_failed(#expr, __FILE__, __LINE__, __func__))

_Noreturn void check_object_failed(const char *expr, const void *object, uint32_t magic,
				   uint32_t want, const char *file, int line, const char *func);

/* Pointers that cross a `void *` carry a magic as their first member. */
#define ASSERT_OBJ(ptr, want)                                                                  \
	((ptr) != NULL && (ptr)->magic == (want)                                               \
		 ? (void)0                                                                     \
		 : check_object_failed(#ptr, (ptr), (ptr) != NULL ? (ptr)->magic : 0u, (want), \
				       __FILE__, __LINE__, __func__))

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The sentence of a thread's last failed call. Thread-local; touched on failures only, so that hits
 * never pay for finding it.
 */
#ifndef TIERD_CLIENT_ERROR_H
#define TIERD_CLIENT_ERROR_H

#include "base/err.h"

/* The calling thread's own; what err_set() fills. */
struct err *error_slot(void);

/* err_set() on the thread's sentence. */
#define error_set(code, ...) err_set(error_slot(), code, __VA_ARGS__)

#endif

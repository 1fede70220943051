/* SPDX-License-Identifier: Apache-2.0
 *
 * A private tierd and one connection to it, for tests that need no more; tensors whose bytes are
 * all the same. Each function fails the test if it cannot.
 */
#ifndef TIERD_TESTS_CLIENT_RIG_H
#define TIERD_TESTS_CLIENT_RIG_H

#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tests/system/system.h"

#define WAIT (20 * (int64_t)NS_PER_S)

extern struct system *const s;
extern struct tierd *t;

/* To a tierd that runs. */
void connect_as(const char *name_space);
/* Closes the connection and ends the tierd. */
void end(void);

tierd_tensor make(uint64_t bytes);
tierd_tensor make_named(const char *name, uint64_t bytes);
struct tierd_view hold(tierd_tensor h, int place, uint32_t access);
void fill(tierd_tensor h, int place, int byte);
void expect(tierd_tensor h, int place, int byte);

#endif

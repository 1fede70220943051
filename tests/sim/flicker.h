/* SPDX-License-Identifier: Apache-2.0
 *
 * A client that keeps no rules: a thread of its own raises and lowers readers' pins of every tensor
 * at any time. It may keep others waiting, but no byte of theirs may be lost by it.
 */
#ifndef TIERD_TESTS_SIM_FLICKER_H
#define TIERD_TESTS_SIM_FLICKER_H

#include "daemon/engine/engine.h"

struct flicker;

/* Its holder has no user. Aborts when it cannot be started. */
struct flicker *flicker_start(struct engine *e);
/* The client dies. Its table is the engine's until holder_gone: free() the flicker after that. */
void flicker_stop(struct flicker *f, struct engine *e, uint64_t now_ns);

#endif

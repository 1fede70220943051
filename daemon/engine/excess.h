/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients whose pins are in others' way for good: found here, and told to the server. Control
 * thread.
 */
#ifndef TIERD_ENGINE_EXCESS_H
#define TIERD_ENGINE_EXCESS_H

#include "daemon/engine/state.h"

/* What a namespace's clients have pinned on a device is in excess where it is above the namespace's
 * limit and somebody waits there for pins alone; or above its guarantee, and somebody of another
 * namespace waits for what is within his. Where it was so for `excess_ns`, whenever it was looked
 * at, the hook `excess` gets the client that has most of it. Returns when to be called next. */
uint64_t excess_turn(struct engine *e);

#endif

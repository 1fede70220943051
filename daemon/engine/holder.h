/* SPDX-License-Identifier: Apache-2.0
 *
 * Holders: connected clients as the engine sees them, and the tombstones of dead ones. Control
 * thread.
 */
#ifndef TIERD_ENGINE_HOLDER_H
#define TIERD_ENGINE_HOLDER_H

#include "daemon/engine/state.h"

/* Ends the tensors of dead clients and takes over what these wrote; returns when to be called
 * again. */
uint64_t holders_turn(struct engine *e);

/* Whether the front is kept for somebody who has asked for it and lives. */
bool record_held(const struct engine *e, const struct record *r);

/* One of its iterations has ended. */
void holder_step(struct engine *e, struct holder *h);

#endif

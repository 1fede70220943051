/* SPDX-License-Identifier: Apache-2.0
 *
 * Deferred releases: pins that clients leave to the daemon, to be lowered when a stream gets there.
 * The rings and the words are the client's: everything is copied once and checked. They are read
 * only while somebody needs it. A holder that is stopped is still read (its streams run on, and who
 * waits for its pins should not wait for its end); a dead one is not. Control thread.
 */
#ifndef TIERD_ENGINE_DEFERRED_H
#define TIERD_ENGINE_DEFERRED_H

#include "daemon/engine/state.h"

/* Takes in what is due of all holders, and wakes whoever waits for an unpin where one was lowered.
 * Rings that ever had an entry are looked at each time, of the others a few in turn. */
void deferred_look(struct engine *e);
/* Whether the holder pins the tensor otherwise than by what its rings will lower. */
bool deferred_plain_pin(const struct holder *h, uint32_t tensor);

/* Whether the holder's streams are still to let go of anything. */
bool deferred_any(const struct holder *h);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that wait for each other's pins, or for their own. Control thread.
 */
#ifndef TIERD_ENGINE_DEADLOCK_H
#define TIERD_ENGINE_DEADLOCK_H

#include "daemon/engine/state.h"

/* Where all that is pinned of what is waited for belongs to clients that wait, the one that came
 * last gets -EDEADLK. Returns whether there was one. O(waiters) as long as somebody who does not
 * wait holds what they wait for; else O(what stands there), as the look for victims before it. */
bool deadlock_judge(struct engine *e);

#endif

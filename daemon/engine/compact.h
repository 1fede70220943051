/* SPDX-License-Identifier: Apache-2.0
 *
 * Contiguity: free bytes enough but no hole. The window of addresses that costs least is emptied:
 * neighbours are moved where a hole elsewhere takes them, and evicted where none does. Control
 * thread.
 */
#ifndef TIERD_ENGINE_COMPACT_H
#define TIERD_ENGINE_COMPACT_H

#include "daemon/engine/state.h"

/* Makes a hole for the largest tensor that the request lacks there. Returns whether
 * anything moves, or did just now. */
bool compact(struct engine *e, struct request *q, uint8_t device);
/* A hole of `bytes` for nobody in the queue, who found none though as much is free. */
bool compact_for(struct engine *e, uint8_t device, uint64_t bytes);
/* Whether what stands in the extent could leave it now. */
bool compact_can_leave(struct engine *e, uint8_t device, const struct extent *x);
/* Takes what the request lacks and finds a hole for, so that no window is sought there, and gives
 * it back. Returns the bytes of the first tensor that finds none, 0 if all do. */
uint64_t compact_take_holes(struct engine *e, struct request *q, uint8_t device);
void compact_give_holes(struct engine *e, struct request *q, uint8_t device);

#endif

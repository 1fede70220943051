/* SPDX-License-Identifier: Apache-2.0
 *
 * Room by memory: which slab is made for whoever finds no hole, and which is given for it where
 * there is no more memory. Each is one step, after which everything is looked at anew. Control
 * thread.
 */
#ifndef TIERD_ENGINE_SLAB_ROOM_H
#define TIERD_ENGINE_SLAB_ROOM_H

#include "daemon/engine/state.h"

/* Whoever lacks a hole of `bytes` at the device may wait for memory that is on its way, or is asked
 * for now. False: no more is to be had; others have to go. */
bool slab_room_grow(struct engine *e, uint8_t device, uint64_t bytes);
/* The same for a request of the device's queue whose turn it is. */
bool slab_room_grow_head(struct engine *e, struct request *q, uint8_t device);
/* The same where no window is open, but whatever stands in the way could go to what is made. */
bool slab_room_grow_any(struct engine *e, uint8_t device);
/* No more is to be had, and no window could be made of what is there: an empty slab is given for
 * one at a better place. False: there is none. */
bool slab_room_trade(struct engine *e, struct request *q, uint8_t device);

#endif

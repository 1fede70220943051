/* SPDX-License-Identifier: Apache-2.0
 *
 * Fronts: opening them to clients and taking them away (front.c). Control thread.
 */
#ifndef TIERD_ENGINE_FRONT_H
#define TIERD_ENGINE_FRONT_H

#include "daemon/engine/pins.h"

bool front_unfilled(struct engine *e, uint32_t tensor);
/* RESIDENT -> EVICTING -> DROPPING, taking over `written`. 0; -EBUSY: pinned, and it is RESIDENT
 * again; -EDEADLK: pinned by `asker` itself. */
int front_close(struct engine *e, uint32_t tensor, const struct holder *asker);
/* DROPPING -> RESIDENT in place: it was not dropped after all. */
void front_reopen(struct engine *e, uint32_t tensor);
/* A closed front goes; a dram copy under it becomes the front, else the tensor is ABSENT. */
void front_forget(struct engine *e, uint32_t tensor);
/* Drops a front for which a lower tier has the bytes: O(1), no I/O. 0; -EBUSY: pinned; -EAGAIN: it
 * has to be cleaned first. */
int front_drop(struct engine *e, uint32_t tensor);
/* An UNFILLED front whose writer has said `filled` becomes an ordinary dirty one, once nothing
 * moves what is below it. Returns whether it is an ordinary front now. */
bool front_settle(struct engine *e, uint32_t tensor);
/* The tensor's sources with what clients have written since the last look, of which `pins` are:
 * for those who tell and change nothing. */
uint8_t front_sources_now(struct engine *e, uint32_t tensor, const struct pins *pins);

#endif

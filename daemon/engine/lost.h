/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU that is gone for good. Whatever is under way there comes back failing; then every tensor
 * that stood there falls back to what it has elsewhere, or its bytes are lost: it is RECORD_LOST,
 * and only a writer who overwrites all of it revives it. Control thread.
 */
#ifndef TIERD_ENGINE_LOST_H
#define TIERD_ENGINE_LOST_H

#include "daemon/engine/state.h"

/* An xfer of it came back so. Once. */
void lost_device(struct engine *e, uint8_t device);
/* Everybody who stands there, if some device was lost; nothing else may be under way in the engine.
 */
void lost_look(struct engine *e);
/* Those that were pinned or moving: returns when to be called again. */
uint64_t lost_turn(struct engine *e);
/* The tensor's move is over, and what it left there, if anything, is to be looked at. */
void lost_move_ended(struct engine *e, uint32_t tensor);
/* -EIO, "tensor 'x': its bytes were on hbm0, which was lost", or that it is pinned there: what else
 * it has shows when it is not. */
int lost_text(struct engine *e, uint32_t tensor, char *text, size_t room);
/* For the end of those pins. -EBUSY: looked at again by poll; -EIO: the asker's own are among them.
 */
int lost_wait(struct engine *e, struct request *q, uint32_t tensor);
/* Whether its front stands on a lost device, pinned. */
static inline bool lost_front(const struct engine *e, const struct record *r)
{
	return r->front != DEVICE_NONE && e->devices[r->front].lost;
}

#endif

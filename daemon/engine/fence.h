/* SPDX-License-Identifier: Apache-2.0
 *
 * Fences: what an ACQUIRE_ON that was answered early leaves behind. The request is *granted*: it
 * only waits for the moves of its open items; when the last of them has ended, the fence's word is
 * stored, whatever became of them, and the fence is free again. Until then all its tensors stay in
 * their place or on their way there: a client that finds one FILLING, and the fence not passed
 * after that look, has found the fill that the fence is of. Control thread.
 */
#ifndef TIERD_ENGINE_FENCE_H
#define TIERD_ENGINE_FENCE_H

#include "daemon/engine/state.h"

/* Takes a fence of the request's holder. False: none is free, or there is no memory for them. */
bool fence_take(struct request *request, uint64_t *ret_token);
/* The move of one open item of a granted request has ended. The request may be gone after it. */
void fence_item_ended(struct engine *e, struct item *item, const struct move *m);
/* The holder is dead: nobody looks at its fences any more. */
void fences_forget(struct engine *e, struct holder *h);
/* Fences handed out and not stored yet. */
unsigned fences_out(const struct holder *h);

#endif

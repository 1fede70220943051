/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors' beginnings and ends: indices, names, owners, admission, and the doomed, which were
 * destroyed and wait for their last pin or move. Control thread.
 */
#ifndef TIERD_ENGINE_TENSOR_H
#define TIERD_ENGINE_TENSOR_H

#include "daemon/engine/state.h"

/* Of one owner that is gone, or of all namespaces that end: some 50 us, so that others need not
 * wait long. */
#define DESTROYS_A_TURN 64u
/* Tensors on the list of an owner that is gone, the `end`th, `most` at most. Returns how many they
 * were; after the last the owner may be another. */
unsigned tensor_destroy_some(struct engine *e, const uint32_t *first, uint64_t end, unsigned most);
/* The doomed whose time has come, lingering namespaces; returns when to be called again. */
uint64_t tensors_turn(struct engine *e);
/* When the doomed are looked at next. */
uint64_t doomed_due(const struct engine *e);

#define TENSOR_TEXT_BYTES 80
/* What sentences call it: "tensor 'NAME'" or "tensor INDEX:GENERATION", as tierctl shows both. The
 * name is what a client chose: control characters in it are made harmless. */
const char *tensor_text(struct engine *e, uint32_t tensor, char text[TENSOR_TEXT_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors' beginnings and ends: indices, names, owners, admission, and the doomed, which were
 * destroyed and wait for their last pin or move. Control thread.
 */
#ifndef TIERD_ENGINE_TENSOR_H
#define TIERD_ENGINE_TENSOR_H

#include "daemon/engine/state.h"

/* Tensors on the list of an owner that is gone, at most so many that others need not wait long.
 * Returns whether all are gone. */
bool tensor_destroy_some(struct engine *e, uint32_t *first);
/* The doomed whose time has come, lingering namespaces; returns when to be called again. */
uint64_t tensors_turn(struct engine *e);
/* When the doomed are looked at next. */
uint64_t doomed_due(const struct engine *e);
/* The namespace of that name, made if need be. -ENOMEM, -EUSERS. */
int name_space_get(struct engine *e, const char *name, size_t bytes, uint16_t *ret);
/* A client or a tensor of it is buried; with the last one its number is another's. */
void name_space_let_go(struct engine *e, uint16_t name_space);

#define TENSOR_TEXT_BYTES 80
/* What sentences call it: "tensor 'NAME'" or "tensor INDEX:GENERATION", as tierctl shows both. The
 * name is what a client chose: control characters in it are made harmless. */
const char *tensor_text(struct engine *e, uint32_t tensor, char text[TENSOR_TEXT_BYTES]);

#endif

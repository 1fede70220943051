/* SPDX-License-Identifier: Apache-2.0
 *
 * Namespaces of the engine: made when a client names them, they linger, end turn by turn, and keep
 * their number until nothing has it any more. Names are a client's to invent, so nothing here is
 * longer for there being many of them. Control thread.
 */
#ifndef TIERD_ENGINE_NAME_SPACE_H
#define TIERD_ENGINE_NAME_SPACE_H

#include "daemon/engine/state.h"

int name_spaces_open(struct engine *e, struct err *err);
void name_spaces_close(struct engine *e);

/* A client has come: of the namespace of that name, made if need be. 0, -ENOMEM or -EUSERS. It has
 * the number until name_space_put(), and is connected until name_space_leave(). */
int name_space_enter(struct engine *e, const char *name, size_t bytes, uint32_t uid, uint16_t *ret);
void name_space_leave(struct engine *e, uint16_t number);
/* A tensor has the number, and until when. */
void name_space_take(struct engine *e, uint16_t number);
void name_space_put(struct engine *e, uint16_t number);

/* Ends what has lingered; returns when to be called again. */
uint64_t name_spaces_turn(struct engine *e);
/* Whether tensors of one whose end is among the first `end` are going yet. */
bool name_spaces_end(const struct engine *e, uint64_t end);

#endif

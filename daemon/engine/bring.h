/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch waits until there is room for all of it at once; nvme, which has its tensors until then,
 * may be too full for what would have to leave dram. Then they come one by one: each that has come
 * leaves its room on nvme to what makes room for the next. Control thread.
 */
#ifndef TIERD_ENGINE_BRING_H
#define TIERD_ENGINE_BRING_H

#include "daemon/engine/state.h"

/* For one of a queue for which nobody can make room, while no other's come so: begins to bring one
 * of its tensors, or to make a hole for it. Returns whether anything moves. */
bool bring_one(struct engine *e, struct request *q, uint8_t device);
/* Whether the tensor is one of those: it stays until all have come. */
bool bring_keeps(const struct engine *e, uint32_t tensor);
/* A move has ended: whoever it was begun for is told that it failed, or it would be begun again for
 * ever. */
void bring_ended(struct engine *e, const struct move *m);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What clients see of a tensor: the one place that stores descriptors, and lets no state follow
 * another that edges.h does not have. Control thread.
 */
#ifndef TIERD_ENGINE_PUBLISH_H
#define TIERD_ENGINE_PUBLISH_H

#include "daemon/engine/state.h"

/* word1 from the front, or from the fill that brings one; then word0. LARGE and DOOMED are the
 * record's; `flags` has UNFILLED. */
void publish(struct engine *e, uint32_t tensor, uint8_t state, uint16_t flags);
/* A new tensor, ABSENT: of the generation that its index has come to. */
void publish_born(struct engine *e, uint32_t tensor, uint32_t generation);
/* The tensor is no more: its handles are stale. */
void publish_buried(struct engine *e, uint32_t tensor);

#endif

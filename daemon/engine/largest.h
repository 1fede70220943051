/* SPDX-License-Identifier: Apache-2.0
 *
 * The room that moves need to go on, which is kept free of what is admitted: in each part of dram,
 * and beside quotas for each account and for all of them together. Control thread.
 */
#ifndef TIERD_ENGINE_LARGEST_H
#define TIERD_ENGINE_LARGEST_H

#include "daemon/engine/state.h"

/* A tensor of so many bytes, rounded as admission does, has come; `large`: dram never takes it. */
void largest_add(struct largest *l, uint64_t bytes, bool large);
void largest_leave(struct largest *l, uint64_t bytes);
/* Those of `of` are among those of `all`. */
void largest_merge(struct largest *all, const struct largest *of);
/* What has to be free of tiers that hold them. */
uint64_t largest_for_moves(const struct engine *e, const struct largest *l);
/* Looks for all of them anew: O(tensors). */
void largest_recount(struct engine *e);

#endif

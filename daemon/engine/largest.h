/* SPDX-License-Identifier: Apache-2.0
 *
 * The room that moves need to go on, which is kept free of what is admitted: in each part of dram,
 * and beside quotas for each account. The largest tensors decide it, so each of these is a set of
 * tensors from which any can go in O(log n), whatever others do. Control thread.
 */
#ifndef TIERD_ENGINE_LARGEST_H
#define TIERD_ENGINE_LARGEST_H

#include "daemon/engine/state.h"

struct account; /* quota.h */

/* The largest of some tensors, in bytes as admission counts them. */
struct largest {
	uint64_t any_bytes;
	/* Of those that are not large: small ones leave the first room. */
	uint64_t dram_bytes, second_dram_bytes;
};

/* A tensor stands in the sets of its part and of its account as long as it is live. */
void largest_enter(struct engine *e, uint32_t tensor);
void largest_leave(struct engine *e, uint32_t tensor);
/* O(1). */
struct largest largest_of_part(const struct engine *e, bool zoned);
struct largest largest_of_account(const struct engine *e, const struct account *a);
/* With a tensor of so many bytes, as admission counts them; `large`: dram never takes it. */
void largest_add(struct largest *l, uint64_t bytes, bool large);
/* What has to be free of tiers that hold them. */
uint64_t largest_for_moves(const struct engine *e, const struct largest *l);
/* Whether a live tensor stands in both sets where it has to. */
bool largest_holds(struct engine *e, uint32_t tensor);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where memory would have to come so that a hole is large enough, and which slab could be given for
 * it. Pure: told what stands where, it answers; nothing is taken. Each search is one walk over the
 * nodes, cut at the borders of slabs. For tiers that are on_demand, whose slabs and extents have
 * the same addresses.
 */
#ifndef TIERD_ENGINE_SLAB_SEARCH_H
#define TIERD_ENGINE_SLAB_SEARCH_H

#include "daemon/engine/slabs.h"

struct slab_need {
	uint64_t bytes; /* in one piece */
	uint32_t slabs; /* that can be made; each one more takes an empty one from elsewhere */
	/* Whether what stands in the extent could leave it, asked once a tensor; NULL: nothing. */
	bool (*leaves)(void *ctx, const struct extent *x);
	void *ctx;
};

struct way {
	uint64_t begin, end;
	uint64_t leave_bytes; /* of tensors that have to leave it */
	uint32_t cost;        /* slabs of it that have no memory */
	bool found;
};

/* The window of holes, ABSENT slabs and tensors that could leave of which the fewest bytes have to
 * leave, then the fewest slabs have to be traded, then the fewest made. What is made, traded or
 * leaves for it is always a step nearer to a window that needs nothing. */
struct way slab_search_way(const struct slabs *s, const struct extents *extents,
			   const struct slab_need *need);
/* The last empty slab outside of the way that may be traded, one that nobody has mapped if there
 * is such; `count`: none. */
uint32_t slab_search_spare(const struct slabs *s, const struct extents *extents,
			   const struct way *way);
/* The last slab that nothing has stood in for `idle_ns`; `count`: none. *ret_next_ns: when the next
 * one may be, ENGINE_NEVER. */
uint32_t slab_search_idle(const struct slabs *s, const struct extents *extents, uint64_t now_ns,
			  uint64_t idle_ns, uint64_t *ret_next_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Extents of one tier: which byte ranges are taken, by whom, and where there is room. Two-level
 * segregated fit over address-ordered nodes kept outside the memory they describe, so that taking
 * and freeing are O(1), neighbours are known (compaction looks at them), and the full capacity can
 * be had from an empty tier. Only where no hole is surely large enough are those looked through
 * that may be, and not again before one of them comes. The control thread's alone.
 */
#ifndef TIERD_TIERS_EXTENT_H
#define TIERD_TIERS_EXTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define EXTENT_NONE 0xffffffffu /* no node */
#define EXTENT_FREE 0xffffffffu /* owner of a free node */

struct extents; /* the allocator of one tier */

/* A taken or free range, as told by extents_get() and extents_next(). */
struct extent {
	uint64_t offset, bytes; /* bytes: rounded to granules */
	uint32_t node;          /* its name: stable while taken */
	uint32_t owner;         /* a tensor's index, or EXTENT_FREE */
};

/* `bytes` is rounded down to whole granules of `granule` (a power of two). */
int extents_create(uint64_t bytes, uint32_t granule, struct extents **ret, struct err *err);
void extents_destroy(struct extents *e);

/* Takes `bytes` rounded up to granules (0 bytes take one granule). Ranges of 4 KiB and more start
 * at multiples of 4 KiB. 0, or -ENOSPC when no hole is large enough, -ENOMEM. */
int extents_take(struct extents *e, uint64_t bytes, uint32_t owner, struct extent *ret);
/* The same, but nowhere in [begin, end): the lowest address that does. O(nodes). */
int extents_take_outside(struct extents *e, uint64_t bytes, uint32_t owner, uint64_t begin,
			 uint64_t end, struct extent *ret);
/* Exactly [offset, bytes), `offset` as a take would have it. 0, -ENOSPC when not all of it is free,
 * -ENOMEM. O(nodes). */
int extents_take_at(struct extents *e, uint64_t offset, uint64_t bytes, uint32_t owner,
		    struct extent *ret);
/* The highest range from `above` on: the end of a hole. Of less than 4 KiB. 0, -ENOSPC, -ENOMEM.
 * O(nodes). */
int extents_take_highest(struct extents *e, uint64_t bytes, uint32_t owner, uint64_t above,
			 struct extent *ret);
/* Sees that the next take does not end in -ENOMEM. 0, -ENOMEM. */
int extents_ready(struct extents *e);
/* The last `bytes` of the hole that ends where the taken node begins; no less is there. 0, -ENOMEM.
 */
int extents_take_before(struct extents *e, uint32_t node, uint64_t bytes, uint32_t owner,
			struct extent *ret);
/* Two taken neighbours change places: `second`, which comes after `first`, begins where that did.
 */
void extents_swap(struct extents *e, uint32_t first, uint32_t second);
void extents_give(struct extents *e, uint32_t node);
void extents_set_owner(struct extents *e, uint32_t node, uint32_t owner);

bool extents_has(const struct extents *e, uint32_t node);
/* Of a node that it has. */
void extents_get(const struct extents *e, uint32_t node, struct extent *ret);
/* The nodes in address order: begin with EXTENT_NONE; false at the end. */
bool extents_next(const struct extents *e, uint32_t node, struct extent *ret);

uint64_t extents_rounded(const struct extents *e, uint64_t bytes); /* what a take would count */
uint64_t extents_capacity(const struct extents *e);
uint64_t extents_used(const struct extents *e);
/* The largest take that would succeed. Asked every turn: O(1) as a take is. */
uint64_t extents_largest_free(struct extents *e);
/* Walks everything and asserts: address order, no overlap, no two free neighbours, sums. O(n). */
void extents_check(const struct extents *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the extents, shared by its files and by nobody else:
 *   extent.c        nodes in address order: taking, giving, looking
 *   extent_holes.c  the free ones among them by size
 */
#ifndef TIERD_TIERS_EXTENT_INSIDE_H
#define TIERD_TIERS_EXTENT_INSIDE_H

#include "tiers/extent.h"

#define PAGE         4096u
#define SL_BITS      5
#define SL_COUNT     (1u << SL_BITS)
#define FL_COUNT     (64 - SL_BITS)
#define SMALL_MAX    16          /* granules: two ragged ends of at most seven each */
#define EXTENT_SPARE 0xfffffffeu /* owner of a node that describes nothing */

struct node {
	uint64_t offset, bytes;
	uint32_t owner;
	uint32_t prev, next;         /* in address order; next: of spare nodes too */
	uint32_t bin_prev, bin_next; /* holes of one bin */
	uint32_t reserved;
};

struct extents {
	struct node *nodes;
	uint32_t node_room, node_count; /* nodes there is memory for, nodes ever used */
	uint32_t spare, spare_count;    /* chain of used ones that describe nothing now */
	uint32_t granule, page;
	uint32_t first; /* node at offset 0 */
	uint64_t bytes, used;
	uint64_t fl_map; /* first levels with holes */
	uint32_t sl_map[FL_COUNT];
	uint32_t bins[FL_COUNT][SL_COUNT];
	uint64_t most[FL_COUNT][SL_COUNT]; /* pages: no hole of the bin has more */
	uint32_t small_map;
	uint32_t small[SMALL_MAX];
};

/* Puts a free node among the holes, and takes it away; its size stays until then. */
void hole_file(struct extents *e, uint32_t node);
void hole_unfile(struct extents *e, uint32_t node);
/* One that a take of `bytes`, rounded, fits into; EXTENT_NONE. */
uint32_t hole_find(struct extents *e, uint64_t bytes);
/* How many there are; asserts that each stands where it belongs. */
uint32_t holes_check(const struct extents *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier dram: one arena of host memory that clients map, placed on NUMA nodes. Its first slab is
 * there before the first client comes, the others are made one after the other in the background.
 */
#ifndef TIERD_TIERS_DRAM_H
#define TIERD_TIERS_DRAM_H

#include "tiers/fault.h"
#include "tiers/tier.h"

struct dram_config {
	struct config_bytes size;
	uint64_t zone_bytes;   /* as configured; what it comes to is rounded up to whole slabs */
	int huge_pages;        /* enum arena_huge */
	int numa;              /* enum topo_mode */
	uint64_t slab;         /* bytes of a step, 0: all of it at once */
	uint64_t beside_bytes; /* no row: what is taken after it, as the staging segment is */
	struct fault_config fault;
};
extern const struct config_row dram_rows[];
extern const struct tier_ops dram_ops;

#endif

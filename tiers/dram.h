/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier dram: one arena of host memory that clients map, all of it there and placed on NUMA
 * nodes before the first client comes.
 */
#ifndef TIERD_TIERS_DRAM_H
#define TIERD_TIERS_DRAM_H

#include "tiers/fault.h"
#include "tiers/tier.h"

struct dram_config {
	struct config_bytes size;
	uint64_t zone_bytes; /* as configured; what it comes to is rounded up to whole slabs */
	int huge_pages;      /* enum arena_huge */
	int numa;            /* enum topo_mode */
	struct fault_config fault;
};
extern const struct config_row dram_rows[];
extern const struct tier_ops dram_ops;

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * `backend: memory` of the tier hbm: host memory that stands in for that of one GPU or several,
 * each with a copy lane of its own and, if wished, the bandwidth of a slower link. Clients map it
 * as they map dram.
 */
#ifndef TIERD_TIERS_MEMORY_H
#define TIERD_TIERS_MEMORY_H

#include "tiers/fault.h"
#include "tiers/tier.h"

struct memory_config {
	struct config_bytes size; /* of each device */
	uint64_t devices;
	uint64_t bandwidth; /* bytes a second, 0: as fast as the host copies */
	uint64_t slab;      /* bytes, 0: all of it is there from the start */
	uint64_t physical;  /* bytes of slabs at once, 0: no limit */
	struct fault_config fault;
};
extern const struct config_row memory_rows[];
extern const struct tier_ops memory_ops;

#endif

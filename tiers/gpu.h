/* SPDX-License-Identifier: Apache-2.0
 *
 * `backend: cuda` of the tier hbm: the memory of one NVIDIA GPU (or MIG instance) by the driver's
 * virtual memory, in slabs that are made on demand and that other processes map by descriptor.
 * Bytes move by the copy engines alone. In the tree only where configure found cuda.h.
 */
#ifndef TIERD_TIERS_GPU_H
#define TIERD_TIERS_GPU_H

#include "tiers/fault.h"
#include "tiers/tier.h"

/* An item of `devices`. */
struct gpu_name {
	char *device; /* "all", an ordinal, or a UUID */
};

struct gpu_config {
	struct config_list devices; /* of struct gpu_name; empty: all */
	struct config_bytes size;   /* of each */
	uint64_t slab_bytes;        /* 0: by size, see gpu_slab_bytes() */
	uint64_t spin_ns;
	bool scrub; /* slabs are zeroed when they are made */
	struct fault_config fault;
};
extern const struct config_row gpu_rows[];
extern const struct tier_ops gpu_ops;

/* What `slab` is where it is not set: a quarter of `bytes`, a power of two, 64 to 256 MiB. */
uint64_t gpu_slab_bytes(uint64_t bytes);

#endif

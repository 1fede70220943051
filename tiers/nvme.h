/* SPDX-License-Identifier: Apache-2.0
 *
 * The nvme backend: one file without a name in a folder, or one block device, driven by one
 * io_uring on the tier's lane thread. What the configuration says of it is in two tables: of a
 * path, and of all paths together.
 */
#ifndef TIERD_TIERS_NVME_H
#define TIERD_TIERS_NVME_H

#include "tiers/fault.h"
#include "tiers/tier.h"

struct nvme_path {
	char *path; /* an existing folder or a block device */
	struct config_bytes size;
	/* No row. Of a device: what stands before it is others' of this process, the first of
	 * which has claimed the device. */
	uint64_t start_bytes;
};
extern const struct config_row nvme_path_rows[];

/* The defaults of the table, for programs that read no configuration: 64, 1 MiB and 2. */
#define NVME_DEPTH_DEFAULT            64
#define NVME_BLOCK_DEFAULT            1048576
#define NVME_CHECKSUM_THREADS_DEFAULT 2

enum nvme_direct { NVME_DIRECT_TRY, NVME_DIRECT_REQUIRE, NVME_DIRECT_OFF };
struct nvme_options {
	uint64_t queue_depth;
	uint64_t block_bytes;
	uint64_t checksum_threads;
	int direct;                /* enum nvme_direct */
	struct fault_config fault; /* the seam under the lane */
};
extern const struct config_row nvme_option_rows[];

/* What the backend's open() takes as config. */
struct nvme_config {
	struct nvme_path path;
	struct nvme_options options;
	unsigned number; /* of the path, for the tier's name */
};
extern const struct tier_ops nvme_ops;

#endif

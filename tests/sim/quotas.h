/* SPDX-License-Identifier: Apache-2.0
 *
 * What namespaces are guaranteed and may have in runs by seed: of a GPU alone, and of every tier.
 * The guarantees of two fit the tiers of world.h.
 */
#ifndef TIERD_TESTS_SIM_QUOTAS_H
#define TIERD_TESTS_SIM_QUOTAS_H

#include "base/compiler.h"
#include "tests/sim/world.h"

#define QUOTA_ALL UINT64_MAX
static const struct engine_quota quotas_on_gpu[] = {
	{ .name = "a",
	  .tier = { [TIER_KIND_HBM] = { KIB(128), KIB(192) },
		    [TIER_KIND_DRAM] = { 0, QUOTA_ALL },
		    [TIER_KIND_NVME] = { 0, QUOTA_ALL } } },
	{ .name = "b",
	  .tier = { [TIER_KIND_HBM] = { KIB(128), QUOTA_ALL },
		    [TIER_KIND_DRAM] = { 0, QUOTA_ALL },
		    [TIER_KIND_NVME] = { 0, QUOTA_ALL } } },
};
static const struct engine_quota quotas_everywhere[] = {
	{ .prefix = true,
	  .tier = { [TIER_KIND_HBM] = { KIB(64), KIB(128) },
		    [TIER_KIND_DRAM] = { KIB(100), KIB(300) },
		    [TIER_KIND_NVME] = { KIB(200), KIB(700) } } },
	{ .name = "b",
	  .tier = { [TIER_KIND_HBM] = { 0, KIB(100) },
		    [TIER_KIND_DRAM] = { KIB(64), KIB(200) },
		    [TIER_KIND_NVME] = { 0, KIB(400) } } },
};
#undef QUOTA_ALL

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotas of namespaces in units of which the GPU of world.h has 16: for tests that count them.
 */
#ifndef TIERD_TESTS_SIM_UNITS_H
#define TIERD_TESTS_SIM_UNITS_H

#include "tests/sim/world.h"

#define UNIT KIB(16)
#define ALL  UINT64_MAX
#define FREE           \
	{              \
		0, ALL \
	}
#define HBM(guarantee, limit)                                                    \
	{                                                                        \
		[TIER_KIND_HBM] = { guarantee, limit }, [TIER_KIND_DRAM] = FREE, \
		[TIER_KIND_NVME] = FREE                                          \
	}

/* clang-format off */
static const struct engine_quota halves[] = {
	{ .name = "a", .tier = HBM(8 * UNIT, ALL) },
	{ .name = "b", .tier = HBM(8 * UNIT, ALL) },
};
static const struct engine_quota limited[] = {
	{ .name = "a", .tier = HBM(0, 4 * UNIT) },
};
/* clang-format on */

#endif

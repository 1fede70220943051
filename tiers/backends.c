/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/tier.h"

#include "base/check.h"
#include "tiers/dram.h"
#ifdef HAVE_CUDA
#include "tiers/gpu.h"
#endif
#include "tiers/memory.h"
#include "tiers/nvme.h"

/* One line a backend; the first of a kind is its default. */
const struct tier_ops *const tier_backends[] = {
	&memory_ops,
#ifdef HAVE_CUDA
	&gpu_ops,
#endif
	&dram_ops,   &nvme_ops, NULL,
};

const char *tier_kind_name(enum tier_kind kind)
{
	static const char *const names[] = { "hbm", "dram", "nvme" };

	ASSERT(kind < TIER_KINDS);
	return names[kind];
}

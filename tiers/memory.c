/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tiers/hugepage.h"
#include "tiers/mapped.h"

/* clang-format off */
const struct config_row memory_rows[] = {
	{ "size", CONFIG_BYTES, offsetof(struct memory_config, size), NULL, "1MiB", NULL,
	  CONFIG_REQUIRED, "Bytes of host memory that play the memory of each device; no %, as no "
	  "device is there to take it of.", NULL, NULL },
	{ "devices", CONFIG_COUNT, offsetof(struct memory_config, devices), "1", "1", "8", 0,
	  "How many devices are played: places 0, 1, ... of clients, each with a lane of its own.",
	  NULL, NULL },
	{ "bandwidth", CONFIG_RATE, offsetof(struct memory_config, bandwidth), "0B/s", NULL, NULL,
	  0, "Copies in and out of a device are slowed down to this; 0B/s is no limit.", NULL,
	  NULL },
	{ "slab", CONFIG_SIZE, offsetof(struct memory_config, slab), "0B", "0B", NULL,
	  CONFIG_HIDDEN, "Memory comes when it is wanted and goes when it is idle, in slabs of so "
	  "much (whole 2MiB); 0B is all at start.", NULL, NULL },
	{ "physical", CONFIG_SIZE, offsetof(struct memory_config, physical), "0B", "0B", NULL,
	  CONFIG_HIDDEN, "How much of the slabs of a device can be there at once; 0B is no limit.",
	  NULL, NULL },
	FAULT_ROW(struct memory_config),
	CONFIG_END
};
/* clang-format on */

static int memory_check(const void *config, struct err *err)
{
	const struct memory_config *c = config;

	if (c->size.permille != 0)
		return err_set(err, EINVAL,
			       "size: no %% with backend memory, as no device is "
			       "there to take it of");
	if (ALIGN_UP(c->slab, (uint64_t)HUGE_BYTES) > c->size.bytes)
		return err_set(err, EINVAL,
			       "slab: %" PRIu64 " bytes are more than `size`, %" PRIu64, c->slab,
			       c->size.bytes);
	return fault_check(&c->fault, TIER_KIND_HBM, c->slab > 0, err);
}

static int memory_count(const void *config, struct err *err)
{
	return (int)((const struct memory_config *)config)->devices;
}

static int memory_open(const void *config, unsigned index, const struct topology *topo,
		       struct tier **ret, struct err *err)
{
	const struct memory_config *c = config;
	char name[16];
	struct arena_options options = { .name = name,
					 .bytes = c->size.bytes,
					 .slab_bytes = ALIGN_UP(c->slab, (uint64_t)HUGE_BYTES),
					 .on_demand = c->slab > 0,
					 .huge = ARENA_HUGE_OFF };
	struct mapped_tier *m;
	size_t said;
	int r;

	snprintf(name, sizeof(name), "hbm%u", index);
	r = mapped_open(&memory_ops, &options, &m, err);
	if (r < 0)
		return r;
	m->rate = c->bandwidth;
	m->physical = c->physical;
	said = strlen(m->base.chosen);
	if (m->rate > 0)
		snprintf(m->base.chosen + said, sizeof(m->base.chosen) - said, ", %" PRIu64 " MB/s",
			 m->rate / 1000000);
	return mapped_finish(m, &c->fault, ret, err);
}

const struct tier_ops memory_ops = {
	.name = "memory",
	.help = "Host memory that stands in for a GPU's.",
	.kind = TIER_KIND_HBM,
	.rows = memory_rows,
	.config_size = sizeof(struct memory_config),
	.check = memory_check,
	.count = memory_count,
	.open = memory_open,
	MAPPED_OPS,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/dram.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "tiers/hugepage.h"
#include "tiers/limits.h"
#include "tiers/mapped.h"
#include "tiers/topo.h"

/* In the order of enum arena_huge and enum topo_mode. */
static const char *const huge_names[] = { "try", "off", "require", NULL };
static const char *const numa_names[] = { "nearest", "interleave", "off", NULL };

/* clang-format off */
const struct config_row dram_rows[] = {
	{ "size", CONFIG_BYTES, offsetof(struct dram_config, size), NULL, "1MiB", NULL,
	  CONFIG_REQUIRED, "Bytes of host memory, the first 1 GiB taken at start and the rest "
	  "while the daemon serves; in % of the machine's memory or of the tightest limit of the "
	  "container, but in bytes beside `domains`.", NULL, NULL },
	{ "zone", CONFIG_SIZE, offsetof(struct dram_config, zone_bytes), "0B", NULL, NULL, 0,
	  "Bytes of `size` for tensors made to be copied to and from a client's own GPU memory, "
	  "and for no others: each client that copies registers all of it once. 0B: there are no "
	  "such tensors.", NULL, NULL },
	{ "huge_pages", CONFIG_CHOICE, offsetof(struct dram_config, huge_pages), "try", NULL, NULL,
	  0, "2 MiB pages: from the pool if it has room for all, else transparent ones, which "
	  "Linux 6.1 or newer is asked for one by one. `require`: all of dram on such pages, or "
	  "tierd does not start.", huge_names, NULL },
	{ "numa", CONFIG_CHOICE, offsetof(struct dram_config, numa), "nearest", NULL, NULL, 0,
	  "Where the memory lies: on the nodes of the GPUs first and then on those that have CPUs, "
	  "on all nodes with DRAM, or wherever the kernel puts it.", numa_names, NULL },
	{ "slab", CONFIG_SIZE, offsetof(struct dram_config, slab), "1GiB", "0B", "1GiB",
	  CONFIG_HIDDEN, "How much is taken before the daemon serves, and then a step in the "
	  "background, in whole 2MiB; 0B takes all at start.", NULL, NULL },
	FAULT_ROW(struct dram_config),
	CONFIG_END
};
/* clang-format on */

static int dram_check(const void *config, struct err *err)
{
	const struct dram_config *c = config;

	return fault_check(&c->fault, TIER_KIND_DRAM, c->slab > 0, err);
}

static int decide_bytes(const struct dram_config *c, uint64_t *ret, struct err *err)
{
	struct limits limits;
	int r;

	if (c->size.permille == 0) {
		*ret = c->size.bytes;
		return 0;
	}
	r = limits_read("", &limits, err);
	if (r < 0)
		return err_prefix(err, "dram");
	*ret = limits.total.bytes / 1000 * c->size.permille;
	log_info(TIER, "dram: %u.%u %% of %" PRIu64 " MiB (%s)", c->size.permille / 10,
		 c->size.permille % 10, limits.total.bytes >> 20, limits.total.source);
	return 0;
}

static void say_nodes(struct tier_base *base, const struct topo_share *shares, unsigned n)
{
	size_t at = strlen(base->chosen);

	for (unsigned i = 0; i < n && at < sizeof(base->chosen); i++)
		at += (size_t)snprintf(base->chosen + at, sizeof(base->chosen) - at,
				       "%s%" PRIu64 " MiB on node %u", i == 0 ? "; " : ", ",
				       shares[i].bytes >> 20, shares[i].os_index);
}

static int dram_open(const void *config, unsigned index, const struct topology *topo,
		     struct tier **ret, struct err *err)
{
	const struct dram_config *c = config;
	struct topo_share shares[TOPO_NODES_MAX];
	struct arena_options options = {
		.name = "dram",
		.slab_bytes = ALIGN_UP(c->slab, (uint64_t)HUGE_BYTES),
		.beside_bytes = c->beside_bytes,
		.huge = c->huge_pages,
		.touch = true,
		.topo = topo,
		.shares = shares,
	};
	struct mapped_tier *m;
	int r = decide_bytes(c, &options.bytes, err);

	if (r < 0)
		return r;
	options.share_count =
		topo_shares(topo, (enum topo_mode)c->numa, options.bytes, shares, TOPO_NODES_MAX);
	r = mapped_open(&dram_ops, &options, &m, err);
	if (r < 0)
		return r;
	say_nodes(&m->base, shares, options.share_count);
	return mapped_finish(m, &c->fault, ret, err);
}

const struct tier_ops dram_ops = {
	.name = "host",
	.help = "Host memory that clients map.",
	.kind = TIER_KIND_DRAM,
	.rows = dram_rows,
	.config_size = sizeof(struct dram_config),
	.check = dram_check,
	.open = dram_open,
	MAPPED_OPS,
};

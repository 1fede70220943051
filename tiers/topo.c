/* SPDX-License-Identifier: Apache-2.0
 *
 * Node numbers have gaps, nodes have no memory or no CPUs, and virtual machines tell nonsense: what
 * is read here is only believed after trusted() has looked at it.
 */
#include "tiers/topo.h"

#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <numa.h>
#include <numaif.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

#define SHARE_ALIGNMENT MIB(2) /* so that no large page lies on two nodes */

/* ---- open ---------------------------------------------------------------------------------- */

/* HBM, NVM and the like are nodes too; programs get them only when they ask for them. */
static bool plain_dram(const struct hwloc_obj *node)
{
	return node->subtype == NULL || strcmp(node->subtype, "DRAM") == 0;
}

static void read_nodes(struct topology *topo, hwloc_topology_t h)
{
	hwloc_obj_t node = NULL;
	unsigned left_out = 0;

	while ((node = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, node)) != NULL) {
		struct topo_node *to = &topo->nodes[topo->node_count];
		int cpus = hwloc_bitmap_weight(node->cpuset);

		if (topo->node_count == TOPO_NODES_MAX) {
			left_out++;
			continue;
		}
		to->os_index = node->os_index;
		to->bytes = node->attr->numanode.local_memory;
		to->cpus = cpus > 0 ? (unsigned)cpus : 0;
		to->usable = to->bytes > 0 && plain_dram(node);
		topo->node_count++;
	}
	if (left_out > 0)
		log_warn(TIER, "topology: %u NUMA nodes beyond %u are left out", left_out,
			 TOPO_NODES_MAX);
}

static hwloc_obj_t node_object(hwloc_topology_t h, unsigned os_index)
{
	return hwloc_get_numanode_obj_by_os_index(h, os_index);
}

/* No CPU may be local to two nodes of plain memory. */
static bool trusted(const struct topology *topo, hwloc_topology_t h)
{
	hwloc_bitmap_t seen = hwloc_bitmap_alloc();
	bool good = seen != NULL;

	for (unsigned i = 0; i < topo->node_count && good; i++) {
		hwloc_obj_t node = node_object(h, topo->nodes[i].os_index);

		if (!topo->nodes[i].usable)
			continue;
		good = node != NULL && !hwloc_bitmap_intersects(seen, node->cpuset);
		if (good)
			hwloc_bitmap_or(seen, seen, node->cpuset);
	}
	hwloc_bitmap_free(seen);
	return good;
}

static void judge(struct topology *topo, hwloc_topology_t h)
{
	unsigned usable = 0;

	for (unsigned i = 0; i < topo->node_count; i++)
		usable += topo->nodes[i].usable;
	/* Without /sys, as in a chroot, hwloc makes one node up and knows no memory of it. */
	if (usable == 0)
		topo->node_count = 0;
	topo->numa = usable > 1;
	if (topo->numa && !trusted(topo, h)) {
		topo->numa = false;
		log_warn(TIER,
			 "topology: NUMA nodes share CPUs, which cannot be; NUMA is not used");
	}
	if (topo->numa && topo->this_system && numa_available() < 0) {
		topo->numa = false;
		log_warn(TIER, "topology: the kernel refuses NUMA calls; NUMA is not used");
	}
}

int topo_open(struct topology **ret, struct err *err)
{
	struct topology *topo = calloc(1, sizeof(*topo));
	hwloc_topology_t h;
	int cpus;

	if (topo == NULL || hwloc_topology_init(&h) < 0) {
		free(topo);
		return err_set(err, ENOMEM, "no memory for the machine's topology");
	}
	if (hwloc_topology_load(h) < 0) {
		int was = errno != 0 ? errno : EIO;

		hwloc_topology_destroy(h);
		free(topo);
		return err_set(err, was, "the machine's topology cannot be read: %s",
			       strerror(was));
	}
	topo->hwloc = h;
	topo->this_system = hwloc_topology_is_thissystem(h);
	cpus = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PU);
	topo->cpus = cpus > 0 ? (unsigned)cpus : 1;
	read_nodes(topo, h);
	judge(topo, h);
	*ret = topo;
	return 0;
}

void topo_close(struct topology *topo)
{
	if (topo == NULL)
		return;
	hwloc_topology_destroy(topo->hwloc);
	free(topo);
}

/* ---- plan ---------------------------------------------------------------------------------- */

static bool any_cpus(const struct topology *topo)
{
	for (unsigned i = 0; i < topo->node_count; i++)
		if (topo->nodes[i].usable && topo->nodes[i].cpus > 0)
			return true;
	return false;
}

/* The nodes that a plan uses; returns their memory together. */
static uint64_t choose(const struct topology *topo, enum topo_mode mode,
		       bool ret_used[TOPO_NODES_MAX])
{
	bool near = mode == TOPO_NEAREST && any_cpus(topo);
	uint64_t total = 0;

	for (unsigned i = 0; i < topo->node_count; i++) {
		const struct topo_node *n = &topo->nodes[i];

		ret_used[i] = n->usable && (!near || n->cpus > 0);
		total += ret_used[i] ? n->bytes : 0;
	}
	return total;
}

static unsigned first_usable(const struct topology *topo)
{
	for (unsigned i = 0; i < topo->node_count; i++)
		if (topo->nodes[i].usable)
			return topo->nodes[i].os_index;
	return 0;
}

/* Shares are as the nodes' memory, so that none is asked for more than it has while others rest. */
unsigned topo_plan(const struct topology *topo, enum topo_mode mode, uint64_t bytes,
		   struct topo_share *ret, unsigned max)
{
	bool used[TOPO_NODES_MAX] = { false };
	uint64_t total, before = 0, offset = 0;
	unsigned n = 0;

	ASSERT(max > 0);
	total = topo->numa && mode != TOPO_OFF ? choose(topo, mode, used) : 0;
	for (unsigned i = 0; i < topo->node_count && n < max; i++) {
		uint64_t end;

		if (!used[i])
			continue;
		before += topo->nodes[i].bytes;
		end = (uint64_t)((double)bytes * ((double)before / (double)total));
		end = before == total || n == max - 1 ? bytes : ALIGN_DOWN(end, SHARE_ALIGNMENT);
		if (end <= offset)
			continue;
		ret[n++] = (struct topo_share){ topo->nodes[i].os_index, offset, end - offset };
		offset = end;
	}
	if (n == 0)
		ret[n++] = (struct topo_share){ first_usable(topo), 0, bytes };
	return n;
}

/* ---- bind ---------------------------------------------------------------------------------- */

void topo_bind(const struct topology *topo, void *base, const struct topo_share *shares, unsigned n)
{
	struct bitmask *mask;

	if (!topo->numa || !topo->this_system)
		return;
	mask = numa_allocate_nodemask();
	for (unsigned i = 0; i < n && mask != NULL; i++) {
		numa_bitmask_clearall(mask);
		numa_bitmask_setbit(mask, shares[i].os_index);
		/* Preferred, not bound: a full node must not kill the daemon while others have
		 * room. */
		if (mbind((char *)base + shares[i].offset, shares[i].bytes, MPOL_PREFERRED,
			  mask->maskp, mask->size + 1, 0) < 0)
			log_warn(TIER, "topology: %" PRIu64 " MiB cannot be placed on node %u: %s",
				 shares[i].bytes >> 20, shares[i].os_index, strerror(errno));
	}
	if (mask != NULL)
		numa_free_nodemask(mask);
}

void topo_run_on(const struct topology *topo, unsigned os_index)
{
	if (!topo->numa || !topo->this_system)
		return;
	for (unsigned i = 0; i < topo->node_count; i++)
		if (topo->nodes[i].os_index == os_index && topo->nodes[i].cpus > 0 &&
		    numa_run_on_node((int)os_index) < 0)
			log_debug(TIER, "topology: a thread cannot run on node %u: %s", os_index,
				  strerror(errno));
}

void topo_print(const struct topology *topo, FILE *to)
{
	fprintf(to, "%u CPUs, %u NUMA nodes, %s\n", topo->cpus, topo->node_count,
		topo->numa ? "used" : "NUMA not used");
	for (unsigned i = 0; i < topo->node_count; i++)
		fprintf(to, "node %u: %" PRIu64 " MiB, %u CPUs%s\n", topo->nodes[i].os_index,
			topo->nodes[i].bytes >> 20, topo->nodes[i].cpus,
			topo->nodes[i].usable ? "" : ", not used");
}

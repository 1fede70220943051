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
#include <string.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/plural.h"

#define SHARE_ALIGNMENT MIB(2) /* so that no large page lies on two nodes */
/* Of a preferred node's memory an arena takes so much: processes that run there need some, too. */
#define PREFERRED_SHARE 3
#define PREFERRED_OF    4

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
		log_warn(TIER, "topology: %u NUMA %s left out beyond %u", left_out,
			 PLURAL(left_out, "node is", "nodes are"), TOPO_NODES_MAX);
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

/* hwloc passes over nodes that share CPUs with others, without a word. */
static bool passed_over(const struct topology *topo, hwloc_topology_t h)
{
	int known = hwloc_bitmap_weight(hwloc_topology_get_complete_nodeset(h));

	return topo->this_system && numa_available() >= 0 && numa_num_configured_nodes() > known;
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
	if (passed_over(topo, h) || (topo->numa && !trusted(topo, h))) {
		topo->numa = false;
		log_warn(TIER,
			 "topology: NUMA nodes share CPUs, which cannot be; NUMA is not used");
	}
	if (topo->numa && topo->this_system && numa_available() < 0) {
		topo->numa = false;
		log_warn(TIER, "topology: the kernel refuses NUMA calls; NUMA is not used");
	}
}

static void free_topology(struct topology *topo)
{
	if (topo != NULL)
		heap_free(topo->devices);
	heap_free(topo);
}

int topo_open(struct topology **ret, struct err *err)
{
	struct topology *topo = heap_zeros(1, sizeof(*topo));
	hwloc_topology_t h;
	int cpus;

	if (topo != NULL)
		topo->devices = heap_zeros(1, sizeof(*topo->devices));
	if (topo == NULL || topo->devices == NULL || hwloc_topology_init(&h) < 0) {
		free_topology(topo);
		return err_set(err, ENOMEM, "no memory for the machine's topology");
	}
	if (hwloc_topology_load(h) < 0) {
		int was = errno != 0 ? errno : EIO;

		hwloc_topology_destroy(h);
		free_topology(topo);
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
	if (topo->devices->hwloc != NULL)
		hwloc_topology_destroy(topo->devices->hwloc);
	free_topology(topo);
}

/* ---- devices ------------------------------------------------------------------------------- */

/* hwloc would ask the drivers of GPUs for what the PCI bus tells, and wake them. */
static void leave_drivers_alone(hwloc_topology_t h)
{
	static const char *const drivers[] = {
		"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"
	};

	for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
		hwloc_topology_set_components(h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
					      drivers[i]);
}

/* Not with the first: it takes its time on large machines, and most daemons have no GPU. */
static void load_devices(struct topo_devices *d)
{
	hwloc_topology_t h;

	d->tried = true;
	if (hwloc_topology_init(&h) < 0)
		return;
	leave_drivers_alone(h);
	if (hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
	    hwloc_topology_load(h) == 0)
		d->hwloc = h;
	else
		hwloc_topology_destroy(h);
}

int topo_pci_node(const struct topology *topo, const char *pci_bus_id)
{
	hwloc_obj_t device, around;
	int found = -1;

	if (!topo->devices->tried)
		load_devices(topo->devices);
	if (topo->devices->hwloc == NULL)
		return -1;
	device = hwloc_get_pcidev_by_busidstring(topo->devices->hwloc, pci_bus_id);
	if (device == NULL)
		return -1;
	around = hwloc_get_non_io_ancestor_obj(topo->devices->hwloc, device);
	for (unsigned i = 0; i < topo->node_count; i++) {
		const struct topo_node *n = &topo->nodes[i];

		if (!n->usable || !hwloc_bitmap_isset(around->nodeset, n->os_index))
			continue;
		/* Under the whole machine: nobody says where. */
		if (found >= 0 && around->parent == NULL)
			return -1;
		found = found < 0 ? (int)n->os_index : found;
	}
	return found;
}

void topo_prefer_node(struct topology *topo, int node)
{
	for (unsigned i = 0; i < topo->node_count; i++)
		if (node >= 0 && topo->nodes[i].os_index == (unsigned)node)
			topo->nodes[i].preferred = true;
}

/* ---- plan ---------------------------------------------------------------------------------- */

static bool any_cpus(const struct topology *topo)
{
	for (unsigned i = 0; i < topo->node_count; i++)
		if (topo->nodes[i].usable && topo->nodes[i].cpus > 0)
			return true;
	return false;
}

/* The nodes of a plan, the preferred ones or the others; returns their memory together. */
static uint64_t choose(const struct topology *topo, enum topo_mode mode, bool preferred,
		       bool ret_used[TOPO_NODES_MAX])
{
	bool near = mode == TOPO_NEAREST && any_cpus(topo);
	uint64_t total = 0;

	for (unsigned i = 0; i < topo->node_count; i++) {
		const struct topo_node *n = &topo->nodes[i];
		bool first = mode == TOPO_NEAREST && n->preferred;

		ret_used[i] = n->usable && first == preferred && (first || !near || n->cpus > 0);
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

struct plan {
	struct topo_share *shares;
	unsigned n, max;
	uint64_t end; /* of what is planned for */
};

/* Shares are as the nodes' memory, so that none is asked for more than it has while others rest. */
static void spread(const struct topology *topo, const bool used[TOPO_NODES_MAX], uint64_t total,
		   uint64_t bytes, struct plan *p)
{
	uint64_t from = p->end, before = 0;

	for (unsigned i = 0; i < topo->node_count && p->n < p->max; i++) {
		uint64_t end;

		if (!used[i])
			continue;
		before += topo->nodes[i].bytes;
		end = from + (uint64_t)((double)bytes * ((double)before / (double)total));
		end = before == total ? from + bytes : ALIGN_DOWN(end, SHARE_ALIGNMENT);
		if (end <= p->end)
			continue;
		p->shares[p->n++] =
			(struct topo_share){ topo->nodes[i].os_index, p->end, end - p->end };
		p->end = end;
	}
}

unsigned topo_plan(const struct topology *topo, enum topo_mode mode, uint64_t bytes,
		   struct topo_share *ret, unsigned max)
{
	bool first[TOPO_NODES_MAX] = { false }, rest[TOPO_NODES_MAX] = { false };
	struct plan p = { .shares = ret, .max = max };
	uint64_t first_total = 0, rest_total = 0, near;

	ASSERT(max > 0);
	if (topo->numa && mode != TOPO_OFF) {
		first_total = choose(topo, mode, true, first);
		rest_total = choose(topo, mode, false, rest);
	}
	near = ALIGN_DOWN(first_total / PREFERRED_OF * PREFERRED_SHARE, SHARE_ALIGNMENT);
	near = rest_total == 0 ? bytes : MIN(bytes, near);
	spread(topo, first, first_total, near, &p);
	spread(topo, rest, rest_total, bytes - p.end, &p);
	if (p.n == 0)
		ret[p.n++] = (struct topo_share){ first_usable(topo), 0, bytes };
	/* Room for fewer shares: the last takes the rest. */
	ret[p.n - 1].bytes = bytes - ret[p.n - 1].offset;
	return p.n;
}

unsigned topo_shares(const struct topology *topo, enum topo_mode mode, uint64_t bytes,
		     struct topo_share *ret, unsigned max)
{
	if (topo == NULL || !topo->numa || !topo->this_system || mode == TOPO_OFF)
		return 0;
	return topo_plan(topo, mode, bytes, ret, max);
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

void topo_take_from(const struct topology *topo, int os_index, struct topo_policy *ret_was)
{
	const int word_bits = 8 * sizeof(unsigned long), bits = TOPO_MASK_WORDS * word_bits;
	unsigned long nodes[TOPO_MASK_WORDS] = { 0 };

	ret_was->set = false;
	if (topo == NULL || !topo->numa || !topo->this_system || os_index < 0 ||
	    os_index >= bits - 1)
		return;
	nodes[os_index / word_bits] = 1ul << (os_index % word_bits);
	ret_was->set =
		get_mempolicy(&ret_was->mode, ret_was->nodes, (unsigned long)bits, NULL, 0) == 0 &&
		set_mempolicy(MPOL_PREFERRED, nodes, (unsigned long)bits) == 0;
	if (!ret_was->set)
		log_debug(TIER, "topology: node %d cannot be preferred: %s", os_index,
			  strerror(errno));
}

void topo_take_end(const struct topo_policy *was)
{
	if (was->set && set_mempolicy(was->mode, was->nodes, sizeof(was->nodes) * 8) < 0)
		log_debug(TIER, "topology: set_mempolicy: %s", strerror(errno));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * CPUs and NUMA nodes of this machine, by hwloc (which can be pointed at a recorded machine), and
 * binding by libnuma. Control thread.
 */
#ifndef TIERD_TIERS_TOPO_H
#define TIERD_TIERS_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TOPO_NODES_MAX  64
#define TOPO_MASK_WORDS 16 /* a bit a node, more than a kernel knows */

struct topo_node {
	unsigned os_index; /* as the kernel numbers it; gaps are possible */
	uint64_t bytes;    /* local memory */
	unsigned cpus;     /* usable CPUs in it, 0 is possible */
	bool usable;       /* has memory, and its kind is plain DRAM */
	bool preferred;    /* see topo_prefer_node() */
};

struct topology {
	void *hwloc; /* hwloc_topology_t, without devices */
	/* A second one with PCI devices, loaded for the first who asks for one. */
	struct topo_devices {
		void *hwloc;
		bool tried;
	} * devices;
	bool this_system; /* false: a recorded machine, nothing may be bound */
	bool numa;        /* more than one usable node and the data can be trusted */
	unsigned cpus;
	unsigned node_count;
	struct topo_node nodes[TOPO_NODES_MAX];
};

int topo_open(struct topology **ret, struct err *err);
void topo_close(struct topology *topo);

/* The node of plain DRAM that the PCI device ("0000:05:00.0") is nearest to; -1: not known. */
int topo_pci_node(const struct topology *topo, const char *pci_bus_id);
/* A device that copies much lies near `node` (-1: nothing changes): TOPO_NEAREST goes there first,
 * as far as that does not fill the node. */
void topo_prefer_node(struct topology *topo, int node);

/* Where an arena's bytes go: a share of [0, bytes) for each node used, in order, page-aligned. */
struct topo_share {
	unsigned os_index;
	uint64_t offset, bytes;
};
enum topo_mode {
	TOPO_NEAREST,    /* on preferred nodes, then over those that have CPUs, if any has */
	TOPO_INTERLEAVE, /* over all usable nodes */
	TOPO_OFF,        /* one share, never bound */
};
/* Of the nodes of a kind each has a share as its memory. Without NUMA there is one share. Returns
 * the number of shares, at most `max`. */
unsigned topo_plan(const struct topology *topo, enum topo_mode mode, uint64_t bytes,
		   struct topo_share *ret, unsigned max);
/* The plan for an arena of this daemon; 0: nothing is to be bound. */
unsigned topo_shares(const struct topology *topo, enum topo_mode mode, uint64_t bytes,
		     struct topo_share *ret, unsigned max);
/* Binds a mapping by the plan; a failure is logged and ignored. */
void topo_bind(const struct topology *topo, void *base, const struct topo_share *shares,
	       unsigned n);
/* Binds the calling thread to CPUs of a node; no effect without NUMA. */
void topo_run_on(const struct topology *topo, unsigned os_index);
/* From one to the other the calling thread's memory comes from that node where it can; no effect
 * without NUMA, for a node that is not known (< 0) and where the kernel refuses. */
struct topo_policy {
	bool set;
	int mode;
	unsigned long nodes[TOPO_MASK_WORDS];
};
void topo_take_from(const struct topology *topo, int os_index, struct topo_policy *ret_was);
void topo_take_end(const struct topo_policy *was);

#endif

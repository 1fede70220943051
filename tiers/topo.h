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
#include <stdio.h>

#include "base/err.h"

#define TOPO_NODES_MAX 64

struct topo_node {
	unsigned os_index; /* as the kernel numbers it; gaps are possible */
	uint64_t bytes;    /* local memory */
	unsigned cpus;     /* usable CPUs in it, 0 is possible */
	bool usable;       /* has memory, and its kind is plain DRAM */
};

struct topology {
	void *hwloc; /* hwloc_topology_t */
	bool this_system; /* false: a recorded machine, nothing may be bound */
	bool numa;        /* more than one usable node and the data can be trusted */
	unsigned cpus;
	unsigned node_count;
	struct topo_node nodes[TOPO_NODES_MAX];
};

int topo_open(struct topology **ret, struct err *err);
void topo_close(struct topology *topo);

/* Where an arena's bytes go: a share of [0, bytes) for each node used, in order, page-aligned. */
struct topo_share {
	unsigned os_index;
	uint64_t offset, bytes;
};
enum topo_mode {
	TOPO_NEAREST,    /* over the nodes that have CPUs, if any has */
	TOPO_INTERLEAVE, /* over all usable nodes */
	TOPO_OFF,        /* one share, never bound */
};
/* Each node's share is as its memory. Without NUMA there is one share. Returns the number of
 * shares, at most `max`. */
unsigned topo_plan(const struct topology *topo, enum topo_mode mode, uint64_t bytes,
		   struct topo_share *ret, unsigned max);
/* Binds a mapping by the plan; a failure is logged and ignored. */
void topo_bind(const struct topology *topo, void *base, const struct topo_share *shares,
	       unsigned n);
/* Binds the calling thread to CPUs of a node; no effect without NUMA. */
void topo_run_on(const struct topology *topo, unsigned os_index);
void topo_print(const struct topology *topo, FILE *to);

#endif

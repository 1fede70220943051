/* SPDX-License-Identifier: Apache-2.0
 *
 * A world for the engine without threads: tiers that are plain memory, lanes that are a list of
 * xfers which the stepper finishes in any order, a clock that it moves, and faults by its seed.
 */
#ifndef TIERD_TESTS_SIM_WORLD_H
#define TIERD_TESTS_SIM_WORLD_H

#include "base/heap.h"
#include "daemon/engine/engine.h"
#include "tiers/fault.h"

#define WORLD_TENSORS 256u
#define WORLD_HBM     KIB(256)
#define WORLD_DRAM    KIB(512)
#define WORLD_NVME0   KIB(1024)
#define WORLD_NVME1   KIB(512)
#define WORLD_BLOCK   KIB(16)
#define WORLD_FLIGHT  1024u

#define WORLD_HBM_SLAB  KIB(32)
#define WORLD_DRAM_SLAB KIB(128)
#define WORLD_ZONE      (2 * WORLD_DRAM_SLAB) /* the second slab of it comes in the background */
#define WORLD_SLABS     8u                    /* of a device, at most */

#define WORLD_DEVICES 5u

/* How many devices of each kind the machine has. */
struct world_shape {
	unsigned hbm, nvme; /* at most 2 of each; there is always one dram */
	bool slabs;         /* hbm has them on demand, and registers those of dram as they come */
	bool zone;          /* dram has one, of WORLD_ZONE */
	const struct engine_quota *quotas; /* a row a namespace */
	unsigned quota_count;
	uint64_t excess_ns; /* how long pins may keep others from what is theirs; 0: for ever */
	/* 0: 8 slots of staging, 95 % and 85 %, 50 ms. */
	unsigned staging_slots;
	struct engine_watermark watermark;
	uint64_t linger_ns;
	uint32_t overcommit_permille; /* of every class; 0: 1000 */
	bool short_start; /* before the run every allocation of the start is refused once */
};

struct world_device {
	struct tier tier;
	char *memory;
	bool backed[WORLD_SLABS], pinned[WORLD_SLABS]; /* pinned: of dram, with this device */
	unsigned importers[WORLD_SLABS];
	bool lost; /* nothing works there any more, and the bytes are gone */
};

struct flight {
	struct xfer *x;
	unsigned device;
	bool decided;    /* its fault was that it is late; it comes back whole */
	uint64_t due_ns; /* not before; FAULT_NEVER: it is lost, until world_heal() */
};

/* Allocations of the engine that are refused, by seed. */
struct world_memory {
	struct heap_refusal refusal;
	struct fault_config config;   /* no_memory, after and count */
	const struct heap_site *only; /* at this place; NULL: anywhere */
	struct fault_state state;
	unsigned refused;
};

struct world {
	struct engine *engine;
	struct world_memory memory;
	uint64_t taken; /* allocations at the beginning */
	struct table_header *table;
	struct descriptor *descriptors;
	struct stats_page *stats;
	void *records, *staging, *policy_config[ENGINE_CLASSES];
	const struct policy_ops *policy[ENGINE_CLASSES];
	struct world_shape shape;
	struct world_device devices[WORLD_DEVICES]; /* hbm, dram, nvme, in this order */
	unsigned device_count;
	struct flight flight[WORLD_FLIGHT];
	unsigned flying;
	uint64_t now_ns, random;
	struct fault_config fault_config[TIER_KINDS]; /* by seed; see tiers/fault.h */
	struct fault_state fault[WORLD_DEVICES];
	uint32_t harmed[TIER_KINDS]; /* bits of operations, see tiers/fault.h; 0: all */
	uint32_t fail_permille;      /* of xfers of nvme */
	int fail_result;             /* what those say that fail; 0: -EIO or -ENOSPC */
	/* Of all slabs of an hbm device, and how often there is no memory though there should be.
	 */
	uint64_t physical_bytes;
	uint32_t refuse_permille;
	int refuse_result;
	unsigned refusals;             /* each has another sentence */
	uint32_t fail_mapped_permille; /* of those of hbm and dram */
	uint64_t finished, failed;
	uint64_t rotten; /* writes after which reads find other bytes */
};

/* `policy`: of all classes; NULL: one for each, by the seed. Aborts when it cannot be made. */
void world_open(struct world *w, uint64_t seed, struct world_shape shape,
		const struct policy_ops *policy, const struct engine_hooks *hooks);
void world_close(struct world *w);

uint64_t world_random(struct world *w);
uint64_t world_below(struct world *w, uint64_t n);
/* Finishes one xfer, any of those in flight that are due; false: there is none. */
bool world_finish_one(struct world *w);
/* Nothing fails any more, and what was lost comes back late. */
void world_heal(struct world *w);
/* Moves the clock and lets the engine have its turn. */
void world_turn(struct world *w, uint64_t ns);
/* A GPU falls off: the next xfer there says so. */
void world_lose(struct world *w, unsigned device);
/* Whether [offset, bytes) of a device has memory. */
bool world_is_backed(const struct world *w, unsigned device, uint64_t offset, uint64_t bytes);
/* The hook for engine_hooks.submit; its ctx must be the world. */
void world_submit(void *ctx, unsigned device, struct xfer *x);

#endif

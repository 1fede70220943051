/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults by seed. One decision function serves four places: the `fault` backend, which stands
 * around any tier and harms whole xfers, the seam under the nvme lane, which harms single
 * completions, the daemon's own allocations, and the world of the simulator. Decisions depend on
 * the seed and the call's number alone, so a run can be repeated. Lane thread, but for
 * fault_wrap(), fault_heap() and what checks and tells a configuration.
 */
#ifndef TIERD_TIERS_FAULT_H
#define TIERD_TIERS_FAULT_H

#include "tiers/tier.h"

/* Bits of operations. */
#define FAULT_READ  (1u << XFER_READ)
#define FAULT_WRITE (1u << XFER_WRITE)
#define FAULT_ZERO  (1u << XFER_ZERO)
#define FAULT_COPY  (1u << XFER_COPY)
#define FAULT_SYNC  (1u << XFER_SYNC)
#define FAULT_BACK  (1u << XFER_BACK)
#define FAULT_PUT   (FAULT_WRITE | FAULT_ZERO | FAULT_COPY)
#define FAULT_ANY   (FAULT_READ | FAULT_PUT | FAULT_SYNC)
/* Bits of tiers. */
#define FAULT_HBM    (1u << TIER_KIND_HBM)
#define FAULT_NVME   (1u << TIER_KIND_NVME)
#define FAULT_MAPPED (FAULT_HBM | 1u << TIER_KIND_DRAM)
#define FAULT_ALL    (FAULT_MAPPED | FAULT_NVME)

/* X(NAME, key, operations, tiers, simulated, "help"), in the order in which one roll goes through
 * the shares. Every row is a key of the map `fault:`, and a row that is simulated has to be met in
 * a run of the simulator, in every operation and tier that it names (tests/sim/coverage.c). */
#define FAULT_KINDS(X)                                                                             \
	X(READ_ERROR, read_error, FAULT_READ, FAULT_ALL, true,                                     \
	  "Share of reads that fail with EIO.")                                                    \
	X(WRITE_ERROR, write_error, FAULT_PUT | FAULT_SYNC, FAULT_ALL, true,                       \
	  "Share of writes, zeroings, copies inside the tier and syncs that fail with EIO.")       \
	X(NO_SPACE, no_space, FAULT_WRITE | FAULT_SYNC, FAULT_NVME, true,                          \
	  "nvme: share of writes and syncs that fail with ENOSPC.")                                \
	X(NO_MEMORY, no_memory, FAULT_BACK, FAULT_MAPPED, true,                                    \
	  "dram, hbm: share of slabs that cannot be made (ENOMEM).")                               \
	X(SHORT_READ, short_read, FAULT_READ, FAULT_ALL, true, "Share of reads that end early.")   \
	X(SHORT_WRITE, short_write, FAULT_PUT, FAULT_ALL, true, "Share of writes that end early.") \
	X(CORRUPT, corrupt, FAULT_READ, FAULT_NVME, true,                                          \
	  "nvme: share of reads that return one flipped byte.")                                    \
	X(ROT, rot, FAULT_WRITE, FAULT_NVME, true,                                                 \
	  "nvme: share of writes after which every read of that block finds other bytes.")         \
	X(LATE, late, FAULT_ANY | FAULT_BACK, FAULT_ALL, true,                                     \
	  "Share of calls and slabs that come back after late_by.")                                \
	X(LOST, lost, FAULT_ANY | FAULT_BACK, FAULT_ALL, true,                                     \
	  "Share of calls and slabs that do not come back before tierd ends.")                     \
	X(DOUBLED, doubled, FAULT_READ | FAULT_WRITE | FAULT_SYNC, FAULT_NVME, false,              \
	  "nvme: share of requests that the kernel completes twice.")

enum fault_kind {
	FAULT_NONE,
#define X(name, key, ops, tiers, simulated, help) FAULT_##name,
	FAULT_KINDS(X)
#undef X
		FAULT_COUNT
};

struct fault_rule {
	const char *key;
	uint32_t ops, tiers;
	bool simulated;
};
extern const struct fault_rule fault_rules[FAULT_COUNT];

enum fault_start { FAULT_START_WELL, FAULT_START_NO_MEMORY, FAULT_START_NO_SPACE };

struct fault_config {
	struct config_presence presence; /* an optional map `fault:` */
	uint64_t seed;
	union {
		struct {
#define X(name, key, ops, tiers, simulated, help) uint32_t key;
			FAULT_KINDS(X)
#undef X
		};
		uint32_t share[FAULT_COUNT - 1]; /* the same, by kind - 1: permille of calls */
	};
	int start;             /* enum fault_start */
	bool no_register;      /* nvme: host memory is not registered with the device */
	uint64_t delay_ns;     /* added to each completion */
	uint64_t late_ns;      /* of LATE */
	uint64_t after, count; /* harm only calls after..after+count-1; 0: no end */
};
extern const struct config_row fault_rows[];
extern const struct config_sub fault_sub;

/* The map `fault:` of a backend whose configuration has it as a member of that name. */
#define FAULT_ROW(type)                                                                     \
	{                                                                                   \
		.key = "fault", .kind = CONFIG_MAP, .offset = offsetof(type, fault),        \
		.flags = CONFIG_OPTIONAL | CONFIG_HIDDEN,                                   \
		.help = "Harms a share of the copies: for tests, and to rehearse a device " \
			"that fails.",                                                      \
		.sub = &fault_sub,                                                          \
	}

/* The map `fault:` of the daemon itself, of which the struct has only these members. */
extern const struct config_sub fault_heap_sub;
/* One that harms nothing: -EINVAL. */
int fault_heap_check(const struct fault_config *config, struct err *err);
/* From now on allocations (base/heap.h) of the whole process are refused as `config` says, which
 * stays valid until this is called with NULL. C thread. */
void fault_heap(const struct fault_config *config);

/* What a tier of this kind cannot meet, shares beyond 100%, and a map that harms nothing: -EINVAL,
 * with the key. `slabs`: memory of the tier comes and goes. */
int fault_check(const struct fault_config *config, enum tier_kind kind, bool slabs,
		struct err *err);
/* -ENOMEM or -ENOSPC, with a sentence, where the tier is not to open. */
int fault_starts(const struct fault_config *config, const char *name, struct err *err);
/* Beginning of `chosen`: "FAULTS ARE INJECTED (seed 7), ". */
#define FAULT_TEXT_BYTES 64
void fault_text(const struct fault_config *config, char text[FAULT_TEXT_BYTES]);
/* Once, in the log: that they are, and which. */
void fault_say(const struct fault_config *config, const char *name);

struct fault_decision {
	enum fault_kind kind;
	int error;         /* -errno of those that are an error */
	bool after;        /* of those: the bytes have moved, all of them or some */
	uint64_t bytes;    /* SHORT: what is left of the length, < the length */
	uint64_t where;    /* CORRUPT, ROT: which byte is flipped */
	uint64_t delay_ns; /* FAULT_NEVER: it is lost */
};
#define FAULT_NEVER UINT64_MAX

struct fault_state {
	const struct fault_config *config;
	uint64_t calls; /* decided so far */
	uint64_t slabs; /* and of slabs, which count by themselves */
};
/* Pure in (config, numbers in state, op, bytes); counts the call. */
struct fault_decision fault_decide(struct fault_state *state, uint8_t op, uint64_t bytes);
/* Whether a fault of this kind can meet the operation before or after its bytes have moved. */
bool fault_can(enum fault_kind kind, uint8_t op, bool after);

/* Stands `inner` inside a tier that forwards everything and harms xfers as `config` says, which
 * stays valid until close. Owns `inner` once it has succeeded. C thread. */
int fault_wrap(struct tier *inner, const struct fault_config *config, struct tier **ret,
	       struct err *err);

#endif

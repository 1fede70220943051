/* SPDX-License-Identifier: Apache-2.0
 *
 * The stepper: model clients that follow the protocol of libtierd over an engine in a world
 * (world.h), and an oracle that knows every byte. One seed, one run.
 */
#ifndef TIERD_TESTS_SIM_STEPPER_H
#define TIERD_TESTS_SIM_STEPPER_H

#include "tests/sim/coverage.h"
#include "tests/sim/world.h"

#define CLIENTS  3u
#define LINES    3u /* streams of a client that have work */
#define REQUESTS 16u
#define VIEWS    8u
#define BATCH    3u
#define MODELS   64u

struct model {
	struct wire_handle handle;
	uint64_t bytes;
	unsigned char *expected;
	unsigned owner;       /* namespace */
	struct holder *maker; /* client that made it */
	bool live, named, zoned;
	bool fuzzy; /* a copy into it was cancelled half-way, or its old bytes were given up and the
		       new ones are not there yet: not compared until it is overwritten */
	uint64_t writes;  /* times it was overwritten */
	bool may_be_lost; /* with a GPU: see losses.h */
};

struct want {
	bool used, acquire, done; /* done: answered 0, to be pinned */
	size_t n;
	unsigned model[BATCH];
	struct wire_handle handle[BATCH]; /* a model may stand for another tensor by now */
	uint8_t place, access;
	bool on;
	uint64_t token; /* done: its fence */
	/* copies */
	bool in;
	uint64_t offset, bytes;
	char *window;
	struct kept *kept; /* out: what it may bring as well, see copies.h */
	bool any;          /* likewise, and nobody knows what */
};

struct view {
	bool used;
	unsigned model;
	struct wire_handle handle;
	uint8_t place, access;
	uint64_t word1; /* where it stood when it was pinned */
	bool unfilled;  /* its writer has stopped before he said `filled` */
	/* acquire_on: its stream waits for the token's fence */
	uint64_t token;
	bool arriving, failed;
	bool was_fuzzy; /* what the oracle knew before old bytes were given up, at `writes` */
	uint64_t writes;
	/* release_on: it ends when the stream gets to `value` */
	bool deferred;
	unsigned line;
	uint64_t value;
};

struct client {
	struct stepper *stepper;
	struct holder *holder;
	pin_slot *pins;
	struct fence *fences;
	struct stream_word *streams;
	struct deferred_ring *deferred;
	uint64_t last[LINES]; /* values put on the streams */
	bool stopped;
	struct want want[REQUESTS];
	struct view view[VIEWS];
	bool mapped[2][WORLD_SLABS]; /* of each gpu */
	bool asked[2][WORLD_SLABS];  /* to unmap it */
	unsigned name_space;
	int pid;
};

struct stepper {
	struct world world;
	struct client *clients[CLIENTS];
	struct model models[MODELS];
	const struct stepper_trouble *trouble;
	uint64_t lose_at[2]; /* steps at which GPUs fall off */
	uint64_t shaken;     /* steps for which clients die of that */
	uint64_t completions, hits, errors, names, grants, marks, lost;
	uint64_t broken; /* answers of -EIO */
	unsigned looked; /* model that the oracle has looked at */
};

/* What a run meets besides its seed. */
struct stepper_trouble {
	struct world_shape shape;
	bool faults;          /* nvme fails now and then, and there is no memory for slabs */
	bool mapped_faults;   /* so do hbm and dram */
	bool losses;          /* GPUs fall off for good */
	uint64_t lose_within; /* so many steps; 0: 3000 */
	bool discards;        /* most writers give up the old bytes */
	bool crowded;         /* tensors of any size, of all that is admitted */
	bool flicker; /* a client raises and lowers reader's pins from another thread at any time */
	/* Shares of these beside those that the flags above stand for. */
	struct fault_config fault[TIER_KINDS];
	uint32_t harmed[TIER_KINDS];  /* they meet these operations alone; 0: all */
	struct fault_config memory;   /* share of the engine's allocations, */
	const struct heap_site *only; /* or of those at one place */
	unsigned models;              /* tensors at most; 0: MODELS */
	unsigned name_spaces;         /* 0: 2 */
	unsigned favour;              /* 0: none; else a kind of action that is taken more often */
	const char *command; /* what repeats it, without variables; NULL: see check_engine.c */
};

/* Kinds of action that a run may favour: 1 to this. */
#define STEPPER_FAVOURS 12u

/* `steps` actions by seed, then everything is healed, read back, compared and destroyed. Aborts (by
 * ASSERT, after saying seed and step) on any difference. */
void stepper_run(uint64_t seed, uint64_t steps, const struct policy_ops *policy,
		 const struct stepper_trouble *trouble);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda backend over the fake driver, driven as a lane drives it, but by the test's own thread:
 * bytes move when the test says so.
 */
#ifndef TIERD_TESTS_GPU_RIG_H
#define TIERD_TESTS_GPU_RIG_H

#include "tests/fake/cuda/fake_cuda.h"
#include "tiers/gpu.h"

#define RIG_SLAB  MIB(16)
#define RIG_SLABS 4
#define RIG_HOST  MIB(96)

struct gpu_rig {
	struct gpu_config config, *kept; /* the tier's copy, which does not move with the rig */
	struct tier *tier;
	int wake_fd;
	unsigned char *host; /* RIG_HOST bytes, announced and ready */
	unsigned lent;
	uint64_t seed;
};

/* What each test begins and ends with: two devices of 256 MiB, and nothing is left of them. */
void gpu_rig_begin(void);
void gpu_rig_end(void);
extern bool gpu_rig_leaks; /* of this test: something is left */
/* One that must open. */
struct gpu_rig gpu_rig_new(unsigned index);

/* Zero `config.size.bytes`: RIG_SLABS slabs of RIG_SLAB. 0 or the failure of open() or
 * lane_start(). */
int gpu_rig_open(struct gpu_rig *rig, unsigned index, struct err *err);
void gpu_rig_close(struct gpu_rig *rig);

/* Lends; those that were refused are offered again by gpu_rig_turn(). */
void gpu_rig_lend(struct gpu_rig *rig, struct xfer *x);
/* One turn of a lane, without waiting; returns how many came back, at most `max`. */
unsigned gpu_rig_turn(struct gpu_rig *rig, struct xfer **done, unsigned max);
/* Turns and steps until all came back. */
void gpu_rig_finish(struct gpu_rig *rig);
/* One xfer alone; returns its result. */
int gpu_rig_run(struct gpu_rig *rig, struct xfer *x);
int gpu_rig_back(struct gpu_rig *rig, unsigned first, unsigned count);

/* A pattern that depends on place and seed. */
void gpu_rig_fill(unsigned char *at, uint64_t bytes, unsigned seed);
bool gpu_rig_all(const unsigned char *at, uint64_t bytes, unsigned char value);
/* What the GPU holds. */
unsigned char *gpu_rig_memory(struct gpu_rig *rig);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What tiers have in common whose arena the daemon maps itself (memory, dram): all operations but
 * open(). Xfers are host copies into and out of the arena, made by the lane's thread in pieces, so
 * that a demand overtakes a write-back that is under way. With a rate, the lane sleeps as long as a
 * slower device would make it wait. Slabs are made and given back by a helper thread.
 */
#ifndef TIERD_TIERS_MAPPED_H
#define TIERD_TIERS_MAPPED_H

#include "tiers/arena.h"
#include "tiers/backer.h"
#include "tiers/fault.h"
#include "tiers/tier.h"

struct mapped_tier {
	struct tier_base base;
	struct arena arena;
	_Atomic uint32_t damaged; /* clients punched holes that could not be filled */
	/* Set before the lane starts. */
	uint64_t rate;     /* bytes a second, 0: no limit */
	uint64_t physical; /* bytes of slabs that can be there at once, 0: all */
	/* The lane's. */
	int wake_fd;
	uint64_t ready_ns;                  /* when the device that is played has time again */
	struct xfer *held[XFER_PRIORITIES]; /* one each: the lane keeps the queues */
	uint64_t copied[XFER_PRIORITIES];   /* bytes of it that are done */
	struct backer backer;               /* where there are slabs */
	/* The helper's, while the lane runs. */
	uint64_t backed, large; /* bytes there now; of those that it made, on large pages */
	uint64_t opened_ns;
};

/* C. Makes the arena and the struct around it; `ops` are the backend's. */
int mapped_open(const struct tier_ops *ops, const struct arena_options *options,
		struct mapped_tier **ret, struct err *err);

/* C. What open() returns: `m`, with faults around it where the configuration has them. Closes `m`
 * on failure. */
int mapped_finish(struct mapped_tier *m, const struct fault_config *fault, struct tier **ret,
		  struct err *err);

/* What the backend's table has beside its name, its rows and open(); threads as in tier.h. */
#define MAPPED_OPS                                                                               \
	.close = mapped_close, .export_arena = mapped_export, .trim = mapped_trim,               \
	.ending = mapped_ending, .lane_start = mapped_lane_start, .lane_stop = mapped_lane_stop, \
	.queue = mapped_queue, .commit = mapped_commit, .reap = mapped_reap, .wait = mapped_wait
void mapped_close(struct tier *t);
int mapped_export(struct tier *t, struct arena_token *ret, struct err *err);
void mapped_trim(struct tier *t, uint64_t offset, uint64_t bytes);
void mapped_ending(struct tier *t);
int mapped_lane_start(struct tier *t, int wake_fd, struct err *err);
void mapped_lane_stop(struct tier *t);
int mapped_queue(struct tier *t, struct xfer *x);
void mapped_commit(struct tier *t);
unsigned mapped_reap(struct tier *t, struct xfer **done, unsigned max);
void mapped_wait(struct tier *t, int64_t timeout_ns);

#endif

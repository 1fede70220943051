/* SPDX-License-Identifier: Apache-2.0
 *
 * A lane is the thread that owns one tier's slow thing. The control thread submits xfers; the lane
 * feeds them to the backend by priority (demand > write-back > prefetch), as deep as the backend
 * takes them, and hands them back. Wake-ups are by eventfd in both directions, and only when the
 * other side sleeps (an eventcount). The lane never sees a tensor.
 */
#ifndef TIERD_TIERS_LANE_H
#define TIERD_TIERS_LANE_H

#include "tiers/tier.h"

struct lane;

/* C. Starts the thread. `done_fd` is an eventfd of the control thread, written when completions are
 * there and `*done_wanted` is set (the control thread sets it, seq_cst, before it sleeps and then
 * looks once more with lane_reap()). */
int lane_start(struct tier *tier, int done_fd, _Atomic uint32_t *done_wanted, struct lane **ret,
	       struct err *err);
/* C. Waits for what is in flight, ends the thread. Every xfer lent was given back before. */
void lane_stop(struct lane *lane);

/* C. Lends `x` until lane_reap() returns it. Does not block. lane_kick() after a batch. */
void lane_submit(struct lane *lane, struct xfer *x);
void lane_kick(struct lane *lane);
/* C. At most `max` finished xfers, in the order in which they finished. */
unsigned lane_reap(struct lane *lane, struct xfer **done, unsigned max);

/* C. No slabs are made any more: what is lent comes back soon. */
void lane_ending(struct lane *lane);

#endif

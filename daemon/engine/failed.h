/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills that fail under pins. Whoever was let in while the front was FILLING may look at the bytes
 * at any time, so they become 0xff, and the extent stays until the last pin is gone; what stood
 * before the fill, below or elsewhere, stands untouched and serves everybody afterwards. All the
 * while the fill stays the tensor's one move, so that nothing else touches it. Control thread.
 */
#ifndef TIERD_ENGINE_FAILED_H
#define TIERD_ENGINE_FAILED_H

#include "daemon/engine/state.h"

/* Called when no piece of the fill is in flight any more. True: it has failed and pins stand on it,
 * so it is FAILED and goes on; false: it has not, or nobody pins it nor can any more (DROPPING). */
bool failed_under_pins(struct engine *e, struct move *m);
/* The bytes are 0xff, or the device refuses even that. */
void failed_marked(struct engine *e, struct move *m);
/* Looks for those whose last pin has gone; returns when to be called again. */
uint64_t failed_turn(struct engine *e);
/* The same without a look. */
uint64_t failed_due(const struct engine *e);

/* What a fill came to, for those who wait for its bytes: 0 or -errno. */
int fill_result(const struct move *m);
/* Whether the move is of a FAILED front. */
static inline bool move_failed(const struct move *m)
{
	return m->phase != MOVE_RUNS;
}

#endif

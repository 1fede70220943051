/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves: one tensor changing tier, cut into pieces, each one xfer on one lane (or two, where the
 * bytes hop through a staging slot). At most one move a tensor. A move that ends wakes the requests
 * that wait for it; it may end before the call that starts it returns. Control thread.
 */
#ifndef TIERD_ENGINE_MOVE_H
#define TIERD_ENGINE_MOVE_H

#include "daemon/engine/state.h"

/* Brings the front to `device` into the extent `node`, which the caller took and which is the
 * move's from now on (EXTENT_NONE where a replica stands there already). `discard`: every asker
 * overwrites all of it. 0: begun, perhaps done. -EBUSY: pinned elsewhere, nothing has changed and
 * `node` is still the caller's; -EDEADLK: likewise, by `asker` itself; -ENOMEM. */
int move_fill(struct engine *e, uint32_t tensor, uint8_t device, uint32_t node, uint8_t priority,
	      bool discard, const struct holder *asker);
/* Whether move_fill() to `device` needs an extent. */
bool move_fill_needs_room(const struct engine *e, uint32_t tensor, uint8_t device);

/* Copies the front to a lower tier. 0: begun; -EALREADY: a lower tier has the bytes; -EBUSY: write
 * pins; -ENOSPC: no room below (noted as wanted there); -ENODEV: there is nothing below. */
int move_clean(struct engine *e, uint32_t tensor, bool to_nvme, bool drop_after, uint8_t priority);

/* Copies the front into extent `node` of its own device. 0, -EBUSY, -ENOMEM; as move_fill(). */
int move_compact(struct engine *e, uint32_t tensor, uint32_t node);
/* Moves the front to where `lead` begins, which ends where the front's own extent begins: what it
 * leaves at the other end comes free. For host memory, where a copy that fails has moved nothing.
 */
int move_slide(struct engine *e, uint32_t tensor, uint32_t lead);

/* One block's range between window and nvme, for a copy request; the window is request->window. */
int move_copy(struct engine *e, struct request *request, uint64_t offset, uint64_t bytes);
/* fdatasync of a device, for a flush. */
int move_sync(struct engine *e, struct request *request, uint8_t device);

/* Ends a move early: no further pieces; it ends when what is in flight has come back. */
static inline void move_stop(struct move *m)
{
	m->stop = true;
}
/* A fill whose bytes did not come gives its extent back; the front is again what it was before. */
void move_fill_undo(struct engine *e, struct move *m);
/* All that wait for the move are told. `granted`: only those that were answered before it ended, or
 * only the others. */
void move_tell_all(struct engine *e, struct move *m);
void move_tell(struct engine *e, struct move *m, bool granted);
/* Whether it is a fill to `device` whose bytes may still come. */
static inline bool move_brings(const struct move *m, uint8_t device)
{
	return m->kind == MOVE_FILL && m->to == device && m->phase == MOVE_RUNS && m->result == 0 &&
	       !m->stop;
}
/* Somebody waits for the move now: its place among those that wait for staging changes (piece.c).
 */
void move_urge(struct engine *e, struct move *m);
void move_piece_done(struct engine *e, struct piece *p);
struct move *move_get(struct engine *e, uint32_t id);

/* What the kinds of moves share: a number and, where it is of a tensor, the tensor's one place for
 * moves (NULL: no memory); its end; and how many pieces it has, once both sides are known. */
struct move *move_new(struct engine *e, enum move_kind kind, uint32_t tensor);
void move_free(struct engine *e, struct move *m);
void move_plan(struct engine *e, struct move *m, uint64_t bytes);
/* The last piece of a clean has come back (clean.c). */
void move_clean_end(struct engine *e, struct move *m);

#endif

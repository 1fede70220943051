/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces: the xfers of moves, and the staging slots that some of them hop through. Slots are
 * shared, but for a few of each direction's own, so that what comes up never waits for ever for
 * what goes down. Control thread.
 */
#ifndef TIERD_ENGINE_PIECE_H
#define TIERD_ENGINE_PIECE_H

#include "daemon/engine/state.h"

/* Lends as many pieces to lanes as the move may have in flight; ends the move when none is left.
 * The move may be gone when this returns. */
void pieces_pump(struct engine *e, struct move *m);
/* An xfer came back: goes on to its second half (false), or is done (true: pump the move). */
bool piece_done(struct engine *e, struct piece *p);
/* Moves that waited for staging slots. */
void pieces_pump_staging(struct engine *e);
/* A piece that nobody uses; NULL: no memory. */
struct piece *piece_new(struct engine *e);
void piece_give(struct engine *e, struct piece *p);
/* Called by pieces_pump() when the last piece is done (move.c). */
void move_finished(struct engine *e, struct move *m);

/* What every xfer goes through, also one of no move (its owner is NULL): counted, lent; and back.
 * `l` stands beside it. */
void xfer_lend(struct engine *e, uint8_t device, struct xfer *x, struct lent *l);
void xfer_take_back(struct engine *e, uint8_t device, struct xfer *x);

#endif

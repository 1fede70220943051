/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/failed.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "daemon/engine/move.h"
#include "daemon/engine/piece.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/publish.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"

#define FAILED_LONGEST_NS (100 * NS_PER_MS)

int fill_result(const struct move *m)
{
	if (m->failure < 0)
		return m->failure;
	if (m->result < 0)
		return m->result;
	return m->stop ? -ESTALE : 0;
}

/* The same extent once more, with 0xff instead of the bytes. */
static void mark(struct engine *e, struct move *m)
{
	m->phase = MOVE_MARKS;
	m->failure = fill_result(m);
	m->result = 0;
	m->stop = false;
	m->from = DEVICE_NONE;
	m->from_kind = TIER_KINDS;
	m->next_piece = m->done_pieces = 0;
	m->priority = XFER_DEMAND;
	move_plan(e, m, record_of(e, m->tensor)->bytes);
}

bool failed_under_pins(struct engine *e, struct move *m)
{
	char text[TENSOR_TEXT_BYTES];

	if (m->result == 0 && !m->stop)
		return false;
	/* The handshake of front_close(): whoever pins from here on sees DROPPING and backs out;
	 * whoever was before us is seen now. */
	publish(e, m->tensor, STATE_DROPPING, 0);
	if (!pins_any(e, m->tensor))
		return false;
	if (m->result == 0)
		snprintf(m->cause, sizeof(m->cause), "%s was destroyed",
			 tensor_text(e, m->tensor, text));
	move_tell(e, m, false);
	if (m->for_prefetch)
		e->devices[m->to].prefetch_bytes -= record_of(e, m->tensor)->bytes;
	m->for_prefetch = false;
	mark(e, m);
	publish(e, m->tensor, STATE_FAILED, 0);
	log_info(MOVE, "%s: pinned while it was filled: it reads as 0xff until it is released",
		 tensor_text(e, m->tensor, text));
	pieces_pump(e, m);
	return true;
}

void failed_marked(struct engine *e, struct move *m)
{
	m->phase = MOVE_FAILED;
	m->result = m->failure;
	e->failed_at_ns = MIN(failed_due(e), e->now_ns + POLL_NS); /* no later than others */
	e->failed_wait_ns = POLL_NS;
	list_push_back(&e->failed, &m->failed_link);
	move_tell_all(e, m); /* a copy may read what is below now */
}

static void end(struct engine *e, struct move *m)
{
	list_remove(&m->failed_link);
	move_fill_undo(e, m);
	move_tell_all(e, m);
	move_free(e, m);
	look_at_queues(e);
}

uint64_t failed_due(const struct engine *e)
{
	return list_empty(&e->failed) ? ENGINE_NEVER : e->failed_at_ns;
}

uint64_t failed_turn(struct engine *e)
{
	struct list *it, *tmp;

	if (e->now_ns < failed_due(e))
		return failed_due(e);
	list_for_each_safe (it, tmp, &e->failed) {
		struct move *m = list_entry(it, struct move, failed_link);

		/* FAILED lets nobody in: what is not pinned now stays so. */
		if (m->readers == 0 && !pins_any(e, m->tensor))
			end(e, m);
	}
	e->failed_wait_ns =
		e->waiting > 0 ? POLL_NS : MIN(e->failed_wait_ns * 2, FAILED_LONGEST_NS);
	e->failed_at_ns = e->now_ns + e->failed_wait_ns;
	return failed_due(e);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_in and copy_out of tensors that stand in no mapped tier: block by block between nvme and the
 * client's window, without moving anything.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine/deferred.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/front.h"
#include "daemon/engine/blocks.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"

/* Acquires wait for others' pins until their deadline, and flushes do not. A copy has no deadline,
 * and the client whose pin is in its way may be stopped: it waits as long as most would be done. */
#define PATIENCE_NS NS_PER_S

/* What has no home but dram, or finds no hole on nvme, is brought to dram for the asker, who then
 * copies under a pin. */
static void become_acquire(struct engine *e, struct request *q)
{
	q->kind = REQUEST_ACQUIRE;
	q->device = e->dram;
	q->access = ACCESS_READ;
	acquire_admit(e, q);
}

static int next_block(struct engine *e, struct request *q)
{
	uint64_t at = q->offset + q->next;
	uint64_t left = q->bytes - q->next;
	uint64_t block = map_get(e, record_of(e, q->items[0].tensor))->block_bytes;
	uint64_t in_block = block - at % block;

	return move_copy(e, q, at, MIN(left, in_block));
}

/* A tensor that was never written gets a map of holes, so that its blocks can be written. */
static int make_map(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);
	struct block_map *map;
	int rc;

	if (r->map == 0) {
		rc = map_take_holes(e, tensor, &map);
		if (rc < 0)
			return rc;
		rc = map_set(e, r, map);
		if (rc < 0) {
			map_give(e, map);
			return rc;
		}
	}
	if (r->sources == SOURCE_ZERO)
		source_set(e, tensor, SOURCE_NVME);
	return 0;
}

static bool goes_by_blocks(const struct engine *e, const struct request *q, const struct record *r)
{
	if ((r->flags & RECORD_SMALL) != 0 || e->nvme_first == DEVICE_NONE)
		return false;
	return q->in || (r->sources & SOURCE_NVME) != 0;
}

/* Below a front that lets nobody in. What is below an UNFILLED one stays the tensor's until its
 * writer says `filled`, and below a FAILED one as long as it is pinned: both may last as long as a
 * client is stopped. While blocks are read the front neither becomes an ordinary one nor goes; so
 * one that nobody pins any more is not read below, but goes. */
static bool read_below(struct engine *e, struct request *q, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);
	const char *below;
	int rc = 0;

	/* Nothing is below what was lost, and whoever has pinned it may be its new writer. */
	if ((r->flags & RECORD_LOST) != 0)
		return false;
	if ((r->sources & SOURCE_ZERO) != 0) {
		memset(q->window, 0, q->bytes);
	} else if ((r->sources & SOURCE_DRAM) != 0) {
		below = replica_address(e, dram_of(e, r), r->dram_node);
		memcpy(q->window, below + q->offset, q->bytes);
	} else if ((r->sources & SOURCE_NVME) != 0 && acquire_may_fill(e, tensor)) {
		rc = next_block(e, q);
		if (rc == 0)
			return true;
	} else {
		return false;
	}
	request_finish(e, q, rc, rc < 0 ? "no memory for the copy" : "");
	return true;
}

/* What the steps below return: whether pins are in its way. */
enum { GOES_ON, WAITS_FOR_PINS };

/* The client copies under a pin. It could not pin a front that nobody has filled: what it wants is
 * below. */
static int leave_to_pin(struct engine *e, struct request *q, uint32_t tensor)
{
	if (front_settle(e, tensor))
		request_finish(e, q, -EAGAIN, "the tensor is resident now");
	else if (!q->in && read_below(e, q, tensor))
		return GOES_ON;
	else if (acquire_drop_unfilled(e, q, tensor) < 0)
		return WAITS_FOR_PINS;
	else
		request_wake(e, q);
	return GOES_ON;
}

static int wait_for_move(struct engine *e, struct request *q, struct item *item,
			 const struct move *m)
{
	if (move_failed(m) && deferred_plain_pin(q->holder, item->tensor)) {
		request_finish(e, q, -EIO, m->cause);
		return GOES_ON;
	}
	if (!list_linked(&item->link))
		item_wait(e, item);
	return move_failed(m) ? WAITS_FOR_PINS : GOES_ON;
}

/* FAILED, and nothing is on its way there or below. */
static bool rests_failed(struct engine *e, const struct record *r, uint32_t tensor)
{
	return state_of(e, tensor) == STATE_FAILED &&
	       (r->move == 0 || move_get(e, r->move)->phase == MOVE_FAILED);
}

/* What was there alone is nowhere else. */
static bool is_lost(const struct engine *e, const struct record *r)
{
	return (r->flags & RECORD_LOST) != 0 ||
	       (lost_front(e, r) && (r->sources & ~front_source(e, r)) == 0);
}

static int copy_past_failed(struct engine *e, struct request *q, struct item *item)
{
	const struct record *r = record_of(e, item->tensor);

	front_settle(e, item->tensor); /* its writer may have said so before he was stopped */
	if (is_lost(e, r)) {
		request_finish(e, q, lost_text(e, item->tensor, q->cause, sizeof(q->cause)),
			       q->cause);
		return GOES_ON;
	}
	if (read_below(e, q, item->tensor))
		return GOES_ON;
	if (r->move != 0)
		return wait_for_move(e, q, item, move_get(e, r->move));
	request_poll(e, q);
	return WAITS_FOR_PINS;
}

/* It stands in no mapped tier, and nothing moves it. */
static void copy_absent(struct engine *e, struct request *q, struct record *r)
{
	int rc = 0;

	if (!q->in && (r->sources & SOURCE_ZERO) != 0) {
		memset(q->window, 0, q->bytes);
		request_finish(e, q, 0, "");
	} else if (goes_by_blocks(e, q, r)) {
		if (q->in)
			rc = make_map(e, q->items[0].tensor);
		if (rc == 0)
			rc = next_block(e, q);
		if (rc == -ENOSPC && !(r->flags & RECORD_LARGE))
			become_acquire(e, q);
		else if (rc < 0)
			request_finish(e, q, rc, "no room on nvme for the copy");
	} else {
		become_acquire(e, q);
	}
}

static int advance(struct engine *e, struct request *q)
{
	struct item *item = &q->items[0];
	struct record *r = record_of(e, item->tensor);
	int rc = 0;

	if (!q->in && rests_failed(e, r, item->tensor))
		return copy_past_failed(e, q, item);
	if (r->move != 0)
		return wait_for_move(e, q, item, move_get(e, r->move));
	if (lost_front(e, r))
		rc = lost_wait(e, q, item->tensor);
	else if ((r->flags & RECORD_LOST) != 0 && r->front == DEVICE_NONE)
		rc = lost_text(e, item->tensor, q->cause, sizeof(q->cause));
	if (rc == -EBUSY)
		return WAITS_FOR_PINS;
	if (rc < 0)
		request_finish(e, q, rc, q->cause);
	else if (r->front != DEVICE_NONE)
		return leave_to_pin(e, q, item->tensor);
	else
		copy_absent(e, q, r);
	return GOES_ON;
}

void copy_step(struct engine *e, struct request *q)
{
	const struct item *item = &q->items[0];
	uint64_t until_ns = q->deadline_ns;

	q->polling = false;
	q->deadline_ns = ENGINE_NEVER;
	if (!handle_live(e, item->tensor, item->generation)) {
		request_stale(e, q);
	} else if (q->next == q->bytes) {
		/* Before a move that somebody else has begun since: who writes after it, under a
		 * pin, must not be answered first. */
		request_finish(e, q, 0, "");
	} else if (advance(e, q) == WAITS_FOR_PINS) {
		q->deadline_ns = MIN(until_ns, e->now_ns + PATIENCE_NS);
		e->next_deadline_ns = MIN(e->next_deadline_ns, q->deadline_ns);
	}
}

/* What keeps the tensor from it, and whose pins keep that. */
static int expired_cause(struct engine *e, uint32_t tensor, char *text, size_t room)
{
	const struct record *r = record_of(e, tensor);
	char name[TENSOR_TEXT_BYTES];

	if (lost_front(e, r) || (r->flags & RECORD_LOST) != 0)
		return lost_text(e, tensor, text, room);
	if (r->move != 0 && move_failed(move_get(e, r->move))) {
		snprintf(text, room, "%s", move_get(e, r->move)->cause);
		return -EIO;
	}
	snprintf(text, room, "%s is being overwritten", tensor_text(e, tensor, name));
	return -EBUSY;
}

/* Its writer has said so since the last look: what was lost, or below it, is of no more concern. */
static bool just_filled(struct engine *e, uint32_t tensor)
{
	return front_unfilled(e, tensor) && front_settle(e, tensor);
}

void copy_expire(struct engine *e, struct request *q)
{
	const struct item *item = &q->items[0];
	char cause[FAILURE_BYTES], text[FAILURE_BYTES + 64];
	struct pins pins;
	int rc;

	if (!handle_live(e, item->tensor, item->generation)) {
		request_stale(e, q);
		return;
	}
	pins_scan(e, item->tensor, q->holder, &pins);
	if (pins.foreign_pid == 0 || just_filled(e, item->tensor)) { /* just gone, or its own */
		q->deadline_ns = ENGINE_NEVER;
		request_wake(e, q);
		return;
	}
	rc = expired_cause(e, item->tensor, cause, sizeof(cause));
	snprintf(text, sizeof(text), "%s; process %d pins it", cause, pins.foreign_pid);
	request_finish(e, q, rc, text);
}

void engine_copy(struct engine *e, struct holder *h, uint32_t id, struct wire_handle t, bool in,
		 uint64_t offset, uint64_t bytes, void *window, uint64_t now_ns)
{
	struct request *q;

	e->now_ns = now_ns;
	q = request_new(e, h, id, REQUEST_COPY, &t, 1);
	if (q == NULL)
		return;
	q->in = in;
	q->offset = offset;
	q->bytes = bytes;
	q->window = window;
	list_push_back(&e->running, &q->link);
	if (!handle_live(e, t.index, t.generation))
		request_stale(e, q);
	else if (bytes > WINDOW_BYTES || offset > e->records[t.index].bytes ||
		 bytes > e->records[t.index].bytes - offset)
		request_finish(e, q, -EINVAL, "the range leaves the tensor");
	else
		copy_step(e, q);
	requests_settle(e);
}

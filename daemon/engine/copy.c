/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_in and copy_out of tensors that stand in no mapped tier: block by block between nvme and the
 * client's window, without moving anything.
 */
#include <errno.h>
#include <string.h>

#include "daemon/engine/deferred.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/front.h"
#include "daemon/engine/blocks.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

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

/* The client copies under a pin. It could not pin a front that nobody has filled: what it wants is
 * below. */
static void leave_to_pin(struct engine *e, struct request *q, uint32_t tensor)
{
	if (front_settle(e, tensor))
		request_finish(e, q, -EAGAIN, "the tensor is resident now");
	else if (!q->in && read_below(e, q, tensor))
		return;
	else if (acquire_drop_unfilled(e, q, tensor) == 0)
		request_wake(e, q);
}

static void wait_for_move(struct engine *e, struct request *q, struct item *item,
			  const struct move *m)
{
	if (move_failed(m) && deferred_plain_pin(q->holder, item->tensor))
		request_finish(e, q, -EIO, m->cause);
	else if (!list_linked(&item->link))
		item_wait(e, item);
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

/* Acquires wait for the pins until their deadline; a copy has none. */
static void copy_past_failed(struct engine *e, struct request *q, struct item *item)
{
	const struct record *r = record_of(e, item->tensor);

	front_settle(e, item->tensor); /* its writer may have said so before he was stopped */
	if (is_lost(e, r))
		request_finish(e, q, lost_text(e, item->tensor, q->cause, sizeof(q->cause)),
			       q->cause);
	else if (read_below(e, q, item->tensor))
		return;
	else if (r->move != 0)
		wait_for_move(e, q, item, move_get(e, r->move));
	else
		request_poll(e, q);
}

void copy_step(struct engine *e, struct request *q)
{
	struct item *item = &q->items[0];
	struct record *r;
	int rc = 0;

	q->polling = false;
	if (!handle_live(e, item->tensor, item->generation)) {
		request_stale(e, q);
		return;
	}
	r = record_of(e, item->tensor);
	if (q->next == q->bytes) {
		/* Before a move that somebody else has begun since: who writes after it, under a
		 * pin, must not be answered first. */
		request_finish(e, q, 0, "");
		return;
	}
	if (!q->in && rests_failed(e, r, item->tensor)) {
		copy_past_failed(e, q, item);
		return;
	}
	if (r->move != 0) {
		wait_for_move(e, q, item, move_get(e, r->move));
		return;
	}
	if (lost_front(e, r))
		rc = lost_wait(e, q, item->tensor);
	else if ((r->flags & RECORD_LOST) != 0 && r->front == DEVICE_NONE)
		rc = lost_text(e, item->tensor, q->cause, sizeof(q->cause));
	if (rc == -EIO)
		request_finish(e, q, rc, q->cause);
	if (rc < 0)
		return;
	if (r->front != DEVICE_NONE) {
		leave_to_pin(e, q, item->tensor);
	} else if (!q->in && (r->sources & SOURCE_ZERO) != 0) {
		memset(q->window, 0, q->bytes);
		request_finish(e, q, 0, "");
	} else if (goes_by_blocks(e, q, r)) {
		if (q->in)
			rc = make_map(e, item->tensor);
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

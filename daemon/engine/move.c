/* SPDX-License-Identifier: Apache-2.0
 *
 * Beginning and ending moves. The pieces in between are in piece.c.
 */
#include "daemon/engine/move.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/log.h"
#include "daemon/engine/blocks.h"
#include "daemon/engine/bring.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/front.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/piece.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/publish.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"

struct move *move_get(struct engine *e, uint32_t id)
{
	e->at_move = id;
	ASSERT(id > 0 && id < e->move_room && e->moves_by_id[id] != NULL);
	ASSERT_OBJ(e->moves_by_id[id], MOVE_MAGIC);
	return e->moves_by_id[id];
}

static int grow_ids(struct engine *e)
{
	uint32_t room = MAX(e->move_room * 2, 8u);
	struct move **grown = heap_grow(e->moves_by_id, room, sizeof(struct move *));

	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = e->move_room; i < room; i++)
		grown[i] = NULL;
	e->moves_by_id = grown;
	e->move_room = room;
	return 0;
}

/* A tensor has one place for moves. A fill that failed keeps it, and with it all that the tensor
 * has below, for those copies that read there meanwhile. */
static void enter_tensor(struct engine *e, struct move *m)
{
	struct record *r = record_of(e, m->tensor);

	if (r->move == 0) {
		r->move = m->id;
		return;
	}
	ASSERT(m->kind == MOVE_COPY && move_get(e, r->move)->phase == MOVE_FAILED);
	move_get(e, r->move)->readers++;
}

static void leave_tensor(struct engine *e, const struct move *m)
{
	struct record *r = record_of(e, m->tensor);

	if (r->move != m->id) {
		ASSERT(move_get(e, r->move)->readers > 0);
		move_get(e, r->move)->readers--;
		return;
	}
	ASSERT(m->readers == 0);
	r->move = 0;
	lost_move_ended(e, m->tensor);
}

struct move *move_new(struct engine *e, enum move_kind kind, uint32_t tensor)
{
	struct move *m;
	uint32_t id = MAX(e->move_free_hint, 1u);

	while (id < e->move_room && e->moves_by_id[id] != NULL)
		id++;
	if (id >= e->move_room) {
		id = MAX(e->move_room, 1u);
		if (grow_ids(e) < 0)
			return NULL;
	}
	m = heap_zeros(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	m->own = piece_new(e);
	if (m->own == NULL) {
		heap_free(m);
		return NULL;
	}
	m->magic = MOVE_MAGIC;
	m->id = id;
	m->kind = (uint8_t)kind;
	m->tensor = tensor;
	m->from = m->to = DEVICE_NONE;
	m->from_kind = m->to_kind = TIER_KINDS;
	m->to_node = EXTENT_NONE;
	m->fresh.node = EXTENT_NONE;
	m->begin_ns = e->now_ns;
	list_init(&m->waiters);
	list_init(&m->staging_link);
	list_init(&m->failed_link);
	list_push_back(&e->moves, &m->link);
	e->moves_by_id[id] = m;
	e->move_free_hint = id + 1;
	if (tensor != TENSOR_NONE)
		enter_tensor(e, m);
	stat_add(STAT(e, moves_running), 1);
	return m;
}

void move_free(struct engine *e, struct move *m)
{
	ASSERT(m->in_flight == 0 && !list_linked(&m->staging_link));
	if (m->tensor != TENSOR_NONE)
		leave_tensor(e, m);
	e->moves_by_id[m->id] = NULL;
	e->move_free_hint = MIN(e->move_free_hint, m->id);
	list_remove(&m->link);
	piece_give(e, m->own);
	stat_sub(STAT(e, moves_running), 1);
	m->magic = 0;
	heap_free(m);
}

/* How many pieces, now that both sides are known: with nvme on one side its blocks decide. */
void move_plan(struct engine *e, struct move *m, uint64_t bytes)
{
	m->piece_bytes = PIECE_BYTES;
	if (m->from_kind == TIER_KIND_NVME)
		m->piece_bytes = map_get(e, record_of(e, m->tensor))->block_bytes;
	else if (m->to_kind == TIER_KIND_NVME)
		m->piece_bytes = m->to_map->block_bytes;
	else if (m->from_kind == TIER_KIND_HBM && m->to_kind == TIER_KIND_HBM && m->from != m->to)
		m->piece_bytes = e->block_bytes; /* hops through staging */
	m->pieces = (uint32_t)((bytes + m->piece_bytes - 1) / m->piece_bytes);
}

/* ---- fill ---- */

bool move_fill_needs_room(const struct engine *e, uint32_t tensor, uint8_t device)
{
	const struct record *r = &e->records[tensor];

	if (device_kind(e, device) == TIER_KIND_DRAM)
		return r->dram_node == EXTENT_NONE;
	return r->hbm_node == EXTENT_NONE || r->hbm_device != device;
}

/* From where the bytes come, once the old front is closed. */
static void fill_source(struct engine *e, struct move *m)
{
	const struct record *r = record_of(e, m->tensor);

	if (r->front != DEVICE_NONE) {
		m->from = r->front;
		m->from_kind = (uint8_t)device_kind(e, r->front);
	} else if (r->sources & SOURCE_ZERO) {
		m->from_kind = TIER_KINDS;
	} else {
		ASSERT(r->sources & SOURCE_NVME);
		m->from_kind = TIER_KIND_NVME;
	}
}

/* A discarding writer needs nothing loaded, if what the tensor holds stays safe below its new
 * front. */
static bool may_leave_unfilled(struct engine *e, uint32_t tensor, uint8_t device)
{
	const struct record *r = record_of(e, tensor);
	uint8_t lost = r->front == DEVICE_NONE ? 0 : (uint8_t)front_source(e, r);

	if (device_kind(e, device) == TIER_KIND_HBM && lost == SOURCE_DRAM)
		lost = 0; /* it stays as the copy under the new front */
	return (r->sources & ~lost) != 0;
}

/* Closes the front that stands elsewhere and sees that the new one has an extent. */
static int fill_prepare(struct engine *e, uint32_t tensor, uint8_t device, uint32_t *node,
			const struct holder *asker)
{
	struct record *r = record_of(e, tensor);
	int rc;

	if (r->front == DEVICE_NONE)
		return 0;
	/* What is taken below cannot be refused any more. */
	if (*node == EXTENT_NONE && extents_ready(e->devices[device].extents) < 0)
		return -ENOMEM;
	rc = front_close(e, tensor, asker);
	if (rc < 0)
		return rc;
	if ((r->sources & front_source(e, r)) == 0) {
		/* It was left unfilled: there is nothing in it to copy. */
		front_forget(e, tensor);
		if (r->front != DEVICE_NONE && r->front != device)
			return fill_prepare(e, tensor, device, node, asker);
	}
	/* The copy below that was to be used may have turned out to be stale and be gone. */
	if (*node == EXTENT_NONE && r->front != device && move_fill_needs_room(e, tensor, device)) {
		rc = replica_take(e, device, tensor, node);
		ASSERT(rc == 0);
	}
	return 0;
}

/* The target stands there with the right bytes: the front only changes its place. */
static bool fill_in_place(struct engine *e, uint32_t tensor, uint8_t device, uint32_t node)
{
	struct record *r = record_of(e, tensor);

	if (r->front == DEVICE_NONE ||
	    (r->front != device && move_fill_needs_room(e, tensor, device)))
		return false;
	if (node != EXTENT_NONE)
		replica_give(e, device, node); /* the copy came while the asker waited for a pin */
	if (r->front != device) {
		enum tier_kind was = device_kind(e, r->front);

		ASSERT(device == dram_of(e, r) && (r->sources & SOURCE_DRAM) != 0);
		front_set(e, tensor, device);
		replica_drop(e, tensor, was);
		publish(e, tensor, STATE_RESIDENT, 0);
	}
	return true;
}

int move_fill(struct engine *e, uint32_t tensor, uint8_t device, uint32_t node, uint8_t priority,
	      bool discard, const struct holder *asker)
{
	struct record *r = record_of(e, tensor);
	uint32_t given = node;
	struct move *m;
	int rc = fill_prepare(e, tensor, device, &node, asker);

	if (rc < 0)
		return rc;
	if (fill_in_place(e, tensor, device, node))
		return 0;
	m = move_new(e, MOVE_FILL, tensor);
	if (m == NULL) {
		if (node != given)
			replica_give(e, device, node);
		if (r->front != DEVICE_NONE)
			front_reopen(e, tensor);
		return -ENOMEM;
	}
	fill_source(e, m);
	m->to = device;
	m->to_kind = (uint8_t)device_kind(e, device);
	m->to_node = node;
	m->priority = priority;
	m->for_prefetch = priority == XFER_PREFETCH;
	m->unfilled = discard && may_leave_unfilled(e, tensor, device);
	if (m->unfilled) {
		/* Somebody else's old bytes are not shown even to a writer. */
		m->from_kind = TIER_KINDS;
		move_plan(e, m, e->shared_domain ? r->bytes : 0);
	} else {
		move_plan(e, m, r->bytes);
	}
	if (m->for_prefetch)
		e->devices[device].prefetch_bytes += r->bytes;
	if (m->from_kind == TIER_KINDS)
		stat_add(STAT(e, fills_zero), 1);
	if (m->unfilled)
		pins_clear_filled(e, tensor); /* from here on a writer may pin it, and say so */
	publish(e, tensor, STATE_FILLING, m->unfilled ? FLAG_UNFILLED : 0);
	log_debug(MOVE, "tensor %u: fill of %s from %s, %llu bytes", tensor,
		  e->devices[device].tier->base.name,
		  m->from_kind == TIER_KINDS ? "zeros" : tier_kind_name(m->from_kind),
		  (unsigned long long)r->bytes);
	pieces_pump(e, m);
	return 0;
}

void move_fill_undo(struct engine *e, struct move *m)
{
	struct record *r = record_of(e, m->tensor);

	/* No pins: what the slots say was said of a front that never came. */
	ASSERT(state_of(e, m->tensor) == STATE_DROPPING || state_of(e, m->tensor) == STATE_FAILED);
	pins_clear_written(e, m->tensor);
	pins_clear_filled(e, m->tensor);
	replica_give(e, m->to, m->to_node);
	m->to_node = EXTENT_NONE;
	if (r->front != DEVICE_NONE)
		front_reopen(e, m->tensor);
	else
		publish(e, m->tensor, STATE_ABSENT, 0);
}

static void fill_end(struct engine *e, struct move *m)
{
	struct record *r = record_of(e, m->tensor);
	bool to_hbm = m->to_kind == TIER_KIND_HBM;
	uint8_t old = r->front;

	if (m->for_prefetch)
		e->devices[m->to].prefetch_bytes -= r->bytes;
	if (m->result < 0 || m->stop) {
		move_fill_undo(e, m);
		return;
	}
	if (to_hbm && old != DEVICE_NONE && device_kind(e, old) == TIER_KIND_HBM) {
		/* From GPU to GPU: the record has room for one. */
		front_set(e, m->tensor, DEVICE_NONE);
		replica_drop(e, m->tensor, TIER_KIND_HBM);
	}
	if (to_hbm) {
		ASSERT(r->hbm_node == EXTENT_NONE);
		r->hbm_node = m->to_node;
		r->hbm_device = m->to;
	} else {
		ASSERT(r->dram_node == EXTENT_NONE);
		r->dram_node = m->to_node;
	}
	if (!m->unfilled)
		source_add(e, m->tensor, 1u << m->to_kind);
	front_set(e, m->tensor, m->to);
	if (old != DEVICE_NONE && device_kind(e, old) == TIER_KIND_HBM && !to_hbm)
		replica_drop(e, m->tensor, TIER_KIND_HBM);
	if (m->for_prefetch && m->priority == XFER_PREFETCH)
		r->flags |= RECORD_HINTED; /* nobody has asked for it meanwhile */
	publish(e, m->tensor, STATE_RESIDENT, m->unfilled ? FLAG_UNFILLED : 0);
}

/* ---- compact ---- */

static int compact_begin(struct engine *e, uint32_t tensor, uint32_t node, bool slides)
{
	struct record *r = record_of(e, tensor);
	struct move *m;

	if (front_close(e, tensor, NULL) < 0)
		return -EBUSY;
	m = (r->sources & front_source(e, r)) ? move_new(e, MOVE_COMPACT, tensor) : NULL;
	if (m == NULL) {
		front_reopen(e, tensor);
		return -ENOMEM;
	}
	m->from = m->to = r->front;
	m->from_kind = m->to_kind = (uint8_t)device_kind(e, r->front);
	m->to_node = node;
	m->slides = slides;
	m->priority = XFER_DEMAND;
	move_plan(e, m, r->bytes);
	e->devices[m->to].compacting++;
	stat_add(STAT(e, compactions), 1);
	pieces_pump(e, m);
	return 0;
}

int move_compact(struct engine *e, uint32_t tensor, uint32_t node)
{
	return compact_begin(e, tensor, node, false);
}

int move_slide(struct engine *e, uint32_t tensor, uint32_t lead)
{
	ASSERT(e->devices[record_of(e, tensor)->front].tier->base.host_base != NULL);
	return compact_begin(e, tensor, lead, true);
}

static void compact_end(struct engine *e, struct move *m)
{
	struct record *r = record_of(e, m->tensor);
	uint32_t *node = m->to_kind == TIER_KIND_HBM ? &r->hbm_node : &r->dram_node;

	e->devices[m->to].compacting--;
	if (m->result < 0 || m->stop) {
		replica_give_moved(e, m->to, m->to_node);
	} else if (m->slides) {
		extents_swap(e->devices[m->to].extents, m->to_node, *node);
		replica_give_moved(e, m->to, m->to_node);
	} else {
		replica_give_moved(e, m->to, *node);
		*node = m->to_node;
	}
	front_reopen(e, m->tensor);
}

/* ---- copy and sync ---- */

/* A fresh place for the block that a copy changes. */
static int take_fresh(struct engine *e, struct move *m)
{
	const struct record *r = record_of(e, m->tensor);
	const struct block_map *map = map_get(e, r);
	uint32_t block = (uint32_t)(m->copy_offset / map->block_bytes);
	uint64_t bytes = map_bytes(map, r, block);
	bool hole = map->blocks[block].node == EXTENT_NONE;
	int rc;

	do
		rc = map_block_take(e, m->tensor, bytes, hole, &m->fresh);
	while (reclaim_nvme(e, m->tensor, bytes, rc) > 0);
	return rc;
}

int move_copy(struct engine *e, struct request *request, uint64_t offset, uint64_t bytes)
{
	struct move *m = move_new(e, MOVE_COPY, request->items[0].tensor);
	int rc;

	if (m == NULL)
		return -ENOMEM;
	m->request = request;
	m->copy_offset = offset;
	m->copy_bytes = bytes;
	m->priority = XFER_DEMAND;
	m->from_kind = m->to_kind = TIER_KIND_NVME;
	m->pieces = 1;
	rc = request->in ? take_fresh(e, m) : 0;
	if (rc < 0) {
		move_free(e, m);
		return rc;
	}
	pieces_pump(e, m);
	return 0;
}

static void copy_end(struct engine *e, struct move *m)
{
	struct record *r = record_of(e, m->tensor);
	struct block_map *map = map_get(e, r);
	struct block *block = &map->blocks[m->copy_offset / map->block_bytes];
	bool hole = block->node == EXTENT_NONE;

	if (m->fresh.node == EXTENT_NONE)
		return;
	if (m->result < 0 || m->stop) {
		map_block_give(e, &m->fresh, hole); /* the block keeps its old bytes */
		return;
	}
	map_block_give(e, block, true);
	*block = m->fresh;
	if (!hole)
		map_block_stays(e, m->tensor, block);
	r->version++;
}

int move_sync(struct engine *e, struct request *request, uint8_t device)
{
	struct move *m = move_new(e, MOVE_SYNC, TENSOR_NONE);

	if (m == NULL)
		return -ENOMEM;
	m->request = request;
	m->to = device;
	m->priority = XFER_DEMAND;
	m->pieces = 1;
	pieces_pump(e, m);
	return 0;
}

/* ---- the end ---- */

static void count_move(struct engine *e, const struct move *m)
{
	const struct record *r = record_of(e, m->tensor);

	if (m->kind == MOVE_FILL && m->for_prefetch)
		stat_add(STAT(e, prefetches), 1);
	if (m->result < 0 || m->stop || m->from_kind == TIER_KINDS || m->kind == MOVE_COPY ||
	    m->kind == MOVE_COMPACT)
		return;
	stat_add(STAT(e, moves[r->class_][m->from_kind][m->to_kind]), 1);
	stat_add(STAT(e, moved_bytes[m->from_kind][m->to_kind]), r->bytes);
}

/* What a piece's failure says, with the tensor before it. */
static void name_failure(struct engine *e, struct move *m)
{
	char text[TENSOR_TEXT_BYTES], cause[sizeof(m->cause)];

	if (m->result >= 0 || m->tensor == TENSOR_NONE)
		return;
	memcpy(cause, m->cause, sizeof(cause));
	snprintf(m->cause, sizeof(m->cause), "%s: %.170s", tensor_text(e, m->tensor, text), cause);
	log_warn(MOVE, "%s", m->cause);
}

void move_tell(struct engine *e, struct move *m, bool granted)
{
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, &m->waiters) {
		struct item *item = list_entry(it, struct item, link);

		if (item->request->granted != granted)
			continue;
		list_remove(it);
		request_move_ended(e, item, m);
	}
	if (!granted)
		bring_ended(e, m);
}

void move_tell_all(struct engine *e, struct move *m)
{
	move_tell(e, m, true);
	move_tell(e, m, false);
}

void move_finished(struct engine *e, struct move *m)
{
	bool drop = m->kind == MOVE_CLEAN && m->drop_after;
	struct quota_demand demand = { .whole = m->drop_whole };
	uint32_t tensor = m->tensor;

	static void (*const ends[])(struct engine *, struct move *) = {
		[MOVE_FILL] = fill_end,
		[MOVE_CLEAN] = move_clean_end,
		[MOVE_COMPACT] = compact_end,
		[MOVE_COPY] = copy_end,
	};

	if (m->phase == MOVE_MARKS) {
		failed_marked(e, m);
		return;
	}
	name_failure(e, m);
	if (m->kind == MOVE_FILL && failed_under_pins(e, m))
		return;
	if (tensor != TENSOR_NONE) {
		ends[m->kind](e, m);
		count_move(e, m);
	}
	move_tell_all(e, m);
	if (m->request != NULL)
		request_own_move_ended(e, m->request, m);
	drop = drop && m->result >= 0 && !m->stop;
	demand.account = m->drop_for != ACCOUNT_NONE ? &e->accounts[m->drop_for] : NULL;
	move_free(e, m);
	if (drop && reclaim_eligible(e, record_of(e, tensor)->front, tensor) &&
	    quota_yields(e, &demand, tensor, record_of(e, tensor)->front))
		front_drop(e, tensor);
	look_at_queues(e);
}

void move_piece_done(struct engine *e, struct piece *p)
{
	struct move *m = p->move;

	if (piece_done(e, p))
		pieces_pump(e, m);
}

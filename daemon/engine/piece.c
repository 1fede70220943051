/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/piece.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "daemon/engine/blocks.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/replica.h"

#define RATE_WINDOW_NS (2 * NS_PER_S)

/* ---- staging slots ---- */

static enum direction direction_of(const struct move *m)
{
	if (m->kind == MOVE_COPY)
		return m->fresh.node != EXTENT_NONE ? DIRECTION_DOWN : DIRECTION_UP;
	return m->kind == MOVE_CLEAN ? DIRECTION_DOWN : DIRECTION_UP;
}

/* The other direction can always have its reserve: so each goes on, if slowly, whatever the other
 * one waits for. */
static bool slot_is_free(const struct engine *e, enum direction direction)
{
	unsigned others = e->staging_used[DIRECTION_UP + DIRECTION_DOWN - direction];
	unsigned kept = e->staging_reserve > others ? e->staging_reserve - others : 0;

	return e->staging_free_count > kept;
}

static void *slot_take(struct engine *e, enum direction direction)
{
	if (!slot_is_free(e, direction))
		return NULL;
	e->staging_used[direction]++;
	return e->staging_free[--e->staging_free_count];
}

static void slot_give(struct engine *e, enum direction direction, void *slot)
{
	ASSERT(e->staging_used[direction] > 0);
	e->staging_used[direction]--;
	e->staging_free[e->staging_free_count++] = slot;
	e->again = true;
}

static struct move *first_waiter(struct engine *e, enum direction direction)
{
	struct list *waiters = &e->staging_waiters[direction];

	return list_empty(waiters) ? NULL : list_first(waiters, struct move, staging_link);
}

/* The most urgent first, and of those the one that has waited longest: it gets slots until it needs
 * no more, so that tensors arrive one after the other and not all at the end. */
static void slot_await(struct engine *e, struct move *m)
{
	struct list *waiters = &e->staging_waiters[direction_of(m)], *at = waiters;

	if (list_linked(&m->staging_link))
		return;
	while (at->prev != waiters &&
	       list_entry(at->prev, struct move, staging_link)->priority > m->priority)
		at = at->prev;
	list_insert_before(at, &m->staging_link);
}

/* Whether a slot that is free is not for somebody more urgent. */
static bool slot_is_for(struct engine *e, const struct move *m)
{
	const struct move *first = first_waiter(e, direction_of(m));

	return first == NULL || first->priority >= m->priority;
}

void move_urge(struct engine *e, struct move *m)
{
	m->priority = XFER_DEMAND; /* of the pieces to come */
	if (!list_linked(&m->staging_link))
		return;
	list_remove(&m->staging_link);
	slot_await(e, m);
}

void pieces_pump_staging(struct engine *e)
{
	for (unsigned d = 0; d < DIRECTIONS; d++)
		while (slot_is_free(e, d) && first_waiter(e, d) != NULL)
			pieces_pump(e, first_waiter(e, d));
}

/* ---- one xfer ---- */

/* What a device's rate is measured by: registering memory moves nothing. */
static uint64_t rate_bytes(const struct xfer *x)
{
	return x->op == XFER_PIN ? 0 : x->bytes;
}

/* The oldest that a lane has: what does not come back shows by it. */
static void note_oldest(struct engine *e, uint8_t lane)
{
	const struct list *lent = &e->lent[lane];

	stat_set(STAT(e, device[lane].oldest_ns),
		 list_empty(lent) ? 0 : list_first(lent, struct lent, link)->since_ns);
}

void xfer_lend(struct engine *e, uint8_t device, struct xfer *x, struct lent *l)
{
	struct device *d = &e->devices[device];

	ASSERT(x->lent == NULL);
	x->lent = l;
	l->x = x;
	l->since_ns = MAX(e->now_ns, 1u);
	list_push_back(&e->lent[d->lane], &l->link);
	note_oldest(e, d->lane);
	if (d->flight == 0)
		d->busy_since_ns = e->now_ns;
	d->flight++;
	d->flight_bytes += rate_bytes(x);
	stat_add(STAT(e, device[d->lane].flight), 1);
	stat_add(STAT(e, device[d->lane].flight_bytes), rate_bytes(x));
	e->in_flight++;
	x->result = 0;
	x->cause[0] = '\0';
	e->params.hooks.submit(e->params.hooks.ctx, d->lane, x);
}

static void lend(struct engine *e, struct piece *p)
{
	p->x.owner = p->move;
	p->x.part = p->index;
	p->x.priority = p->move->priority;
	xfer_lend(e, p->device, &p->x, &p->lent);
}

/* What tools show of a lane: those of dram's two devices are one. */
static void count_lane(struct engine *e, const struct device *d, const struct xfer *x)
{
	bool in = x->op == XFER_WRITE || x->op == XFER_ZERO || x->op == XFER_COPY;

	stat_sub(STAT(e, device[d->lane].flight), 1);
	stat_sub(STAT(e, device[d->lane].flight_bytes), rate_bytes(x));
	stat_add(STAT(e, device[d->lane].busy_ns), e->now_ns - d->busy_since_ns);
	if (x->result == 0 && in)
		stat_add(STAT(e, device[d->lane].in_bytes), x->bytes);
	if (x->result == 0 && x->op == XFER_READ)
		stat_add(STAT(e, device[d->lane].out_bytes), x->bytes);
}

void xfer_take_back(struct engine *e, uint8_t device, struct xfer *x)
{
	struct device *d = &e->devices[device];

	list_remove(&x->lent->link);
	x->lent = NULL;
	note_oldest(e, d->lane);
	if (x->result == -ENODEV && device_kind(e, device) == TIER_KIND_HBM)
		lost_device(e, device);
	ASSERT(d->flight > 0 && e->in_flight > 0 && d->flight_bytes >= rate_bytes(x));
	d->flight--;
	d->flight_bytes -= rate_bytes(x);
	e->in_flight--;
	count_lane(e, d, x);
	d->busy_ns += e->now_ns - d->busy_since_ns;
	d->busy_since_ns = e->now_ns;
	d->done_bytes += rate_bytes(x);
	if (d->busy_ns > RATE_WINDOW_NS) {
		d->busy_ns /= 2;
		d->done_bytes /= 2;
	}
}

static void aim(struct piece *p, uint8_t device, enum xfer_op op, uint64_t offset, void *host,
		uint64_t bytes)
{
	p->device = device;
	p->x.op = (uint8_t)op;
	p->x.offset = offset;
	p->x.host = host;
	p->x.bytes = bytes;
	p->x.steady = host != NULL && host == p->slot; /* the engine's own */
}

static void aim_block(struct engine *e, struct piece *p, const struct block *b, enum xfer_op op,
		      void *host, uint64_t bytes)
{
	aim(p, b->device, op, replica_offset(e, b->device, b->node), host, bytes);
	p->x.crc = b->crc;
}

/* Where a piece of the move lies in the extent of a mapped device. */
static uint64_t piece_offset(struct engine *e, const struct piece *p, uint8_t device, uint32_t node)
{
	return replica_offset(e, device, node) + (uint64_t)p->index * p->move->piece_bytes;
}

static char *piece_address(struct engine *e, const struct piece *p, uint8_t device, uint32_t node)
{
	char *base = e->devices[device].tier->base.host_base;

	return base + piece_offset(e, p, device, node);
}

static uint64_t piece_length(struct engine *e, const struct piece *p)
{
	uint64_t bytes = record_of(e, p->move->tensor)->bytes;
	uint64_t begin = (uint64_t)p->index * p->move->piece_bytes;

	ASSERT(begin < bytes);
	return MIN(p->move->piece_bytes, bytes - begin);
}

static uint32_t source_node(struct engine *e, const struct move *m)
{
	const struct record *r = record_of(e, m->tensor);

	return m->from_kind == TIER_KIND_HBM ? r->hbm_node : r->dram_node;
}

/* First xfer of a piece of a fill: whence, to the extent of the new front. */
static void aim_fill(struct engine *e, struct piece *p)
{
	struct move *m = p->move;
	uint64_t n = piece_length(e, p), to = piece_offset(e, p, m->to, m->to_node);
	struct block *b;

	if (m->from_kind == TIER_KINDS) {
		aim(p, m->to, XFER_ZERO, to, NULL, n);
		p->x.value = m->phase == MOVE_MARKS ? 0xff : 0;
	} else if (m->from_kind == TIER_KIND_NVME) {
		b = &map_get(e, record_of(e, m->tensor))->blocks[p->index];
		if (b->node == EXTENT_NONE) {
			aim(p, m->to, XFER_ZERO, to, NULL, n);
			p->hops = false;
		} else if (m->to_kind == TIER_KIND_DRAM) {
			aim_block(e, p, b, XFER_READ, piece_address(e, p, m->to, m->to_node), n);
		} else {
			aim_block(e, p, b, XFER_READ, p->slot, n);
		}
	} else if (m->from_kind == TIER_KIND_DRAM) {
		aim(p, m->to, XFER_WRITE, to, piece_address(e, p, m->from, source_node(e, m)), n);
	} else if (m->to_kind == TIER_KIND_DRAM) {
		aim(p, m->from, XFER_READ, piece_offset(e, p, m->from, source_node(e, m)),
		    piece_address(e, p, m->to, m->to_node), n);
	} else {
		aim(p, m->from, XFER_READ, piece_offset(e, p, m->from, source_node(e, m)), p->slot,
		    n);
	}
}

static void aim_clean(struct engine *e, struct piece *p)
{
	struct move *m = p->move;
	uint32_t node = source_node(e, m);
	uint64_t n = piece_length(e, p);

	if (m->to_kind == TIER_KIND_DRAM)
		aim(p, m->from, XFER_READ, piece_offset(e, p, m->from, node),
		    piece_address(e, p, m->to, m->to_node), n);
	else if (m->from_kind == TIER_KIND_DRAM)
		aim_block(e, p, &m->to_map->blocks[p->index], XFER_WRITE,
			  piece_address(e, p, m->from, node), n);
	else
		aim(p, m->from, XFER_READ, piece_offset(e, p, m->from, node), p->slot, n);
}

/* Second xfer of a piece that hops: out of the slot. */
static void aim_second(struct engine *e, struct piece *p)
{
	struct move *m = p->move;
	uint64_t n = p->x.bytes;

	if (m->kind == MOVE_COPY)
		aim_block(e, p, &m->fresh, XFER_WRITE, p->slot, n);
	else if (m->to_kind == TIER_KIND_NVME)
		aim_block(e, p, &m->to_map->blocks[p->index], XFER_WRITE, p->slot, n);
	else
		aim(p, m->to, XFER_WRITE, piece_offset(e, p, m->to, m->to_node), p->slot, n);
}

static bool move_hops(const struct move *m)
{
	if (m->kind == MOVE_COPY)
		return true;
	if (m->kind != MOVE_FILL && m->kind != MOVE_CLEAN)
		return false;
	return (m->from_kind == TIER_KIND_NVME && m->to_kind == TIER_KIND_HBM) ||
	       (m->from_kind == TIER_KIND_HBM && m->to_kind == TIER_KIND_NVME) ||
	       (m->from_kind == TIER_KIND_HBM && m->to_kind == TIER_KIND_HBM);
}

/* ---- copies between a window and nvme ---- */

static void copy_window(struct engine *e, struct piece *p)
{
	struct move *m = p->move;
	uint64_t block_bytes = map_get(e, record_of(e, m->tensor))->block_bytes;
	char *in_block = (char *)p->slot + m->copy_offset % block_bytes;
	char *window;

	if (m->request == NULL)
		return; /* cancelled: its window may belong to another request by now */
	window = (char *)m->request->window + (m->copy_offset - m->request->offset);
	if (m->request->in)
		memcpy(in_block, window, m->copy_bytes);
	else
		memcpy(window, in_block, m->copy_bytes);
}

/* Inwards the block is read, changed and written elsewhere; one that is overwritten whole, or was
 * never written, need not be read. Returns false when no xfer is needed at all. */
static bool aim_copy(struct engine *e, struct piece *p)
{
	struct move *m = p->move;
	struct record *r = record_of(e, m->tensor);
	struct block_map *map = map_get(e, r);
	uint32_t index = (uint32_t)(m->copy_offset / map->block_bytes);
	struct block *b = &map->blocks[index];
	uint64_t n = map_bytes(map, r, index);

	if (b->node != EXTENT_NONE && m->copy_bytes < n) {
		aim_block(e, p, b, XFER_READ, p->slot, n);
		return true;
	}
	if (b->node != EXTENT_NONE && m->fresh.node == EXTENT_NONE) {
		aim_block(e, p, b, XFER_READ, p->slot, n);
		return true;
	}
	memset(p->slot, 0, n);
	copy_window(e, p);
	if (m->fresh.node == EXTENT_NONE)
		return false;
	p->stage = 1;
	aim_block(e, p, &m->fresh, XFER_WRITE, p->slot, n);
	return true;
}

/* ---- begin and end ---- */

struct piece *piece_new(struct engine *e)
{
	struct piece *p = e->free_pieces;

	if (p == NULL)
		return heap_zeros(1, sizeof(*p));
	e->free_pieces = p->next_free;
	memset(p, 0, sizeof(*p));
	return p;
}

void piece_give(struct engine *e, struct piece *p)
{
	p->next_free = e->free_pieces;
	e->free_pieces = p;
}

/* Every move has one of its own, so that want of memory leaves it slow, and never half done. */
static struct piece *piece_take(struct engine *e, struct move *m)
{
	struct piece *p = m->own;

	m->own = NULL;
	return p != NULL ? p : piece_new(e);
}

static void free_piece(struct engine *e, struct piece *p)
{
	struct move *m = p->move;

	if (p->slot != NULL)
		slot_give(e, direction_of(m), p->slot);
	memset(p, 0, sizeof(*p));
	if (m->own == NULL)
		m->own = p;
	else
		piece_give(e, p);
}

enum begun { BEGUN, BEGUN_NOTHING, BEGUN_WAITS, BEGUN_NO_MORE };

static bool piece_aim(struct engine *e, struct piece *p)
{
	struct move *m = p->move;
	uint32_t node;

	list_init(&p->x.link);
	switch (m->kind) {
	case MOVE_FILL:
		aim_fill(e, p);
		return true;
	case MOVE_CLEAN:
		aim_clean(e, p);
		return true;
	case MOVE_COMPACT:
		node = source_node(e, m);
		aim(p, m->to, XFER_COPY, piece_offset(e, p, m->to, m->to_node), NULL,
		    piece_length(e, p));
		p->x.from = piece_offset(e, p, m->to, node);
		return true;
	case MOVE_COPY:
		return aim_copy(e, p);
	default:
		ASSERT(m->kind == MOVE_SYNC);
		aim(p, m->to, XFER_SYNC, 0, NULL, 0);
		return true;
	}
}

static enum begun piece_begin(struct engine *e, struct move *m)
{
	struct piece *p = piece_take(e, m);

	if (p == NULL)
		return BEGUN_NO_MORE; /* one is under way, and its end comes here again */
	p->move = m;
	p->index = m->next_piece;
	p->hops = move_hops(m);
	if (p->hops) {
		p->slot = slot_is_for(e, m) ? slot_take(e, direction_of(m)) : NULL;
		if (p->slot == NULL) {
			free_piece(e, p);
			return BEGUN_WAITS;
		}
	}
	m->next_piece++;
	if (!piece_aim(e, p)) {
		free_piece(e, p);
		return BEGUN_NOTHING;
	}
	m->in_flight++;
	lend(e, p);
	return BEGUN;
}

static uint64_t ahead_bytes(const struct engine *e, uint8_t device)
{
	return device == DEVICE_NONE ? 0 : e->devices[device].tier->base.ahead_bytes;
}

static uint64_t pieces_at_once(const struct engine *e, const struct move *m)
{
	uint64_t ahead = MAX(ahead_bytes(e, m->from), ahead_bytes(e, m->to));

	if (m->slides)
		return 1; /* the next one's target is this one's source */
	if (m->from_kind == TIER_KIND_NVME || m->to_kind == TIER_KIND_NVME)
		return PIECES_NVME;
	return MAX(PIECES_MAPPED, ahead / PIECE_BYTES);
}

static bool wants_more(const struct engine *e, const struct move *m)
{
	return !m->stop && m->result == 0 && m->next_piece < m->pieces &&
	       m->in_flight < pieces_at_once(e, m);
}

/* The first failure counts; what could not be marked has failed for another reason before. */
static void fail(struct move *m, int result, const char *who, const char *why)
{
	if (m->result < 0)
		return;
	m->result = result;
	if (m->phase == MOVE_RUNS)
		snprintf(m->cause, sizeof(m->cause), "%s: %s", who, why);
}

void pieces_pump(struct engine *e, struct move *m)
{
	enum begun begun = BEGUN;

	ASSERT_OBJ(m, MOVE_MAGIC);
	while (wants_more(e, m) && (begun == BEGUN || begun == BEGUN_NOTHING))
		begun = piece_begin(e, m);
	if (begun == BEGUN_WAITS) {
		slot_await(e, m);
		return;
	}
	list_remove(&m->staging_link);
	if (m->in_flight == 0 && (m->next_piece == m->pieces || m->stop || m->result < 0))
		move_finished(e, m);
}

/* What waiters are told. Of a device's own words those alone mean to them what they mean to it that
 * say that it has no room, or that a GPU is gone; the cause has them all. */
static int result_told(const struct engine *e, const struct piece *p)
{
	int result = p->x.result;
	bool gone = result == -ENODEV && device_kind(e, p->device) == TIER_KIND_HBM;

	return result == -ENOSPC || result == -ENOMEM || gone ? result : -EIO;
}

static void piece_failed(struct engine *e, struct piece *p)
{
	struct move *m = p->move;

	stat_add(p->x.op == XFER_READ ? STAT(e, read_errors) : STAT(e, write_errors), 1);
	fail(m, result_told(e, p), e->devices[p->device].tier->base.name,
	     p->x.cause[0] != '\0' ? p->x.cause : strerror(-p->x.result));
}

static void piece_succeeded(struct engine *e, struct piece *p)
{
	struct move *m = p->move;

	if (device_kind(e, p->device) != TIER_KIND_NVME)
		return;
	if (p->x.op == XFER_READ)
		stat_add(STAT(e, nvme_read_bytes), p->x.bytes);
	if (p->x.op != XFER_WRITE)
		return;
	stat_add(STAT(e, nvme_written_bytes), p->x.bytes);
	if (m->kind == MOVE_COPY)
		m->fresh.crc = p->x.crc;
	else
		m->to_map->blocks[p->index].crc = p->x.crc;
}

bool piece_done(struct engine *e, struct piece *p)
{
	struct move *m = p->move;

	ASSERT_OBJ(m, MOVE_MAGIC);
	xfer_take_back(e, p->device, &p->x);
	stat_add(STAT(e, retries), p->x.retries);
	p->x.retries = 0;
	if (p->x.result < 0 && m->slides && m->done_pieces > 0 && !m->stop) {
		/* Half of the tensor stands there, and half here. What failed moved nothing. */
		stat_add(STAT(e, retries), 1);
		lend(e, p);
		return false;
	}
	if (p->x.result < 0)
		piece_failed(e, p);
	else
		piece_succeeded(e, p);
	if (p->x.result == 0 && m->kind == MOVE_COPY && p->stage == 0)
		copy_window(e, p);
	if (p->x.result == 0 && p->hops && p->stage == 0 && m->result == 0 && !m->stop &&
	    (m->kind != MOVE_COPY || m->fresh.node != EXTENT_NONE)) {
		p->stage = 1;
		aim_second(e, p);
		lend(e, p);
		return false;
	}
	ASSERT(m->in_flight > 0);
	m->in_flight--;
	m->done_pieces++;
	free_piece(e, p);
	return true;
}

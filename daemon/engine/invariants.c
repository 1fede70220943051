/* SPDX-License-Identifier: Apache-2.0
 *
 * The invariants of the design as assertions over everything the engine knows: for tests and the
 * stepper, O(tensors). Each is a row of invariants.h.
 */
#include "daemon/engine/invariants.h"

#include <stdlib.h>

#include "daemon/engine/blocks.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/fence.h"
#include "daemon/engine/front.h"
#include "daemon/engine/largest.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/slabs.h"

/* Stands where the row says something: where its premise is true. */
#define HOLDS(sums, name, expr)                                                                    \
	do {                                                                                       \
		(sums)->held |= 1ull << INVARIANT_##name;                                          \
		if (!(expr))                                                                       \
			check_failed("invariant " #name ": " #expr, __FILE__, __LINE__, __func__); \
	} while (0)
_Static_assert(INVARIANT_COUNT <= 64, "a bit each");

struct sums {
	uint64_t held; /* rows that were asserted: bits */
	uint64_t used[ENGINE_DEVICES_MAX], closed[ENGINE_DEVICES_MAX];
	uint64_t resident[TIER_KINDS];
	uint64_t ready, wanted, granted;   /* of records */
	uint64_t named;                    /* records, and clients */
	uint64_t pool[ENGINE_DEVICES_MAX]; /* of all namespaces */
	uint64_t nvme_shadows;             /* likewise, what of nvme is copies of fronts */
	uint64_t leaving[ENGINE_DEVICES_MAX], prefetch[ENGINE_DEVICES_MAX];
};

static void add_extent(struct engine *e, struct sums *sums, uint8_t device, uint32_t node,
		       uint32_t tensor)
{
	struct extent x;

	extents_get(e->devices[device].extents, node, &x);
	HOLDS(sums, USED, x.owner == tensor);
	sums->used[device] += x.bytes;
}

static void add_blocks(struct engine *e, struct sums *sums, const struct block *blocks,
		       uint32_t count, uint32_t tensor)
{
	for (uint32_t i = 0; i < count; i++)
		if (blocks[i].node != EXTENT_NONE)
			add_extent(e, sums, blocks[i].device, blocks[i].node, tensor);
}

/* Namespaces count who names them, or their numbers would be another's too soon, or never. */
static void check_named(const struct engine *e, struct sums *sums)
{
	const struct list *it;

	list_for_each (it, &e->holders)
		sums->named++;
	list_for_each (it, &e->tombstones)
		sums->named++;
	for (uint32_t i = 0; i < e->name_space_count; i++) {
		const struct name_space *ns = &e->name_spaces[i];

		HOLDS(sums, NAMED, ns->named_by <= sums->named);
		HOLDS(sums, NAMED, ns->named_by >= ns->connections);
		HOLDS(sums, NAMED, ns->named_by > 0 || ns->first == TENSOR_NONE);
		sums->named -= ns->named_by;
	}
	HOLDS(sums, NAMED, sums->named == 0);
}

/* Clients are shown this place and no other. */
static void check_place(struct engine *e, struct sums *sums, uint32_t tensor, uint8_t device,
			uint32_t node)
{
	uint64_t word1 = atomic_load_explicit(&e->descriptors[tensor].word1, memory_order_relaxed);

	HOLDS(sums, FRONT_SHOWN, word0_place(word0_of(e, tensor)) == e->devices[device].place);
	HOLDS(sums, FRONT_SHOWN,
	      word1 == word1_make(e->devices[device].lane, replica_offset(e, device, node)));
}

/* Copies that read below what a fill left. */
static unsigned count_readers(const struct engine *e, const struct move *fill)
{
	const struct list *it;
	unsigned n = 0;

	list_for_each (it, &e->moves) {
		const struct move *m = list_entry(it, struct move, link);

		n += m != fill && m->tensor == fill->tensor && m->kind == MOVE_COPY &&
		     m->fresh.node == EXTENT_NONE;
	}
	return n;
}

/* A fill shows where the front will be, and whether it still may come. */
static void check_filling(struct engine *e, struct sums *sums, uint32_t tensor,
			  const struct record *r, uint8_t state)
{
	const struct move *m = move_get(e, r->move);

	if (state == STATE_FAILED)
		HOLDS(sums, FAILED_FILL, m->kind == MOVE_FILL && move_failed(m));
	else
		HOLDS(sums, FILLING, m->kind == MOVE_FILL && !move_failed(m));
	check_place(e, sums, tensor, m->to, m->to_node);
	ASSERT(list_linked(&m->failed_link) == (m->phase == MOVE_FAILED));
	if (m->phase == MOVE_FAILED)
		HOLDS(sums, FAILED_RESTS, m->in_flight == 0 && m->failure < 0);
	ASSERT(m->readers == 0 || m->phase == MOVE_FAILED);
	if (m->readers > 0)
		HOLDS(sums, FAILED_READ,
		      m->readers == count_readers(e, m) && (r->sources & SOURCE_NVME) != 0);
}

/* A front has the current bytes unless its writer has not said `filled`. */
static void check_bytes(struct engine *e, struct sums *sums, uint32_t tensor,
			const struct record *r)
{
	bool here = (r->sources & front_source(e, r)) != 0;

	if (front_unfilled(e, tensor))
		HOLDS(sums, FRONT_UNFILLED, !here && r->sources != 0);
	else
		HOLDS(sums, FRONT_CURRENT, here);
}

static void check_front(struct engine *e, struct sums *sums, uint32_t tensor,
			const struct record *r)
{
	uint8_t state = state_of(e, tensor);

	HOLDS(sums, STATE, state < STATE_COUNT && state != STATE_EVICTING);
	if (r->front != DEVICE_NONE)
		HOLDS(sums, FRONT_EXTENT, front_node(e, r) != EXTENT_NONE);
	if (state == STATE_FAILED && (r->move == 0 || move_get(e, r->move)->kind == MOVE_COPY)) {
		HOLDS(sums, FAILED_LOST, lost_front(e, r));
		check_place(e, sums, tensor, r->front, r->hbm_node);
		return;
	}
	if (state == STATE_FILLING || state == STATE_FAILED) {
		check_filling(e, sums, tensor, r, state);
		return;
	}
	if (r->front == DEVICE_NONE) {
		HOLDS(sums, ABSENT, state == STATE_ABSENT);
		return;
	}
	check_place(e, sums, tensor, r->front, front_node(e, r));
	if (state == STATE_DROPPING) {
		HOLDS(sums, DROPPING, r->move != 0 && move_get(e, r->move)->kind == MOVE_COMPACT);
		return;
	}
	ASSERT(state == STATE_RESIDENT);
	check_bytes(e, sums, tensor, r);
}

static void check_move(struct engine *e, struct sums *sums, uint32_t tensor, const struct record *r)
{
	const struct move *m = move_get(e, r->move);

	HOLDS(sums, MOVE, m->tensor == tensor && m->id == r->move);
	if (m->to_node != EXTENT_NONE) {
		sums->held |= 1ull << INVARIANT_MOVE_EXTENT;
		add_extent(e, sums, m->to, m->to_node, tensor);
	}
	if (m->to_map != NULL) {
		sums->held |= 1ull << INVARIANT_MOVE_BLOCKS;
		add_blocks(e, sums, m->to_map->blocks, m->to_map->count, tensor);
	}
	if (m->fresh.node != EXTENT_NONE)
		add_blocks(e, sums, &m->fresh, 1, tensor);
	if (m->kind == MOVE_CLEAN)
		HOLDS(sums, CLEAN,
		      state_of(e, tensor) == STATE_RESIDENT &&
			      (m->from == r->front ||
			       (m->from == dram_of(e, r) && r->dram_node != EXTENT_NONE)));
	if (m->kind == MOVE_COPY && r->front != DEVICE_NONE)
		HOLDS(sums, COPY_BELOW,
		      (front_unfilled(e, tensor) || state_of(e, tensor) == STATE_FAILED) &&
			      (r->sources & SOURCE_NVME) != 0);
}

/* What reclaim and prefetch count on. */
static void add_promised(struct engine *e, struct sums *sums, const struct record *r)
{
	const struct move *m = move_get(e, r->move);

	if (m->kind == MOVE_CLEAN && m->drop_after)
		sums->leaving[r->front] += replica_rounded(e, r->front, r->bytes);
	if (m->kind == MOVE_FILL && m->for_prefetch)
		sums->prefetch[m->to] += r->bytes;
}

static void check_sources(struct engine *e, struct sums *sums, const struct record *r)
{
	HOLDS(sums, SOURCE, r->sources != 0);
	if (r->sources & SOURCE_HBM)
		HOLDS(sums, SOURCE_HBM, r->hbm_node != EXTENT_NONE);
	if (r->sources & SOURCE_DRAM)
		HOLDS(sums, SOURCE_DRAM, r->dram_node != EXTENT_NONE);
	if (r->sources & SOURCE_NVME)
		HOLDS(sums, SOURCE_NVME, map_get(e, r) != NULL);
	if (r->flags & RECORD_LARGE)
		HOLDS(sums, LARGE, r->dram_node == EXTENT_NONE && !(r->flags & RECORD_ZONED));
	if (r->flags & RECORD_SMALL)
		HOLDS(sums, SMALL, map_get(e, r) == NULL);
	if (e->zone != DEVICE_NONE && r->dram_node != EXTENT_NONE)
		HOLDS(sums, ZONED,
		      (replica_offset(e, dram_of(e, r), r->dram_node) <
		       e->params.dram_zone_bytes) == ((r->flags & RECORD_ZONED) != 0));
}

static void add_record(struct engine *e, struct sums *sums, uint32_t tensor, const struct record *r)
{
	const struct block_map *map = map_get(e, r);

	if (r->hbm_node != EXTENT_NONE)
		add_extent(e, sums, r->hbm_device, r->hbm_node, tensor);
	if (r->dram_node != EXTENT_NONE)
		add_extent(e, sums, dram_of(e, r), r->dram_node, tensor);
	if (map != NULL)
		add_blocks(e, sums, map->blocks, map->count, tensor);
	if (map != NULL && r->front != DEVICE_NONE)
		sums->nvme_shadows += map_extent_bytes(e, map);
	sums->ready += r->ready;
	sums->wanted += r->wanted;
	sums->granted += r->granted;
	sums->named++;
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		if (r->sources & 1u << kind)
			sums->resident[kind] +=
				ALIGN_UP(r->bytes, r->bytes < GRANULE ? GRANULE_SMALL : GRANULE);
}

static void check_tensor(struct engine *e, struct sums *sums, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);

	HOLDS(sums, LARGEST, largest_holds(e, tensor));
	check_sources(e, sums, r);
	check_front(e, sums, tensor, r);
	add_record(e, sums, tensor, r);
	if (r->flags & RECORD_DOOMED)
		HOLDS(sums, DOOMED, (word0_flags(word0_of(e, tensor)) & FLAG_DOOMED) != 0);
	if (r->move != 0) {
		check_move(e, sums, tensor, r);
		add_promised(e, sums, r);
	}
}

static void add_reserved(struct engine *e, struct sums *sums, const struct list *requests)
{
	struct list *it;

	list_for_each (it, requests) {
		const struct request *q = list_entry(it, struct request, link);

		for (size_t i = 0; i < q->n; i++)
			if (q->items[i].node != EXTENT_NONE) {
				uint32_t tensor = q->items[i].tensor;

				sums->held |= 1ull << INVARIANT_RESERVED;
				add_extent(e, sums, device_at(e, record_of(e, tensor), q->device),
					   q->items[i].node, tensor);
			}
	}
}

static void check_items(struct sums *sums, const struct list *requests)
{
	struct list *it;

	list_for_each (it, requests) {
		const struct request *q = list_entry(it, struct request, link);

		for (size_t i = 0; i < q->n && q->kind == REQUEST_ACQUIRE; i++) {
			if (q->items[i].ready)
				sums->held |= 1ull << INVARIANT_READY;
			sums->held |= 1ull << INVARIANT_WANTED;
			sums->ready -= q->items[i].ready;
			sums->wanted -= q->items[i].wanted;
		}
	}
}

/* A fence is out for each request that was answered early, and each of those waits for moves. */
static void check_granted(const struct engine *e, struct sums *sums)
{
	const struct list *it, *it2;

	list_for_each (it, &e->holders) {
		const struct holder *h = list_entry(it, struct holder, link);
		unsigned n = 0;

		list_for_each (it2, &h->granted) {
			const struct request *q = list_entry(it2, struct request, holder_link);
			size_t open = 0;

			for (size_t i = 0; i < q->n; i++) {
				HOLDS(sums, GRANTED_OPEN,
				      q->items[i].node == EXTENT_NONE && q->items[i].wanted);
				sums->ready -= q->items[i].ready;
				open += list_linked(&q->items[i].link);
			}
			sums->wanted -= q->n;
			sums->granted -= q->n;
			HOLDS(sums, GRANTED_OPEN, q->granted && open > 0 && open == q->open);
			n++;
		}
		if (n > 0)
			HOLDS(sums, GRANTED, n == fences_out(h));
		ASSERT(n == fences_out(h));
	}
}

/* Neither who waits for room nor who waits for an earlier request holds anything. */
static void check_waiting(struct engine *e, struct sums *sums)
{
	struct list *it;

	for (unsigned i = 0; i < e->device_count; i++)
		list_for_each (it, &e->devices[i].queue) {
			const struct request *q = list_entry(it, struct request, link);

			for (size_t j = 0; j < q->n; j++)
				HOLDS(sums, QUEUED,
				      q->items[j].node == EXTENT_NONE && !q->items[j].ready);
		}
	list_for_each (it, &e->blocked) {
		const struct request *q = list_entry(it, struct request, link);

		for (size_t j = 0; j < q->n; j++)
			HOLDS(sums, BLOCKED, q->items[j].node == EXTENT_NONE && !q->items[j].ready);
	}
}

/* What records count is what requests say. */
static void check_requests(struct engine *e, struct sums *sums)
{
	check_items(sums, &e->running);
	check_items(sums, &e->blocked);
	for (unsigned i = 0; i < e->device_count; i++)
		check_items(sums, &e->devices[i].queue);
	check_granted(e, sums);
	ASSERT(sums->ready == 0 && sums->wanted == 0 && sums->granted == 0);
}

/* However many hints clients send, a tensor waits for one at most, and none that has gone. */
static void check_hints(struct engine *e, struct sums *sums)
{
	struct list *it;

	for (unsigned i = 0; i < e->device_count; i++)
		for (unsigned size = 0; size < HINT_SIZES; size++)
			list_for_each (it, &e->devices[i].hints[size]) {
				const struct hint *hint = list_entry(it, struct hint, link);
				uint16_t flags = e->records[hint->tensor].flags;

				HOLDS(sums, HINT, e->hint_of[hint->tensor] == hint);
				HOLDS(sums, HINT, hint->device == i && hint->size == size);
				HOLDS(sums, HINT,
				      (flags & RECORD_LIVE) && !(flags & RECORD_DOOMED));
			}
}

/* Ranges without memory are nobody's; a slab that somebody has mapped keeps its memory. */
static void check_slab(struct engine *e, struct sums *sums, uint8_t tier, uint32_t i)
{
	const struct slabs *s = e->devices[tier].slabs;
	const struct slab *slab = &s->slab[i];
	bool in_zone = e->zone != DEVICE_NONE && tier == e->dram &&
		       i * s->bytes < e->params.dram_zone_bytes;
	uint8_t home = in_zone ? e->zone : tier;

	ASSERT((slab->node == EXTENT_NONE) == (slab->state == SLAB_PRESENT));
	if (slab->importers > 0)
		HOLDS(sums, SLAB_MAPPED,
		      slab->state == SLAB_PRESENT || slab->state == SLAB_LEAVING);
	if (slab->node == EXTENT_NONE)
		return;
	add_extent(e, sums, home, slab->node, OWNER_SLAB);
	sums->closed[home] += MIN(s->bytes, s->end - i * s->bytes);
	HOLDS(sums, SLAB_CLOSED, replica_offset(e, home, slab->node) == i * s->bytes);
}

static void check_slabs(struct engine *e, struct sums *sums, uint8_t tier)
{
	const struct slabs *s = e->devices[tier].slabs;
	uint64_t backed = 0;

	for (uint32_t i = 0; s != NULL && i < s->count; i++) {
		check_slab(e, sums, tier, i);
		if (s->slab[i].state > SLAB_BACKING)
			backed += MIN(s->bytes, s->end - i * s->bytes);
	}
	if (s != NULL)
		HOLDS(sums, SLAB_BACKED, backed == s->backed_bytes && backed <= s->limit_bytes);
}

/* Lanes have what was lent to them, in the order of time. */
static void check_lent(struct engine *e)
{
	unsigned lent = 0;
	struct list *it;

	for (unsigned lane = 0; lane < ENGINE_DEVICES_MAX; lane++) {
		uint64_t before_ns = 0;

		list_for_each (it, &e->lent[lane]) {
			const struct lent *l = list_entry(it, struct lent, link);

			ASSERT(l->x->lent == l && l->since_ns >= before_ns);
			if (before_ns == 0)
				ASSERT(atomic_load(STAT(e, device[lane].oldest_ns)) == l->since_ns);
			before_ns = l->since_ns;
			lent++;
		}
		if (list_empty(&e->lent[lane]))
			ASSERT(atomic_load(STAT(e, device[lane].oldest_ns)) == 0);
	}
	ASSERT(lent == e->in_flight);
}

/* Every xfer that was lent is out, once: those of moves, and of slabs where there are any. */
static void check_flight(struct engine *e, struct sums *sums)
{
	unsigned lanes = 0, moves = 0;
	bool slabs = false;
	struct list *it;

	for (unsigned i = 0; i < e->device_count; i++) {
		lanes += e->devices[i].flight;
		slabs |= e->devices[i].slabs != NULL;
	}
	list_for_each (it, &e->moves)
		moves += list_entry(it, struct move, link)->in_flight;
	check_lent(e);
	if (e->in_flight == 0 && lanes == 0 && moves == 0)
		return;
	HOLDS(sums, FLIGHT, lanes == e->in_flight);
	HOLDS(sums, FLIGHT_MOVES, moves == e->in_flight || (slabs && moves < e->in_flight));
}

static void check_staging(struct engine *e, struct sums *sums)
{
	uint64_t slots = e->params.staging == NULL ? 0 : e->params.staging_bytes / e->block_bytes;
	unsigned up = e->staging_used[DIRECTION_UP], down = e->staging_used[DIRECTION_DOWN];

	if (up + down == 0)
		return;
	HOLDS(sums, STAGING, up + down + e->staging_free_count == slots);
	HOLDS(sums, STAGING, MAX(up, down) + e->staging_reserve <= slots);
}

/* What namespaces have of a pool, and what the engine has for moves, is what is used of it; nobody
 * has more than its limit. */
static void check_quotas(struct engine *e, struct sums *sums)
{
	uint64_t leaves[ENGINE_DEVICES_MAX] = { 0 };

	for (unsigned i = 0; i < e->device_count; i++) {
		sums->pool[e->devices[i].pool] += sums->used[i] - sums->closed[i];
		leaves[e->devices[i].pool] += sums->leaving[i];
	}
	for (unsigned a = 0; a < e->account_count; a++)
		sums->nvme_shadows -= e->accounts[a].nvme_shadow_bytes;
	ASSERT(sums->nvme_shadows == 0);
	for (unsigned i = 0; i < e->device_count; i++) {
		uint64_t sum = e->devices[i].moving_bytes, leaving = 0;

		if (e->devices[i].pool != i)
			continue;
		for (unsigned a = 0; a < e->account_count; a++) {
			const struct quota_share *s = &e->accounts[a].pool[i];

			if (e->account_count > 1)
				HOLDS(sums, QUOTA_LIMIT, s->used_bytes <= s->limit_bytes);
			ASSERT(s->leaving_bytes <= s->used_bytes);
			sum += s->used_bytes;
			leaving += s->leaving_bytes;
		}
		HOLDS(sums, QUOTA_USED, sum == sums->pool[i]);
		ASSERT(leaving == leaves[i]);
	}
}

static void check_sums(struct engine *e, struct sums *sums)
{
	for (unsigned i = 0; i < e->device_count; i++) {
		const struct device *d = &e->devices[i];

		extents_check(d->extents);
		HOLDS(sums, USED, sums->used[i] == extents_used(d->extents));
		ASSERT(sums->closed[i] == d->closed_bytes);
		if (sums->leaving[i] > 0 || d->leaving_bytes > 0)
			HOLDS(sums, LEAVING, sums->leaving[i] == d->leaving_bytes);
		if (sums->prefetch[i] > 0 || d->prefetch_bytes > 0)
			HOLDS(sums, PREFETCH, sums->prefetch[i] == d->prefetch_bytes);
	}
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		HOLDS(sums, RESIDENT,
		      sums->resident[kind] ==
			      atomic_load_explicit(STAT(e, tier[kind].resident_bytes),
						   memory_order_relaxed));
}

void engine_check(struct engine *e)
{
	struct sums sums = { 0 };

	for (uint32_t i = 1; i < e->index_high; i++)
		if (e->records[i].flags & RECORD_LIVE)
			check_tensor(e, &sums, i);
	add_reserved(e, &sums, &e->running);
	check_requests(e, &sums);
	check_waiting(e, &sums);
	check_hints(e, &sums);
	check_named(e, &sums);
	for (unsigned i = 0; i < e->device_count; i++)
		check_slabs(e, &sums, (uint8_t)i);
	check_flight(e, &sums);
	check_staging(e, &sums);
	check_sums(e, &sums);
	check_quotas(e, &sums);
	if (e->params.hooks.reached != NULL)
		e->params.hooks.reached(e->params.hooks.ctx, ENGINE_TABLE_INVARIANTS, sums.held);
}

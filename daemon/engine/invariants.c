/* SPDX-License-Identifier: Apache-2.0
 *
 * The invariants of the design as assertions over everything the engine knows: for tests and the
 * stepper, O(tensors).
 */
#include <stdlib.h>

#include "daemon/engine/blocks.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/fence.h"
#include "daemon/engine/front.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/slabs.h"

struct sums {
	uint64_t used[ENGINE_DEVICES_MAX], closed[ENGINE_DEVICES_MAX];
	uint64_t resident[TIER_KINDS];
	uint64_t ready, wanted, granted;   /* of records */
	uint64_t pool[ENGINE_DEVICES_MAX]; /* of all namespaces */
	uint64_t leaving[ENGINE_DEVICES_MAX], prefetch[ENGINE_DEVICES_MAX];
};

static void add_extent(struct engine *e, struct sums *sums, uint8_t device, uint32_t node,
		       uint32_t tensor)
{
	struct extent x;

	extents_get(e->devices[device].extents, node, &x);
	ASSERT(x.owner == tensor);
	sums->used[device] += x.bytes;
}

static void add_blocks(struct engine *e, struct sums *sums, const struct block *blocks,
		       uint32_t count, uint32_t tensor)
{
	for (uint32_t i = 0; i < count; i++)
		if (blocks[i].node != EXTENT_NONE)
			add_extent(e, sums, blocks[i].device, blocks[i].node, tensor);
}

/* Clients are shown this place and no other. */
static void check_place(struct engine *e, uint32_t tensor, uint8_t device, uint32_t node)
{
	uint64_t word1 = atomic_load_explicit(&e->descriptors[tensor].word1, memory_order_relaxed);

	ASSERT(word0_place(word0_of(e, tensor)) == e->devices[device].place);
	ASSERT(word1 == word1_make(e->devices[device].lane, replica_offset(e, device, node)));
}

/* A fill shows where the front will be, and whether it still may come. */
static void check_filling(struct engine *e, uint32_t tensor, const struct record *r, uint8_t state)
{
	const struct move *m = move_get(e, r->move);

	ASSERT(m->kind == MOVE_FILL && (state == STATE_FAILED) == move_failed(m));
	check_place(e, tensor, m->to, m->to_node);
	ASSERT(list_linked(&m->failed_link) == (m->phase == MOVE_FAILED));
	if (m->phase == MOVE_FAILED)
		ASSERT(m->in_flight == 0 && m->failure < 0);
}

static void check_front(struct engine *e, uint32_t tensor, const struct record *r)
{
	uint64_t word0 = word0_of(e, tensor);
	uint8_t state = word0_state(word0);
	bool unfilled = front_unfilled(e, tensor);

	ASSERT(state < STATE_COUNT && state != STATE_EVICTING); /* never across calls */
	ASSERT(r->front == DEVICE_NONE || front_node(e, r) != EXTENT_NONE);
	if (state == STATE_FAILED && r->move == 0) {
		ASSERT(lost_front(e, r));
		check_place(e, tensor, r->front, r->hbm_node);
		return;
	}
	if (state == STATE_FILLING || state == STATE_FAILED) {
		check_filling(e, tensor, r, state);
		return;
	}
	if (r->front == DEVICE_NONE) {
		ASSERT(state == STATE_ABSENT);
		return;
	}
	ASSERT(state == STATE_RESIDENT || (state == STATE_DROPPING && r->move != 0));
	check_place(e, tensor, r->front, front_node(e, r));
	/* A front has the current bytes unless its writer has not said `filled`. */
	if (state == STATE_RESIDENT)
		ASSERT(unfilled || (r->sources & front_source(e, r)) != 0);
}

static void check_move(struct engine *e, struct sums *sums, uint32_t tensor, const struct record *r)
{
	const struct move *m = move_get(e, r->move);

	ASSERT(m->tensor == tensor);
	if (m->to_node != EXTENT_NONE)
		add_extent(e, sums, m->to, m->to_node, tensor);
	if (m->to_map != NULL)
		add_blocks(e, sums, m->to_map->blocks, m->to_map->count, tensor);
	if (m->fresh.node != EXTENT_NONE)
		add_blocks(e, sums, &m->fresh, 1, tensor);
	/* A pinned front neither moves nor goes; a clean leaves it where it is. */
	if (state_of(e, tensor) == STATE_DROPPING)
		ASSERT(m->kind == MOVE_COMPACT);
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

static void check_tensor(struct engine *e, struct sums *sums, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);
	const struct block_map *map = map_get(e, r);

	ASSERT(r->sources != 0); /* its bytes are somewhere, or are zeros */
	check_front(e, tensor, r);
	if (r->hbm_node != EXTENT_NONE)
		add_extent(e, sums, r->hbm_device, r->hbm_node, tensor);
	if (r->dram_node != EXTENT_NONE)
		add_extent(e, sums, dram_of(e, r), r->dram_node, tensor);
	if (map != NULL)
		add_blocks(e, sums, map->blocks, map->count, tensor);
	ASSERT(!(r->flags & RECORD_LARGE) ||
	       (r->dram_node == EXTENT_NONE && !(r->flags & RECORD_ZONED)));
	ASSERT(!(r->sources & SOURCE_HBM) || r->hbm_node != EXTENT_NONE);
	ASSERT(!(r->sources & SOURCE_DRAM) || r->dram_node != EXTENT_NONE);
	ASSERT(!(r->sources & SOURCE_NVME) || map != NULL);
	if (r->move != 0) {
		check_move(e, sums, tensor, r);
		add_promised(e, sums, r);
	}
	sums->ready += r->ready;
	sums->wanted += r->wanted;
	sums->granted += r->granted;
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		if (r->sources & 1u << kind)
			sums->resident[kind] +=
				ALIGN_UP(r->bytes, r->bytes < GRANULE ? GRANULE_SMALL : GRANULE);
}

static void add_reserved(struct engine *e, struct sums *sums, const struct list *requests)
{
	struct list *it;

	list_for_each (it, requests) {
		const struct request *q = list_entry(it, struct request, link);

		for (size_t i = 0; i < q->n; i++)
			if (q->items[i].node != EXTENT_NONE)
				add_extent(
					e, sums,
					device_at(e, record_of(e, q->items[i].tensor), q->device),
					q->items[i].node, q->items[i].tensor);
	}
}

static void check_items(struct sums *sums, const struct list *requests)
{
	struct list *it;

	list_for_each (it, requests) {
		const struct request *q = list_entry(it, struct request, link);

		for (size_t i = 0; i < q->n && q->kind == REQUEST_ACQUIRE; i++) {
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
				ASSERT(q->items[i].node == EXTENT_NONE && q->items[i].wanted);
				sums->ready -= q->items[i].ready;
				open += list_linked(&q->items[i].link);
			}
			sums->wanted -= q->n;
			sums->granted -= q->n;
			ASSERT(q->granted && open > 0 && open == q->open);
			n++;
		}
		ASSERT(n == fences_out(h));
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
static void check_hints(struct engine *e)
{
	struct list *it;

	for (unsigned i = 0; i < e->device_count; i++)
		for (unsigned size = 0; size < HINT_SIZES; size++)
			list_for_each (it, &e->devices[i].hints[size]) {
				const struct hint *hint = list_entry(it, struct hint, link);
				uint16_t flags = e->records[hint->tensor].flags;

				ASSERT(e->hint_of[hint->tensor] == hint);
				ASSERT(hint->device == i && hint->size == size);
				ASSERT((flags & RECORD_LIVE) && !(flags & RECORD_DOOMED));
			}
}

/* Ranges without memory are nobody's; a slab that somebody has mapped keeps its memory. */
static void check_slabs(struct engine *e, struct sums *sums, uint8_t tier)
{
	const struct slabs *s = e->devices[tier].slabs;
	uint64_t backed = 0;

	for (uint32_t i = 0; s != NULL && i < s->count; i++) {
		uint64_t bytes = MIN(s->bytes, s->end - i * s->bytes);
		bool in_zone = e->zone != DEVICE_NONE && tier == e->dram &&
			       i * s->bytes < e->params.dram_zone_bytes;
		uint8_t home = in_zone ? e->zone : tier;

		ASSERT((s->slab[i].node == EXTENT_NONE) == (s->slab[i].state == SLAB_PRESENT));
		ASSERT(s->slab[i].importers == 0 || s->slab[i].state == SLAB_PRESENT ||
		       s->slab[i].state == SLAB_LEAVING);
		backed += s->slab[i].state > SLAB_BACKING ? bytes : 0;
		if (s->slab[i].node == EXTENT_NONE)
			continue;
		add_extent(e, sums, home, s->slab[i].node, OWNER_SLAB);
		sums->closed[home] += bytes;
		ASSERT(replica_offset(e, home, s->slab[i].node) == i * s->bytes);
	}
	ASSERT(s == NULL || backed == s->backed_bytes);
	ASSERT(s == NULL || backed <= s->limit_bytes);
}

static unsigned count_flight(const struct engine *e)
{
	unsigned n = 0;

	for (unsigned i = 0; i < e->device_count; i++)
		n += e->devices[i].flight;
	return n;
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
	for (unsigned i = 0; i < e->device_count; i++) {
		uint64_t sum = e->devices[i].moving_bytes, leaving = 0;

		if (e->devices[i].pool != i)
			continue;
		for (unsigned a = 0; a < e->account_count; a++) {
			const struct quota_share *s = &e->accounts[a].pool[i];

			ASSERT(s->used_bytes <= s->limit_bytes);
			ASSERT(s->leaving_bytes <= s->used_bytes);
			sum += s->used_bytes;
			leaving += s->leaving_bytes;
		}
		ASSERT(sum == sums->pool[i]);
		ASSERT(leaving == leaves[i]);
	}
}

void engine_check(struct engine *e)
{
	struct sums sums = { 0 };
	struct list *it;

	for (uint32_t i = 1; i < e->index_high; i++)
		if (e->records[i].flags & RECORD_LIVE)
			check_tensor(e, &sums, i);
	add_reserved(e, &sums, &e->running);
	check_requests(e, &sums);
	check_hints(e);
	for (unsigned i = 0; i < e->device_count; i++)
		check_slabs(e, &sums, (uint8_t)i);
	for (unsigned i = 0; i < e->device_count; i++) {
		extents_check(e->devices[i].extents);
		ASSERT(sums.used[i] == extents_used(e->devices[i].extents));
		ASSERT(sums.closed[i] == e->devices[i].closed_bytes);
		ASSERT(sums.leaving[i] == e->devices[i].leaving_bytes);
		ASSERT(sums.prefetch[i] == e->devices[i].prefetch_bytes);
		/* Who waits for room holds nothing. */
		list_for_each (it, &e->devices[i].queue) {
			const struct request *q = list_entry(it, struct request, link);

			for (size_t j = 0; j < q->n; j++)
				ASSERT(q->items[j].node == EXTENT_NONE && !q->items[j].ready);
		}
	}
	check_quotas(e, &sums);
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		ASSERT(sums.resident[kind] ==
		       atomic_load_explicit(STAT(e, tier[kind].resident_bytes),
					    memory_order_relaxed));
	ASSERT(count_flight(e) == e->in_flight);
}

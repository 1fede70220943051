/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/replica.h"

#include <errno.h>
#include <stdlib.h>

uint64_t replica_rounded(const struct engine *e, uint8_t device, uint64_t bytes)
{
	return extents_rounded(e->devices[device].extents, bytes);
}

uint64_t replica_offset(const struct engine *e, uint8_t device, uint32_t node)
{
	struct extent x;

	extents_get(e->devices[device].extents, node, &x);
	return x.offset;
}

void *replica_address(const struct engine *e, uint8_t device, uint32_t node)
{
	char *base = e->devices[device].tier->base.host_base;

	ASSERT(base != NULL);
	return base + replica_offset(e, device, node);
}

static void count_reserved(struct engine *e, enum tier_kind kind)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < e->device_count; i++)
		if (device_kind(e, (uint8_t)i) == kind)
			used += extents_used(e->devices[i].extents);
	stat_set(STAT(e, tier[kind].reserved_bytes), used);
	if (used > atomic_load_explicit(STAT(e, tier[kind].peak_bytes), memory_order_relaxed))
		stat_set(STAT(e, tier[kind].peak_bytes), used);
}

int replica_take(struct engine *e, uint8_t device, uint32_t tensor, uint32_t *ret_node)
{
	struct extent x;
	int rc = extents_take(e->devices[device].extents, e->records[tensor].bytes, tensor, &x);

	if (rc < 0)
		return rc;
	count_reserved(e, device_kind(e, device));
	*ret_node = x.node;
	return 0;
}

int replica_take_outside(struct engine *e, uint8_t device, uint32_t tensor, uint64_t begin,
			 uint64_t end, uint32_t *ret_node)
{
	struct extent x;
	int rc = extents_take_outside(e->devices[device].extents, e->records[tensor].bytes, tensor,
				      begin, end, &x);

	if (rc < 0)
		return rc;
	count_reserved(e, device_kind(e, device));
	*ret_node = x.node;
	return 0;
}

void replica_give(struct engine *e, uint8_t device, uint32_t node)
{
	extents_give(e->devices[device].extents, node);
	count_reserved(e, device_kind(e, device));
	e->devices[device].reclaim_at_ns = 0; /* there is room: whoever waits looks again */
	e->devices[device].look = true;
	e->again = true;
}

/* ---- blocks ---- */

uint32_t replica_block_count(const struct engine *e, uint64_t bytes)
{
	if (bytes == 0)
		return 1;
	return (uint32_t)((bytes + e->block_bytes - 1) / e->block_bytes);
}

uint64_t replica_block_bytes(const struct engine *e, uint64_t bytes, uint32_t index)
{
	uint64_t begin = (uint64_t)index * e->block_bytes;

	ASSERT(begin <= bytes);
	return MIN(e->block_bytes, bytes - begin);
}

/* Bytes a second as measured; a device that was not used yet counts as an ordinary disk. */
static double device_rate(const struct device *d)
{
	if (d->busy_ns < NS_PER_MS)
		return 1e9;
	return (double)d->done_bytes * 1e9 / (double)d->busy_ns;
}

/* The device that would be done with `bytes` more the soonest: unequal paths fill by their rate. */
static uint8_t pick_device(const struct engine *e, const uint64_t *planned, uint64_t bytes,
			   uint32_t refused)
{
	uint8_t best = DEVICE_NONE;
	double best_s = 0;

	for (unsigned i = 0; i < e->device_count; i++) {
		const struct device *d = &e->devices[i];
		double s;

		if (device_kind(e, (uint8_t)i) != TIER_KIND_NVME || (refused & 1u << i) != 0)
			continue;
		s = (double)(d->flight_bytes + planned[i] + bytes) / device_rate(d);
		if (best == DEVICE_NONE || s < best_s) {
			best = (uint8_t)i;
			best_s = s;
		}
	}
	return best;
}

static int take_block(struct engine *e, uint32_t tensor, uint64_t bytes, uint64_t *planned,
		      struct block *ret)
{
	uint32_t refused = 0;
	uint8_t device;

	while ((device = pick_device(e, planned, bytes, refused)) != DEVICE_NONE) {
		/* Even a short tail takes whole granules of a device. */
		uint64_t rounded = ALIGN_UP(MAX(bytes, 1), GRANULE);
		struct extent x;

		if (extents_take(e->devices[device].extents, rounded, tensor, &x) == 0) {
			*ret = (struct block){ .node = x.node, .crc = 0, .device = device };
			planned[device] += bytes;
			return 0;
		}
		refused |= 1u << device;
	}
	*ret = (struct block){ .node = EXTENT_NONE };
	return -ENOSPC;
}

int replica_block_take(struct engine *e, uint32_t tensor, uint64_t bytes, struct block *ret)
{
	uint64_t planned[ENGINE_DEVICES_MAX] = { 0 };
	int rc = take_block(e, tensor, bytes, planned, ret);

	count_reserved(e, TIER_KIND_NVME);
	return rc;
}

void replica_block_give(struct engine *e, struct block *block)
{
	if (block->node != EXTENT_NONE)
		replica_give(e, block->device, block->node);
	block->node = EXTENT_NONE;
}

int replica_blocks_take(struct engine *e, uint32_t tensor, struct block **ret)
{
	uint64_t bytes = e->records[tensor].bytes;
	uint32_t count = replica_block_count(e, bytes);
	uint64_t planned[ENGINE_DEVICES_MAX] = { 0 };
	struct block *blocks = calloc(count, sizeof(*blocks));

	if (blocks == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		int rc = take_block(e, tensor, replica_block_bytes(e, bytes, i), planned,
				    &blocks[i]);

		if (rc < 0) {
			replica_blocks_give(e, blocks, i);
			return rc;
		}
	}
	count_reserved(e, TIER_KIND_NVME);
	*ret = blocks;
	return 0;
}

void replica_blocks_give(struct engine *e, struct block *blocks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (blocks[i].node != EXTENT_NONE)
			extents_give(e->devices[blocks[i].device].extents, blocks[i].node);
	free(blocks);
	count_reserved(e, TIER_KIND_NVME);
	e->again = true;
}

int replica_map_set(struct engine *e, struct record *r, struct block *blocks)
{
	uint32_t i = e->block_map_free;

	ASSERT(r->blocks == 0);
	while (i < e->block_map_room && e->block_maps[i] != NULL)
		i++;
	if (i >= e->block_map_room) {
		uint32_t room = MAX(e->block_map_room * 2, 1024u);
		struct block **grown = realloc(e->block_maps, room * sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		for (uint32_t j = e->block_map_room; j < room; j++)
			grown[j] = NULL;
		i = MAX(e->block_map_room, 1u); /* 0 means none */
		e->block_maps = grown;
		e->block_map_room = room;
	}
	e->block_maps[i] = blocks;
	e->block_map_free = i + 1;
	r->blocks = i;
	return 0;
}

struct block *replica_map_get(const struct engine *e, const struct record *r)
{
	return r->blocks == 0 ? NULL : e->block_maps[r->blocks];
}

int replica_blocks_holes(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);
	uint32_t count = replica_block_count(e, r->bytes);
	struct block *blocks = calloc(count, sizeof(*blocks));
	int rc;

	if (blocks == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		blocks[i].node = EXTENT_NONE;
	rc = replica_map_set(e, r, blocks);
	if (rc < 0)
		free(blocks);
	return rc;
}

/* ---- sources and fronts ---- */

static void count_resident(struct engine *e, const struct record *r, uint8_t sources, int sign)
{
	for (unsigned kind = 0; kind < TIER_KINDS; kind++) {
		uint64_t n = ALIGN_UP(r->bytes, r->bytes < GRANULE ? GRANULE_SMALL : GRANULE);

		if ((sources & 1u << kind) == 0)
			continue;
		n = sign > 0 ? n : (uint64_t)0 - n;
		stat_add(STAT(e, tier[kind].resident_bytes), n);
		stat_add(STAT(e, tier[kind].class_bytes[r->class_]), n);
	}
}

static void sources_become(struct engine *e, struct record *r, uint8_t sources)
{
	count_resident(e, r, r->sources & ~sources, -1);
	count_resident(e, r, sources & ~r->sources, 1);
	r->sources = sources;
}

void source_add(struct engine *e, uint32_t tensor, enum source source)
{
	struct record *r = record_of(e, tensor);

	sources_become(e, r, r->sources | source);
}

void source_set(struct engine *e, uint32_t tensor, enum source source)
{
	struct record *r = record_of(e, tensor);

	sources_become(e, r, source);
	r->version++;
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		if ((source & 1u << kind) == 0 &&
		    (r->front == DEVICE_NONE || device_kind(e, r->front) != kind))
			replica_drop(e, tensor, kind);
}

static void shadow_unlink(struct engine *e, uint32_t tensor)
{
	struct record *r = &e->records[tensor];

	if (r->shadow_prev == TENSOR_NONE && r->shadow_next == TENSOR_NONE &&
	    e->shadow_first != tensor)
		return;
	if (r->shadow_prev != TENSOR_NONE)
		e->records[r->shadow_prev].shadow_next = r->shadow_next;
	else
		e->shadow_first = r->shadow_next;
	if (r->shadow_next != TENSOR_NONE)
		e->records[r->shadow_next].shadow_prev = r->shadow_prev;
	r->shadow_prev = r->shadow_next = TENSOR_NONE;
}

static void shadow_link(struct engine *e, uint32_t tensor)
{
	struct record *r = &e->records[tensor];

	shadow_unlink(e, tensor);
	r->shadow_next = e->shadow_first;
	if (r->shadow_next != TENSOR_NONE)
		e->records[r->shadow_next].shadow_prev = tensor;
	e->shadow_first = tensor;
}

void replica_drop(struct engine *e, uint32_t tensor, enum tier_kind kind)
{
	struct record *r = record_of(e, tensor);

	sources_become(e, r, r->sources & ~(1u << kind));
	if (kind == TIER_KIND_HBM && r->hbm_node != EXTENT_NONE) {
		replica_give(e, r->hbm_device, r->hbm_node);
		r->hbm_node = EXTENT_NONE;
	} else if (kind == TIER_KIND_DRAM && r->dram_node != EXTENT_NONE) {
		shadow_unlink(e, tensor);
		replica_give(e, e->dram, r->dram_node);
		r->dram_node = EXTENT_NONE;
	} else if (kind == TIER_KIND_NVME && r->blocks != 0) {
		replica_blocks_give(e, e->block_maps[r->blocks], replica_block_count(e, r->bytes));
		e->block_maps[r->blocks] = NULL;
		e->block_map_free = MIN(e->block_map_free, r->blocks);
		r->blocks = 0;
	}
}

enum source front_source(const struct engine *e, const struct record *r)
{
	ASSERT(r->front != DEVICE_NONE);
	return (enum source)(1u << device_kind(e, r->front));
}

uint32_t front_node(const struct engine *e, const struct record *r)
{
	return front_source(e, r) == SOURCE_HBM ? r->hbm_node : r->dram_node;
}

void policy_tell(struct engine *e, uint32_t tensor, enum policy_event_kind kind, uint8_t tier,
		 uint8_t from, uint8_t access)
{
	const struct record *r = &e->records[tensor];
	struct policy_event event = { .kind = kind,
				      .tier = tier,
				      .from = from,
				      .access = access,
				      .tensor = tensor,
				      .bytes = r->bytes,
				      .now_ns = e->now_ns };

	e->policy_ops[r->class_]->event(e->policies[r->class_], &event);
}

void front_set(struct engine *e, uint32_t tensor, uint8_t device)
{
	struct record *r = record_of(e, tensor);
	uint8_t was = r->front;
	uint8_t from = was == DEVICE_NONE ? POLICY_TIER_NONE : (uint8_t)device_kind(e, was);
	uint8_t to = device == DEVICE_NONE ? POLICY_TIER_NONE : (uint8_t)device_kind(e, device);

	r->front = device;
	if (to == POLICY_TIER_HBM && r->dram_node != EXTENT_NONE)
		shadow_link(e, tensor);
	else
		shadow_unlink(e, tensor);
	if (was != device)
		policy_tell(e, tensor, POLICY_EVENT_MOVED, to, from, 0);
}

void publish(struct engine *e, uint32_t tensor, uint8_t state, uint16_t flags)
{
	struct descriptor *d = &e->descriptors[tensor];
	const struct record *r = record_of(e, tensor);
	uint32_t generation = word0_generation(word0_of(e, tensor));
	uint8_t place = PROTOCOL_PLACE_HOST;

	if (r->flags & RECORD_LARGE)
		flags |= FLAG_LARGE;
	if (r->flags & RECORD_DOOMED)
		flags |= FLAG_DOOMED;
	if (r->front != DEVICE_NONE) {
		place = e->devices[r->front].place;
		atomic_store_explicit(
			&d->word1,
			word1_make(r->front, replica_offset(e, r->front, front_node(e, r))),
			memory_order_relaxed);
	}
	/* seq_cst: pairs with the client's pin and re-read (pins.c); also releases word1. */
	atomic_store(&d->word0, word0_make(generation, state, place, flags));
}

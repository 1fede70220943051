/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/blocks.h"

#include <errno.h>

#include "base/heap.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"

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

/* What `bytes` of a tensor take, however they are cut: even a short tail takes whole granules. */
static uint64_t rounded(uint64_t bytes)
{
	return ALIGN_UP(MAX(bytes, 1), GRANULE);
}

static int take_block(struct engine *e, uint32_t tensor, uint64_t bytes, bool counts,
		      uint64_t *planned, struct block *ret)
{
	uint32_t refused = 0;
	uint8_t device;

	while ((device = pick_device(e, planned, bytes, refused)) != DEVICE_NONE) {
		struct extent x;
		int rc = extents_take(e->devices[device].extents, rounded(bytes), tensor, &x);

		if (rc == 0) {
			if (counts)
				quota_count(e, tensor, device, x.bytes, true);
			else
				quota_count_moving(e, device, x.bytes, true);
			*ret = (struct block){ .node = x.node, .crc = 0, .device = device };
			planned[device] += bytes;
			return 0;
		}
		if (rc == -ENOMEM) /* of which there is no more for another device */
			break;
		refused |= 1u << device;
	}
	*ret = (struct block){ .node = EXTENT_NONE };
	return device == DEVICE_NONE ? -ENOSPC : -ENOMEM;
}

int map_block_take(struct engine *e, uint32_t tensor, uint64_t bytes, bool counts,
		   struct block *ret)
{
	uint64_t planned[ENGINE_DEVICES_MAX] = { 0 };
	int rc;

	if (counts && !quota_allows(e, tensor, e->nvme_first, rounded(bytes)))
		return -EDQUOT;
	rc = take_block(e, tensor, bytes, counts, planned, ret);
	replica_count_reserved(e, TIER_KIND_NVME);
	return rc;
}

void map_block_give(struct engine *e, struct block *block, bool counts)
{
	if (block->node != EXTENT_NONE)
		(counts ? replica_give : replica_give_moved)(e, block->device, block->node);
	block->node = EXTENT_NONE;
}

void map_block_stays(struct engine *e, uint32_t tensor, const struct block *block)
{
	struct extent x;

	extents_get(e->devices[block->device].extents, block->node, &x);
	quota_count_moving(e, block->device, x.bytes, false);
	quota_count(e, tensor, block->device, x.bytes, true);
}

uint64_t map_bytes(const struct block_map *map, const struct record *r, uint32_t index)
{
	uint64_t begin = (uint64_t)index * map->block_bytes;

	ASSERT(index < map->count && begin <= r->bytes);
	return MIN(map->block_bytes, r->bytes - begin);
}

static int map_new(const struct record *r, uint64_t block_bytes, struct block_map **ret)
{
	uint64_t count = MAX((r->bytes + block_bytes - 1) / block_bytes, 1u);
	struct block_map *map = heap_zeros(1, sizeof(*map) + count * sizeof(map->blocks[0]));

	if (map == NULL)
		return -ENOMEM;
	map->block_bytes = block_bytes;
	map->count = (uint32_t)count;
	for (uint32_t i = 0; i < map->count; i++)
		map->blocks[i] = (struct block){ .node = EXTENT_NONE };
	*ret = map;
	return 0;
}

int map_take_holes(struct engine *e, uint32_t tensor, struct block_map **ret)
{
	return map_new(record_of(e, tensor), e->block_bytes, ret);
}

static int take_all(struct engine *e, uint32_t tensor, struct block_map *map)
{
	const struct record *r = record_of(e, tensor);
	uint64_t planned[ENGINE_DEVICES_MAX] = { 0 };

	for (uint32_t i = 0; i < map->count; i++) {
		int rc =
			take_block(e, tensor, map_bytes(map, r, i), true, planned, &map->blocks[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

uint64_t nvme_free_bytes(const struct engine *e)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < e->device_count; i++)
		if (device_kind(e, (uint8_t)i) == TIER_KIND_NVME)
			bytes += extents_capacity(e->devices[i].extents) -
				 extents_used(e->devices[i].extents);
	return bytes;
}

int map_take(struct engine *e, uint32_t tensor, struct block_map **ret)
{
	uint64_t bytes = record_of(e, tensor)->bytes;
	int rc = -ENOSPC;

	if (e->nvme_first != DEVICE_NONE && !quota_allows(e, tensor, e->nvme_first, rounded(bytes)))
		return -EDQUOT;
	if (nvme_free_bytes(e) < bytes)
		return -ENOSPC;
	/* There is room: with small enough blocks, in whatever holes it lies, it can be had. */
	for (uint64_t block = e->block_bytes; rc == -ENOSPC && block >= GRANULE; block /= 2) {
		struct block_map *map;

		rc = map_new(record_of(e, tensor), block, &map);
		if (rc < 0)
			return rc;
		rc = take_all(e, tensor, map);
		if (rc == 0)
			*ret = map;
		else
			map_give(e, map);
	}
	replica_count_reserved(e, TIER_KIND_NVME);
	return rc;
}

static void give_block(struct engine *e, const struct block *block)
{
	struct extents *extents = e->devices[block->device].extents;
	struct extent x;

	if (block->node == EXTENT_NONE)
		return;
	extents_get(extents, block->node, &x);
	quota_count(e, x.owner, block->device, x.bytes, false);
	extents_give(extents, block->node);
}

void map_give(struct engine *e, struct block_map *map)
{
	for (uint32_t i = 0; i < map->count; i++)
		give_block(e, &map->blocks[i]);
	heap_free(map);
	replica_count_reserved(e, TIER_KIND_NVME);
	e->again = true;
}

static int grow_maps(struct engine *e)
{
	uint32_t room = MAX(e->map_room * 2, 16u);
	struct block_map **grown = heap_grow(e->maps, room, sizeof(*grown));

	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = e->map_room; i < room; i++)
		grown[i] = NULL;
	e->maps = grown;
	e->map_room = room;
	return 0;
}

int map_set(struct engine *e, struct record *r, struct block_map *map)
{
	uint32_t i = MAX(e->map_free, 1u); /* 0 means none */

	ASSERT(r->map == 0);
	while (i < e->map_room && e->maps[i] != NULL)
		i++;
	if (i >= e->map_room && grow_maps(e) < 0)
		return -ENOMEM;
	e->maps[i] = map;
	e->map_free = i + 1;
	r->map = i;
	return 0;
}

struct block_map *map_get(const struct engine *e, const struct record *r)
{
	return r->map == 0 ? NULL : e->maps[r->map];
}

uint64_t map_extent_bytes(const struct engine *e, const struct block_map *map)
{
	uint64_t bytes = 0;
	struct extent x;

	for (uint32_t i = 0; map != NULL && i < map->count; i++)
		if (map->blocks[i].node != EXTENT_NONE) {
			extents_get(e->devices[map->blocks[i].device].extents, map->blocks[i].node,
				    &x);
			bytes += x.bytes;
		}
	return bytes;
}

void map_drop(struct engine *e, struct record *r)
{
	if (r->map == 0)
		return;
	map_give(e, e->maps[r->map]);
	e->maps[r->map] = NULL;
	e->map_free = MIN(e->map_free, r->map);
	r->map = 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas on nvme: a map of blocks, each an extent on any of the devices with its CRC-32C. Blocks
 * of a map are equally long; a map is cut into smaller ones where the devices have no larger holes,
 * so that nvme needs no compaction. Control thread.
 */
#ifndef TIERD_ENGINE_BLOCKS_H
#define TIERD_ENGINE_BLOCKS_H

#include "daemon/engine/state.h"

/* Room for all bytes of the tensor, spread over the devices by their measured rate. -ENOSPC,
 * -EDQUOT, -ENOMEM; then nothing is taken. */
int map_take(struct engine *e, uint32_t tensor, struct block_map **ret);
/* Of all its devices. */
uint64_t nvme_free_bytes(const struct engine *e);
/* All holes: what a large tensor that was never written has. */
int map_take_holes(struct engine *e, uint32_t tensor, struct block_map **ret);
void map_give(struct engine *e, struct block_map *map);

/* The record's map: set takes it over, get is NULL without one, drop gives it back. -ENOMEM. */
int map_set(struct engine *e, struct record *r, struct block_map *map);
struct block_map *map_get(const struct engine *e, const struct record *r);
void map_drop(struct engine *e, struct record *r);

/* What its blocks take of nvme. 0 for NULL. */
uint64_t map_extent_bytes(const struct engine *e, const struct block_map *map);

/* Bytes of the tensor in block `index`. */
uint64_t map_bytes(const struct block_map *map, const struct record *r, uint32_t index);

/* One fresh block, for a copy into the middle of a tensor; `counts` for the tensor's namespace,
 * where it fills a hole, or is the engine's until it stays in the place of another. -ENOSPC,
 * -EDQUOT. */
int map_block_take(struct engine *e, uint32_t tensor, uint64_t bytes, bool counts,
		   struct block *ret);
void map_block_give(struct engine *e, struct block *block, bool counts);
void map_block_stays(struct engine *e, uint32_t tensor, const struct block *block);

#endif

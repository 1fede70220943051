/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas: which extents and blocks a tensor has, which of them hold its current bytes (sources),
 * and the sums that follow from it. Every change of an extent, a source or a front goes through
 * here, so that Σ extents = used and the policies' picture stay true. Control thread.
 */
#ifndef TIERD_ENGINE_REPLICA_H
#define TIERD_ENGINE_REPLICA_H

#include "daemon/engine/state.h"

/* Extents of a mapped device for `tensor`; counted in reserved and peak. -EDQUOT: its namespace is
 * at its limit there. */
int replica_take(struct engine *e, uint8_t device, uint32_t tensor, uint32_t *ret_node);
/* A second place for what stands on the device, which a move ends by giving one of both. Nowhere in
 * the addresses [begin, end). */
int replica_take_outside(struct engine *e, uint8_t device, uint32_t tensor, uint64_t begin,
			 uint64_t end, uint32_t *ret_node);
/* The `bytes` before the extent `node` of its own, a hole. */
int replica_take_before(struct engine *e, uint8_t device, uint32_t tensor, uint32_t node,
			uint64_t bytes, uint32_t *ret_node);
/* At this offset of the device, and as high as there is a hole from `above` on. */
int replica_take_at(struct engine *e, uint8_t device, uint32_t tensor, uint64_t offset,
		    uint32_t *ret_node);
int replica_take_highest(struct engine *e, uint8_t device, uint32_t tensor, uint64_t above,
			 uint32_t *ret_node);
void replica_give(struct engine *e, uint8_t device, uint32_t node);
/* Of two that a tensor has there, either. */
void replica_give_moved(struct engine *e, uint8_t device, uint32_t node);
uint64_t replica_offset(const struct engine *e, uint8_t device, uint32_t node);
void *replica_address(const struct engine *e, uint8_t device, uint32_t node);
/* What the tensor's bytes take on a device. */
uint64_t replica_rounded(const struct engine *e, uint8_t device, uint64_t bytes);

/* Tells the statistics what the devices of a kind have taken. */
void replica_count_reserved(struct engine *e, enum tier_kind kind);

/* Sources. source_set() makes `source` the only one: everything else is stale and is freed. */
void source_add(struct engine *e, uint32_t tensor, enum source source);
void source_set(struct engine *e, uint32_t tensor, enum source source);
/* Frees the replica, whether or not it was a source. The front may not be dropped by these. */
void replica_drop(struct engine *e, uint32_t tensor, enum tier_kind kind);

/* Names the front (DEVICE_NONE: none) and tells the policy. The extent is the record's already. */
void front_set(struct engine *e, uint32_t tensor, uint8_t device);
enum source front_source(const struct engine *e, const struct record *r);
uint32_t front_node(const struct engine *e, const struct record *r);

/* The class's policy hears of it. */
void policy_tell(struct engine *e, uint32_t tensor, enum policy_event_kind kind, uint8_t tier,
		 uint8_t from, uint8_t access);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A small world around one policy: tensors in tiers, as the engine would report them, and a clock.
 * What is reported is also kept here, so that picks can be compared with the truth. Slots stand
 * apart with guard bytes in between. Used by the policies' unit tests and conformance suite.
 */
#ifndef TIERD_TESTS_POLICY_WORLD_H
#define TIERD_TESTS_POLICY_WORLD_H

#include "policy/policy.h"

#define WORLD_GUARD_BYTES 24

/* No front stands on nvme: it is no tier to the policy. */
enum { WORLD_TIER_HBM, WORLD_TIER_DRAM, WORLD_TIER_NVME, WORLD_TIERS = WORLD_TIER_NVME };

struct world_tensor {
	uint64_t bytes;
	uint8_t tier; /* of the front or of the bytes below, POLICY_TIER_NONE: none yet */
	bool ever, live, denied;
};

struct world {
	const struct policy_ops *ops;
	struct policy *policy;
	void *config;
	struct policy_slots slots;
	struct world_tensor *tensors;
	uint64_t now_ns;
	uint64_t visits; /* eligible() asked */
	bool brief;      /* of victims that are asked for */
};

/* `key` = `value` beside the defaults of the policy's rows; NULL: the defaults. */
void world_open(struct world *w, const char *policy, uint32_t count, const char *key,
		const char *value);
void world_close(struct world *w);

void world_create(struct world *w, uint32_t tensor, uint64_t bytes);
void world_use(struct world *w, uint32_t tensor);
void world_hint(struct world *w, uint32_t tensor, uint8_t tier);
void world_evict(struct world *w, uint32_t tensor);
void world_step(struct world *w);
void world_move(struct world *w, uint32_t tensor, uint8_t to);
void world_free(struct world *w, uint32_t tensor);

size_t world_victims(struct world *w, uint8_t tier, uint64_t need_bytes, struct policy_pick *picks,
		     size_t max);
size_t world_prefetch(struct world *w, uint8_t tier, uint64_t budget_bytes,
		      struct policy_pick *picks, size_t max);
/* One use in dram of a job that has `room_bytes` there: true for a hit; a miss evicts for it. */
bool world_access(struct world *w, uint32_t tensor, uint64_t room_bytes);
uint64_t world_resident_bytes(const struct world *w, uint8_t tier);
/* Aborts when a policy wrote between the slots, or into the slot of a tensor never created. */
void world_check_slots(const struct world *w);

#endif

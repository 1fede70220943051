/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/policy_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "config/config.h"

#define GUARD 0xa5

static void read_config(struct world *w, const char *key, const char *value)
{
	char text[128] = "{}";
	struct err err = ERR_INIT;

	w->config = calloc(1, w->ops->config_size + 1);
	ASSERT(w->config != NULL);
	if (key != NULL)
		snprintf(text, sizeof(text), "{%s: %s}", key, value);
	ASSERT(config_load_text(w->ops->rows, "test", text, strlen(text), w->config, &err) == 0);
}

void world_open(struct world *w, const char *policy, uint32_t count, const char *key,
		const char *value)
{
	struct err err = ERR_INIT;

	*w = (struct world){ .ops = policy_find(policy), .now_ns = 1000 * NS_PER_S };
	ASSERT(w->ops != NULL && count > 0);
	w->slots.stride = ALIGN_UP(w->ops->slot_size, 8) + WORLD_GUARD_BYTES;
	w->slots.count = count;
	w->slots.tiers = WORLD_TIERS;
	w->slots.base = calloc(count, w->slots.stride);
	w->tensors = calloc(count, sizeof(*w->tensors));
	ASSERT(w->slots.base != NULL && w->tensors != NULL);
	for (uint32_t i = 0; i < count; i++)
		memset((char *)w->slots.base + i * w->slots.stride + w->ops->slot_size, GUARD,
		       w->slots.stride - w->ops->slot_size);
	read_config(w, key, value);
	ASSERT(w->ops->create(w->config, &w->slots, &w->policy, &err) == 0);
}

void world_close(struct world *w)
{
	w->ops->destroy(w->policy);
	config_free(w->ops->rows, w->config);
	free(w->config);
	free(w->slots.base);
	free(w->tensors);
}

static void tell(struct world *w, struct policy_event e)
{
	e.now_ns = w->now_ns;
	w->ops->event(w->policy, &e);
	w->now_ns += NS_PER_MS;
}

void world_create(struct world *w, uint32_t tensor, uint64_t bytes)
{
	ASSERT(!w->tensors[tensor].live);
	memset((char *)w->slots.base + tensor * w->slots.stride, 0, w->ops->slot_size);
	w->tensors[tensor] = (struct world_tensor){ bytes, POLICY_TIER_NONE, true, true, false };
	tell(w, (struct policy_event){ .kind = POLICY_EVENT_CREATED,
				       .tensor = tensor,
				       .bytes = bytes,
				       .tier = POLICY_TIER_NONE });
}

void world_use(struct world *w, uint32_t tensor)
{
	tell(w, (struct policy_event){ .kind = POLICY_EVENT_USED,
				       .tensor = tensor,
				       .tier = w->tensors[tensor].tier,
				       .access = 1 });
}

void world_hint(struct world *w, uint32_t tensor, uint8_t tier)
{
	tell(w, (struct policy_event){
			.kind = POLICY_EVENT_PREFETCH, .tensor = tensor, .tier = tier });
}

void world_evict(struct world *w, uint32_t tensor)
{
	tell(w, (struct policy_event){ .kind = POLICY_EVENT_EVICT, .tensor = tensor });
}

void world_step(struct world *w)
{
	tell(w, (struct policy_event){ .kind = POLICY_EVENT_STEP });
}

void world_move(struct world *w, uint32_t tensor, uint8_t to)
{
	uint8_t from = w->tensors[tensor].tier;

	w->tensors[tensor].tier = to;
	tell(w, (struct policy_event){
			.kind = POLICY_EVENT_MOVED, .tensor = tensor, .tier = to, .from = from });
}

void world_free(struct world *w, uint32_t tensor)
{
	w->tensors[tensor].live = false;
	tell(w, (struct policy_event){ .kind = POLICY_EVENT_FREED, .tensor = tensor });
}

static bool eligible(const void *ctx, uint32_t tensor)
{
	/* Counting is the test's business: for the policy the question has no side effect. */
	struct world *w = (struct world *)ctx;

	w->visits++;
	ASSERT(tensor < w->slots.count);
	return w->tensors[tensor].live && !w->tensors[tensor].denied;
}

static struct policy_query query(struct world *w, uint8_t tier, uint64_t bytes)
{
	return (struct policy_query){ .tier = tier,
				      .need_bytes = bytes,
				      .now_ns = w->now_ns,
				      .cost = { .fixed_ns = 50e3, .ns_per_byte = 0.3 },
				      .eligible = eligible,
				      .ctx = w,
				      .brief = w->brief };
}

size_t world_victims(struct world *w, uint8_t tier, uint64_t need_bytes, struct policy_pick *picks,
		     size_t max)
{
	struct policy_query q = query(w, tier, need_bytes);

	return w->ops->victims(w->policy, &q, picks, max);
}

size_t world_prefetch(struct world *w, uint8_t tier, uint64_t budget_bytes,
		      struct policy_pick *picks, size_t max)
{
	struct policy_query q = query(w, tier, budget_bytes);

	return w->ops->prefetch(w->policy, &q, picks, max);
}

uint64_t world_resident_bytes(const struct world *w, uint8_t tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < w->slots.count; i++)
		if (w->tensors[i].live && w->tensors[i].tier == tier)
			bytes += w->tensors[i].bytes;
	return bytes;
}

bool world_access(struct world *w, uint32_t tensor, uint64_t room_bytes)
{
	bool hit = w->tensors[tensor].tier == WORLD_TIER_DRAM;

	if (!hit) {
		uint64_t there = world_resident_bytes(w, WORLD_TIER_DRAM);
		uint64_t need = there + w->tensors[tensor].bytes;
		struct policy_pick picks[64];
		size_t n = 0;

		if (need > room_bytes)
			n = world_victims(w, WORLD_TIER_DRAM, need - room_bytes, picks,
					  ARRAY_SIZE(picks));
		for (size_t i = 0; i < n; i++)
			world_move(w, picks[i].tensor, WORLD_TIER_NVME);
		world_move(w, tensor, WORLD_TIER_DRAM);
		ASSERT(world_resident_bytes(w, WORLD_TIER_DRAM) <= room_bytes);
	}
	world_use(w, tensor);
	return hit;
}

void world_check_slots(const struct world *w)
{
	for (uint32_t i = 0; i < w->slots.count; i++) {
		const unsigned char *slot =
			(const unsigned char *)w->slots.base + i * w->slots.stride;

		for (size_t b = w->ops->slot_size; b < w->slots.stride; b++)
			ASSERT(slot[b] == GUARD);
		for (size_t b = 0; !w->tensors[i].ever && b < w->ops->slot_size; b++)
			ASSERT(slot[b] == 0);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/plan.h"

#include "base/compiler.h"
#include "tests/sim/quotas.h"

#define STEPS_LEAST 300u
#define STEPS_MORE  3000u

/* Of its own: what a plan draws leaves the run's numbers alone. */
static uint64_t draw(uint64_t *state, uint64_t n)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % n;
}

static bool one_in(uint64_t *state, uint64_t n)
{
	return draw(state, n) == 0;
}

static struct world_shape any_shape(uint64_t *state, bool crowded)
{
	struct world_shape shape = { .hbm = (unsigned)draw(state, 3),
				     .nvme = crowded ? 0 : (unsigned)draw(state, 3),
				     .zone = one_in(state, 4) };

	shape.slabs = shape.hbm > 0 && one_in(state, 3);
	shape.staging_slots = one_in(state, 2) ? 0 : 4 + (unsigned)draw(state, 13);
	shape.linger_ns = one_in(state, 2) ? 0 : 1 + draw(state, 2 * NS_PER_S);
	if (one_in(state, 2)) {
		shape.watermark.high_permille = 400 + (uint32_t)draw(state, 601);
		shape.watermark.low_permille = (uint32_t)draw(state, shape.watermark.high_permille);
	}
	return shape;
}

/* What is guaranteed has to be there. */
static void any_quotas(uint64_t *state, struct world_shape *shape)
{
	if (shape->hbm == 0 || shape->nvme == 0 || (shape->zone && shape->slabs) ||
	    !one_in(state, 3))
		return;
	shape->quotas = shape->zone || (!shape->slabs && one_in(state, 2)) ? quotas_on_gpu
									   : quotas_everywhere;
	shape->quota_count = 2;
}

static bool can_meet(enum fault_kind kind, enum tier_kind tier)
{
	return fault_rules[kind].simulated && (fault_rules[kind].tiers & 1u << tier) != 0;
}

/* One kind of fault often, or several now and then; those of other tiers stay away. */
static void any_faults(uint64_t *state, enum tier_kind tier, struct fault_config *c)
{
	bool one = one_in(state, 2);
	enum fault_kind only;

	do
		only = 1 + (enum fault_kind)draw(state, FAULT_COUNT - 1);
	while (!can_meet(only, tier));
	for (enum fault_kind kind = FAULT_NONE + 1; kind < FAULT_COUNT; kind++) {
		uint32_t most = kind == FAULT_LOST || kind == FAULT_ROT ? 25 : 60;

		if (can_meet(kind, tier) && (!one || kind == only))
			c->share[kind - 1] = (uint32_t)draw(state, (one ? 6 : 1) * most);
	}
	c->late_ns = 1 + draw(state, 200 * NS_PER_MS);
	c->after = one_in(state, 2) ? 0 : draw(state, 100);
}

/* Copies inside a tier and slabs are few: now and then they alone are harmed, and often. */
static void harm_few(uint64_t *state, enum tier_kind tier, struct stepper_trouble *t)
{
	uint32_t op = one_in(state, 2) ? FAULT_COPY : FAULT_BACK;
	struct fault_config *c = &t->fault[tier];
	enum fault_kind only;

	do
		only = 1 + (enum fault_kind)draw(state, FAULT_COUNT - 1);
	while (!can_meet(only, tier) || (fault_rules[only].ops & op) == 0);
	*c = (struct fault_config){ .late_ns = 1 + draw(state, 200 * NS_PER_MS) };
	c->share[only - 1] = 300 + (uint32_t)draw(state, 701);
	t->harmed[tier] = op;
}

static void any_trouble(uint64_t *state, struct stepper_trouble *t)
{
	t->crowded = one_in(state, 10);
	t->shape = any_shape(state, t->crowded);
	any_quotas(state, &t->shape);
	t->flicker = one_in(state, 16);
	t->losses = t->shape.hbm > 0 && one_in(state, 4);
	t->discards = one_in(state, 3);
	t->models = one_in(state, 3) ? 3 + (unsigned)draw(state, 12) : 0;
	t->name_spaces = 1 + (unsigned)draw(state, CLIENTS);
	t->favour = one_in(state, 2) ? 0 : 1 + (unsigned)draw(state, STEPPER_FAVOURS);
	if (one_in(state, 2)) {
		any_faults(state, TIER_KIND_NVME, &t->fault[TIER_KIND_NVME]);
		t->faults = t->shape.nvme > 0 || t->shape.slabs;
	}
	if (one_in(state, 3)) {
		any_faults(state, TIER_KIND_HBM, &t->fault[TIER_KIND_HBM]);
		any_faults(state, TIER_KIND_DRAM, &t->fault[TIER_KIND_DRAM]);
		t->mapped_faults = true;
		if (one_in(state, 2)) {
			harm_few(state, TIER_KIND_HBM, t);
			harm_few(state, TIER_KIND_DRAM, t);
		}
	}
}

/* Allocations of the engine: each while it is made, and a share of all later ones. */
static void any_refusals(uint64_t *state, struct stepper_trouble *t)
{
	t->shape.short_start = one_in(state, 4);
	t->memory.no_memory = 1 + (uint32_t)draw(state, one_in(state, 4) ? 500 : 50);
	t->memory.after = one_in(state, 2) ? 0 : draw(state, 200);
	if (one_in(state, 2))
		return;
	t->only = coverage_site(draw(state, coverage_sites()));
	t->memory.no_memory = 100 + (uint32_t)draw(state, 800);
	t->memory.after = draw(state, 20);
}

void plan_make(uint64_t seed, struct plan *ret)
{
	uint64_t state = seed;
	unsigned policies = 0;

	while (policy_all[policies] != NULL)
		policies++;
	*ret = (struct plan){ .steps = STEPS_LEAST + draw(&state, STEPS_MORE) };
	ret->policy = policy_all[draw(&state, policies + 1)]; /* the last is NULL */
	any_trouble(&state, &ret->trouble);
	ret->trouble.lose_within = ret->steps;
	if (one_in(&state, 3))
		any_refusals(&state, &ret->trouble);
	ret->trouble.command = "build/tests/sim/check_seeds";
}

void plan_faults(const struct stepper_trouble *t, struct world *w)
{
	struct fault_config *at = w->fault_config;

	w->memory.config = t->memory;
	w->memory.only = t->only;
	w->memory.config.seed = world_random(w);
	w->memory.state.slabs = 0; /* counted from here on */
	for (unsigned kind = 0; kind < TIER_KINDS; kind++) {
		bool nvme = kind == TIER_KIND_NVME;

		at[kind] = t->fault[kind];
		w->harmed[kind] = t->harmed[kind];
		at[kind].seed = world_random(w);
		if (nvme ? t->faults : t->mapped_faults) {
			at[kind].read_error = MAX(at[kind].read_error, nvme ? 50u : 20u);
			at[kind].write_error = MAX(at[kind].write_error, nvme ? 25u : 20u);
		}
		if (t->faults && nvme)
			at[kind].no_space = MAX(at[kind].no_space, 25u);
		else if (t->faults)
			at[kind].no_memory = MAX(at[kind].no_memory, 100u);
	}
}

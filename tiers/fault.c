/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/log.h"

static const char *const starts[] = { "well", "no_memory", "no_space", NULL };

/* One row a key. */
/* clang-format off */
#define ROW(key, member, kind, default_text, min, max, help) \
	{ key, kind, offsetof(struct fault_config, member), default_text, min, max, CONFIG_HIDDEN, \
	  help, NULL, NULL }

const struct config_row fault_rows[] = {
	ROW("seed", seed, CONFIG_COUNT, "1", NULL, NULL,
	    "Picks which calls are harmed; the same seed harms the same calls."),
#define X(name, key, ops, tiers, simulated, help) \
	ROW(#key, key, CONFIG_PERMILLE, "0%", "0%", "100%", help),
	FAULT_KINDS(X)
#undef X
	{ "start", CONFIG_CHOICE, offsetof(struct fault_config, start), "well", NULL, NULL,
	  CONFIG_HIDDEN, "How the tier opens: it finds no memory, or no room on its disk.", starts,
	  NULL },
	ROW("no_register", no_register, CONFIG_BOOL, "false", NULL, NULL,
	    "nvme: no host memory can be registered with the device."),
	ROW("delay", delay_ns, CONFIG_DURATION, "0ns", "0ns", "1min",
	    "Added to the time of every call in the window, harmed or not."),
	ROW("late_by", late_ns, CONFIG_DURATION, "30s", "1ms", "24h",
	    "How much later comes back what is late."),
	ROW("after", after, CONFIG_COUNT, "0", NULL, NULL,
	    "Calls that are left alone before the first harm."),
	ROW("count", count, CONFIG_COUNT, "0", NULL, NULL,
	    "Calls that may be harmed from then on; 0 is all."),
	CONFIG_END
};
const struct config_sub fault_sub = { .rows = fault_rows, .size = sizeof(struct fault_config) };

static const struct config_row heap_rows[] = {
	ROW("seed", seed, CONFIG_COUNT, "1", NULL, NULL,
	    "Picks which allocations are refused; the same seed refuses the same ones."),
	ROW("no_memory", no_memory, CONFIG_PERMILLE, "0%", "0%", "100%",
	    "Share of tierd's own allocations that find no memory (ENOMEM)."),
	ROW("after", after, CONFIG_COUNT, "0", NULL, NULL,
	    "Allocations that are left alone before the first one that is refused."),
	ROW("count", count, CONFIG_COUNT, "0", NULL, NULL,
	    "Allocations that may be refused from then on; 0 is all."),
	CONFIG_END
};
const struct config_sub fault_heap_sub = { .rows = heap_rows,
					   .size = sizeof(struct fault_config) };

const struct fault_rule fault_rules[FAULT_COUNT] = {
#define X(name, key, ops, tiers, simulated, help) [FAULT_##name] = { #key, ops, tiers, simulated },
	FAULT_KINDS(X)
#undef X
};
/* clang-format on */

static int error_of(enum fault_kind kind)
{
	switch (kind) {
	case FAULT_READ_ERROR:
	case FAULT_WRITE_ERROR:
		return -EIO;
	case FAULT_NO_SPACE:
		return -ENOSPC;
	case FAULT_NO_MEMORY:
		return -ENOMEM;
	default:
		return 0;
	}
}

/* Two rounds of multiply and shift: neighbouring numbers give unrelated words. */
static uint64_t mix(uint64_t seed, uint64_t call, uint64_t draw)
{
	uint64_t z = seed + (call * 4 + draw + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* What is left of `bytes`: the lengths that alignment code trips over, or any. */
static uint64_t short_bytes(uint64_t bytes, uint64_t random)
{
	const uint64_t left[] = { 512, 4096, 4097, bytes - 1, 0, random / 8 % bytes };
	uint64_t pick = left[random % ARRAY_SIZE(left)];

	return pick < bytes ? pick : bytes / 2;
}

/* One roll over stretches of a thousand, so that the shares add up. */
static enum fault_kind pick_kind(const struct fault_config *c, uint8_t op, uint64_t bytes,
				 uint64_t roll)
{
	for (enum fault_kind kind = FAULT_NONE + 1; kind < FAULT_COUNT; kind++) {
		uint32_t share = c->share[kind - 1];

		if ((fault_rules[kind].ops & 1u << op) == 0)
			continue;
		if (roll >= share) {
			roll -= share;
			continue;
		}
		return bytes > 0 || error_of(kind) < 0 || kind >= FAULT_LATE ? kind : FAULT_NONE;
	}
	return FAULT_NONE;
}

/* A copy inside a tier may lie over its own source: one that fails has moved nothing. Neither has
 * a slab that was not made, nor is a sync anything that is half done. */
bool fault_can(enum fault_kind kind, uint8_t op, bool after)
{
	if (error_of(kind) == 0)
		return after; /* at the completion */
	return !after || (op != XFER_COPY && op != XFER_BACK && op != XFER_SYNC);
}

struct fault_decision fault_decide(struct fault_state *state, uint8_t op, uint64_t bytes)
{
	const struct fault_config *c = state->config;
	uint64_t call = op == XFER_BACK ? state->slabs++ : state->calls++;
	uint64_t roll = mix(c->seed, call, 0) % 1000, random = mix(c->seed, call, 1);
	struct fault_decision d = { .kind = FAULT_NONE };

	if (call < c->after || (c->count > 0 && call - c->after >= c->count))
		return d;
	d.delay_ns = op == XFER_BACK ? 0 : c->delay_ns;
	d.kind = pick_kind(c, op, bytes, roll);
	d.error = error_of(d.kind);
	d.after = d.error < 0 && fault_can(d.kind, op, true) && (random & 64) != 0;
	if (d.kind == FAULT_SHORT_READ || d.kind == FAULT_SHORT_WRITE)
		d.bytes = op == XFER_COPY ? 0 : short_bytes(bytes, random);
	else if (d.kind == FAULT_CORRUPT || d.kind == FAULT_ROT)
		d.where = random % bytes;
	else if (d.kind == FAULT_LATE)
		d.delay_ns += c->late_ns;
	else if (d.kind == FAULT_LOST)
		d.delay_ns = FAULT_NEVER;
	return d;
}

/* ---- what makes no sense ---- */

static int check_shares(const struct fault_config *c, struct err *err)
{
	static const char *const verbs[] = { "reads",  "writes", "zeroings",
					     "copies", "syncs",  "slabs" };

	for (uint8_t op = XFER_READ; op <= XFER_BACK; op++) {
		uint64_t sum = 0;

		for (enum fault_kind kind = FAULT_NONE + 1; kind < FAULT_COUNT; kind++)
			if (fault_rules[kind].ops & 1u << op)
				sum += c->share[kind - 1];
		if (sum > 1000)
			return err_set(err, EINVAL,
				       "fault: the shares of %s add up to %" PRIu64 ".%" PRIu64
				       "%%, more than all of them",
				       verbs[op], sum / 10, sum % 10);
	}
	return 0;
}

static int check_kinds(const struct fault_config *c, enum tier_kind tier, bool slabs,
		       struct err *err)
{
	for (enum fault_kind kind = FAULT_NONE + 1; kind < FAULT_COUNT; kind++) {
		const struct fault_rule *rule = &fault_rules[kind];

		if (c->share[kind - 1] == 0)
			continue;
		if (kind == FAULT_CORRUPT && tier != TIER_KIND_NVME)
			return err_set(err, EINVAL,
				       "fault.corrupt: only nvme has checksums; in memory nobody "
				       "would find the flipped byte");
		if ((rule->tiers & 1u << tier) == 0)
			return err_set(err, EINVAL, "fault.%s: %s does not fail like that",
				       rule->key, tier_kind_name(tier));
		if (kind == FAULT_NO_MEMORY && !slabs)
			return err_set(err, EINVAL,
				       "fault.no_memory: all memory of this tier is taken at "
				       "start, for which there is `start: no_memory`");
	}
	return 0;
}

static bool harms(const struct fault_config *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->share); i++)
		if (c->share[i] > 0)
			return true;
	return c->start != FAULT_START_WELL || c->no_register || c->delay_ns > 0;
}

int fault_check(const struct fault_config *c, enum tier_kind kind, bool slabs, struct err *err)
{
	int r;

	if (!c->presence.present)
		return 0;
	if (!harms(c))
		return err_set(err, EINVAL, "fault: it says nothing that is to fail");
	if (c->no_register && kind != TIER_KIND_NVME)
		return err_set(err, EINVAL, "fault.no_register: it is for nvme");
	if (c->start == FAULT_START_NO_SPACE && kind != TIER_KIND_NVME)
		return err_set(err, EINVAL, "fault.start: only nvme finds no room on a disk");
	r = check_kinds(c, kind, slabs, err);
	return r < 0 ? r : check_shares(c, err);
}

int fault_heap_check(const struct fault_config *c, struct err *err)
{
	if (c->presence.present && !harms(c))
		return err_set(err, EINVAL, "fault: it says nothing that is to fail");
	return 0;
}

int fault_starts(const struct fault_config *c, const char *name, struct err *err)
{
	if (!c->presence.present || c->start == FAULT_START_WELL)
		return 0;
	if (c->start == FAULT_START_NO_MEMORY)
		return err_set(err, ENOMEM, "%s: no memory (injected, `fault.start`)", name);
	return err_set(err, ENOSPC, "%s: no space left on its disk (injected, `fault.start`)",
		       name);
}

void fault_text(const struct fault_config *c, char text[FAULT_TEXT_BYTES])
{
	snprintf(text, FAULT_TEXT_BYTES, "FAULTS ARE INJECTED (seed %" PRIu64 "), ", c->seed);
}

void fault_say(const struct fault_config *c, const char *name)
{
	char text[400] = "";
	size_t at = 0;

	for (enum fault_kind kind = FAULT_NONE + 1; kind < FAULT_COUNT; kind++)
		if (c->share[kind - 1] > 0)
			at += (size_t)snprintf(text + at, sizeof(text) - at, ", %s %u.%u%%",
					       fault_rules[kind].key, c->share[kind - 1] / 10,
					       c->share[kind - 1] % 10);
	if (c->delay_ns > 0)
		at += (size_t)snprintf(text + at, sizeof(text) - at, ", delay %" PRIu64 " us",
				       c->delay_ns / 1000);
	log_warn(TIER, "%s: faults are injected, as `fault:` says: seed %" PRIu64 "%s%s", name,
		 c->seed, text, c->no_register ? ", no_register" : "");
}

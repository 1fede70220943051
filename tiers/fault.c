/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/fault.h"

#include <errno.h>

#include "base/check.h"
#include "base/compiler.h"

/* One row a key. */
/* clang-format off */
#define ROW(key, member, kind, default_text, min, max, help) \
	{ key, kind, offsetof(struct fault_config, member), default_text, min, max, CONFIG_HIDDEN, \
	  help, NULL, NULL }
#define SHARE(member, help) ROW(#member, member, CONFIG_PERMILLE, "0%", "0%", "100%", help)

const struct config_row fault_rows[] = {
	ROW("seed", seed, CONFIG_COUNT, "1", NULL, NULL,
	    "Picks which calls are harmed; the same seed harms the same calls."),
	SHARE(read_error, "Share of reads that fail with EIO."),
	SHARE(write_error, "Share of writes that fail with EIO."),
	SHARE(no_space, "Share of writes that fail with ENOSPC."),
	SHARE(short_read, "Share of reads that end early."),
	SHARE(short_write, "Share of writes that end early."),
	SHARE(corrupt, "Share of reads that return one flipped byte."),
	ROW("delay", delay_ns, CONFIG_DURATION, "0ns", "0ns", "1min",
	    "Added to the time of every call in the window, harmed or not."),
	ROW("after", after, CONFIG_COUNT, "0", NULL, NULL,
	    "Calls that are left alone before the first harm."),
	ROW("count", count, CONFIG_COUNT, "0", NULL, NULL,
	    "Calls that may be harmed from then on; 0 is all."),
	CONFIG_END
};
const struct config_sub fault_sub = { .rows = fault_rows, .size = sizeof(struct fault_config) };
/* clang-format on */

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

struct fault_decision fault_decide(struct fault_state *state, bool write, uint64_t bytes)
{
	const struct fault_config *c = state->config;
	uint64_t call = state->calls++;
	uint64_t roll = mix(c->seed, call, 0) % 1000, random = mix(c->seed, call, 1);
	struct fault_decision d = { .kind = FAULT_NONE };
	uint32_t error = write ? c->write_error : c->read_error;
	uint32_t no_space = write ? c->no_space : 0;
	uint32_t cut = write ? c->short_write : c->short_read;

	if (call < c->after || (c->count > 0 && call - c->after >= c->count))
		return d;
	d.delay_ns = c->delay_ns;
	/* One roll over stretches of a thousand, so that the shares add up. */
	if (roll < error) {
		d.kind = FAULT_ERROR;
		d.error = -EIO;
	} else if (roll - error < no_space) {
		d.kind = FAULT_ERROR;
		d.error = -ENOSPC;
	} else if (bytes > 0 && roll - error - no_space < cut) {
		d.kind = FAULT_SHORT;
		d.bytes = short_bytes(bytes, random);
	} else if (bytes > 0 && !write && roll - error - cut < c->corrupt) {
		d.kind = FAULT_CORRUPT;
		d.where = random % bytes;
	}
	return d;
}

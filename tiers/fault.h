/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults by seed. One decision function serves two places: the `fault` backend, which stands around
 * any tier and harms whole xfers, and the seam under the nvme lane, which harms single completions.
 * Decisions depend on the seed and the call's number alone, so a run can be repeated. Lane thread,
 * but for fault_wrap().
 */
#ifndef TIERD_TIERS_FAULT_H
#define TIERD_TIERS_FAULT_H

#include "tiers/tier.h"

struct fault_config {
	struct config_presence presence; /* an optional map `fault:` */
	uint64_t seed;
	uint32_t read_error, write_error; /* permille of calls that fail with EIO */
	uint32_t no_space;                /* permille of writes that fail with ENOSPC */
	uint32_t short_read, short_write; /* permille of completions cut short */
	uint32_t corrupt;                 /* permille of reads with a flipped byte */
	uint64_t delay_ns;                /* added to each completion */
	uint64_t after, count;            /* harm only calls after..after+count-1; 0: no end */
};
extern const struct config_row fault_rows[];
extern const struct config_sub fault_sub;

/* The hidden map `fault:` of a backend whose configuration has it as a member of that name. */
#define FAULT_ROW(type)                                                               \
	{                                                                             \
		.key = "fault", .kind = CONFIG_MAP, .offset = offsetof(type, fault),  \
		.flags = CONFIG_OPTIONAL | CONFIG_HIDDEN,                             \
		.help = "Harms a share of the copies, for tests.", .sub = &fault_sub, \
	}

enum fault_kind { FAULT_NONE, FAULT_ERROR, FAULT_SHORT, FAULT_CORRUPT };
struct fault_decision {
	enum fault_kind kind;
	int error;      /* -errno for FAULT_ERROR */
	uint64_t bytes; /* FAULT_SHORT: what is left of the length, < the length */
	uint64_t where; /* FAULT_CORRUPT: which byte is flipped */
	uint64_t delay_ns;
};
struct fault_state {
	const struct fault_config *config;
	uint64_t calls; /* decided so far */
};
/* Pure in (config, state->calls, write, bytes); counts the call. */
struct fault_decision fault_decide(struct fault_state *state, bool write, uint64_t bytes);

/* Stands `inner` inside a tier that forwards everything and harms xfers as `config` says, which
 * stays valid until close. Owns `inner` once it has succeeded. C thread. */
int fault_wrap(struct tier *inner, const struct fault_config *config, struct tier **ret,
	       struct err *err);

#endif

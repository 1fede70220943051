/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of policies. A policy is pure: it is told facts by events, keeps what it wants to
 * know of each tensor in `slot_size` bytes of its own, and answers which tensors should go
 * (victims) or come (prefetch). It has no clock (time comes in the fact), no lock, no I/O, and
 * allocates nothing after create. It never acts; the engine re-checks every pick. One instance a
 * class; one thread (the control thread) calls it. It never sees tiers/ or the engine: a tier is a
 * small number, and each GPU is one.
 */
#ifndef TIERD_POLICY_POLICY_H
#define TIERD_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

/* Tiers as policies see them, numbered below policy_slots.tiers. NONE: no front, or nowhere. */
#define POLICY_TIERS_MAX 16u
#define POLICY_TIER_NONE 0xffu

enum policy_event_kind {
	POLICY_EVENT_CREATED,  /* tensor, bytes */
	POLICY_EVENT_USED,     /* tensor, tier it was used in, access (TIERD_* bits) */
	POLICY_EVENT_PREFETCH, /* hint: will be needed in `tier`; in the order of need */
	POLICY_EVENT_EVICT,    /* hint: not needed soon */
	POLICY_EVENT_STEP,     /* an iteration ended; no tensor */
	POLICY_EVENT_MOVED,    /* the evictable replica is now in `tier` (it was in `from`) */
	POLICY_EVENT_FREED,    /* destroyed; its slot is forgotten */
};

/* MOVED tells residency: a tensor stands, at any time, in at most one tier as a *front*. from/to
 * are POLICY_TIER_NONE where there is none. */
struct policy_event {
	enum policy_event_kind kind;
	uint8_t tier, from;
	uint8_t access;
	uint32_t tensor; /* index; stable until FREED */
	uint64_t bytes;
	uint64_t now_ns;
};

/* What it costs to bring `bytes` back into the tier that is asked about. */
struct policy_cost {
	double fixed_ns;
	double ns_per_byte;
};

struct policy_query {
	uint8_t tier;        /* victims: which tier must give; prefetch: which tier would take */
	uint64_t need_bytes; /* victims: at least this much; prefetch: at most this much */
	uint64_t now_ns;
	struct policy_cost cost;
	/* Whether the engine could take this tensor now (not pinned, no move, not held). A fact
	 * asked for, without side effect; the walk skips what it denies. */
	bool (*eligible)(const void *ctx, uint32_t tensor);
	const void *ctx;
	/* Victims: what was denied before is not asked for all over again, a few of it will do. The
	 * last answer was less than was needed, and nothing that is known of has changed it. */
	bool brief;
};

struct policy_pick {
	uint32_t tensor;
	uint64_t bytes;
	double score; /* policy_score(); the engine merges classes by it, highest goes first */
};

/* The memory of slots: tensor i has `slot_size` bytes at base + i * stride, zeroed before CREATED.
 * base and stride are multiples of 8. */
struct policy_slots {
	void *base;
	size_t stride;
	uint32_t count; /* tensors at most */
	uint8_t tiers;  /* POLICY_TIERS_MAX at most */
};

/* What a policy thinks of one tensor, for people who ask. */
struct policy_opinion {
	double needed_in_s; /* as it guesses; its victims' scores are made of it */
	bool told;          /* a client said that it is not needed soon */
};

struct policy; /* each policy defines its own */

struct policy_ops {
	const char *name;
	const char *help;              /* a sentence or two for the reference */
	const struct config_row *rows; /* its keys beside `policy:`, ends with CONFIG_END */
	size_t config_size, slot_size;
	/* `config` and `slots` stay valid until destroy. */
	int (*create)(const void *config, const struct policy_slots *slots, struct policy **ret,
		      struct err *err);
	void (*destroy)(struct policy *p);
	void (*event)(struct policy *p, const struct policy_event *e);
	/* At most `max` picks whose bytes reach need_bytes, best first by score. Fewer, or less,
	 * when there are no more that are eligible. */
	size_t (*victims)(struct policy *p, const struct policy_query *q, struct policy_pick *picks,
			  size_t max);
	/* Tensors worth bringing into q->tier, earliest need first; score is -(seconds until
	 * needed). Not asked by the engine so far: it follows the hints of clients by itself. */
	size_t (*prefetch)(struct policy *p, const struct policy_query *q,
			   struct policy_pick *picks, size_t max);
	/* Of a tensor that exists; changes nothing. */
	void (*opinion)(const struct policy *p, uint32_t tensor, uint64_t now_ns,
			struct policy_opinion *ret);
};

/* All policies, in the order of the reference; ends with NULL. */
extern const struct policy_ops *const policy_all[];
const struct policy_ops *policy_find(const char *name);

/* The one unit of scores: bytes x seconds until needed, per second that bringing them back costs.
 * Within the picks of one policy scores never rise, whatever the sizes: its order is its word. */
static inline double policy_score(uint64_t bytes, double seconds_until_needed,
				  const struct policy_cost *cost)
{
	double cost_s = (cost->fixed_ns + cost->ns_per_byte * (double)bytes) * 1e-9;

	return (double)bytes * seconds_until_needed / (cost_s > 1e-9 ? cost_s : 1e-9);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier of any backend with its lane, as the control thread drives it. One setup row a backend
 * says how to make one that is small enough for a test; a backend without a row fails the suite.
 */
#ifndef TIERD_TESTS_TIER_RIG_H
#define TIERD_TESTS_TIER_RIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tiers/fault.h"
#include "tiers/lane.h"
#include "tiers/tier.h"
#include "tiers/topo.h"

#define RIG_HOST_BYTES MIB(64)
#define RIG_PIECES     64

struct rig_setup {
	const char *backend;
	/* Fills the backend's configuration for a tier of `bytes`; false: not on this machine, and
	 * `why` is said. */
	bool (*fill)(void *config, uint64_t bytes, const char **why);
	void (*empty)(void *config);
};

struct rig {
	const struct tier_ops *ops;
	const struct rig_setup *setup;
	struct topology *topo;
	void *config;
	unsigned devices; /* of that configuration; `tier` is the last of them */
	struct tier *tier;
	struct lane *lane;
	int done_fd;
	_Atomic uint32_t done_wanted;
	unsigned char *host;   /* RIG_HOST_BYTES, at a page */
	unsigned char *looked; /* for rig_look(), as large as the tier; NULL: it is mapped here */
	unsigned char *staging;
	uint64_t staging_bytes;
	unsigned lent;
};

/* The ways in which a backend is tried, from 0 on; NULL: no more. */
const struct rig_setup *rig_setup(const struct tier_ops *ops, unsigned way);
/* False: this backend does not run on this machine; said why. Failures fail the test. All slabs are
 * there. */
bool rig_open(struct rig *rig, const struct tier_ops *ops, unsigned way, uint64_t bytes,
	      const struct fault_config *fault);
void rig_close(struct rig *rig);
/* Whether copies start at any byte, and ZERO and COPY are there. */
bool rig_mapped(const struct rig *rig);
/* [offset, bytes) of a mapped tier: its own memory, or what was read of it; until the next call. */
const unsigned char *rig_look(struct rig *rig, uint64_t offset, uint64_t bytes);

/* Lends; rig_wait() returns when `n` more have come back, in order in `done`. */
void rig_lend(struct rig *rig, struct xfer *x);
void rig_wait(struct rig *rig, struct xfer **done, unsigned n);

/* BACK or UNBACK of the slab at `offset`. */
int rig_slab(struct rig *rig, enum xfer_op op, uint64_t offset);

/* One range of any length, in pieces as the tier takes them, all lent at once. Returns the first
 * failure, whose xfer is left in *ret_failed unless it is NULL. WRITE fills `crcs`, READ needs
 * it. */
struct rig_range {
	uint8_t op, priority;
	uint64_t offset, from, bytes;
	unsigned char *host;
	uint32_t crcs[RIG_PIECES];
};
int rig_run(struct rig *rig, struct rig_range *range, struct xfer *ret_failed);
int rig_write(struct rig *rig, struct rig_range *range, uint64_t offset, void *host,
	      uint64_t bytes);
/* Reads what `range` wrote to `host`. */
int rig_read(struct rig *rig, const struct rig_range *range, void *host);

/* A pattern that depends on place and seed. */
void rig_fill(void *at, uint64_t bytes, uint64_t seed);
bool rig_all(const unsigned char *at, uint64_t bytes, unsigned char value);

#endif

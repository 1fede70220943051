/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of tiers that clients map: a sealed memfd of exact size, mapped by the daemon, whose
 * pages are all there before anybody is given one, so that nobody meets a bus error later. Made and
 * trimmed by the control thread; the lane writes into it through arena_reserve() and arena_zero().
 */
#ifndef TIERD_TIERS_ARENA_H
#define TIERD_TIERS_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tiers/tier.h"
#include "tiers/topo.h"

enum arena_huge { ARENA_HUGE_TRY, ARENA_HUGE_OFF, ARENA_HUGE_REQUIRE };

struct arena_options {
	const char *name; /* for people */
	uint64_t bytes;   /* rounded up to whole pages */
	enum arena_huge huge;
	bool touch; /* fault all pages in now, by several threads; else they are only reserved */
	const struct topology *topo; /* NULL: bound to no node */
	const struct topo_share *shares;
	unsigned share_count;
};

struct arena {
	int fd;
	void *base;
	uint64_t bytes;
	uint64_t page_bytes;      /* 4 KiB, or 2 MiB from the pool of huge pages */
	bool touched;             /* all pages were faulted in when it was made */
	_Atomic uint32_t trimmed; /* pages may be missing */
	char chosen[128];         /* "2 MiB pages of the pool, touched by 4 threads" */
};

/* -ENOMEM, before anything is touched, when the memory is not there; -EINTR when SIGTERM or SIGINT
 * is pending and blocked. */
int arena_create(const struct arena_options *options, struct arena *ret, struct err *err);
void arena_destroy(struct arena *arena);
void arena_export(const struct arena *arena, struct arena_token *ret);
/* Gives the whole pages inside [offset, bytes) back to the system; they read as zeros then. */
void arena_trim(struct arena *arena, uint64_t offset, uint64_t bytes);
/* Makes sure that pages of [offset, bytes) are there before they are written; costs nothing in an
 * arena that was never trimmed. 0 or -ENOMEM. */
int arena_reserve(struct arena *arena, uint64_t offset, uint64_t bytes);
/* Zeroes; pages that were never touched are left so. */
void arena_zero(struct arena *arena, uint64_t offset, uint64_t bytes);

#endif

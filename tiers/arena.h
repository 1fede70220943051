/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of tiers that clients map: a sealed memfd of exact size, mapped by the daemon, whose
 * pages are there before anybody is given one, so that nobody meets a bus error later: all of them
 * when it is made, or slab by slab. Made and trimmed by the control thread; the lane writes into it
 * through arena_reserve() and arena_zero(); one thread at a time backs and unbacks slabs.
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
	bool no_pool; /* as if the pool of huge pages had no room; not with ARENA_HUGE_REQUIRE */
	/* Not 0: open has the first slab only (none where they are made on demand), the others
	 * come by arena_back(). A multiple of 2 MiB. */
	uint64_t slab_bytes;
	bool on_demand;
	uint64_t beside_bytes; /* will be taken besides, and must be there as well */
	bool touch;            /* fault pages in, by several threads; else they are only reserved */
	const struct topology *topo; /* NULL: bound to no node */
	const struct topo_share *shares;
	unsigned share_count;
};

struct arena {
	int fd;
	void *base;
	uint64_t bytes;
	uint64_t page_bytes;      /* 4 KiB, or 2 MiB from the pool of huge pages */
	uint64_t slab_bytes;      /* 0: all of it is there */
	uint64_t first_bytes;     /* were there when it was made */
	bool touched;             /* pages are faulted in before they are used */
	_Atomic uint32_t trimmed; /* pages may be missing */
	_Atomic uint32_t stopped; /* see arena_stop() */
	char chosen[128];         /* "2 MiB pages of the pool, touched by 4 threads" */
	/* How it was made, and so how its slabs are. */
	char name[48];
	enum arena_huge huge;
	bool collapses; /* transparent pages come when they are asked for one by one */
	const struct topology *topo;
	struct topo_share shares[TOPO_NODES_MAX]; /* one over all of it without NUMA */
	unsigned share_count;
	bool bound; /* the shares are of nodes */
};

/* -ENOMEM, before anything is touched, when the memory of all slabs is not there; -EINTR when
 * SIGTERM or SIGINT is pending and blocked. `topo` stays valid until destroy. */
int arena_create(const struct arena_options *options, struct arena *ret, struct err *err);
void arena_destroy(struct arena *arena);
/* Makes the pages of whole slabs, as those of the first one were made. 0; -ENOMEM, and what was
 * taken is given back; -ECANCELED after arena_stop(). `ret_large` (or NULL) is how many bytes stand
 * on large pages. `err` is not NULL. */
int arena_back(struct arena *arena, uint64_t offset, uint64_t bytes, uint64_t *ret_large,
	       struct err *err);
/* Gives the pages of whole slabs back: nobody may read or write them any more. */
int arena_unback(struct arena *arena, uint64_t offset, uint64_t bytes, struct err *err);
/* Any thread: an arena_back() under way ends soon, and none begins again. */
void arena_stop(struct arena *arena);
void arena_export(const struct arena *arena, struct arena_token *ret);
/* Gives the whole pages inside [offset, bytes) back to the system; they read as zeros then. */
void arena_trim(struct arena *arena, uint64_t offset, uint64_t bytes);
/* Makes sure that pages of [offset, bytes) are there before they are written; costs nothing in an
 * arena that was never trimmed. 0 or -ENOMEM. */
int arena_reserve(struct arena *arena, uint64_t offset, uint64_t bytes);
/* Zeroes; pages that were never touched are left so. */
void arena_zero(struct arena *arena, uint64_t offset, uint64_t bytes);

#endif

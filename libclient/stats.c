/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's totals, read from its stats page without a request.
 */
#include <string.h>

#include "libclient/client.h"
#include "libclient/error.h"
#include "libclient/futex.h"

#define TRIES 100000

static_assert(STATS_TIERS == TIERD_TIERS && STATS_CLASSES == TIERD_CLASSES, "one shape");

/* Acquire loads in order: none may slip below the second look at the sequence. */
static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit((_Atomic uint64_t *)counter, memory_order_acquire);
}

static void read_tier(const struct stats_page *p, unsigned i, struct tierd_stats *ret)
{
	ret->tier[i].limit_bytes = get(&p->tier[i].limit_bytes);
	ret->backed_bytes[i] = get(&p->tier[i].backed_bytes);
	ret->tier[i].resident_bytes = get(&p->tier[i].resident_bytes);
	ret->tier[i].reserved_bytes = get(&p->tier[i].reserved_bytes);
	ret->tier[i].peak_bytes = get(&p->tier[i].peak_bytes);
	ret->tier[i].largest_free_bytes = get(&p->tier[i].largest_free_bytes);
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		ret->tier[i].class_bytes[c] = get(&p->tier[i].class_bytes[c]);
	for (unsigned to = 0; to < STATS_TIERS; to++) {
		ret->moved_bytes[i][to] = get(&p->moved_bytes[i][to]);
		for (unsigned c = 0; c < STATS_CLASSES; c++)
			ret->moves[c][i][to] = get(&p->moves[c][i][to]);
	}
}

static void read_all(const struct stats_page *p, struct tierd_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < STATS_TIERS; i++)
		read_tier(p, i, ret);
	ret->committed_bytes = get(&p->committed_bytes);
	ret->admissible_bytes = get(&p->admissible_bytes);
	ret->tensors = get(&p->tensors);
	ret->stall_ns = get(&p->stall_ns);
	ret->misses = get(&p->misses);
	ret->hits_logged = get(&p->hits_logged);
	ret->log_lost = get(&p->log_lost);
}

int tierd_stats(struct tierd *t, struct tierd_stats *ret)
{
	const struct stats_page *page;
	struct tierd_stats read;
	int rc = client_usable(t);

	if (rc < 0)
		return rc;
	page = t->stats.base;
	/* A daemon that died inside an update leaves the sequence odd for ever: then the counters
	 * are still right one by one. */
	for (int i = 0; i < TRIES; i++) {
		uint64_t before = get(&page->sequence);

		read_all(page, &read);
		if (before % 2 == 0 && get(&page->sequence) == before)
			break;
		futex_relax();
	}
	read.hbm_on_gpu = t->by_uuid;
	*ret = read;
	return 0;
}

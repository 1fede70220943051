/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's totals, read from its stats page without a request.
 */
#include <errno.h>
#include <string.h>

#include "libclient/client.h"
#include "libclient/error.h"
#include "libclient/protocol/page.h"

static_assert(STATS_TIERS == TIERD_TIERS && STATS_CLASSES == TIERD_CLASSES, "one shape");

int stats_usable(const struct tierd *t)
{
	const struct stats_page *page = t->stats.base;

	if (t->page != NULL)
		return 0;
	return error_set(EPROTO,
			 "the daemon's counters lie as version %u.%u has them, and %u.%u is known "
			 "here: use what was installed with the daemon",
			 page->major, page->minor, PROTOCOL_MAJOR, PROTOCOL_MINOR);
}

static void tier_of(const struct page *p, unsigned i, struct tierd_stats *ret)
{
	const struct page_tier *t = &p->tier[i];

	ret->tier[i].limit_bytes = t->limit_bytes;
	ret->tier[i].resident_bytes = t->resident_bytes;
	ret->tier[i].reserved_bytes = t->reserved_bytes;
	ret->tier[i].peak_bytes = t->peak_bytes;
	ret->tier[i].largest_free_bytes = t->largest_free_bytes;
	memcpy(ret->tier[i].class_bytes, t->class_bytes, sizeof(t->class_bytes));
	ret->backed_bytes[i] = t->backed_bytes;
}

int tierd_stats(struct tierd *t, struct tierd_stats *ret)
{
	struct page p;
	int rc = client_usable(t);

	if (rc < 0)
		return rc;
	rc = stats_usable(t);
	if (rc < 0)
		return rc;
	page_read(t->page, &p);
	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < STATS_TIERS; i++)
		tier_of(&p, i, ret);
	memcpy(ret->moved_bytes, p.moved_bytes, sizeof(p.moved_bytes));
	memcpy(ret->moves, p.moves, sizeof(p.moves));
	ret->committed_bytes = p.committed_bytes;
	ret->admissible_bytes = p.admissible_bytes;
	ret->tensors = p.tensors;
	ret->stall_ns = p.stall_ns;
	ret->misses = p.misses;
	ret->hits_logged = p.hits_logged;
	ret->log_lost = p.log_lost;
	ret->hbm_on_gpu = t->by_uuid;
	return 0;
}

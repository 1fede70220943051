/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/largest.h"

#include "daemon/engine/admission.h"
#include "daemon/engine/quota.h"

void largest_add(struct largest *l, uint64_t bytes, bool large)
{
	l->any_bytes = MAX(l->any_bytes, bytes);
	if (large)
		return;
	l->second_dram_bytes = MAX(l->second_dram_bytes, MIN(bytes, l->dram_bytes));
	l->dram_bytes = MAX(l->dram_bytes, bytes);
}

void largest_leave(struct largest *l, uint64_t bytes)
{
	l->stale |= bytes >= l->second_dram_bytes;
}

void largest_merge(struct largest *all, const struct largest *of)
{
	all->any_bytes = MAX(all->any_bytes, of->any_bytes);
	largest_add(all, of->dram_bytes, false);
	largest_add(all, of->second_dram_bytes, false);
}

/* Above nvme these are two tensors: what wants to come may miss a byte in dram, and what would make
 * room for it a byte on nvme. What never comes to dram counts once. Where nothing is below dram and
 * nothing above, there are no moves. */
uint64_t largest_for_moves(const struct engine *e, const struct largest *l)
{
	if (e->params.device_count == 1)
		return 0;
	if (e->nvme_first == DEVICE_NONE)
		return l->any_bytes;
	return MAX(l->any_bytes, l->dram_bytes + l->second_dram_bytes);
}

void largest_recount(struct engine *e)
{
	for (unsigned i = 0; i < ARRAY_SIZE(e->part); i++)
		e->part[i].largest = (struct largest){ 0 };
	for (unsigned i = 0; i < e->account_count; i++)
		e->accounts[i].largest = (struct largest){ 0 };
	for (uint32_t i = 1; i < e->index_high; i++) {
		const struct record *r = &e->records[i];
		uint64_t bytes = admission_rounded(r->bytes);
		bool large = (r->flags & RECORD_LARGE) != 0;

		if ((r->flags & RECORD_LIVE) == 0)
			continue;
		largest_add(&e->part[(r->flags & RECORD_ZONED) != 0].largest, bytes, large);
		largest_add(&account_of(e, i)->largest, bytes, large);
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a namespace may create: so much that all of it has a home within its limits, whatever
 * others use of theirs. Bytes go to dram or to nvme, small tensors to dram alone, so who can be
 * served together is a flow from accounts through two tiers, and each sum below is one of its cuts.
 */
#include <errno.h>

#include "daemon/engine/admission.h"
#include "daemon/engine/largest.h"
#include "daemon/engine/quota.h"

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t sure_dram(const struct engine *e, const struct account *a)
{
	return a->pool[e->dram].sure_bytes;
}

static uint64_t sure_nvme(const struct engine *e, const struct account *a)
{
	return e->nvme_first == DEVICE_NONE ? 0 : a->pool[e->nvme_first].sure_bytes;
}

/* What of these bytes dram has to hold at least. */
static uint64_t needs_dram(const struct engine *e, const struct account *a, uint64_t bytes,
			   uint64_t small)
{
	return small + less(less(bytes, small), sure_nvme(e, a));
}

uint64_t quota_stays_in_dram(const struct engine *e, const struct account *a, uint64_t beside)
{
	return needs_dram(e, a, less(a->committed_bytes, beside), a->small_bytes);
}

static uint64_t needs_nvme(const struct engine *e, const struct account *a, uint64_t more)
{
	return less(a->committed_bytes + more, sure_dram(e, a));
}

static uint64_t bytes_of(const struct engine *e, enum tier_kind kind)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < e->device_count; i++)
		if (device_kind(e, (uint8_t)i) == kind)
			bytes += extents_capacity(e->devices[i].extents);
	return bytes;
}

/* What the limits of accounts keep from one tier the other has to hold, for all of them. */
static int admit_together(const struct engine *e, const struct account *a,
			  const struct quota_charge *c, bool large, struct err *err)
{
	uint64_t dram = 0, nvme = 0, moves;
	struct largest largest = largest_of_part(e, false); /* quota_admit(): there is no zone */
	uint64_t all = bytes_of(e, TIER_KIND_DRAM), below = bytes_of(e, TIER_KIND_NVME);

	for (unsigned i = 0; i < e->account_count; i++) {
		const struct account *b = &e->accounts[i];
		uint64_t want = b == a ? c->want : 0;

		dram += needs_dram(e, b, b->committed_bytes + want,
				   b->small_bytes + (b == a && c->small ? c->charged : 0));
		nvme += needs_nvme(e, b, want);
	}
	largest_add(&largest, c->charged, large);
	largest.any_bytes = largest.dram_bytes; /* what never comes to dram is counted by its own */
	moves = largest_for_moves(e, &largest);
	if (dram > less(all, moves))
		return err_set(err, ENOSPC,
			       "nvme.limit of namespaces leaves %llu bytes to dram, which has "
			       "%llu beside what moves need",
			       (unsigned long long)dram, (unsigned long long)less(all, moves));
	if (nvme > 0 && nvme > less(below, moves))
		return err_set(err, ENOSPC,
			       "dram.limit of namespaces leaves %llu bytes to nvme, which has "
			       "%llu beside what moves need",
			       (unsigned long long)nvme, (unsigned long long)less(below, moves));
	return 0;
}

static int over(const struct engine *e, const struct account *a, const char *key, uint64_t bytes,
		uint64_t had, uint64_t most, struct err *err)
{
	char name[128];

	return err_set(err, EDQUOT,
		       "%s: %llu bytes more than the %llu admitted pass what %s can hold for sure: "
		       "%llu",
		       quota_text(e, a, name), (unsigned long long)bytes, (unsigned long long)had,
		       key, (unsigned long long)most);
}

/* Whose home is limited by nothing but the tiers: there admission alone decides. */
static bool is_free(const struct engine *e, const struct account *a)
{
	return sure_dram(e, a) == bytes_of(e, TIER_KIND_DRAM) &&
	       sure_nvme(e, a) == bytes_of(e, TIER_KIND_NVME);
}

static bool all_free(const struct engine *e)
{
	for (unsigned i = 0; i < e->account_count; i++)
		if (!is_free(e, &e->accounts[i]))
			return false;
	return true;
}

static int admit(const struct engine *e, const struct account *a, const struct quota_charge *c,
		 struct err *err)
{
	uint64_t dram = sure_dram(e, a), nvme = sure_nvme(e, a), had = a->committed_bytes;
	uint64_t room = less(dram, a->small_bytes), sum, for_small;
	bool large = !c->small && c->charged > room;
	struct largest largest = largest_of_account(e, a);
	const char *both = nvme == 0 ? "dram.limit" : "dram.limit and nvme.limit";

	for_small = e->device_count == 1 ? dram : less(dram, largest.dram_bytes);
	largest_add(&largest, c->charged, large);
	sum = less(dram + nvme, largest_for_moves(e, &largest));
	if (c->small && a->small_bytes + c->charged > for_small)
		return over(e, a, "dram.limit (tensors below 4 KiB stay in dram)", c->charged,
			    a->small_bytes, for_small, err);
	if (large && c->charged + e->block_bytes > nvme)
		return over(e, a, both, c->charged, had, MAX(room, less(nvme, e->block_bytes)),
			    err);
	if (had + c->want > sum)
		return over(e, a, both, c->want, had, sum, err);
	return admit_together(e, a, c, large, err);
}

int quota_admit(struct engine *e, const struct account *a, const struct quota_charge *c,
		struct err *err)
{
	if (!quotas_any(e) || e->zone != DEVICE_NONE || all_free(e))
		return 0;
	return admit(e, a, c, err);
}

void quota_admitted(struct account *a, const struct quota_charge *c, bool in)
{
	uint64_t small = c->small ? c->charged : 0;

	a->committed_bytes += in ? c->want : (uint64_t)0 - c->want;
	a->small_bytes += in ? small : (uint64_t)0 - small;
}

uint64_t quota_dram_for_moves(const struct engine *e, const struct account *a)
{
	return less(sure_dram(e, a), a->small_bytes);
}

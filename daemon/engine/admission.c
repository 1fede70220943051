/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/admission.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/engine/largest.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

static uint64_t capacity_of(const struct engine *e, enum tier_kind kind)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < e->device_count; i++)
		if (device_kind(e, (uint8_t)i) == kind)
			bytes += extents_capacity(e->devices[i].extents);
	return bytes;
}

static bool is_zoned(const struct record *r)
{
	return (r->flags & RECORD_ZONED) != 0;
}

/* Of the zone, or of the rest. */
static uint64_t dram_bytes(const struct engine *e, bool zoned)
{
	if (zoned && e->zone == DEVICE_NONE)
		return 0;
	return extents_capacity(e->devices[zoned ? e->zone : e->dram].extents);
}

/* dram has given its staging away before. */
uint64_t admission_bytes(struct engine *e)
{
	uint64_t bytes = capacity_of(e, TIER_KIND_DRAM) + capacity_of(e, TIER_KIND_NVME);
	struct largest rest = largest_of_part(e, false), zone = largest_of_part(e, true);
	uint64_t moves = largest_for_moves(e, &rest) + largest_for_moves(e, &zone);

	return bytes > moves ? bytes - moves : 0;
}

/* One granule goes into the rest of any page; what is larger may keep the rest of its page from
 * pages while no hole takes it. Room that nobody can have is promised to nobody. */
uint64_t admission_rounded(uint64_t bytes)
{
	return ALIGN_UP(MAX(bytes, 1), bytes <= GRANULE_SMALL ? GRANULE_SMALL : GRANULE);
}

/* What it counts, by its class's overcommit. */
static uint64_t charge(const struct engine *e, uint8_t class_, uint64_t bytes)
{
	return (uint64_t)((__uint128_t)admission_rounded(bytes) * 1000 /
			  MAX(e->params.class_[class_].overcommit_permille, 1u));
}

uint64_t admission_dram_for_moves(const struct engine *e, bool zoned)
{
	return dram_bytes(e, zoned) - e->part[zoned].small_bytes;
}

/* Below SMALL_BYTES a tensor's only home is dram. Together they leave room for the largest one that
 * comes and goes there, or that could never come again. */
static int admit_small(struct engine *e, uint64_t bytes, bool zoned, struct err *err)
{
	const struct part *p = &e->part[zoned];
	uint64_t dram = dram_bytes(e, zoned), most = dram;

	if (e->params.device_count > 1)
		most -= largest_of_part(e, zoned).dram_bytes;
	if (p->small_bytes + admission_rounded(bytes) <= most)
		return 0;
	return err_set(err, ENOSPC,
		       "tensors below %u bytes stay in %s, which has %llu bytes for them",
		       SMALL_BYTES, zoned ? "the zone of dram" : "dram", (unsigned long long)most);
}

/* What dram can never hold has its home on nvme, and copies reach it there. Those of devices reach
 * the zone alone, so a tensor made for them has to fit into it. */
static int admit_large(struct engine *e, uint64_t bytes, bool zoned, struct err *err)
{
	uint64_t dram = admission_dram_for_moves(e, zoned);
	uint64_t nvme = capacity_of(e, TIER_KIND_NVME);

	if (admission_rounded(bytes) <= dram)
		return 0;
	if (zoned)
		return err_set(err, ENOSPC,
			       "a tensor of %llu bytes for copies of devices does not fit the zone "
			       "of dram, which has %llu for it",
			       (unsigned long long)bytes, (unsigned long long)dram);
	if (admission_rounded(bytes) + e->block_bytes <= nvme)
		return 0;
	return err_set(
		err, ENOSPC, "a tensor of %llu bytes fits neither dram (%llu) nor nvme (%llu)",
		(unsigned long long)bytes, (unsigned long long)dram, (unsigned long long)nvme);
}

/* What has to be on nvme of one part, at the worst, with `want` bytes more and `l` in it. */
static uint64_t overflow(const struct engine *e, bool zoned, uint64_t want, const struct largest *l)
{
	uint64_t all = e->part[zoned].committed_bytes + want + largest_for_moves(e, l);
	uint64_t dram = dram_bytes(e, zoned);

	return all > dram ? all - dram : 0;
}

/* Both parts of dram share nvme. */
static uint64_t too_much(const struct engine *e, bool zoned, uint64_t want, uint64_t bytes)
{
	bool large = admission_rounded(bytes) > admission_dram_for_moves(e, zoned);
	uint64_t nvme = capacity_of(e, TIER_KIND_NVME), all;
	struct largest with = largest_of_part(e, zoned), other = largest_of_part(e, !zoned);

	largest_add(&with, admission_rounded(bytes), large);
	all = overflow(e, zoned, want, &with) + overflow(e, !zoned, 0, &other);
	return all > nvme ? all - nvme : 0;
}

static struct quota_charge charge_of(const struct engine *e, uint8_t class_, uint64_t bytes)
{
	return (struct quota_charge){ .charged = admission_rounded(bytes),
				      .want = charge(e, class_, bytes),
				      .small = bytes < SMALL_BYTES };
}

int admission_check(struct engine *e, const struct holder *h, const struct engine_spec *s,
		    uint64_t bytes, struct err *err)
{
	struct quota_charge c = charge_of(e, s->class_, bytes);
	bool zoned = (s->flags & SPEC_DEVICE_COPY) != 0;
	uint64_t want = charge(e, s->class_, bytes), excess;
	uint64_t committed = e->part[zoned].committed_bytes;
	int rc;

	if (zoned && e->zone == DEVICE_NONE)
		return err_set(err, ENOTSUP, "dram has no zone for copies of devices");
	rc = (bytes < SMALL_BYTES ? admit_small : admit_large)(e, bytes, zoned, err);
	if (rc == 0)
		rc = quota_admit(e, account_of_holder(e, h), &c, err);
	if (rc < 0)
		return rc;
	excess = too_much(e, zoned, want, bytes);
	if (excess == 0)
		return 0;
	return err_set(
		err, ENOSPC,
		"%llu bytes more than the %llu admitted pass what dram and nvme can "
		"hold: %llu",
		(unsigned long long)want, (unsigned long long)committed,
		(unsigned long long)(committed + want > excess ? committed + want - excess : 0));
}

void admission_count(struct engine *e, uint32_t tensor, bool in)
{
	const struct record *r = &e->records[tensor];
	uint64_t want = charge(e, r->class_, r->bytes);
	uint64_t small = r->bytes < SMALL_BYTES ? admission_rounded(r->bytes) : 0;
	struct part *p = &e->part[is_zoned(r)];
	struct quota_charge c = charge_of(e, r->class_, r->bytes);

	quota_admitted(account_of(e, tensor), &c, in);
	e->committed_bytes += in ? want : (uint64_t)0 - want;
	p->committed_bytes += in ? want : (uint64_t)0 - want;
	p->small_bytes += in ? small : (uint64_t)0 - small;
	if (in)
		largest_enter(e, tensor);
	else
		largest_leave(e, tensor);
	stat_add(STAT(e, tensors), in ? 1 : (uint64_t)0 - 1);
	stat_set(STAT(e, committed_bytes), e->committed_bytes);
	stat_set(STAT(e, admissible_bytes), admission_bytes(e));
}

/* ---- requests ---- */

uint8_t acquire_second_device(const struct engine *e, const struct request *q)
{
	return q->device == e->dram && e->zone != DEVICE_NONE ? e->zone : q->device;
}

/* What of a device could ever be had at once: small tensors never leave dram. */
static uint64_t room_at(const struct engine *e, uint8_t device)
{
	if (device_kind(e, device) == TIER_KIND_DRAM)
		return admission_dram_for_moves(e, device == e->zone);
	return extents_capacity(e->devices[device].extents);
}

int acquire_can_fit(struct engine *e, struct request *q, char *text, size_t room)
{
	uint64_t bytes[ENGINE_DEVICES_MAX] = { 0 };
	uint8_t device = q->device, second = acquire_second_device(e, q);
	bool large = false;
	int rc = quota_can_fit(e, q, text, room);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < q->n; i++) {
		const struct record *r = record_of(e, q->items[i].tensor);

		large |= q->device == e->dram && (r->flags & RECORD_LARGE) != 0;
		if (q->device != e->dram || (r->flags & RECORD_SMALL) == 0)
			bytes[item_device(e, &q->items[i])] +=
				replica_rounded(e, q->device, r->bytes);
	}
	if (bytes[second] > room_at(e, second))
		device = second;
	if (!large && bytes[device] <= room_at(e, device))
		return 0;
	snprintf(text, room,
		 "%s has room for %llu bytes, less than what was asked for: "
		 "tierd_copy_in and tierd_copy_out reach tensors that do not fit",
		 e->devices[device].tier->base.name, (unsigned long long)room_at(e, device));
	return -ENOSPC;
}

uint64_t acquire_lacking_bytes(struct engine *e, const struct request *q, uint8_t device)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < q->n; i++)
		if (item_device(e, &q->items[i]) == device &&
		    acquire_needs_room(e, q, &q->items[i]))
			bytes +=
				replica_rounded(e, device, record_of(e, q->items[i].tensor)->bytes);
	return bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/replica.h"

#include <errno.h>

#include "daemon/engine/blocks.h"
#include "daemon/engine/move.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/slabs.h"

uint64_t replica_rounded(const struct engine *e, uint8_t device, uint64_t bytes)
{
	return extents_rounded(e->devices[device].extents, bytes);
}

uint64_t replica_offset(const struct engine *e, uint8_t device, uint32_t node)
{
	struct extent x;

	extents_get(e->devices[device].extents, node, &x);
	return e->devices[device].base_offset + x.offset;
}

void *replica_address(const struct engine *e, uint8_t device, uint32_t node)
{
	char *base = e->devices[device].tier->base.host_base;

	ASSERT(base != NULL);
	return base + replica_offset(e, device, node);
}

/* What was there at the peak: of fills that took the last room the bytes come a little later. */
static void note_peak(struct engine *e, enum tier_kind kind)
{
	uint64_t used =
		atomic_load_explicit(STAT(e, tier[kind].reserved_bytes), memory_order_relaxed);

	if (used < atomic_load_explicit(STAT(e, tier[kind].peak_bytes), memory_order_relaxed))
		return;
	stat_set(STAT(e, tier[kind].peak_bytes), used);
	stat_set(STAT(e, tier[kind].peak_at_ns), e->now_ns);
	for (unsigned c = 0; c < ENGINE_CLASSES; c++)
		stat_set(STAT(e, tier[kind].at_peak_bytes[c]),
			 atomic_load_explicit(STAT(e, tier[kind].class_bytes[c]),
					      memory_order_relaxed));
}

static void note_class_peak(struct engine *e, enum tier_kind kind, uint8_t class_)
{
	uint64_t now =
		atomic_load_explicit(STAT(e, tier[kind].class_bytes[class_]), memory_order_relaxed);

	if (now > atomic_load_explicit(STAT(e, tier[kind].class_peak_bytes[class_]),
				       memory_order_relaxed))
		stat_set(STAT(e, tier[kind].class_peak_bytes[class_]), now);
}

void engine_mark(struct engine *e, uint64_t now_ns)
{
	e->now_ns = now_ns;
	stat_set(STAT(e, marked_at_ns), e->now_ns);
	for (unsigned kind = 0; kind < TIER_KINDS; kind++) {
		stat_set(STAT(e, tier[kind].peak_bytes), 0);
		note_peak(e, kind);
		for (unsigned c = 0; c < ENGINE_CLASSES; c++) {
			stat_set(STAT(e, tier[kind].class_peak_bytes[c]), 0);
			note_class_peak(e, kind, (uint8_t)c);
		}
	}
}

void replica_count_reserved(struct engine *e, enum tier_kind kind)
{
	uint64_t here[ENGINE_DEVICES_MAX] = { 0 }, used = 0;

	for (unsigned i = 0; i < e->device_count; i++) {
		const struct device *d = &e->devices[i];
		uint64_t bytes = extents_used(d->extents) - d->closed_bytes;

		if (device_kind(e, (uint8_t)i) != kind)
			continue;
		here[d->lane] += bytes;
		stat_set(STAT(e, device[d->lane].reserved_bytes), here[d->lane]);
		used += bytes;
	}
	stat_set(STAT(e, tier[kind].reserved_bytes), used);
	note_peak(e, kind);
}

static void account_for(struct engine *e, uint8_t device, const struct extent *x, bool moving,
			bool in)
{
	slabs_touch(e, device, x);
	if (x->owner != OWNER_SLAB && moving)
		quota_count_moving(e, device, x->bytes, in);
	else if (x->owner != OWNER_SLAB)
		quota_count(e, x->owner, device, x->bytes, in);
	replica_count_reserved(e, device_kind(e, device));
}

int replica_take(struct engine *e, uint8_t device, uint32_t tensor, uint32_t *ret_node)
{
	uint64_t bytes = e->records[tensor].bytes;
	struct extent x;
	int rc;

	if (!quota_allows(e, tensor, device, replica_rounded(e, device, bytes)))
		return -EDQUOT;
	rc = extents_take(e->devices[device].extents, bytes, tensor, &x);
	if (rc < 0)
		return rc;
	account_for(e, device, &x, false, true);
	*ret_node = x.node;
	return 0;
}

/* A second place for what stands there already. */
static int took(struct engine *e, uint8_t device, int rc, const struct extent *x,
		uint32_t *ret_node)
{
	if (rc < 0)
		return rc;
	account_for(e, device, x, true, true);
	*ret_node = x->node;
	return 0;
}

int replica_take_outside(struct engine *e, uint8_t device, uint32_t tensor, uint64_t begin,
			 uint64_t end, uint32_t *ret_node)
{
	struct extent x;
	int rc = extents_take_outside(e->devices[device].extents, e->records[tensor].bytes, tensor,
				      begin, end, &x);

	return took(e, device, rc, &x, ret_node);
}

int replica_take_before(struct engine *e, uint8_t device, uint32_t tensor, uint32_t node,
			uint64_t bytes, uint32_t *ret_node)
{
	struct extent x;
	int rc = extents_take_before(e->devices[device].extents, node, bytes, tensor, &x);

	return took(e, device, rc, &x, ret_node);
}

int replica_take_at(struct engine *e, uint8_t device, uint32_t tensor, uint64_t offset,
		    uint32_t *ret_node)
{
	struct extent x;
	int rc = extents_take_at(e->devices[device].extents, offset, e->records[tensor].bytes,
				 tensor, &x);

	return took(e, device, rc, &x, ret_node);
}

int replica_take_highest(struct engine *e, uint8_t device, uint32_t tensor, uint64_t above,
			 uint32_t *ret_node)
{
	struct extent x;
	int rc = extents_take_highest(e->devices[device].extents, e->records[tensor].bytes, tensor,
				      above, &x);

	return took(e, device, rc, &x, ret_node);
}

static void give(struct engine *e, uint8_t device, uint32_t node, bool moving)
{
	struct extent x;

	extents_get(e->devices[device].extents, node, &x);
	extents_give(e->devices[device].extents, node);
	account_for(e, device, &x, moving, false);
	e->devices[device].reclaim_at_ns = 0; /* there is room: whoever waits looks again */
	e->devices[device].look = true;
	e->again = true;
}

void replica_give(struct engine *e, uint8_t device, uint32_t node)
{
	give(e, device, node, false);
}

void replica_give_moved(struct engine *e, uint8_t device, uint32_t node)
{
	give(e, device, node, true);
}

/* ---- sources and fronts ---- */

static void count_resident(struct engine *e, const struct record *r, uint8_t sources, int sign)
{
	for (unsigned kind = 0; kind < TIER_KINDS; kind++) {
		uint64_t n = ALIGN_UP(r->bytes, r->bytes < GRANULE ? GRANULE_SMALL : GRANULE);

		if ((sources & 1u << kind) == 0)
			continue;
		n = sign > 0 ? n : (uint64_t)0 - n;
		stat_add(STAT(e, tier[kind].resident_bytes), n);
		stat_add(STAT(e, tier[kind].class_bytes[r->class_]), n);
		if (sign < 0)
			continue;
		note_peak(e, kind);
		note_class_peak(e, kind, r->class_);
	}
}

static void sources_become(struct engine *e, struct record *r, uint8_t sources)
{
	count_resident(e, r, r->sources & ~sources, -1);
	count_resident(e, r, sources & ~r->sources, 1);
	r->sources = sources;
}

/* Puts the tensor on, or takes it off, one list of copies under fronts. */
static void shadow_set(struct engine *e, uint32_t tensor, enum shadow which, bool on)
{
	struct record *r = &e->records[tensor];
	uint16_t flag = (uint16_t)(RECORD_SHADOW << which);
	struct shadow_link *own = &r->shadow[which];

	if (((r->flags & flag) != 0) == on)
		return;
	r->flags ^= flag;
	if (which == SHADOW_NVME) {
		uint64_t bytes = map_extent_bytes(e, map_get(e, r));

		account_of(e, tensor)->nvme_shadow_bytes += on ? bytes : (uint64_t)0 - bytes;
	}
	if (on) {
		own->prev = TENSOR_NONE;
		own->next = e->shadow_first[which];
		e->shadow_first[which] = tensor;
	} else if (own->prev != TENSOR_NONE) {
		e->records[own->prev].shadow[which].next = own->next;
	} else {
		e->shadow_first[which] = own->next;
	}
	if (own->next != TENSOR_NONE)
		e->records[own->next].shadow[which].prev = on ? tensor : own->prev;
}

static void shadow_update(struct engine *e, uint32_t tensor)
{
	struct record *r = &e->records[tensor];
	bool front = r->front != DEVICE_NONE;

	shadow_set(e, tensor, SHADOW_DRAM,
		   front && device_kind(e, r->front) == TIER_KIND_HBM &&
			   r->dram_node != EXTENT_NONE);
	shadow_set(e, tensor, SHADOW_NVME, front && r->map != 0);
}

void source_add(struct engine *e, uint32_t tensor, enum source source)
{
	struct record *r = record_of(e, tensor);

	sources_become(e, r, r->sources | source);
	shadow_update(e, tensor);
}

void source_set(struct engine *e, uint32_t tensor, enum source source)
{
	struct record *r = record_of(e, tensor);

	sources_become(e, r, source);
	if (source != SOURCE_ZERO)
		r->flags &= (uint16_t)~RECORD_LOST;
	r->version++;
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		if ((source & 1u << kind) == 0 &&
		    (r->front == DEVICE_NONE || device_kind(e, r->front) != kind))
			replica_drop(e, tensor, kind);
}

void replica_drop(struct engine *e, uint32_t tensor, enum tier_kind kind)
{
	struct record *r = record_of(e, tensor);

	sources_become(e, r, r->sources & ~(1u << kind));
	if (kind == TIER_KIND_HBM && r->hbm_node != EXTENT_NONE) {
		replica_give(e, r->hbm_device, r->hbm_node);
		r->hbm_node = EXTENT_NONE;
	} else if (kind == TIER_KIND_DRAM && r->dram_node != EXTENT_NONE) {
		replica_give(e, dram_of(e, r), r->dram_node);
		r->dram_node = EXTENT_NONE;
	} else if (kind == TIER_KIND_NVME) {
		map_drop(e, r);
	}
	shadow_update(e, tensor);
}

enum source front_source(const struct engine *e, const struct record *r)
{
	ASSERT(r->front != DEVICE_NONE);
	return (enum source)(1u << device_kind(e, r->front));
}

uint32_t front_node(const struct engine *e, const struct record *r)
{
	return front_source(e, r) == SOURCE_HBM ? r->hbm_node : r->dram_node;
}

void policy_tell(struct engine *e, uint32_t tensor, enum policy_event_kind kind, uint8_t tier,
		 uint8_t from, uint8_t access)
{
	const struct record *r = &e->records[tensor];
	struct policy_event event = { .kind = kind,
				      .tier = tier,
				      .from = from,
				      .access = access,
				      .tensor = tensor,
				      .bytes = MAX(r->bytes, 1), /* one of none takes room too */
				      .now_ns = e->now_ns };

	e->policy_ops[r->class_]->event(e->policies[r->class_], &event);
}

void front_set(struct engine *e, uint32_t tensor, uint8_t device)
{
	struct record *r = record_of(e, tensor);
	uint8_t was = r->front;

	r->front = device;
	shadow_update(e, tensor);
	if (was != device)
		policy_tell(e, tensor, POLICY_EVENT_MOVED, device, was, 0);
}

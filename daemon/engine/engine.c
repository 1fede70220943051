/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's beginning, end and turns.
 */
#include "daemon/engine/engine.h"

#include <errno.h>
#include <string.h>

#include "base/heap.h"
#include "daemon/engine/admission.h"
#include "daemon/engine/deferred.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/fence.h"
#include "daemon/engine/holder.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/name_space.h"
#include "daemon/engine/piece.h"
#include "daemon/engine/prefetch.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slabs.h"
#include "daemon/engine/tensor.h"

_Static_assert(ENGINE_DEVICES_MAX <= POLICY_TIERS_MAX && DEVICE_NONE == POLICY_TIER_NONE,
	       "a device is a tier to policies");
_Static_assert((int)STATS_TIERS == (int)TIER_KINDS && (int)STATS_CLASSES == (int)ENGINE_CLASSES,
	       "the stats page has a row a tier and class");
_Static_assert(STATS_DEVICES == ENGINE_DEVICES_MAX, "a row a device");

uint64_t engine_records_bytes(uint32_t tensors)
{
	return (uint64_t)tensors * sizeof(struct record);
}

/* One more: [begin, bytes) of a tier. */
static int open_device(struct engine *e, unsigned tier, uint64_t begin, uint64_t bytes,
		       struct err *err)
{
	struct device *d = &e->devices[e->device_count];
	const struct tier_base *base = &e->params.devices[tier]->base;
	int rc = extents_create(bytes, base->kind == TIER_KIND_NVME ? GRANULE : GRANULE_SMALL,
				&d->extents, err);

	if (rc < 0)
		return rc;
	d->tier = e->params.devices[tier];
	d->lane = (uint8_t)tier;
	d->base_offset = begin;
	d->place = PROTOCOL_PLACE_HOST;
	list_init(&d->queue);
	for (unsigned i = 0; i < HINT_SIZES; i++)
		list_init(&d->hints[i]);
	e->device_count++;
	stat_add(STAT(e, tier[base->kind].limit_bytes), extents_capacity(d->extents));
	stat_add(STAT(e, device[tier].limit_bytes), extents_capacity(d->extents));
	return 0;
}

/* The zone is a device of its own over dram's tier, after all others: it has its extents, its
 * watermarks and its victims. */
static int open_zone(struct engine *e, struct err *err)
{
	uint64_t bytes = e->params.dram_zone_bytes;

	if (bytes == 0)
		return 0;
	if (e->params.device_count == ENGINE_DEVICES_MAX)
		return err_set(err, EINVAL,
			       "a zone of dram counts as a device, of which there are "
			       "%u at most",
			       ENGINE_DEVICES_MAX);
	e->zone = (uint8_t)e->device_count;
	return open_device(e, e->dram, 0, bytes, err);
}

static int open_devices(struct engine *e, struct err *err)
{
	uint8_t gpus = 0;

	memset(e->hbm_by_place, DEVICE_NONE, sizeof(e->hbm_by_place));
	e->dram = e->nvme_first = e->zone = DEVICE_NONE;
	e->block_bytes = MIB(1);
	for (unsigned i = 0; i < e->params.device_count; i++) {
		struct device *d = &e->devices[i];
		struct tier_base *base = &e->params.devices[i]->base;
		uint64_t zone = base->kind == TIER_KIND_DRAM ? e->params.dram_zone_bytes : 0;
		int rc;

		ASSERT(zone % GRANULE == 0 && (zone == 0 || zone < base->bytes));
		rc = open_device(e, i, zone, base->bytes - zone, err);
		if (rc < 0)
			return rc;
		if (base->kind == TIER_KIND_HBM)
			d->place = gpus++;
		if (base->kind != TIER_KIND_NVME)
			e->hbm_by_place[d->place] = (uint8_t)i;
		if (base->kind == TIER_KIND_DRAM)
			e->dram = (uint8_t)i;
		if (base->kind == TIER_KIND_NVME) {
			e->block_bytes = e->nvme_first == DEVICE_NONE
						 ? base->block
						 : MIN(e->block_bytes, base->block);
			e->nvme_first = e->nvme_first == DEVICE_NONE ? (uint8_t)i : e->nvme_first;
		}
	}
	ASSERT(e->dram != DEVICE_NONE);
	return open_zone(e, err);
}

static int open_policies(struct engine *e, struct err *err)
{
	size_t stride = 1;

	for (unsigned c = 0; c < ENGINE_CLASSES; c++)
		stride = MAX(stride, e->params.class_[c].policy->slot_size);
	stride = ALIGN_UP(stride, 8);
	e->slots_bytes = stride * e->params.tensors;
	e->slots = heap_map(e->slots_bytes);
	if (e->slots == NULL)
		return err_set(err, ENOMEM, "no addresses for %zu bytes of policy slots",
			       e->slots_bytes);
	e->policy_slots = (struct policy_slots){ .base = e->slots,
						 .stride = stride,
						 .count = e->params.tensors,
						 .tiers = (uint8_t)e->device_count };
	for (unsigned c = 0; c < ENGINE_CLASSES; c++) {
		const struct engine_class *class_ = &e->params.class_[c];
		int rc = class_->policy->create(class_->policy_config, &e->policy_slots,
						&e->policies[c], err);

		if (rc < 0)
			return rc;
		e->policy_ops[c] = class_->policy;
	}
	return 0;
}

/* From nvme to a GPU, back, and from GPU to GPU bytes hop through a slot. */
static bool needs_staging(const struct engine *e)
{
	return e->nvme_first != DEVICE_NONE || e->hbm_by_place[1] != DEVICE_NONE;
}

/* What comes up and what goes down share the slots, but for a few of each direction's own, so that
 * neither waits for the other. */
static int open_staging(struct engine *e, struct err *err)
{
	uint64_t slots = e->params.staging == NULL ? 0 : e->params.staging_bytes / e->block_bytes;

	for (unsigned d = 0; d < DIRECTIONS; d++)
		list_init(&e->staging_waiters[d]);
	e->staging_free = heap_zeros(slots + 1, sizeof(void *));
	if (e->staging_free == NULL)
		return err_set(err, ENOMEM, "no memory for staging");
	if (needs_staging(e) && slots < 2)
		return err_set(err, EINVAL, "staging of %llu bytes is less than two blocks of %llu",
			       (unsigned long long)e->params.staging_bytes,
			       (unsigned long long)e->block_bytes);
	for (uint64_t i = 0; i < slots; i++)
		e->staging_free[e->staging_free_count++] =
			(char *)e->params.staging + i * e->block_bytes;
	e->staging_reserve = (unsigned)MAX(slots / STAGING_SHARE, 1u);
	return 0;
}

/* What tensors are put on without asking for memory: room for all of them, of which no page is
 * there until it is needed. */
static int open_rows(struct engine *e, struct err *err)
{
	e->hint_of = heap_zeros(e->params.tensors, sizeof(*e->hint_of));
	e->doomed = heap_zeros(e->params.tensors, sizeof(*e->doomed));
	e->backoff = heap_zeros(e->params.tensors, sizeof(*e->backoff));
	return e->hint_of != NULL && e->doomed != NULL && e->backoff != NULL
		       ? 0
		       : err_set(err, ENOMEM, "no memory for rows of %u tensors",
				 e->params.tensors);
}

static void open_lists(struct engine *e)
{
	list_init(&e->holders);
	list_init(&e->tombstones);
	list_init(&e->blocked);
	list_init(&e->running);
	list_init(&e->woken);
	list_init(&e->moves);
	for (unsigned i = 0; i < ENGINE_DEVICES_MAX; i++)
		list_init(&e->lent[i]);
	list_init(&e->failed);
	e->next_deadline_ns = e->poll_at_ns = ENGINE_NEVER;
	e->doomed_going = e->doomed_going_yet = ENGINE_NEVER;
	e->free_first = TENSOR_NONE;
	e->shadow_first[SHADOW_DRAM] = e->shadow_first[SHADOW_NVME] = TENSOR_NONE;
	e->index_high = 1; /* index 0 is no tensor */
	e->map_free = 1;
}

int engine_create(const struct engine_params *params, struct engine **ret, struct err *err)
{
	struct engine *e = heap_zeros(1, sizeof(*e));
	int rc;

	if (e == NULL)
		return err_set(err, ENOMEM, "no memory for the engine");
	e->magic = ENGINE_MAGIC;
	e->params = *params;
	e->descriptors =
		(struct descriptor *)((char *)params->table + params->table->descriptors_offset);
	e->records = params->records;
	open_lists(e);
	rc = open_devices(e, err);
	if (rc == 0)
		rc = quotas_open(e, err);
	if (rc == 0)
		rc = slabs_open(e, err);
	if (rc == 0)
		rc = open_policies(e, err);
	if (rc == 0)
		rc = open_staging(e, err);
	if (rc == 0)
		rc = open_rows(e, err);
	if (rc == 0)
		rc = namemap_create(params->tensors, &e->names, err);
	if (rc == 0)
		rc = name_spaces_open(e, err);
	if (rc < 0) {
		engine_destroy(e);
		return rc;
	}
	stat_set(STAT(e, admissible_bytes), admission_bytes(e));
	*ret = e;
	return 0;
}

static void free_requests(struct engine *e, struct list *holders)
{
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, holders) {
		struct holder *h = list_entry(it, struct holder, link);

		requests_drop_holder(e, h);
		for (unsigned i = 0; i < ENGINE_DEVICES_MAX; i++)
			heap_free(h->slabs[i]);
		fences_forget(e, h);
		list_remove(&h->link);
		heap_free(h);
	}
}

static void free_moves(struct engine *e)
{
	struct list *it;

	while ((it = list_pop_front(&e->moves)) != NULL) {
		struct move *m = list_entry(it, struct move, link);

		piece_give(e, m->own);
		heap_free(m->to_map);
		heap_free(m);
	}
}

void engine_destroy(struct engine *e)
{
	ASSERT_OBJ(e, ENGINE_MAGIC);
	ASSERT(e->in_flight == 0);
	free_requests(e, &e->holders);
	free_requests(e, &e->tombstones);
	free_moves(e);
	for (uint32_t i = 1; i < e->map_room; i++)
		heap_free(e->maps[i]);
	for (unsigned c = 0; c < ENGINE_CLASSES; c++)
		if (e->policies[c] != NULL)
			e->policy_ops[c]->destroy(e->policies[c]);
	for (unsigned i = 0; i < e->device_count; i++) {
		prefetch_forget(e, (uint8_t)i);
		extents_destroy(e->devices[i].extents);
	}
	slabs_close(e);
	while (e->free_pieces != NULL) {
		struct piece *p = e->free_pieces;

		e->free_pieces = p->next_free;
		heap_free(p);
	}
	heap_unmap(e->slots, e->slots_bytes);
	if (e->names != NULL)
		namemap_destroy(e->names);
	heap_free(e->hint_of);
	heap_free(e->staging_free);
	heap_free(e->maps);
	heap_free(e->moves_by_id);
	heap_free(e->holder_table);
	name_spaces_close(e);
	quotas_close(e);
	heap_free(e->doomed);
	heap_free(e->backoff);
	e->magic = 0;
	heap_free(e);
}

static void count_largest_free(struct engine *e)
{
	uint64_t most[TIER_KINDS] = { 0 };

	for (unsigned i = 0; i < e->device_count; i++) {
		uint64_t *of = &most[device_kind(e, (uint8_t)i)];

		*of = MAX(*of, extents_largest_free(e->devices[i].extents));
	}
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		stat_set(STAT(e, tier[kind].largest_free_bytes), most[kind]);
}

static void count_queued(struct engine *e)
{
	uint64_t queued[TIER_KINDS] = { 0 };
	const struct list *it;

	for (unsigned i = 0; i < e->device_count; i++)
		list_for_each (it, &e->devices[i].queue)
			queued[device_kind(e, (uint8_t)i)]++;
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		stat_set(STAT(e, tier[kind].queue_waiters), queued[kind]);
}

uint64_t engine_turn(struct engine *e, uint64_t now_ns)
{
	uint64_t next;

	ASSERT_OBJ(e, ENGINE_MAGIC);
	e->now_ns = now_ns;
	/* Unpins of streams make no sound either. */
	if (e->waiting > 0 || e->doomed_count > 0 || !list_empty(&e->failed))
		deferred_look(e);
	next = holders_turn(e);
	next = MIN(next, failed_turn(e));
	next = MIN(next, tensors_turn(e));
	next = MIN(next, slabs_turn(e));
	next = MIN(next, lost_turn(e));
	next = MIN(next, requests_turn(e));
	/* What has happened since they were looked at may have made them due. */
	next = MIN(next, doomed_due(e));
	next = MIN(next, failed_due(e));
	count_largest_free(e);
	count_queued(e);
	return next;
}

void engine_xfer_done(struct engine *e, struct xfer *x, uint64_t now_ns)
{
	ASSERT(x->lent != NULL); /* one that came twice would be taken for the next one */
	e->now_ns = now_ns;
	if (x->owner == NULL)
		slabs_xfer_done(e, x);
	else
		move_piece_done(e, container_of(x, struct piece, x));
	requests_settle(e);
}

unsigned engine_in_flight(const struct engine *e)
{
	return e->in_flight;
}

void engine_cancel(struct engine *e, struct holder *h, uint32_t request, uint64_t now_ns)
{
	struct list *it;

	e->now_ns = now_ns;
	list_for_each (it, &h->requests) {
		struct request *q = list_entry(it, struct request, holder_link);

		if (q->id == request) {
			request_finish(e, q, -EINTR, "cancelled");
			break;
		}
	}
	requests_settle(e);
}

void engine_step(struct engine *e, struct holder *h, uint64_t now_ns)
{
	struct policy_event event = { .kind = POLICY_EVENT_STEP,
				      .tier = POLICY_TIER_NONE,
				      .from = POLICY_TIER_NONE,
				      .now_ns = now_ns };

	e->now_ns = now_ns;
	holder_step(e, h);
	stat_add(STAT(e, steps), 1);
	for (unsigned c = 0; c < ENGINE_CLASSES; c++)
		e->policy_ops[c]->event(e->policies[c], &event);
}

/* Empty slabs, and pages of every hole, go back to the system, where the backend can give them and
 * no device holds on to them: what is registered stays in use after it was punched out, and would
 * only be doubled. */
void engine_trim(struct engine *e)
{
	slabs_trim(e);
	for (unsigned i = 0; i < e->device_count; i++) {
		struct device *d = &e->devices[i];
		struct extent x;
		bool more = extents_next(d->extents, EXTENT_NONE, &x);

		if (d->tier->base.ops->trim == NULL || d->tier->base.registered)
			continue;
		for (; more; more = extents_next(d->extents, x.node, &x))
			if (x.owner == EXTENT_FREE)
				d->tier->base.ops->trim(d->tier, d->base_offset + x.offset,
							x.bytes);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/reclaim.h"

#include <errno.h>

#include "base/log.h"
#include "daemon/engine/blocks.h"
#include "daemon/engine/bring.h"
#include "daemon/engine/compact.h"
#include "daemon/engine/front.h"
#include "daemon/engine/holder.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slab_room.h"
#include "daemon/engine/slabs.h"
#include "daemon/engine/trouble.h"

#define IDLE_RETRY_NS (10 * NS_PER_MS)

/* ---- who may go ---- */

/* Now, or once copies of fronts have given way. */
static bool nvme_takes(const struct engine *e, uint32_t tensor)
{
	const struct account *own = account_of(e, tensor);
	uint64_t bytes = nvme_free_bytes(e);
	uint64_t need = replica_rounded(e, e->nvme_first, e->records[tensor].bytes);

	if (!quota_nvme_takes(e, tensor, need))
		return false;
	for (unsigned i = 0; bytes < need && i < e->account_count; i++) {
		const struct account *a = &e->accounts[i];
		const struct quota_share *s = &a->pool[e->nvme_first];

		if (a == own || s->used_bytes > s->guarantee_bytes)
			bytes += a->nvme_shadow_bytes;
	}
	return bytes >= need;
}

bool reclaim_has_home(const struct engine *e, uint32_t tensor, uint8_t device)
{
	/* Dram makes room, if it has none. */
	return (device_kind(e, device) == TIER_KIND_HBM &&
		(e->records[tensor].flags & RECORD_LARGE) == 0) ||
	       reclaim_needs_no_dram(e, tensor, device);
}

bool reclaim_needs_no_dram(const struct engine *e, uint32_t tensor, uint8_t device)
{
	const struct record *r = &e->records[tensor];
	uint8_t below = (uint8_t)(r->sources & ~(1u << device_kind(e, device)));

	if (below != 0)
		return true;
	return e->nvme_first != DEVICE_NONE && !(r->flags & RECORD_SMALL) && nvme_takes(e, tensor);
}

bool reclaim_eligible(struct engine *e, uint8_t device, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);

	if ((r->flags & (RECORD_LIVE | RECORD_BACKOFF)) != RECORD_LIVE || r->front != device ||
	    device == DEVICE_NONE || r->move != 0 || r->ready > 0)
		return false;
	if (state_of(e, tensor) != STATE_RESIDENT || record_held(e, r) || bring_keeps(e, tensor))
		return false;
	return reclaim_has_home(e, tensor, device) && !pins_any(e, tensor);
}

/* ---- picks ---- */

struct picks {
	struct policy_pick of[ENGINE_CLASSES][PICKS];
	size_t count[ENGINE_CLASSES], next[ENGINE_CLASSES];
	uint64_t asked;
	/* A victim so large found no room in dram, its zone, or on nvme; UINT64_MAX: none did. */
	uint64_t refused_bytes[2];
};

static uint64_t *refused_as(const struct engine *e, struct picks *p, uint32_t tensor)
{
	return &p->refused_bytes[(e->records[tensor].flags & RECORD_ZONED) != 0];
}

struct asked {
	struct engine *e;
	const struct quota_demand *demand;
	uint8_t device;
	struct picks *picks;
};

static bool policy_may_pick(const void *ctx, uint32_t tensor)
{
	const struct asked *asked = ctx;

	asked->picks->asked++;
	return reclaim_eligible(asked->e, asked->device, tensor) &&
	       quota_yields(asked->e, asked->demand, tensor, asked->device) &&
	       (asked->e->records[tensor].bytes < *refused_as(asked->e, asked->picks, tensor) ||
		reclaim_needs_no_dram(asked->e, tensor, asked->device));
}

/* What bringing bytes back costs: from dram a copy, from nvme a read at the measured rate. */
struct policy_cost reclaim_cost(const struct engine *e, uint8_t device)
{
	uint64_t bytes = 0, ns = 0;

	if (device_kind(e, device) == TIER_KIND_HBM)
		return (struct policy_cost){ .fixed_ns = 20e3, .ns_per_byte = 0.1 };
	for (unsigned i = 0; i < e->device_count; i++) {
		if (device_kind(e, (uint8_t)i) != TIER_KIND_NVME)
			continue;
		bytes += e->devices[i].done_bytes;
		ns += e->devices[i].busy_ns;
	}
	return (struct policy_cost){ .fixed_ns = 100e3,
				     .ns_per_byte =
					     bytes > MIB(16) ? (double)ns / (double)bytes : 1 };
}

/* What one demand is denied says nothing of another's. */
static uint64_t *ask_all_at(struct engine *e, uint8_t device, const struct quota_demand *demand)
{
	if (demand->account == NULL || !quotas_any(e))
		return &e->devices[device].ask_all_at_ns;
	return &e->accounts[demand->account - e->accounts].ask_all_at_ns[device];
}

static void ask_policies(struct engine *e, uint8_t device, uint64_t bytes,
			 const struct quota_demand *demand, bool brief, struct picks *ret)
{
	struct asked asked = { e, demand, device, ret };
	struct policy_query query = { .tier = device,
				      .need_bytes = bytes,
				      .now_ns = e->now_ns,
				      .cost = reclaim_cost(e, device),
				      .eligible = policy_may_pick,
				      .ctx = &asked,
				      .brief = brief };

	ret->asked = 0;
	for (unsigned c = 0; c < ENGINE_CLASSES; c++) {
		ret->count[c] =
			e->policy_ops[c]->victims(e->policies[c], &query, ret->of[c], PICKS);
		ret->next[c] = 0;
		ASSERT(ret->count[c] <= PICKS);
	}
}

/* Every policy has named all that it may. Of thousands of pinned tensors that is work: it is done
 * again for polls, or more rarely if it takes long, and not whenever an xfer is done. */
static void asked_all(struct engine *e, uint8_t device, const struct quota_demand *demand,
		      const struct picks *p)
{
	uint64_t *at_ns = ask_all_at(e, device, demand);

	for (unsigned c = 0; c < ENGINE_CLASSES; c++)
		if (p->count[c] == PICKS)
			return;
	if (e->now_ns >= *at_ns)
		*at_ns = e->now_ns + MAX(POLL_NS / 2, pins_rest_ns(e, p->asked));
}

void reclaim_ask_all(struct engine *e)
{
	for (unsigned i = 0; i < e->device_count; i++) {
		e->devices[i].ask_all_at_ns = 0;
		for (unsigned a = 0; a < e->account_count; a++)
			e->accounts[a].ask_all_at_ns[i] = 0;
	}
}

/* The best pick of all classes, TENSOR_NONE at the end. */
static uint32_t best_pick(struct picks *p)
{
	unsigned best = ENGINE_CLASSES;

	for (unsigned c = 0; c < ENGINE_CLASSES; c++) {
		if (p->next[c] == p->count[c])
			continue;
		if (best == ENGINE_CLASSES ||
		    p->of[c][p->next[c]].score > p->of[best][p->next[best]].score)
			best = c;
	}
	return best == ENGINE_CLASSES ? TENSOR_NONE : p->of[best][p->next[best]++].tensor;
}

/* ---- acting ---- */

/* Dram copies under hbm fronts go first: the bytes stand above, nothing is lost but a copy. */
static uint64_t drop_shadows(struct engine *e, uint8_t device, uint64_t bytes,
			     const struct quota_demand *demand)
{
	uint32_t tensor = e->shadow_first[SHADOW_DRAM];
	uint64_t freed = 0;

	while (tensor != TENSOR_NONE && freed < bytes) {
		struct record *r = record_of(e, tensor);
		uint32_t next = r->shadow[SHADOW_DRAM].next;
		uint64_t n = replica_rounded(e, device, r->bytes);

		if (dram_of(e, r) != device || lost_front(e, r) ||
		    !quota_yields(e, demand, tensor, device)) {
			tensor = next;
			continue;
		}
		if (r->move == 0 && (r->sources & SOURCE_HBM) != 0 && r->wanted == 0) {
			replica_drop(e, tensor, TIER_KIND_DRAM);
			freed += n;
		} else if (r->move == 0 && (r->sources & SOURCE_HBM) == 0 &&
			   reclaim_eligible(e, r->front, tensor)) {
			/* Left unfilled by its writer: the copy below is the tensor. */
			front_drop(e, tensor);
		}
		tensor = next;
	}
	return freed;
}

static bool names(const struct request *q, uint32_t tensor)
{
	for (size_t i = 0; i < q->n; i++)
		if (q->items[i].tensor == tensor)
			return true;
	return false;
}

/* Running acquires count on the copies that they found, and the head of the queue would only lack
 * more without its own. A flush does not: it waits itself for those who want it in dram. */
static bool is_counted_on(struct engine *e, const struct request *head, uint32_t tensor)
{
	struct list *it;

	list_for_each (it, &e->running) {
		const struct request *q = list_entry(it, struct request, link);

		if (q->kind == REQUEST_ACQUIRE && q->device == e->dram && names(q, tensor))
			return true;
	}
	return names(head, tensor);
}

/* Nothing else can go: a copy that somebody further back waits for is in the head's way. */
static bool drop_wanted_shadow(struct engine *e, const struct request *head, uint8_t device,
			       const struct quota_demand *demand)
{
	uint32_t tensor = e->shadow_first[SHADOW_DRAM];

	for (; tensor != TENSOR_NONE; tensor = record_of(e, tensor)->shadow[SHADOW_DRAM].next) {
		struct record *r = record_of(e, tensor);

		if (dram_of(e, r) != device || r->move != 0 || r->wanted == 0 ||
		    (r->sources & SOURCE_HBM) == 0 || lost_front(e, r) ||
		    !quota_yields(e, demand, tensor, device) || is_counted_on(e, head, tensor))
			continue;
		replica_drop(e, tensor, TIER_KIND_DRAM);
		return true;
	}
	return false;
}

/* On nvme the newest copies go first: their fronts are the last to follow them down. */
static uint64_t drop_from_nvme(struct engine *e, uint64_t bytes, const struct quota_demand *demand)
{
	uint32_t tensor = e->shadow_first[SHADOW_NVME];
	uint64_t freed = 0;

	while (tensor != TENSOR_NONE && freed < bytes) {
		struct record *r = record_of(e, tensor);
		uint32_t next = r->shadow[SHADOW_NVME].next;

		if (r->move == 0 && (r->sources & front_source(e, r)) != 0 && !lost_front(e, r) &&
		    quota_yields(e, demand, tensor, e->nvme_first)) {
			replica_drop(e, tensor, TIER_KIND_NVME);
			freed += replica_rounded(e, e->nvme_first, r->bytes);
		}
		tensor = next;
	}
	return freed;
}

uint64_t reclaim_nvme(struct engine *e, uint32_t tensor, uint64_t bytes, int why)
{
	struct quota_demand demand = { .account = account_of(e, tensor), .own = why == -EDQUOT };
	uint64_t freed = 0;

	if (why != -ENOSPC && why != -EDQUOT)
		return 0;
	freed = drop_from_nvme(e, bytes, &demand);
	demand.whole = true;
	return freed > 0 ? freed : drop_from_nvme(e, bytes, &demand);
}

/* The account is looked at again when the clean has ended. */
static int clean_for(struct engine *e, uint32_t tensor, const struct quota_demand *demand)
{
	int rc = move_clean(e, tensor, false, true, XFER_WRITE_BACK);
	const struct record *r = record_of(e, tensor);
	struct move *m = rc == 0 && r->move != 0 ? move_get(e, r->move) : NULL;

	if (m != NULL) {
		m->drop_for = demand->account != NULL ? (uint16_t)(demand->account - e->accounts)
						      : ACCOUNT_NONE;
		m->drop_whole = demand->whole;
	}
	return rc;
}

/* One victim. Returns the bytes that came free at once; `*ret_begun`: something goes on;
 * `*ret_refused`: there is no room for it below. */
static uint64_t take_victim(struct engine *e, uint8_t device, uint32_t tensor,
			    const struct quota_demand *demand, bool *ret_begun, bool *ret_refused)
{
	uint64_t bytes = replica_rounded(e, device, record_of(e, tensor)->bytes);
	int rc;

	*ret_refused = false;
	if (!reclaim_eligible(e, device, tensor)) {
		stat_add(STAT(e, bad_picks), 1);
		return 0;
	}
	if (!quota_yields(e, demand, tensor, device))
		return 0; /* those that were picked before it have taken what there was */
	rc = front_drop(e, tensor);
	if (rc == -EAGAIN)
		rc = clean_for(e, tensor, demand);
	else if (rc == 0)
		return bytes;
	if (rc == 0)
		*ret_begun = true;
	*ret_refused = rc == -ENOSPC;
	return 0;
}

/* What is on its way out anyhow. */
static uint64_t leaving(const struct engine *e, uint8_t device, const struct quota_demand *demand)
{
	const struct device *d = &e->devices[device];

	return demand->own ? demand->account->pool[d->pool].leaving_bytes : d->leaving_bytes;
}

/* Asks once, and takes what was picked. Returns what came free at once; `*ret_again`: some were
 * refused that were not before, and policies may have others. */
static uint64_t take_picked(struct engine *e, uint8_t device, uint64_t goal,
			    const struct quota_demand *demand, struct picks *picks, bool *ret_begun,
			    bool *ret_again)
{
	uint64_t freed = 0;
	uint32_t tensor;
	bool refused;

	*ret_again = false;
	while (freed + leaving(e, device, demand) < goal &&
	       (tensor = best_pick(picks)) != TENSOR_NONE) {
		freed += take_victim(e, device, tensor, demand, ret_begun, &refused);
		if (!refused || reclaim_needs_no_dram(e, tensor, device))
			continue;
		*refused_as(e, picks, tensor) =
			MIN(*refused_as(e, picks, tensor), e->records[tensor].bytes);
		*ret_again = true; /* it is not named again */
	}
	return freed;
}

/* Policies name as much as is wanted, and what of it finds no room below must not keep others from
 * being named. Returns what came free at once. */
static uint64_t take_picks(struct engine *e, uint8_t device, uint64_t goal,
			   const struct quota_demand *demand, bool brief, bool *ret_begun)
{
	struct picks picks = { .refused_bytes = { UINT64_MAX, UINT64_MAX } };
	uint64_t freed = 0;
	bool again;

	do {
		ask_policies(e, device, goal - freed - leaving(e, device, demand), demand, brief,
			     &picks);
		freed += take_picked(e, device, goal - freed, demand, &picks, ret_begun, &again);
	} while (again && freed + leaving(e, device, demand) < goal);
	if (freed + leaving(e, device, demand) < goal && !brief)
		asked_all(e, device, demand, &picks);
	return freed;
}

/* Frees `goal` bytes, counting what is on its way out. Returns whether anything moves. */
static bool reclaim(struct engine *e, uint8_t device, uint64_t goal, struct quota_demand demand)
{
	bool brief = e->now_ns < *ask_all_at(e, device, &demand), begun = false;
	uint64_t freed = 0;

	e->asked_fully |= !brief;
	if (device_kind(e, device) == TIER_KIND_DRAM)
		freed = drop_shadows(e, device, goal, &demand);
	if (freed + leaving(e, device, &demand) < goal)
		freed += take_picks(e, device, goal - freed, &demand, brief, &begun);
	/* Tensors go as a whole: of who is above its guarantee one may be in part below it. */
	demand.whole = quotas_any(e) && demand.account != NULL && !demand.own && !brief;
	if (demand.whole && freed == 0 && !begun && leaving(e, device, &demand) == 0) {
		if (device_kind(e, device) == TIER_KIND_DRAM)
			freed = drop_shadows(e, device, goal, &demand);
		if (freed < goal)
			freed += take_picks(e, device, goal - freed, &demand, false, &begun);
	}
	if (freed > 0)
		e->again = true;
	return freed > 0 || begun || leaving(e, device, &demand) > 0;
}

/* Then only pins are in the way, or a device that fails. */
static void nobody_went(struct engine *e, struct request *q, uint8_t device,
			const struct quota_demand *demand)
{
	if (e->devices[device].clean_refused) {
		request_finish(e, q, -ENOMEM, "no memory to write back what stands there");
		return;
	}
	/* A brief look finds nothing else than the one before it that left nobody out. */
	q->denied |= e->asked_fully;
	e->judge |= e->asked_fully;
	trouble_tell(e, q, device, demand);
}

static void asked_for(struct engine *e, struct request *q, uint8_t device,
		      const struct quota_demand *demand, bool moving)
{
	if (moving)
		q->denied = false;
	else
		nobody_went(e, q, device, demand);
}

static uint64_t free_bytes(const struct device *d)
{
	return extents_capacity(d->extents) - extents_used(d->extents);
}

bool reclaim_more(struct engine *e, struct request *q, uint8_t device)
{
	return reclaim(e, device, GRANULE,
		       (struct quota_demand){ .account = quota_of_request(e, q), .asks = true });
}

static void begin_to_look(struct engine *e, uint8_t device)
{
	e->asked_fully = false;
	e->devices[device].clean_refused = false;
}

/* Memory that may still come goes before anybody has to.
 * Where bytes are free but no window can be emptied (what stands in the best one has no hole to go
 * to), one victim more goes, wherever it stands: that is a hole for it. */
void reclaim_for(struct engine *e, struct request *q, uint8_t device, uint64_t bytes)
{
	struct quota_demand demand = { .account = quota_of_request(e, q), .asks = true };
	struct device *d = &e->devices[device];
	uint64_t free = free_bytes(d);
	bool moving = d->leaving_bytes > 0;

	begin_to_look(e, device);
	if (slab_room_grow_head(e, q, device) || (free < bytes && slab_room_grow_any(e, device)))
		moving = true;
	else if (free < bytes)
		moving = reclaim(e, device, bytes - free, demand);
	else if (!moving)
		moving = compact(e, q, device) || slab_room_grow_any(e, device) ||
			 slab_room_trade(e, q, device) || reclaim_more(e, q, device);
	if (!moving && device_kind(e, device) == TIER_KIND_DRAM)
		moving = drop_wanted_shadow(e, q, device, &demand) || bring_one(e, q, device);
	asked_for(e, q, device, &demand, moving);
}

void reclaim_own(struct engine *e, struct request *q, const struct account *own, uint8_t device,
		 uint64_t bytes)
{
	struct quota_demand demand = { .account = own, .own = true };
	bool moving;

	begin_to_look(e, device);
	moving = reclaim(e, device, bytes, demand);
	if (!moving && device_kind(e, device) == TIER_KIND_DRAM)
		moving = drop_wanted_shadow(e, q, device, &demand) || bring_one(e, q, device);
	asked_for(e, q, device, &demand, moving);
}

/* What would like to come down from above finds room, but no hole, and there is no other way down.
 * Whoever waits for room himself makes his own. */
static void join_holes(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];
	uint64_t bytes = d->wanted_hole_bytes;

	d->wanted_hole_bytes = 0;
	if (bytes > 0 && bytes <= free_bytes(d) && !wants_room(e, device) &&
	    extents_largest_free(d->extents) < bytes)
		compact_for(e, device, bytes);
}

static uint64_t used_bytes(const struct engine *e, uint8_t device)
{
	return extents_used(e->devices[device].extents) - e->devices[device].closed_bytes;
}

static bool above_high(struct engine *e, uint8_t device)
{
	const struct engine_watermark *w = &e->params.watermark[device_kind(e, device)];

	return used_bytes(e, device) > slabs_capacity(e, device) / 1000 * w->high_permille;
}

bool reclaim_presses(struct engine *e, uint8_t device)
{
	return above_high(e, device) || !list_empty(queue_of(e, device)) ||
	       e->devices[device].wanted_bytes > 0;
}

/* Who is at its limit of dram, and has more to come down to it, makes room by itself. */
static void reclaim_wanted(struct engine *e, uint8_t device)
{
	for (unsigned i = 0; i < e->account_count; i++) {
		struct quota_share *s = &e->accounts[i].pool[device];
		struct quota_demand own = { .account = &e->accounts[i], .own = true };
		uint64_t wanted = s->wanted_bytes;

		s->wanted_bytes = 0;
		if (wanted > 0 && s->used_bytes + wanted > s->limit_bytes)
			reclaim(e, device, s->used_bytes + wanted - s->limit_bytes, own);
	}
}

void reclaim_device(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];
	const struct engine_watermark *w = &e->params.watermark[device_kind(e, device)];
	uint64_t used = used_bytes(e, device), goal = 0;
	uint64_t low = slabs_capacity(e, device) / 1000 * w->low_permille;
	const struct quota_demand nobody = { .account = NULL };

	join_holes(e, device);
	if (quotas_any(e) && device == e->dram)
		reclaim_wanted(e, device);
	if (e->now_ns < d->reclaim_at_ns)
		return;
	if (above_high(e, device))
		goal = used - low;
	if (d->wanted_bytes > free_bytes(d))
		goal = MAX(goal, d->wanted_bytes - free_bytes(d));
	d->wanted_bytes = 0;
	if (goal > 0 && !d->tier->base.on_demand && slab_room_grow(e, device, goal))
		return; /* there will be more of it in a moment */
	/* A clean that would end in a drop is begun once; more would only write the same bytes
	 * again. */
	if (goal > d->leaving_bytes && !reclaim(e, device, goal, nobody))
		d->reclaim_at_ns = e->now_ns + IDLE_RETRY_NS;
}

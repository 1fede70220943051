/* SPDX-License-Identifier: Apache-2.0
 *
 * A client *waits* when each of its threads that ever acquired anything is in an acquire that goes
 * on only when pins are gone. We begin with all of those and leave out whoever may be served by one
 * who is not among them, until nobody is left out any more: those who are left wait for nothing but
 * each other. What cannot be known is taken to end by itself: moves, holds, streams that will let
 * go, memory that may come, threads beyond those that have logs.
 */
#include "daemon/engine/deadlock.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "daemon/engine/deferred.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/holder.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slabs.h"

/* ---- clients ---- */

/* Threads of a client that ever acquired anything; UINT32_MAX: perhaps more than are known. */
static uint32_t threads_of(const struct holder *h)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < h->log_count; i++)
		n += atomic_load_explicit(&h->logs[i].owner, memory_order_relaxed) != 0;
	return n > 0 && n < h->log_count ? n : UINT32_MAX;
}

static bool may_wait(const struct request *q)
{
	return q->kind == REQUEST_ACQUIRE &&
	       (q->state == REQUEST_BLOCKED || q->state == REQUEST_QUEUED || q->polling);
}

static bool all_wait(const struct holder *h)
{
	const struct list *it;
	uint32_t n = 0;

	if (h->dead || h->stopped || list_empty(&h->requests))
		return false;
	list_for_each (it, &h->requests) {
		if (!may_wait(list_entry(it, struct request, holder_link)))
			return false;
		n++;
	}
	return n == threads_of(h) && !deferred_any(h);
}

/* ---- what is waited for ---- */

/* Whether some pin of the tensor is of a client that does not wait; those that do are marked. */
static bool is_held_outside(struct engine *e, uint32_t tensor, uint32_t *ret_holder)
{
	struct list *it;

	e->judge_looks++;
	list_for_each (it, &e->holders) {
		struct holder *h = list_entry(it, struct holder, link);

		if (h->dead || (atomic_load(&h->pins[tensor]) & PIN_ANY) == 0)
			continue;
		*ret_holder = h->id;
		if (!h->waits)
			return true;
		h->holds = true;
	}
	return false;
}

static bool moves_now(struct engine *e, const struct record *r)
{
	return r->granted > 0 || (r->move != 0 && !move_failed(move_get(e, r->move)));
}

/* Who asks whether anything changes. */
struct view {
	struct engine *e;
	const struct quota_demand *demand;
	uint64_t since_ns; /* memory that was refused since then does not come */
	bool all_wait;     /* pins are nobody's who could end them */
};

static bool may_leave(const struct view *v, uint8_t device, uint32_t tensor);

/* Of what stands on the device: whether it may go, or stay behind, without any of those who wait.
 */
static bool may_change(const struct view *v, uint8_t device, uint32_t tensor)
{
	const struct record *r = record_of(v->e, tensor);

	if (moves_now(v->e, r) || record_held(v->e, r) || (r->flags & RECORD_BACKOFF) != 0)
		return true;
	return may_leave(v, device, tensor);
}

/* Of dram, or its zone: whether anything that stands there may change. */
static bool dram_may_change(const struct view *v, uint8_t dram)
{
	struct device *d = &v->e->devices[dram];
	struct extent x;
	bool more;

	if (d->compacting > 0 || d->leaving_bytes > 0 || slabs_may_come(v->e, dram, v->since_ns))
		return true;
	for (more = extents_next(d->extents, EXTENT_NONE, &x); more;
	     more = extents_next(d->extents, x.node, &x)) {
		uint32_t holder;

		if (x.owner == EXTENT_FREE || x.owner == OWNER_SLAB)
			continue;
		if ((!v->all_wait && is_held_outside(v->e, x.owner, &holder)) ||
		    may_change(v, dram, x.owner))
			return true;
	}
	return false;
}

/* To reclaim what stands on a GPU has a home in dram. It has none where dram is full of what cannot
 * go itself: then only nvme is left. */
static bool may_leave(const struct view *v, uint8_t device, uint32_t tensor)
{
	struct engine *e = v->e;
	const struct record *r = record_of(e, tensor);
	const struct device *d = &e->devices[dram_of(e, r)];

	if (!reclaim_eligible(e, device, tensor) || !quota_yields(e, v->demand, tensor, device))
		return false;
	return device_kind(e, device) != TIER_KIND_HBM ||
	       reclaim_needs_no_dram(e, tensor, device) ||
	       replica_rounded(e, dram_of(e, r), r->bytes) <=
		       extents_capacity(d->extents) - extents_used(d->extents) ||
	       dram_may_change(v, dram_of(e, r));
}

/* The pin that was in the way when it was looked for last. */
static bool is_witnessed(const struct engine *e, const struct device *d)
{
	const struct holder *h =
		d->witness_holder < e->holder_room ? e->holder_table[d->witness_holder] : NULL;
	const struct record *r = &e->records[d->witness];

	return d->witness != 0 && h != NULL && !h->dead && !h->waits &&
	       (r->flags & RECORD_LIVE) != 0 && r->front != DEVICE_NONE &&
	       &e->devices[r->front] == d && (atomic_load(&h->pins[d->witness]) & PIN_ANY) != 0;
}

/* Who has begun to run has its extents, and goes on. */
static bool runs_outside(const struct engine *e, uint8_t device)
{
	const struct list *it;

	list_for_each (it, &e->running) {
		const struct request *q = list_entry(it, struct request, link);

		if (q->device == device && !q->holder->waits)
			return true;
	}
	return false;
}

/* Whether everything that is pinned there is those clients', and nothing else changes. Of an
 * account at its limit (`own`) that is all of its own: whatever room there is is not for it. */
static bool is_held_inside(struct engine *e, uint8_t device, const struct quota_demand *demand,
			   uint64_t since_ns)
{
	const struct view v = { .e = e, .demand = demand, .since_ns = since_ns };
	struct device *d = &e->devices[device];
	bool more, any = false;
	struct extent x;

	if (d->lost || d->compacting > 0 || runs_outside(e, device) ||
	    (!demand->own &&
	     (d->outside || slabs_may_come(e, device, since_ns) || is_witnessed(e, d))))
		return false;
	for (more = extents_next(d->extents, EXTENT_NONE, &x); more;
	     more = extents_next(d->extents, x.node, &x)) {
		uint32_t holder = 0;

		if (x.owner == EXTENT_FREE || x.owner == OWNER_SLAB ||
		    (demand->own && account_of(e, x.owner) != demand->account))
			continue;
		if (is_held_outside(e, x.owner, &holder)) {
			d->witness = x.owner;
			d->witness_holder = holder;
			d->outside = true;
			return false;
		}
		any |= holder != 0;
		if (may_change(&v, device, x.owner))
			return false;
	}
	return any;
}

/* ---- requests ---- */

static bool queued_is_stuck(struct engine *e, struct request *q)
{
	const struct request *head = list_first(&e->devices[q->device].queue, struct request, link);
	struct quota_demand demand = { .account = quota_of_request(e, q), .whole = true };
	uint8_t second = acquire_second_device(e, q);
	uint64_t over;

	if (!q->denied)
		return head != q && head->denied && head->holder->waits;
	if (quota_limits(e, q, &over) != NULL) {
		demand.account = quota_limits(e, q, &over);
		demand.own = true;
	}
	return is_held_inside(e, q->device, &demand, q->begin_ns) ||
	       (second != q->device && is_held_inside(e, second, &demand, q->begin_ns));
}

/* It polls: each tensor that it has not got is pinned at another place. */
static bool polling_is_stuck(struct engine *e, const struct request *q)
{
	const struct list *it;
	size_t n = 0;

	list_for_each (it, &q->todo) {
		const struct item *item = list_entry(it, struct item, link);
		const struct record *r;
		uint32_t holder = 0;

		if (!handle_live(e, item->tensor, item->generation))
			return false;
		r = record_of(e, item->tensor);
		if (r->move != 0 || r->granted > 0 || record_held(e, r) ||
		    is_held_outside(e, item->tensor, &holder) || holder == 0)
			return false;
		n++;
	}
	return n > 0 && n == q->open;
}

/* It waits for earlier requests: all that are under way are of those clients. */
static bool blocked_is_stuck(const struct engine *e)
{
	const struct list *it;

	list_for_each (it, &e->running)
		if (!list_entry(it, struct request, link)->holder->waits)
			return false;
	list_for_each (it, &e->holders)
		if (!list_empty(&list_entry(it, struct holder, link)->granted))
			return false;
	for (unsigned i = 0; i < e->device_count; i++)
		list_for_each (it, &e->devices[i].queue)
			if (!list_entry(it, struct request, link)->holder->waits)
				return false;
	return true;
}

static bool is_stuck(struct engine *e, struct request *q)
{
	switch (q->state) {
	case REQUEST_QUEUED:
		return queued_is_stuck(e, q);
	case REQUEST_RUNNING:
		return polling_is_stuck(e, q);
	default:
		return blocked_is_stuck(e);
	}
}

/* ---- the judgement ---- */

static bool leave_out(struct engine *e, struct holder *h)
{
	struct list *it;

	list_for_each (it, &h->requests)
		if (!is_stuck(e, list_entry(it, struct request, holder_link))) {
			h->waits = false;
			return true;
		}
	return false;
}

/* Who waits for nobody outside. Returns whether there are any. */
static bool find_waiters(struct engine *e)
{
	bool any, changed;
	struct list *it;

	for (unsigned i = 0; i < e->device_count; i++)
		e->devices[i].outside = false;
	list_for_each (it, &e->holders) {
		struct holder *h = list_entry(it, struct holder, link);

		h->waits = all_wait(h);
	}
	do {
		any = changed = false;
		list_for_each (it, &e->holders)
			list_entry(it, struct holder, link)->holds = false;
		list_for_each (it, &e->holders) {
			struct holder *h = list_entry(it, struct holder, link);

			changed |= h->waits && leave_out(e, h);
			any |= h->waits;
		}
	} while (changed);
	return any;
}

/* Of those who hold something that is waited for: to end another's wait would help nobody. */
static struct request *youngest(struct engine *e, unsigned *ret_clients)
{
	struct request *ret = NULL;
	struct list *it, *it2;

	*ret_clients = 0;
	list_for_each (it, &e->holders) {
		struct holder *h = list_entry(it, struct holder, link);

		if (!h->waits || !h->holds)
			continue;
		++*ret_clients;
		list_for_each (it2, &h->requests) {
			struct request *q = list_entry(it2, struct request, holder_link);

			if (ret == NULL || q->sequence > ret->sequence)
				ret = q;
		}
	}
	return ret;
}

static void tell_of_pins(struct engine *e, struct request *q, unsigned clients)
{
	char text[192];

	if (clients == 1)
		snprintf(text, sizeof(text),
			 "what it waits for in %s is pinned by this client alone, which waits: "
			 "release something first",
			 e->devices[q->device].tier->base.name);
	else
		snprintf(text, sizeof(text),
			 "what it waits for in %s is pinned by %u clients that all wait for each "
			 "other, this one the latest: release something first",
			 e->devices[q->device].tier->base.name, clients);
	stat_add(STAT(e, deadlocks), 1);
	log_info(MOVE, "client of pid %d: %s", q->holder->pid, text);
	request_finish(e, q, -EDEADLK, text);
}

/* ---- without a pin ---- */

/* It destroys what is of its namespace, if there is anything. */
static bool may_destroy(const struct engine *e, const struct holder *h)
{
	const struct list *it;

	if (e->name_spaces[h->name_space].first != TENSOR_NONE)
		return true;
	list_for_each (it, &e->holders) {
		const struct holder *of = list_entry(it, struct holder, link);

		if (of->name_space == h->name_space && of->first != TENSOR_NONE)
			return true;
	}
	return false;
}

/* Nobody is left who could destroy something: who only looks on, as tierctl, cannot. */
static bool everybody_waits(const struct engine *e)
{
	const struct list *it;

	list_for_each (it, &e->holders) {
		const struct holder *h = list_entry(it, struct holder, link);

		if (!h->dead && !h->stopped && !all_wait(h) && may_destroy(e, h))
			return false;
	}
	return true;
}

/* What stands there was written, nothing below has room for it, and nobody pins it. Of an account
 * at its limit (`own`) that is what it has there itself. */
static bool is_full_for_good(struct engine *e, const struct request *q,
			     const struct quota_demand *demand)
{
	const struct view v = {
		.e = e, .demand = demand, .since_ns = q->begin_ns, .all_wait = true
	};
	struct device *d = &e->devices[q->device];
	bool more, any = false;
	struct extent x;

	if (d->lost || d->compacting > 0 || d->leaving_bytes > 0 ||
	    (!demand->own && slabs_may_come(e, q->device, q->begin_ns)))
		return false;
	for (more = extents_next(d->extents, EXTENT_NONE, &x); more;
	     more = extents_next(d->extents, x.node, &x)) {
		if (x.owner == EXTENT_FREE || x.owner == OWNER_SLAB ||
		    (demand->own && account_of(e, x.owner) != demand->account))
			continue;
		e->judge_looks++;
		if (pins_any(e, x.owner) || may_change(&v, q->device, x.owner))
			return false;
		any = true;
	}
	return any;
}

/* Whether it was told so, and is gone. */
static bool tell_if_full(struct engine *e, struct request *q)
{
	struct quota_demand demand = { .account = quota_of_request(e, q), .whole = true };
	const char *tier = e->devices[q->device].tier->base.name;
	char text[320], name[128];
	struct account *limited;
	uint64_t over;

	limited = quota_limits(e, q, &over);
	if (limited != NULL)
		demand = (struct quota_demand){ .account = limited, .own = true };
	if (!is_full_for_good(e, q, &demand))
		return false;
	snprintf(text, sizeof(text),
		 "%s has no room for it%s%s: what stands there was written, below is no room for "
		 "that, and all clients wait: destroy something first",
		 tier, limited != NULL ? " within the limit of " : "",
		 limited != NULL ? quota_text(e, limited, name) : "");
	log_info(MOVE, "client of pid %d: %s", q->holder->pid, text);
	request_finish(e, q, limited != NULL ? -EDQUOT : -ENOSPC, text);
	return true;
}

static bool tell_of_room(struct engine *e)
{
	struct list *it, *tmp;

	if (!list_empty(&e->running) || !everybody_waits(e))
		return false;
	for (unsigned i = 0; i < e->device_count; i++)
		list_for_each_safe (it, tmp, &e->devices[i].queue) {
			struct request *q = list_entry(it, struct request, link);

			if (q->denied && request_is_live(e, q) && tell_if_full(e, q))
				return true;
		}
	return false;
}

bool deadlock_judge(struct engine *e)
{
	struct request *q = NULL;
	unsigned clients;
	bool told = false;

	if (e->now_ns < e->judge_at_ns)
		return false; /* whoever waits asks again */
	e->judge_looks = 0;
	if (find_waiters(e))
		q = youngest(e, &clients);
	if (q == NULL)
		told = tell_of_room(e);
	e->judge_at_ns = e->now_ns + pins_rest_ns(e, e->judge_looks);
	if (q != NULL)
		tell_of_pins(e, q, clients);
	return q != NULL || told;
}

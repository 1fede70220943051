/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/holder.h"

#include <errno.h>

#include "base/heap.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/fence.h"
#include "daemon/engine/front.h"
#include "daemon/engine/move.h"
#include "daemon/engine/name_space.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slabs.h"
#include "daemon/engine/tensor.h"

static int take_id(struct engine *e, uint32_t *ret)
{
	uint32_t room = MAX(e->holder_room * 2, 4u);
	struct holder **grown;

	for (uint32_t i = 1; i < e->holder_room; i++) {
		if (e->holder_table[i] == NULL) {
			*ret = i;
			return 0;
		}
	}
	grown = heap_grow(e->holder_table, room, sizeof(struct holder *));
	if (grown == NULL)
		return -ENOMEM;
	for (uint32_t i = e->holder_room; i < room; i++)
		grown[i] = NULL;
	*ret = MAX(e->holder_room, 1u);
	e->holder_table = grown;
	e->holder_room = room;
	return 0;
}

int engine_holder_add(struct engine *e, const char *name_space, size_t name_bytes,
		      const struct holder_tables *tables, int pid, void *user, struct holder **ret,
		      struct err *err)
{
	struct holder *h;
	uint32_t id;
	uint16_t ns;
	int rc;

	if (name_bytes == 0 || name_bytes > PROTOCOL_NAME_MAX)
		return err_set(err, EINVAL, "a namespace has 1 to %u bytes", PROTOCOL_NAME_MAX);
	h = heap_zeros(1, sizeof(*h));
	if (h == NULL || take_id(e, &id) < 0) {
		heap_free(h);
		return err_set(err, ENOMEM, "no memory for a client");
	}
	rc = name_space_enter(e, name_space, name_bytes, tables->uid, &ns);
	if (rc < 0) {
		heap_free(h);
		return err_set(err, -rc, "no room for another namespace");
	}
	*h = (struct holder){ .magic = HOLDER_MAGIC,
			      .id = id,
			      .pins = tables->pins,
			      .fences = tables->fences,
			      .streams = tables->streams,
			      .deferred = tables->deferred,
			      .logs = tables->logs,
			      .log_count = tables->log_count,
			      .pid = pid,
			      .uid = tables->uid,
			      .name_space = ns,
			      .first = TENSOR_NONE,
			      .user = user };
	list_init(&h->requests);
	list_init(&h->granted);
	list_push_back(&e->holders, &h->link);
	e->holder_table[id] = h;
	h->steps = e->name_spaces[ns].steps;
	*ret = h;
	return 0;
}

/* The ranks of a job step together: a namespace is as far as its furthest client. */
void holder_step(struct engine *e, struct holder *h)
{
	struct name_space *ns = &e->name_spaces[h->name_space];

	ASSERT_OBJ(h, HOLDER_MAGIC);
	h->steps++;
	ns->steps = MAX(ns->steps, h->steps);
}

void *engine_holder_user(const struct holder *h)
{
	ASSERT_OBJ(h, HOLDER_MAGIC);
	return h->user;
}

void engine_holder_stop(struct engine *e, struct holder *h)
{
	ASSERT_OBJ(h, HOLDER_MAGIC);
	h->stopped = true;
	requests_drop_holder(e, h);
	requests_settle(e);
}

void engine_holder_die(struct engine *e, struct holder *h, uint64_t now_ns)
{
	ASSERT_OBJ(h, HOLDER_MAGIC);
	ASSERT(!h->dead);
	e->now_ns = now_ns;
	h->dead = h->stopped = true; /* its pins count no more, whatever their number */
	requests_drop_holder(e, h);
	slabs_holder_gone(e, h);
	fences_forget(e, h);
	e->failed_at_ns = e->poll_at_ns = now_ns; /* perhaps they were the last ones */
	h->end = ++e->ends_ever;
	list_remove(&h->link);
	list_push_back(&e->tombstones, &h->link);
	tensor_destroy_some(e, &h->first, h->end, DESTROYS_A_TURN);
	name_space_leave(e, h->name_space);
	h->sweep = 1;
	e->again = true;
	requests_settle(e);
}

bool record_held(const struct engine *e, const struct record *r)
{
	const struct holder *h;

	if (r->hold_until_ns <= e->now_ns)
		return false;
	h = e->holder_table[r->hold_holder];
	return h != NULL && !h->dead;
}

/* One slot of a dead client: what it wrote becomes the daemon's own knowledge. false: the tensor
 * moves just now, and the bit has to be seen when the move ends. */
static bool take_over(struct engine *e, struct holder *h, uint32_t tensor)
{
	const struct record *r = &e->records[tensor];
	uint64_t slot = atomic_load(&h->pins[tensor]);

	if ((slot & (PIN_WRITTEN | PIN_FILLED)) == 0 || !(r->flags & RECORD_LIVE))
		return true;
	/* What a failed fill leaves under pins stands as long as those do. What was said of it
	 * means nothing, and of the front before it all was known when that was closed. */
	if (r->move != 0 && !move_failed(move_get(e, r->move)))
		return false;
	if (r->front == DEVICE_NONE)
		return true; /* it went with its bits looked at */
	if ((slot & PIN_FILLED) != 0)
		front_settle(e, tensor);
	/* Of an unfilled front `written` says nothing: a miss leaves it behind. Nor does it of one
	 * that has failed with its device, where it was looked at before (lost.c). */
	if ((slot & PIN_WRITTEN) != 0 && !front_unfilled(e, tensor) &&
	    state_of(e, tensor) != STATE_FAILED)
		source_set(e, tensor, front_source(e, r));
	atomic_fetch_and(&h->pins[tensor], ~(PIN_WRITTEN | PIN_FILLED));
	return true;
}

/* Its number will be another's. */
static void forget_hold(struct engine *e, const struct holder *h, uint32_t tensor)
{
	if (e->records[tensor].hold_holder == h->id)
		e->records[tensor].hold_until_ns = 0;
}

static void bury_holder(struct engine *e, struct holder *h)
{
	list_remove(&h->link);
	name_space_put(e, h->name_space);
	e->holder_table[h->id] = NULL;
	e->params.hooks.holder_gone(e->params.hooks.ctx, h);
	h->magic = 0;
	heap_free(h);
}

uint64_t holders_turn(struct engine *e)
{
	struct list *it, *tmp;
	uint64_t next = ENGINE_NEVER;

	list_for_each_safe (it, tmp, &e->tombstones) {
		struct holder *h = list_entry(it, struct holder, link);
		uint32_t end = MIN(e->index_high, h->sweep + SWEEP_SLOTS);

		tensor_destroy_some(e, &h->first, h->end, DESTROYS_A_TURN);
		if (h->first != TENSOR_NONE) {
			next = e->now_ns;
			continue;
		}
		for (; h->sweep < end && take_over(e, h, h->sweep); h->sweep++)
			forget_hold(e, h, h->sweep);
		if (h->sweep < e->index_high)
			next = MIN(next, h->sweep < end ? e->now_ns + NS_PER_MS : e->now_ns);
		else
			bury_holder(e, h);
	}
	return next;
}

/* Where clients may pin it. */
static uint8_t used_at(struct engine *e, uint32_t tensor)
{
	const struct record *r = &e->records[tensor];

	if (state_of(e, tensor) == STATE_FILLING)
		return move_get(e, r->move)->to;
	return r->front;
}

void engine_used(struct engine *e, struct holder *h, uint32_t index, uint8_t place, uint8_t access,
		 uint64_t now_ns)
{
	struct record *r;
	uint8_t device;

	e->now_ns = now_ns;
	stat_add(STAT(e, hits_logged), 1);
	if (index == 0 || index >= e->index_high || !(e->records[index].flags & RECORD_LIVE))
		return;
	r = &e->records[index];
	/* A try that missed is logged too; the one that hits after it counts. */
	device = used_at(e, index);
	if (device == DEVICE_NONE || e->devices[device].place != place)
		return;
	if (r->hold_holder == h->id)
		r->hold_until_ns = 0;
	r->flags &= (uint16_t)~RECORD_HINTED;
	r->used_ns = now_ns;
	r->used_step = e->name_spaces[r->name_space].steps;
	if ((access & ACCESS_DISCARD) != 0 && state_of(e, index) == STATE_RESIDENT)
		front_settle(e, index); /* before a reader has to ask for it */
	policy_tell(e, index, POLICY_EVENT_USED, device, POLICY_TIER_NONE, access);
}

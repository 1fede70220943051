/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires: all the tensors of a request in one place, or none.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/admission.h"
#include "daemon/engine/deferred.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/fence.h"
#include "daemon/engine/front.h"
#include "daemon/engine/holder.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"

static bool resident_at(struct engine *e, uint32_t tensor, uint8_t device)
{
	const struct record *r = record_of(e, tensor);

	return r->front == device_at(e, r, device) && state_of(e, tensor) == STATE_RESIDENT;
}

/* Whether the client's pin would hit. */
static bool in_place(struct engine *e, const struct request *q, uint32_t tensor)
{
	if (!resident_at(e, tensor, q->device))
		return false;
	return (q->access & ACCESS_DISCARD) != 0 || front_settle(e, tensor);
}

/* ---- admission ---- */

/* Large ones take their holes first; the order of a batch means nothing else to the engine. A
 * tensor named twice stands side by side. */
static int compare_items(const struct engine *e, const struct item *x, const struct item *y)
{
	uint64_t x_bytes = e->records[x->tensor].bytes, y_bytes = e->records[y->tensor].bytes;

	if (x_bytes != y_bytes)
		return x_bytes < y_bytes ? 1 : -1;
	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* One walk along both: they are sorted. */
static bool shares_tensor(const struct engine *e, const struct request *a, const struct request *b)
{
	for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
		int order = compare_items(e, &a->items[i], &b->items[j]);

		if (order == 0)
			return true;
		i += order < 0;
		j += order > 0;
	}
	return false;
}

/* Someone who came earlier wants one of the tensors at another place: places are served first in,
 * first out. */
bool acquire_is_blocked(struct engine *e, const struct request *q)
{
	struct list *it;

	for (size_t i = 0; i < q->n; i++) {
		const struct record *r = record_of(e, q->items[i].tensor);

		if (r->wanted > 0 && r->wanted_device != q->device && !q->items[i].wanted)
			return true;
	}
	list_for_each (it, &e->blocked) {
		const struct request *b = list_entry(it, struct request, link);

		if (b->sequence < q->sequence && b->device != q->device && shares_tensor(e, b, q))
			return true;
	}
	return false;
}

void acquire_want_items(struct engine *e, struct request *q)
{
	for (size_t i = 0; i < q->n; i++) {
		struct record *r = record_of(e, q->items[i].tensor);

		if (q->items[i].wanted)
			continue;
		q->items[i].wanted = true;
		r->wanted++;
		r->wanted_device = q->device;
	}
}

uint8_t item_device(struct engine *e, const struct item *item)
{
	return device_at(e, record_of(e, item->tensor), item->request->device);
}

/* Gives back what is reserved and what stands ready: who waits for room has none reserved. */
void acquire_let_go(struct engine *e, struct request *q)
{
	for (size_t i = 0; i < q->n; i++) {
		struct item *item = &q->items[i];

		list_remove(&item->link);
		if (item->node != EXTENT_NONE)
			replica_give(e, item_device(e, item), item->node);
		item->node = EXTENT_NONE;
		if (item->ready && q->kind == REQUEST_ACQUIRE)
			record_of(e, item->tensor)->ready--;
		item->ready = item->arriving = false;
	}
	q->arriving = 0;
}

void acquire_release_items(struct engine *e, struct request *q)
{
	acquire_let_go(e, q);
	for (size_t i = 0; i < q->n; i++) {
		if (q->items[i].wanted)
			record_of(e, q->items[i].tensor)->wanted--;
		q->items[i].wanted = false;
	}
}

bool acquire_needs_room(struct engine *e, const struct request *q, const struct item *item)
{
	const struct record *r = record_of(e, item->tensor);
	const struct move *m = r->move != 0 ? move_get(e, r->move) : NULL;
	uint8_t device = item_device(e, item);

	if (r->front == device || (m != NULL && m->kind == MOVE_FILL && m->to == device))
		return false;
	return move_fill_needs_room(e, item->tensor, device);
}

/* ---- running ---- */

static int waits_for_pins(struct engine *e, struct request *q)
{
	request_poll(e, q);
	e->judge = true;
	return -EBUSY;
}

bool acquire_may_fill(struct engine *e, uint32_t tensor)
{
	return record_of(e, tensor)->granted > 0 || pins_any(e, tensor);
}

/* A reader at an UNFILLED front: its writer may still say `filled`; without a pin it never will. */
int acquire_drop_unfilled(struct engine *e, struct request *q, uint32_t tensor)
{
	if (acquire_may_fill(e, tensor))
		return waits_for_pins(e, q);
	return front_drop(e, tensor) == -EBUSY ? waits_for_pins(e, q) : 0;
}

/* There, or about to be. */
static bool on_its_way(struct engine *e, const struct request *q, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);

	return resident_at(e, tensor, q->device) ||
	       (r->move != 0 && move_brings(move_get(e, r->move), device_at(e, r, q->device)));
}

static bool lacks(const struct request *q, uint32_t tensor)
{
	for (size_t i = 0; i < q->n; i++)
		if (q->items[i].tensor == tensor)
			return !q->items[i].ready;
	return false;
}

bool acquire_takes(struct engine *e, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);
	const struct list *it;

	if (r->wanted == 0 || device_at(e, r, r->wanted_device) == r->front || pins_any(e, tensor))
		return false;
	list_for_each (it, &e->running) {
		const struct request *q = list_entry(it, struct request, link);

		if (q->kind == REQUEST_ACQUIRE && lacks(q, tensor))
			return true;
	}
	return false;
}

int acquire_blocker(struct engine *e, const struct request *q)
{
	struct pins pins;

	for (size_t i = 0; i < q->n; i++) {
		const struct item *item = &q->items[i];

		if (!handle_live(e, item->tensor, item->generation) || item->ready ||
		    state_of(e, item->tensor) == STATE_ABSENT || on_its_way(e, q, item->tensor))
			continue;
		pins_scan(e, item->tensor, q->holder, &pins);
		if (pins.foreign_pid > 0)
			return pins.foreign_pid;
	}
	return 0;
}

static bool held_for_another(struct engine *e, const struct request *q, const struct record *r)
{
	return r->front != DEVICE_NONE && r->front != device_at(e, r, q->device) &&
	       r->hold_holder != q->holder->id && record_held(e, r);
}

static int begin_fill(struct engine *e, struct request *q, struct item *item)
{
	const struct record *r = record_of(e, item->tensor);
	uint32_t node = item->node;
	uint8_t device = item_device(e, item);
	int rc;

	if (node == EXTENT_NONE && move_fill_needs_room(e, item->tensor, device)) {
		rc = replica_take(e, device, item->tensor, &node);
		if (rc < 0)
			return rc;
	}
	rc = move_fill(e, item->tensor, device, node, XFER_DEMAND,
		       (q->access & ACCESS_DISCARD) != 0, q->holder);
	item->node = rc < 0 ? node : EXTENT_NONE;
	ASSERT(rc < 0 || r->move != 0 || r->front == device); /* or it would be tried for ever */
	if (rc == -EDEADLK && !deferred_plain_pin(q->holder, item->tensor))
		rc = -EBUSY; /* its own streams will let it go */
	return rc == -EBUSY ? waits_for_pins(e, q) : rc;
}

/* Nothing is won by an end of the clean while others pin the front, and who flushes what he has
 * pinned himself may be one of them: he lets go when it has ended. */
static bool clean_goes_on(struct engine *e, const struct request *q, uint32_t tensor,
			  const struct move *m)
{
	return m->kind == MOVE_CLEAN && !deferred_plain_pin(q->holder, tensor) &&
	       pins_any(e, tensor);
}

/* The tensor's move goes first. -EBUSY: only once its front is not pinned. -EIO: it would wait for
 * a pin of its own on what has failed. */
static int item_join(struct engine *e, struct request *q, struct item *item, struct move *m)
{
	if (clean_goes_on(e, q, item->tensor, m))
		return waits_for_pins(e, q);
	if (move_failed(m) && deferred_plain_pin(q->holder, item->tensor)) {
		snprintf(q->cause, sizeof(q->cause), "pinned by this client, but %s", m->cause);
		return -EIO;
	}
	if (m->kind == MOVE_CLEAN)
		move_stop(m); /* demand first; the clean is tried again */
	else
		move_urge(e, m);
	item_wait(e, item);
	/* What will be left unfilled is there for those alone who overwrite it. */
	if (q->on && !item->arriving && move_brings(m, item_device(e, item)) &&
	    (!m->unfilled || (q->access & ACCESS_DISCARD) != 0)) {
		item->arriving = true;
		q->arriving++;
	}
	return -EAGAIN;
}

/* Somebody else may have begun to overwrite it. 0: look again. */
static int item_lost(struct engine *e, struct request *q, struct item *item)
{
	if (record_of(e, item->tensor)->front == DEVICE_NONE)
		return lost_text(e, item->tensor, q->cause, sizeof(q->cause));
	return front_settle(e, item->tensor) ? 0 : acquire_drop_unfilled(e, q, item->tensor);
}

/* 0: ready. -EAGAIN: a move is on its way. -EBUSY: looked at again by poll. -ENOSPC: what was
 * joined went another way and there is no room. Anything else ends the request. */
static int item_advance(struct engine *e, struct request *q, struct item *item)
{
	struct record *r = record_of(e, item->tensor);
	int rc;

	for (;;) {
		if (in_place(e, q, item->tensor))
			break;
		if (r->move != 0)
			return item_join(e, q, item, move_get(e, r->move));
		if (lost_front(e, r) && state_of(e, item->tensor) == STATE_FAILED)
			rc = lost_wait(e, q, item->tensor);
		else if (resident_at(e, item->tensor, q->device))
			rc = acquire_drop_unfilled(e, q, item->tensor);
		else if (held_for_another(e, q, r))
			rc = waits_for_pins(e, q);
		else if ((r->flags & RECORD_LOST) != 0 && (q->access & ACCESS_DISCARD) == 0)
			rc = item_lost(e, q, item);
		else
			rc = begin_fill(e, q, item);
		if (rc < 0)
			return rc;
	}
	if (item->node != EXTENT_NONE)
		replica_give(e, item_device(e, item), item->node);
	item->node = EXTENT_NONE;
	item->ready = true;
	r->ready++;
	return 0;
}

/* The asker has 100 ms to pin what was brought for it; its first use ends the hold. */
static void hold_items(struct engine *e, const struct request *q)
{
	for (size_t i = 0; i < q->n; i++) {
		struct record *r = record_of(e, q->items[i].tensor);

		r->hold_until_ns = e->now_ns + HOLD_NS;
		r->hold_holder = q->holder->id;
	}
}

static void fail_own_pin(struct engine *e, struct request *q, const struct item *item)
{
	char name[TENSOR_TEXT_BYTES], text[128];

	snprintf(text, sizeof(text), "%s is pinned at another place by this client",
		 tensor_text(e, item->tensor, name));
	request_finish(e, q, -EDEADLK, text);
}

/* What its running part came upon went another way: it waits for room again. */
static void queue_again(struct engine *e, struct request *q)
{
	acquire_let_go(e, q);
	q->denied = q->brings = false;
	acquire_enter(q, REQUEST_QUEUED, &e->devices[q->device].queue);
	look_at_queues(e);
	e->poll_at_ns = MIN(e->poll_at_ns, e->now_ns + POLL_NS);
}

/* False: the request is not running any more. */
static bool step_item(struct engine *e, struct request *q, struct item *item)
{
	int rc = item_advance(e, q, item);

	switch (rc) {
	case 0:
		q->open--;
		return true;
	case -EAGAIN:
		ASSERT(list_linked(&item->link));
		return true;
	case -EBUSY:
		list_push_back(&q->todo, &item->link);
		return true;
	case -ENOSPC:
	case -EDQUOT:
		queue_again(e, q);
		return false;
	case -EDEADLK:
		fail_own_pin(e, q, item);
		return false;
	case -EIO:
		request_finish(e, q, rc, q->cause);
		return false;
	default:
		request_finish(e, q, rc, strerror(-rc));
		return false;
	}
}

/* Everything that it needs is reserved. */
void acquire_run(struct engine *e, struct request *q)
{
	acquire_enter(q, REQUEST_RUNNING, &e->running);
	q->open = q->n;
	for (size_t i = 0; i < q->n; i++)
		list_push_back(&q->todo, &q->items[i].link);
	acquire_step(e, q);
}

static void finish_there(struct engine *e, struct request *q)
{
	hold_items(e, q);
	request_finish(e, q, 0, "");
}

/* A front that its discarding writer had not filled may have been dropped for a reader since it was
 * found in place. Whoever waits for the others may lose it that way; a fence must not. */
static bool reopen_lost(struct engine *e, struct request *q)
{
	bool lost = false;

	for (size_t i = 0; i < q->n; i++) {
		struct item *item = &q->items[i];

		if (!item->ready || in_place(e, q, item->tensor))
			continue;
		item->ready = false;
		record_of(e, item->tensor)->ready--;
		q->open++;
		list_push_back(&q->todo, &item->link);
		lost = true;
	}
	if (lost)
		request_wake(e, q);
	return lost;
}

/* Nothing but time is between the request and its tensors. Without a fence it waits that time. */
static void grant(struct engine *e, struct request *q)
{
	uint64_t token;

	if (reopen_lost(e, q) || !fence_take(q, &token))
		return;
	hold_items(e, q);
	for (size_t i = 0; i < q->n; i++) {
		struct item *item = &q->items[i];

		record_of(e, item->tensor)->granted++;
		if (item->node != EXTENT_NONE)
			replica_give(e, item_device(e, item), item->node); /* a fill was joined */
		item->node = EXTENT_NONE;
	}
	request_grant(e, q, token);
}

/* Only those are looked at for which something has changed: a batch may be thousands. */
void acquire_step(struct engine *e, struct request *q)
{
	struct list now, *it;

	q->polling = false;
	list_init(&now);
	list_splice(&now, &q->todo);
	while ((it = list_pop_front(&now)) != NULL)
		if (!step_item(e, q, list_entry(it, struct item, link)))
			return;
	if (q->open > q->arriving)
		return;
	if (q->arriving > 0)
		grant(e, q);
	else
		finish_there(e, q);
}

/* ---- the call ---- */

static int larger_first(const void *a, const void *b, void *ctx)
{
	return compare_items(ctx, a, b);
}

/* Before anything points to an item. A tensor that was named twice is brought once; the client pins
 * it as often as it likes. */
static void sort_items(struct engine *e, struct request *q)
{
	size_t n = 0;

	qsort_r(q->items, q->n, sizeof(q->items[0]), larger_first, e);
	for (size_t i = 0; i < q->n; i++)
		if (n == 0 || q->items[n - 1].tensor != q->items[i].tensor)
			q->items[n++] = q->items[i];
	q->n = n;
	for (size_t i = 0; i < q->n; i++)
		list_init(&q->items[i].link);
}

static bool all_in_place(struct engine *e, struct request *q)
{
	for (size_t i = 0; i < q->n; i++)
		if (!in_place(e, q, q->items[i].tensor))
			return false;
	return true;
}

static int check_acquire(struct engine *e, struct request *q, uint8_t place, char *text,
			 size_t room)
{
	q->device = e->hbm_by_place[place];
	if (q->device == DEVICE_NONE) {
		snprintf(text, room, "there is no gpu %u here", place);
		return -ENODEV;
	}
	if (e->devices[q->device].lost) {
		snprintf(text, room, "%s was lost", e->devices[q->device].tier->base.name);
		return -ENODEV;
	}
	if (!request_is_live(e, q)) {
		request_name_stale(e, q, text, room);
		return -ESTALE;
	}
	sort_items(e, q);
	return acquire_can_fit(e, q, text, room);
}

static void acquire_begin(struct engine *e, struct request *q, uint8_t place)
{
	char text[256];
	int rc = check_acquire(e, q, place, text, sizeof(text));

	if (rc < 0) {
		request_finish(e, q, rc, text);
	} else if (q->deadline_ns != 0) {
		e->next_deadline_ns = MIN(e->next_deadline_ns, q->deadline_ns);
		acquire_admit(e, q);
	} else if (all_in_place(e, q)) {
		finish_there(e, q);
	} else {
		request_finish(e, q, -ETIMEDOUT, "not in place, and the timeout says not to wait");
	}
}

static void acquire_call(struct engine *e, struct request *q, uint8_t place, uint8_t access,
			 uint64_t deadline_ns)
{
	stat_add(STAT(e, misses), 1);
	if (q != NULL) {
		q->access = access;
		q->deadline_ns = deadline_ns;
		acquire_begin(e, q, place);
	}
	requests_settle(e);
}

void engine_acquire(struct engine *e, struct holder *h, uint32_t id, const struct wire_handle *t,
		    size_t n, uint8_t place, uint8_t access, uint64_t deadline_ns, uint64_t now_ns)
{
	e->now_ns = now_ns;
	acquire_call(e, request_new(e, h, id, REQUEST_ACQUIRE, t, n), place, access, deadline_ns);
}

void engine_acquire_on(struct engine *e, struct holder *h, uint32_t id, const struct wire_handle *t,
		       size_t n, uint8_t place, uint8_t access, uint64_t deadline_ns,
		       uint64_t now_ns)
{
	struct request *q;

	e->now_ns = now_ns;
	q = request_new(e, h, id, REQUEST_ACQUIRE, t, n);
	if (q != NULL && place == PROTOCOL_PLACE_HOST) {
		request_finish(e, q, -ENODEV, "acquire_on is for the places of gpus");
		q = NULL;
	}
	if (q != NULL)
		q->on = h->fences != NULL;
	acquire_call(e, q, place, access, deadline_ns);
}

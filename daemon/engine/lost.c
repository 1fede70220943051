/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/lost.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/plural.h"
#include "daemon/engine/deferred.h"
#include "daemon/engine/front.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/prefetch.h"
#include "daemon/engine/publish.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slabs.h"
#include "daemon/engine/tensor.h"

#define NAMES_LOGGED 4u

void lost_device(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];

	if (d->lost)
		return;
	d->lost = true;
	e->lost_any = e->lost_look = e->again = true;
	slabs_count_backed(e, TIER_KIND_HBM);
	log_error(TIER, "%s is lost: what stood there is taken from below where it can be",
		  d->tier->base.name);
}

int lost_text(struct engine *e, uint32_t tensor, char *text, size_t room)
{
	const struct record *r = record_of(e, tensor);
	char name[TENSOR_TEXT_BYTES];

	snprintf(text, room, "%s: %s on %s, which was lost", tensor_text(e, tensor, name),
		 lost_front(e, r) ? "it is pinned" : "its bytes were",
		 e->devices[r->lost_on].tier->base.name);
	return -EIO;
}

int lost_wait(struct engine *e, struct request *q, uint32_t tensor)
{
	if (deferred_plain_pin(q->holder, tensor))
		return lost_text(e, tensor, q->cause, sizeof(q->cause));
	request_poll(e, q);
	return -EBUSY;
}

void lost_move_ended(struct engine *e, uint32_t tensor)
{
	const struct record *r = record_of(e, tensor);

	if (r->hbm_node != EXTENT_NONE && e->devices[r->hbm_device].lost)
		e->lost_look = e->again = true;
}

static void lose(struct engine *e, uint32_t tensor, uint8_t device)
{
	struct record *r = record_of(e, tensor);
	char text[192];

	source_add(e, tensor, SOURCE_ZERO); /* what a writer begins with; nobody reads it */
	r->flags |= RECORD_LOST;
	r->lost_on = device;
	stat_add(STAT(e, tensors_lost), 1);
	if (e->devices[device].lost_tensors++ >= NAMES_LOGGED)
		return;
	lost_text(e, tensor, text, sizeof(text));
	log_error(TIER, "%s", text);
}

/* Pinned: nobody else is let in. What was written so far is known now: whoever writes has set the
 * bit as it came in. A bit that is set from here on is of somebody who backs out, and a copy below
 * must not be given up for that. */
static void fail_front(struct engine *e, uint32_t tensor, uint8_t device)
{
	bool unfilled = front_unfilled(e, tensor);
	struct pins pins;

	record_of(e, tensor)->lost_on = device;
	publish(e, tensor, STATE_FAILED, unfilled ? FLAG_UNFILLED : 0);
	pins_scan(e, tensor, NULL, &pins);
	if (!unfilled && pins.written)
		source_set(e, tensor, SOURCE_HBM);
}

/* The last pin of a failed front is gone. `filled`, unlike `written`, is said by those alone who
 * are in, and they may have said it until now. */
static void end_failed(struct engine *e, uint32_t tensor)
{
	struct pins pins;

	pins_scan(e, tensor, NULL, &pins);
	if (front_unfilled(e, tensor) && pins.filled)
		source_set(e, tensor, SOURCE_HBM);
	pins_clear_written(e, tensor);
}

/* False: pins stand on it. */
static bool leave_front(struct engine *e, uint32_t tensor, uint8_t device)
{
	struct record *r = record_of(e, tensor);

	if (state_of(e, tensor) == STATE_FAILED) {
		if (pins_any(e, tensor))
			return false;
		end_failed(e, tensor);
	} else if (front_close(e, tensor, NULL) < 0) {
		fail_front(e, tensor, device);
		return false;
	}
	front_forget(e, tensor);
	if (r->sources == 0)
		lose(e, tensor, device);
	return true;
}

/* Returns whether some have to be looked at again. */
static bool leave_all(struct engine *e, uint8_t device)
{
	bool left = false;

	for (uint32_t i = 1; i < e->index_high; i++) {
		struct record *r = &e->records[i];

		if ((r->flags & RECORD_LIVE) == 0 || r->hbm_node == EXTENT_NONE ||
		    r->hbm_device != device)
			continue;
		/* Moves from there fail by themselves. */
		if (r->move != 0)
			left = true;
		else if (r->front != device)
			replica_drop(e, i, TIER_KIND_HBM);
		else
			left |= !leave_front(e, i, device);
	}
	return left;
}

static void fail_list(struct engine *e, struct list *requests, uint8_t device, const char *text)
{
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, requests) {
		struct request *q = list_entry(it, struct request, link);

		if (q->kind == REQUEST_ACQUIRE && q->device == device && !q->granted)
			request_finish(e, q, -ENODEV, text);
	}
}

static void fail_requests(struct engine *e, uint8_t device)
{
	char text[128];

	snprintf(text, sizeof(text), "%s was lost", e->devices[device].tier->base.name);
	fail_list(e, &e->blocked, device, text);
	fail_list(e, &e->running, device, text);
	fail_list(e, &e->devices[device].queue, device, text);
	prefetch_forget(e, device);
}

/* Once all are known, where not each was named. */
static void tell_sum(struct device *d)
{
	if (d->lost_tensors > MAX(d->lost_told, NAMES_LOGGED))
		log_error(TIER, "%s: %u %s lost in all", d->tier->base.name, d->lost_tensors,
			  PLURAL(d->lost_tensors, "tensor is", "tensors are"));
	d->lost_told = d->lost_tensors;
}

void lost_look(struct engine *e)
{
	if (!e->lost_look)
		return;
	e->lost_look = false;
	e->lost_at_ns = ENGINE_NEVER;
	for (unsigned i = 0; i < e->device_count; i++) {
		if (!e->devices[i].lost)
			continue;
		fail_requests(e, (uint8_t)i);
		if (leave_all(e, (uint8_t)i))
			e->lost_at_ns = e->now_ns + POLL_NS;
		else
			tell_sum(&e->devices[i]);
	}
}

uint64_t lost_turn(struct engine *e)
{
	if (e->lost_any && e->now_ns >= e->lost_at_ns) {
		e->lost_look = true;
		lost_look(e);
	}
	return e->lost_any ? e->lost_at_ns : ENGINE_NEVER;
}

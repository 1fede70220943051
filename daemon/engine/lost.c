/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/lost.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "daemon/engine/front.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/prefetch.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"

#define NAMES_LOGGED 4u

void lost_device(struct engine *e, uint8_t device)
{
	struct device *d = &e->devices[device];

	if (d->lost)
		return;
	d->lost = true;
	e->lost_any = e->lost_look = e->again = true;
	log_error(TIER, "%s is lost: what stood there is taken from below where it can be",
		  d->tier->base.name);
}

int lost_text(struct engine *e, uint32_t tensor, char *text, size_t room)
{
	const struct record *r = record_of(e, tensor);
	char name[TENSOR_TEXT_BYTES];

	snprintf(text, room, "%s: its bytes were on %s, which was lost",
		 tensor_text(e, tensor, name), e->devices[r->lost_on].tier->base.name);
	return -EIO;
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

/* False: pins stand on it. */
static bool leave_front(struct engine *e, uint32_t tensor, uint8_t device)
{
	struct record *r = record_of(e, tensor);

	if (state_of(e, tensor) == STATE_FAILED) {
		if (pins_any(e, tensor))
			return false;
		publish(e, tensor, STATE_RESIDENT,
			(r->sources & SOURCE_HBM) != 0 ? 0 : FLAG_UNFILLED);
	}
	if (front_close(e, tensor, NULL) < 0) {
		r->lost_on = device;
		publish(e, tensor, STATE_FAILED, word0_flags(word0_of(e, tensor)) & FLAG_UNFILLED);
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
		else if (e->devices[i].lost_tensors > NAMES_LOGGED)
			log_error(TIER, "%s: %u tensors are lost in all",
				  e->devices[i].tier->base.name, e->devices[i].lost_tensors);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Flush: every tensor named has its bytes on nvme, then each device is synced.
 */
#include <errno.h>
#include <stdio.h>

#include "daemon/engine/deferred.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/front.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"

#define FLUSH_WINDOW 16u  /* tensors being written at once */
#define FLUSH_LOOKS  128u /* records looked at in a turn: others are served in between */

static int flush_text(struct engine *e, struct request *q, uint32_t tensor, int rc)
{
	const char *why = rc == -EBUSY    ? "is pinned for writing"
			  : rc == -ENOSPC ? "has no room on nvme"
			  : rc == -EDQUOT ? "has no room within its namespace's limit of nvme"
			  : rc == -ENOMEM ? "cannot be written for want of memory"
			  : rc == -ENODEV ? "has no nvme tier to go to"
					  : "could not be written";

	char name[TENSOR_TEXT_BYTES];

	snprintf(q->cause, sizeof(q->cause), "%s %s", tensor_text(e, tensor, name), why);
	return rc;
}

static int wait_by_poll(struct engine *e, struct request *q)
{
	request_poll(e, q);
	return -EAGAIN;
}

/* The write pins in the way are the caller's own, and its streams will end them. */
static bool released_by_stream(struct engine *e, const struct request *q, uint32_t tensor)
{
	struct pins pins;

	pins_scan(e, tensor, q->holder, &pins);
	return pins.foreign_pid == 0 && !deferred_plain_pin(q->holder, tensor);
}

/* Whether nvme holds what the tensor holds, or zeros do. 0: yes; -EAGAIN: a move is on its way. */
static int flush_item(struct engine *e, struct request *q, struct item *item)
{
	struct record *r = record_of(e, item->tensor);
	int rc;

	if (r->move != 0 && move_failed(move_get(e, r->move))) {
		/* What its clients believe to hold never came: nobody is told that it is safe. */
		snprintf(q->cause, sizeof(q->cause), "%s", move_get(e, r->move)->cause);
		return -EIO;
	}
	if (r->move == 0 && r->front != DEVICE_NONE)
		front_settle(e, item->tensor); /* its writer may just have revived it */
	if (r->move == 0 && (lost_front(e, r) || (r->flags & RECORD_LOST) != 0))
		return lost_text(e, item->tensor, q->cause, sizeof(q->cause));
	if (r->move != 0) {
		item_wait(e, item);
		return -EAGAIN;
	}
	if (r->front == DEVICE_NONE || state_of(e, item->tensor) != STATE_RESIDENT)
		return 0;
	/* It would void the clean. Who waits for room or a pin does not: that may be ours. */
	if (acquire_takes(e, item->tensor))
		return wait_by_poll(e, q);
	rc = move_clean(e, item->tensor, true, false, XFER_WRITE_BACK);
	if (rc == -EALREADY)
		return 0;
	if (rc == -EBUSY && released_by_stream(e, q, item->tensor))
		return wait_by_poll(e, q);
	if (rc < 0)
		return flush_text(e, q, item->tensor, rc);
	if (r->move == 0)
		return 0;
	item_wait(e, item);
	return -EAGAIN;
}

static void begin_syncs(struct engine *e, struct request *q)
{
	q->synced = true;
	for (unsigned i = 0; i < e->device_count; i++) {
		int rc;

		if (device_kind(e, (uint8_t)i) != TIER_KIND_NVME)
			continue;
		q->syncs++;
		rc = move_sync(e, q, (uint8_t)i);
		if (rc < 0) {
			q->syncs--;
			q->result = rc;
			snprintf(q->cause, sizeof(q->cause), "no memory for a sync of %s",
				 e->devices[i].tier->base.name);
		}
	}
	if (q->syncs == 0)
		request_wake(e, q);
}

/* False: the request has failed and is no more. */
static bool step_item(struct engine *e, struct request *q, struct item *item)
{
	bool live = handle_live(e, item->tensor, item->generation);
	int rc = live ? flush_item(e, q, item) : 0; /* nobody misses what was destroyed */

	if (rc < 0 && rc != -EAGAIN) {
		request_finish(e, q, rc, q->cause);
		return false;
	}
	if (rc == 0) {
		q->open--;
		item->ready = true;
		list_push_back(&q->spare, &item->link);
	} else if (!list_linked(&item->link)) {
		list_push_back(&q->todo, &item->link); /* it waits for no move: looked at by poll */
	}
	return true;
}

static bool is_flushable(const struct engine *e, uint32_t tensor, uint16_t ns)
{
	const struct record *r = &e->records[tensor];

	return (r->flags & (RECORD_LIVE | RECORD_DOOMED | RECORD_SMALL)) == RECORD_LIVE &&
	       r->name_space == ns &&
	       (r->front != DEVICE_NONE || r->move != 0 || (r->flags & RECORD_LOST) != 0);
}

/* The next tensor of the list. */
static struct item *next_listed(struct request *q)
{
	return q->next < q->n ? &q->items[q->next++] : NULL;
}

/* The next of the namespace with bytes in a mapped tier; NULL also after many others: then it goes
 * on at once, after a turn. */
static struct item *next_found(struct engine *e, struct request *q)
{
	uint32_t left = q->walk_end - q->walk, end = q->walk + MIN(left, FLUSH_LOOKS);
	struct item *item;

	while (q->walk < end && !is_flushable(e, q->walk, q->holder->name_space))
		q->walk++;
	if (q->walk == end) {
		if (end < q->walk_end) {
			q->polling = true;
			e->poll_at_ns = e->now_ns;
		}
		return NULL;
	}
	item = list_entry(list_pop_front(&q->spare), struct item, link);
	item->ready = false;
	item->tensor = q->walk++;
	item->generation = word0_generation(word0_of(e, item->tensor));
	return item;
}

/* Looks at those for which something has changed, and begins others while few are open. */
void flush_step(struct engine *e, struct request *q)
{
	struct list now, *it;

	q->polling = false;
	list_init(&now);
	list_splice(&now, &q->todo);
	while ((it = list_pop_front(&now)) != NULL)
		if (!step_item(e, q, list_entry(it, struct item, link)))
			return;
	while (q->open < FLUSH_WINDOW) {
		struct item *item = q->walk != 0 ? next_found(e, q) : next_listed(q);

		if (item == NULL)
			break;
		q->open++;
		if (!step_item(e, q, item))
			return;
	}
	if (q->open > 0 || q->syncs > 0 || q->polling)
		return;
	if (!q->synced)
		begin_syncs(e, q);
	else
		request_finish(e, q, q->result, q->cause);
}

static int check_flush(struct engine *e, struct request *q)
{
	char name[TENSOR_TEXT_BYTES];

	if (e->nvme_first == DEVICE_NONE) {
		snprintf(q->cause, sizeof(q->cause), "there is no nvme tier");
		return -ENODEV;
	}
	for (size_t i = 0; i < q->n && q->walk == 0; i++) {
		if (!handle_live(e, q->items[i].tensor, q->items[i].generation)) {
			request_name_stale(e, q, q->cause, sizeof(q->cause));
			return -ESTALE;
		}
		if (record_of(e, q->items[i].tensor)->flags & RECORD_SMALL) {
			snprintf(q->cause, sizeof(q->cause),
				 "%s is below %u bytes and never goes to nvme",
				 tensor_text(e, q->items[i].tensor, name), SMALL_BYTES);
			return -EINVAL;
		}
	}
	return 0;
}

void engine_flush(struct engine *e, struct holder *h, uint32_t id, const struct wire_handle *t,
		  size_t n, uint64_t now_ns)
{
	static const struct wire_handle none[FLUSH_WINDOW];
	struct request *q;
	int rc;

	e->now_ns = now_ns;
	q = request_new(e, h, id, REQUEST_FLUSH, n == 0 ? none : t, n == 0 ? FLUSH_WINDOW : n);
	if (q == NULL)
		return;
	for (size_t i = 0; i < q->n && n == 0; i++) {
		q->items[i].ready = true;
		list_push_back(&q->spare, &q->items[i].link);
	}
	q->walk = n == 0;
	q->walk_end = e->index_high;
	list_push_back(&e->running, &q->link);
	rc = check_flush(e, q);
	if (rc < 0)
		request_finish(e, q, rc, q->cause);
	else
		request_wake(e, q);
	requests_settle(e);
}

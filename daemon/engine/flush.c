/* SPDX-License-Identifier: Apache-2.0
 *
 * Flush: every tensor named has its bytes on nvme, then each device is synced.
 */
#include <errno.h>
#include <stdio.h>

#include "base/heap.h"
#include "daemon/engine/deferred.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/front.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"

#define FLUSH_WINDOW 16u /* tensors being written at once */

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
	if (rc == 0)
		q->open--;
	else if (!list_linked(&item->link))
		list_push_back(&q->todo, &item->link); /* it waits for no move: looked at by poll */
	return true;
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
	while (q->next < q->n && q->open < FLUSH_WINDOW) {
		q->open++;
		if (!step_item(e, q, &q->items[q->next++]))
			return;
	}
	if (q->open > 0 || q->syncs > 0)
		return;
	if (!q->synced)
		begin_syncs(e, q);
	else
		request_finish(e, q, q->result, q->cause);
}

static bool is_flushable(const struct engine *e, uint32_t tensor, uint16_t ns)
{
	const struct record *r = &e->records[tensor];

	return (r->flags & (RECORD_LIVE | RECORD_DOOMED | RECORD_SMALL)) == RECORD_LIVE &&
	       r->name_space == ns &&
	       (r->front != DEVICE_NONE || r->move != 0 || (r->flags & RECORD_LOST) != 0);
}

/* All of the namespace: the handles of what stands in a mapped tier now. */
static struct wire_handle *whole_name_space(struct engine *e, uint16_t ns, size_t *ret_n)
{
	struct wire_handle *all;
	size_t n = 0;

	for (uint32_t i = 1; i < e->index_high; i++)
		n += is_flushable(e, i, ns);
	all = heap_zeros(MAX(n, 1u), sizeof(*all));
	if (all == NULL)
		return NULL;
	*ret_n = n;
	n = 0;
	for (uint32_t i = 1; i < e->index_high; i++)
		if (is_flushable(e, i, ns))
			all[n++] = (struct wire_handle){ i, word0_generation(word0_of(e, i)) };
	return all;
}

static int check_flush(struct engine *e, struct request *q)
{
	char name[TENSOR_TEXT_BYTES];

	if (e->nvme_first == DEVICE_NONE) {
		snprintf(q->cause, sizeof(q->cause), "there is no nvme tier");
		return -ENODEV;
	}
	for (size_t i = 0; i < q->n; i++) {
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
	struct wire_handle *all = NULL;
	struct request *q;
	int rc;

	e->now_ns = now_ns;
	if (n == 0) {
		all = whole_name_space(e, h->name_space, &n);
		t = all;
	}
	if (t == NULL) {
		e->params.hooks.complete(e->params.hooks.ctx, h, id, -ENOMEM, 0,
					 "no memory for the request");
		return;
	}
	q = request_new(e, h, id, REQUEST_FLUSH, t, n);
	heap_free(all);
	if (q == NULL)
		return;
	list_push_back(&e->running, &q->link);
	rc = check_flush(e, q);
	if (rc < 0)
		request_finish(e, q, rc, q->cause);
	else
		request_wake(e, q);
	requests_settle(e);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Room for acquires: all of a request's extents are reserved at once, or it stands in its device's
 * queue. Without quotas the head of the queue alone may take room; with them see quota_queue.c.
 */
#include <errno.h>

#include "daemon/engine/quota.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

struct lack {
	uint64_t bytes, second;  /* at the request's device, and at the other one of its place */
	struct account *limited; /* a namespace's limit would be passed, */
	uint64_t over;           /* by so much */
};

/* The bytes that nobody has, and nobody has a right to before this request. */
static bool lacks_too_much(struct engine *e, const struct request *q, uint8_t device,
			   uint64_t bytes)
{
	const struct device *d = &e->devices[device];
	uint64_t free = extents_capacity(d->extents) - extents_used(d->extents);
	uint64_t leave = device == q->device && bytes > 0 ? q->leave_bytes : 0;

	return leave > free || bytes > free - leave;
}

/* 0: all is reserved. Otherwise *ret has no room for it, or -ENOMEM. */
static int take_all(struct engine *e, struct request *q, const struct lack *lack, uint8_t *ret)
{
	uint8_t second = acquire_second_device(e, q);

	*ret = second;
	if (lacks_too_much(e, q, second, lack->second))
		return -ENOSPC;
	*ret = q->device;
	if (lacks_too_much(e, q, q->device, lack->bytes))
		return -ENOSPC;
	for (size_t i = 0; i < q->n; i++) {
		struct item *item = &q->items[i];
		int rc = 0;

		*ret = item_device(e, item);
		if (acquire_needs_room(e, q, item))
			rc = replica_take(e, *ret, item->tensor, &item->node);
		if (rc < 0)
			return rc == -ENOMEM ? rc : -ENOSPC;
	}
	return 0;
}

/* All the extents that the request lacks, or none: 0, -ENOSPC, -EDQUOT or -ENOMEM. *ret: what it
 * lacks; of both devices the one that it waits for. */
static int reserve(struct engine *e, struct request *q, struct lack *ret)
{
	struct device *d = &e->devices[q->device];
	uint8_t second = acquire_second_device(e, q), short_of;
	bool again = e->again, look = d->look;
	int rc;

	*ret = (struct lack){ .bytes = acquire_lacking_bytes(e, q, q->device) };
	if (second != q->device)
		ret->second = acquire_lacking_bytes(e, q, second);
	ret->limited = quota_limits(e, q, &ret->over);
	if (ret->limited != NULL)
		return -EDQUOT;
	rc = take_all(e, q, ret, &short_of);
	if (rc == 0)
		return 0;
	acquire_let_go(e, q);
	/* Nothing came free that was not free before. */
	e->again = again;
	d->look = look;
	*(short_of == q->device ? &ret->second : &ret->bytes) = 0;
	return rc;
}

void acquire_enter(struct request *q, enum request_state state, struct list *list)
{
	q->state = state;
	list_remove(&q->link);
	list_push_back(list, &q->link);
}

static void wait_in_queue(struct engine *e, struct request *q)
{
	struct device *d = &e->devices[q->device];

	q->turn = list_empty(&d->queue) && !quotas_any(e) ? TURN_ALL : TURN_WAITS;
	q->leave_bytes = 0;
	q->denied = q->brings = false;
	acquire_enter(q, REQUEST_QUEUED, &d->queue);
	if (quotas_any(e))
		look_at_queues(e); /* it may have a turn of its own */
}

/* It has not got what it lacks: others make room, as far as its turn lets it ask them. */
static void ask_for_room(struct engine *e, struct request *q, const struct lack *lack)
{
	char text[256];
	int rc;

	if (q->turn == TURN_WAITS)
		return;
	rc = acquire_can_fit(e, q, text, sizeof(text));
	if (rc < 0)
		request_finish(e, q, rc, text); /* small tensors have come since */
	else if (lack->limited != NULL)
		reclaim_own(e, q, lack->limited, q->device, lack->over);
	else if (lack->second > 0)
		reclaim_for(e, q, acquire_second_device(e, q), lack->second);
	else
		reclaim_for(e, q, q->device, lack->bytes + q->leave_bytes);
}

static bool may_run(const struct engine *e, const struct request *q, const struct lack *lack)
{
	/* Whoever lacks nothing overtakes nobody. */
	return lack->bytes + lack->second == 0 || q->state == REQUEST_QUEUED ||
	       list_empty(&e->devices[q->device].queue);
}

void acquire_admit(struct engine *e, struct request *q)
{
	bool queued = q->state == REQUEST_QUEUED;
	struct lack lack;
	int rc;

	if (!request_is_live(e, q)) {
		request_stale(e, q);
		return;
	}
	if (!queued && acquire_is_blocked(e, q)) {
		acquire_enter(q, REQUEST_BLOCKED, &e->blocked);
		return;
	}
	acquire_want_items(e, q);
	rc = reserve(e, q, &lack);
	if (rc == -ENOMEM) {
		request_finish(e, q, rc, "no memory to reserve its room");
		return;
	}
	if (rc == 0) {
		if (may_run(e, q, &lack)) {
			acquire_run(e, q);
			return;
		}
		acquire_let_go(e, q);
	}
	if (!queued)
		wait_in_queue(e, q);
	e->poll_at_ns = MIN(e->poll_at_ns, e->now_ns + POLL_NS);
	ask_for_room(e, q, &lack);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What all waiting requests share: their lists, wakes, deadlines and ends.
 */
#include "daemon/engine/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "daemon/engine/deadlock.h"
#include "daemon/engine/deferred.h"
#include "daemon/engine/excess.h"
#include "daemon/engine/failed.h"
#include "daemon/engine/fence.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/piece.h"
#include "daemon/engine/prefetch.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/slabs.h"
#include "daemon/engine/trouble.h"

bool handle_live(const struct engine *e, uint32_t index, uint32_t generation)
{
	if (index == 0 || index >= e->index_high)
		return false;
	return (e->records[index].flags & RECORD_LIVE) != 0 &&
	       (e->records[index].flags & RECORD_DOOMED) == 0 &&
	       word0_generation(atomic_load_explicit(&e->descriptors[index].word0,
						     memory_order_relaxed)) == generation;
}

void request_name_stale(const struct engine *e, const struct request *q, char *text, size_t room)
{
	size_t i = 0;

	while (i < q->n && handle_live(e, q->items[i].tensor, q->items[i].generation))
		i++;
	ASSERT(i < q->n);
	snprintf(text, room, "tensor %u:%u was destroyed", q->items[i].tensor,
		 q->items[i].generation);
}

void request_stale(struct engine *e, struct request *q)
{
	char text[64];

	request_name_stale(e, q, text, sizeof(text));
	request_finish(e, q, -ESTALE, text);
}

bool request_is_live(const struct engine *e, const struct request *q)
{
	for (size_t i = 0; i < q->n; i++)
		if (!handle_live(e, q->items[i].tensor, q->items[i].generation))
			return false;
	return true;
}

struct request *request_new(struct engine *e, struct holder *h, uint32_t id, enum request_kind kind,
			    const struct wire_handle *t, size_t n)
{
	struct request *q = heap_zeros(1, sizeof(*q) + n * sizeof(q->items[0]));

	if (q == NULL) {
		e->params.hooks.complete(e->params.hooks.ctx, h, id, -ENOMEM, 0,
					 "no memory for the request");
		return NULL;
	}
	q->magic = REQUEST_MAGIC;
	q->id = id;
	q->kind = kind;
	q->state = REQUEST_RUNNING;
	q->holder = h;
	q->n = n;
	q->sequence = ++e->sequence;
	q->begin_ns = e->now_ns;
	q->deadline_ns = ENGINE_NEVER;
	q->device = DEVICE_NONE;
	list_init(&q->link);
	list_init(&q->woken_link);
	list_init(&q->todo);
	list_init(&q->spare);
	list_push_back(&h->requests, &q->holder_link);
	for (size_t i = 0; i < n; i++) {
		q->items[i] = (struct item){ .request = q,
					     .tensor = t[i].index,
					     .generation = t[i].generation,
					     .node = EXTENT_NONE };
		list_init(&q->items[i].link);
	}
	e->waiting++;
	stat_set(STAT(e, waiting), e->waiting);
	return q;
}

void request_wake(struct engine *e, struct request *q)
{
	if (!list_linked(&q->woken_link))
		list_push_back(&e->woken, &q->woken_link);
}

void request_poll(struct engine *e, struct request *q)
{
	q->polling = true;
	e->poll_at_ns = MIN(e->poll_at_ns, e->now_ns + POLL_NS);
}

void item_wait(struct engine *e, struct item *item)
{
	struct move *m = move_get(e, record_of(e, item->tensor)->move);

	if (!list_linked(&item->link))
		list_push_back(&m->waiters, &item->link);
	if (m->phase == MOVE_FAILED) /* for the last unpin */
		e->failed_at_ns = MIN(e->failed_at_ns, e->now_ns + POLL_NS);
}

static void take_failure(struct request *q, const struct move *m)
{
	if (m->result >= 0 || q->result < 0)
		return;
	q->result = m->result;
	snprintf(q->cause, sizeof(q->cause), "%s", m->cause);
}

bool request_take_failure(struct engine *e, const struct item *item, const struct move *m)
{
	struct request *q = item->request;
	bool concerns = (m->kind == MOVE_FILL && !m->for_prefetch &&
			 m->to == item_device(e, item) && !move_failed(m)) ||
			(m->kind == MOVE_CLEAN && q->kind == REQUEST_FLUSH);

	/* Where the source was lost, what the tensor has elsewhere decides. */
	if (m->from != DEVICE_NONE && e->devices[m->from].lost)
		concerns = false;
	if (concerns)
		take_failure(q, m);
	return q->result < 0;
}

void request_move_ended(struct engine *e, struct item *item, const struct move *m)
{
	struct request *q = item->request;

	if (q->granted) {
		fence_item_ended(e, item, m);
		return;
	}
	if (item->arriving)
		q->arriving--;
	item->arriving = false;
	request_take_failure(e, item, m);
	if (q->kind != REQUEST_COPY)
		list_push_back(&q->todo, &item->link);
	request_wake(e, q);
}

void request_own_move_ended(struct engine *e, struct request *q, const struct move *m)
{
	take_failure(q, m);
	if (m->kind == MOVE_SYNC) {
		ASSERT(q->syncs > 0);
		q->syncs--;
	} else if (m->result == 0) {
		q->next += m->copy_bytes;
	}
	request_wake(e, q);
}

/* Moves made for it alone. A copy stops: without its window it would write something else. */
static void forget_own_moves(struct engine *e, const struct request *q)
{
	struct list *it;

	if (q->kind == REQUEST_ACQUIRE)
		return;
	list_for_each (it, &e->moves) {
		struct move *m = list_entry(it, struct move, link);

		if (m->request != q)
			continue;
		m->request = NULL; /* and with it the window, which may be another's by then */
		if (m->kind == MOVE_COPY)
			move_stop(m);
	}
}

void look_at_queues(struct engine *e)
{
	e->again = true;
	for (unsigned i = 0; i < e->device_count; i++)
		e->devices[i].look = true;
}

/* It is on no list any more, and holds nothing that others wait for. */
static void leave_lists(struct engine *e, struct request *q)
{
	list_remove(&q->link);
	list_remove(&q->woken_link);
	list_remove(&q->holder_link);
	ASSERT(e->waiting > 0);
	e->waiting--;
	stat_set(STAT(e, waiting), e->waiting);
	e->unblocked = true; /* others may have waited for what it held */
	look_at_queues(e);
}

static void unlink_request(struct engine *e, struct request *q)
{
	forget_own_moves(e, q);
	acquire_release_items(e, q);
	leave_lists(e, q);
}

static void count_stall(struct engine *e, const struct request *q)
{
	uint64_t ns = e->now_ns - q->begin_ns;

	if (q->kind != REQUEST_ACQUIRE)
		return;
	stat_add(STAT(e, stall_ns), ns);
	if (q->n > 0 && handle_live(e, q->items[0].tensor, q->items[0].generation))
		stat_add(STAT(e, class_stall_ns[record_of(e, q->items[0].tensor)->class_]), ns);
}

void request_finish(struct engine *e, struct request *q, int result, const char *text)
{
	ASSERT_OBJ(q, REQUEST_MAGIC);
	count_stall(e, q);
	unlink_request(e, q);
	if (q->kind == REQUEST_ACQUIRE && q->window != NULL && result == 0) {
		/* A copy of what is in a mapped place now. */
		result = -EAGAIN;
		text = "the tensor is resident now";
	}
	e->params.hooks.complete(e->params.hooks.ctx, q->holder, q->id, result, 0, text);
	q->magic = 0;
	heap_free(q);
}

void request_grant(struct engine *e, struct request *q, uint64_t token)
{
	count_stall(e, q);
	leave_lists(e, q);
	q->granted = true;
	list_push_back(&q->holder->granted, &q->holder_link);
	e->params.hooks.complete(e->params.hooks.ctx, q->holder, q->id, 0, token, "");
}

void requests_drop_holder(struct engine *e, struct holder *h)
{
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, &h->requests) {
		struct request *q = list_entry(it, struct request, holder_link);

		unlink_request(e, q);
		q->magic = 0;
		heap_free(q);
	}
}

static uint64_t backoff_due(const struct engine *e)
{
	return e->backoff_count == 0 ? ENGINE_NEVER : e->backoff[e->backoff_first].until_ns;
}

void request_backoff(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);
	uint64_t until_ns = ALIGN_UP(e->now_ns + CLEAN_RETRY_NS, CLEAN_TICK_NS);

	/* An index that is used again stands twice. Without room it is only tried again sooner. */
	if ((r->flags & RECORD_BACKOFF) || e->backoff_count == e->params.tensors)
		return;
	e->backoff[((uint64_t)e->backoff_first + e->backoff_count) % e->params.tensors] =
		(struct backoff){ until_ns, tensor, word0_generation(word0_of(e, tensor)) };
	e->backoff_count++;
	r->flags |= RECORD_BACKOFF;
}

/* Each after a second of its own, in which the device may have become well again: one that fails
 * again and again hurries nobody. All that is due within a tick is looked at together, since a look
 * at what was denied may be long. */
static void backoff_turn(struct engine *e)
{
	if (e->now_ns < backoff_due(e))
		return;
	while (backoff_due(e) <= e->now_ns) {
		const struct backoff *b = &e->backoff[e->backoff_first];

		if (word0_generation(word0_of(e, b->tensor)) == b->generation)
			e->records[b->tensor].flags &= (uint16_t)~RECORD_BACKOFF;
		e->backoff_first = (e->backoff_first + 1) % e->params.tensors;
		e->backoff_count--;
	}
	if (e->backoff_count == 0)
		e->backoff_first = 0; /* pages of it that were not needed yet stay so */
	reclaim_ask_all(e);
	look_at_queues(e);
}

/* ---- settling ---- */

static void step(struct engine *e, struct request *q)
{
	static void (*const steps[])(struct engine *, struct request *) = {
		[REQUEST_ACQUIRE] = acquire_step,
		[REQUEST_COPY] = copy_step,
		[REQUEST_FLUSH] = flush_step,
	};

	if (q->result < 0)
		request_finish(e, q, q->result, q->cause);
	else if (q->state == REQUEST_RUNNING)
		steps[q->kind](e, q);
}

static void run_woken(struct engine *e)
{
	struct list *it;

	while ((it = list_pop_front(&e->woken)) != NULL)
		step(e, list_entry(it, struct request, woken_link));
}

static void finish_orphans_of(struct engine *e, struct list *requests)
{
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, requests) {
		struct request *q = list_entry(it, struct request, link);

		if (q->kind == REQUEST_ACQUIRE && !request_is_live(e, q))
			request_stale(e, q);
	}
}

/* Whoever waits for a tensor keeps it from being buried, and its bytes may be what others wait for:
 * nobody waits for his turn to hear that it is gone. */
static void finish_orphans(struct engine *e)
{
	if (!e->orphans)
		return;
	e->orphans = false;
	finish_orphans_of(e, &e->running);
	finish_orphans_of(e, &e->blocked);
	for (unsigned i = 0; i < e->device_count; i++)
		finish_orphans_of(e, &e->devices[i].queue);
}

static void run_blocked(struct engine *e)
{
	struct list again, *it;

	if (!e->unblocked)
		return;
	e->unblocked = false;
	/* Each is looked at once; those still blocked come back in the same order. */
	list_init(&again);
	while ((it = list_pop_front(&e->blocked)) != NULL)
		list_push_back(&again, it);
	while ((it = list_pop_front(&again)) != NULL)
		acquire_admit(e, list_entry(it, struct request, link));
}

/* First in, first out: only the head may take room. */
static void run_queue(struct engine *e, uint8_t device)
{
	struct list *queue = &e->devices[device].queue;

	if (!e->devices[device].look)
		return;
	e->devices[device].look = false;
	if (quotas_any(e)) {
		quota_run_queue(e, device);
		return;
	}
	while (!list_empty(queue)) {
		struct request *q = list_first(queue, struct request, link);

		q->turn = TURN_ALL;
		acquire_admit(e, q);
		if (!list_empty(queue) && list_first(queue, struct request, link) == q)
			return;
	}
}

static void settle(struct engine *e)
{
	do {
		lost_look(e);
		finish_orphans(e);
		run_woken(e);
		if (!e->again)
			continue;
		e->again = false;
		pieces_pump_staging(e);
		run_blocked(e);
		for (unsigned i = 0; i < e->device_count; i++) {
			if (device_kind(e, (uint8_t)i) == TIER_KIND_NVME || e->devices[i].lost)
				continue;
			run_queue(e, (uint8_t)i);
			reclaim_device(e, (uint8_t)i);
			prefetch_run(e, (uint8_t)i);
		}
	} while (e->again || !list_empty(&e->woken));
}

/* Who is told that he waits for himself is out of others' way, if only for what he lets go of. */
void requests_settle(struct engine *e)
{
	if (e->again)
		deferred_look(e);
	do {
		e->judge = false;
		settle(e);
	} while (e->judge && deadlock_judge(e));
}

/* ---- time ---- */

/* Why nobody could make room; "" where that is not known. */
static void put_trouble(struct engine *e, struct request *q, char *text, size_t room)
{
	const char *memory = slabs_trouble(e, q->device);
	const char *broken = memory == NULL ? trouble_text(e, q) : NULL;

	text[0] = '\0';
	if (memory != NULL)
		snprintf(text, room, "; no more memory there at present: %s", memory);
	else if (broken != NULL)
		snprintf(text, room, "; what stands there could not be written back: %s", broken);
}

static void expire(struct engine *e, struct request *q)
{
	char text[FAILURE_BYTES + 128], trouble[FAILURE_BYTES + 64] = "";
	int pid;

	if (q->kind == REQUEST_COPY) {
		copy_expire(e, q);
		return;
	}
	pid = acquire_blocker(e, q);
	if (pid > 0) {
		snprintf(text, sizeof(text), "pinned at another place by process %d", pid);
		request_finish(e, q, -EBUSY, text);
		return;
	}
	if (q->state == REQUEST_QUEUED)
		put_trouble(e, q, trouble, sizeof(trouble));
	snprintf(text, sizeof(text), "not in place within %llu ms%s",
		 (unsigned long long)((e->now_ns - q->begin_ns) / NS_PER_MS), trouble);
	request_finish(e, q, -ETIMEDOUT, text);
}

static void expire_list(struct engine *e, struct list *requests)
{
	struct list *it, *tmp;

	list_for_each_safe (it, tmp, requests) {
		struct request *q = list_entry(it, struct request, link);

		if (q->deadline_ns <= e->now_ns)
			expire(e, q);
		else
			e->next_deadline_ns = MIN(e->next_deadline_ns, q->deadline_ns);
	}
}

static void expire_all(struct engine *e)
{
	if (e->now_ns < e->next_deadline_ns)
		return;
	e->next_deadline_ns = ENGINE_NEVER;
	expire_list(e, &e->blocked);
	expire_list(e, &e->running);
	for (unsigned i = 0; i < e->device_count; i++)
		expire_list(e, &e->devices[i].queue);
}

/* Unpins make no sound: whoever waits for one looks again. */
static void poll_pins(struct engine *e)
{
	struct list *it;
	bool queued = false;

	if (e->now_ns < e->poll_at_ns)
		return;
	e->poll_at_ns = ENGINE_NEVER;
	list_for_each (it, &e->running) {
		struct request *q = list_entry(it, struct request, link);

		if (q->polling)
			request_wake(e, q);
	}
	for (unsigned i = 0; i < e->device_count; i++)
		queued |= !list_empty(&e->devices[i].queue) || e->devices[i].wanted_bytes > 0;
	if (!queued)
		return;
	look_at_queues(e);
	e->poll_at_ns = e->now_ns + POLL_NS;
}

uint64_t requests_turn(struct engine *e)
{
	uint64_t next;

	expire_all(e);
	backoff_turn(e);
	poll_pins(e);
	requests_settle(e);
	next = MIN(MIN(e->next_deadline_ns, e->poll_at_ns), excess_turn(e));
	return MIN(next, backoff_due(e));
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* POLLRDHUP */
#include "libclient/completion.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "libclient/futex.h"

/* A futex cannot watch a socket too, so the leader looks at the socket this often. */
#define LOOK_NS (100 * NS_PER_MS)

static void wake(struct request *r, uint32_t word)
{
	list_remove(&r->link);
	atomic_store_explicit(&r->word, word, memory_order_release);
	futex_wake(&r->word, 1, false);
}

static void finish(struct tierd *t, struct request *r)
{
	if (r->forgotten) {
		request_give_back(t, r);
		return;
	}
	r->state = REQUEST_DONE;
	if (list_linked(&r->link))
		wake(r, WORD_DONE);
}

void completion_abandon(struct tierd *t, struct request *r)
{
	r->completion = (struct cq_entry){ .id = (uint32_t)(r - t->requests), .result = -EPIPE };
	finish(t, r);
}

/* Nothing will be answered any more: every request ends with -EPIPE, every later call too. */
static void break_off(struct tierd *t, const char *why)
{
	if (t->broken)
		return;
	t->broken = true;
	err_set(&t->broken_why, EPIPE, "%s", why);
	atomic_store(&t->hot.count, 0);
	for (uint32_t i = 0; i < t->ids; i++) {
		if (t->requests[i].state == REQUEST_OUTSTANDING)
			completion_abandon(t, &t->requests[i]);
	}
	futex_wake(&t->freed, INT_MAX, false);
	/* The leader sleeps on memory that nobody writes any more. */
	futex_wake(&t->header->cq_tail, INT_MAX, true);
}

static void take_one(struct tierd *t, const struct cq_entry *e)
{
	struct request *r = e->id < t->ids ? &t->requests[e->id] : NULL;

	if (r == NULL || r->state != REQUEST_OUTSTANDING) {
		t->bad_completions++;
		log_debug(CLIENT, "completion of request %u, which is not outstanding", e->id);
		return;
	}
	r->completion = *e;
	finish(t, r);
}

void completion_reap(struct tierd *t)
{
	struct cq_entry e;
	uint32_t head = t->cq_head;
	int n = 0;

	/* Once broken, a late answer must not reach an id that was taken anew. */
	while (!t->broken &&
	       (n = ring_take(t->cq, t->ids, &t->header->cq_tail, &t->cq_head, &e)) == 1)
		take_one(t, &e);
	if (n < 0)
		break_off(t, "the daemon's completion ring is out of range");
	if (t->cq_head != head)
		atomic_store_explicit(&t->header->cq_head, t->cq_head, memory_order_release);
}

static bool spin(struct tierd *t, uint32_t seen)
{
	uint64_t end;

	if (t->spin_ns == 0)
		return false;
	end = clock_now_ns() + t->spin_ns;
	do {
		for (int i = 0; i < 32; i++) {
			if (atomic_load_explicit(&t->header->cq_tail, memory_order_acquire) != seen)
				return true;
			CPU_RELAX();
		}
	} while (clock_now_ns() < end);
	return false;
}

/* The consumer's half of the eventcount: flag, fence, look again, sleep. */
static int sleep_unless(struct tierd *t, uint32_t seen, uint64_t until_ns)
{
	atomic_store_explicit(&t->header->cq_waiting, 1, memory_order_seq_cst);
	ring_fence();
	if (atomic_load_explicit(&t->header->cq_tail, memory_order_seq_cst) != seen)
		return 0;
	return futex_wait(&t->header->cq_tail, seen, until_ns, true);
}

int completion_sleep(struct tierd *t, uint64_t until_ns)
{
	uint32_t seen = t->cq_head;
	uint64_t look_ns;
	int rc = 0;

	pthread_mutex_unlock(&t->lock);
	if (!spin(t, seen)) {
		look_ns = clock_now_ns() + LOOK_NS;
		rc = sleep_unless(t, seen, MIN(until_ns, look_ns));
		atomic_store_explicit(&t->header->cq_waiting, 0, memory_order_relaxed);
	}
	pthread_mutex_lock(&t->lock);
	if (rc == -ETIMEDOUT)
		completion_check_daemon(t);
	return rc;
}

void completion_hand_over(struct tierd *t, struct request *r)
{
	struct request *next;

	if (t->leader != (int)(r - t->requests))
		return;
	t->leader = -1;
	if (list_empty(&t->waiters))
		return;
	next = list_first(&t->waiters, struct request, link);
	t->leader = (int)(next - t->requests);
	wake(next, WORD_LEAD);
}

void completion_check_daemon(struct tierd *t)
{
	struct pollfd p = { .fd = t->socket_fd, .events = POLLRDHUP };

	if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
		/* What it answered before it went still counts. */
		completion_reap(t);
		break_off(t, "the daemon has gone");
	}
}

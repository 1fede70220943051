/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/request.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/completion.h"
#include "libclient/error.h"
#include "libclient/futex.h"
#include "libclient/slab.h"

/* Ids for OP_CANCEL and what is urgent: a full ring must not keep a signal from ending a wait, nor
 * a slab from going back. */
#define IDS_FOR_CANCEL 4u
/* For calls that the daemon answers at once: those that wait for others must not keep them out,
 * for a tensor that is destroyed may be what they wait for. */
#define IDS_AT_ONCE      8u
#define PAYLOADS_AT_ONCE 4
#define RETRY_NS         (5 * NS_PER_MS)

void request_start(struct tierd *t)
{
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->waiters);
	t->leader = -1;
	t->payloads_free = UINT64_MAX >> (64 - t->payload_slots);
	t->windows_free = UINT64_MAX >> (64 - t->window_slots);
	for (uint32_t i = 0; i < t->ids; i++) {
		t->requests[i].payload = -1;
		t->requests[i].window = -1;
		list_init(&t->requests[i].link);
	}
}

/* ---- ids and slots: `lock` is held ---- */

static int slot_take(uint64_t *bitmap)
{
	int i = __builtin_ctzll(*bitmap);

	*bitmap &= *bitmap - 1;
	return i;
}

static int id_find(struct tierd *t, uint32_t keep_free)
{
	if (t->ids_taken + keep_free >= t->ids)
		return -1;
	for (uint32_t i = 0; i < t->ids; i++)
		if (t->requests[i].state == REQUEST_FREE)
			return (int)i;
	return -1;
}

/* Ids that have to stay free. */
static uint32_t ids_kept(unsigned needs)
{
	if (needs & CALL_URGENT)
		return 0;
	return IDS_FOR_CANCEL + (needs & CALL_SIGNALS ? IDS_AT_ONCE : 0);
}

static bool any_payload(const struct tierd *t, unsigned needs)
{
	int kept = needs & CALL_SIGNALS ? MIN(PAYLOADS_AT_ONCE, (int)t->payload_slots / 2) : 0;

	return __builtin_popcountll(t->payloads_free) > kept;
}

/* All or nothing, so that nobody holds one thing while waiting for another. */
static int take(struct tierd *t, unsigned needs)
{
	struct request *r;
	int id;

	if (((needs & CALL_PAYLOAD) && !any_payload(t, needs)) ||
	    ((needs & CALL_WINDOW) && t->windows_free == 0))
		return -1;
	id = id_find(t, ids_kept(needs));
	if (id < 0)
		return -1;
	r = &t->requests[id];
	r->state = REQUEST_TAKEN;
	r->forgotten = r->cancelled = false;
	t->ids_taken++;
	if (needs & CALL_PAYLOAD)
		r->payload = slot_take(&t->payloads_free);
	if (needs & CALL_WINDOW)
		r->window = slot_take(&t->windows_free);
	return id;
}

void request_give_back(struct tierd *t, struct request *r)
{
	ASSERT(r->state != REQUEST_FREE);
	if (r->payload >= 0)
		t->payloads_free |= (uint64_t)1 << r->payload;
	if (r->window >= 0)
		t->windows_free |= (uint64_t)1 << r->window;
	r->payload = r->window = -1;
	r->state = REQUEST_FREE;
	t->ids_taken--;
	atomic_fetch_add_explicit(&t->freed, 1, memory_order_relaxed);
	if (t->takers > 0)
		futex_wake(&t->freed, INT_MAX, false);
}

int request_set_late(void)
{
	return error_set(ETIMEDOUT, "the daemon gave no answer in time");
}

static bool is_late(uint64_t until_ns)
{
	return until_ns != REQUEST_NEVER && clock_now_ns() >= request_late_ns(until_ns);
}

/* Waits until something was given back. Ids that are out with nobody waiting for them (sent and
 * forgotten) are reaped here, by looking again every few milliseconds. */
static int take_wait(struct tierd *t, uint32_t freed, unsigned needs, uint64_t until_ns)
{
	int rc;

	/* What others have left behind is taken until the daemon speaks again. */
	if (is_late(until_ns))
		return error_set(ETIMEDOUT,
				 "no place for one more request came free in time: %u of this "
				 "connection are under way",
				 (unsigned)t->ids_taken);
	t->takers++;
	pthread_mutex_unlock(&t->lock);
	rc = futex_wait(&t->freed, freed, clock_now_ns() + RETRY_NS, false);
	pthread_mutex_lock(&t->lock);
	t->takers--;
	if (rc == -EINTR && (needs & CALL_SIGNALS))
		return error_set(EINTR, "a signal came before the request was made");
	return 0;
}

static int take_or_wait(struct tierd *t, unsigned needs, uint64_t until_ns)
{
	for (;;) {
		uint32_t freed = atomic_load_explicit(&t->freed, memory_order_relaxed);
		int id, rc;

		completion_reap(t);
		if (t->broken)
			return error_set(EPIPE, "%s", t->broken_why.text);
		id = take(t, needs);
		if (id >= 0)
			return id;
		if (needs & CALL_TRY)
			return -EAGAIN;
		completion_check_daemon(t);
		rc = take_wait(t, freed, needs, until_ns);
		if (rc < 0)
			return rc;
	}
}

int request_begin(struct tierd *t, unsigned needs, uint16_t opcode, struct call *ret)
{
	return request_begin_until(t, needs, opcode, REQUEST_NEVER, ret);
}

int request_begin_until(struct tierd *t, unsigned needs, uint16_t opcode, uint64_t until_ns,
			struct call *ret)
{
	int id = client_usable(t);

	if (id < 0)
		return id;
	if (slab_due(t))
		slab_drain(t, false);
	pthread_mutex_lock(&t->lock);
	id = take_or_wait(t, needs, until_ns);
	pthread_mutex_unlock(&t->lock);
	if (id < 0)
		return id;
	*ret = (struct call){ .needs = needs };
	ret->entry.id = (uint32_t)id;
	ret->entry.opcode = opcode;
	ret->entry.timeout_ns = -1;
	if (needs & CALL_PAYLOAD) {
		ret->entry.payload = (uint32_t)t->requests[id].payload * t->payload_bytes;
		ret->payload = t->payloads + ret->entry.payload;
	}
	if (needs & CALL_WINDOW) {
		ret->entry.window = (uint32_t)t->requests[id].window;
		ret->window = t->windows + (size_t)ret->entry.window * t->window_bytes;
	}
	return 0;
}

/* ---- submission ---- */

static void put(struct tierd *t, const struct sq_entry *e)
{
	struct request *r = &t->requests[e->id];

	ASSERT(r->state == REQUEST_TAKEN);
	r->state = REQUEST_OUTSTANDING;
	if (t->broken) {
		completion_abandon(t, r);
		return;
	}
	atomic_store_explicit(&r->word, WORD_PENDING, memory_order_relaxed);
	ring_put(t->sq, t->ids, &t->header->sq_tail, &t->sq_tail, e);
}

/* The producer's half of the eventcount: tail, fence, look. */
static void ring_unless_polling(struct tierd *t)
{
	ring_fence();
	if (atomic_load_explicit(t->hot.awake, memory_order_seq_cst) != DAEMON_POLLING)
		client_ring(t);
}

void request_submit(struct tierd *t, struct call *c)
{
	pthread_mutex_lock(&t->lock);
	put(t, &c->entry);
	pthread_mutex_unlock(&t->lock);
	ring_unless_polling(t);
}

void request_send(struct tierd *t, struct call *c)
{
	pthread_mutex_lock(&t->lock);
	t->requests[c->entry.id].forgotten = true;
	put(t, &c->entry);
	pthread_mutex_unlock(&t->lock);
	ring_unless_polling(t);
}

/* `lock` is held. Without an id nothing is sent, and the next turn of the wait tries again. */
static void send_cancel(struct tierd *t, struct request *r)
{
	struct sq_entry e = { .opcode = OP_CANCEL };
	int id = take(t, CALL_URGENT);

	if (id < 0)
		return;
	e.id = (uint32_t)id;
	e.window = (uint32_t)(r - t->requests);
	t->requests[id].forgotten = true;
	r->cancelled = true;
	put(t, &e);
	ring_unless_polling(t);
}

/* ---- waiting ---- */

/* Sleeps once, as leader or not, with `lock` held before and after. */
static int sleep_once(struct tierd *t, struct request *r, uint64_t until_ns)
{
	int id = (int)(r - t->requests), rc;

	if (t->leader < 0 || t->leader == id) {
		t->leader = id;
		return completion_sleep(t, until_ns);
	}
	list_push_back(&t->waiters, &r->link);
	pthread_mutex_unlock(&t->lock);
	rc = futex_wait(&r->word, WORD_PENDING, until_ns, false);
	pthread_mutex_lock(&t->lock);
	/* DONE and LEAD take it off the list themselves. */
	if (list_linked(&r->link))
		list_remove(&r->link);
	return rc;
}

/* Whether to stop waiting for an answer that is overdue. */
static bool overdue(struct tierd *t, struct request *r, uint64_t until_ns)
{
	if (!is_late(until_ns))
		return false;
	if (!r->cancelled)
		send_cancel(t, r);
	return true;
}

static int wait_done(struct tierd *t, struct call *c, struct request *r, uint64_t until_ns)
{
	for (;;) {
		uint64_t wake_ns = request_late_ns(until_ns);
		int rc;

		completion_reap(t);
		if (r->state == REQUEST_DONE)
			return 0;
		if (c->interrupted && !r->cancelled) {
			send_cancel(t, r);
			wake_ns = r->cancelled ? wake_ns : clock_now_ns() + RETRY_NS;
		}
		if (overdue(t, r, until_ns)) {
			r->forgotten = true;
			return -ETIMEDOUT;
		}
		rc = sleep_once(t, r, wake_ns);
		/* The leader comes by a few times a second. */
		if (slab_due(t)) {
			pthread_mutex_unlock(&t->lock);
			slab_drain(t, false);
			pthread_mutex_lock(&t->lock);
		}
		if (rc == -EINTR && (c->needs & CALL_SIGNALS))
			c->interrupted = true;
	}
}

static int answer_check(struct tierd *t, struct call *c)
{
	const char *text = t->texts + (size_t)c->entry.id * TEXT_BYTES;
	struct cq_entry *a = &c->answer;

	if (a->result < -4095 || a->payload_bytes > (c->payload != NULL ? t->payload_bytes : 0))
		return error_set(EPROTO, "the daemon's answer of %u bytes, result %d, cannot be",
				 a->payload_bytes, a->result);
	if (a->result >= 0)
		return a->result;
	/* The text is in shared memory: it is copied with a bound and believed to be text. */
	if (text[0] == '\0')
		return error_set(-a->result, "%s", strerror(-a->result));
	return error_set(-a->result, "%.*s", (int)TEXT_BYTES - 1, text);
}

int request_wait(struct tierd *t, struct call *c, uint64_t until_ns)
{
	struct request *r = &t->requests[c->entry.id];
	int rc;

	pthread_mutex_lock(&t->lock);
	rc = wait_done(t, c, r, until_ns);
	completion_hand_over(t, r);
	c->answer = r->completion;
	if (rc == 0 && t->broken && c->answer.result == -EPIPE)
		rc = error_set(EPIPE, "%s", t->broken_why.text);
	pthread_mutex_unlock(&t->lock);
	if (rc == -ETIMEDOUT)
		return request_set_late();
	if (rc == 0)
		rc = answer_check(t, c);
	if (rc < 0)
		request_end(t, c);
	return rc;
}

void request_end(struct tierd *t, struct call *c)
{
	pthread_mutex_lock(&t->lock);
	request_give_back(t, &t->requests[c->entry.id]);
	pthread_mutex_unlock(&t->lock);
}

int request_run(struct tierd *t, struct call *c, uint64_t until_ns)
{
	int rc;

	request_submit(t, c);
	rc = request_wait(t, c, until_ns);
	if (rc >= 0)
		request_end(t, c);
	return rc;
}

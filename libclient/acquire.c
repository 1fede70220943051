/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquire and release. A hit is: log entry, pin, second look, and no system call. A miss is a
 * request to the daemon, after which the same try is made again.
 */
#include "libclient/acquire.h"

#include <string.h>

#include "base/clock.h"
#include "base/plural.h"
#include "libclient/close.h"
#include "libclient/error.h"
#include "libclient/request.h"

/* Wanted again by reclaim between answer and pin, this many times, when the caller does not wait.
 */
#define ROUNDS_WITHOUT_WAIT 3u

static inline void view_fill(struct tierd *t, tierd_tensor h, int place, uint32_t access,
			     void *data, uint64_t bytes, struct tierd_view *ret)
{
	*ret = (struct tierd_view){
		.data = data,
		.bytes = bytes,
		.tensor = h,
		.place = place,
		.access = access,
		.cookie = t->hot.cookie | access,
	};
}

int acquire_refused(struct tierd *t, tierd_tensor h, int rc)
{
	int gone = client_usable(t);

	if (gone < 0)
		return gone;
	switch (rc) {
	case TRY_STALE:
		return error_set(ESTALE, "tensor %u:%u was destroyed, or never was", h.index,
				 h.generation);
	case TRY_FULL:
		return error_set(EOVERFLOW, "tensor %u:%u: %u pins are held", h.index, h.generation,
				 (unsigned)PIN_MASK);
	default:
		return error_set(EPROTO, "tensor %u:%u: its descriptor leaves every arena", h.index,
				 h.generation);
	}
}

static void unpin(struct tierd *t, const struct want *w, size_t n)
{
	uint64_t old;

	while (n-- > 0)
		pin_lower(&t->hot.slots[w->tensors[n].index], w->access, &old);
}

void want_unpin(struct tierd *t, const struct want *w)
{
	unpin(t, w, w->n);
}

static int pin_one(struct tierd *t, struct want *w, tierd_tensor h)
{
	bool filling = false;
	int rc;

	/* Each try is logged: what the daemon brought for us it holds until it sees our use. */
	access_log_put(t, h.index, w->wire_place, w->access);
	if (!w->on_stream)
		return try_pin(t, h, w->wire_place, w->access);
	rc = try_pin_filling(t, h, w->wire_place, w->access, &filling);
	w->saw_filling = w->saw_filling || (rc == TRY_HIT && filling);
	return rc;
}

int want_pin(struct tierd *t, struct want *w, size_t *ret_at)
{
	uint32_t count = atomic_load_explicit(&t->hot.count, memory_order_relaxed);

	w->saw_filling = false;
	for (size_t i = 0; i < w->n; i++) {
		int rc = w->tensors[i].index < count ? pin_one(t, w, w->tensors[i]) : TRY_STALE;

		if (rc == TRY_HIT)
			continue;
		unpin(t, w, i);
		*ret_at = i;
		return rc;
	}
	return TRY_HIT;
}

/* A hit needs no clock. */
static void set_until(struct want *w)
{
	if (w->until_ns == 0)
		w->until_ns = w->timeout_ns < 0 ? REQUEST_NEVER
						: clock_now_ns() + (uint64_t)w->timeout_ns;
}

int want_reach(struct tierd *t, struct want *w)
{
	uint64_t bytes;

	for (size_t i = 0; i < w->n; i++) {
		int rc;

		if (likely(try_data(t, w->tensors[i], &bytes) != NULL))
			continue;
		set_until(w);
		rc = slab_reach(t, w->tensors[i], w->until_ns);
		if (rc < 0) {
			want_unpin(t, w);
			return rc;
		}
	}
	return 0;
}

void want_view(struct tierd *t, const struct want *w, struct tierd_view *ret)
{
	for (size_t i = 0; i < w->n; i++) {
		tierd_tensor h = w->tensors[i];

		if (!w->uncommitted)
			try_commit(t, h, w->access);
		view_fill(t, h, w->place, w->access, reached_data(t, h),
			  t->hot.descriptors[h.index].bytes, &ret[i]);
	}
	try_wake_daemon(t);
}

static int view_all(struct tierd *t, struct want *w, struct tierd_view *ret)
{
	int rc = want_reach(t, w);

	if (rc == 0)
		want_view(t, w, ret);
	return rc;
}

static int64_t time_left(const struct want *w)
{
	uint64_t now;

	if (w->until_ns == REQUEST_NEVER || w->timeout_ns == 0)
		return w->timeout_ns;
	now = clock_now_ns();
	return now < w->until_ns ? (int64_t)(w->until_ns - now) : 0;
}

/* A batch travels as one entry with a list. */
int want_ask(struct tierd *t, const struct want *w, uint16_t opcode, bool *ret_interrupted,
	     uint64_t *ret_value)
{
	struct call c;
	int rc = request_begin_until(t, CALL_SIGNALS | (w->n > 1 ? CALL_PAYLOAD : 0), opcode,
				     w->until_ns, &c);

	if (rc < 0)
		return rc;
	c.entry.place = w->wire_place;
	c.entry.access = (uint8_t)w->access;
	c.entry.timeout_ns = time_left(w);
	c.entry.index = w->tensors[0].index;
	c.entry.generation = w->tensors[0].generation;
	if (w->n > 1) {
		c.entry.count = (uint32_t)w->n;
		c.entry.payload_bytes = (uint32_t)(w->n * sizeof(struct wire_handle));
		memcpy(c.payload, w->tensors, c.entry.payload_bytes);
	}
	request_submit(t, &c);
	rc = request_wait(t, &c, w->until_ns);
	*ret_interrupted = c.interrupted;
	*ret_value = c.answer.value;
	if (rc >= 0)
		request_end(t, &c);
	return rc;
}

/* `round` requests were answered and the tensors went again before they could be pinned. */
static int give_up(const struct want *w, unsigned round, bool interrupted)
{
	if (interrupted)
		return error_set(EINTR, "a signal came");
	if (w->timeout_ns == 0 ? round < ROUNDS_WITHOUT_WAIT
			       : w->until_ns == REQUEST_NEVER || clock_now_ns() < w->until_ns)
		return 0;
	return error_set(ETIMEDOUT, "tensor %u:%u came %u %s and went before it was pinned",
			 w->tensors[0].index, w->tensors[0].generation, round,
			 PLURAL(round, "time", "times"));
}

int want_wait(struct tierd *t, struct want *w, size_t at, int rc, struct tierd_view *ret)
{
	bool interrupted = false;
	uint64_t value;

	if (rc != TRY_MISS)
		return acquire_refused(t, w->tensors[at], rc);
	/* The log entries of the first try are worth a look before the daemon falls asleep; the
	 * request wakes it anyhow. */
	set_until(w);
	for (unsigned round = 1;; round++) {
		rc = want_ask(t, w, OP_ACQUIRE, &interrupted, &value);
		if (rc < 0)
			return rc;
		rc = want_pin(t, w, &at);
		if (rc == TRY_HIT)
			return view_all(t, w, ret);
		if (rc != TRY_MISS)
			return acquire_refused(t, w->tensors[at], rc);
		rc = give_up(w, round, interrupted);
		if (rc < 0)
			return rc;
	}
}

int want_check(struct tierd *t, struct want *w)
{
	if (!access_valid(w->access))
		return error_set(EINVAL,
				 "access %#x: TIERD_READ, TIERD_WRITE or both are wanted, and "
				 "TIERD_DISCARD only beside TIERD_WRITE",
				 w->access);
	if (w->n > TIERD_BATCH_MAX)
		return error_set(E2BIG, "%zu tensors at once, at most %d", w->n, TIERD_BATCH_MAX);
	if (place_to_wire(t, w->place, &w->wire_place))
		return 0;
	return place_find(t, w->place, &w->wire_place);
}

/* Of nothing: all that it does is known of this thread. */
static int join(struct tierd *t)
{
	int rc = client_usable(t);

	if (rc == 0)
		access_log_join(t);
	return rc;
}

__attribute__((noinline)) int want_acquire(struct tierd *t, struct want *w, int rc,
					   struct tierd_view *ret)
{
	size_t at = 0;
	int wrong = want_check(t, w);

	if (wrong < 0)
		return wrong;
	if (w->n == 0)
		return join(t);
	if (rc == TRY_HIT)
		rc = want_pin(t, w, &at);
	return rc == TRY_HIT ? view_all(t, w, ret) : want_wait(t, w, at, rc, ret);
}

int tierd_acquire(struct tierd *t, tierd_tensor tensor, int place, uint32_t access,
		  int64_t timeout_ns, struct tierd_view *ret)
{
	struct want w;
	uint8_t wire_place;
	uint64_t bytes;
	void *data;
	int rc = TRY_HIT;

	if (likely(access_valid(access)) && likely(place_to_wire(t, place, &wire_place)) &&
	    likely(tensor.index < atomic_load_explicit(&t->hot.count, memory_order_relaxed))) {
		access_log_put(t, tensor.index, wire_place, access);
		rc = try_pin(t, tensor, wire_place, access);
		if (likely(rc == TRY_HIT)) {
			data = try_data(t, tensor, &bytes);
			if (likely(data != NULL)) {
				try_commit(t, tensor, access);
				view_fill(t, tensor, place, access, data, bytes, ret);
				try_wake_daemon(t);
				return 0;
			}
			pin_lower(&t->hot.slots[tensor.index], access, &bytes);
		}
	}
	w = (struct want){ .tensors = &tensor,
			   .n = 1,
			   .place = place,
			   .access = access,
			   .timeout_ns = timeout_ns };
	return want_acquire(t, &w, rc, ret);
}

int tierd_acquire_batch(struct tierd *t, const tierd_tensor *tensors, size_t n, int place,
			uint32_t access, int64_t timeout_ns, struct tierd_view *ret)
{
	struct want w = { .tensors = tensors,
			  .n = n,
			  .place = place,
			  .access = access,
			  .timeout_ns = timeout_ns };

	return want_acquire(t, &w, TRY_HIT, ret);
}

/* A release that cannot be: it changes nothing. The cookie is of another connection, or of this one
 * seen from a forked child, or no such pin stands. */
static __attribute__((noinline)) int release_wrong(struct tierd *t, const struct tierd_view *v)
{
	if (client_is_forked(t))
		return error_set(EPERM, "release in a forked child of process %d", (int)t->pid);
	if ((v->cookie & ~(uint64_t)0xff) != t->hot.cookie)
		return error_set(EINVAL, "release of a view of another connection");
	return error_set(EINVAL, "release of tensor %u:%u, which this view does not pin",
			 v->tensor.index, v->tensor.generation);
}

int release_check(struct tierd *t, const struct tierd_view *v)
{
	uint32_t access = (uint32_t)v->cookie & 0xff;

	if (v->cookie == 0)
		return 0;
	if ((v->cookie ^ access) == t->hot.cookie && v->tensor.index < t->hot.tensors &&
	    pin_held(atomic_load_explicit(&t->hot.slots[v->tensor.index], memory_order_relaxed),
		     pin_counts(access)))
		return 0;
	return release_wrong(t, v);
}

void tierd_release(struct tierd *t, struct tierd_view *view)
{
	uint32_t access = (uint32_t)view->cookie & 0xff;
	uint64_t old;

	if (unlikely(view->cookie == 0))
		return;
	if (unlikely((view->cookie ^ access) != t->hot.cookie ||
		     view->tensor.index >= t->hot.tensors ||
		     !pin_lower(&t->hot.slots[view->tensor.index], access, &old))) {
		release_wrong(t, view);
		return;
	}
	memset(view, 0, sizeof(*view));
	if (unlikely(old & PIN_CLOSING))
		close_view_ended(t, 1);
}

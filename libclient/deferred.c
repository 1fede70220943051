/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/deferred.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "libclient/acquire.h"
#include "libclient/completion.h"
#include "libclient/error.h"
#include "libclient/fence.h"
#include "libclient/registration.h"

#define SETTLE_NS (10 * NS_PER_S)
#define LOOK_NS   (100 * NS_PER_US)

static uint32_t ring_used(struct tierd *t, uint32_t i)
{
	/* Pairs with the daemon's store after it has lowered the pins. */
	uint32_t head = atomic_load_explicit(&t->deferred[i].head, memory_order_acquire);

	return t->stream[i].tail - head;
}

static bool word_passed(struct tierd *t, uint32_t i)
{
	return atomic_load_explicit(&t->streams[i].value, memory_order_acquire) >=
	       t->stream[i].value;
}

/* ---- words: `deferred_lock` says whose they are ---- */

/* A stream keeps its word until it has nothing in the ring; ids are never used twice, so a word
 * cannot be taken for that of a stream that was destroyed. */
static int word_find(struct tierd *t, uint64_t id)
{
	int found = -1;

	for (uint32_t i = 0; i < t->stream_count; i++) {
		struct client_stream *c = &t->stream[i];

		if (c->taken && c->id == id)
			return (int)i;
		if (found < 0 &&
		    (!c->taken || (c->users == 0 && ring_used(t, i) == 0 && word_passed(t, i))))
			found = (int)i;
	}
	return found;
}

/* -1: none is free. Until word_leave() nobody gives it to another stream. */
static int word_enter(struct tierd *t, const struct gpu_stream *s)
{
	int word;

	pthread_mutex_lock(&t->deferred_lock);
	word = word_find(t, s->id);
	if (word >= 0) {
		t->stream[word].taken = true;
		t->stream[word].id = s->id;
		t->stream[word].device = s->device;
		t->stream[word].users++;
	}
	pthread_mutex_unlock(&t->deferred_lock);
	return word;
}

static void word_leave(struct tierd *t, int word)
{
	pthread_mutex_lock(&t->deferred_lock);
	t->stream[word].users--;
	pthread_mutex_unlock(&t->deferred_lock);
}

/* ---- of one stream: its own `lock` is held. A write waits where the stream is full, and what the
 * stream waits for may be the release of another. ---- */

static void entries_store(struct tierd *t, int word, const struct tierd_view *views, size_t n)
{
	struct client_stream *c = &t->stream[word];
	struct deferred_ring *r = &t->deferred[word];

	for (size_t i = 0; i < n; i++) {
		if (views[i].cookie == 0)
			continue;
		r->entries[c->tail++ % DEFERRED_ENTRIES] =
			(struct deferred_entry){ .index = views[i].tensor.index,
						 .access = (uint32_t)views[i].cookie & 0xff,
						 .value = c->value + 1 };
	}
	atomic_store_explicit(&r->tail, c->tail, memory_order_release);
}

static int word_write(struct tierd *t, struct gpu_stream *s, int word)
{
	struct client_stream *c = &t->stream[word];
	_Atomic uint64_t *value = &t->streams[word].value;
	int rc = gpu_stream_write(s, value, ++c->value, error_slot());

	if (rc == 0)
		return 0;
	/* The entries stand, so their value must come: by the CPU, once the stream is done, be it
	 * because it is lost. */
	gpu_stream_synchronize(s, NULL);
	atomic_store_explicit(value, c->value, memory_order_release);
	return rc;
}

static size_t count_pins(const struct tierd_view *views, size_t n)
{
	size_t pins = 0;

	for (size_t i = 0; i < n; i++)
		pins += views[i].cookie != 0;
	return pins;
}

/* False: the ring has no room. *ret_used: entries in it. */
static bool word_release(struct tierd *t, struct gpu_stream *s, int word,
			 const struct tierd_view *views, size_t n, uint32_t *ret_used, int *ret_rc)
{
	size_t pins = count_pins(views, n);
	uint32_t used = ring_used(t, (uint32_t)word);

	if (used > DEFERRED_ENTRIES || pins > DEFERRED_ENTRIES - used)
		return false;
	*ret_used = used + (uint32_t)pins;
	entries_store(t, word, views, n);
	*ret_rc = word_write(t, s, word);
	return true;
}

/* ---- */

/* False: it cannot be done by the ring. */
static bool release_by_ring(struct tierd *t, struct gpu_stream *s, const struct tierd_view *views,
			    size_t n, int *ret_rc)
{
	uint32_t used = 0;
	bool done;
	int word;

	if (client_usable(t) < 0 || registration_fences(t, s) < 0)
		return false;
	word = word_enter(t, s);
	if (word < 0)
		return false;
	pthread_mutex_lock(&t->stream[word].lock);
	done = word_release(t, s, word, views, n, &used, ret_rc);
	pthread_mutex_unlock(&t->stream[word].lock);
	word_leave(t, word);
	/* The daemon lowers pins when it wants room, and now and then while it is awake. */
	if (done && used >= DEFERRED_ENTRIES / 2)
		client_ring(t);
	return done;
}

int deferred_release(struct tierd *t, struct gpu_stream *s, struct tierd_view *views, size_t n)
{
	int rc = 0;

	if (release_by_ring(t, s, views, n, &rc)) {
		memset(views, 0, n * sizeof(*views));
		return rc;
	}
	rc = gpu_stream_synchronize(s, error_slot());
	for (size_t i = 0; i < n; i++)
		tierd_release(t, &views[i]);
	return rc;
}

/* The daemon counts a GPU as lost before it gives up what stands there. */
static bool place_is_lost(struct tierd *t, uint8_t place)
{
	return t->page != NULL && place < STATS_DEVICES &&
	       atomic_load(&t->page->device[place].lost) != 0;
}

/* The first view that has failed: its fill did, or its GPU was lost with it. */
static int failed_view(struct tierd *t, const struct tierd_view *views, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		tierd_tensor h = views[i].tensor;
		uint64_t word0;
		int rc;

		if (views[i].cookie == 0)
			continue;
		word0 = atomic_load_explicit(&t->hot.descriptors[h.index].word0,
					     memory_order_acquire);
		if (word0_generation(word0) != h.generation || word0_state(word0) != STATE_FAILED)
			continue;
		rc = fence_failure_of(t, h);
		if (place_is_lost(t, word0_place(word0)))
			rc = error_set(EIO, "tensor %u:%u is on GPU %d, which was lost", h.index,
				       h.generation, views[i].place);
		return rc;
	}
	return 0;
}

/* The GPU of the views, for a thread that has no context yet. */
static int ordinal_of(const struct tierd_view *views, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (views[i].cookie != 0 && views[i].place >= 0)
			return views[i].place;
	return 0;
}

/* On a GPU that is lost nothing runs any more: there is nothing to wait for. */
static void release_lost(struct tierd *t, struct tierd_view *views, size_t n)
{
	int gpus;

	if (gpu_count(&gpus, NULL) < 0 || !gpu_is_lost(ordinal_of(views, n)))
		return;
	for (size_t i = 0; i < n; i++)
		tierd_release(t, &views[i]);
}

int tierd_release_on(struct tierd *t, struct tierd_view *views, size_t n, void *cuda_stream)
{
	struct gpu_stream s;
	int rc = 0, failed, gone;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = release_check(t, &views[i]);
	if (rc < 0)
		return rc;
	rc = gpu_stream_begin(cuda_stream, ordinal_of(views, n), &s, error_slot());
	if (rc == -ENODEV)
		release_lost(t, views, n);
	if (rc < 0)
		return rc;
	failed = failed_view(t, views, n) < 0;
	if (count_pins(views, n) > 0) {
		struct err why = *error_slot();

		rc = deferred_release(t, &s, views, n);
		if (failed && rc == 0)
			*error_slot() = why;
	}
	gpu_stream_end(&s);
	gone = client_usable(t);
	if (gone < 0)
		return gone;
	return rc < 0 ? rc : failed ? -EIO : 0;
}

/* ---- close: no other thread is in a call ---- */

static void pause_briefly(void)
{
	struct timespec look = { .tv_nsec = (long)LOOK_NS };

	nanosleep(&look, NULL);
}

/* Nothing that was put on a lost device will run, so nothing there uses the pins. */
static void settle_lost(struct tierd *t)
{
	for (uint32_t i = 0; i < t->stream_count; i++)
		if (t->stream[i].taken && !word_passed(t, i) && gpu_is_lost(t->stream[i].device))
			atomic_store(&t->streams[i].value, t->stream[i].value);
}

/* Words and rings that were never taken are not looked at: that would make pages of them. */
static bool words_passed(struct tierd *t)
{
	for (uint32_t i = 0; i < t->stream_count; i++)
		if (t->stream[i].taken && !word_passed(t, i))
			return false;
	return true;
}

static bool rings_empty(struct tierd *t)
{
	for (uint32_t i = 0; i < t->stream_count; i++)
		if (t->stream[i].taken && ring_used(t, i) != 0)
			return false;
	return true;
}

static bool daemon_is_gone(struct tierd *t)
{
	bool gone;

	pthread_mutex_lock(&t->lock);
	completion_check_daemon(t);
	gone = t->broken;
	pthread_mutex_unlock(&t->lock);
	return gone;
}

/* In the place of a daemon that is gone: tierd_close() must not count these pins. */
static void rings_take_over(struct tierd *t)
{
	for (uint32_t i = 0; i < t->stream_count; i++) {
		struct deferred_ring *r = &t->deferred[i];
		uint32_t at;

		if (!t->stream[i].taken)
			continue;
		at = t->stream[i].tail - MIN(ring_used(t, i), DEFERRED_ENTRIES);
		for (; at != t->stream[i].tail; at++) {
			struct deferred_entry e = r->entries[at % DEFERRED_ENTRIES];
			uint64_t old;

			if (e.index < t->hot.tensors)
				pin_lower(&t->hot.slots[e.index], e.access, &old);
		}
		atomic_store(&r->head, at);
	}
}

bool deferred_settle(struct tierd *t)
{
	uint64_t until_ns = clock_now_ns() + SETTLE_NS, lost_ns = clock_now_ns() + 100 * NS_PER_MS;

	for (bool gone = false;; pause_briefly()) {
		uint64_t now_ns = clock_now_ns();
		bool passed = fence_none_left(t) && words_passed(t);

		if (passed && rings_empty(t))
			return true;
		gone = gone || daemon_is_gone(t);
		if (gone)
			fence_let_go(t);
		if (gone && passed) {
			rings_take_over(t);
			return true;
		}
		if (now_ns >= until_ns)
			return false;
		if (now_ns >= lost_ns) {
			settle_lost(t);
			lost_ns = now_ns + 100 * NS_PER_MS;
		}
		client_ring(t);
	}
}

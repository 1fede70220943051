/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/deferred.h"

#include "daemon/engine/reclaim.h"
#include "daemon/engine/request.h"
#include "libclient/protocol/pin.h"

#define PROBES 4u /* rings without traffic, looked at a time */

/* It hurts nobody but itself: what its rings would have lowered stands until it dies. */
static void misbehaves(struct engine *e, struct holder *h, const char *text)
{
	h->misbehaves = true;
	if (e->params.hooks.misbehaves != NULL)
		e->params.hooks.misbehaves(e->params.hooks.ctx, h, text);
}

static struct deferred_entry entry_copy(const struct deferred_ring *ring, uint32_t at)
{
	const volatile struct deferred_entry *x = &ring->entries[at % DEFERRED_ENTRIES];

	return (struct deferred_entry){ .index = x->index, .access = x->access, .value = x->value };
}

/* Returns whether a pin was lowered. Who defers a pin that does not stand only wastes an entry. */
static bool take_ring(struct engine *e, struct holder *h, uint32_t i)
{
	struct deferred_ring *ring = &h->deferred[i];
	uint32_t head = h->deferred_head[i];
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
	uint64_t reached, old;
	bool lowered = false;

	if (tail == head)
		return false;
	h->deferred_used |= 1u << i;
	if (tail - head > DEFERRED_ENTRIES) {
		misbehaves(e, h, "a ring of deferred releases has more entries than room");
		return false;
	}
	/* What the stream did before it wrote this comes before the pin goes. */
	reached = atomic_load_explicit(&h->streams[i].value, memory_order_acquire);
	for (; head != tail; head++) {
		struct deferred_entry x = entry_copy(ring, head);

		if (x.value > reached)
			break;
		if (x.index >= e->params.tensors) {
			misbehaves(e, h, "a deferred release is of a tensor beyond the table");
			break;
		}
		lowered |= pin_lower(&h->pins[x.index], x.access, &old);
	}
	h->deferred_head[i] = head;
	atomic_store_explicit(&ring->head, head, memory_order_release);
	return lowered;
}

static bool take_used(struct engine *e, struct holder *h)
{
	bool lowered = false;

	for (uint32_t bits = h->deferred_used; bits != 0 && !h->misbehaves; bits &= bits - 1)
		lowered |= take_ring(e, h, (uint32_t)__builtin_ctz(bits));
	return lowered;
}

static bool take_some_unused(struct engine *e, struct holder *h)
{
	bool lowered = false;

	for (uint32_t n = 0; n < PROBES && !h->misbehaves; n++) {
		uint32_t i = h->deferred_probe++ % STREAMS;

		if ((h->deferred_used & 1u << i) == 0)
			lowered |= take_ring(e, h, i);
	}
	return lowered;
}

/* Returns whether a pin was lowered. */
static bool take_due(struct engine *e, struct holder *h)
{
	bool lowered;

	if (h->deferred == NULL || h->misbehaves || h->dead)
		return false;
	lowered = take_used(e, h);
	return take_some_unused(e, h) || lowered;
}

/* Unpins that make a sound. */
static void wake_all(struct engine *e)
{
	struct list *it;

	list_for_each (it, &e->running) {
		struct request *q = list_entry(it, struct request, link);

		if (q->polling)
			request_wake(e, q);
	}
	reclaim_ask_all(e);
	look_at_queues(e);
	e->doomed_at_ns = e->failed_at_ns = e->now_ns;
}

void deferred_look(struct engine *e)
{
	struct list *it;
	bool lowered = false;

	list_for_each (it, &e->holders)
		lowered |= take_due(e, list_entry(it, struct holder, link));
	if (lowered)
		wake_all(e);
}

void engine_deferred(struct engine *e, struct holder *h, uint64_t now_ns)
{
	ASSERT_OBJ(h, HOLDER_MAGIC);
	e->now_ns = now_ns;
	if (!take_due(e, h))
		return;
	wake_all(e);
	requests_settle(e);
}

/* Those that are still to be taken in; the ring goes on while we count. */
static uint32_t count_ring(const struct holder *h, uint32_t i, uint32_t tensor)
{
	const struct deferred_ring *ring = &h->deferred[i];
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire), n = 0;

	if (tail - h->deferred_head[i] > DEFERRED_ENTRIES)
		return 0;
	for (uint32_t at = h->deferred_head[i]; at != tail; at++)
		n += entry_copy(ring, at).index == tensor;
	return n;
}

bool deferred_plain_pin(const struct holder *h, uint32_t tensor)
{
	uint32_t pins = (uint32_t)(atomic_load(&h->pins[tensor]) & PIN_MASK), n = 0;

	if (pins > 0 && h->deferred != NULL && !h->misbehaves && !h->dead)
		for (uint32_t i = 0; i < STREAMS; i++)
			n += count_ring(h, i, tensor);
	return pins > n;
}

bool deferred_any(const struct holder *h)
{
	if (h->deferred == NULL || h->misbehaves || h->dead)
		return false;
	for (uint32_t i = 0; i < STREAMS; i++)
		if (atomic_load_explicit(&h->deferred[i].tail, memory_order_acquire) !=
		    h->deferred_head[i])
			return true;
	return false;
}

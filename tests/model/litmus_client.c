/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/litmus.h"

#include "libclient/acquire.h"

static struct tierd t;
static struct litmus *l;
static uint32_t tail;
static bool pinned;

void litmus_client_begin(struct litmus *of)
{
	l = of;
	tail = 0;
	t.hot.descriptors = l->descriptors;
	t.hot.slots = l->slots;
	t.hot.awake = &l->awake;
	t.hot.cookie = 256;
	access_log_cache = (struct access_log_cache){ .cookie = 256, .log = &l->logs[0] };
	atomic_store(&l->logs[0].owner, 1);
}

bool litmus_pin(void)
{
	tierd_tensor h = { l->tensor.index, l->tensor.generation };

	pinned = try_pin(&t, h, PROTOCOL_PLACE_HOST, TIERD_READ) == TRY_HIT;
	return pinned;
}

void litmus_unpin(void)
{
	uint64_t old;

	if (pinned)
		pin_lower(&t.hot.slots[l->tensor.index], TIERD_READ, &old);
	pinned = false;
}

/* request_submit() */
bool litmus_submit(void)
{
	uint64_t entry[RING_ENTRY_BYTES / 8] = { tail };

	ring_put(l->sq, LITMUS_RING, &l->sq_tail, &tail, entry);
	ring_fence();
	return atomic_load_explicit(t.hot.awake, memory_order_seq_cst) != DAEMON_POLLING;
}

/* tierd_acquire(): the pin's exchange is the fence of the log. */
bool litmus_use(void)
{
	uint64_t old;
	bool rings;

	access_log_put(&t, l->tensor.index, PROTOCOL_PLACE_HOST, TIERD_READ);
	pin_raise(&t.hot.slots[l->tensor.index], TIERD_READ, &old);
	rings = atomic_load_explicit(t.hot.awake, memory_order_seq_cst) == DAEMON_ASLEEP;
	pin_lower(&t.hot.slots[l->tensor.index], TIERD_READ, &old);
	return rings;
}

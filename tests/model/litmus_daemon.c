/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/litmus.h"

#include "daemon/engine/front.h"
#include "daemon/uses.h"
#include "libclient/protocol/ring.h"

static struct litmus *l;
static struct uses uses;
static uint32_t head;
static bool closed;

static void used(void *ctx, uint32_t index, uint8_t place, uint8_t access)
{
}

void litmus_daemon_begin(struct litmus *of)
{
	l = of;
	head = 0;
	uses_init(&uses, l->logs);
}

bool litmus_close(void)
{
	closed = front_close(l->engine, l->tensor.index, NULL) == 0;
	return closed;
}

void litmus_reopen(void)
{
	if (closed)
		front_reopen(l->engine, l->tensor.index);
	closed = false;
}

/* loop_fall_asleep() */
static void fall_asleep(void)
{
	atomic_store(&l->awake, DAEMON_ASLEEP);
	ring_fence();
}

bool litmus_sleep_by_ring(void)
{
	uint64_t entry[RING_ENTRY_BYTES / 8];

	fall_asleep();
	return ring_take(l->sq, LITMUS_RING, &l->sq_tail, &head, entry) == 1;
}

bool litmus_sleep_by_log(void)
{
	fall_asleep();
	return uses_pending(&uses);
}

void litmus_wake(void)
{
	atomic_store(&l->awake, DAEMON_POLLING);
}

void litmus_drain(void)
{
	struct uses_sink sink = { .used = used };
	uint64_t entry[RING_ENTRY_BYTES / 8], lost = 0;

	while (ring_take(l->sq, LITMUS_RING, &l->sq_tail, &head, entry) == 1)
		;
	while (uses_pending(&uses))
		uses_read(&uses, &sink, LOG_ENTRIES, &lost);
}

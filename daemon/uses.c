/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/uses.h"

#include "base/compiler.h"

void uses_init(struct uses *uses, struct access_log *logs)
{
	*uses = (struct uses){ .logs = logs };
}

/* Threads take the lowest free log, so that one that was never taken ends the list. Looking at all
 * 64 would touch (and so allocate) a page of each. */
static bool log_in_use(const struct access_log *log, uint64_t head)
{
	return head != 0 || atomic_load_explicit(&log->owner, memory_order_relaxed) != 0;
}

/* A head that went back, or jumped by more than a thread can have stored, is forged: go on there.
 */
static uint64_t log_resync(uint64_t position, uint64_t head, uint64_t *lost)
{
	uint64_t ahead = head - position;

	if (head < position || ahead > UINT32_MAX)
		return head;
	if (ahead <= LOG_ENTRIES)
		return position;
	*lost += ahead - LOG_ENTRIES;
	return head - LOG_ENTRIES;
}

static bool entry_is_of(uint64_t entry, uint64_t position)
{
	return entry >> 48 == ((position / LOG_ENTRIES + 1) & 0xffff);
}

static size_t log_read(struct access_log *log, uint64_t *position, uint64_t head,
		       const struct uses_sink *sink, size_t budget, uint64_t *lost)
{
	uint64_t at = log_resync(*position, head, lost);
	uint64_t end = MIN(head, at + budget);
	size_t n = 0;

	for (; at < end; at++) {
		uint64_t entry =
			atomic_load_explicit(&log->entries[at % LOG_ENTRIES], memory_order_relaxed);

		if (entry_is_of(entry, at)) {
			sink->used(sink->ctx, (uint32_t)entry, (uint8_t)(entry >> 32),
				   (uint8_t)(entry >> 40));
			n++;
		} else {
			*lost += 1;
		}
	}
	*position = at;
	return n;
}

size_t uses_read(struct uses *uses, const struct uses_sink *sink, size_t budget, uint64_t *lost)
{
	size_t n = 0;

	for (unsigned i = 0; i < LOGS && n < budget; i++) {
		unsigned k = (uses->next + i) % LOGS;
		struct access_log *log = &uses->logs[k];
		/* Pairs with the producer's release store of `head` after its entry. */
		uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);

		if (head != uses->position[k])
			n += log_read(log, &uses->position[k], head, sink, budget - n, lost);
		else if (!log_in_use(log, head))
			i += LOGS - k - 1; /* on with the first one */
		if (n >= budget)
			uses->next = k;
	}
	return n;
}

bool uses_pending(const struct uses *uses)
{
	for (unsigned k = 0; k < LOGS; k++) {
		uint64_t head = atomic_load_explicit(&uses->logs[k].head, memory_order_acquire);

		if (head != uses->position[k])
			return true;
		if (!log_in_use(&uses->logs[k], head))
			return false;
	}
	return false;
}

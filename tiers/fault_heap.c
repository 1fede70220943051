/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations of the process that are refused, by the same seed and decisions as xfers. Any thread
 * may be asked: they share one count, so that the n-th call is the n-th of all.
 */
#include "tiers/fault.h"

#include <stdatomic.h>

#include "base/compiler.h"
#include "base/heap.h"
#include "base/log.h"

static struct fault_heap {
	struct heap_refusal refusal;
	const struct fault_config *config;
	_Atomic uint64_t calls;
} heap;

static bool refuses(const struct heap_refusal *r, const struct heap_site *site)
{
	struct fault_state state = { .config = heap.config };

	state.slabs = atomic_fetch_add_explicit(&heap.calls, 1, memory_order_relaxed);
	if (fault_decide(&state, XFER_BACK, 0).kind != FAULT_NO_MEMORY)
		return false;
	log_warn(MAIN, "no memory for %s() in %s (injected, `fault.no_memory`)", site->function,
		 heap_site_file(site));
	return true;
}

void fault_heap(const struct fault_config *config)
{
	if (config == NULL || !config->presence.present) {
		heap_refuse(NULL);
		return;
	}
	heap.config = config;
	heap.refusal.refuses = refuses;
	atomic_store(&heap.calls, 0);
	fault_say(config, "tierd");
	heap_refuse(&heap.refusal);
}

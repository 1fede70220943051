/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas of GPU memory as this process maps them: one range of addresses each, reserved when it is
 * used first, and slab after slab as tensors are met in them. A slab that the daemon wants back is
 * unmapped when its message is read: by the watcher, or else with this connection's requests.
 * `slab_lock` guards maps and the reading of the socket. Any thread.
 */
#ifndef TIERD_CLIENT_SLAB_H
#define TIERD_CLIENT_SLAB_H

#include "libclient/client.h"

/* Takes note of an arena with slabs. */
int slab_arena_add(struct tierd *t, const struct hello_arena *a, struct err *err);
/* Pairs, after a pin of our own, with try_unmap(), which clears the bit and then looks at pins. */
static inline bool slab_is_mapped(const struct slab_arena *a, uint64_t slab)
{
	uint64_t word = atomic_load_explicit(&a->mapped[slab / 64], memory_order_seq_cst);

	return (word >> (slab % 64)) & 1;
}
/* Where [word1, bytes) is mapped, NULL: not, or in no arena with slabs. */
void *slab_data(struct tierd *t, uint64_t word1, uint64_t bytes);
/* Under the own pin: maps what try_data() misses. -EPROTO: the descriptor leaves every arena;
 * -ENODEV; -ENOMEM; -EMFILE; -ETIMEDOUT. Blocks until the daemon has answered, or a second after
 * `until_ns`. */
int slab_reach(struct tierd *t, tierd_tensor h, uint64_t until_ns);
/* Does what messages in the socket say. wait: also if another thread maps just now. */
void slab_drain(struct tierd *t, bool wait);
/* Whether requests have to call slab_drain(). */
static inline bool slab_due(struct tierd *t)
{
	return unlikely(atomic_load_explicit(&t->slabs_mapped, memory_order_relaxed) != 0) &&
	       atomic_load_explicit(&t->watched, memory_order_relaxed) == 0;
}
/* Unmaps everything. */
void slab_undo(struct tierd *t);

#endif

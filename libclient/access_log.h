/* SPDX-License-Identifier: Apache-2.0
 *
 * The access log: one a thread and connection, found by one thread-local comparison. It is written
 * before the pin's exchange, which is its fence towards the daemon. A thread without a log (all are
 * taken) goes unlogged. The log's own thread, but for access_log_forget().
 */
#ifndef TIERD_CLIENT_ACCESS_LOG_H
#define TIERD_CLIENT_ACCESS_LOG_H

#include "libclient/client.h"

/* The log that this thread used last. */
struct access_log_cache {
	uint64_t cookie;        /* of the connection, 0: none */
	struct access_log *log; /* NULL: this thread goes unlogged */
	uint64_t head;
};
/* Initial-exec: no call to find it. It is small enough for the reserve of dlopen(). */
extern _Thread_local struct access_log_cache access_log_cache
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Makes access_log_cache the one of `t`. */
void access_log_switch(struct tierd *t);
/* tierd_close(): no thread's exit touches the logs of `t` any more. */
void access_log_forget(struct tierd *t);

/* The daemon counts this thread among those of the connection. */
static inline void access_log_join(struct tierd *t)
{
	if (unlikely(access_log_cache.cookie != t->hot.cookie))
		access_log_switch(t);
}

static inline void access_log_put(struct tierd *t, uint32_t index, uint8_t place, uint32_t access)
{
	struct access_log_cache *c = &access_log_cache;

	access_log_join(t);
	if (unlikely(c->log == NULL))
		return;
	atomic_store_explicit(&c->log->entries[c->head % LOG_ENTRIES],
			      log_entry_make(index, place, (uint8_t)access, c->head),
			      memory_order_relaxed);
	c->head++;
	atomic_store_explicit(&c->log->head, c->head, memory_order_release);
}

#endif

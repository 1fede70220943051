/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of the daemon: ids as credits, payload and window slots, the two rings, and waiting. One
 * of the waiting threads (the leader) sleeps on the completion ring and hands out what comes; the
 * others sleep on a word of their own, so that a signal ends any one's wait. Any thread; a struct
 * call belongs to the thread that began it.
 */
#ifndef TIERD_CLIENT_REQUEST_H
#define TIERD_CLIENT_REQUEST_H

#include "libclient/client.h"

/* How long a leader looks at the ring before it sleeps; TIERD_SPIN_US overrides. Measured on 2
 * cores: a 4 KiB miss takes 17 us without, 38 us with 5 us and 40 to 52 us with 20 us of spinning,
 * since the daemon's two threads need the core that the client would keep. */
#define REQUEST_SPIN_NS 0u

#define REQUEST_NEVER UINT64_MAX

/* When to stop waiting for a daemon that says nothing: a second after the deadline. */
static inline uint64_t request_late_ns(uint64_t until_ns)
{
	return until_ns > UINT64_MAX - NS_PER_S ? REQUEST_NEVER : until_ns + NS_PER_S;
}

/* The sentence of that; -ETIMEDOUT. */
int request_set_late(void);

enum call_needs {
	CALL_PAYLOAD = 1,
	CALL_WINDOW = 2,
	CALL_TRY = 4,     /* -EAGAIN instead of waiting for an id or a slot */
	CALL_SIGNALS = 8, /* the daemon lets it wait, and a signal ends that with -EINTR */
	CALL_URGENT = 16, /* others may wait for what this one gives back */
};

/* One request of one thread, on its stack. */
struct call {
	struct sq_entry entry; /* id, payload and window are request_begin()'s */
	unsigned needs;
	void *payload; /* the slot: t->payload_bytes of it */
	void *window;  /* the slot: t->window_bytes of it */
	bool interrupted;
	struct cq_entry answer;
};

void request_start(struct tierd *t); /* once, before any other */

/* Takes an id and what it needs, all or nothing. -EAGAIN, -EINTR, -EPIPE, -EPERM. */
int request_begin(struct tierd *t, unsigned needs, uint16_t opcode, struct call *ret);
/* Also -ETIMEDOUT: nothing was free a second after `until_ns`. */
int request_begin_until(struct tierd *t, unsigned needs, uint16_t opcode, uint64_t until_ns,
			struct call *ret);
/* Hands the request to the daemon. */
void request_submit(struct tierd *t, struct call *c);
/* Waits for the answer: what the daemon said, 0 or a count or -errno with its sentence set; or
 * -EINTR, -EPIPE. A request that is over `until_ns` by a second, because nobody answers, is left
 * behind with -ETIMEDOUT. The call is ended in every case but success: after 0 or more, its payload
 * may be read, and request_end() is due. */
int request_wait(struct tierd *t, struct call *c, uint64_t until_ns);
void request_end(struct tierd *t, struct call *c);
/* Submits and does not wait; the call is over. */
void request_send(struct tierd *t, struct call *c);
/* submit, wait, end. */
int request_run(struct tierd *t, struct call *c, uint64_t until_ns);

#endif

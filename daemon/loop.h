/* SPDX-License-Identifier: Apache-2.0
 *
 * The control loop: one epoll set, one thread. Sources are file descriptors; the work of a turn is
 * the owner's. Producers in shared memory ring a doorbell only if T.awake says so; the loop keeps
 * the other half of that bargain: it publishes how it is about to block, looks at everything once
 * more, and only then blocks (an eventcount, sequentially consistent on both sides). While there
 * was progress within the last LOOP_NAP_NS it naps for 1 ms at most, so that access logs are read
 * without a doorbell; after that it sleeps until something happens and an idle daemon costs
 * nothing.
 */
#ifndef TIERD_DAEMON_LOOP_H
#define TIERD_DAEMON_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define LOOP_NEVER      UINT64_MAX
#define LOOP_NAP_NS     100000000ull /* naps go on this long after the last progress */
#define LOOP_NAP_LEG_NS 1000000ull

struct loop;

struct loop_source {
	int fd; /* -1: not in a loop */
	/* May remove and free any source, its own among them. `events` are EPOLL*. */
	void (*ready)(struct loop_source *source, uint32_t events);
};

/* Where those look who would have to wake the loop, and where it counts: one a domain. */
struct loop_side {
	_Atomic uint32_t *awake;       /* T.awake: DAEMON_* */
	_Atomic uint32_t *done_wanted; /* lanes write their eventfd when it is set */
	_Atomic uint64_t *turns, *sleeps;
};

struct loop_work {
	void *ctx;
	/* One turn: does what is there, within budgets. True when a client or a device made
	 * progress (not for the daemon's own timers). *ret_next_ns: when it wants to be called at
	 * the latest. */
	bool (*turn)(void *ctx, uint64_t now_ns, uint64_t *ret_next_ns);
	/* Whether something came meanwhile that nobody will wake us for; `logs`: those of clients
	 * too. Called with `awake` published. */
	bool (*pending)(void *ctx, bool logs);
	const struct loop_side *sides; /* stand as long as the loop */
	unsigned side_count;
	uint64_t spin_ns; /* keep polling this long after progress before blocking */
};

int loop_create(const struct loop_work *work, struct loop **ret, struct err *err);
void loop_destroy(struct loop *loop);

/* Level-triggered unless `events` holds EPOLLET. */
int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events,
	     struct err *err);
/* What it waits for from now on; nothing when it is not in the loop. */
void loop_change(struct loop *loop, struct loop_source *source, uint32_t events);
/* Nothing when it is not in the loop; the descriptor stays open. */
void loop_remove(struct loop *loop, struct loop_source *source);

/* Until loop_stop() is called from a turn or a source; -errno when epoll itself fails. */
int loop_run(struct loop *loop, struct err *err);
void loop_stop(struct loop *loop);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The helper thread of a tier, which makes slabs of memory and gives them back while the lane
 * copies on. The lane's thread lends it BACKs and UNBACKs; they come back in order. Each takes
 * milliseconds or more, so the two threads share two lists behind a lock.
 */
#ifndef TIERD_TIERS_BACKER_H
#define TIERD_TIERS_BACKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/list.h"
#include "tiers/tier.h"

struct backer {
	/* On the helper thread: sets result and cause. */
	void (*work)(void *ctx, struct xfer *x);
	void *ctx;
	pthread_t thread;
	int fd; /* an eventfd, readable when there is something to reap */
	_Atomic unsigned finished;
	/* Behind the lock. */
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list queued, done;
	bool ending;
};

/* All are called by the lane's thread. */
int backer_start(struct backer *b, const char *name, void (*work)(void *ctx, struct xfer *x),
		 void *ctx, struct err *err);
/* Everything that was lent must have come back. */
void backer_stop(struct backer *b);
void backer_queue(struct backer *b, struct xfer *x);
/* Does not block; costs one load where nothing came. */
unsigned backer_reap(struct backer *b, struct xfer **done, unsigned max);

#endif

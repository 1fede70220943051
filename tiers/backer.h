/* SPDX-License-Identifier: Apache-2.0
 *
 * The helper thread of a tier, which makes slabs of memory, gives them back and registers them
 * while the lane copies on. The lane's thread lends it BACKs, UNBACKs and PINs. PINs go last:
 * somebody waits for the room of a slab, while registration only makes copies faster; otherwise
 * they come back in order. Each takes up to a second, so the two threads share lists behind a lock.
 */
#ifndef TIERD_TIERS_BACKER_H
#define TIERD_TIERS_BACKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/list.h"
#include "tiers/tier.h"

/* On the helper thread. */
struct backer_ops {
	int (*begin)(void *ctx, struct err *err); /* optional: before anything else */
	void (*work)(void *ctx, struct xfer *x);  /* sets result and cause */
};

struct backer {
	const struct backer_ops *ops;
	void *ctx;
	pthread_t thread;
	int fd; /* an eventfd, readable when there is something to reap */
	_Atomic unsigned finished;
	/* Behind the lock. */
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list slabs, pins, done;
	bool started, ending;
	int start_result;
	struct err *start_err; /* of begin(), until `started` */
};

/* All are called by the lane's thread. What begin() fails with, start fails with. */
int backer_start(struct backer *b, const char *name, const struct backer_ops *ops, void *ctx,
		 struct err *err);
/* Everything that was lent must have come back. */
void backer_stop(struct backer *b);
void backer_queue(struct backer *b, struct xfer *x);
static inline bool backer_ready(const struct backer *b)
{
	return atomic_load(&b->finished) > 0;
}
/* Does not block; costs one load where nothing came. */
unsigned backer_reap(struct backer *b, struct xfer **done, unsigned max);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and checksums of blocks, by the lane's thread and by helpers: one CPU reads memory at some
 * 7 GB/s, which is less than disks bring. The lane works too, and a single block is its alone: the
 * helpers wake up for a backlog. Lists behind a lock, for blocks of 128 KiB and more.
 */
#ifndef TIERD_TIERS_DIGEST_H
#define TIERD_TIERS_DIGEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"

#define DIGEST_THREADS_MAX 16

/* The queuer's from before digest_queue() until it comes back. */
struct digest_job {
	struct list link;
	unsigned char *to; /* NULL: nothing is copied */
	const unsigned char *from;
	uint64_t bytes;
	bool urgent;  /* goes before all that are not */
	uint32_t crc; /* the result: CRC-32C, of the copy where one is made */
};
/* Does it here and now; nobody else may know of it. Any thread. */
void digest_run(struct digest_job *job);

struct digest {
	pthread_t threads[DIGEST_THREADS_MAX];
	unsigned count;
	int fd;        /* an eventfd, readable when there is something to reap */
	unsigned lent; /* the lane's: queued and not yet come back */
	_Atomic unsigned finished;
	/* Behind the lock. */
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list todo[2], done; /* to do: urgent, the rest */
	unsigned backlog, idle;    /* jobs in `todo`, threads that wait for one */
	bool ending;
};

/* All that follow are called by one thread, the lane's. `threads` may be 0. */
int digest_start(struct digest *d, const char *name, unsigned threads, struct err *err);
/* Everything that was queued must have come back. */
void digest_stop(struct digest *d);
void digest_queue(struct digest *d, struct digest_job *job);
/* Does the next one that nobody has begun. NULL: there is none. */
struct digest_job *digest_help(struct digest *d);
/* One that a helper has done. NULL: there is none, which costs one load. */
struct digest_job *digest_reap(struct digest *d);
static inline bool digest_ready(const struct digest *d)
{
	return atomic_load(&d->finished) > 0;
}

#endif

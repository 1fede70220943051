/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/backer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

/* Waits for an xfer; NULL: the end. */
static struct xfer *take(struct backer *b)
{
	struct list *entry;

	pthread_mutex_lock(&b->lock);
	while (list_empty(&b->queued) && !b->ending)
		pthread_cond_wait(&b->more, &b->lock);
	entry = list_pop_front(&b->queued);
	pthread_mutex_unlock(&b->lock);
	return entry != NULL ? list_entry(entry, struct xfer, link) : NULL;
}

static void give(struct backer *b, struct xfer *x)
{
	uint64_t one = 1;
	ssize_t n;

	pthread_mutex_lock(&b->lock);
	list_push_back(&b->done, &x->link);
	atomic_fetch_add(&b->finished, 1);
	/* Behind the lock, so that the descriptor is readable exactly while there is something. */
	do
		n = write(b->fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	pthread_mutex_unlock(&b->lock);
	ASSERT(n == (ssize_t)sizeof(one));
}

static void *backer_main(void *arg)
{
	struct backer *b = arg;
	struct xfer *x;

	while ((x = take(b)) != NULL) {
		b->work(b->ctx, x);
		give(b, x);
	}
	return NULL;
}

/* Signals are the control thread's business, as in lanes. */
static int thread_start(struct backer *b, const char *name)
{
	sigset_t all, was;
	char comm[16];
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	r = pthread_create(&b->thread, NULL, backer_main, b);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (r != 0)
		return -r;
	snprintf(comm, sizeof(comm), "slabs %.9s", name);
	pthread_setname_np(b->thread, comm);
	return 0;
}

int backer_start(struct backer *b, const char *name, void (*work)(void *ctx, struct xfer *x),
		 void *ctx, struct err *err)
{
	int r;

	*b = (struct backer){ .work = work, .ctx = ctx };
	list_init(&b->queued);
	list_init(&b->done);
	b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->fd < 0)
		return err_set(err, errno, "%s: eventfd of its helper: %m", name);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->more, NULL);
	r = thread_start(b, name);
	if (r < 0) {
		close(b->fd);
		return err_set(err, -r, "%s: thread of its helper: %s", name, strerror(-r));
	}
	return 0;
}

void backer_stop(struct backer *b)
{
	pthread_mutex_lock(&b->lock);
	b->ending = true;
	pthread_cond_signal(&b->more);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	ASSERT(list_empty(&b->queued) && list_empty(&b->done));
	pthread_cond_destroy(&b->more);
	pthread_mutex_destroy(&b->lock);
	close(b->fd);
}

void backer_queue(struct backer *b, struct xfer *x)
{
	pthread_mutex_lock(&b->lock);
	list_push_back(&b->queued, &x->link);
	pthread_cond_signal(&b->more);
	pthread_mutex_unlock(&b->lock);
}

unsigned backer_reap(struct backer *b, struct xfer **done, unsigned max)
{
	struct list *entry;
	uint64_t count;
	unsigned n = 0;

	if (atomic_load(&b->finished) == 0 || max == 0)
		return 0;
	pthread_mutex_lock(&b->lock);
	for (; n < max && (entry = list_pop_front(&b->done)) != NULL; n++)
		done[n] = list_entry(entry, struct xfer, link);
	if (atomic_fetch_sub(&b->finished, n) == n)
		ASSERT(read(b->fd, &count, sizeof(count)) == (ssize_t)sizeof(count));
	pthread_mutex_unlock(&b->lock);
	return n;
}

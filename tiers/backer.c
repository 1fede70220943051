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
#include "base/guard.h"

/* Waits for an xfer; NULL: the end. */
static struct xfer *take(struct backer *b)
{
	struct list *entry;

	pthread_mutex_lock(&b->lock);
	while (list_empty(&b->slabs) && list_empty(&b->pins) && !b->ending)
		pthread_cond_wait(&b->more, &b->lock);
	entry = list_pop_front(list_empty(&b->slabs) ? &b->pins : &b->slabs);
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

static void say_started(struct backer *b, int r)
{
	pthread_mutex_lock(&b->lock);
	b->start_result = r;
	b->started = true;
	pthread_cond_signal(&b->more);
	pthread_mutex_unlock(&b->lock);
}

static void *backer_main(void *arg)
{
	struct backer *b = arg;
	struct xfer *x;
	int r = b->ops->begin != NULL ? b->ops->begin(b->ctx, b->start_err) : 0;

	say_started(b, r);
	while (r == 0 && (x = take(b)) != NULL) {
		b->ops->work(b->ctx, x);
		give(b, x);
	}
	return NULL;
}

/* Signals are the control thread's business, as in lanes. */
static int thread_start(struct backer *b, const char *name, struct err *err)
{
	sigset_t was;
	char comm[16];
	int r;

	guard_block_signals(&was);
	r = pthread_create(&b->thread, NULL, backer_main, b);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (r != 0)
		return err_set(err, r, "%s: thread of its helper: %s", name, strerror(r));
	snprintf(comm, sizeof(comm), "slabs %.9s", name);
	pthread_setname_np(b->thread, comm);
	pthread_mutex_lock(&b->lock);
	while (!b->started)
		pthread_cond_wait(&b->more, &b->lock);
	pthread_mutex_unlock(&b->lock);
	if (b->start_result < 0)
		pthread_join(b->thread, NULL);
	return b->start_result;
}

static void destroy(struct backer *b)
{
	pthread_cond_destroy(&b->more);
	pthread_mutex_destroy(&b->lock);
	close(b->fd);
}

int backer_start(struct backer *b, const char *name, const struct backer_ops *ops, void *ctx,
		 struct err *err)
{
	int r;

	*b = (struct backer){ .ops = ops, .ctx = ctx, .start_err = err };
	list_init(&b->slabs);
	list_init(&b->pins);
	list_init(&b->done);
	b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->fd < 0)
		return err_set(err, errno, "%s: eventfd of its helper: %m", name);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->more, NULL);
	r = thread_start(b, name, err);
	if (r < 0)
		destroy(b);
	return r;
}

void backer_stop(struct backer *b)
{
	pthread_mutex_lock(&b->lock);
	b->ending = true;
	pthread_cond_signal(&b->more);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	ASSERT(list_empty(&b->slabs) && list_empty(&b->pins) && list_empty(&b->done));
	destroy(b);
}

void backer_queue(struct backer *b, struct xfer *x)
{
	pthread_mutex_lock(&b->lock);
	list_push_back(x->op == XFER_PIN ? &b->pins : &b->slabs, &x->link);
	pthread_cond_signal(&b->more);
	pthread_mutex_unlock(&b->lock);
}

unsigned backer_reap(struct backer *b, struct xfer **done, unsigned max)
{
	struct list *entry;
	uint64_t count;
	unsigned n = 0;

	if (!backer_ready(b) || max == 0)
		return 0;
	pthread_mutex_lock(&b->lock);
	for (; n < max && (entry = list_pop_front(&b->done)) != NULL; n++)
		done[n] = list_entry(entry, struct xfer, link);
	if (atomic_fetch_sub(&b->finished, n) == n)
		ASSERT(read(b->fd, &count, sizeof(count)) == (ssize_t)sizeof(count));
	pthread_mutex_unlock(&b->lock);
	return n;
}

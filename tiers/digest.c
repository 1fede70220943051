/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/digest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/crc32c.h"
#include "base/guard.h"

/* Copy and CRC go over the bytes in pieces that stay in the L1 and L2 caches: the CRC then reads
 * what the copy has just put there, and costs next to nothing. */
#define COPY_PIECE KIB(64)

void digest_run(struct digest_job *job)
{
	uint32_t crc = 0;

	if (job->to == NULL) {
		job->crc = crc32c(0, job->from, job->bytes);
		return;
	}
	/* Over what was copied, not over the source: the client may be writing to it. */
	for (uint64_t at = 0; at < job->bytes; at += COPY_PIECE) {
		uint64_t piece = MIN(job->bytes - at, COPY_PIECE);

		memcpy(job->to + at, job->from + at, piece);
		crc = crc32c(crc, job->to + at, piece);
	}
	job->crc = crc;
}

/* ---- helpers --------------------------------------------------------------------------------- */

static struct digest_job *first(struct digest *d)
{
	struct list *entry = list_pop_front(&d->todo[0]);

	if (entry == NULL)
		entry = list_pop_front(&d->todo[1]);
	if (entry == NULL)
		return NULL;
	d->backlog--;
	return list_entry(entry, struct digest_job, link);
}

/* NULL: the end. */
static struct digest_job *take(struct digest *d)
{
	struct digest_job *job;

	pthread_mutex_lock(&d->lock);
	while (d->backlog == 0 && !d->ending) {
		d->idle++;
		pthread_cond_wait(&d->more, &d->lock);
		d->idle--;
	}
	job = first(d);
	pthread_mutex_unlock(&d->lock);
	return job;
}

static void give(struct digest *d, struct digest_job *job)
{
	uint64_t one = 1;
	ssize_t n;

	pthread_mutex_lock(&d->lock);
	list_push_back(&d->done, &job->link);
	atomic_fetch_add(&d->finished, 1);
	/* Behind the lock, so that the descriptor is readable exactly while there is something. */
	do
		n = write(d->fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	pthread_mutex_unlock(&d->lock);
	ASSERT(n == (ssize_t)sizeof(one));
}

static void *digest_main(void *arg)
{
	struct digest *d = arg;
	struct digest_job *job;

	while ((job = take(d)) != NULL) {
		digest_run(job);
		give(d, job);
	}
	return NULL;
}

/* ---- the lane -------------------------------------------------------------------------------- */

/* Signals are the control thread's business, as in lanes. */
static int threads_start(struct digest *d, const char *name, unsigned threads)
{
	sigset_t was;
	char comm[16];
	int r = 0;

	snprintf(comm, sizeof(comm), "sums %.10s", name);
	guard_block_signals(&was);
	for (; d->count < threads && r == 0; d->count += r == 0) {
		r = pthread_create(&d->threads[d->count], NULL, digest_main, d);
		if (r == 0)
			pthread_setname_np(d->threads[d->count], comm);
	}
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return r;
}

int digest_start(struct digest *d, const char *name, unsigned threads, struct err *err)
{
	int r;

	ASSERT(threads <= DIGEST_THREADS_MAX);
	*d = (struct digest){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (d->fd < 0)
		return err_set(err, errno, "%s: eventfd of its helpers: %m", name);
	list_init(&d->todo[0]);
	list_init(&d->todo[1]);
	list_init(&d->done);
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->more, NULL);
	r = threads_start(d, name, threads);
	if (r == 0)
		return 0;
	digest_stop(d);
	return err_set(err, r, "%s: threads that checksum: %s", name, strerror(r));
}

void digest_stop(struct digest *d)
{
	ASSERT(d->lent == 0);
	pthread_mutex_lock(&d->lock);
	d->ending = true;
	pthread_cond_broadcast(&d->more);
	pthread_mutex_unlock(&d->lock);
	while (d->count > 0)
		pthread_join(d->threads[--d->count], NULL);
	pthread_cond_destroy(&d->more);
	pthread_mutex_destroy(&d->lock);
	close(d->fd);
}

void digest_queue(struct digest *d, struct digest_job *job)
{
	d->lent++;
	pthread_mutex_lock(&d->lock);
	list_push_back(&d->todo[!job->urgent], &job->link);
	if (++d->backlog > 1 && d->idle > 0)
		pthread_cond_signal(&d->more);
	pthread_mutex_unlock(&d->lock);
}

struct digest_job *digest_help(struct digest *d)
{
	struct digest_job *job;

	if (d->lent == 0)
		return NULL;
	pthread_mutex_lock(&d->lock);
	job = first(d);
	pthread_mutex_unlock(&d->lock);
	if (job == NULL)
		return NULL;
	d->lent--;
	digest_run(job);
	return job;
}

struct digest_job *digest_reap(struct digest *d)
{
	struct list *entry;
	uint64_t count;

	if (!digest_ready(d))
		return NULL;
	pthread_mutex_lock(&d->lock);
	entry = list_pop_front(&d->done);
	if (atomic_fetch_sub(&d->finished, 1) == 1)
		ASSERT(read(d->fd, &count, sizeof(count)) == (ssize_t)sizeof(count));
	pthread_mutex_unlock(&d->lock);
	ASSERT(entry != NULL && d->lent > 0);
	d->lent--;
	return list_entry(entry, struct digest_job, link);
}

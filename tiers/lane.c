/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/lane.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/heap.h"
#include "base/log.h"

#define LANE_MAGIC 0x6c616e65u
#define REAP_MAX   64

/* A chain of xfers by link.next, newest first. One thread pushes, another takes all of it. */
struct chain {
	_Atomic(struct list *) top;
};

struct lane {
	uint32_t magic;
	struct tier *tier;
	pthread_t thread;
	int wake_fd, done_fd;
	_Atomic uint32_t *done_wanted;
	sem_t started;
	int start_result;
	struct err *start_err; /* of lane_start(), until `started` */

	/* The control thread's. */
	alignas(CACHE_LINE) uint64_t lent;
	struct list reaped; /* taken off `finished`, in order */

	alignas(CACHE_LINE) struct chain submitted; /* control -> lane */
	_Atomic uint32_t asleep;                    /* lane: about to wait, wake it */
	_Atomic uint32_t stop;
	alignas(CACHE_LINE) struct chain finished; /* lane -> control */

	/* The lane thread's. */
	alignas(CACHE_LINE) struct list waiting[XFER_PRIORITIES];
	uint32_t held;  /* by the backend */
	bool wake_owed; /* somebody is about to write wake_fd */
};

/* ---- both sides ---------------------------------------------------------------------------- */

static void chain_push(struct chain *c, struct list *entry)
{
	struct list *top = atomic_load_explicit(&c->top, memory_order_relaxed);

	do
		entry->next = top;
	while (!atomic_compare_exchange_weak(&c->top, &top, entry)); /* seq_cst: see lane_kick() */
}

/* Puts all of it at the end of `to`, oldest first. */
static void chain_take(struct chain *c, struct list *to)
{
	struct list *entry, *next, *at = to;

	if (atomic_load(&c->top) == NULL)
		return;
	entry = atomic_exchange(&c->top, NULL);
	/* The newest goes last: each older one is put before the one after it. */
	for (; entry != NULL; entry = next) {
		next = entry->next;
		list_insert_before(at, entry);
		at = entry;
	}
}

static void fd_write(int fd)
{
	uint64_t one = 1;
	ssize_t n;

	do
		n = write(fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	/* EAGAIN: the counter is full, so the fd is readable already. */
	ASSERT(n == (ssize_t)sizeof(one) || errno == EAGAIN);
}

/* ---- the lane's thread --------------------------------------------------------------------- */

static void collect(struct lane *lane)
{
	struct list batch, *it, *tmp;

	list_init(&batch);
	chain_take(&lane->submitted, &batch);
	list_for_each_safe (it, tmp, &batch) {
		struct xfer *x = list_entry(it, struct xfer, link);

		list_remove(it);
		list_push_back(&lane->waiting[x->priority], it);
	}
}

/* Strictly by priority: what is refused keeps what is below it waiting. */
static void offer(struct lane *lane)
{
	const struct tier_ops *ops = lane->tier->base.ops;
	uint32_t before = lane->held;
	bool full = false;
	uint64_t now = 0;

	for (unsigned p = 0; p < XFER_PRIORITIES && !full; p++) {
		while (!full && !list_empty(&lane->waiting[p])) {
			struct xfer *x = list_first(&lane->waiting[p], struct xfer, link);
			int r;

			now = now != 0 ? now : clock_now_ns();
			x->begin_ns = now;
			list_remove(&x->link);
			r = ops->queue(lane->tier, x);
			ASSERT(r == 0 || r == -EBUSY);
			full = r == -EBUSY;
			if (full)
				list_push_front(&lane->waiting[p], &x->link);
			else
				lane->held++;
		}
	}
	ASSERT(!full || lane->held > 0); /* nothing would ever come back */
	if (lane->held > before)
		ops->commit(lane->tier);
}

static unsigned hand_back(struct lane *lane)
{
	struct xfer *done[REAP_MAX];
	unsigned n = lane->held > 0 ? lane->tier->base.ops->reap(lane->tier, done, REAP_MAX) : 0;
	uint64_t now = n > 0 ? clock_now_ns() : 0;

	ASSERT(n <= lane->held);
	lane->held -= n;
	for (unsigned i = 0; i < n; i++) {
		done[i]->end_ns = now;
		chain_push(&lane->finished, &done[i]->link);
	}
	/* Pairs with the control thread's store of done_wanted and its last lane_reap(). */
	if (n > 0 && atomic_load(lane->done_wanted) && atomic_exchange(lane->done_wanted, 0))
		fd_write(lane->done_fd);
	return n;
}

static void drain(struct lane *lane)
{
	uint64_t count;
	ssize_t n = read(lane->wake_fd, &count, sizeof(count));

	ASSERT(n == (ssize_t)sizeof(count) || errno == EAGAIN || errno == EINTR);
	/* Who cleared `asleep` has perhaps not written yet; the write will end a later wait. */
	lane->wake_owed = n < 0;
}

static void sleep_until_woken(struct lane *lane)
{
	atomic_store(&lane->asleep, 1);
	if (atomic_load(&lane->submitted.top) == NULL && !atomic_load(&lane->stop))
		lane->tier->base.ops->wait(lane->tier, -1);
	if (atomic_exchange(&lane->asleep, 0) == 0 || lane->wake_owed)
		drain(lane);
}

static bool idle(const struct lane *lane)
{
	for (unsigned p = 0; p < XFER_PRIORITIES; p++)
		if (!list_empty(&lane->waiting[p]))
			return false;
	return lane->held == 0 && atomic_load(&lane->submitted.top) == NULL;
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;
	struct tier *t = lane->tier;
	int r = t->base.ops->lane_start(t, lane->wake_fd, lane->start_err);

	ASSERT(r <= 0);
	lane->start_result = r;
	sem_post(&lane->started);
	if (r < 0)
		return NULL;
	while (!atomic_load(&lane->stop) || !idle(lane)) {
		collect(lane);
		offer(lane);
		if (hand_back(lane) == 0)
			sleep_until_woken(lane);
	}
	t->base.ops->lane_stop(t);
	return NULL;
}

/* ---- the control thread -------------------------------------------------------------------- */

static struct lane *lane_new(struct tier *tier, int done_fd, _Atomic uint32_t *done_wanted,
			     struct err *err)
{
	struct lane *lane = heap_aligned_zeros(CACHE_LINE, ALIGN_UP(sizeof(*lane), CACHE_LINE));

	if (lane == NULL) {
		err_set(err, ENOMEM, "%s: no memory for its lane", tier->base.name);
		return NULL;
	}
	lane->magic = LANE_MAGIC;
	lane->tier = tier;
	lane->done_fd = done_fd;
	lane->done_wanted = done_wanted;
	lane->start_err = err;
	list_init(&lane->reaped);
	for (unsigned p = 0; p < XFER_PRIORITIES; p++)
		list_init(&lane->waiting[p]);
	sem_init(&lane->started, 0, 0);
	lane->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (lane->wake_fd < 0) {
		err_set(err, errno, "%s: eventfd of its lane: %m", tier->base.name);
		sem_destroy(&lane->started);
		heap_free(lane);
		return NULL;
	}
	return lane;
}

static void lane_free(struct lane *lane)
{
	close(lane->wake_fd);
	sem_destroy(&lane->started);
	lane->magic = 0;
	heap_free(lane);
}

/* Signals are the control thread's business: a lane starts with those of others blocked. */
static int thread_start(struct lane *lane, struct err *err)
{
	sigset_t was;
	char name[16];
	int r;

	guard_block_signals(&was);
	r = pthread_create(&lane->thread, NULL, lane_main, lane);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (r != 0)
		return err_set(err, r, "%s: thread of its lane: %s", lane->tier->base.name,
			       strerror(r));
	snprintf(name, sizeof(name), "lane %.10s", lane->tier->base.name);
	pthread_setname_np(lane->thread, name);
	return 0;
}

int lane_start(struct tier *tier, int done_fd, _Atomic uint32_t *done_wanted, struct lane **ret,
	       struct err *err)
{
	struct lane *lane;
	int r;

	ASSERT(tier->base.magic == TIER_MAGIC);
	lane = lane_new(tier, done_fd, done_wanted, err);
	if (lane == NULL)
		return err != NULL ? err->code : -ENOMEM;
	r = thread_start(lane, err);
	if (r < 0) {
		lane_free(lane);
		return r;
	}
	while (sem_wait(&lane->started) < 0)
		ASSERT(errno == EINTR);
	r = lane->start_result;
	if (r < 0) {
		pthread_join(lane->thread, NULL);
		lane_free(lane);
		return r;
	}
	log_debug(LANE, "%s: started", tier->base.name);
	*ret = lane;
	return 0;
}

void lane_stop(struct lane *lane)
{
	ASSERT_OBJ(lane, LANE_MAGIC);
	atomic_store(&lane->stop, 1);
	lane_kick(lane);
	pthread_join(lane->thread, NULL);
	ASSERT(lane->lent == 0);
	log_debug(LANE, "%s: stopped", lane->tier->base.name);
	lane_free(lane);
}

void lane_submit(struct lane *lane, struct xfer *x)
{
	ASSERT_OBJ(lane, LANE_MAGIC);
	ASSERT(x->op < XFER_OPS && x->priority < XFER_PRIORITIES);
	/* The bytes of a PIN are another tier's. */
	ASSERT(x->op == XFER_PIN || (x->offset <= lane->tier->base.bytes &&
				     x->bytes <= lane->tier->base.bytes - x->offset));
	ASSERT(x->op != XFER_COPY ||
	       (x->from <= lane->tier->base.bytes && x->bytes <= lane->tier->base.bytes - x->from));
	x->result = 0;
	x->cause[0] = '\0';
	x->retries = 0;
	lane->lent++;
	chain_push(&lane->submitted, &x->link);
}

/* The lane sets `asleep` and then looks at `submitted`; here it is the other way round, all of it
 * seq_cst, so one of the two sees the other. */
void lane_kick(struct lane *lane)
{
	ASSERT_OBJ(lane, LANE_MAGIC);
	if (atomic_load(&lane->asleep) && atomic_exchange(&lane->asleep, 0))
		fd_write(lane->wake_fd);
}

unsigned lane_reap(struct lane *lane, struct xfer **done, unsigned max)
{
	unsigned n = 0;

	ASSERT_OBJ(lane, LANE_MAGIC);
	chain_take(&lane->finished, &lane->reaped);
	for (; n < max && !list_empty(&lane->reaped); n++)
		done[n] = list_entry(list_pop_front(&lane->reaped), struct xfer, link);
	ASSERT(lane->lent >= n);
	lane->lent -= n;
	return n;
}

void lane_ending(struct lane *lane)
{
	ASSERT_OBJ(lane, LANE_MAGIC);
	if (lane->tier->base.ops->ending == NULL)
		return;
	lane->tier->base.ops->ending(lane->tier);
	lane_kick(lane); /* what it held back comes now */
}

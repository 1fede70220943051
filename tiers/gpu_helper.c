/* SPDX-License-Identifier: Apache-2.0
 *
 * The helper thread of a GPU's lane: slabs and registration, which take the driver from tens of
 * microseconds to a second, while the lane goes on copying. Slabs go first: somebody waits for
 * their room, while registration only makes copies faster.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "tiers/gpu_inside.h"

/* ---- the helper's thread -------------------------------------------------------------------- */

static struct xfer *next_xfer(struct gpu_helper *h)
{
	struct list *from;
	struct xfer *x = NULL;

	pthread_mutex_lock(&h->lock);
	while (list_empty(&h->slabs) && list_empty(&h->pins) && !h->stop)
		pthread_cond_wait(&h->changed, &h->lock);
	from = list_empty(&h->slabs) ? &h->pins : &h->slabs;
	if (!list_empty(from))
		x = list_entry(list_pop_front(from), struct xfer, link);
	pthread_mutex_unlock(&h->lock);
	return x;
}

static void give_back(struct gpu_helper *h, struct xfer *x)
{
	uint64_t one = 1;
	ssize_t n;

	pthread_mutex_lock(&h->lock);
	list_push_back(&h->done, &x->link);
	atomic_fetch_add(&h->done_count, 1);
	pthread_mutex_unlock(&h->lock);
	do
		n = write(h->done_fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	ASSERT(n == (ssize_t)sizeof(one));
}

static void say_started(struct gpu_helper *h, int r)
{
	pthread_mutex_lock(&h->lock);
	h->start_result = r;
	h->started = true;
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
}

static void *helper_main(void *arg)
{
	struct gpu *g = arg;
	struct gpu_helper *h = &g->helper;
	struct xfer *x;
	int r = gpu_check(g, g->cuda->ctx_set_current(g->context), h->start_err, "cuCtxSetCurrent");

	say_started(h, r);
	while (r == 0 && (x = next_xfer(h)) != NULL) {
		if (x->op == XFER_PIN)
			gpu_pin_run(g, x->host, x->bytes);
		else
			gpu_slab_run(g, x);
		give_back(h, x);
	}
	return NULL;
}

/* ---- the lane ------------------------------------------------------------------------------- */

static int thread_start(struct gpu *g, struct err *err)
{
	struct gpu_helper *h = &g->helper;
	char name[16];
	int r = pthread_create(&h->thread, NULL, helper_main, g);

	if (r != 0)
		return err_set(err, r, "%s: thread of its slabs: %s", g->base.name, strerror(r));
	snprintf(name, sizeof(name), "slabs %.9s", g->base.name);
	pthread_setname_np(h->thread, name);
	pthread_mutex_lock(&h->lock);
	while (!h->started)
		pthread_cond_wait(&h->changed, &h->lock);
	pthread_mutex_unlock(&h->lock);
	if (h->start_result < 0)
		pthread_join(h->thread, NULL);
	return h->start_result;
}

static void destroy(struct gpu_helper *h)
{
	close(h->done_fd);
	pthread_cond_destroy(&h->changed);
	pthread_mutex_destroy(&h->lock);
}

/* Signals stay blocked, as the lane's are. */
int gpu_helper_start(struct gpu *g, struct err *err)
{
	struct gpu_helper *h = &g->helper;
	int r;

	*h = (struct gpu_helper){ .start_err = err };
	h->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->done_fd < 0)
		return err_set(err, errno, "%s: eventfd of its slabs: %m", g->base.name);
	list_init(&h->slabs);
	list_init(&h->pins);
	list_init(&h->done);
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->changed, NULL);
	r = thread_start(g, err);
	if (r < 0)
		destroy(h);
	return r;
}

void gpu_helper_stop(struct gpu *g)
{
	struct gpu_helper *h = &g->helper;

	pthread_mutex_lock(&h->lock);
	ASSERT(list_empty(&h->slabs) && list_empty(&h->pins) && list_empty(&h->done));
	h->stop = true;
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	destroy(h);
}

void gpu_helper_give(struct gpu *g, struct xfer *x)
{
	struct gpu_helper *h = &g->helper;

	pthread_mutex_lock(&h->lock);
	list_push_back(x->op == XFER_PIN ? &h->pins : &h->slabs, &x->link);
	pthread_cond_signal(&h->changed);
	pthread_mutex_unlock(&h->lock);
}

unsigned gpu_helper_take(struct gpu *g, struct xfer **done, unsigned max)
{
	struct gpu_helper *h = &g->helper;
	unsigned n = 0;

	if (atomic_load(&h->done_count) == 0)
		return 0;
	pthread_mutex_lock(&h->lock);
	for (; n < max && !list_empty(&h->done); n++)
		done[n] = list_entry(list_pop_front(&h->done), struct xfer, link);
	atomic_fetch_sub(&h->done_count, n);
	pthread_mutex_unlock(&h->lock);
	return n;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "base/log.h"
#include "libclient/protocol/ring.h"

#define LOOP_BATCH 64

struct loop {
	struct loop_work work;
	int epoll;
	bool stop;
	bool no_pwait2;       /* an older kernel, or a seccomp filter */
	bool said;            /* how it blocks is published, in `awake` */
	uint64_t progress_ns; /* when the last turn got something done */
	/* The batch being handed out: a source that goes is taken out of it as well. */
	struct epoll_event batch[LOOP_BATCH];
	int batch_count;
};

int loop_create(const struct loop_work *work, struct loop **ret, struct err *err)
{
	struct loop *loop = heap_zeros(1, sizeof(*loop));

	if (!loop)
		return err_set(err, ENOMEM, "control loop: no memory");
	loop->work = *work;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll < 0) {
		int rc = err_set(err, errno, "control loop: epoll: %s", strerror(errno));

		heap_free(loop);
		return rc;
	}
	*ret = loop;
	return 0;
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	close(loop->epoll);
	heap_free(loop);
}

int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events,
	     struct err *err)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		return err_set(err, errno, "control loop: watch of descriptor %d: %s", fd,
			       strerror(errno));
	source->fd = fd;
	return 0;
}

void loop_change(struct loop *loop, struct loop_source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (source->fd >= 0)
		ASSERT(epoll_ctl(loop->epoll, EPOLL_CTL_MOD, source->fd, &event) == 0);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
	if (source->fd < 0)
		return;
	ASSERT(epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL) == 0);
	source->fd = -1;
	for (int i = 0; i < loop->batch_count; i++) {
		if (loop->batch[i].data.ptr == source)
			loop->batch[i].data.ptr = NULL;
	}
}

static int loop_wait_ms(struct loop *loop, uint64_t timeout_ns)
{
	uint64_t ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
	int timeout = timeout_ns == LOOP_NEVER ? -1 : (int)MIN(ms, 60000u);

	return epoll_wait(loop->epoll, loop->batch, LOOP_BATCH, timeout);
}

static int loop_wait(struct loop *loop, uint64_t timeout_ns)
{
	struct timespec t = { (time_t)(timeout_ns / NS_PER_S), (long)(timeout_ns % NS_PER_S) };
	int n;

	if (loop->no_pwait2)
		return loop_wait_ms(loop, timeout_ns);
	n = epoll_pwait2(loop->epoll, loop->batch, LOOP_BATCH, timeout_ns == LOOP_NEVER ? NULL : &t,
			 NULL);
	if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
		loop->no_pwait2 = true;
		return loop_wait_ms(loop, timeout_ns);
	}
	return n;
}

static void loop_dispatch(struct loop *loop, int n)
{
	loop->batch_count = n;
	for (int i = 0; i < n; i++) {
		struct loop_source *source = loop->batch[i].data.ptr;

		if (source)
			source->ready(source, loop->batch[i].events);
	}
	loop->batch_count = 0;
}

/* Publishes how we are about to block, then looks again: a producer that stored its entry before it
 * read `awake` is found here, one that stored after it has read `awake` and rings. */
static uint64_t loop_fall_asleep(struct loop *loop, uint64_t now_ns, uint64_t next_ns)
{
	const struct loop_work *w = &loop->work;
	bool nap = now_ns - loop->progress_ns < LOOP_NAP_NS;
	uint64_t timeout_ns = next_ns == LOOP_NEVER ? LOOP_NEVER : next_ns - now_ns;

	if (nap)
		timeout_ns = MIN(timeout_ns, LOOP_NAP_LEG_NS);
	loop->said = true;
	/* Both pair with seq_cst: the producers' fence between their tail and their load of
	 * `awake`, and the lanes' store of a completion before their load of `done_wanted`. */
	for (unsigned i = 0; i < w->side_count; i++) {
		atomic_store(w->sides[i].awake, nap ? DAEMON_NAPPING : DAEMON_ASLEEP);
		atomic_store(w->sides[i].done_wanted, 1);
	}
	ring_fence();
	if (w->pending(w->ctx, !nap))
		return 0;
	if (timeout_ns == LOOP_NEVER) {
		for (unsigned i = 0; i < w->side_count; i++)
			atomic_fetch_add_explicit(w->sides[i].sleeps, 1, memory_order_relaxed);
		log_flush();
	}
	return timeout_ns;
}

/* Only what is not so: a turn of a busy loop is short, and each store takes the line of `awake`
 * from every client that hits. */
static void loop_wake_up(struct loop *loop)
{
	const struct loop_work *w = &loop->work;

	if (!loop->said)
		return;
	loop->said = false;
	for (unsigned i = 0; i < w->side_count; i++) {
		atomic_store(w->sides[i].awake, DAEMON_POLLING);
		atomic_store_explicit(w->sides[i].done_wanted, 0, memory_order_relaxed);
	}
}

static int loop_step(struct loop *loop, struct err *err)
{
	const struct loop_work *w = &loop->work;
	uint64_t now_ns = clock_now_ns(), next_ns = LOOP_NEVER, timeout_ns = 0;
	int n;

	if (w->turn(w->ctx, now_ns, &next_ns))
		loop->progress_ns = now_ns;
	for (unsigned i = 0; i < w->side_count; i++)
		atomic_fetch_add_explicit(w->sides[i].turns, 1, memory_order_relaxed);
	if (loop->stop)
		return 0;
	if (next_ns > now_ns && now_ns - loop->progress_ns >= w->spin_ns)
		timeout_ns = loop_fall_asleep(loop, now_ns, next_ns);
	n = loop_wait(loop, timeout_ns);
	loop_wake_up(loop);
	if (n < 0 && errno != EINTR)
		return err_set(err, errno, "control loop: wait: %s", strerror(errno));
	loop_dispatch(loop, MAX(n, 0));
	return 0;
}

int loop_run(struct loop *loop, struct err *err)
{
	int rc = 0;

	loop->stop = false;
	loop->said = true; /* whatever was left there */
	loop->progress_ns = clock_now_ns();
	while (!loop->stop && rc == 0)
		rc = loop_step(loop, err);
	return rc;
}

void loop_stop(struct loop *loop)
{
	loop->stop = true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pthread_setname_np() */
#include "libclient/watcher.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/nofile.h"
#include "libclient/completion.h"
#include "libclient/error.h"
#include "libclient/fence.h"
#include "libclient/slab.h"

static void daemon_died(struct tierd *t)
{
	pthread_mutex_lock(&t->lock);
	completion_check_daemon(t);
	pthread_mutex_unlock(&t->lock);
	fence_let_go(t);
}

static void *watch(void *arg)
{
	struct tierd *t = arg;
	struct pollfd p[2] = { { .fd = t->watch_stop_fd, .events = POLLIN },
			       { .fd = t->socket_fd, .events = POLLIN | POLLRDHUP } };
	nfds_t n = 2;

	for (;;) {
		if (poll(p, n, -1) < 0)
			continue;
		if (p[0].revents != 0)
			return NULL;
		if (n == 2 && (p[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
			daemon_died(t);
			n = 1;
		} else if (n == 2 && p[1].revents != 0) {
			slab_drain(t, true);
		}
	}
}

/* The process's signals are for its own threads. */
static int create(struct tierd *t)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&t->watcher, NULL, watch, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

/* `watch_lock` is held. */
static int start(struct tierd *t)
{
	int rc;

	t->watch_stop_fd = nofile_above_stdio(eventfd(0, EFD_CLOEXEC));
	if (t->watch_stop_fd < 0)
		return error_set(errno, "eventfd: %s", strerror(errno));
	rc = create(t);
	if (rc != 0) {
		close(t->watch_stop_fd);
		t->watch_stop_fd = -1;
		return error_set(rc == EAGAIN ? ENOMEM : rc,
				 "no thread to watch the daemon (TIERD_NO_THREAD does without): %s",
				 strerror(rc));
	}
	pthread_setname_np(t->watcher, "tierd-watch");
	t->watching = true;
	atomic_store(&t->watched, 1);
	return 0;
}

int watcher_start(struct tierd *t)
{
	int rc = 0;

	if (atomic_load(&t->watched) != 0)
		return 0;
	pthread_mutex_lock(&t->watch_lock);
	if (!t->watching)
		rc = start(t);
	pthread_mutex_unlock(&t->watch_lock);
	return rc;
}

void watcher_stop(struct tierd *t)
{
	uint64_t one = 1;

	if (!t->watching)
		return;
	while (write(t->watch_stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		continue;
	pthread_join(t->watcher, NULL);
	close(t->watch_stop_fd);
	t->watch_stop_fd = -1;
	t->watching = false;
	atomic_store(&t->watched, 0);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a connection: open, close, and who may use it in between.
 *
 * A close with views held does not unmap. It marks the slot of every view (PIN_CLOSING), counts
 * their pins, and leaves; a release that finds the mark in the slot it lowered knows that its pin
 * was counted, and the one that brings the count to zero unmaps. Releases of an open connection pay
 * nothing for this.
 *
 * Pins that a stream is to end (deferred.c) are no views: close waits for those streams first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "libclient/access_log.h"
#include "libclient/close.h"
#include "libclient/connect.h"
#include "libclient/deferred.h"
#include "libclient/error.h"
#include "libclient/request.h"
#include "libclient/slots.h"
#include "libclient/watcher.h"

#define SOCKET_PATH_BYTES 108                 /* sun_path */
#define CLOSE_BIAS        ((uint64_t)1 << 62) /* holds the memory while tierd_close() counts */
#define SPIN_US_MAX       1000

static struct tierd *client_new(struct err *err)
{
	struct tierd *t =
		mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (t == MAP_FAILED) {
		err_set(err, ENOMEM, "no memory for a connection");
		return NULL;
	}
	if (madvise(t, CLIENT_HOT_BYTES, MADV_WIPEONFORK) < 0) {
		err_set(err, errno, "this kernel cannot wipe memory on fork: %s", strerror(errno));
		munmap(t, sizeof(*t));
		return NULL;
	}
	t->magic = CLIENT_MAGIC;
	t->pid = getpid();
	t->socket_fd = -1;
	t->control_fd = -1;
	t->doorbell_fd = -1;
	t->watch_stop_fd = -1;
	pthread_mutex_init(&t->slab_lock, NULL);
	pthread_mutex_init(&t->place_lock, NULL);
	pthread_mutex_init(&t->register_lock, NULL);
	pthread_mutex_init(&t->fence_lock, NULL);
	pthread_mutex_init(&t->deferred_lock, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(t->stream); i++)
		pthread_mutex_init(&t->stream[i].lock, NULL);
	pthread_mutex_init(&t->watch_lock, NULL);
	return t;
}

static uint64_t spin_from_env(void)
{
	const char *text = getenv("TIERD_SPIN_US");
	unsigned long us;

	if (text == NULL)
		return REQUEST_SPIN_NS;
	us = strtoul(text, NULL, 10);
	return MIN(us, SPIN_US_MAX) * NS_PER_US;
}

static void close_fds(struct hello_fds *fds)
{
	for (unsigned i = 0; i < fds->count; i++)
		if (fds->fd[i] >= 0)
			close(fds->fd[i]);
}

static int client_connect(struct tierd *t, const char *path, const char *name_space,
			  const char *domain, struct err *err)
{
	struct hello_reply reply;
	struct hello_fds fds = { .count = 0 };
	uint64_t cookie;
	int rc;

	if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie))
		return err_set(err, errno, "getrandom: %s", strerror(errno));
	rc = connect_socket(path, &t->socket_fd, err);
	if (rc < 0)
		return rc;
	rc = connect_hello(t->socket_fd, path, name_space, domain, &reply, &fds, err);
	if (rc < 0)
		return rc;
	rc = map_segments(t, &reply, &fds, err);
	close_fds(&fds);
	if (rc < 0)
		return err_prefix(err, "%s", path);
	request_start(t);
	t->spin_ns = spin_from_env();
	t->hot.cookie = (cookie | (uint64_t)1 << 63) & ~(uint64_t)0xff;
	atomic_store_explicit(&t->hot.count, t->hot.tensors, memory_order_release);
	return 0;
}

static void client_free(struct tierd *t)
{
	if (t->watch_stop_fd >= 0)
		close(t->watch_stop_fd);
	if (t->doorbell_fd >= 0)
		close(t->doorbell_fd);
	if (t->control_fd >= 0)
		close(t->control_fd);
	if (t->socket_fd >= 0)
		close(t->socket_fd);
	munmap(t, sizeof(*t));
}

int open_in_domain(const char *socket_path, const char *name_space, const char *domain,
		   uint64_t flags, struct tierd **ret)
{
	struct err *err = error_slot();
	char path[SOCKET_PATH_BYTES];
	struct tierd *t;
	size_t n;
	int rc;

	if (name_space == NULL)
		name_space = "default";
	n = strlen(name_space);
	if ((flags & ~(uint64_t)TIERD_NO_THREAD) != 0)
		return err_set(err, EINVAL, "flags %#llx: no such flag", (unsigned long long)flags);
	if (n == 0)
		return err_set(err, EINVAL, "the namespace is empty");
	if (n > TIERD_NAME_MAX)
		return err_set(err, ENAMETOOLONG, "a namespace of %zu bytes, at most %d", n,
			       TIERD_NAME_MAX);
	rc = connect_path(socket_path, path, sizeof(path), err);
	if (rc < 0)
		return rc;
	t = client_new(err);
	if (t == NULL)
		return err->code;
	t->no_thread = (flags & TIERD_NO_THREAD) != 0;
	rc = client_connect(t, path, name_space, domain, err);
	if (rc < 0) {
		client_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

int tierd_open(const char *socket_path, const char *name_space, uint64_t flags, struct tierd **ret)
{
	return open_in_domain(socket_path, name_space, NULL, flags, ret);
}

/* After the last unmapping: the daemon may take the bytes back without waiting for our end. */
static void say_bye(struct tierd *t)
{
	struct hello_bye bye = { .magic = PROTOCOL_MAGIC, .bye = "BYE" };

	send(t->socket_fd, &bye, sizeof(bye), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void client_end(struct tierd *t)
{
	map_undo(t);
	say_bye(t);
	client_free(t);
}

/* Marks a slot that holds pins; returns how many. */
static uint64_t slot_close(pin_slot *slot)
{
	uint64_t old = atomic_load_explicit(slot, memory_order_relaxed);

	while ((old & PIN_MASK) != 0)
		if (atomic_compare_exchange_weak_explicit(slot, &old, old | PIN_CLOSING,
							  memory_order_acq_rel,
							  memory_order_relaxed))
			return old & PIN_MASK;
	return 0;
}

static bool count_view(struct tierd *t, uint32_t index, void *ctx)
{
	atomic_fetch_add(&t->views_left, slot_close(&t->hot.slots[index]));
	return false;
}

/* A child's copy: its segments are not mapped here and its daemon is not this process's to talk to.
 */
static void close_forked(struct tierd *t)
{
	access_log_forget(t);
	client_free(t);
}

void tierd_close(struct tierd *t)
{
	bool settled;

	if (t == NULL)
		return;
	ASSERT_OBJ(t, CLIENT_MAGIC);
	if (client_is_forked(t)) {
		close_forked(t);
		return;
	}
	/* While the watcher runs, so that a daemon that dies now holds up no stream. */
	settled = deferred_settle(t);
	access_log_forget(t);
	atomic_store(&t->hot.count, 0);
	/* A stream may go on writing there: it all stays mapped and pinned until the process ends,
	 * which its pidfd tells the daemon. So does the watcher stay, for one may be waiting. */
	if (!settled)
		return;
	watcher_stop(t);
	atomic_store(&t->views_left, CLOSE_BIAS);
	slots_any(t, count_view, NULL);
	close_view_ended(t, CLOSE_BIAS);
}

void close_view_ended(struct tierd *t, uint64_t views)
{
	if (atomic_fetch_sub_explicit(&t->views_left, views, memory_order_acq_rel) == views)
		client_end(t);
}

int client_usable(struct tierd *t)
{
	int rc = 0;

	if (likely(atomic_load_explicit(&t->hot.count, memory_order_relaxed) != 0))
		return 0;
	if (client_is_forked(t))
		return error_set(EPERM, "the connection belongs to process %d, not to its child",
				 (int)t->pid);
	pthread_mutex_lock(&t->lock);
	if (t->broken)
		rc = error_set(EPIPE, "%s", t->broken_why.text);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void client_ring(struct tierd *t)
{
	uint64_t one = 1;

	/* Fails only when the counter is full, and then the daemon is being woken anyhow. */
	if (write(t->doorbell_fd, &one, sizeof(one)) < 0)
		return;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/nofile.h"
#include "libclient/acquire.h"
#include "libclient/error.h"
#include "libclient/gpu.h"
#include "libclient/request.h"
#include "libclient/slots.h"

#define SLABS_MAX  65536u
#define FULL_TRIES 16u
#define LOOK_NS    NS_PER_MS
#define FDS_MAX    8 /* more than a message may bring, so that none is lost */

int slab_arena_add(struct tierd *t, const struct hello_arena *a, struct err *err)
{
	static const uint8_t none[16];
	struct slab_arena *s = &t->slabs[a->arena];
	uint64_t slabs = a->bytes / a->slab_bytes;

	if (a->slab_bytes < 4096 || (a->slab_bytes & (a->slab_bytes - 1)) != 0 ||
	    a->bytes % a->slab_bytes != 0 || slabs == 0 || slabs > SLABS_MAX ||
	    a->place >= PLACE_UNKNOWN || memcmp(a->uuid, none, 16) == 0)
		return err_set(err, EPROTO, "arena %u: slabs that cannot be", a->arena);
	s->mapped = calloc((slabs + 63) / 64, sizeof(*s->mapped));
	if (s->mapped == NULL)
		return err_set(err, ENOMEM, "no memory for an arena of %llu slabs",
			       (unsigned long long)slabs);
	s->bytes = a->bytes;
	s->slab_bytes = a->slab_bytes;
	s->slab_shift = (unsigned)__builtin_ctzll(a->slab_bytes);
	s->place = a->place;
	s->ordinal = -1;
	memcpy(s->uuid, a->uuid, sizeof(s->uuid));
	t->by_uuid = true;
	return 0;
}

static struct slab_arena *arena_at(struct tierd *t, uint64_t word1, uint64_t bytes)
{
	struct slab_arena *a;

	if (word1_arena(word1) >= HELLO_ARENAS_MAX)
		return NULL;
	a = &t->slabs[word1_arena(word1)];
	if (word1_offset(word1) >= a->bytes || bytes > a->bytes - word1_offset(word1))
		return NULL;
	return a;
}

/* The first slab of [offset, bytes) that is missing, or one past its last. A tensor of 0 bytes
 * reaches into one all the same, so that its pointer is one. */
static uint64_t first_missing(const struct slab_arena *a, uint64_t offset, uint64_t bytes,
			      bool *ret_all)
{
	uint64_t end = ((offset + MAX(bytes, 1) - 1) >> a->slab_shift) + 1, i;

	for (i = offset >> a->slab_shift; i < end && slab_is_mapped(a, i);)
		i++;
	*ret_all = i == end;
	return i;
}

void *slab_data(struct tierd *t, uint64_t word1, uint64_t bytes)
{
	struct slab_arena *a = arena_at(t, word1, bytes);
	bool all;

	if (a == NULL)
		return NULL;
	first_missing(a, word1_offset(word1), bytes, &all);
	return all ? a->base + word1_offset(word1) : NULL;
}

/* ---- what comes over the socket: `slab_lock` is held ---- */

/* The one descriptor of a message in *ret_fd, or -1; how many came. */
static int take_fds(struct msghdr *m, int *ret_fd)
{
	int count = 0;

	*ret_fd = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++, count++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (count == 0)
				*ret_fd = nofile_above_stdio(fd);
			else
				close(fd);
		}
	}
	return count;
}

struct message {
	struct hello_slab slab;
	int fd;   /* of MAP; -1: it could not be taken */
	bool bad; /* no message of tierd's */
};

/* False: none is there. */
static bool receive(struct tierd *t, struct message *ret)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = &ret->slab, .iov_len = sizeof(ret->slab) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	ssize_t n;
	int fds;

	do
		n = recvmsg(t->socket_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return false;
	fds = take_fds(&m, &ret->fd);
	/* One without a byte may bring descriptors all the same. */
	if (n == 0 && fds == 0)
		return false;
	ret->bad = n != sizeof(ret->slab) || (m.msg_flags & MSG_TRUNC) ||
		   ret->slab.magic != PROTOCOL_MAGIC || fds > (ret->slab.kind == SLAB_MAP ? 1 : 0);
	if ((ret->bad || (m.msg_flags & MSG_CTRUNC)) && ret->fd >= 0) {
		close(ret->fd);
		ret->fd = -1;
	}
	return true;
}

static void say(struct tierd *t, uint16_t opcode, uint32_t arena, uint64_t offset)
{
	struct call c;

	/* A connection that is broken has nobody to tell. */
	if (request_begin(t, CALL_URGENT, opcode, &c) < 0)
		return;
	c.entry.index = arena;
	c.entry.offset = offset;
	request_send(t, &c);
}

/* The daemon may take the memory: it is not mapped here. */
static void say_gone(struct tierd *t, uint32_t arena, uint64_t offset)
{
	say(t, OP_SLAB_GONE, arena, offset);
}

struct place_range {
	uint32_t arena;
	uint64_t begin, end;
};

/* Under a pin word1 stands still; without one this errs, and the daemon asks again. */
static bool pin_stands_in(struct tierd *t, uint32_t index, void *ctx)
{
	const struct place_range *range = ctx;
	const struct descriptor *d = &t->hot.descriptors[index];
	uint64_t word1;

	if ((atomic_load(&t->hot.slots[index]) & PIN_MASK) == 0)
		return false;
	word1 = atomic_load(&d->word1);
	return word1_arena(word1) == range->arena && word1_offset(word1) < range->end &&
	       word1_offset(word1) + MAX(d->bytes, 1) > range->begin;
}

/* The daemon wants a slab back in which nothing stood when it asked. By now it may have thought
 * better of it, and something of ours stand there. Returns what is to be said; 0: nothing, as the
 * driver did not unmap it. It is there still, then, and the daemon asks for no answer twice. */
static uint16_t try_unmap(struct tierd *t, uint32_t arena, struct slab_arena *a, uint64_t slab)
{
	struct place_range range = { arena, slab * a->slab_bytes, (slab + 1) * a->slab_bytes };
	_Atomic uint64_t *word = &a->mapped[slab / 64];
	uint64_t bit = (uint64_t)1 << (slab % 64);
	uint16_t answer = OP_SLAB_GONE;
	struct err err = ERR_INIT;

	if (!slab_is_mapped(a, slab))
		return answer;
	/* Whoever pins from here on finds the slab missing and comes to wait for our lock. */
	atomic_fetch_and(word, ~bit);
	if (slots_any(t, pin_stands_in, &range))
		answer = OP_SLAB_KEPT;
	else if (gpu_unmap(a->base + range.begin, a->slab_bytes, &err) < 0)
		answer = 0;
	if (answer == OP_SLAB_GONE)
		atomic_fetch_sub(&t->slabs_mapped, 1);
	else
		atomic_fetch_or(word, bit);
	if (answer == 0)
		log_debug(CLIENT, "%s", err.text);
	return answer;
}

static void unmap_asked(struct tierd *t, uint32_t arena, struct slab_arena *a, uint64_t offset)
{
	uint16_t answer = try_unmap(t, arena, a, offset / a->slab_bytes);

	if (answer != 0)
		say(t, answer, arena, offset);
}

static void take_message(struct tierd *t, const struct message *m)
{
	const struct hello_slab *s = &m->slab;
	struct slab_arena *a = s->arena < HELLO_ARENAS_MAX ? &t->slabs[s->arena] : NULL;

	if (m->fd >= 0)
		close(m->fd);
	if (m->bad || a == NULL || s->offset >= a->bytes || s->offset % a->slab_bytes != 0) {
		log_debug(CLIENT, "a message of the daemon that cannot be");
		return;
	}
	/* A MAP that nobody waits for is given back as well. */
	if (s->kind == SLAB_UNMAP)
		unmap_asked(t, s->arena, a, s->offset);
	else if (!slab_is_mapped(a, s->offset / a->slab_bytes))
		say_gone(t, s->arena, s->offset);
}

static void drain_locked(struct tierd *t)
{
	struct message m;

	while (receive(t, &m))
		take_message(t, &m);
}

void slab_drain(struct tierd *t, bool wait)
{
	/* Said by this thread's own requests too, from below the lock. */
	if (wait)
		pthread_mutex_lock(&t->slab_lock);
	else if (pthread_mutex_trylock(&t->slab_lock) != 0)
		return;
	drain_locked(t);
	pthread_mutex_unlock(&t->slab_lock);
}

/* ---- mapping: `slab_lock` is held ---- */

/* The descriptor that came before the answer to our OP_SLAB. */
static int take_fd(struct tierd *t, uint32_t arena, uint64_t offset, int *ret)
{
	struct message m;

	while (receive(t, &m)) {
		/* Asked before the daemon heard that we have none; a GONE now would be taken for
		 * the MAP's that comes. */
		if (!m.bad && m.slab.kind == SLAB_UNMAP && m.slab.arena == arena &&
		    m.slab.offset == offset)
			continue;
		if (m.bad || m.slab.kind != SLAB_MAP || m.slab.arena != arena ||
		    m.slab.offset != offset) {
			take_message(t, &m);
			continue;
		}
		if (m.fd < 0)
			return error_set(EMFILE, "the descriptor of a slab was cut off");
		if (m.slab.bytes == t->slabs[arena].slab_bytes) {
			*ret = m.fd;
			return 0;
		}
		close(m.fd);
		return error_set(EPROTO, "a slab of %llu bytes, not %llu",
				 (unsigned long long)m.slab.bytes,
				 (unsigned long long)t->slabs[arena].slab_bytes);
	}
	return error_set(EPROTO, "the daemon said that a slab is there and sent none");
}

static int ask_once(struct tierd *t, uint32_t arena, uint64_t offset, uint64_t until_ns)
{
	struct call c;
	int rc = request_begin_until(t, CALL_URGENT, OP_SLAB, until_ns, &c);

	if (rc < 0)
		return rc;
	c.entry.index = arena;
	c.entry.offset = offset;
	rc = request_run(t, &c, until_ns);
	return rc < 0 ? rc : 0;
}

/* -EAGAIN means that there are messages that nobody had read. If it stays so, descriptors on their
 * way to others are in the way: -EMFILE, with the daemon's sentence. */
static int ask_slab(struct tierd *t, uint32_t arena, uint64_t offset, uint64_t until_ns)
{
	int rc = ask_once(t, arena, offset, until_ns);

	for (unsigned i = 0; rc == -EAGAIN && i < FULL_TRIES; i++) {
		drain_locked(t);
		rc = ask_once(t, arena, offset, until_ns);
	}
	if (rc == -EAGAIN)
		rc = error_slot()->code = -EMFILE;
	return rc;
}

static int map(struct tierd *t, uint32_t arena, uint64_t slab, uint64_t until_ns)
{
	struct slab_arena *a = &t->slabs[arena];
	uint64_t offset = slab * a->slab_bytes;
	struct err *err = error_slot();
	int fd = -1, rc = ask_slab(t, arena, offset, until_ns);

	if (rc < 0)
		return rc;
	rc = take_fd(t, arena, offset, &fd);
	if (rc == 0) {
		rc = gpu_map(a->ordinal, fd, a->base + offset, a->slab_bytes, err);
		/* The import has a reference of its own. */
		close(fd);
	}
	if (rc < 0) {
		struct err first = *err;

		say_gone(t, arena, offset);
		*err = first;
		return rc;
	}
	atomic_fetch_add(&t->slabs_mapped, 1);
	atomic_fetch_or_explicit(&a->mapped[slab / 64], (uint64_t)1 << (slab % 64),
				 memory_order_release);
	return 0;
}

static int reserve(struct tierd *t, struct slab_arena *a)
{
	void *base;
	int rc;

	if (a->base != NULL)
		return 0;
	rc = gpu_reserve(a->bytes, &base, error_slot());
	if (rc == 0)
		a->base = base;
	return rc;
}

/* Whoever has it may be waiting for a daemon that says nothing, and longer than we may. */
static int lock_until(struct tierd *t, uint64_t until_ns)
{
	struct timespec look = { .tv_nsec = (long)LOOK_NS };

	if (until_ns == REQUEST_NEVER) {
		pthread_mutex_lock(&t->slab_lock);
		return 0;
	}
	while (pthread_mutex_trylock(&t->slab_lock) != 0) {
		if (clock_now_ns() >= request_late_ns(until_ns))
			return request_set_late();
		nanosleep(&look, NULL);
	}
	return 0;
}

int slab_reach(struct tierd *t, tierd_tensor h, uint64_t until_ns)
{
	struct descriptor *d = &t->hot.descriptors[h.index];
	uint64_t word1 = atomic_load_explicit(&d->word1, memory_order_relaxed);
	struct slab_arena *a = arena_at(t, word1, d->bytes);
	bool all = false;
	int ordinal, rc;

	if (a == NULL)
		return acquire_refused(t, h, -EPROTO);
	rc = place_ordinal(t, a->place, true, &ordinal);
	if (rc < 0)
		return rc;
	rc = lock_until(t, until_ns);
	if (rc < 0)
		return rc;
	rc = reserve(t, a);
	while (rc == 0) {
		uint64_t slab = first_missing(a, word1_offset(word1), d->bytes, &all);

		if (all)
			break;
		rc = map(t, word1_arena(word1), slab, until_ns);
	}
	pthread_mutex_unlock(&t->slab_lock);
	return rc;
}

/* What the driver does not give back goes with the process. */
static void arena_undo(struct tierd *t, struct slab_arena *a)
{
	for (uint64_t i = 0; i < a->bytes / a->slab_bytes; i++) {
		if (!slab_is_mapped(a, i))
			continue;
		(void)gpu_unmap(a->base + i * a->slab_bytes, a->slab_bytes, NULL);
		atomic_fetch_sub(&t->slabs_mapped, 1);
	}
	if (a->base != NULL)
		gpu_unreserve(a->base, a->bytes);
	free((void *)a->mapped);
	*a = (struct slab_arena){ 0 };
}

void slab_undo(struct tierd *t)
{
	for (unsigned i = 0; i < HELLO_ARENAS_MAX; i++)
		if (t->slabs[i].bytes != 0)
			arena_undo(t, &t->slabs[i]);
}

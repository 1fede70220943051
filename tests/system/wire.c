/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/system/wire.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"

#define ANSWER_MS 10000

int wire_connect(const char *path, struct wire *ret)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	*ret = (struct wire){ .fd = fd };
	return 0;
}

void wire_hello_fill(const char *name_space, struct hello_request *ret)
{
	*ret = (struct hello_request){ .magic = PROTOCOL_MAGIC,
				       .major = PROTOCOL_MAJOR,
				       .minor = PROTOCOL_MINOR,
				       .name_space_bytes = (uint32_t)strlen(name_space) };
	memcpy(ret->name_space, name_space, ret->name_space_bytes);
}

int wire_hello(struct wire *w, const char *name_space)
{
	struct hello_request hello;

	wire_hello_fill(name_space, &hello);
	return send(w->fd, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello) ? 0 : -errno;
}

static void take_fds(struct wire *w, struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	if (!c || c->cmsg_type != SCM_RIGHTS)
		return;
	w->fd_count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(w->fds, CMSG_DATA(c), w->fd_count * sizeof(int));
}

static void *map(int fd, uint64_t bytes, int protection)
{
	void *base = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

	return base == MAP_FAILED ? NULL : base;
}

static int map_all(struct wire *w)
{
	const struct hello_reply *r = &w->reply;
	unsigned fd = HELLO_FDS;
	bool ok;

	w->control = map(w->fds[0], r->control_bytes, PROT_READ | PROT_WRITE);
	w->table = map(w->fds[1], r->table_bytes, PROT_READ);
	w->stats = map(w->fds[3], r->stats_bytes, PROT_READ);
	ok = w->control && w->table && w->stats;
	for (unsigned i = 0; i < r->arenas && fd < w->fd_count; i++) {
		if (r->arena[i].slab_bytes > 0)
			continue;
		w->arena[i] = map(w->fds[fd++], r->arena[i].bytes, PROT_READ | PROT_WRITE);
		ok = ok && w->arena[i];
	}
	ok = ok && fd == w->fd_count;
	if (!ok)
		return -errno;
	w->sq = w->control->sq;
	w->cq = w->control->cq;
	w->texts = w->control->texts;
	w->payload = w->control->payload;
	w->pins = w->control->pins;
	return 0;
}

int wire_receive(struct wire *w)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(w->fds))];
	struct iovec iov = { &w->reply, sizeof(w->reply) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct pollfd p = { w->fd, POLLIN, 0 };
	ssize_t n;

	if (poll(&p, 1, ANSWER_MS) != 1)
		return -ETIME;
	n = recvmsg(w->fd, &m, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	if (n != sizeof(w->reply))
		return -ECONNRESET;
	take_fds(w, &m);
	if (w->reply.result < 0)
		return w->reply.result;
	return w->fd_count == w->reply.fds ? map_all(w) : -EPROTO;
}

int wire_open(const char *path, const char *name_space, struct wire *ret)
{
	int rc = wire_connect(path, ret);

	if (rc == 0)
		rc = wire_hello(ret, name_space);
	return rc == 0 ? wire_receive(ret) : rc;
}

void wire_close(struct wire *w)
{
	if (w->control)
		munmap(w->control, w->reply.control_bytes);
	if (w->table)
		munmap((void *)w->table, w->reply.table_bytes);
	if (w->stats)
		munmap((void *)w->stats, w->reply.stats_bytes);
	for (unsigned i = 0; i < HELLO_ARENAS_MAX; i++)
		if (w->arena[i])
			munmap(w->arena[i], w->reply.arena[i].bytes);
	for (unsigned i = 0; i < w->fd_count; i++)
		close(w->fds[i]);
	if (w->fd >= 0)
		close(w->fd);
	*w = (struct wire){ .fd = -1 };
}

void wire_bye(struct wire *w)
{
	const struct hello_bye bye = { PROTOCOL_MAGIC, "BYE" };

	(void)!send(w->fd, &bye, sizeof(bye), MSG_NOSIGNAL);
	wire_close(w);
}

void wire_submit(struct wire *w, const struct sq_entry *e)
{
	ring_put(wire_part(w, w->sq.offset), SQ_ENTRIES, &w->control->sq_tail, &w->sq_tail, e);
	ring_fence();
	if (atomic_load(&((struct table_header *)w->table)->awake) != DAEMON_POLLING)
		eventfd_write(w->fds[2], 1);
}

bool wire_poll(struct wire *w, struct cq_entry *ret)
{
	if (ring_take(wire_part(w, w->cq.offset), SQ_ENTRIES, &w->control->cq_tail, &w->cq_head,
		      ret) != 1)
		return false;
	atomic_store_explicit(&w->control->cq_head, w->cq_head, memory_order_release);
	return true;
}

static void sleep_on_tail(struct wire *w, uint64_t ns)
{
	struct timespec t = { (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };

	atomic_store(&w->control->cq_waiting, 1);
	ring_fence();
	if (atomic_load(&w->control->cq_tail) == w->cq_head)
		syscall(SYS_futex, &w->control->cq_tail, FUTEX_WAIT, w->cq_head, &t, NULL, 0);
	atomic_store(&w->control->cq_waiting, 0);
}

bool wire_wait(struct wire *w, int timeout_ms, struct cq_entry *ret)
{
	uint64_t end_ns = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS, now_ns;

	while (!wire_poll(w, ret)) {
		now_ns = clock_now_ns();
		if (now_ns >= end_ns)
			return false;
		sleep_on_tail(w, end_ns - now_ns);
	}
	return true;
}

int wire_call(struct wire *w, const struct sq_entry *e, struct cq_entry *ret)
{
	wire_submit(w, e);
	return wire_wait(w, ANSWER_MS, ret) ? ret->result : -ETIME;
}

int wire_create(struct wire *w, const char *name, uint64_t bytes, struct wire_handle *ret)
{
	size_t name_bytes = name ? strlen(name) : 0;
	struct wire_spec spec = { .bytes = (uint32_t)ALIGN_UP(sizeof(spec) + name_bytes, 8),
				  .ndim = 1,
				  .name_bytes = (uint8_t)name_bytes,
				  .shape = { bytes } };
	struct sq_entry e = { .opcode = OP_CREATE, .payload_bytes = spec.bytes, .count = 1 };
	char *payload = wire_payload(w, 0);
	struct cq_entry c;
	int rc;

	memcpy(payload, &spec, sizeof(spec));
	if (name)
		memcpy(payload + sizeof(spec), name, name_bytes);
	rc = wire_call(w, &e, &c);
	if (rc == 0)
		memcpy(ret, payload, sizeof(*ret));
	return rc;
}

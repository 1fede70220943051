/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/fuzz/hostile.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/fuzz/flipper.h"

#define HELLO_TURNS 3u

bool hostile_connect(struct hostile *c)
{
	struct fuzz_daemon *d = c->daemon;
	unsigned pid = d->pids, number = c->number, ghost = c->ghost;
	int rc;

	if (pid == DAEMON_PIDS)
		return false;
	*c = (struct hostile){ .daemon = d, .number = number, .pid = pid, .ghost = ghost };
	control_layout(WORLD_TENSORS, &c->at);
	ASSERT(wire_connect(daemon_socket(), &c->wire) == 0);
	ASSERT(wire_hello(&c->wire, number % 2 == 0 ? "job" : "job2") == 0);
	daemon_turns(d, HELLO_TURNS);
	rc = wire_receive(&c->wire);
	ASSERT(rc == 0 && d->pids == pid + 1);
	flipper_aim(number, c->wire.control);
	return true;
}

/* Beyond the pin table there are zeros to the end of the page. */
static void check_slack(const struct hostile *c)
{
	const char *at = hostile_part(c, c->at.pins + WORLD_TENSORS * sizeof(pin_slot));
	const char *end = hostile_part(c, c->at.bytes);

	for (; at < end; at++)
		ASSERT(*at == 0);
}

void hostile_end(struct hostile *c, unsigned how)
{
	if (c->wire.fd < 0)
		return;
	flipper_aim(c->number, NULL);
	check_slack(c);
	if (how % 3 == 0)
		wire_bye(&c->wire);
	else
		wire_close(&c->wire);
	daemon_kill(c->daemon, how % 3 == 1 ? c->pid : c->ghost);
	if (how % 3 == 2)
		c->ghost = c->pid;
}

/* Ids that wait for nothing come first, so that most entries are heard. */
static uint32_t id_take(struct hostile *c)
{
	for (unsigned n = 0; n < SQ_ENTRIES; n++) {
		uint32_t id = c->next_id++ % SQ_ENTRIES;

		if (!(c->outstanding[id / 64] >> (id % 64) & 1)) {
			c->outstanding[id / 64] |= 1ull << (id % 64);
			return id;
		}
	}
	return SQ_ENTRIES;
}

bool hostile_put(struct hostile *c, struct sq_entry *e, bool keep_id)
{
	struct control_header *h = c->wire.control;
	uint32_t taken = atomic_load(&h->sq_head);

	if (c->wire.sq_tail - taken >= SQ_ENTRIES)
		return false;
	if (!keep_id) {
		e->id = id_take(c);
		if (e->id == SQ_ENTRIES)
			return false;
	}
	ring_put(hostile_part(c, c->at.sq), SQ_ENTRIES, &h->sq_tail, &c->wire.sq_tail, e);
	return true;
}

/* What was created or found: handles stand in the payload. Which payload, the flipper may know
 * better than we do; what is no handle is a wrong one to try. */
static void learn(struct hostile *c, const struct cq_entry *e)
{
	const struct wire_handle *at = hostile_part(c, c->at.payload);

	c->outstanding[e->id / 64 % ARRAY_SIZE(c->outstanding)] &= ~(1ull << (e->id % 64));
	if (e->result != 0 || e->payload_bytes == 0 || e->payload_bytes % sizeof(*at) != 0 ||
	    e->payload_bytes > 8 * sizeof(*at))
		return;
	at += e->id % 4 * (PAYLOAD_BYTES / sizeof(*at));
	for (uint32_t i = 0; i < e->payload_bytes / sizeof(*at); i++)
		c->handle[c->handles++ % HOSTILE_HANDLES] = at[i];
}

/* A message about a slab; its descriptor is not wanted. */
static bool hear(struct hostile *c)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(4 * sizeof(int))];
	struct hello_slab slab;
	struct iovec iov = { &slab, sizeof(slab) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	ssize_t n = recvmsg(c->wire.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	int fd;

	if (n < 0 && errno == EAGAIN)
		return true;
	if (n <= 0)
		return false;
	ASSERT(n == sizeof(slab) && slab.magic == PROTOCOL_MAGIC);
	ASSERT((h != NULL) == (slab.kind == SLAB_MAP));
	if (h != NULL) {
		memcpy(&fd, CMSG_DATA(h), sizeof(fd));
		ASSERT(h->cmsg_len == CMSG_LEN(sizeof(fd)) && close(fd) == 0);
	}
	return true;
}

bool hostile_look(struct hostile *c)
{
	struct cq_entry e;

	for (unsigned n = 0; n < SQ_ENTRIES && wire_poll(&c->wire, &e); n++)
		learn(c, &e);
	return hear(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/connection.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "daemon/greet.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "libclient/protocol/ring.h"

#define SERVE_MAX_NS NS_PER_MS /* of one client a turn, but for the entry that is being served */

static struct control_header *control_of(const struct connection *c)
{
	return c->control.base;
}

static void *part_of(const struct connection *c, uint64_t offset)
{
	return (char *)c->control.base + offset;
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

struct connection *connection_blank(void)
{
	return heap_zeros(1, sizeof(struct connection));
}

void connection_open(struct connection *c, struct server *server, int socket_fd, int pid_fd,
		     uint32_t id)
{
	c->magic = CONNECTION_MAGIC;
	list_init(&c->link);
	c->server = server;
	c->id = id;
	c->socket.fd = c->pidfd.fd = c->doorbell.fd = -1;
	c->socket_fd = socket_fd;
	c->pid_fd = pid_fd;
	c->doorbell_fd = -1;
	c->control = (struct segment)SEGMENT_NONE;
}

/* Out of the loop, descriptors closed; the segment stays while the engine may look at it. */
static void connection_unplug(struct connection *c, bool pidfd_too)
{
	struct loop *loop = server_loop(c->server);

	loop_remove(loop, &c->socket);
	loop_remove(loop, &c->doorbell);
	fd_close(&c->socket_fd);
	fd_close(&c->doorbell_fd);
	fd_close(&c->control.fd);
	if (pidfd_too) {
		loop_remove(loop, &c->pidfd);
		fd_close(&c->pid_fd);
	}
}

void connection_destroy(struct connection *c)
{
	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_unplug(c, true);
	segment_destroy(&c->control);
	notices_destroy(&c->notices);
	list_remove(&c->link);
	c->magic = 0;
	heap_free(c);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void doorbell_rang(struct loop_source *source, uint32_t events)
{
	/* It has done its work by ending the wait; the turn looks at all rings. Edge-triggered and
	 * never read, so a storm costs no system call here, and a full counter hurts its owner. */
}

int connection_start(struct connection *c, const char *name_space, size_t name_bytes,
		     struct err *err)
{
	const struct segments *segments = c->domain->segments;
	struct holder_tables tables;
	int rc = control_create(segments, c->id, &c->control, err);

	if (rc == 0)
		rc = notices_create(c->domain->arena, c->domain->arenas, &c->notices, err);
	if (rc < 0)
		return rc;
	control_layout(segments->tensors, &c->layout);
	uses_init(&c->uses, part_of(c, c->layout.logs));
	c->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->doorbell_fd < 0)
		return err_set(err, errno, "doorbell: eventfd: %s", strerror(errno));
	c->doorbell.ready = doorbell_rang;
	rc = loop_add(server_loop(c->server), &c->doorbell, c->doorbell_fd, EPOLLIN | EPOLLET, err);
	tables = (struct holder_tables){ .pins = part_of(c, c->layout.pins),
					 .fences = part_of(c, c->layout.fences),
					 .streams = part_of(c, c->layout.streams),
					 .deferred = part_of(c, c->layout.deferred),
					 .logs = part_of(c, c->layout.logs),
					 .log_count = LOGS,
					 .uid = c->uid };
	/* Joins the scan before the client can see a descriptor. */
	if (rc == 0)
		rc = engine_holder_add(c->domain->engine, name_space, name_bytes, &tables, c->pid,
				       c, &c->holder, err);
	if (rc == 0)
		c->state = CONNECTION_SERVING;
	return rc;
}

int connection_answer(struct connection *c, struct err *err)
{
	const struct server_domain *p = c->domain;
	struct hello_reply reply = { .magic = PROTOCOL_MAGIC,
				     .major = PROTOCOL_MAJOR,
				     .minor = PROTOCOL_MINOR,
				     .fds = HELLO_FDS,
				     .boot_id = p->segments->boot_id,
				     .client_id = c->id,
				     .arenas = p->arenas,
				     .control_bytes = c->control.bytes,
				     .table_bytes = p->segments->table.bytes,
				     .stats_bytes = p->segments->stats.bytes };
	int fds[HELLO_FDS + HELLO_ARENAS_MAX] = { c->control.fd, p->segments->table.fd,
						  c->doorbell_fd, p->segments->stats.fd };
	int rc;

	for (unsigned i = 0; i < p->arenas; i++) {
		const struct server_arena *a = &p->arena[i];

		reply.arena[i] = (struct hello_arena){ .arena = a->arena,
						       .place = a->place,
						       .bytes = a->bytes,
						       .slab_bytes = a->slab_bytes,
						       .zone_bytes = a->zone_bytes };
		memcpy(reply.arena[i].uuid, a->uuid, sizeof(a->uuid));
		if (a->fd >= 0)
			fds[reply.fds++] = a->fd;
	}
	rc = greet_send(c->socket_fd, &reply, fds, reply.fds, err);
	if (rc == 0)
		fd_close(&c->control.fd); /* it is mapped */
	return rc;
}

void connection_stop(struct connection *c, const char *why)
{
	if (c->state == CONNECTION_HELLO) {
		c->state = CONNECTION_DEAD;
		c->gone = true;
	} else if (c->state == CONNECTION_SERVING) {
		c->state = CONNECTION_STOPPED;
		memset(c->outstanding, 0, sizeof(c->outstanding));
		engine_holder_stop(c->domain->engine, c->holder);
	}
	if (why)
		log_warn(SERVER, "client %u (pid %d): dropped: %s", c->id, c->pid, why);
	c->broken[0] = '\0';
	connection_unplug(c, c->gone);
}

void connection_break(struct connection *c, const char *why)
{
	if (c->state == CONNECTION_SERVING)
		snprintf(c->broken, sizeof(c->broken), "%s", why);
}

void connection_excess(struct connection *c, const char *what)
{
	if (c->state == CONNECTION_SERVING)
		snprintf(c->excess, sizeof(c->excess), "%s", what);
}

void connection_terminate(const struct connection *c)
{
	if (syscall(SYS_pidfd_send_signal, c->pid_fd, SIGTERM, NULL, 0) == 0)
		log_warn(SERVER, "client %u (pid %d): was sent SIGTERM", c->id, c->pid);
	else
		log_error(SERVER, "client %u (pid %d): SIGTERM: %s%s", c->id, c->pid,
			  strerror(errno), errno == EPERM ? ": it takes CAP_KILL" : "");
}

void connection_die(struct connection *c, uint64_t now_ns)
{
	if (c->state == CONNECTION_DEAD)
		return;
	log_debug(SERVER, "client %u (pid %d): gone", c->id, c->pid);
	connection_stop(c, NULL);
	if (c->state == CONNECTION_DEAD)
		return;
	c->state = CONNECTION_DEAD;
	connection_unplug(c, true);
	engine_holder_die(c->domain->engine, c->holder, now_ns);
}

/* ---- slabs ---------------------------------------------------------------------------------- */

void connection_send_notices(struct connection *c)
{
	bool done;

	if (c->state != CONNECTION_SERVING)
		return;
	done = notices_send(&c->notices, c->socket_fd);
	loop_change(server_loop(c->server), &c->socket,
		    CONNECTION_EVENTS | (done ? 0 : (uint32_t)EPOLLOUT));
}

void connection_slab_unmap(struct connection *c, uint32_t arena, uint64_t offset)
{
	if (c->state != CONNECTION_SERVING)
		return;
	notices_unmap(&c->notices, arena, offset);
	connection_send_notices(c);
}

/* ---- completions ---------------------------------------------------------------------------- */

bool connection_is_outstanding(const struct connection *c, uint32_t id)
{
	return id < SQ_ENTRIES && (c->outstanding[id / 64] >> (id % 64) & 1);
}

static void text_put(const struct connection *c, uint32_t id, const char *text)
{
	char *to = part_of(c, c->layout.texts + (uint64_t)id * TEXT_BYTES);
	size_t n = strnlen(text, TEXT_BYTES - 1);

	memcpy(to, text, n);
	to[n] = '\0';
}

void connection_complete(struct connection *c, uint32_t id, int result, uint64_t value,
			 uint32_t payload_bytes, const char *text)
{
	struct cq_entry entry = {
		.id = id, .result = result, .value = value, .payload_bytes = payload_bytes
	};

	if (c->state != CONNECTION_SERVING)
		return;
	ASSERT(connection_is_outstanding(c, id));
	c->outstanding[id / 64] &= ~(1ull << (id % 64));
	if (result < 0)
		text_put(c, id, text);
	/* One completion a request, and as many slots as requests: there is room, unless the client
	 * broke its own rule, and then it overwrites what it did not read. */
	ring_put(part_of(c, c->layout.cq), SQ_ENTRIES, &control_of(c)->cq_tail, &c->cq_tail,
		 &entry);
	c->completed = true;
}

void connection_wake(struct connection *c)
{
	struct control_header *h;

	if (!c->completed)
		return;
	c->completed = false;
	if (c->state != CONNECTION_SERVING)
		return;
	h = control_of(c);
	/* Pairs with the client's fence between its store of cq_waiting and its look at cq_tail. */
	ring_fence();
	if (atomic_load_explicit(&h->cq_waiting, memory_order_relaxed))
		syscall(SYS_futex, &h->cq_tail, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void connection_cut_off(struct connection *c, int result, const char *why)
{
	for (uint32_t id = 0; id < SQ_ENTRIES; id++)
		if (connection_is_outstanding(c, id))
			connection_complete(c, id, result, 0, 0, why);
	connection_wake(c);
	connection_stop(c, why);
}

/* ---- submissions ---------------------------------------------------------------------------- */

/* False: the client broke the protocol and was dropped. */
static bool request_begin(struct connection *c, uint32_t id)
{
	if (id >= SQ_ENTRIES) {
		connection_stop(c, "a request id out of range");
		return false;
	}
	if (connection_is_outstanding(c, id)) {
		connection_stop(c, "a request id that is still outstanding");
		return false;
	}
	c->outstanding[id / 64] |= 1ull << (id % 64);
	return true;
}

void connection_hold(struct connection *c, const struct sq_entry *entry)
{
	ASSERT(!c->holds && connection_is_outstanding(c, entry->id));
	c->holds = true;
	c->held = *entry;
}

static bool may_serve_held(const struct connection *c)
{
	return c->holds && c->state == CONNECTION_SERVING &&
	       !engine_ends(c->domain->engine, c->holder);
}

/* It is as new: what is in its payload is looked at once more. */
static void serve_held(struct connection *c, uint64_t now_ns)
{
	if (!may_serve_held(c))
		return;
	c->holds = false;
	request_handle(c, &c->held, now_ns);
}

unsigned connection_serve(struct connection *c, unsigned budget, uint64_t now_ns)
{
	struct control_header *h = control_of(c);
	struct sq_entry entry;
	uint64_t end_ns = 0;
	unsigned taken = 0;

	/* Entries differ: one may create 800 tensors. The others wait for one of those, not for 64.
	 */
	serve_held(c, now_ns);
	while (taken < budget && c->state == CONNECTION_SERVING && !c->holds &&
	       (taken == 0 || clock_now_ns() < end_ns)) {
		int rc = ring_take(part_of(c, c->layout.sq), SQ_ENTRIES, &h->sq_tail, &c->sq_head,
				   &entry);

		if (rc == 0)
			break;
		if (taken++ == 0)
			end_ns = clock_now_ns() + SERVE_MAX_NS;
		if (rc < 0)
			connection_stop(c, "a submission ring with more entries than it has");
		else if (request_begin(c, entry.id))
			request_handle(c, &entry, now_ns);
	}
	if (taken > 0)
		atomic_store_explicit(&h->sq_head, c->sq_head, memory_order_release);
	return taken;
}

struct use_ctx {
	struct connection *c;
	uint64_t now_ns;
};

static void use_pass_on(void *ctx, uint32_t index, uint8_t place, uint8_t access)
{
	const struct use_ctx *use = ctx;
	const struct server_domain *d = use->c->domain;

	if (index < d->segments->tensors)
		engine_used(d->engine, use->c->holder, index, place, access, use->now_ns);
}

size_t connection_read_uses(struct connection *c, size_t budget, uint64_t now_ns, uint64_t *lost)
{
	struct use_ctx use = { c, now_ns };
	const struct uses_sink sink = { &use, use_pass_on };

	if (c->state != CONNECTION_SERVING)
		return 0;
	/* Looked at as often as its uses are, so that pins end soon while it works. */
	engine_deferred(c->domain->engine, c->holder, now_ns);
	return uses_read(&c->uses, &sink, budget, lost);
}

bool connection_pending(const struct connection *c, bool logs)
{
	if (c->state != CONNECTION_SERVING)
		return false;
	if (c->broken[0] != '\0')
		return true;
	/* What it waits for ends in a turn of the engine, which knows when to be called again. */
	if (c->holds ? may_serve_held(c)
		     : atomic_load_explicit(&control_of(c)->sq_tail, memory_order_acquire) !=
			       c->sq_head)
		return true;
	return logs && uses_pending(&c->uses);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One client: its control segment, its rings, its descriptors and how far its life has gone. The
 * engine knows it as a holder. A client that stops (socket hang-up, or a broken rule) is served no
 * more but its pins count; only its pidfd, or its BYE, says that it is dead. Control thread.
 *
 *   HELLO -> SERVING -> STOPPED -> DEAD      (a refused one goes from HELLO to DEAD)
 */
#ifndef TIERD_DAEMON_CONNECTION_H
#define TIERD_DAEMON_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

#include "base/list.h"
#include "daemon/engine/engine.h"
#include "daemon/loop.h"
#include "daemon/notice.h"
#include "daemon/segments.h"
#include "daemon/uses.h"

enum connection_state {
	CONNECTION_HELLO, /* accepted, said nothing yet */
	CONNECTION_SERVING,
	CONNECTION_STOPPED, /* served no more; pins count until it is dead */
	CONNECTION_DEAD,    /* the engine may still look at its pin table */
};

struct server;
struct server_domain;

struct connection {
	uint32_t magic;
	struct list link; /* server's */
	struct server *server;
	struct server_domain *domain; /* from its hello on */
	enum connection_state state;
	bool gone; /* nobody looks at it any more: the server frees it after the turn */
	uint32_t id;
	int pid;
	uid_t uid;
	struct loop_source socket, pidfd, doorbell;
	int socket_fd, pid_fd, doorbell_fd;
	uint64_t hello_deadline_ns;
	bool refused; /* let in to be told that there is no room, unless it is an operator */
	bool guest;   /* likewise, by the reserve's descriptor: it has no place */

	struct segment control;
	struct control_layout layout;
	struct holder *holder;
	uint32_t sq_head, cq_tail; /* private: the shared ones are for the client */
	bool completed;            /* since the last connection_wake() */
	uint64_t outstanding[SQ_ENTRIES / 64];
	bool holds; /* an entry that waits until others' ends have made room; no other is served */
	struct sq_entry held;
	struct uses uses;
	struct notices notices;
	char broken[96]; /* the rule that it broke, "": none; it is dropped in the next turn */
	char excess[EXCESS_TEXT_BYTES]; /* likewise what it holds too much */
};
#define CONNECTION_MAGIC 0x636f6e6eu
/* What its socket is watched for, beside room for what it is owed. */
#define CONNECTION_EVENTS ((uint32_t)EPOLLIN | EPOLLRDHUP)

/* Memory for one, to be opened or given back by heap_free(). NULL: there is none. */
struct connection *connection_blank(void);
/* Takes the descriptors over. */
void connection_open(struct connection *blank, struct server *server, int socket_fd, int pid_fd,
		     uint32_t id);
void connection_destroy(struct connection *c);

/* Makes C and joins the engine: what an accepted hello needs before descriptors are sent. */
int connection_start(struct connection *c, const char *name_space, size_t name_bytes,
		     struct err *err);
/* Then: where everything is, with descriptors of it. */
int connection_answer(struct connection *c, struct err *err);
/* Serves no more. `why` is for the log; NULL: the client hung up. */
void connection_stop(struct connection *c, const char *why);
void connection_die(struct connection *c, uint64_t now_ns);

/* The same after it was told `result` and `why` for all that it waits for. */
void connection_cut_off(struct connection *c, int result, const char *why);
/* SIGTERM. */
void connection_terminate(const struct connection *c);

/* Takes at most `budget` ring entries, fewer where they take long; returns how many. */
unsigned connection_serve(struct connection *c, unsigned budget, uint64_t now_ns);
size_t connection_read_uses(struct connection *c, size_t budget, uint64_t now_ns, uint64_t *lost);
bool connection_pending(const struct connection *c, bool logs);
/* Wakes the client's waiters once for all completions since the last call. */
void connection_wake(struct connection *c);

/* The client is dropped in the next turn: for those that are called by the engine. */
void connection_break(struct connection *c, const char *why);
/* Likewise it holds too much. */
void connection_excess(struct connection *c, const char *what);

/* A slab that the client is to unmap. Nothing for one that is served no more: it counts as having
 * the slab until it is dead. */
void connection_slab_unmap(struct connection *c, uint32_t arena, uint64_t offset);
/* What it is owed, as far as its socket takes it; the rest when that has room. */
void connection_send_notices(struct connection *c);

/* The answer of request `id`, which must be outstanding. */
void connection_complete(struct connection *c, uint32_t id, int result, uint64_t value,
			 uint32_t payload_bytes, const char *text);
/* The entry is handled again when what ended jobs left behind has gone. */
void connection_hold(struct connection *c, const struct sq_entry *entry);
bool connection_is_outstanding(const struct connection *c, uint32_t id);

#endif

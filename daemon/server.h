/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket and all connections: who is let in, the hello, the death of clients, and one fair look
 * at every client's rings and logs a turn. Nothing here waits for a client: what does not answer
 * runs into a deadline, what breaks a rule is dropped, and beyond its caps a client is told so.
 * Control thread.
 */
#ifndef TIERD_DAEMON_SERVER_H
#define TIERD_DAEMON_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "daemon/engine/engine.h"
#include "daemon/loop.h"
#include "daemon/segments.h"
#include "libclient/protocol/hello.h"

struct server;
struct request_scratch; /* daemon/request.h */

/* An arena that clients map; the descriptor is the tier's. */
struct server_arena {
	uint16_t arena;
	uint8_t place;
	int fd; /* -1: each slab has one of its own, which a client asks for */
	uint64_t bytes;
	uint64_t slab_bytes; /* where fd is -1, else 0 */
	uint64_t zone_bytes;
	uint8_t uuid[16];
};

/* What the clients of one domain are given. */
struct server_domain {
	struct engine *engine;
	const struct segments *segments;
	struct server_arena arena[HELLO_ARENAS_MAX];
	unsigned arenas;
	/* The server's. */
	unsigned clients;    /* those that count against the caps */
	const char *cut_off; /* why nobody is served any more; NULL: they are */
};

#define CONNECTION_FDS 3 /* socket, pidfd, doorbell */
/* So many may look (tierctl) when all that is for clients is taken: beyond max_clients and
 * max_clients_per_uid, and with descriptors that are kept for them. */
#define SERVER_OPERATORS 3u

/* Of so many connections that there are descriptors for, those that are kept for operators. */
static inline uint64_t server_kept(uint64_t connections)
{
	return MIN(SERVER_OPERATORS, connections / 4);
}

/* Those who could take the daemon apart anyhow: they may look at every domain, and always. */
bool server_may_look(uid_t uid);

struct server_params {
	const char *socket_path;
	uint64_t clients_max, clients_per_uid_max;
	uint64_t connections_max; /* for which there are descriptors, CONNECTION_FDS each; those of
				     server_kept() among them */
	/* What follows, besides a line of the log, if its pins keep others from what is theirs. */
	bool cuts_off, terminates;
	struct loop *loop;
	struct server_domain *const *domains; /* stand as long as the server */
	unsigned domain_count;
	/* The domain of a client of `uid` that asks for `name` ("": for its own). NULL: for none,
	 * and `err` says why. */
	struct server_domain *(*domain_of)(void *ctx, uid_t uid, const char *name, struct err *err);
	void *ctx;
};

struct rendezvous;
/* `rendezvous` is open and locked; the server listens on it and looks after it from then on, the
 * caller closes it after server_destroy(). */
int server_create(const struct server_params *params, struct rendezvous *rendezvous,
		  struct server **ret, struct err *err);
/* Nobody is served any more. Pins stand: these processes live, and what is on its way to the lanes
 * must not go where they look. */
void server_stop(struct server *server);
/* After the engine is gone. */
void server_destroy(struct server *server);

/* Budgeted: rings of all clients, logs when a millisecond has passed, hello deadlines, the path.
 * True on progress; *next_ns is lowered to when something is due. */
bool server_turn(struct server *server, uint64_t now_ns, uint64_t *next_ns);
/* The end of a turn: wakes clients that have completions, frees those that are gone. */
void server_turn_end(struct server *server);
bool server_pending(const struct server *server, bool logs);

/* Nobody of this domain is served any more: what its clients wait for is answered with -EIO and
 * `why`, and so is who connects later. `why` stands as long as the server. */
void server_cut_off(struct server *server, struct server_domain *domain, const char *why);

unsigned server_clients(const struct server *server);
/* Engine hooks end here: `holder` is gone from the engine. */
void server_holder_gone(struct holder *holder);

struct loop *server_loop(const struct server *server);
struct request_scratch *server_scratch(struct server *server);

#endif

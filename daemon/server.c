/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/plural.h"
#include "daemon/connection.h"
#include "daemon/greet.h"
#include "daemon/places.h"
#include "daemon/rendezvous.h"
#include "daemon/request.h"

#define ACCEPTS_A_TURN    16u
#define ENTRIES_A_TURN    64u   /* of one client: nobody starves the others */
#define USES_A_TURN       4096u /* of one client */
#define USES_PERIOD_NS    NS_PER_MS
#define PATH_PERIOD_NS    (5 * NS_PER_S) /* only where the directory cannot be watched */
#define REFUSED_LINGER_NS (1 * NS_PER_S) /* for the hello of one that is told no */
#define GREETING_MAX      256u           /* of one user: a flood of connections takes no more */

struct server {
	struct server_params params;
	struct rendezvous *rendezvous;
	struct loop_source listener, watch;
	struct list connections;
	unsigned clients; /* that count against the caps */
	uint32_t next_id;
	/* Given up to accept one more and tell it that descriptors ran out, which they may do even
	 * within connections_max: others of the process and of the machine take some. */
	int reserve_fd;
	struct connection *blank;  /* for who comes next: nobody is accepted without one */
	bool paused;               /* not accepting, until both are back, no guest in the way */
	bool scarce;               /* paused for want of descriptors, not of places */
	uint64_t uses_ns, path_ns; /* when last looked at */
	struct request_scratch scratch;
};

struct loop *server_loop(const struct server *s)
{
	return s->params.loop;
}

struct request_scratch *server_scratch(struct server *s)
{
	return &s->scratch;
}

unsigned server_clients(const struct server *s)
{
	return s->clients;
}

/* ---- letting in ----------------------------------------------------------------------------- */

static void socket_ready(struct loop_source *source, uint32_t events);

static void pidfd_ready(struct loop_source *source, uint32_t events)
{
	struct connection *c = container_of(source, struct connection, pidfd);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_die(c, clock_now_ns());
}

bool server_may_look(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/* Those that there are descriptors for, without what is kept for operators. */
static uint64_t places_for_clients(const struct server *s)
{
	return s->params.connections_max - server_kept(s->params.connections_max);
}

static bool is_full(const struct server *s)
{
	return places_open(&s->connections, false) >= s->params.connections_max;
}

/* The one that has said nothing for longest, if it has not just done so: whoever only connects
 * takes no place that somebody else wants. False: there is none but `newcomer`. */
static bool silent_one_goes(struct server *s, const struct connection *newcomer)
{
	struct connection *c;

	while ((c = places_most_silent(&s->connections, newcomer)) != NULL) {
		socket_ready(&c->socket, EPOLLIN);
		if (c->state == CONNECTION_HELLO)
			connection_die(c, clock_now_ns());
		if (c->state == CONNECTION_DEAD)
			return true;
	}
	return false;
}

/* Its hello is answered with this, unless it is an operator's; without a hello it goes soon. */
static void connection_refuse(struct connection *c)
{
	c->refused = true;
	c->hello_deadline_ns = clock_now_ns() + REFUSED_LINGER_NS;
}

/* It stands on a place that is kept for operators. Most have said hello before they are accepted,
 * and are answered now; of those that have not, and may not be operators, one may stay for it, so
 * that a flood of them leaves the other places. */
static void connection_enter_kept(struct server *s, struct connection *c, uint64_t kept_from)
{
	connection_refuse(c);
	socket_ready(&c->socket, EPOLLIN);
	if (c->state == CONNECTION_HELLO && !server_may_look(c->uid) &&
	    places_open(&s->connections, false) > kept_from + 1)
		connection_die(c, clock_now_ns());
}

static void listener_pause(struct server *s)
{
	loop_remove(s->params.loop, &s->listener);
	s->paused = true;
}

/* Into the loop and the list; on failure it is destroyed. */
static struct connection *connection_enter(struct server *s, int socket_fd, const struct peer *peer)
{
	struct connection *c = s->blank;
	struct err err = ERR_INIT;
	int rc;

	connection_open(c, s, socket_fd, peer->pid_fd, ++s->next_id);
	s->blank = connection_blank();
	if (!s->blank)
		listener_pause(s);
	c->pid = peer->pid;
	c->uid = peer->uid;
	c->socket.ready = socket_ready;
	c->pidfd.ready = pidfd_ready;
	rc = loop_add(s->params.loop, &c->socket, socket_fd, CONNECTION_EVENTS, &err);
	if (rc == 0 && peer->pid_fd >= 0)
		rc = loop_add(s->params.loop, &c->pidfd, peer->pid_fd, EPOLLIN, &err);
	if (rc < 0) {
		log_warn(SERVER, "client (pid %d): not accepted: %s", c->pid, err.text);
		connection_destroy(c);
		return NULL;
	}
	list_push_back(&s->connections, &c->link);
	return c;
}

static void server_admit(struct server *s, int socket_fd)
{
	const uint64_t kept_from = places_for_clients(s);
	struct peer peer = { 0, (uid_t)-1, -1 };
	struct err err = ERR_INIT;
	struct connection *c;
	int rc = greet_identify(socket_fd, &peer, &err);

	if (rc == 0 && places_silent(&s->connections, peer.uid) >= GREETING_MAX)
		rc = err_set(&err, EUSERS, "uid %u connects without saying hello",
			     (unsigned)peer.uid);
	if (rc < 0 && rc != -EMFILE && rc != -ENFILE) {
		log_debug(SERVER, "not accepted: %s", err.text);
		close(socket_fd);
		if (peer.pid_fd >= 0)
			close(peer.pid_fd);
		return;
	}
	c = connection_enter(s, socket_fd, &peer);
	if (!c)
		return;
	c->hello_deadline_ns = clock_now_ns() + HELLO_DEADLINE_NS;
	if (rc < 0)
		connection_refuse(c);
	else if (places_open(&s->connections, false) > kept_from && !silent_one_goes(s, c))
		connection_enter_kept(s, c, kept_from);
}

/* Out of descriptors, or of those that are for clients: the reserve is given for one guest, who is
 * told; the others wait in the backlog until it is back, or a place is free. */
static void server_admit_by_reserve(struct server *s, bool scarce)
{
	const struct peer nobody = { 0, (uid_t)-1, -1 };
	struct connection *c = NULL;
	int fd = -1;

	listener_pause(s);
	s->scarce = scarce;
	if (s->reserve_fd >= 0 && places_open(&s->connections, true) == 0) {
		close(s->reserve_fd);
		s->reserve_fd = -1;
		fd = accept4(s->rendezvous->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	}
	if (fd >= 0)
		c = connection_enter(s, fd, &nobody);
	if (!c)
		return;
	connection_refuse(c);
	c->guest = true;
}

static void listener_resume(struct server *s)
{
	struct err err = ERR_INIT;

	if (s->reserve_fd < 0)
		s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (!s->blank)
		s->blank = connection_blank();
	if (s->reserve_fd < 0 || !s->blank || !s->paused ||
	    ((s->scarce || is_full(s)) && places_open(&s->connections, true) > 0))
		return;
	if (loop_add(s->params.loop, &s->listener, s->rendezvous->listen_fd, EPOLLIN, &err) < 0)
		log_error(SERVER, "new clients cannot connect: %s", err.text);
	else
		s->paused = false;
}

static void listener_ready(struct loop_source *source, uint32_t events)
{
	struct server *s = container_of(source, struct server, listener);

	for (unsigned i = 0; i < ACCEPTS_A_TURN && !s->paused; i++) {
		bool full = is_full(s) && !silent_one_goes(s, NULL);
		int fd = full ? -1 : accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			server_admit(s, fd);
		} else if (full || errno == EMFILE || errno == ENFILE) {
			server_admit_by_reserve(s, !full);
			return;
		} else if (errno != ECONNABORTED && errno != EINTR) {
			return;
		}
	}
}

/* ---- hello ---------------------------------------------------------------------------------- */

/* Not by its uid alone: jobs of root's would take the places by which root sees who takes all. */
static bool is_operator(const struct connection *c, const struct hello_request *hello)
{
	return server_may_look(c->uid) &&
	       hello->name_space_bytes == strlen(HELLO_OPERATOR_NAME_SPACE) &&
	       memcmp(hello->name_space, HELLO_OPERATOR_NAME_SPACE, hello->name_space_bytes) == 0;
}

/* A domain's users must not keep those of others out by connecting: of half of all places each is
 * sure of an equal part. */
static uint64_t kept_for_others(const struct server *s, const struct server_domain *domain)
{
	const uint64_t most = MIN(s->params.clients_max, places_for_clients(s));
	const uint64_t sure = most / (2ull * s->params.domain_count);
	uint64_t n = 0;

	for (unsigned i = 0; i < s->params.domain_count; i++) {
		const struct server_domain *d = s->params.domains[i];

		n += d != domain && sure > d->clients ? sure - d->clients : 0;
	}
	return n;
}

static int caps_check(const struct server *s, const struct connection *c, bool looks,
		      struct err *err)
{
	uint64_t more = looks ? SERVER_OPERATORS : 0;
	uint64_t max = s->params.clients_max, per_uid = s->params.clients_per_uid_max;
	uint64_t kept = looks ? 0 : kept_for_others(s, c->domain);

	if (s->clients + kept >= max + more)
		return err_set(err, EUSERS, "%u %s connected, max_clients allows no more%s",
			       s->clients, PLURAL(s->clients, "client is", "clients are"),
			       kept > 0 ? " but of other domains" : "");
	if (kept > 0 && s->clients + kept >= places_for_clients(s))
		return err_set(err, EMFILE,
			       "%u %s connected, and the daemon has no descriptors left but for "
			       "those of other domains",
			       s->clients, PLURAL(s->clients, "client is", "clients are"));
	if (places_of_user(&s->connections, c->uid) >= per_uid + more)
		return err_set(err, EUSERS,
			       "uid %u has %llu %s, max_clients_per_uid allows no more",
			       (unsigned)c->uid, (unsigned long long)per_uid,
			       PLURAL(per_uid, "client", "clients"));
	return 0;
}

static int hello_accept(struct server *s, struct connection *c, const struct hello_request *hello,
			struct err *err)
{
	bool looks = is_operator(c, hello);
	int rc = greet_judge(hello, err);

	if (rc == 0 && c->refused && !looks)
		rc = err_set(err, EMFILE, "the daemon has no descriptors left for another client");
	if (rc < 0)
		return rc;
	c->domain = s->params.domain_of(s->params.ctx, c->uid, hello->domain, err);
	if (!c->domain)
		return err->code;
	if (c->domain->cut_off)
		return err_set(err, EIO, "%s", c->domain->cut_off);
	rc = caps_check(s, c, looks, err);
	if (rc == 0)
		rc = connection_start(c, hello->name_space, hello->name_space_bytes, err);
	return rc < 0 ? rc : connection_answer(c, err);
}

static void hello_handle(struct server *s, struct connection *c, const struct hello_request *hello)
{
	struct err err = ERR_INIT;

	if (hello_accept(s, c, hello, &err) == 0) {
		s->clients++;
		c->domain->clients++;
		log_debug(SERVER, "client %u (pid %d, uid %u): serving namespace %.*s", c->id,
			  c->pid, (unsigned)c->uid, (int)hello->name_space_bytes,
			  hello->name_space);
		return;
	}
	log_warn(SERVER, "client %u (pid %d): refused: %s", c->id, c->pid, err.text);
	greet_refuse(c->socket_fd, err.code, err.text);
	/* It never saw a descriptor, so that it can hold no pin. */
	connection_die(c, clock_now_ns());
}

static void socket_ready(struct loop_source *source, uint32_t events)
{
	struct connection *c = container_of(source, struct connection, socket);
	struct hello_request hello;
	struct err err = ERR_INIT;

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	if (events & EPOLLOUT)
		connection_send_notices(c);
	switch (greet_receive(c->socket_fd, &hello, &err)) {
	case GREET_NOTHING:
		if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
			connection_stop(c, NULL);
		break;
	case GREET_HANGUP:
		connection_stop(c, NULL);
		break;
	case GREET_HELLO:
		if (c->state == CONNECTION_HELLO)
			hello_handle(c->server, c, &hello);
		else
			connection_stop(c, "a second hello");
		break;
	case GREET_BYE:
		connection_die(c, clock_now_ns());
		break;
	case GREET_BROKEN:
		connection_stop(c, err.text);
		break;
	}
}

/* ---- the path ------------------------------------------------------------------------------- */

static void path_check(struct server *s)
{
	int old_fd;

	if (!rendezvous_check(s->rendezvous, &old_fd))
		return;
	loop_remove(s->params.loop, &s->listener);
	close(old_fd);
	s->paused = true;
	listener_resume(s);
}

static void watch_ready(struct loop_source *source, uint32_t events)
{
	path_check(container_of(source, struct server, watch));
}

static int server_listen(struct server *s, struct err *err)
{
	struct rendezvous *r = s->rendezvous;
	int rc;

	s->listener.ready = listener_ready;
	s->watch.ready = watch_ready;
	s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (s->reserve_fd < 0)
		return err_set(err, errno, "reserve descriptor: %s", strerror(errno));
	rc = rendezvous_listen(r, err);
	if (rc == 0)
		rc = loop_add(s->params.loop, &s->listener, r->listen_fd, EPOLLIN, err);
	if (rc == 0 && r->watch_fd >= 0)
		rc = loop_add(s->params.loop, &s->watch, r->watch_fd, EPOLLIN, err);
	return rc;
}

/* ---- life ----------------------------------------------------------------------------------- */

int server_create(const struct server_params *params, struct rendezvous *rendezvous,
		  struct server **ret, struct err *err)
{
	struct server *s = heap_zeros(1, sizeof(*s));
	int rc;

	if (!s)
		return err_set(err, ENOMEM, "server: no memory");
	s->params = *params;
	s->rendezvous = rendezvous;
	s->listener.fd = s->watch.fd = s->reserve_fd = -1;
	list_init(&s->connections);
	s->blank = connection_blank();
	rc = s->blank ? server_listen(s, err) : err_set(err, ENOMEM, "server: no memory");
	if (rc < 0) {
		server_destroy(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void server_stop(struct server *s)
{
	struct list *it, *tmp;

	loop_remove(s->params.loop, &s->listener);
	loop_remove(s->params.loop, &s->watch);
	rendezvous_unlisten(s->rendezvous);
	list_for_each_safe (it, tmp, &s->connections)
		connection_stop(list_entry(it, struct connection, link), NULL);
}

void server_destroy(struct server *s)
{
	struct list *it, *tmp;

	if (!s)
		return;
	list_for_each_safe (it, tmp, &s->connections)
		connection_destroy(list_entry(it, struct connection, link));
	loop_remove(s->params.loop, &s->listener);
	loop_remove(s->params.loop, &s->watch);
	if (s->reserve_fd >= 0)
		close(s->reserve_fd);
	heap_free(s->blank);
	heap_free(s);
}

void server_cut_off(struct server *s, struct server_domain *domain, const char *why)
{
	struct list *it;

	domain->cut_off = why;
	list_for_each (it, &s->connections) {
		struct connection *c = list_entry(it, struct connection, link);

		if (c->domain == domain && c->state == CONNECTION_SERVING)
			connection_cut_off(c, -EIO, why);
	}
}

void server_holder_gone(struct holder *holder)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	ASSERT(c->state == CONNECTION_DEAD && !c->gone);
	c->gone = true;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void count_add(_Atomic uint64_t *counter, uint64_t n)
{
	/* One writer: no need for a locked add. */
	uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, old + n, memory_order_relaxed);
}

static void end_excess(const struct server *s, struct connection *c)
{
	if (s->params.cuts_off)
		connection_cut_off(c, -EDQUOT, c->excess);
	else
		log_warn(SERVER, "client %u (pid %d): %s", c->id, c->pid, c->excess);
	if (s->params.terminates)
		connection_terminate(c);
	c->excess[0] = '\0';
}

static bool connection_turn(struct connection *c, bool uses_due, uint64_t now_ns, uint64_t *next_ns)
{
	struct stats_page *stats;
	unsigned taken;
	size_t used = 0;
	uint64_t lost = 0;

	if (c->broken[0] != '\0')
		connection_stop(c, c->broken);
	if (c->excess[0] != '\0' && c->state == CONNECTION_SERVING)
		end_excess(c->server, c);
	if (c->state == CONNECTION_HELLO) {
		if (now_ns >= c->hello_deadline_ns)
			connection_stop(c, c->refused ? NULL : "it never said hello");
		else
			*next_ns = MIN(*next_ns, c->hello_deadline_ns);
	}
	if (c->state != CONNECTION_SERVING)
		return false;
	stats = segments_stats(c->domain->segments);
	taken = connection_serve(c, ENTRIES_A_TURN, now_ns);
	if (uses_due)
		used = connection_read_uses(c, USES_A_TURN, now_ns, &lost);
	if (taken)
		count_add(&stats->requests, taken);
	if (lost)
		count_add(&stats->log_lost, lost);
	return taken > 0 || used > 0 || lost > 0;
}

bool server_turn(struct server *s, uint64_t now_ns, uint64_t *next_ns)
{
	bool uses_due = now_ns - s->uses_ns >= USES_PERIOD_NS;
	bool progress = false;
	struct list *it;

	if (uses_due)
		s->uses_ns = now_ns;
	list_for_each (it, &s->connections)
		progress |= connection_turn(list_entry(it, struct connection, link), uses_due,
					    now_ns, next_ns);
	if (s->paused) {
		listener_resume(s);
		if (s->paused)
			*next_ns = MIN(*next_ns, now_ns + 100 * NS_PER_MS);
	}
	if (s->rendezvous->watch_fd < 0) {
		if (now_ns - s->path_ns >= PATH_PERIOD_NS) {
			s->path_ns = now_ns;
			path_check(s);
		}
		*next_ns = MIN(*next_ns, s->path_ns + PATH_PERIOD_NS);
	}
	return progress;
}

void server_turn_end(struct server *s)
{
	struct list *it, *tmp;

	s->clients = 0;
	for (unsigned i = 0; i < s->params.domain_count; i++)
		s->params.domains[i]->clients = 0;
	list_for_each_safe (it, tmp, &s->connections) {
		struct connection *c = list_entry(it, struct connection, link);

		connection_wake(c);
		if (c->gone) {
			connection_destroy(c);
		} else if (place_counts(c)) {
			c->domain->clients++;
			s->clients++;
		}
	}
	for (unsigned i = 0; i < s->params.domain_count; i++) {
		const struct server_domain *d = s->params.domains[i];

		atomic_store_explicit(&segments_stats(d->segments)->clients, d->clients,
				      memory_order_relaxed);
	}
}

bool server_pending(const struct server *s, bool logs)
{
	struct list *it;

	list_for_each (it, &s->connections) {
		if (connection_pending(list_entry(it, struct connection, link), logs))
			return true;
	}
	return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/nofile.h"
#include "base/plural.h"
#include "daemon/domain.h"
#include "daemon/loop.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/rendezvous.h"
#include "daemon/server.h"
#include "tiers/topo.h"

struct daemon {
	const struct settings *settings;
	struct rendezvous rendezvous;
	struct topology *topo;
	struct domain *domain[DOMAINS_MAX];
	struct loop_side side[DOMAINS_MAX];
	struct server_domain *served[DOMAINS_MAX];
	unsigned domains;
	struct loop *loop;
	struct server *server;
	struct metrics *metrics; /* NULL: there is no listener */
	struct loop_source signals;
	int signal_fd;
};

/* ---- signals -------------------------------------------------------------------------------- */

/* A start may take long (a tier is touched page by page) and an end may wait for a slow device:
 * then a signal ends the process at once. Only the lock file has a name then. */
static const struct rendezvous *abandoned;

static void signal_at_once(int number)
{
	if (abandoned)
		rendezvous_abandon(abandoned);
	_exit(EXIT_FAILURE);
}

static void signals_set(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGHUP);
}

static void signals_block(void)
{
	sigset_t set;

	signals_set(&set);
	ASSERT(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

static void signals_end_at_once(struct daemon *d)
{
	struct sigaction action = { .sa_handler = signal_at_once };
	sigset_t set;

	abandoned = &d->rendezvous;
	ASSERT(sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0 &&
	       sigaction(SIGHUP, &action, NULL) == 0);
	signals_set(&set);
	ASSERT(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
}

static void signal_came(struct loop_source *source, uint32_t events)
{
	struct daemon *d = container_of(source, struct daemon, signals);
	struct signalfd_siginfo info;

	if (read(source->fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP) {
		/* Whoever wants a reload must not lose all tensors instead. */
		log_warn(MAIN,
			 "SIGHUP from pid %u: ignored, the configuration is read at start only",
			 info.ssi_pid);
		return;
	}
	log_info(MAIN, "signal %u from pid %u: ending", info.ssi_signo, info.ssi_pid);
	loop_stop(d->loop);
}

/* Before the lanes: their threads inherit the mask. */
static int signals_to_loop(struct daemon *d, struct err *err)
{
	sigset_t set;

	signals_block();
	signals_set(&set);
	d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (d->signal_fd < 0)
		return err_set(err, errno, "signalfd: %s", strerror(errno));
	d->signals.ready = signal_came;
	return loop_add(d->loop, &d->signals, d->signal_fd, EPOLLIN, err);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static bool reap_all(struct daemon *d, uint64_t now_ns)
{
	bool progress = false;

	for (unsigned i = 0; i < d->domains; i++)
		progress |= domain_reap(d->domain[i], now_ns);
	return progress;
}

/* What its clients did to their own memory ends with them. */
static void cut_off_damaged(struct daemon *d)
{
	for (unsigned i = 0; i < d->domains; i++) {
		struct server_domain *served = d->served[i];
		const char *why = served->cut_off ? NULL : domain_damage(d->domain[i]);

		if (!why)
			continue;
		log_error(MAIN, "%s; it is served no more until tierd is started again", why);
		server_cut_off(d->server, served, why);
	}
}

static bool daemon_turn(void *ctx, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct daemon *d = ctx;
	bool progress = reap_all(d, now_ns);

	cut_off_damaged(d);
	progress |= server_turn(d->server, now_ns, ret_next_ns);
	for (unsigned i = 0; i < d->domains; i++) {
		uint64_t due_ns = domain_turn(d->domain[i], now_ns);

		*ret_next_ns = MIN(*ret_next_ns, due_ns);
	}
	server_turn_end(d->server);
	return progress;
}

static bool daemon_pending(void *ctx, bool logs)
{
	struct daemon *d = ctx;

	return reap_all(d, clock_now_ns()) || server_pending(d->server, logs);
}

static int loop_open(struct daemon *d, struct err *err)
{
	const struct loop_work work = { .ctx = d,
					.turn = daemon_turn,
					.pending = daemon_pending,
					.sides = d->side,
					.side_count = d->domains,
					.spin_ns = d->settings->spin_ns };

	for (unsigned i = 0; i < d->domains; i++)
		d->side[i] = domain_side(d->domain[i]);
	return loop_create(&work, &d->loop, err);
}

static void panic_dump(void *ctx)
{
	struct daemon *d = ctx;

	for (unsigned i = 0; i < d->domains; i++)
		if (d->domain[i]->engine)
			engine_dump(d->domain[i]->engine, STDERR_FILENO);
}

/* ---- domains -------------------------------------------------------------------------------- */

static int create_domains(struct daemon *d, struct err *err)
{
	int rc;

	ASSERT(share_count(d->settings) <= DOMAINS_MAX);
	rc = domains_create(d->settings, d->domain, &d->domains, err);
	for (unsigned i = 0; i < d->domains; i++)
		d->served[i] = &d->domain[i]->served;
	return rc;
}

static int make_segments(struct daemon *d, struct err *err)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < d->domains; i++)
		rc = domain_make_segments(d->domain[i], err);
	return rc;
}

/* All look at one machine, and what is wrong with that is said once. */
static int open_devices(struct daemon *d, struct err *err)
{
	int rc = topo_open(&d->topo, err);

	for (unsigned i = 0; rc == 0 && i < d->domains; i++)
		rc = domain_open_devices(d->domain[i], d->topo, err);
	return rc;
}

static struct domain *domain_named(const struct daemon *d, const char *name)
{
	for (unsigned i = 0; i < d->domains; i++)
		if (strcmp(d->domain[i]->share.name, name) == 0)
			return d->domain[i];
	return NULL;
}

/* NULL: none. */
static struct domain *domain_of_user(const struct daemon *d, uid_t uid)
{
	for (unsigned i = 0; i < d->domains; i++)
		if (d->domain[i]->is_default || domain_has_user(d->domain[i], uid))
			return d->domain[i];
	return NULL;
}

/* As far as there is room for them. */
static const char *domain_names(const struct daemon *d, char ret[160])
{
	size_t n = 0;

	ret[0] = '\0';
	for (unsigned i = 0; i < d->domains && n < 160; i++)
		n += (size_t)snprintf(ret + n, 160 - n, "%s%s", i > 0 ? ", " : "",
				      d->domain[i]->share.name);
	return ret;
}

static void say_stranger(const struct daemon *d, uid_t uid, struct err *err)
{
	char names[160];

	if (server_may_look(uid))
		err_set(err, EACCES,
			"uid %u is in no domain, and `strangers` are refused; `tierctl --domain` "
			"looks at one of %s",
			(unsigned)uid, domain_names(d, names));
	else
		err_set(err, EACCES, "uid %u is in no domain, and `strangers` are refused",
			(unsigned)uid);
}

static struct server_domain *domain_of(void *ctx, uid_t uid, const char *name, struct err *err)
{
	const struct daemon *d = ctx;
	struct domain *own = domain_of_user(d, uid), *asked = domain_named(d, name);
	char names[160];

	if (name[0] == '\0') {
		if (!own)
			say_stranger(d, uid, err);
		return own ? &own->served : NULL;
	}
	if (!server_may_look(uid) && (!asked || asked != own))
		err_set(err, EACCES, "uid %u may not look at domain '%s'", (unsigned)uid, name);
	else if (!asked)
		err_set(err, ENOENT, "there is no domain '%s', but %s", name,
			domain_names(d, names));
	else
		return &asked->served;
	return NULL;
}

/* ---- server --------------------------------------------------------------------------------- */

/* Clients come later than tiers and must not take what those will want: a slab of a GPU's memory
 * has a descriptor, and a client could keep everybody from it by connecting. */
static int clients_that_fit(const struct daemon *d, uint64_t *ret, struct err *err)
{
	uint64_t later = 0, most = d->settings->max_clients;
	struct nofile_shares shares;
	struct nofile n;
	int rc = nofile_read(&n, err);

	for (unsigned i = 0; i < d->domains; i++)
		later += devices_later_fds(&d->domain[i]->devices);
	later += d->metrics ? METRICS_FDS : 0;
	if (rc == 0)
		rc = nofile_divide(&n, later, CONNECTION_FDS, &shares, err);
	if (rc < 0)
		return rc;
	if (shares.later < later)
		log_warn(MAIN,
			 "RLIMIT_NOFILE allows %llu descriptors: hbm may have %llu %s, and "
			 "only %llu %s",
			 (unsigned long long)n.limit, (unsigned long long)later,
			 PLURAL(later, "slab", "slabs"), (unsigned long long)shares.later,
			 PLURAL(shares.later, "is sure of its own", "are sure of theirs"));
	*ret = shares.clients;
	shares.clients -= server_kept(shares.clients);
	if (shares.clients < most)
		log_info(MAIN,
			 "RLIMIT_NOFILE allows %llu descriptors: %llu %s, not max_clients: %llu",
			 (unsigned long long)n.limit, (unsigned long long)shares.clients,
			 PLURAL(shares.clients, "client", "clients"), (unsigned long long)most);
	return 0;
}

static int metrics_open(struct daemon *d, struct err *err)
{
	struct metrics_domain of[DOMAINS_MAX];

	if (d->settings->metrics.listen == NULL)
		return 0;
	for (unsigned i = 0; i < d->domains; i++)
		of[i] = (struct metrics_domain){ d->domain[i]->share.name,
						 segments_stats(&d->domain[i]->segments) };
	return metrics_start(d->settings->metrics.listen, of, d->domains, &d->metrics, err);
}

static int server_open(struct daemon *d, struct err *err)
{
	struct server_params params = { .socket_path = d->settings->socket,
					.clients_max = d->settings->max_clients,
					.clients_per_uid_max = d->settings->max_clients_per_uid,
					.cuts_off = d->settings->excess.then != EXCESS_TELL,
					.terminates = d->settings->excess.then == EXCESS_TERMINATE,
					.loop = d->loop,
					.domains = d->served,
					.domain_count = d->domains,
					.domain_of = domain_of,
					.ctx = d };
	int n;

	n = clients_that_fit(d, &params.connections_max, err);
	if (n < 0)
		return n;
	return server_create(&params, &d->rendezvous, &d->server, err);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Before anything is opened: a driver of GPUs says something else when it has no descriptors. */
static int descriptors_ready(struct err *err)
{
	struct nofile n;
	int rc;

	nofile_raise();
	rc = nofile_read(&n, err);
	if (rc == 0 && n.limit < NOFILE_LEAST)
		rc = err_set(err, EMFILE,
			     "RLIMIT_NOFILE allows %llu descriptors, tierd needs %u at least",
			     (unsigned long long)n.limit, NOFILE_LEAST);
	return rc;
}

static int daemon_start(struct daemon *d, struct err *err)
{
	const struct settings *s = d->settings;
	int rc;

	/* No signal between the lock and those who would remove it. */
	signals_block();
	rc = rendezvous_open(s->socket, &d->rendezvous, err);
	if (rc < 0)
		return rc;
	signals_end_at_once(d);
	rc = create_domains(d, err);
	if (rc == 0)
		rc = make_segments(d, err);
	if (rc == 0)
		rc = open_devices(d, err);
	if (rc == 0)
		rc = loop_open(d, err);
	if (rc == 0)
		rc = signals_to_loop(d, err);
	for (unsigned i = 0; rc == 0 && i < d->domains; i++)
		rc = domain_start(d->domain[i], d->loop, err);
	if (rc == 0)
		rc = metrics_open(d, err);
	if (rc == 0)
		rc = server_open(d, err);
	return rc;
}

int daemon_create(const struct settings *settings, struct daemon **ret, struct err *err)
{
	struct daemon *d = heap_zeros(1, sizeof(*d));
	int rc;

	if (!d)
		return err_set(err, ENOMEM, "daemon: no memory");
	d->settings = settings;
	d->rendezvous.lock_fd = d->rendezvous.listen_fd = d->rendezvous.watch_fd = -1;
	d->signals.fd = d->signal_fd = -1;
	check_set_panic_hook(panic_dump, d);
	rc = descriptors_ready(err);
	if (rc == 0)
		rc = daemon_start(d, err);
	if (rc < 0) {
		daemon_destroy(d);
		return rc;
	}
	for (unsigned i = 0; i < d->domains; i++)
		domain_begins(d->domain[i], clock_now_ns());
	*ret = d;
	return 0;
}

int daemon_run(struct daemon *d, struct err *err)
{
	int rc;

	log_info(MAIN, "serving on %s", d->settings->socket);
	notify("READY=1");
	rc = loop_run(d->loop, err);
	notify("STOPPING=1");
	return rc;
}

static void clients_end(struct daemon *d)
{
	if (d->server)
		server_stop(d->server);
	rendezvous_unlisten(&d->rendezvous); /* of a server that could not begin as well */
	if (abandoned)
		signals_end_at_once(d);
	for (unsigned i = 0; i < d->domains; i++)
		domain_drain(d->domain[i]);
}

static void loop_close(struct daemon *d)
{
	if (!d->loop)
		return;
	loop_remove(d->loop, &d->signals);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
	loop_destroy(d->loop);
}

void daemon_destroy(struct daemon *d)
{
	if (!d)
		return;
	clients_end(d);
	for (unsigned i = 0; i < d->domains; i++)
		domain_end_engine(d->domain[i]);
	check_set_panic_hook(NULL, NULL);
	metrics_stop(d->metrics); /* it reads pages of domains */
	server_destroy(d->server);
	/* In reverse: what the first of them claimed is given back last. */
	while (d->domains > 0)
		domain_destroy(d->domain[--d->domains]);
	if (d->topo)
		topo_close(d->topo);
	loop_close(d);
	abandoned = NULL;
	rendezvous_close(&d->rendezvous);
	log_end();
	heap_free(d);
}

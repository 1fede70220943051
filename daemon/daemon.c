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
#include "base/log.h"
#include "base/nofile.h"
#include "daemon/connection.h"
#include "daemon/devices.h"
#include "daemon/lanes.h"
#include "daemon/loop.h"
#include "daemon/notify.h"
#include "daemon/rendezvous.h"
#include "daemon/segments.h"
#include "daemon/server.h"

#define REAPS_A_TURN 256u /* of one lane */

struct daemon {
	const struct settings *settings;
	struct rendezvous rendezvous;
	struct segments segments;
	struct devices devices;
	struct lanes lanes;
	struct engine *engine;
	struct loop *loop;
	struct server *server;
	struct loop_source signals, done;
	int signal_fd;
	uint64_t begin_ns;
};

/* ---- signals -------------------------------------------------------------------------------- */

/* A start may take long (a tier is touched page by page) and an end may wait for a slow device:
 * then a signal ends the process at once. Only the lock file has a name by then. */
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

/* ---- engine hooks --------------------------------------------------------------------------- */

static void hook_submit(void *ctx, unsigned device, struct xfer *x)
{
	struct daemon *d = ctx;

	lanes_submit(&d->lanes, device, x);
}

static void hook_complete(void *ctx, struct holder *holder, uint32_t request, int result,
			  uint64_t value, const char *text)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_complete(c, request, result, value, 0, text);
}

static void hook_holder_gone(void *ctx, struct holder *holder)
{
	server_holder_gone(holder);
}

static void hook_misbehaves(void *ctx, struct holder *holder, const char *text)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_break(c, text);
}

static void hook_slab_unmap(void *ctx, struct holder *holder, unsigned device, uint64_t offset)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_slab_unmap(c, device, offset);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static bool daemon_turn(void *ctx, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct daemon *d = ctx;
	bool progress = lanes_reap(&d->lanes, d->engine, REAPS_A_TURN, now_ns) > 0;
	uint64_t due_ns;

	progress |= server_turn(d->server, now_ns, ret_next_ns);
	due_ns = engine_turn(d->engine, now_ns);
	*ret_next_ns = MIN(*ret_next_ns, due_ns);
	lanes_kick(&d->lanes);
	server_turn_end(d->server);
	atomic_store_explicit(&segments_stats(&d->segments)->uptime_ns, now_ns - d->begin_ns,
			      memory_order_relaxed);
	return progress;
}

static bool daemon_pending(void *ctx, bool logs)
{
	struct daemon *d = ctx;

	return lanes_reap(&d->lanes, d->engine, REAPS_A_TURN, clock_now_ns()) > 0 ||
	       server_pending(d->server, logs);
}

static void done_came(struct loop_source *source, uint32_t events)
{
	/* Edge-triggered and never read: the turn reaps. */
}

static int loop_open(struct daemon *d, struct err *err)
{
	struct stats_page *stats = segments_stats(&d->segments);
	const struct loop_work work = { .ctx = d,
					.turn = daemon_turn,
					.pending = daemon_pending,
					.awake = &segments_table(&d->segments)->awake,
					.done_wanted = &d->lanes.done_wanted,
					.turns = &stats->turns,
					.sleeps = &stats->sleeps,
					.spin_ns = d->settings->spin_ns };

	return loop_create(&work, &d->loop, err);
}

/* ---- engine --------------------------------------------------------------------------------- */

static void params_fill(struct daemon *d, struct engine_params *ret)
{
	const struct settings *s = d->settings;

	*ret = (struct engine_params){
		.table = segments_table(&d->segments),
		.tensors = d->segments.tensors,
		.records = d->segments.records.base,
		.device_count = d->devices.count,
		.dram_zone_bytes = d->devices.zone_bytes,
		.staging = d->devices.staging.base,
		.staging_bytes = d->devices.engine_staging_bytes,
		.watermark = { [TIER_KIND_HBM] = s->watermarks.hbm,
			       [TIER_KIND_DRAM] = s->watermarks.dram,
			       [TIER_KIND_NVME] = { 1000, 1000 } },
		.linger_ns = s->linger_ns,
		.stats = segments_stats(&d->segments),
		.hooks = { .ctx = d,
			   .submit = hook_submit,
			   .complete = hook_complete,
			   .holder_gone = hook_holder_gone,
			   .misbehaves = hook_misbehaves,
			   .slab_unmap = hook_slab_unmap },
	};
	memcpy(ret->devices, d->devices.tier, sizeof(ret->devices));
	for (unsigned i = 0; i < ENGINE_CLASSES; i++)
		ret->class_[i] = (struct engine_class){ policy_all[s->class_[i].policy.choice],
							s->class_[i].policy.config,
							s->class_[i].overcommit_permille };
}

static int engine_open(struct daemon *d, struct err *err)
{
	struct engine_params params;

	params_fill(d, &params);
	return engine_create(&params, &d->engine, err);
}

static void panic_dump(void *ctx)
{
	struct daemon *d = ctx;

	if (d->engine)
		engine_dump(d->engine, STDERR_FILENO);
}

/* Clients come later than tiers and must not take what those will want: a slab of a GPU's memory
 * has a descriptor, and a client could keep everybody from it by connecting. */
static int clients_that_fit(const struct daemon *d, uint64_t *ret, struct err *err)
{
	uint64_t later = devices_later_fds(&d->devices), most = d->settings->max_clients;
	struct nofile_shares shares;
	struct nofile n;
	int rc = nofile_read(&n, err);

	if (rc == 0)
		rc = nofile_divide(&n, later, CONNECTION_FDS, &shares, err);
	if (rc < 0)
		return rc;
	if (shares.later < later)
		log_warn(MAIN,
			 "RLIMIT_NOFILE allows %llu descriptors: hbm may have %llu slabs, and "
			 "only %llu are sure of theirs",
			 (unsigned long long)n.limit, (unsigned long long)later,
			 (unsigned long long)shares.later);
	if (shares.clients < most)
		log_info(MAIN,
			 "RLIMIT_NOFILE allows %llu descriptors: %llu clients, not max_clients: "
			 "%llu",
			 (unsigned long long)n.limit, (unsigned long long)shares.clients,
			 (unsigned long long)most);
	*ret = shares.clients;
	return 0;
}

static int server_open(struct daemon *d, struct err *err)
{
	struct server_params params = { .socket_path = d->settings->socket,
					.clients_max = d->settings->max_clients,
					.clients_per_uid_max = d->settings->max_clients_per_uid,
					.loop = d->loop,
					.engine = d->engine,
					.segments = &d->segments };
	int n = devices_arenas(&d->devices, params.arena, err);

	if (n < 0)
		return n;
	params.arenas = (unsigned)n;
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
	rc = segments_create((uint32_t)s->tensors, engine_records_bytes((uint32_t)s->tensors),
			     &d->segments, err);
	if (rc == 0)
		rc = devices_open(s, &d->devices, err);
	if (rc == 0)
		rc = loop_open(d, err);
	if (rc == 0)
		rc = signals_to_loop(d, err);
	if (rc == 0)
		rc = lanes_start(d->devices.tier, d->devices.count, &d->lanes, err);
	if (rc == 0)
		rc = engine_open(d, err);
	d->done.ready = done_came;
	if (rc == 0)
		rc = loop_add(d->loop, &d->done, d->lanes.done_fd, EPOLLIN | EPOLLET, err);
	if (rc == 0)
		rc = server_open(d, err);
	return rc;
}

int daemon_create(const struct settings *settings, struct daemon **ret, struct err *err)
{
	struct daemon *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return err_set(err, ENOMEM, "daemon: no memory");
	d->settings = settings;
	d->rendezvous.lock_fd = d->rendezvous.listen_fd = d->rendezvous.watch_fd = -1;
	d->segments.table = d->segments.stats = d->segments.records = (struct segment)SEGMENT_NONE;
	d->devices.staging.fd = -1;
	d->signals.fd = d->done.fd = d->signal_fd = d->lanes.done_fd = -1;
	list_init(&d->lanes.refused);
	check_set_panic_hook(panic_dump, d);
	rc = descriptors_ready(err);
	if (rc == 0)
		rc = daemon_start(d, err);
	if (rc < 0) {
		daemon_destroy(d);
		return rc;
	}
	d->begin_ns = clock_now_ns();
	devices_tell(&d->devices, segments_stats(&d->segments));
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
	if (d->engine)
		lanes_drain(&d->lanes, d->engine);
}

static void loop_close(struct daemon *d)
{
	if (!d->loop)
		return;
	loop_remove(d->loop, &d->signals);
	loop_remove(d->loop, &d->done);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
	loop_destroy(d->loop);
}

void daemon_destroy(struct daemon *d)
{
	if (!d)
		return;
	if (abandoned)
		signals_end_at_once(d);
	clients_end(d);
	if (d->engine)
		engine_destroy(d->engine);
	check_set_panic_hook(NULL, NULL);
	server_destroy(d->server);
	loop_close(d);
	lanes_stop(&d->lanes);
	devices_close(&d->devices);
	segments_destroy(&d->segments);
	abandoned = NULL;
	rendezvous_close(&d->rendezvous);
	log_end();
	free(d);
}

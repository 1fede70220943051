/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/fuzz/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/connection.h"
#include "daemon/engine/state.h"
#include "daemon/greet.h"
#include "tests/unit/leftovers.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define LOOK_NS 50u /* that pass with each look at the clock */
/* In these those that stand before the door have come in: the first may be one that says nothing,
 * since what he was sent on stands behind him and holds him, and has a second for it. */
#define DOOR_TURNS   32u
#define DOOR_TURN_NS (100 * NS_PER_MS)
#define BURIAL_TURNS 20000u /* of half a millisecond: within these all that ends has ended */

/* The one that lives. Calls of the system that the linker leads here are about it. */
static struct fuzz_daemon *alive;

/* ---- the system ----------------------------------------------------------------------------- */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);

int __wrap_inotify_init1(int flags);

/* The end of a watch takes the kernel longer than all else that is done here. */
int __wrap_inotify_init1(int flags)
{
	errno = EMFILE;
	return -1;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	uint64_t ns;

	if (alive == NULL || clock != CLOCK_MONOTONIC)
		return __real_clock_gettime(clock, ret);
	ns = alive->world.now_ns += LOOK_NS;
	*ret = (struct timespec){ (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };
	return 0;
}

static int pid_open(int *ret)
{
	int fd = eventfd(0, EFD_CLOEXEC), ours = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (ours < 0 && fd >= 0)
		close(fd);
	if (ours < 0)
		return -1;
	ASSERT(alive->pids < DAEMON_PIDS);
	alive->pid_fd[alive->pids++] = ours;
	*ret = fd;
	return 0;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	if (alive != NULL && level == SOL_SOCKET && name == SO_PEERPIDFD)
		return pid_open(value);
	return __real_getsockopt(fd, level, name, value, bytes);
}

void daemon_kill(struct fuzz_daemon *d, unsigned i)
{
	if (i >= d->pids || d->pid_fd[i] < 0)
		return;
	ASSERT(eventfd_write(d->pid_fd[i], 1) == 0 && close(d->pid_fd[i]) == 0);
	d->pid_fd[i] = -1;
}

/* ---- hooks ---------------------------------------------------------------------------------- */

static struct connection *connection_of(struct holder *h)
{
	struct connection *c = engine_holder_user(h);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	return c;
}

static void on_complete(void *ctx, struct holder *h, uint32_t request, int result, uint64_t value,
			const char *text)
{
	struct fuzz_daemon *d = ctx;

	if (h == d->honest)
		d->complete(d->complete_ctx, request, result, value);
	else
		connection_complete(connection_of(h), request, result, value, 0, text);
}

static void on_holder_gone(void *ctx, struct holder *h)
{
	const struct fuzz_daemon *d = ctx;

	if (h != d->honest)
		server_holder_gone(h);
}

static void on_misbehaves(void *ctx, struct holder *h, const char *text)
{
	connection_break(connection_of(h), text);
}

static void on_slab_unmap(void *ctx, struct holder *h, unsigned device, uint64_t offset)
{
	const struct fuzz_daemon *d = ctx;

	if (h != d->honest)
		connection_slab_unmap(connection_of(h), device, offset);
}

/* ---- turns ---------------------------------------------------------------------------------- */

/* As daemon_turn() of the daemon, but that lanes finish one xfer a turn, any of those there are. */
static bool turn(void *ctx, uint64_t now_ns, uint64_t *ret_next_ns)
{
	struct fuzz_daemon *d = ctx;

	world_finish_one(&d->world);
	server_turn(d->server, d->world.now_ns, ret_next_ns);
	world_turn(&d->world, d->turn_ns);
	server_turn_end(d->server);
	*ret_next_ns = 0; /* never waits */
	if (--d->turns_left == 0)
		loop_stop(d->loop);
	return true;
}

static bool pending(void *ctx, bool logs)
{
	return true;
}

void daemon_turns(struct fuzz_daemon *d, unsigned n)
{
	struct err err = ERR_INIT;

	d->turns_left = n + 1; /* the last one does not look at descriptors */
	ASSERT(loop_run(d->loop, &err) == 0);
}

/* ---- life ----------------------------------------------------------------------------------- */

static char folder[LEFTOVERS_ROOM];
static char socket_path[sizeof(folder) + 16];

static void folder_remove(void)
{
	rmdir(folder);
}

/* The world says that slab i has descriptor 1000 + i, and a socket sends only real ones. */
static void slabs_make(void)
{
	for (int i = 0; i < (int)WORLD_SLABS; i++) {
		int fd = memfd_create("slab", MFD_CLOEXEC);

		ASSERT(fd >= 0 && dup3(fd, 1000 + i, O_CLOEXEC) >= 0 && close(fd) == 0);
	}
}

const char *daemon_socket(void)
{
	if (socket_path[0] != '\0')
		return socket_path;
	ASSERT(log_configure("error") == 0);
	slabs_make();
	leftovers_folder(folder);
	ASSERT(atexit(folder_remove) == 0);
	snprintf(socket_path, sizeof(socket_path), "%s/tierd.sock", folder);
	return socket_path;
}

static void loop_open(struct fuzz_daemon *d)
{
	struct stats_page *stats = segments_stats(&d->segments);
	const struct loop_work work = {
		.ctx = d, .turn = turn, .pending = pending, .sides = &d->side, .side_count = 1
	};
	struct err err = ERR_INIT;

	d->side = (struct loop_side){ &segments_table(&d->segments)->awake, &d->done_wanted,
				      &stats->turns, &stats->sleeps };
	ASSERT(loop_create(&work, &d->loop, &err) == 0);
}

static void domain_fill(struct fuzz_daemon *d)
{
	struct server_domain *to = &d->domain;

	to->engine = d->world.engine;
	to->segments = &d->segments;
	for (unsigned i = 0; i < d->world.shape.hbm; i++) {
		const struct tier *t = &d->world.devices[i].tier;

		if (t->base.slab_bytes > 0)
			to->arena[to->arenas++] =
				(struct server_arena){ .arena = (uint16_t)i,
						       .place = (uint8_t)i,
						       .fd = -1,
						       .bytes = t->base.bytes,
						       .slab_bytes = t->base.slab_bytes };
	}
	d->domains[0] = to;
}

/* One domain, for everybody who names none. */
static struct server_domain *domain_of(void *ctx, uid_t uid, const char *name, struct err *err)
{
	struct fuzz_daemon *d = ctx;

	if (name[0] == '\0')
		return &d->domain;
	err_set(err, EPERM, "not for uid %u: %s", (unsigned)uid, name);
	return NULL;
}

static void server_start(struct fuzz_daemon *d)
{
	const struct server_params params = { .socket_path = daemon_socket(),
					      .clients_max = 6,
					      .clients_per_uid_max = 6,
					      .connections_max = 12,
					      .loop = d->loop,
					      .domains = d->domains,
					      .domain_count = 1,
					      .domain_of = domain_of,
					      .ctx = d };
	struct err err = ERR_INIT;

	domain_fill(d);
	ASSERT(rendezvous_open(daemon_socket(), &d->rendezvous, &err) == 0);
	ASSERT(server_create(&params, &d->rendezvous, &d->server, &err) == 0);
}

void daemon_open(struct fuzz_daemon *d, uint64_t seed, struct world_shape shape)
{
	const struct engine_hooks hooks = { .ctx = d,
					    .submit = world_submit,
					    .complete = on_complete,
					    .holder_gone = on_holder_gone,
					    .misbehaves = on_misbehaves,
					    .slab_unmap = on_slab_unmap };
	struct err err = ERR_INIT;

	memset(d, 0, sizeof(*d));
	d->turn_ns = DAEMON_TURN_NS;
	world_open(&d->world, seed, shape, policy_all[seed % 5 == 0 ? 1 : 0], &hooks);
	ASSERT(segments_create(WORLD_TENSORS, 4096, &d->segments, &err) == 0);
	loop_open(d);
	alive = d;
	server_start(d);
}

static bool buried(const struct fuzz_daemon *d)
{
	return d->world.flying == 0 && server_clients(d->server) == 0 &&
	       list_empty(&d->world.engine->tombstones);
}

void daemon_bury_clients(struct fuzz_daemon *d)
{
	unsigned n = 0;

	d->world.fail_permille = 0;
	do {
		d->turn_ns = n < DOOR_TURNS ? DOOR_TURN_NS : NS_PER_MS / 2;
		ASSERT(n++ < BURIAL_TURNS);
		daemon_turns(d, 1);
		for (unsigned i = 0; i < d->pids; i++)
			daemon_kill(d, i);
	} while (n < DOOR_TURNS || !buried(d));
	d->pids = 0;
}

static bool is_empty(const struct fuzz_daemon *d)
{
	uint64_t bytes = d->world.stats->tensors;

	for (unsigned k = 0; k < TIER_KINDS; k++)
		bytes += d->world.stats->tier[k].reserved_bytes;
	return bytes == 0 && buried(d);
}

void daemon_close(struct fuzz_daemon *d)
{
	for (unsigned n = 0; !is_empty(d); n++) {
		ASSERT(n < BURIAL_TURNS);
		daemon_turns(d, 1);
	}
	engine_check(d->world.engine);
	/* The world is last: it sees whether all memory was given back. */
	server_stop(d->server);
	server_destroy(d->server);
	alive = NULL;
	loop_destroy(d->loop);
	segments_destroy(&d->segments);
	rendezvous_close(&d->rendezvous);
	world_close(&d->world);
}

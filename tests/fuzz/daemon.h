/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole daemon in the fuzzer's thread: real socket, server, rings and engine over the world of
 * tests/sim, whose lanes, clock and faults are ours. Nothing happens but in daemon_turns(). The
 * linker puts three calls of the system aside (see daemon.c): the clock, which is the world's, the
 * pidfd of a client, which is an eventfd, so that a client of this process can die, and inotify.
 */
#ifndef TIERD_TESTS_FUZZ_DAEMON_H
#define TIERD_TESTS_FUZZ_DAEMON_H

#include "daemon/loop.h"
#include "daemon/rendezvous.h"
#include "daemon/segments.h"
#include "daemon/server.h"
#include "tests/sim/world.h"

#define DAEMON_PIDS    64u /* clients that may connect before a burial */
#define DAEMON_TURN_NS (20 * NS_PER_US)

struct fuzz_daemon {
	struct world world; /* first: the context of world_submit() */
	struct segments segments;
	struct rendezvous rendezvous;
	struct loop *loop;
	struct loop_side side;
	struct server *server;
	struct server_domain domain, *domains[1];
	_Atomic uint32_t done_wanted;
	unsigned turns_left;
	uint64_t turn_ns;        /* that pass with each turn */
	int pid_fd[DAEMON_PIDS]; /* our ends of them, -1: that client is dead */
	unsigned pids;
	/* Answers of a holder that is no connection; see `honest`. */
	void (*complete)(void *ctx, uint32_t request, int result, uint64_t value);
	void *complete_ctx;
	const struct holder *honest; /* not of the server: a client of the fuzzer's own */
};

/* The path of the socket. Made at the first call; it goes with the process. */
const char *daemon_socket(void);
void daemon_open(struct fuzz_daemon *d, uint64_t seed, struct world_shape shape);
/* All clients die, what is in flight comes back, nothing is left but what `honest` has; others may
 * come then. Ends of sockets that are still open are their owner's to close before. */
void daemon_bury_clients(struct fuzz_daemon *d);
/* Asserts that nothing is left at all. */
void daemon_close(struct fuzz_daemon *d);
void daemon_turns(struct fuzz_daemon *d, unsigned n);
/* The i-th client that connected dies, if it has not. */
void daemon_kill(struct fuzz_daemon *d, unsigned i);

#endif

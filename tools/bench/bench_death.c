/* SPDX-License-Identifier: Apache-2.0
 *
 * How long the pins of a killed client last beyond its pidfd, whatever their number: another client
 * waits for one of its tensors at another place. One pin is what all of this takes without them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tools/bench/bench.h"

#define PINS_MANY    100000u
#define PINS_FEW     2000u /* quick */
#define TENSOR_BYTES 512u
#define BATCH        10000u
#define ROUNDS       9u
#define WAIT_NS      (60 * (int64_t)NS_PER_S)

static const struct bench_config config = { .hbm_bytes = MIB(64), .dram_bytes = MIB(256) };

struct death {
	const struct bench_options *o;
	struct bench_daemon daemon;
	struct tierd *t;
	tierd_tensor *tensors;
	unsigned n;
	_Atomic uint64_t acquired_ns; /* when the waiter had it, or was told why not; 0: it waits */
	int rc;
};

static int create_all(struct death *d)
{
	static struct tierd_spec specs[BATCH];
	int rc = 0;

	for (unsigned i = 0; i < BATCH; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_OTHER,
						.ndim = 1,
						.shape = { TENSOR_BYTES } };
	for (unsigned at = 0; at < d->n && rc == 0; at += BATCH)
		rc = tierd_create(d->t, specs, MIN(BATCH, d->n - at), d->tensors + at);
	return rc;
}

/* The victim: pins the last `pins` of them for writing, says so and waits for its end. */
static int hold_pins(const struct death *d, unsigned pins, int ready_fd)
{
	struct tierd *t;
	int rc = tierd_open(d->daemon.socket, "bench", 0, &t);

	for (unsigned i = d->n - pins; i < d->n && rc == 0; i++) {
		struct tierd_view v;

		rc = tierd_acquire(t, d->tensors[i], TIERD_HOST, TIERD_READ | TIERD_WRITE, WAIT_NS,
				   &v);
	}
	if (rc < 0)
		return bench_failed("death: victim");
	if (write(ready_fd, "", 1) == 1)
		for (;;)
			pause();
	return 1;
}

static pid_t start_victim(const struct death *d, unsigned pins)
{
	pid_t parent = getpid(), pid;
	char byte;
	int fds[2];

	ASSERT(pipe(fds) == 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		_exit(getppid() == parent ? hold_pins(d, pins, fds[1]) : 1);
	}
	close(fds[1]);
	if (pid > 0 && read(fds[0], &byte, 1) != 1) {
		waitpid(pid, NULL, 0);
		pid = -1;
	}
	close(fds[0]);
	return pid;
}

static void *waiter(void *arg)
{
	struct death *d = arg;
	struct tierd_view v;

	d->rc = tierd_acquire(d->t, d->tensors[d->n - 1], 0, TIERD_READ, WAIT_NS, &v);
	d->acquired_ns = clock_now_ns();
	if (d->rc == 0)
		tierd_release(d->t, &v);
	return NULL;
}

static uint64_t misses(struct death *d)
{
	struct tierd_stats stats;

	return tierd_stats(d->t, &stats) == 0 ? stats.misses : 0;
}

/* Kills it and returns when its pidfd said so. */
static uint64_t kill_and_see(pid_t pid)
{
	struct pollfd p = { .fd = pidfd_open(pid, 0), .events = POLLIN };
	uint64_t ns;

	ASSERT(p.fd >= 0);
	kill(pid, SIGKILL);
	while (poll(&p, 1, -1) != 1)
		;
	ns = clock_now_ns();
	close(p.fd);
	waitpid(pid, NULL, 0);
	return ns;
}

/* Microseconds from the pidfd to the waiter's pin; below zero is within this process's own wake-up.
 */
static int one_round(struct death *d, unsigned pins, double *ret_us)
{
	pid_t pid = start_victim(d, pins);
	uint64_t before = misses(d), dead_ns;
	pthread_t thread;

	d->acquired_ns = 0;
	if (pid < 0 || pthread_create(&thread, NULL, waiter, d) != 0)
		return -EAGAIN;
	/* Until the daemon has the waiter's request. */
	while (misses(d) == before && d->acquired_ns == 0)
		sched_yield();
	dead_ns = kill_and_see(pid);
	pthread_join(thread, NULL);
	*ret_us = ((double)d->acquired_ns - (double)dead_ns) / 1000;
	return d->rc;
}

static int measure(struct death *d)
{
	double many[ROUNDS], one[ROUNDS];
	unsigned rounds = d->o->quick ? 1 : ROUNDS;
	struct result r;
	int rc = create_all(d);

	for (unsigned i = 0; i < rounds && rc == 0; i++) {
		rc = one_round(d, d->n, &many[i]);
		if (rc == 0)
			rc = one_round(d, 1, &one[i]);
	}
	if (rc < 0)
		return bench_failed("death");
	result_begin(&r, d->o, "death");
	result_count(&r, "pins", d->n);
	result_real(&r, "gone_p50_us", median(many, rounds));
	result_real(&r, "gone_max_us", many[rounds - 1]);
	result_real(&r, "one_pin_p50_us", median(one, rounds));
	result_end(&r);
	return 0;
}

int bench_death(const struct bench_options *o)
{
	struct death d = { .o = o, .n = o->quick ? PINS_FEW : PINS_MANY };
	int rc;

	d.tensors = calloc(d.n, sizeof(*d.tensors));
	if (d.tensors == NULL || daemon_start(o, &config, &d.daemon) != 0)
		return 1;
	rc = tierd_open(d.daemon.socket, "bench", 0, &d.t) < 0 ? bench_failed("death") : 0;
	if (rc == 0) {
		rc = measure(&d);
		tierd_close(d.t);
	}
	free(d.tensors);
	return daemon_stop(&d.daemon) | rc;
}

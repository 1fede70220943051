/* SPDX-License-Identifier: Apache-2.0
 *
 * Hits: acquire and release of one of 256 resident tensors, access log included. Every client is a
 * process with tensors of its own; the storm is one more process, which walks over a working set
 * larger than hbm and dram together. System calls are counted from outside in a second run under
 * the same conditions.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/tierd.h"
#include "tools/bench/bench.h"
#include "tools/bench/tick.h"
#include "tools/bench/trace.h"

#define HOT          256u /* tensors of a client, a power of two */
#define HOT_BYTES    4096u
#define CLIENTS_MAX  64u
#define WARM_NS      (200 * NS_PER_MS)
#define TRACED_PAIRS 1000000u
#define STORM_BYTES  MIB(1)
#define STORM_SET    320u /* tensors: more than both tiers hold */

static const struct bench_config config = {
	.hbm_bytes = MIB(64), .dram_bytes = MIB(192), .nvme_bytes = GIB(1), .staging_bytes = MIB(16)
};

/* Shared by all processes of one measurement. */
struct shared {
	_Atomic unsigned ready, go, stop, failed;
	_Atomic uint64_t storm_misses;
	uint64_t overhead;
	struct hist hist[CLIENTS_MAX];
};

struct client {
	const struct bench_daemon *daemon;
	const struct bench_options *o;
	struct shared *shared;
	unsigned number;
	bool traced;
	struct tierd *t;
	tierd_tensor tensors[HOT];
};

static void wait_for(_Atomic unsigned *word, unsigned value, struct shared *s)
{
	while (atomic_load(word) < value && atomic_load(&s->failed) == 0)
		usleep(1000);
}

static int touch(struct tierd *t, tierd_tensor h, int place, uint32_t access, char byte)
{
	struct tierd_view v;
	int rc = tierd_acquire(t, h, place, access, -1, &v);

	if (rc < 0)
		return rc;
	if (access & TIERD_WRITE)
		memset(v.data, byte, v.bytes);
	tierd_release(t, &v);
	return 0;
}

static int client_start(struct client *c)
{
	static struct tierd_spec specs[HOT];
	int rc;

	for (unsigned i = 0; i < HOT; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_PARAMETER,
						.ndim = 1,
						.shape = { HOT_BYTES } };
	rc = tierd_open(c->daemon->socket, "bench", 0, &c->t);
	if (rc == 0)
		rc = tierd_create(c->t, specs, HOT, c->tensors);
	for (unsigned i = 0; i < HOT && rc == 0; i++)
		rc = touch(c->t, c->tensors[i], TIERD_HOST, TIERD_WRITE, 1);
	return rc;
}

static inline int one_pair(struct client *c, uint32_t n)
{
	struct tierd_view v;
	int rc = tierd_acquire(c->t, c->tensors[n * 97 % HOT], TIERD_HOST, TIERD_READ, -1, &v);

	if (rc == 0)
		tierd_release(c->t, &v);
	return rc;
}

static int pairs_for(struct client *c, uint64_t ns, struct hist *hist)
{
	uint64_t end = clock_now_ns() + ns, overhead = c->shared->overhead;

	for (uint32_t n = 0; n % 1024 != 0 || clock_now_ns() < end; n++) {
		uint64_t begin = tick_now(), took;
		int rc = one_pair(c, n);

		took = tick_now() - begin;
		if (rc < 0)
			return rc;
		hist_record(hist, took > overhead ? took - overhead : 0);
	}
	return 0;
}

static int client_measure(struct client *c)
{
	struct hist *hist = &c->shared->hist[c->number];
	static struct hist warm;
	int rc = client_start(c);

	if (rc < 0)
		return rc;
	hist_init(&warm);
	hist_init(hist);
	atomic_fetch_add(&c->shared->ready, 1);
	wait_for(&c->shared->go, 1, c->shared);
	if (c->traced)
		trace_me();
	rc = pairs_for(c, WARM_NS, &warm);
	if (rc == 0 && c->traced) {
		trace_mark();
		for (uint32_t n = 0; n < TRACED_PAIRS && rc == 0; n++)
			rc = one_pair(c, n);
		trace_mark();
	} else if (rc == 0) {
		rc = pairs_for(c, c->o->seconds * NS_PER_S, hist);
	}
	return rc;
}

static int storm(struct client *c)
{
	static struct tierd_spec specs[STORM_SET];
	static tierd_tensor set[STORM_SET];
	int rc;

	for (unsigned i = 0; i < STORM_SET; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_ACTIVATION,
						.ndim = 1,
						.shape = { STORM_BYTES } };
	rc = tierd_open(c->daemon->socket, "storm", 0, &c->t);
	if (rc == 0)
		rc = tierd_create(c->t, specs, STORM_SET, set);
	atomic_fetch_add(&c->shared->ready, 1);
	for (unsigned i = 0; rc == 0 && atomic_load(&c->shared->stop) == 0; i++) {
		rc = touch(c->t, set[i % STORM_SET], i % 2 ? TIERD_HOST : 0,
			   TIERD_READ | TIERD_WRITE, (char)i);
		atomic_fetch_add(&c->shared->storm_misses, 1);
	}
	return rc;
}

static pid_t client_fork(struct client *c, int (*run)(struct client *))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid != 0)
		return pid;
	if (run(c) < 0) {
		atomic_store(&c->shared->failed, 1);
		bench_failed("acquire");
		_exit(1);
	}
	tierd_close(c->t);
	_exit(0);
}

static bool ended_well(pid_t pid)
{
	int status;

	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* Runs all clients to their end. `calls` NULL: they measure time; else the first is traced. */
static bool run_clients(struct client *proto, unsigned clients, bool with_storm, uint64_t *calls)
{
	struct shared *s = proto->shared;
	pid_t pids[CLIENTS_MAX], storm_pid = 0;
	bool good = true;

	atomic_store(&s->ready, 0);
	atomic_store(&s->go, 0);
	atomic_store(&s->stop, 0);
	for (unsigned i = 0; i < clients; i++) {
		struct client c = *proto;

		c.number = i;
		c.traced = calls != NULL && i == 0;
		pids[i] = client_fork(&c, client_measure);
	}
	if (with_storm)
		storm_pid = client_fork(proto, storm);
	wait_for(&s->ready, clients + with_storm, s);
	atomic_store(&s->go, 1);
	if (calls != NULL && atomic_load(&s->failed) == 0)
		good = trace_count(pids[0], calls) == 0;
	for (unsigned i = calls != NULL; i < clients; i++)
		good = ended_well(pids[i]) && good;
	atomic_store(&s->stop, 1);
	if (with_storm)
		good = ended_well(storm_pid) && good;
	return good && atomic_load(&s->failed) == 0;
}

static void print(const struct bench_options *o, const struct shared *s, const struct hist *all,
		  unsigned clients, bool with_storm, uint64_t calls)
{
	double ns = tick_ns();
	struct result r;

	result_begin(&r, o, "acquire");
	result_count(&r, "clients", clients);
	result_flag(&r, "storm", with_storm);
	result_real(&r, "p50_ns", (double)hist_percentile(all, 500) * ns);
	result_real(&r, "p99_ns", (double)hist_percentile(all, 990) * ns);
	result_real(&r, "p999_ns", (double)hist_percentile(all, 999) * ns);
	result_real(&r, "syscalls_per_op", (double)calls / TRACED_PAIRS);
	result_end(&r);
	if (with_storm)
		result_note(o, "          the storm made %llu acquires meanwhile",
			    (unsigned long long)atomic_load(&s->storm_misses));
}

static bool measure(const struct bench_options *o, const struct bench_daemon *d, struct shared *s,
		    unsigned clients, bool with_storm)
{
	struct client proto = { .daemon = d, .o = o, .shared = s };
	static struct hist all;
	uint64_t calls = 0;
	bool good;

	atomic_store(&s->storm_misses, 0);
	good = run_clients(&proto, clients, with_storm, NULL);
	hist_init(&all);
	for (unsigned i = 0; i < clients; i++)
		hist_merge(&all, &s->hist[i]);
	good = good && run_clients(&proto, clients, with_storm, &calls);
	if (good)
		print(o, s, &all, clients, with_storm, calls);
	else
		fprintf(stderr, "tierd-bench: acquire: a client ended early\n");
	return good;
}

int bench_acquire(const struct bench_options *o)
{
	static const unsigned usual[] = { 1, 8 }, quick[] = { 1, 2 };
	struct bench_daemon d;
	struct shared *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool good = true;

	if (s == MAP_FAILED || daemon_start(o, &config, &d) != 0)
		return 1;
	s->overhead = tick_overhead();
	for (unsigned i = 0; i < ARRAY_SIZE(usual) && good; i++) {
		unsigned clients = o->clients != 0 ? MIN(o->clients, CLIENTS_MAX)
				   : o->quick      ? quick[i]
						   : usual[i];

		good = measure(o, &d, s, clients, false) && measure(o, &d, s, clients, true);
		if (o->clients != 0)
			break;
	}
	return (daemon_stop(&d) != 0) | !good;
}

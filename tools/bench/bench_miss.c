/* SPDX-License-Identifier: Apache-2.0
 *
 * Misses, a tier pair and size: latency of one acquire after the other, then throughput and the
 * control thread's CPU time with up to 64 of them outstanding from as many threads. For the
 * smallest move the bare chain of wake-ups is measured beside it, one after the other, and for the
 * largest memcpy.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/hist.h"
#include "libclient/tierd.h"
#include "tools/bench/bench.h"
#include "tools/bench/chain.h"
#include "tools/bench/place.h"

#define SET_BYTES   MIB(64) /* of one round */
#define SET_MAX     1024u
#define QUICK_MAX   64u
#define OUTSTANDING 64u
#define BALLAST     MIB(64) /* as the largest of `sizes`: no hole is a little too small */
#define BALLASTS    5u      /* together more than dram */
#define GPU         0
#define TRIES       20u

static const struct bench_config config = { .hbm_bytes = MIB(320),
					    .dram_bytes = MIB(288),
					    .nvme_bytes = GIB(2),
					    .staging_bytes = MIB(16) };

enum from { FROM_DRAM, FROM_HBM, FROM_NVME };

struct pair {
	const char *from_name, *to_name;
	enum from from;
	int to;
};

static const struct pair pairs[] = {
	{ "dram", "hbm", FROM_DRAM, GPU },
	{ "hbm", "dram", FROM_HBM, TIERD_HOST },
	{ "nvme", "dram", FROM_NVME, TIERD_HOST },
	{ "nvme", "hbm", FROM_NVME, GPU },
};
static const uint64_t sizes[] = { KIB(4), KIB(64), MIB(1), MIB(64) };

struct miss {
	const struct bench_options *o;
	const struct bench_daemon *daemon;
	const struct pair *pair;
	uint64_t bytes;
	struct tierd *t;
	tierd_tensor set[SET_MAX], ballast[BALLASTS];
	unsigned n;
	tierd_tensor away[SET_MAX]; /* those that are where a round wants them to come from */
	unsigned away_n;
	struct chain chain;
	char *from, *to; /* memcpy's */
	struct hist latency, chain_latency, copy_latency;
	uint64_t many_ns, many_misses, many_bytes, control_ns;
};

static int use(struct tierd *t, tierd_tensor h, int place, uint32_t access)
{
	struct tierd_view v;
	int rc = tierd_acquire(t, h, place, access, -1, &v);

	if (rc < 0)
		return rc;
	if (access & TIERD_WRITE)
		memset(v.data, 0x5a, v.bytes);
	tierd_release(t, &v);
	return 0;
}

static int use_all(struct miss *m, const tierd_tensor *set, unsigned n, int place, uint32_t access)
{
	int rc = 0;

	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = use(m->t, set[i], place, access);
	return rc;
}

/* Those of the set with no bytes in dram and hbm. */
static int find_away(struct miss *m)
{
	struct tierd_info info;
	int rc = 0;

	m->away_n = 0;
	for (unsigned i = 0; i < m->n && rc == 0; i++) {
		rc = tierd_stat(m->t, m->set[i], &info);
		if (rc == 0 && info.stored_bytes[TIERD_DRAM] + info.stored_bytes[TIERD_HBM] == 0)
			m->away[m->away_n++] = m->set[i];
	}
	return rc;
}

/* Pushes the set out of hbm and dram: it comes to dram, is flushed, said to go first, and others
 * want all the room. Where those find room without it, some stay; they sit the round out. */
static int to_nvme(struct miss *m)
{
	int rc = use_all(m, m->set, m->n, TIERD_HOST, TIERD_READ);

	if (rc == 0)
		rc = tierd_flush(m->t, m->set, m->n);
	m->away_n = 0;
	for (unsigned tries = 0; tries < TRIES && rc == 0 && m->away_n < (m->n + 1) / 2; tries++) {
		rc = tierd_evict(m->t, m->set, m->n);
		if (rc == 0)
			rc = use_all(m, m->ballast, BALLASTS, TIERD_HOST, TIERD_READ);
		if (rc == 0)
			rc = find_away(m);
	}
	if (rc == 0 && m->away_n == 0) {
		fprintf(stderr, "tierd-bench: miss: nothing leaves dram and hbm\n");
		rc = -1;
	}
	return rc;
}

static int prepare(struct miss *m)
{
	memcpy(m->away, m->set, sizeof(m->away));
	m->away_n = m->n;
	switch (m->pair->from) {
	case FROM_DRAM:
		return use_all(m, m->set, m->n, TIERD_HOST, TIERD_READ);
	case FROM_HBM:
		return use_all(m, m->set, m->n, GPU, TIERD_READ | TIERD_WRITE);
	default:
		return to_nvme(m);
	}
}

static bool with_chain(const struct miss *m)
{
	return m->pair->from == FROM_DRAM && m->bytes == sizes[0];
}

static bool with_memcpy(const struct miss *m)
{
	return m->pair->from == FROM_DRAM && m->bytes == sizes[ARRAY_SIZE(sizes) - 1];
}

/* What a miss is compared with, once before each. */
static void compare(struct miss *m)
{
	uint64_t begin = clock_now_ns();

	if (with_chain(m)) {
		chain_run(&m->chain);
		hist_record(&m->chain_latency, clock_now_ns() - begin);
	} else if (with_memcpy(m)) {
		memcpy(m->to, m->from, m->bytes);
		__asm__ volatile("" : : "r"(m->to) : "memory");
		hist_record(&m->copy_latency, clock_now_ns() - begin);
	}
}

static int one_after_the_other(struct miss *m)
{
	const pid_t served_by[] = { m->daemon->pid, m->chain.child };
	int rc = prepare(m);

	if (with_chain(m))
		place_apart(served_by, ARRAY_SIZE(served_by));
	for (unsigned i = 0; i < m->away_n && rc == 0; i++) {
		struct tierd_view v;
		uint64_t begin;

		compare(m);
		begin = clock_now_ns();
		rc = tierd_acquire(m->t, m->away[i], m->pair->to, TIERD_READ, -1, &v);
		if (rc < 0)
			break;
		hist_record(&m->latency, clock_now_ns() - begin);
		tierd_release(m->t, &v);
	}
	if (with_chain(m))
		place_freely(served_by, ARRAY_SIZE(served_by));
	return rc;
}

/* ---- many outstanding ---- */

struct crowd {
	struct miss *m;
	pthread_barrier_t ready, done;
	unsigned threads;
	_Atomic unsigned next;
	_Atomic int failed;
	bool stop;
};

static void *crowd_main(void *arg)
{
	struct crowd *c = arg;
	unsigned i;

	for (;;) {
		pthread_barrier_wait(&c->ready);
		if (c->stop)
			return NULL;
		while ((i = atomic_fetch_add(&c->next, 1)) < c->m->away_n) {
			int rc = use(c->m->t, c->m->away[i], c->m->pair->to, TIERD_READ);

			if (rc < 0)
				atomic_store(&c->failed, rc);
		}
		pthread_barrier_wait(&c->done);
	}
}

static int crowd_round(struct crowd *c)
{
	struct tierd_stats before, after;
	uint64_t begin, control;
	int rc = prepare(c->m);

	if (rc < 0)
		return rc;
	tierd_stats(c->m->t, &before);
	control = daemon_control_ns(c->m->daemon);
	begin = clock_now_ns();
	atomic_store(&c->next, 0);
	pthread_barrier_wait(&c->ready);
	pthread_barrier_wait(&c->done);
	c->m->many_ns += clock_now_ns() - begin;
	c->m->control_ns += daemon_control_ns(c->m->daemon) - control;
	tierd_stats(c->m->t, &after);
	c->m->many_misses += after.misses - before.misses;
	c->m->many_bytes += c->m->away_n * c->m->bytes;
	return atomic_load(&c->failed);
}

static int many_at_once(struct miss *m, unsigned rounds)
{
	struct crowd c = { .m = m, .threads = MIN(m->n, OUTSTANDING) };
	pthread_t threads[OUTSTANDING];
	int rc = 0;

	pthread_barrier_init(&c.ready, NULL, c.threads + 1);
	pthread_barrier_init(&c.done, NULL, c.threads + 1);
	for (unsigned i = 0; i < c.threads; i++)
		if (pthread_create(&threads[i], NULL, crowd_main, &c) != 0)
			abort();
	for (unsigned i = 0; i < rounds && rc == 0; i++)
		rc = crowd_round(&c);
	c.stop = true;
	pthread_barrier_wait(&c.ready);
	for (unsigned i = 0; i < c.threads; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&c.ready);
	pthread_barrier_destroy(&c.done);
	return rc;
}

/* ---- one pair and size ---- */

static int make_set(struct miss *m)
{
	static struct tierd_spec specs[SET_MAX];
	int rc;

	m->n = (unsigned)MAX(2, MIN(m->o->quick ? QUICK_MAX : SET_MAX, SET_BYTES / m->bytes));
	for (unsigned i = 0; i < m->n; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_PARAMETER,
						.ndim = 1,
						.shape = { m->bytes } };
	rc = tierd_create(m->t, specs, m->n, m->set);
	if (rc == 0)
		rc = use_all(m, m->set, m->n, TIERD_HOST, TIERD_WRITE);
	return rc;
}

static int make_ballast(struct miss *m)
{
	struct tierd_spec specs[BALLASTS];
	int rc;

	for (unsigned i = 0; i < BALLASTS; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_PARAMETER,
						.ndim = 1,
						.shape = { BALLAST } };
	rc = tierd_create(m->t, specs, BALLASTS, m->ballast);
	if (rc == 0)
		rc = use_all(m, m->ballast, BALLASTS, TIERD_HOST, TIERD_WRITE);
	return rc;
}

static void print_comparison(const struct miss *m)
{
	double p50 = (double)hist_percentile(&m->latency, 500);
	struct result r;

	if (with_chain(m)) {
		double bare = (double)hist_percentile(&m->chain_latency, 500);

		result_begin(&r, m->o, "chain");
		result_real(&r, "p50_ns", bare);
		result_real(&r, "p99_ns", (double)hist_percentile(&m->chain_latency, 990));
		result_end(&r);
		result_note(m->o,
			    "          the miss takes %.2f of the bare chain, client and daemon on "
			    "a CPU each",
			    p50 / bare);
	} else if (with_memcpy(m)) {
		double bare = (double)hist_percentile(&m->copy_latency, 500);

		result_begin(&r, m->o, "memcpy");
		result_count(&r, "bytes", m->bytes);
		result_real(&r, "gbps", (double)m->bytes / bare);
		result_end(&r);
		result_note(m->o, "          the miss runs at %.2f of memcpy", bare / p50);
	}
}

static void print(const struct miss *m)
{
	struct result r;

	result_begin(&r, m->o, "miss");
	result_text(&r, "from", m->pair->from_name);
	result_text(&r, "to", m->pair->to_name);
	result_count(&r, "bytes", m->bytes);
	result_real(&r, "p50_ns", (double)hist_percentile(&m->latency, 500));
	result_real(&r, "p99_ns", (double)hist_percentile(&m->latency, 990));
	result_real(&r, "gbps", (double)m->many_bytes / (double)MAX(m->many_ns, 1));
	result_real(&r, "control_ns_per_miss",
		    (double)m->control_ns / (double)MAX(m->many_misses, 1));
	result_end(&r);
	print_comparison(m);
}

static int measure(struct miss *m)
{
	unsigned rounds;
	int rc = make_set(m);

	hist_init(&m->latency);
	hist_init(&m->chain_latency);
	hist_init(&m->copy_latency);
	m->many_ns = m->many_misses = m->many_bytes = m->control_ns = 0;
	rounds = m->o->quick ? 1 : m->n >= 64 ? 3 : 10;
	for (unsigned i = 0; i < rounds && rc == 0; i++)
		rc = one_after_the_other(m);
	if (rc == 0)
		rc = many_at_once(m, rounds);
	if (rc == 0)
		print(m);
	if (rc == 0)
		rc = tierd_destroy(m->t, m->set, m->n);
	return rc;
}

static int measure_all(struct miss *m)
{
	int rc = make_ballast(m);

	for (size_t p = 0; p < ARRAY_SIZE(pairs) && rc == 0; p++)
		for (size_t s = 0; s < ARRAY_SIZE(sizes) && rc == 0; s++) {
			m->pair = &pairs[p];
			m->bytes = sizes[s];
			rc = measure(m);
		}
	return rc;
}

static char *buffer(uint64_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED)
		memset(p, 1, bytes);
	return p == MAP_FAILED ? NULL : p;
}

int bench_miss(const struct bench_options *o)
{
	static struct miss m;
	struct bench_daemon d;
	int rc;

	/* The chain forks, so it comes before any thread and connection. */
	m.o = o;
	m.daemon = &d;
	m.from = buffer(sizes[ARRAY_SIZE(sizes) - 1]);
	m.to = buffer(sizes[ARRAY_SIZE(sizes) - 1]);
	if (m.from == NULL || m.to == NULL || chain_start(&m.chain) < 0)
		return 1;
	rc = daemon_start(o, &config, &d);
	if (rc == 0)
		rc = tierd_open(d.socket, "bench-miss", 0, &m.t) < 0;
	if (rc == 0) {
		rc = measure_all(&m) < 0;
		tierd_close(m.t);
	}
	if (rc != 0)
		bench_failed("miss");
	rc |= daemon_stop(&d);
	chain_stop(&m.chain);
	return rc;
}

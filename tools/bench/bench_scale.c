/* SPDX-License-Identifier: Apache-2.0
 *
 * A million named tensors of 64 KiB of which few were ever written: how fast they are made, what
 * each costs the daemon in memory, what a hit takes among them, and what the daemon does when
 * nobody asks for anything.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/tierd.h"
#include "tools/bench/bench.h"
#include "tools/bench/tick.h"

#define TENSORS_MAX  1000000u
#define TENSORS_FEW  20000u
#define TENSOR_BYTES KIB(64)
#define BATCH        10000u
#define HOT          256u
#define SPREAD       4096u /* resident ones all over the table */
#define PAIRS        1000000u
#define NAME_BYTES   24u
#define SETTLE_S     2u
#define IDLE_S       5u

/* 64 GB of tensors that nobody writes are admitted on a small nvme tier. */
static const struct bench_config config = { .dram_bytes = MIB(512),
					    .nvme_bytes = GIB(8),
					    .staging_bytes = MIB(16),
					    .overcommit_percent = 1000 };

struct scale {
	const struct bench_options *o;
	struct bench_daemon daemon;
	struct tierd *t;
	tierd_tensor *tensors;
	unsigned n; /* tensors */
	double creates_per_s, bytes_per_tensor, hot_ns, hot_before_ns, spread_ns, idle_percent;
};

static int create_all(struct scale *s)
{
	struct tierd_spec *specs = calloc(BATCH, sizeof(*specs));
	char(*names)[NAME_BYTES] = calloc(BATCH, NAME_BYTES);
	uint64_t rss = daemon_rss_bytes(&s->daemon), took = 0;
	int rc = specs != NULL && names != NULL ? 0 : -1;

	for (unsigned at = 0; at < s->n && rc == 0; at += BATCH) {
		uint64_t begin;

		for (unsigned i = 0; i < BATCH; i++) {
			snprintf(names[i], NAME_BYTES, "layer.%u.weight", at + i);
			specs[i] = (struct tierd_spec){ .name = names[i],
							.class_ = TIERD_OTHER,
							.ndim = 1,
							.shape = { TENSOR_BYTES } };
		}
		begin = clock_now_ns();
		rc = tierd_create(s->t, specs, BATCH, s->tensors + at);
		took += clock_now_ns() - begin;
	}
	s->creates_per_s = s->n / ((double)took / NS_PER_S);
	s->bytes_per_tensor = (double)(daemon_rss_bytes(&s->daemon) - rss) / s->n;
	free(specs);
	free(names);
	return rc;
}

static int touch(struct tierd *t, const tierd_tensor *set, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct tierd_view v;
		int rc = tierd_acquire(t, set[i], TIERD_HOST, TIERD_WRITE, -1, &v);

		if (rc < 0)
			return rc;
		memset(v.data, 1, v.bytes);
		tierd_release(t, &v);
	}
	return 0;
}

/* Median of acquire and release of tensors of `set`, a power of two of them, in a scattered order.
 */
static int hits(struct tierd *t, const tierd_tensor *set, unsigned n, double *ret_ns)
{
	static struct hist h;
	uint64_t overhead = tick_overhead();
	uint32_t random = 1;

	hist_init(&h);
	for (unsigned i = 0; i < PAIRS; i++) {
		uint64_t begin, took;
		struct tierd_view v;
		int rc;

		random = random * 1664525u + 1013904223u;
		begin = tick_now();
		rc = tierd_acquire(t, set[(random >> 16) % n], TIERD_HOST, TIERD_READ, -1, &v);
		if (rc < 0)
			return rc;
		tierd_release(t, &v);
		took = tick_now() - begin;
		hist_record(&h, took > overhead ? took - overhead : 0);
	}
	*ret_ns = (double)hist_percentile(&h, 500) * tick_ns();
	return 0;
}

/* The same hot set in a daemon that has nothing else yet. */
static int hits_before(struct scale *s)
{
	static struct tierd_spec specs[HOT];
	static tierd_tensor set[HOT];
	int rc;

	for (unsigned i = 0; i < HOT; i++)
		specs[i] = (struct tierd_spec){ .class_ = TIERD_OTHER,
						.ndim = 1,
						.shape = { TENSOR_BYTES } };
	rc = tierd_create(s->t, specs, HOT, set);
	if (rc == 0)
		rc = touch(s->t, set, HOT);
	if (rc == 0)
		rc = hits(s->t, set, HOT, &s->hot_before_ns);
	return rc == 0 ? tierd_destroy(s->t, set, HOT) : rc;
}

static int hits_after(struct scale *s)
{
	static tierd_tensor spread[SPREAD];
	int rc = touch(s->t, s->tensors, HOT);

	if (rc == 0)
		rc = hits(s->t, s->tensors, HOT, &s->hot_ns);
	for (unsigned i = 0; i < SPREAD; i++)
		spread[i] = s->tensors[(uint64_t)i * s->n / SPREAD];
	if (rc == 0)
		rc = touch(s->t, spread, SPREAD);
	if (rc == 0)
		rc = hits(s->t, spread, SPREAD, &s->spread_ns);
	return rc;
}

static void idle(struct scale *s)
{
	uint64_t cpu, begin;

	/* What was written is cleaned first; then nobody wants anything. */
	sleep(s->o->quick ? 1 : SETTLE_S);
	cpu = daemon_cpu_ns(&s->daemon);
	begin = clock_now_ns();
	sleep(s->o->quick ? 1 : IDLE_S);
	s->idle_percent = 100.0 * (double)(daemon_cpu_ns(&s->daemon) - cpu) /
			  (double)(clock_now_ns() - begin);
}

static void print(const struct scale *s)
{
	struct result r;

	result_begin(&r, s->o, "scale");
	result_count(&r, "tensors", s->n);
	result_real(&r, "creates_per_s", s->creates_per_s);
	result_real(&r, "daemon_bytes_per_tensor", s->bytes_per_tensor);
	result_real(&r, "hit_p50_ns", s->hot_ns);
	result_real(&r, "idle_cpu_percent", s->idle_percent);
	result_end(&r);
	result_note(
		s->o,
		"          hits: %.1f ns on the hot set before all these, %.1f ns on %u resident "
		"ones all over the table",
		s->hot_before_ns, s->spread_ns, SPREAD);
}

static int measure(struct scale *s)
{
	int rc = hits_before(s);

	if (rc == 0)
		rc = create_all(s);
	if (rc == 0)
		rc = hits_after(s);
	if (rc == 0) {
		idle(s);
		print(s);
	}
	return rc;
}

int bench_scale(const struct bench_options *o)
{
	struct scale s = { .o = o,
			   .tensors = calloc(TENSORS_MAX, sizeof(tierd_tensor)),
			   .n = o->quick ? TENSORS_FEW : TENSORS_MAX };
	int rc;

	if (s.tensors == NULL)
		return 1;
	rc = daemon_start(o, &config, &s.daemon);
	if (rc != 0) {
		free(s.tensors);
		return rc;
	}
	rc = tierd_open(s.daemon.socket, "bench-scale", 0, &s.t);
	if (rc == 0) {
		rc = measure(&s);
		tierd_close(s.t);
	}
	if (rc < 0)
		bench_failed("scale");
	free(s.tensors);
	return (daemon_stop(&s.daemon) != 0) | (rc < 0);
}

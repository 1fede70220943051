/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a daemon with a large dram takes from its start to the first acquire, and until all of
 * dram is there and registered with the GPU, beside what the driver takes to allocate as much
 * pinned memory.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tools/bench/bench.h"
#include "tools/bench/card.h"

#define LOOK_US     2000u
#define PATIENCE_NS (300 * NS_PER_S)

static int first_acquire(struct tierd *t)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { MIB(1) } };
	struct tierd_view v;
	tierd_tensor h;
	int rc = tierd_create(t, &spec, 1, &h);

	if (rc == 0)
		rc = tierd_acquire(t, h, TIERD_HOST, TIERD_WRITE, -1, &v);
	if (rc < 0)
		return bench_failed("start");
	*(char *)v.data = 1;
	tierd_release(t, &v);
	return tierd_destroy(t, &h, 1) < 0 ? bench_failed("start") : 0;
}

/* Memory is free for tensors when every GPU has registered it: without one, all of dram is. */
static int wait_registered(struct tierd *t)
{
	uint64_t until = clock_now_ns() + PATIENCE_NS;
	struct tierd_stats stats;

	do {
		if (tierd_stats(t, &stats) < 0)
			return bench_failed("start");
		if (stats.tier[TIERD_DRAM].largest_free_bytes == stats.tier[TIERD_DRAM].limit_bytes)
			return 0;
		usleep(LOOK_US);
	} while (clock_now_ns() < until);
	fprintf(stderr, "tierd-bench: start: %llu of %llu bytes can be used\n",
		(unsigned long long)stats.tier[TIERD_DRAM].largest_free_bytes,
		(unsigned long long)stats.tier[TIERD_DRAM].limit_bytes);
	return 1;
}

static int measure(const struct bench_options *o, uint64_t bytes, uint64_t *ret_first_ns,
		   uint64_t *ret_all_ns)
{
	struct bench_config config = {
		.hbm_bytes = GIB(1), .hbm_backend = "cuda", .dram_bytes = bytes, .dram_later = true
	};
	struct bench_daemon d;
	struct tierd *t;
	uint64_t begin = clock_now_ns();
	int rc = daemon_start(o, &config, &d);

	if (rc != 0)
		return rc;
	rc = tierd_open(d.socket, "bench-start", 0, &t) < 0 ? bench_failed("start") : 0;
	if (rc == 0) {
		rc = first_acquire(t);
		*ret_first_ns = clock_now_ns() - begin;
		if (rc == 0)
			rc = wait_registered(t);
		*ret_all_ns = clock_now_ns() - begin;
		tierd_close(t);
	}
	return daemon_stop(&d) | rc;
}

/* In pieces, as a program that wants several buffers would; one of this size may be refused. 0: the
 * driver has not so much. */
static uint64_t raw_alloc_ns(struct card *g, uint64_t bytes)
{
	uint64_t begin = clock_now_ns(), ns;
	unsigned n = (unsigned)(bytes / GIB(1));
	void **piece = calloc(n, sizeof(*piece));
	CUresult result = CUDA_SUCCESS;
	struct err err = ERR_INIT;

	if (piece == NULL)
		abort();
	for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
		result = g->cuda->mem_host_alloc(&piece[i], GIB(1), CU_MEMHOSTALLOC_PORTABLE);
	ns = clock_now_ns() - begin;
	for (unsigned i = 0; i < n; i++)
		if (piece[i] != NULL)
			g->cuda->mem_free_host(piece[i]);
	free(piece);
	if (cuda_check(g->cuda, result, &err, "cuMemHostAlloc of 1 GiB") < 0) {
		fprintf(stderr, "tierd-bench: start: %s\n", err.text);
		return 0;
	}
	return ns;
}

int bench_start(const struct bench_options *o)
{
	uint64_t bytes = GIB(o->quick ? 2 : o->dram_gib), first_ns, all_ns, raw_ns;
	struct card gpu;
	struct result r;
	int rc = card_open(0, 0, &gpu);

	if (rc != 0)
		return rc;
	rc = measure(o, bytes, &first_ns, &all_ns);
	if (rc == 0) {
		raw_ns = raw_alloc_ns(&gpu, bytes);
		result_begin(&r, o, "start");
		result_count(&r, "dram_bytes", bytes);
		result_real(&r, "first_acquire_s", (double)first_ns / 1e9);
		result_real(&r, "all_registered_s", (double)all_ns / 1e9);
		result_real(&r, "raw_alloc_s", (double)raw_ns / 1e9);
		result_end(&r);
		rc = raw_ns == 0;
	}
	card_close(&gpu);
	return rc;
}

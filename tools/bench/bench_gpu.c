/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training process feels of tierd on a GPU: its kernels beside tierd's copies, how long a
 * miss of 4 KiB takes beside the raw copy, how long tierd_acquire_on() keeps its caller while the
 * link is busy, whether a kernel that is launched right after it reads the right bytes, and a hit.
 */
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/hist.h"
#include "tools/bench/place.h"
#include "tools/bench/sides.h"
#include "tools/bench/tick.h"

#define LOOP_NS        (500 * NS_PER_MS)
#define PAIRS          7u
#define COPIED         MIB(4) /* a tensor of the copies beside the kernels */
#define BUSY           GIB(1) /* the tensor that keeps the link busy */
#define STREAMED       MIB(4)
#define STREAMED_N     8u
#define ROUNDS         1000u
#define MISSES         40u /* turns */
#define TURN           100u
#define HITS           20000u
#define HIT_TURNS      20u
#define SMALL          4096u
#define QUICK(o, x, y) ((o)->quick ? (x) : (y))

static const struct bench_config config = {
	.hbm_bytes = GIB(4), .hbm_backend = "cuda", .dram_bytes = GIB(6), .spin_us = BENCH_SPIN_US
};
static const struct bench_config quick_config = { .hbm_bytes = MIB(512),
						  .hbm_backend = "cuda",
						  .dram_bytes = MIB(512) };

struct work {
	const struct bench_options *o;
	const char *socket;
	struct card gpu;
	struct tierd *t;
};

/* ---- kernels beside copies ---- */

static const char *const load_names[] = { [GPU_SPIN] = "arithmetic", [GPU_SWEEP] = "memory" };

struct beside {
	struct side sides[GPU_DIRECTIONS];
	double alone[PAIRS], beside[PAIRS], ratio[PAIRS], copied_gbps[PAIRS];
};

/* One loop alone, one while both directions are copied as fast as tierd can. */
static int loop_pair(struct work *w, struct beside *b, enum card_load load, unsigned i)
{
	uint64_t ns = QUICK(w->o, NS_PER_MS, LOOP_NS), begin, bytes = 0;
	int rc = 0;

	b->alone[i] = card_loop(&w->gpu, load, ns);
	begin = clock_now_ns();
	for (unsigned d = 0; d < GPU_DIRECTIONS; d++)
		rc |= side_start(&b->sides[d]);
	b->beside[i] = card_loop(&w->gpu, load, ns);
	for (unsigned d = 0; d < GPU_DIRECTIONS; d++) {
		rc |= side_end(&b->sides[d]);
		bytes += b->sides[d].rounds * b->sides[d].n * b->sides[d].bytes;
	}
	b->copied_gbps[i] = (double)bytes / (double)MAX(clock_now_ns() - begin, 1);
	b->ratio[i] = b->beside[i] / b->alone[i];
	return rc;
}

static int loop_beside(struct work *w, enum card_load load)
{
	unsigned pairs = QUICK(w->o, 1, PAIRS), n = QUICK(w->o, 4, SIDE_TENSORS);
	static struct beside b;
	struct result r;
	int rc = 0;

	for (unsigned d = 0; d < GPU_DIRECTIONS; d++)
		if (side_open(&b.sides[d], w->socket, d, 0, COPIED, n) < 0)
			return bench_failed("gpu");
	card_loop(&w->gpu, load, QUICK(w->o, NS_PER_MS, LOOP_NS));
	for (unsigned i = 0; i < pairs && rc == 0; i++)
		rc = loop_pair(w, &b, load, i);
	for (unsigned d = 0; d < GPU_DIRECTIONS; d++)
		side_close(&b.sides[d]);
	if (rc < 0)
		return bench_failed("gpu: copies beside kernels");
	result_begin(&r, w->o, "compute");
	result_text(&r, "load", load_names[load]);
	result_real(&r, "alone_per_s", median(b.alone, pairs));
	result_real(&r, "beside_per_s", median(b.beside, pairs));
	result_real(&r, "ratio", median(b.ratio, pairs));
	result_real(&r, "copied_gbps", median(b.copied_gbps, pairs));
	result_end(&r);
	return 0;
}

/* ---- a small miss ---- */

static int acquire_once(struct work *w, tierd_tensor h, int place, uint32_t access, uint64_t *ns)
{
	struct tierd_view v;
	uint64_t begin = clock_now_ns();
	int rc = tierd_acquire(w->t, h, place, access, -1, &v);

	*ns = clock_now_ns() - begin;
	if (rc == 0)
		tierd_release(w->t, &v);
	return rc;
}

static int make(struct work *w, uint64_t bytes, tierd_tensor *ret)
{
	struct tierd_spec spec = { .class_ = TIERD_OTHER, .ndim = 1, .shape = { bytes } };

	return tierd_create(w->t, &spec, 1, ret);
}

static int small_miss(struct work *w)
{
	unsigned n = QUICK(w->o, 1, MISSES);
	static struct hist ours, raw;
	struct result r;
	tierd_tensor h;
	uint64_t ns;
	int rc = make(w, SMALL, &h);

	hist_init(&ours);
	hist_init(&raw);
	if (rc == 0)
		rc = acquire_once(w, h, TIERD_HOST, TIERD_WRITE, &ns);
	for (unsigned i = 0; i < n && rc == 0; i++) {
		/* In turns of many: a GPU that two processes use in turn takes 0.1 ms to change. */
		for (unsigned k = 0; k < TURN && rc == 0; k++) {
			rc = acquire_once(w, h, 0, TIERD_READ, &ns);
			hist_record(&ours, ns);
			if (rc == 0)
				rc = acquire_once(w, h, TIERD_HOST, TIERD_READ, &ns);
		}
		for (unsigned k = 0; k < TURN; k++)
			hist_record(&raw, card_raw(&w->gpu, NULL, GPU_UP, SMALL, 1));
	}
	if (rc < 0)
		return bench_failed("gpu: miss");
	result_begin(&r, w->o, "gpu_miss");
	result_count(&r, "bytes", SMALL);
	result_count(&r, "p50_ns", hist_percentile(&ours, 500));
	result_count(&r, "p99_ns", hist_percentile(&ours, 990));
	result_count(&r, "raw_p50_ns", hist_percentile(&raw, 500));
	result_count(&r, "raw_p99_ns", hist_percentile(&raw, 990));
	result_end(&r);
	return 0;
}

/* ---- hits ---- */

static int hit(struct work *w, tierd_tensor t, int place, uint64_t overhead, struct hist *ret)
{
	struct tierd_view v;
	int rc = 0;

	for (unsigned i = 0; i < HITS && rc == 0; i++) {
		uint64_t begin = tick_now(), took;

		rc = tierd_acquire(w->t, t, place, TIERD_READ, -1, &v);
		tierd_release(w->t, &v);
		took = tick_now() - begin;
		hist_record(ret, took > overhead ? took - overhead : 0);
	}
	return rc;
}

/* What the protocol cannot do without, on memory of this process alone: an entry in a log, a pin
 * raised and lowered, and a look at a word in between. */
static void bare_hit(uint64_t overhead, struct hist *ret)
{
	static _Alignas(64) _Atomic uint64_t log[1024], pin, word;

	for (unsigned i = 0; i < HITS; i++) {
		uint64_t begin = tick_now(), took;

		atomic_store_explicit(&log[i % ARRAY_SIZE(log)], i, memory_order_release);
		atomic_fetch_add(&pin, 1);
		atomic_load(&word);
		atomic_fetch_sub(&pin, 1);
		took = tick_now() - begin;
		hist_record(ret, took > overhead ? took - overhead : 0);
	}
}

enum { ON_GPU, ON_HOST, BARE, KINDS };

/* In turns, each on the CPU that is quickest now. *ret_add_ns: how quick that was, the median. */
static int hit_turns(struct work *w, tierd_tensor up, tierd_tensor down, struct hist *hists,
		     double *ret_add_ns)
{
	double add_ns[HIT_TURNS];
	int rc = 0;

	for (unsigned i = 0; i < HIT_TURNS && rc == 0; i++) {
		uint64_t overhead;

		add_ns[i] = place_quickest();
		overhead = tick_overhead();
		rc = hit(w, up, 0, overhead, &hists[ON_GPU]);
		if (rc == 0)
			rc = hit(w, down, TIERD_HOST, overhead, &hists[ON_HOST]);
		bare_hit(overhead, &hists[BARE]);
	}
	place_freely(NULL, 0);
	*ret_add_ns = rc == 0 ? median(add_ns, HIT_TURNS) : 0;
	return rc;
}

static int hits_ready(struct work *w, tierd_tensor *ret_up, tierd_tensor *ret_down)
{
	uint64_t ns;
	int rc = make(w, SMALL, ret_up);

	if (rc == 0)
		rc = make(w, SMALL, ret_down);
	if (rc == 0)
		rc = acquire_once(w, *ret_up, 0, TIERD_READ, &ns);
	if (rc == 0)
		rc = acquire_once(w, *ret_down, TIERD_HOST, TIERD_READ, &ns);
	return rc;
}

/* Of a tensor on the GPU, beside it of one on the host, and the bare protocol. */
static int hits(struct work *w)
{
	static const char *const names[] = { [ON_GPU] = "", [ON_HOST] = "host_", [BARE] = "bare_" };
	static struct hist hists[KINDS];
	double unit = tick_ns(), add_ns;
	struct result r;
	tierd_tensor up, down;
	int rc = hits_ready(w, &up, &down);

	for (unsigned i = 0; i < KINDS; i++)
		hist_init(&hists[i]);
	if (rc == 0)
		rc = hit_turns(w, up, down, hists, &add_ns);
	if (rc < 0)
		return bench_failed("gpu: hits");
	result_begin(&r, w->o, "gpu_hit");
	for (unsigned i = 0; i < KINDS; i++) {
		char key[32];

		snprintf(key, sizeof(key), "%sp50_ns", names[i]);
		result_real(&r, key, (double)hist_percentile(&hists[i], 500) * unit);
		snprintf(key, sizeof(key), "%sp99_ns", names[i]);
		result_real(&r, key, (double)hist_percentile(&hists[i], 990) * unit);
	}
	result_real(&r, "add_ns", add_ns);
	result_end(&r);
	return 0;
}

/* ---- in stream order ---- */

static int fill_on_host(struct work *w, tierd_tensor t, uint32_t seed)
{
	struct tierd_view v;
	int rc = tierd_acquire(w->t, t, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD, -1, &v);
	uint32_t *words = v.data;

	if (rc < 0)
		return rc;
	for (uint64_t i = 0; i < v.bytes / 4; i++)
		words[i] = card_word(i, seed);
	tierd_release(w->t, &v);
	return 0;
}

/* One use on the GPU: acquired, read by a kernel, released, and the caller never waits. */
static int use_on_stream(struct work *w, tierd_tensor t, uint32_t seed, uint64_t *ret_ns)
{
	struct tierd_view v;
	uint64_t begin = clock_now_ns();
	int rc = tierd_acquire_on(w->t, &t, 1, 0, TIERD_READ, w->gpu.compute, &v);

	*ret_ns = clock_now_ns() - begin;
	if (rc < 0)
		return rc;
	card_check(&w->gpu, v.data, v.bytes, seed);
	return tierd_release_on(w->t, &v, 1, w->gpu.compute);
}

static int stream_rounds(struct work *w, struct hist *h, uint64_t *ret_bad)
{
	tierd_tensor set[STREAMED_N];
	unsigned rounds = QUICK(w->o, 16, ROUNDS);
	int rc = 0;

	for (unsigned i = 0; i < STREAMED_N && rc == 0; i++)
		rc = make(w, STREAMED, &set[i]);
	for (unsigned i = 0; i < rounds && rc == 0; i++) {
		uint64_t ns = 0;

		rc = fill_on_host(w, set[i % STREAMED_N], i + 1);
		if (rc == 0)
			rc = use_on_stream(w, set[i % STREAMED_N], i + 1, &ns);
		hist_record(h, ns);
	}
	*ret_bad = card_bad(&w->gpu);
	return rc;
}

static int stream(struct work *w)
{
	struct side busy;
	static struct hist h;
	struct result r;
	uint64_t bad = 0;
	int rc;

	hist_init(&h);
	if (side_open(&busy, w->socket, GPU_UP, 0, QUICK(w->o, MIB(64), BUSY), 1) < 0)
		return bench_failed("gpu");
	rc = side_start(&busy);
	if (rc == 0)
		rc = stream_rounds(w, &h, &bad);
	rc |= side_end(&busy);
	side_close(&busy);
	if (rc < 0)
		return bench_failed("gpu: stream");
	result_begin(&r, w->o, "acquire_on");
	result_count(&r, "rounds", QUICK(w->o, 16, ROUNDS));
	result_count(&r, "p50_ns", hist_percentile(&h, 500));
	result_count(&r, "p99_ns", hist_percentile(&h, 990));
	result_count(&r, "wrong_words", bad);
	result_end(&r);
	return bad != 0;
}

static int measure(struct work *w)
{
	int rc = tierd_open(w->socket, "bench-gpu", 0, &w->t) < 0 ? bench_failed("gpu") : 0;

	if (rc != 0)
		return rc;
	rc = small_miss(w);
	if (rc == 0)
		rc = hits(w);
	if (rc == 0)
		rc = stream(w);
	if (rc == 0)
		rc = loop_beside(w, GPU_SPIN);
	if (rc == 0)
		rc = loop_beside(w, GPU_SWEEP);
	tierd_close(w->t);
	return rc;
}

int bench_gpu(const struct bench_options *o)
{
	static struct work w;
	struct bench_daemon daemon;
	int rc;

	w.o = o;
	bench_spin();
	rc = card_open(0, MIB(1), &w.gpu);
	if (rc != 0)
		return rc;
	rc = daemon_start(o, o->quick ? &quick_config : &config, &daemon);
	if (rc == 0) {
		w.socket = daemon.socket;
		rc = measure(&w);
		rc |= daemon_stop(&daemon);
	}
	card_close(&w.gpu);
	return rc;
}

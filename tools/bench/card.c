/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "tools/bench/card_kernels.h"

#define BLOCKS      528u /* a few for each multiprocessor of a large GPU */
#define THREADS     256u
#define SPIN_STEPS  20000u
#define LOOP_QUEUED 32u /* kernels on the stream at once */

/* A benchmark has nothing to fall back to. */
#define MUST(gpu, call)                                                        \
	do {                                                                   \
		struct err err_ = ERR_INIT;                                    \
		if (cuda_check((gpu)->cuda, (call), &err_, "%s", #call) < 0) { \
			fprintf(stderr, "tierd-bench: %s\n", err_.text);       \
			exit(1);                                               \
		}                                                              \
	} while (0)

static CUfunction function(struct card *g, const char *name)
{
	CUfunction f;

	MUST(g, g->cuda->module_get_function(&f, g->module, name));
	return f;
}

static void load_kernels(struct card *g)
{
	MUST(g, g->cuda->module_load_data(&g->module, card_kernels));
	g->fill = function(g, "bench_fill");
	g->check = function(g, "bench_check");
	g->spin = function(g, "bench_spin");
	g->sweep = function(g, "bench_sweep");
	MUST(g, g->cuda->mem_alloc(&g->scratch, CARD_SCRATCH_BYTES));
	MUST(g, g->cuda->mem_alloc(&g->bad, sizeof(uint64_t)));
	MUST(g, g->cuda->memset_d8_async(g->scratch, 0, CARD_SCRATCH_BYTES, g->compute));
	MUST(g, g->cuda->memset_d8_async(g->bad, 0, sizeof(uint64_t), g->compute));
	MUST(g, g->cuda->stream_synchronize(g->compute));
}

static void take_room(struct card *g, uint64_t room)
{
	g->room = room;
	for (unsigned d = 0; d < GPU_DIRECTIONS && room > 0; d++) {
		MUST(g, g->cuda->mem_host_alloc(&g->host[d], room, 0));
		memset(g->host[d], 1, room);
		MUST(g, g->cuda->mem_alloc(&g->memory[d], room));
	}
}

static void give_room(struct card *g)
{
	for (unsigned d = 0; d < GPU_DIRECTIONS && g->room > 0; d++) {
		MUST(g, g->cuda->mem_free_host(g->host[d]));
		MUST(g, g->cuda->mem_free(g->memory[d]));
	}
}

int card_open(int ordinal, uint64_t room, struct card *ret)
{
	struct card *g = ret;
	struct err err = ERR_INIT;

	*g = (struct card){ .ordinal = ordinal };
	if (cuda_open(&g->cuda, &err) < 0) {
		fprintf(stderr, "tierd-bench: skipped: %s\n", err.text);
		return CARD_SKIPPED;
	}
	if ((unsigned)ordinal >= card_count()) {
		fprintf(stderr, "tierd-bench: skipped: there is no GPU %d\n", ordinal);
		return CARD_SKIPPED;
	}
	MUST(g, g->cuda->device_get(&g->device, ordinal));
	MUST(g, g->cuda->primary_ctx_retain(&g->context, g->device));
	card_attach(g);
	for (unsigned d = 0; d < GPU_DIRECTIONS; d++)
		MUST(g, g->cuda->stream_create(&g->stream[d], CU_STREAM_NON_BLOCKING, 0));
	MUST(g, g->cuda->stream_create(&g->compute, CU_STREAM_NON_BLOCKING, 0));
	load_kernels(g);
	take_room(g, room);
	return 0;
}

void card_close(struct card *g)
{
	give_room(g);
	for (unsigned d = 0; d < GPU_DIRECTIONS; d++)
		MUST(g, g->cuda->stream_destroy(g->stream[d]));
	MUST(g, g->cuda->stream_destroy(g->compute));
	MUST(g, g->cuda->mem_free(g->scratch));
	MUST(g, g->cuda->mem_free(g->bad));
	MUST(g, g->cuda->module_unload(g->module));
	MUST(g, g->cuda->primary_ctx_release(g->device));
}

void card_attach(const struct card *g)
{
	MUST(g, g->cuda->ctx_set_current(g->context));
}

unsigned card_count(void)
{
	const struct cuda *cuda;
	int n = 0;

	if (cuda_open(&cuda, NULL) < 0 || cuda->device_get_count(&n) != CUDA_SUCCESS)
		return 0;
	return (unsigned)n;
}

/* ---- raw copies ---- */

static void raw_one(struct card *g, void *const *host, enum gpu_direction d, unsigned i,
		    uint64_t bytes)
{
	char *there = host != NULL ? host[i] : (char *)g->host[d] + i * bytes;
	CUdeviceptr device = g->memory[d] + i * bytes;

	if (d == GPU_UP)
		MUST(g, g->cuda->memcpy_htod_async(device, there, bytes, g->stream[d]));
	else
		MUST(g, g->cuda->memcpy_dtoh_async(there, device, bytes, g->stream[d]));
}

uint64_t card_raw(struct card *g, void *const *host, enum gpu_direction d, uint64_t bytes,
		  unsigned n)
{
	uint64_t begin = clock_now_ns();

	ASSERT(n * bytes <= g->room);
	for (unsigned i = 0; i < n; i++)
		raw_one(g, host, d, i, bytes);
	MUST(g, g->cuda->stream_synchronize(g->stream[d]));
	return clock_now_ns() - begin;
}

uint64_t card_raw_both(struct card *g, void *const *up, void *const *down, uint64_t bytes,
		       unsigned n)
{
	uint64_t begin = clock_now_ns();

	ASSERT(n * bytes <= g->room);
	for (unsigned i = 0; i < n; i++) {
		raw_one(g, up, GPU_UP, i, bytes);
		raw_one(g, down, GPU_DOWN, i, bytes);
	}
	MUST(g, g->cuda->stream_synchronize(g->stream[GPU_UP]));
	MUST(g, g->cuda->stream_synchronize(g->stream[GPU_DOWN]));
	return clock_now_ns() - begin;
}

void card_register(const struct card *g, void *at, uint64_t bytes)
{
	MUST(g, g->cuda->mem_host_register(at, ALIGN_UP(bytes, (uint64_t)KIB(4)),
					   CU_MEMHOSTREGISTER_PORTABLE));
}

void card_unregister(const struct card *g, void *at)
{
	MUST(g, g->cuda->mem_host_unregister(at));
}

/* ---- kernels ---- */

static void launch(struct card *g, CUfunction f, void **args)
{
	MUST(g, g->cuda->launch_kernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, g->compute, args, NULL));
}

void card_fill(struct card *g, void *at, uint64_t bytes, uint32_t seed)
{
	uint64_t words = bytes / 4;

	launch(g, g->fill, (void *[]){ &at, &words, &seed });
}

void card_check(struct card *g, const void *at, uint64_t bytes, uint32_t seed)
{
	uint64_t words = bytes / 4;

	launch(g, g->check, (void *[]){ &at, &words, &seed, &g->bad });
}

uint64_t card_bad(struct card *g)
{
	uint64_t bad;

	MUST(g, g->cuda->memcpy_dtoh_async(&bad, g->bad, sizeof(bad), g->compute));
	MUST(g, g->cuda->memset_d8_async(g->bad, 0, sizeof(bad), g->compute));
	MUST(g, g->cuda->stream_synchronize(g->compute));
	return bad;
}

static void load_one(struct card *g, enum card_load load)
{
	uint64_t words = CARD_SCRATCH_BYTES / 4;
	uint32_t steps = SPIN_STEPS;

	if (load == GPU_SPIN)
		launch(g, g->spin, (void *[]){ &g->scratch, &steps });
	else
		launch(g, g->sweep, (void *[]){ &g->scratch, &words });
}

void card_delay(struct card *g)
{
	load_one(g, GPU_SPIN);
}

double card_loop(struct card *g, enum card_load load, uint64_t ns)
{
	uint64_t begin = clock_now_ns(), n = 0, took;

	do {
		for (unsigned i = 0; i < LOOP_QUEUED; i++)
			load_one(g, load);
		MUST(g, g->cuda->stream_synchronize(g->compute));
		n += LOOP_QUEUED;
		took = clock_now_ns() - begin;
	} while (took < ns);
	return (double)n * 1e9 / (double)took;
}

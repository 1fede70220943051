/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU as a benchmark uses it by itself, without tierd: the raw copies that tierd's are compared
 * with, and a few kernels. Calls are made by the thread that opened it unless they say otherwise.
 */
#ifndef TIERD_TOOLS_BENCH_CARD_H
#define TIERD_TOOLS_BENCH_CARD_H

#include "base/cuda.h"

#define CARD_SKIPPED 77 /* exit status where there is no GPU or no driver */

enum gpu_direction { GPU_UP, GPU_DOWN, GPU_DIRECTIONS };

/* Host memory of raw copies: allocated by the driver, or made as tierd makes its dram and then
 * registered with the driver. Where the second is the slower one, pages are why, not tierd. */

struct card {
	const struct cuda *cuda;
	int ordinal;
	CUdevice device;
	CUcontext context;
	CUstream stream[GPU_DIRECTIONS], compute;
	/* Of the raw copies: memory of the driver's on the host, and plain device memory. */
	void *host[GPU_DIRECTIONS];
	CUdeviceptr memory[GPU_DIRECTIONS];
	uint64_t room;
	CUmodule module;
	CUfunction fill, check, spin, sweep;
	CUdeviceptr scratch; /* of spin and sweep */
	CUdeviceptr bad;     /* words that check found wrong */
};

#define CARD_SCRATCH_BYTES MIB(512)

/* 0; CARD_SKIPPED, said why; or 1, said why. `room` bytes a direction are for raw copies. */
int card_open(int ordinal, uint64_t room, struct card *ret);
void card_close(struct card *gpu);
/* Before another thread uses it: makes the context current there. */
void card_attach(const struct card *gpu);
unsigned card_count(void);

/* n copies of `bytes` each, all queued, then waited for: nanoseconds. n * bytes <= room. `host`: n
 * places, which card_register() has seen; NULL: in memory of the driver's. */
uint64_t card_raw(struct card *gpu, void *const *host, enum gpu_direction direction, uint64_t bytes,
		  unsigned n);
/* Both or none of `up` and `down` are NULL. */
uint64_t card_raw_both(struct card *gpu, void *const *up, void *const *down, uint64_t bytes,
		       unsigned n);
/* For all GPUs, by any thread that has a context. */
void card_register(const struct card *gpu, void *at, uint64_t bytes);
void card_unregister(const struct card *gpu, void *at);

/* Puts a kernel on the compute stream: words become / are compared with a pattern of the seed. */
void card_fill(struct card *gpu, void *at, uint64_t bytes, uint32_t seed);
void card_check(struct card *gpu, const void *at, uint64_t bytes, uint32_t seed);
/* Waits; words that were wrong since the last call. */
uint64_t card_bad(struct card *gpu);
/* The word of the pattern, for the CPU. */
static inline uint32_t card_word(uint64_t i, uint32_t seed)
{
	return ((uint32_t)i * 2654435761u) ^ seed;
}

/* A kernel of a few hundred microseconds that writes nothing of interest. */
void card_delay(struct card *gpu);

enum card_load { GPU_SPIN, GPU_SWEEP }; /* bound by arithmetic; by HBM */
/* Kernels a second of a loop of that kind, run for `ns`. */
double card_loop(struct card *gpu, enum card_load load, uint64_t ns);

#endif

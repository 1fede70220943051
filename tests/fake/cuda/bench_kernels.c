/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of tools/bench/card_kernels.h do, on host memory. Loads take no time here.
 */
#include <string.h>

#include "tests/fake/bytes.h"
#include "tests/fake/cuda/inside.h"
#include "tools/bench/card.h"

struct words {
	uint32_t *at;
	uint64_t n;
	uint32_t seed;
};

static struct words words_of(void *const *params)
{
	struct words w;
	CUdeviceptr at;

	memcpy(&at, params[0], sizeof(at));
	memcpy(&w.n, params[1], sizeof(w.n));
	memcpy(&w.seed, params[2], sizeof(w.seed));
	w.at = fake_cuda_host(at);
	return w;
}

BYTES_UNSEEN void fake_bench_fill(void *const *params)
{
	struct words w = words_of(params);

	bytes_are_written(w.at, w.n * sizeof(*w.at));
	for (uint64_t i = 0; i < w.n; i++)
		w.at[i] = card_word(i, w.seed);
}

BYTES_UNSEEN void fake_bench_check(void *const *params)
{
	struct words w = words_of(params);
	CUdeviceptr bad_at;
	uint64_t bad;

	memcpy(&bad_at, params[3], sizeof(bad_at));
	memcpy(&bad, fake_cuda_host(bad_at), sizeof(bad));
	bytes_are_read(w.at, w.n * sizeof(*w.at));
	for (uint64_t i = 0; i < w.n; i++)
		bad += w.at[i] != card_word(i, w.seed);
	memcpy(fake_cuda_host(bad_at), &bad, sizeof(bad));
}

void fake_bench_load(void *const *params)
{
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU as the model needs it: memory, kernels, products, all in the order of one stream. Behind it
 * stand CUDA (device_cuda.c) or, in tests, the CPU. A device that fails ends the program with the
 * sentence of the failure (fatal.h). One thread.
 */
#ifndef TRAIN_GPT_DEVICE_H
#define TRAIN_GPT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "examples/train_gpt/kernels.h"

/* c = alpha a b in columns, as BLAS has it; a is m x k, b is k x n, stored transposed where said.
 * `count` of them, each matrix `step` elements behind the one before. */
struct gemm {
	bool transpose_a, transpose_b;
	size_t m, n, k;
	float alpha;
	const float *a, *b;
	float *c;
	size_t lda, ldb, ldc;
	size_t count, step_a, step_b, step_c;
};

struct device_calls {
	void *(*alloc)(void *state, size_t bytes);
	/* Waits for the stream first. */
	void (*free)(void *state, void *memory);
	/* `from` is the caller's again on return. */
	void (*upload)(void *state, void *to, const void *from, size_t bytes);
	/* Waits until the bytes are in `to`. */
	void (*download)(void *state, void *to, const void *from, size_t bytes);
	void (*clear)(void *state, void *to, size_t bytes);
	/* `args` is the struct of that kernel, read during the call only. */
	void (*launch)(void *state, enum kernel kernel, size_t items, const void *args);
	/* The same arguments at equally aligned addresses give the same bits. */
	void (*multiply)(void *state, const struct gemm *gemm);
	void (*wait)(void *state);
	void (*close)(void *state);
};

struct device {
	const struct device_calls *calls;
	void *state;
	void *stream; /* a CUstream */
};

/* GPU number `ordinal` of those that CUDA shows to this process. Ends the program where there is
 * none, or no kernels were built. One a process. */
struct device *device_open_cuda(int ordinal);
/* After everything that uses it. NULL does nothing. */
void device_close(struct device *d);

#endif

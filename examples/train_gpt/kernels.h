/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of kernels.cu: what each is given, and over what it runs. All of them take one
 * struct by value. A result depends on the arguments alone, never on the order in which threads
 * run: no atomics, a sum has one order. For nvcc and for C alike.
 */
#ifndef TRAIN_GPT_KERNELS_H
#define TRAIN_GPT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* X(name, lanes): a launch over n items runs n x lanes threads. THREAD_LANES: a thread an item.
 * WARP_LANES: the lanes of a warp share a row; each reads and writes elements of its own only. */
#define THREAD_LANES 1
#define WARP_LANES   32
#define KERNELS(X)                                \
	X(embed_forward, THREAD_LANES)            \
	X(embed_backward_tokens, THREAD_LANES)    \
	X(embed_backward_positions, THREAD_LANES) \
	X(norm_forward, WARP_LANES)               \
	X(norm_backward_input, WARP_LANES)        \
	X(norm_backward_partial, THREAD_LANES)    \
	X(column_partial, THREAD_LANES)           \
	X(column_sum, THREAD_LANES)               \
	X(add_bias, THREAD_LANES)                 \
	X(softmax_forward, WARP_LANES)            \
	X(softmax_backward, WARP_LANES)           \
	X(gelu_forward, THREAD_LANES)             \
	X(gelu_backward, THREAD_LANES)            \
	X(cross_entropy, WARP_LANES)              \
	X(adamw, THREAD_LANES)

#define X(name, lanes) KERNEL_##name,
enum kernel { KERNELS(X) KERNEL_COUNT };
#undef X

#define KERNEL_THREADS 256 /* of a block: whole warps */

/* Item: an element of y, `rows` x `width` of them. */
struct embed_forward_args {
	float *y;
	const float *token_table, *position_table;
	const uint8_t *tokens; /* the token of row b * context + t is tokens[b * stride + t] */
	uint64_t stride, context, width, rows;
};

/* Item: an element of the table, of `tokens_count` x `width`. Adds to it. */
struct embed_backward_tokens_args {
	float *d_table;
	const float *dy;
	const uint8_t *tokens;
	uint64_t stride, context, width, rows, token_count;
};

/* Item: an element of the table, `context` x `width`. */
struct embed_backward_positions_args {
	float *d_table;
	const float *dy;
	uint64_t context, width, batch;
};

/* Item: a row. */
struct norm_forward_args {
	float *y, *stats;
	const float *x, *gain, *bias;
	uint64_t rows, width;
};

/* Item: a row. Adds to dx. */
struct norm_backward_input_args {
	float *dx;
	const float *dy, *x, *stats, *gain;
	uint64_t rows, width;
};

/* Sums over rows run in two steps: chunks of rows, then the chunks. Item: a column of a chunk, at
 * [chunk, column] of the partial sums. */
struct norm_backward_partial_args {
	double *gain_partial, *bias_partial;
	const float *dy, *x, *stats;
	uint64_t rows, width, chunks, chunk_rows;
};

struct column_partial_args {
	double *partial;
	const float *from;
	uint64_t rows, columns, chunks, chunk_rows;
};

/* Item: a column. */
struct column_sum_args {
	float *to;
	const double *partial;
	uint64_t columns, chunks;
};

/* Item: an element of y, `rows` x `columns`; bias and residual may be NULL. */
struct add_bias_args {
	float *y;
	const float *bias, *residual;
	uint64_t rows, columns;
};

/* Item: a row; row r sees its columns 0 to r mod context. */
struct softmax_forward_args {
	float *p;
	uint64_t rows, context;
};

/* Item: a row. d: the gradient of p on entry, of the scores on return. */
struct softmax_backward_args {
	float *d;
	const float *p;
	uint64_t rows, columns;
};

/* Item: an element. */
struct gelu_forward_args {
	float *y;
	const float *x;
	uint64_t n;
};

struct gelu_backward_args {
	float *d;
	const float *x;
	uint64_t n;
};

/* Item: a row; its loss goes to `losses`, weight times its gradient into `logits`. */
struct cross_entropy_args {
	float *logits;
	double *losses;
	const uint8_t *targets; /* as tokens */
	uint64_t stride, context, vocabulary, rows;
	double weight;
};

/* Item: an element. */
struct adamw_args {
	float *value, *moment1, *moment2;
	const float *gradient;
	uint64_t n;
	float beta1, beta2, rest1, rest2, inverse1, inverse2, rate, decay, epsilon;
};

/* What nvcc made of kernels.cu, for cuModuleLoadData(); in the program only where it was built. */
extern const unsigned char kernel_image[];

#endif

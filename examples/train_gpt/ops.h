/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of the model on plain buffers: no tensors, no state of the model. On the CPU one
 * source (ops_template.h) is compiled for float and for double; the double one is what finite
 * differences can judge. ops_cuda.h has the same on a GPU. Matrices are row-major; the large
 * products are BLAS calls. For equal inputs and an equal number of BLAS threads every result is
 * equal bit for bit.
 *
 * "=" in a comment means that every element is overwritten, "+=" that it is added to. Buffers of
 * one call do not overlap unless said.
 */
#ifndef TRAIN_GPT_OPS_H
#define TRAIN_GPT_OPS_H

#include <stddef.h>
#include <stdint.h>

/* One call of attention: `qkv` has batch x context rows of 3 x width, q then k then v. */
struct attention_shape {
	size_t batch, context, width, heads;
};

/* One step of AdamW. The corrections are 1 - beta^step. */
struct adamw_step {
	double rate, beta1, beta2, epsilon, decay;
	double correction1, correction2;
};

struct ops {
	const char *name;
	size_t element_bytes;

	/* One element of a buffer in host memory, wherever the rest computes. */
	void (*set)(void *to, size_t i, double value);
	double (*get)(const void *from, size_t i);

	void (*clear)(void *to, size_t bytes);
	/* Until all that was asked for is done; the others may return before. */
	void (*wait)(void);

	/* y[b*context + t] = token_table[tokens[b][t]] + position_table[t]; a row of `tokens` is
	 * `stride` long. */
	void (*embed_forward)(void *y, const void *token_table, const void *position_table,
			      const uint8_t *tokens, size_t stride,
			      const struct attention_shape *s);
	/* d_token_table +=, d_position_table = */
	void (*embed_backward)(void *d_token_table, void *d_position_table, const void *dy,
			       const uint8_t *tokens, size_t stride,
			       const struct attention_shape *s);

	/* Layer norm over rows of `width`; stats = {mean, 1/deviation} a row. */
	void (*norm_forward)(void *y, void *stats, const void *x, const void *gain,
			     const void *bias, size_t rows, size_t width);
	/* dx +=, d_gain =, d_bias = */
	void (*norm_backward)(void *dx, void *d_gain, void *d_bias, const void *dy, const void *x,
			      const void *stats, const void *gain, size_t rows, size_t width);

	/* y = x weight^T + bias + residual; weight is [out, in]; bias and residual may be NULL. */
	void (*linear_forward)(void *y, const void *x, const void *weight, const void *bias,
			       const void *residual, size_t rows, size_t in, size_t out);
	/* dx =, d_weight =, d_bias = (may be NULL) */
	void (*linear_backward)(void *dx, void *d_weight, void *d_bias, const void *dy,
				const void *x, const void *weight, size_t rows, size_t in,
				size_t out);

	/* Causal. probability [batch, heads, context, context] =, y [batch x context, width] = */
	void (*attention_forward)(void *y, void *probability, const void *qkv,
				  const struct attention_shape *s);
	/* d_qkv =; scratch [heads, context, context]: of its contents afterwards nothing is said.
	 */
	void (*attention_backward)(void *d_qkv, void *scratch, const void *dy,
				   const void *probability, const void *qkv,
				   const struct attention_shape *s);

	/* The tanh form. */
	void (*gelu_forward)(void *y, const void *x, size_t n);
	/* d: dy on entry, dx on return. */
	void (*gelu_backward)(void *d, const void *x, size_t n);

	/* Mean cross entropy over all rows; `logits` becomes its gradient. */
	double (*cross_entropy)(void *logits, const uint8_t *targets, size_t stride, size_t batch,
				size_t context, size_t vocabulary);

	/* Decoupled decay: value -= rate * (update + decay * value). moment1 and moment2 +=. */
	void (*adamw)(void *value, void *moment1, void *moment2, const void *gradient, size_t n,
		      const struct adamw_step *step);
};

extern const struct ops ops_f32, ops_f64;

#endif

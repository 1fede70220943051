/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/ops_cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/train_gpt/fatal.h"

#define TOKENS 256 /* a token is a byte */
/* A sum over rows runs in so many chunks at once: enough threads for narrow matrices too. */
#define CHUNKS 64

/* Scratch belongs to one operation at a time; the stream keeps them apart. */
static struct {
	struct device *device;
	void *scratch;
	size_t scratch_bytes;
} cuda;

static void *scratch(size_t bytes)
{
	if (cuda.scratch_bytes < bytes) {
		if (cuda.scratch != NULL)
			cuda.device->calls->free(cuda.device->state, cuda.scratch);
		cuda.scratch = cuda.device->calls->alloc(cuda.device->state, bytes);
		cuda.scratch_bytes = bytes;
	}
	return cuda.scratch;
}

static void launch(enum kernel kernel, size_t items, const void *args)
{
	cuda.device->calls->launch(cuda.device->state, kernel, items, args);
}

/* A row-major matrix of `count`, each `step` elements behind the one before. */
struct matrix {
	const float *at;
	size_t leading, step;
	bool transposed; /* stored so */
};

/* c [rows, columns] = alpha a b, row-major: in columns that is c^T = b^T a^T. */
static void multiply(size_t count, size_t rows, size_t columns, size_t inner, double alpha,
		     struct matrix a, struct matrix b, float *c, size_t leading, size_t step)
{
	const struct gemm gemm = {
		.transpose_a = b.transposed,
		.transpose_b = a.transposed,
		.m = columns,
		.n = rows,
		.k = inner,
		.alpha = (float)alpha,
		.a = b.at,
		.b = a.at,
		.c = c,
		.lda = b.leading,
		.ldb = a.leading,
		.ldc = leading,
		.count = count,
		.step_a = b.step,
		.step_b = a.step,
		.step_c = step,
	};

	cuda.device->calls->multiply(cuda.device->state, &gemm);
}

static struct matrix plain(const void *at, size_t leading)
{
	return (struct matrix){ at, leading, 0, false };
}

static struct matrix transposed(const void *at, size_t leading)
{
	return (struct matrix){ at, leading, 0, true };
}

/* On host memory, as all of struct ops that names single elements. */
static void set_element(void *to, size_t i, double value)
{
	((float *)to)[i] = (float)value;
}

static double get_element(const void *from, size_t i)
{
	return (double)((const float *)from)[i];
}

static void clear(void *to, size_t bytes)
{
	cuda.device->calls->clear(cuda.device->state, to, bytes);
}

static void wait_stream(void)
{
	cuda.device->calls->wait(cuda.device->state);
}

/* The last row of a batch ends with its context. */
static void upload_tokens(uint8_t *to, const uint8_t *tokens, size_t stride, size_t batch,
			  size_t context)
{
	cuda.device->calls->upload(cuda.device->state, to, tokens, (batch - 1) * stride + context);
}

static void embed_forward(void *y, const void *token_table, const void *position_table,
			  const uint8_t *tokens, size_t stride, const struct attention_shape *s)
{
	uint8_t *copy = scratch(s->batch * stride);
	const struct embed_forward_args args = {
		.y = y,
		.token_table = token_table,
		.position_table = position_table,
		.tokens = copy,
		.stride = stride,
		.context = s->context,
		.width = s->width,
		.rows = s->batch * s->context,
	};

	upload_tokens(copy, tokens, stride, s->batch, s->context);
	launch(KERNEL_embed_forward, args.rows * args.width, &args);
}

static void embed_backward(void *d_token_table, void *d_position_table, const void *dy,
			   const uint8_t *tokens, size_t stride, const struct attention_shape *s)
{
	uint8_t *copy = scratch(s->batch * stride);
	const struct embed_backward_tokens_args of_tokens = {
		.d_table = d_token_table,
		.dy = dy,
		.tokens = copy,
		.stride = stride,
		.context = s->context,
		.width = s->width,
		.rows = s->batch * s->context,
		.token_count = TOKENS,
	};
	const struct embed_backward_positions_args of_positions = {
		.d_table = d_position_table,
		.dy = dy,
		.context = s->context,
		.width = s->width,
		.batch = s->batch,
	};

	upload_tokens(copy, tokens, stride, s->batch, s->context);
	launch(KERNEL_embed_backward_tokens, TOKENS * s->width, &of_tokens);
	launch(KERNEL_embed_backward_positions, s->context * s->width, &of_positions);
}

static void norm_forward(void *y, void *stats, const void *x, const void *gain, const void *bias,
			 size_t rows, size_t width)
{
	const struct norm_forward_args args = { y, stats, x, gain, bias, rows, width };

	launch(KERNEL_norm_forward, rows, &args);
}

static size_t chunk_rows(size_t rows)
{
	return (rows + CHUNKS - 1) / CHUNKS;
}

static void column_sum(void *to, const double *partial, size_t columns)
{
	const struct column_sum_args args = { to, partial, columns, CHUNKS };

	launch(KERNEL_column_sum, columns, &args);
}

static void norm_backward(void *dx, void *d_gain, void *d_bias, const void *dy, const void *x,
			  const void *stats, const void *gain, size_t rows, size_t width)
{
	double *gain_partial = scratch(2 * CHUNKS * width * sizeof(double));
	double *bias_partial = gain_partial + CHUNKS * width;
	const struct norm_backward_input_args of_input = { dx, dy, x, stats, gain, rows, width };
	const struct norm_backward_partial_args partial = {
		gain_partial, bias_partial, dy, x, stats, rows, width, CHUNKS, chunk_rows(rows),
	};

	launch(KERNEL_norm_backward_input, rows, &of_input);
	launch(KERNEL_norm_backward_partial, CHUNKS * width, &partial);
	column_sum(d_gain, gain_partial, width);
	column_sum(d_bias, bias_partial, width);
}

static void linear_forward(void *y, const void *x, const void *weight, const void *bias,
			   const void *residual, size_t rows, size_t in, size_t out)
{
	const struct add_bias_args args = { y, bias, residual, rows, out };

	multiply(1, rows, out, in, 1.0, plain(x, in), transposed(weight, in), y, out, 0);
	if (bias != NULL || residual != NULL)
		launch(KERNEL_add_bias, rows * out, &args);
}

static void bias_backward(void *d_bias, const void *dy, size_t rows, size_t out)
{
	double *partial = scratch(CHUNKS * out * sizeof(double));
	const struct column_partial_args args = {
		partial, dy, rows, out, CHUNKS, chunk_rows(rows),
	};

	launch(KERNEL_column_partial, CHUNKS * out, &args);
	column_sum(d_bias, partial, out);
}

static void linear_backward(void *dx, void *d_weight, void *d_bias, const void *dy, const void *x,
			    const void *weight, size_t rows, size_t in, size_t out)
{
	multiply(1, rows, in, out, 1.0, plain(dy, out), plain(weight, in), dx, in, 0);
	multiply(1, out, in, rows, 1.0, transposed(dy, out), plain(x, in), d_weight, in, 0);
	if (d_bias != NULL)
		bias_backward(d_bias, dy, rows, out);
}

/* One sequence's matrices, a head each; what they have in common. */
struct heads {
	size_t count, width, context;
	struct matrix q, k, v; /* or their gradients */
	struct matrix y;
	size_t square; /* elements of a head's probabilities */
	double scale;
};

static struct heads heads_of(const void *qkv, const void *y, size_t sequence,
			     const struct attention_shape *s)
{
	const float *q = (const float *)qkv + sequence * s->context * 3 * s->width;
	const float *row = (const float *)y + sequence * s->context * s->width;
	size_t width = s->width / s->heads;

	return (struct heads){
		.count = s->heads,
		.width = width,
		.context = s->context,
		.q = { q, 3 * s->width, width, false },
		.k = { q + s->width, 3 * s->width, width, false },
		.v = { q + 2 * s->width, 3 * s->width, width, false },
		.y = { row, s->width, width, false },
		.square = s->context * s->context,
		.scale = 1.0 / sqrt((double)width),
	};
}

static struct matrix flip(struct matrix m)
{
	m.transposed = !m.transposed;
	return m;
}

static struct matrix square(const float *at, const struct heads *h)
{
	return (struct matrix){ at, h->context, h->square, false };
}

static void attention_forward(void *y, void *probability, const void *qkv,
			      const struct attention_shape *s)
{
	const size_t step = s->heads * s->context * s->context;
	const struct softmax_forward_args args = {
		probability,
		s->batch * s->heads * s->context,
		s->context,
	};

	for (size_t b = 0; b < s->batch; b++) {
		struct heads h = heads_of(qkv, y, b, s);

		multiply(h.count, h.context, h.context, h.width, h.scale, h.q, flip(h.k),
			 (float *)probability + b * step, h.context, h.square);
	}
	launch(KERNEL_softmax_forward, args.rows, &args);
	for (size_t b = 0; b < s->batch; b++) {
		struct heads h = heads_of(qkv, y, b, s);

		multiply(h.count, h.context, h.width, h.context, 1.0,
			 square((const float *)probability + b * step, &h), h.v,
			 (float *)y + b * s->context * s->width, h.y.leading, h.y.step);
	}
}

/* `d` [heads, context, context] is scratch: one sequence at a time. */
static void sequence_backward(float *d_qkv, float *d, const float *p, struct heads h,
			      size_t model_width)
{
	const struct softmax_backward_args args = { d, p, h.count * h.context, h.context };
	float *dq = d_qkv, *dk = dq + model_width, *dv = dk + model_width;

	multiply(h.count, h.context, h.width, h.context, 1.0, flip(square(p, &h)), h.y, dv,
		 h.v.leading, h.v.step);
	multiply(h.count, h.context, h.context, h.width, 1.0, h.y, flip(h.v), d, h.context,
		 h.square);
	launch(KERNEL_softmax_backward, args.rows, &args);
	multiply(h.count, h.context, h.width, h.context, h.scale, square(d, &h), h.k, dq,
		 h.q.leading, h.q.step);
	multiply(h.count, h.context, h.width, h.context, h.scale, flip(square(d, &h)), h.q, dk,
		 h.k.leading, h.k.step);
}

static void attention_backward(void *d_qkv, void *d_scores, const void *dy, const void *probability,
			       const void *qkv, const struct attention_shape *s)
{
	const size_t step = s->heads * s->context * s->context;

	for (size_t b = 0; b < s->batch; b++)
		sequence_backward((float *)d_qkv + b * s->context * 3 * s->width, d_scores,
				  (const float *)probability + b * step, heads_of(qkv, dy, b, s),
				  s->width);
}

static void gelu_forward(void *y, const void *x, size_t n)
{
	const struct gelu_forward_args args = { y, x, n };

	launch(KERNEL_gelu_forward, n, &args);
}

static void gelu_backward(void *d, const void *x, size_t n)
{
	const struct gelu_backward_args args = { d, x, n };

	launch(KERNEL_gelu_backward, n, &args);
}

/* The rows' losses are added up on the host, in their order. */
static double sum_losses(const double *losses, size_t rows)
{
	double *copy = malloc(rows * sizeof(*copy)), sum = 0;

	if (copy == NULL)
		fatal("losses: out of memory");
	cuda.device->calls->download(cuda.device->state, copy, losses, rows * sizeof(*copy));
	for (size_t row = 0; row < rows; row++)
		sum += copy[row];
	free(copy);
	return sum;
}

static double cross_entropy(void *logits, const uint8_t *targets, size_t stride, size_t batch,
			    size_t context, size_t vocabulary)
{
	const size_t rows = batch * context;
	double *losses = scratch(rows * sizeof(double) + batch * stride);
	uint8_t *copy = (uint8_t *)(losses + rows);
	const struct cross_entropy_args args = {
		.logits = logits,
		.losses = losses,
		.targets = copy,
		.stride = stride,
		.context = context,
		.vocabulary = vocabulary,
		.rows = rows,
		.weight = 1.0 / (double)rows,
	};

	upload_tokens(copy, targets, stride, batch, context);
	launch(KERNEL_cross_entropy, rows, &args);
	return sum_losses(losses, rows) * args.weight;
}

static void adamw(void *value, void *moment1, void *moment2, const void *gradient, size_t n,
		  const struct adamw_step *step)
{
	const struct adamw_args args = {
		.value = value,
		.moment1 = moment1,
		.moment2 = moment2,
		.gradient = gradient,
		.n = n,
		.beta1 = (float)step->beta1,
		.beta2 = (float)step->beta2,
		.rest1 = (float)(1 - step->beta1),
		.rest2 = (float)(1 - step->beta2),
		.inverse1 = (float)(1 / step->correction1),
		.inverse2 = (float)(1 / step->correction2),
		.rate = (float)step->rate,
		.decay = (float)step->decay,
		.epsilon = (float)step->epsilon,
	};

	launch(KERNEL_adamw, n, &args);
}

static const struct ops ops_cuda = {
	.name = "cuda",
	.element_bytes = sizeof(float),
	.set = set_element,
	.get = get_element,
	.clear = clear,
	.wait = wait_stream,
	.embed_forward = embed_forward,
	.embed_backward = embed_backward,
	.norm_forward = norm_forward,
	.norm_backward = norm_backward,
	.linear_forward = linear_forward,
	.linear_backward = linear_backward,
	.attention_forward = attention_forward,
	.attention_backward = attention_backward,
	.gelu_forward = gelu_forward,
	.gelu_backward = gelu_backward,
	.cross_entropy = cross_entropy,
	.adamw = adamw,
};

const struct ops *ops_cuda_open(struct device *d)
{
	REQUIRE(cuda.device == NULL);
	cuda.device = d;
	return &ops_cuda;
}

void ops_cuda_close(void)
{
	if (cuda.scratch != NULL)
		cuda.device->calls->free(cuda.device->state, cuda.scratch);
	memset(&cuda, 0, sizeof(cuda));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of ops_f32.c and ops_f64.c (ops.h says what each function does); REAL and its functions
 * are double's unless the includer defines others. Sums over a row run in double, in index order:
 * the same on any address, which vectorised sums of floats would not promise.
 */
#include "examples/train_gpt/ops.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#ifndef REAL
#define OPS_TABLE ops_f64
#define REAL      double
#define REAL_NAME "f64"
#define REAL_EXP  exp
#define REAL_TANH tanh
#define REAL_SQRT sqrt
#define REAL_GEMM cblas_dgemm
#endif

#define NORM_EPSILON 1e-5

static void set_element(void *to, size_t i, double value)
{
	((REAL *)to)[i] = (REAL)value;
}

static double get_element(const void *from, size_t i)
{
	return (double)((const REAL *)from)[i];
}

static void clear(void *to, size_t bytes)
{
	memset(to, 0, bytes);
}

static void wait_nothing(void)
{
}

/* c [rows, columns] = alpha a b; `ta` and `tb` say which of a and b are stored transposed. */
static void multiply(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, size_t rows, size_t columns,
		     size_t inner, double alpha, const REAL *a, size_t lda, const REAL *b,
		     size_t ldb, REAL *c, size_t ldc)
{
	REAL_GEMM(CblasRowMajor, ta, tb, (blasint)rows, (blasint)columns, (blasint)inner,
		  (REAL)alpha, a, (blasint)lda, b, (blasint)ldb, 0, c, (blasint)ldc);
}

static void embed_forward(void *to, const void *token_table, const void *position_table,
			  const uint8_t *tokens, size_t stride, const struct attention_shape *s)
{
	for (size_t row = 0; row < s->batch * s->context; row++) {
		size_t t = row % s->context;
		uint8_t token = tokens[row / s->context * stride + t];
		const REAL *value = (const REAL *)token_table + token * s->width;
		const REAL *position = (const REAL *)position_table + t * s->width;
		REAL *y = (REAL *)to + row * s->width;

		for (size_t i = 0; i < s->width; i++)
			y[i] = value[i] + position[i];
	}
}

static void embed_backward(void *d_token_table, void *d_position_table, const void *dy,
			   const uint8_t *tokens, size_t stride, const struct attention_shape *s)
{
	memset(d_position_table, 0, s->context * s->width * sizeof(REAL));
	for (size_t row = 0; row < s->batch * s->context; row++) {
		size_t t = row % s->context;
		uint8_t token = tokens[row / s->context * stride + t];
		REAL *value = (REAL *)d_token_table + token * s->width;
		REAL *position = (REAL *)d_position_table + t * s->width;
		const REAL *d = (const REAL *)dy + row * s->width;

		for (size_t i = 0; i < s->width; i++) {
			value[i] += d[i];
			position[i] += d[i];
		}
	}
}

static void norm_row(REAL *y, REAL *stats, const REAL *x, const REAL *gain, const REAL *bias,
		     size_t width)
{
	double mean = 0, variance = 0, inverse;

	for (size_t i = 0; i < width; i++)
		mean += x[i];
	mean /= (double)width;
	for (size_t i = 0; i < width; i++)
		variance += (x[i] - mean) * (x[i] - mean);
	inverse = 1.0 / sqrt(variance / (double)width + NORM_EPSILON);
	stats[0] = (REAL)mean;
	stats[1] = (REAL)inverse;
	for (size_t i = 0; i < width; i++)
		y[i] = (REAL)((x[i] - mean) * inverse) * gain[i] + bias[i];
}

static void norm_forward(void *y, void *stats, const void *x, const void *gain, const void *bias,
			 size_t rows, size_t width)
{
	for (size_t row = 0; row < rows; row++)
		norm_row((REAL *)y + row * width, (REAL *)stats + 2 * row,
			 (const REAL *)x + row * width, gain, bias, width);
}

static void norm_row_backward(REAL *dx, REAL *d_gain, REAL *d_bias, const REAL *dy, const REAL *x,
			      const REAL *stats, const REAL *gain, size_t width)
{
	double mean = stats[0], inverse = stats[1];
	double sum = 0, product = 0;

	for (size_t i = 0; i < width; i++) {
		double normal = (x[i] - mean) * inverse;

		sum += (double)dy[i] * gain[i];
		product += (double)dy[i] * gain[i] * normal;
		d_gain[i] += (REAL)(dy[i] * normal);
		d_bias[i] += dy[i];
	}
	sum /= (double)width;
	product /= (double)width;
	for (size_t i = 0; i < width; i++) {
		double normal = (x[i] - mean) * inverse;

		dx[i] += (REAL)(inverse * ((double)dy[i] * gain[i] - sum - normal * product));
	}
}

static void norm_backward(void *dx, void *d_gain, void *d_bias, const void *dy, const void *x,
			  const void *stats, const void *gain, size_t rows, size_t width)
{
	memset(d_gain, 0, width * sizeof(REAL));
	memset(d_bias, 0, width * sizeof(REAL));
	for (size_t row = 0; row < rows; row++)
		norm_row_backward((REAL *)dx + row * width, d_gain, d_bias,
				  (const REAL *)dy + row * width, (const REAL *)x + row * width,
				  (const REAL *)stats + 2 * row, gain, width);
}

static void linear_forward(void *to, const void *x, const void *weight, const void *bias,
			   const void *residual, size_t rows, size_t in, size_t out)
{
	multiply(CblasNoTrans, CblasTrans, rows, out, in, 1.0, x, in, weight, in, to, out);
	for (size_t row = 0; row < rows; row++) {
		REAL *y = (REAL *)to + row * out;

		if (bias != NULL)
			for (size_t i = 0; i < out; i++)
				y[i] += ((const REAL *)bias)[i];
		if (residual != NULL)
			for (size_t i = 0; i < out; i++)
				y[i] += ((const REAL *)residual)[row * out + i];
	}
}

static void linear_backward(void *dx, void *d_weight, void *d_bias, const void *dy, const void *x,
			    const void *weight, size_t rows, size_t in, size_t out)
{
	multiply(CblasNoTrans, CblasNoTrans, rows, in, out, 1.0, dy, out, weight, in, dx, in);
	multiply(CblasTrans, CblasNoTrans, out, in, rows, 1.0, dy, out, x, in, d_weight, in);
	if (d_bias == NULL)
		return;
	memset(d_bias, 0, out * sizeof(REAL));
	for (size_t row = 0; row < rows; row++)
		for (size_t i = 0; i < out; i++)
			((REAL *)d_bias)[i] += ((const REAL *)dy)[row * out + i];
}

/* Row t attends to columns 0 to t; the rest becomes 0. */
static void causal_softmax(REAL *row, size_t t, size_t context)
{
	REAL highest = row[0];
	double sum = 0;

	for (size_t i = 1; i <= t; i++)
		highest = row[i] > highest ? row[i] : highest;
	for (size_t i = 0; i <= t; i++) {
		row[i] = REAL_EXP(row[i] - highest);
		sum += row[i];
	}
	for (size_t i = 0; i <= t; i++)
		row[i] = (REAL)(row[i] / sum);
	memset(row + t + 1, 0, (context - t - 1) * sizeof(REAL));
}

static void attention_forward(void *y, void *probability, const void *qkv,
			      const struct attention_shape *s)
{
	size_t head_width = s->width / s->heads, context = s->context, stride = 3 * s->width;
	double scale = 1.0 / sqrt((double)head_width);

	for (size_t i = 0; i < s->batch * s->heads; i++) {
		size_t b = i / s->heads, column = i % s->heads * head_width;
		const REAL *q = (const REAL *)qkv + b * context * stride + column;
		const REAL *k = q + s->width, *v = k + s->width;
		REAL *p = (REAL *)probability + i * context * context;

		multiply(CblasNoTrans, CblasTrans, context, context, head_width, scale, q, stride,
			 k, stride, p, context);
		for (size_t t = 0; t < context; t++)
			causal_softmax(p + t * context, t, context);
		multiply(CblasNoTrans, CblasNoTrans, context, head_width, context, 1.0, p, context,
			 v, stride, (REAL *)y + b * context * s->width + column, s->width);
	}
}

/* d: the gradient of a row of probabilities on entry, of its scores on return. */
static void softmax_backward(REAL *d, const REAL *p, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)d[i] * p[i];
	for (size_t i = 0; i < n; i++)
		d[i] = (REAL)(p[i] * (d[i] - sum));
}

static void attention_backward(void *d_qkv, void *scratch, const void *dy_all,
			       const void *probability, const void *qkv,
			       const struct attention_shape *s)
{
	size_t head_width = s->width / s->heads, context = s->context, stride = 3 * s->width;
	double scale = 1.0 / sqrt((double)head_width);

	for (size_t i = 0; i < s->batch * s->heads; i++) {
		size_t b = i / s->heads, column = i % s->heads * head_width;
		size_t offset = b * context * stride + column;
		const REAL *q = (const REAL *)qkv + offset, *k = q + s->width, *v = k + s->width;
		const REAL *p = (const REAL *)probability + i * context * context;
		const REAL *dy = (const REAL *)dy_all + b * context * s->width + column;
		REAL *dq = (REAL *)d_qkv + offset, *dk = dq + s->width, *dv = dk + s->width;
		REAL *d = scratch;

		multiply(CblasTrans, CblasNoTrans, context, head_width, context, 1.0, p, context,
			 dy, s->width, dv, stride);
		multiply(CblasNoTrans, CblasTrans, context, context, head_width, 1.0, dy, s->width,
			 v, stride, d, context);
		for (size_t t = 0; t < context; t++)
			softmax_backward(d + t * context, p + t * context, context);
		multiply(CblasNoTrans, CblasNoTrans, context, head_width, context, scale, d,
			 context, k, stride, dq, stride);
		multiply(CblasTrans, CblasNoTrans, context, head_width, context, scale, d, context,
			 q, stride, dk, stride);
	}
}

#define GELU_SLOPE 0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_CUBE  0.044715

static void gelu_forward(void *y, const void *x_all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		REAL x = ((const REAL *)x_all)[i];
		REAL inner = (REAL)GELU_SLOPE * (x + (REAL)GELU_CUBE * x * x * x);

		((REAL *)y)[i] = (REAL)0.5 * x * (1 + REAL_TANH(inner));
	}
}

static void gelu_backward(void *d, const void *x_all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		REAL x = ((const REAL *)x_all)[i];
		REAL tangent = REAL_TANH((REAL)GELU_SLOPE * (x + (REAL)GELU_CUBE * x * x * x));
		REAL slope = (REAL)GELU_SLOPE * (1 + 3 * (REAL)GELU_CUBE * x * x);

		((REAL *)d)[i] *=
			(REAL)0.5 * (1 + tangent) + (REAL)0.5 * x * (1 - tangent * tangent) * slope;
	}
}

/* One row: returns its loss and leaves weight * (softmax - onehot). */
static double cross_entropy_row(REAL *row, size_t target, size_t vocabulary, double weight)
{
	REAL highest = row[0], wanted = row[target];
	double sum = 0;

	for (size_t i = 1; i < vocabulary; i++)
		highest = row[i] > highest ? row[i] : highest;
	for (size_t i = 0; i < vocabulary; i++) {
		row[i] = REAL_EXP(row[i] - highest);
		sum += row[i];
	}
	for (size_t i = 0; i < vocabulary; i++)
		row[i] = (REAL)(row[i] / sum * weight);
	row[target] -= (REAL)weight;
	return log(sum) - ((double)wanted - highest);
}

static double cross_entropy(void *logits, const uint8_t *targets, size_t stride, size_t batch,
			    size_t context, size_t vocabulary)
{
	double loss = 0, weight = 1.0 / (double)(batch * context);

	for (size_t row = 0; row < batch * context; row++) {
		size_t target = targets[row / context * stride + row % context];

		loss += cross_entropy_row((REAL *)logits + row * vocabulary, target, vocabulary,
					  weight);
	}
	return loss * weight;
}

static void adamw(void *value_all, void *moment1, void *moment2, const void *gradient, size_t n,
		  const struct adamw_step *step)
{
	REAL beta1 = (REAL)step->beta1, beta2 = (REAL)step->beta2;
	REAL rest1 = (REAL)(1 - step->beta1), rest2 = (REAL)(1 - step->beta2);
	REAL rate = (REAL)step->rate, decay = (REAL)step->decay, epsilon = (REAL)step->epsilon;
	REAL inverse1 = (REAL)(1 / step->correction1), inverse2 = (REAL)(1 / step->correction2);
	REAL *value = value_all, *m = moment1, *v = moment2;
	const REAL *g = gradient;

	for (size_t i = 0; i < n; i++) {
		m[i] = beta1 * m[i] + rest1 * g[i];
		v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
		value[i] -= rate * (m[i] * inverse1 / (REAL_SQRT(v[i] * inverse2) + epsilon) +
				    decay * value[i]);
	}
}

const struct ops OPS_TABLE = {
	.name = REAL_NAME,
	.element_bytes = sizeof(REAL),
	.set = set_element,
	.get = get_element,
	.clear = clear,
	.wait = wait_nothing,
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

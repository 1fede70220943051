/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model computes on a GPU besides its products (kernels.h; ops_template.h has the same on
 * the CPU). C apart from the few lines below, so that tests run these very functions on the CPU:
 * they define KERNEL, HELPER and the functions before they include this file.
 */
#include <math.h>

#include "examples/train_gpt/kernels.h"

#ifdef __CUDACC__
#define KERNEL(name) extern "C" __global__ void name##_kernel(const struct name##_args a)
#define HELPER       static __device__ inline

HELPER size_t thread_index(void)
{
	return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* Both give every lane the same bits: each step adds the same two numbers in both halves. */
HELPER double warp_sum(double value)
{
	for (int distance = WARP_LANES / 2; distance > 0; distance /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, distance);
	return value;
}

HELPER float warp_max(float value)
{
	for (int distance = WARP_LANES / 2; distance > 0; distance /= 2)
		value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
	return value;
}
#endif

#define NORM_EPSILON 1e-5
#define GELU_SLOPE   0.79788456080286535588f /* sqrt(2 / pi) */
#define GELU_CUBE    0.044715f

HELPER uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

KERNEL(embed_forward)
{
	const size_t i = thread_index();
	const size_t row = i / a.width, column = i % a.width, t = row % a.context;

	if (row >= a.rows)
		return;
	a.y[i] = a.token_table[a.tokens[row / a.context * a.stride + t] * a.width + column] +
		 a.position_table[t * a.width + column];
}

KERNEL(embed_backward_tokens)
{
	const size_t i = thread_index(), token = i / a.width, column = i % a.width;
	double sum = 0;
	int found = 0;

	if (token >= a.token_count)
		return;
	for (size_t row = 0; row < a.rows; row++) {
		if (a.tokens[row / a.context * a.stride + row % a.context] != token)
			continue;
		sum += a.dy[row * a.width + column];
		found = 1;
	}
	if (found) /* the table may have no rows for tokens that do not occur */
		a.d_table[i] += (float)sum;
}

KERNEL(embed_backward_positions)
{
	const size_t i = thread_index();
	double sum = 0;

	if (i >= a.context * a.width)
		return;
	for (size_t b = 0; b < a.batch; b++)
		sum += a.dy[b * a.context * a.width + i];
	a.d_table[i] = (float)sum;
}

KERNEL(norm_forward)
{
	const size_t row = thread_index() / WARP_LANES, lane = thread_index() % WARP_LANES;
	const float *x = a.x + row * a.width;
	float *y = a.y + row * a.width;
	double mean = 0, variance = 0, inverse;

	if (row >= a.rows)
		return;
	for (size_t i = lane; i < a.width; i += WARP_LANES)
		mean += x[i];
	mean = warp_sum(mean) / (double)a.width;
	for (size_t i = lane; i < a.width; i += WARP_LANES)
		variance += (x[i] - mean) * (x[i] - mean);
	inverse = 1.0 / sqrt(warp_sum(variance) / (double)a.width + NORM_EPSILON);
	if (lane == 0) {
		a.stats[2 * row] = (float)mean;
		a.stats[2 * row + 1] = (float)inverse;
	}
	for (size_t i = lane; i < a.width; i += WARP_LANES)
		y[i] = (float)((x[i] - mean) * inverse) * a.gain[i] + a.bias[i];
}

KERNEL(norm_backward_input)
{
	const size_t row = thread_index() / WARP_LANES, lane = thread_index() % WARP_LANES;
	const float *x = a.x + row * a.width, *dy = a.dy + row * a.width;
	double mean, inverse, sum = 0, product = 0;

	if (row >= a.rows)
		return;
	mean = a.stats[2 * row];
	inverse = a.stats[2 * row + 1];
	for (size_t i = lane; i < a.width; i += WARP_LANES) {
		double d = (double)dy[i] * a.gain[i];

		sum += d;
		product += d * ((x[i] - mean) * inverse);
	}
	sum = warp_sum(sum) / (double)a.width;
	product = warp_sum(product) / (double)a.width;
	for (size_t i = lane; i < a.width; i += WARP_LANES) {
		double normal = (x[i] - mean) * inverse;

		a.dx[row * a.width + i] +=
			(float)(inverse * ((double)dy[i] * a.gain[i] - sum - normal * product));
	}
}

KERNEL(norm_backward_partial)
{
	const size_t i = thread_index(), chunk = i / a.width, column = i % a.width;
	double gain = 0, bias = 0;

	if (chunk >= a.chunks)
		return;
	for (size_t row = chunk * a.chunk_rows; row < least((chunk + 1) * a.chunk_rows, a.rows);
	     row++) {
		double dy = a.dy[row * a.width + column], x = a.x[row * a.width + column];

		gain += dy * ((x - a.stats[2 * row]) * a.stats[2 * row + 1]);
		bias += dy;
	}
	a.gain_partial[i] = gain;
	a.bias_partial[i] = bias;
}

KERNEL(column_partial)
{
	const size_t i = thread_index(), chunk = i / a.columns, column = i % a.columns;
	double sum = 0;

	if (chunk >= a.chunks)
		return;
	for (size_t row = chunk * a.chunk_rows; row < least((chunk + 1) * a.chunk_rows, a.rows);
	     row++)
		sum += a.from[row * a.columns + column];
	a.partial[i] = sum;
}

KERNEL(column_sum)
{
	const size_t column = thread_index();
	double sum = 0;

	if (column >= a.columns)
		return;
	for (size_t chunk = 0; chunk < a.chunks; chunk++)
		sum += a.partial[chunk * a.columns + column];
	a.to[column] = (float)sum;
}

KERNEL(add_bias)
{
	const size_t i = thread_index();
	float y;

	if (i >= a.rows * a.columns)
		return;
	y = a.y[i];
	if (a.bias != NULL)
		y += a.bias[i % a.columns];
	if (a.residual != NULL)
		y += a.residual[i];
	a.y[i] = y;
}

KERNEL(softmax_forward)
{
	const size_t row = thread_index() / WARP_LANES, lane = thread_index() % WARP_LANES;
	const size_t end = row % a.context + 1;
	float *p = a.p + row * a.context;
	float highest = -INFINITY;
	double sum = 0;

	if (row >= a.rows)
		return;
	for (size_t i = lane; i < end; i += WARP_LANES)
		highest = fmaxf(highest, p[i]);
	highest = warp_max(highest);
	for (size_t i = lane; i < end; i += WARP_LANES) {
		p[i] = expf(p[i] - highest);
		sum += p[i];
	}
	sum = warp_sum(sum);
	for (size_t i = lane; i < a.context; i += WARP_LANES)
		p[i] = i < end ? (float)(p[i] / sum) : 0.0f;
}

KERNEL(softmax_backward)
{
	const size_t row = thread_index() / WARP_LANES, lane = thread_index() % WARP_LANES;
	const float *p = a.p + row * a.columns;
	float *d = a.d + row * a.columns;
	double sum = 0;

	if (row >= a.rows)
		return;
	for (size_t i = lane; i < a.columns; i += WARP_LANES)
		sum += (double)d[i] * p[i];
	sum = warp_sum(sum);
	for (size_t i = lane; i < a.columns; i += WARP_LANES)
		d[i] = (float)(p[i] * (d[i] - sum));
}

KERNEL(gelu_forward)
{
	const size_t i = thread_index();
	float x;

	if (i >= a.n)
		return;
	x = a.x[i];
	a.y[i] = 0.5f * x * (1 + tanhf(GELU_SLOPE * (x + GELU_CUBE * x * x * x)));
}

KERNEL(gelu_backward)
{
	const size_t i = thread_index();
	float x, tangent, slope;

	if (i >= a.n)
		return;
	x = a.x[i];
	tangent = tanhf(GELU_SLOPE * (x + GELU_CUBE * x * x * x));
	slope = GELU_SLOPE * (1 + 3 * GELU_CUBE * x * x);
	a.d[i] *= 0.5f * (1 + tangent) + 0.5f * x * (1 - tangent * tangent) * slope;
}

KERNEL(cross_entropy)
{
	const size_t row = thread_index() / WARP_LANES, lane = thread_index() % WARP_LANES;
	float *y = a.logits + row * a.vocabulary;
	float highest = -INFINITY, wanted = 0;
	double sum = 0;
	size_t target;

	if (row >= a.rows)
		return;
	target = a.targets[row / a.context * a.stride + row % a.context];
	for (size_t i = lane; i < a.vocabulary; i += WARP_LANES) {
		highest = fmaxf(highest, y[i]);
		if (i == target)
			wanted = y[i];
	}
	highest = warp_max(highest);
	for (size_t i = lane; i < a.vocabulary; i += WARP_LANES) {
		y[i] = expf(y[i] - highest);
		sum += y[i];
	}
	sum = warp_sum(sum);
	for (size_t i = lane; i < a.vocabulary; i += WARP_LANES) {
		y[i] = (float)(y[i] / sum * a.weight);
		if (i == target) {
			y[i] -= (float)a.weight;
			a.losses[row] = log(sum) - ((double)wanted - highest);
		}
	}
}

KERNEL(adamw)
{
	const size_t i = thread_index();
	float g, m, v;

	if (i >= a.n)
		return;
	g = a.gradient[i];
	m = a.beta1 * a.moment1[i] + a.rest1 * g;
	v = a.beta2 * a.moment2[i] + a.rest2 * g * g;
	a.moment1[i] = m;
	a.moment2[i] = v;
	a.value[i] -= a.rate *
		      (m * a.inverse1 / (sqrtf(v * a.inverse2) + a.epsilon) + a.decay * a.value[i]);
}

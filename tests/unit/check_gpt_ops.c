/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of train_gpt: each backward against central differences of its forward, in double;
 * the float build against the double one; AdamW against the formulas written out.
 */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "examples/train_gpt/ops.h"
#include "examples/train_gpt/random.h"

#define ELEMENTS_MAX 1024
#define BUFFERS_MAX  4
#define DIFFERENCE   1e-5
#define TOLERANCE    1e-7

#define ROWS    6 /* BATCH x CONTEXT */
#define BATCH   2
#define CONTEXT 3
#define WIDTH   8
#define HEADS   2
#define OUT     5

static const struct attention_shape shape = { BATCH, CONTEXT, WIDTH, HEADS };
/* One byte more a row than the context, as in a batch. */
static const uint8_t tokens[BATCH][CONTEXT + 1] = { { 3, 0, 3, 1 }, { 4, 3, 2, 0 } };

/* One operation under test: y = forward(inputs), and the gradients of sum(weight * y) by backward.
 * A gradient that a backward adds to is poisoned with `added` first, the others with NaN. */
struct probe {
	size_t inputs, input_elements[BUFFERS_MAX], output_elements;
	bool accumulates[BUFFERS_MAX];
	void (*forward)(const struct ops *ops, void *const *inputs, void *y);
	void (*backward)(const struct ops *ops, void *const *inputs, void *y, void *dy,
			 void *const *gradients);
};

struct buffers {
	double input[BUFFERS_MAX][ELEMENTS_MAX], gradient[BUFFERS_MAX][ELEMENTS_MAX];
	double y[ELEMENTS_MAX], dy[ELEMENTS_MAX];
};

#define ADDED 0.25

static void fill(double *to, size_t n, struct random *random)
{
	ck_assert_uint_le(n, ELEMENTS_MAX);
	for (size_t i = 0; i < n; i++)
		to[i] = random_normal(random);
}

static double objective(const struct probe *p, struct buffers *b, const double *weight)
{
	void *inputs[BUFFERS_MAX];
	double sum = 0;

	for (size_t i = 0; i < BUFFERS_MAX; i++)
		inputs[i] = b->input[i];
	for (size_t i = 0; i < p->output_elements; i++)
		b->y[i] = NAN;
	p->forward(&ops_f64, inputs, b->y);
	for (size_t i = 0; i < p->output_elements; i++)
		sum += weight[i] * b->y[i];
	return sum;
}

static void run_backward(const struct probe *p, struct buffers *b)
{
	void *inputs[BUFFERS_MAX], *gradients[BUFFERS_MAX];

	for (size_t k = 0; k < BUFFERS_MAX; k++) {
		inputs[k] = b->input[k];
		gradients[k] = b->gradient[k];
		for (size_t i = 0; i < ELEMENTS_MAX; i++)
			b->gradient[k][i] = p->accumulates[k] ? ADDED : NAN;
	}
	p->backward(&ops_f64, inputs, b->y, b->dy, gradients);
}

static void check_probe(const struct probe *p)
{
	static struct buffers b;
	static double weight[ELEMENTS_MAX];
	struct random random = random_stream(7, 0);

	for (size_t k = 0; k < p->inputs; k++)
		fill(b.input[k], p->input_elements[k], &random);
	fill(weight, p->output_elements, &random);
	objective(p, &b, weight);
	memcpy(b.dy, weight, sizeof(weight));
	run_backward(p, &b);
	for (size_t k = 0; k < p->inputs; k++)
		for (size_t i = 0; i < p->input_elements[k]; i++) {
			double value = b.input[k][i], above, below;

			b.input[k][i] = value + DIFFERENCE;
			above = objective(p, &b, weight);
			b.input[k][i] = value - DIFFERENCE;
			below = objective(p, &b, weight);
			b.input[k][i] = value;
			ck_assert_double_eq_tol(b.gradient[k][i] - (p->accumulates[k] ? ADDED : 0),
						(above - below) / (2 * DIFFERENCE), TOLERANCE);
		}
}

static void norm_forward(const struct ops *ops, void *const *in, void *y)
{
	double stats[2 * ROWS];

	ops->norm_forward(y, stats, in[0], in[1], in[2], ROWS, WIDTH);
}

static void norm_backward(const struct ops *ops, void *const *in, void *y, void *dy,
			  void *const *gradients)
{
	double stats[2 * ROWS];

	ops->norm_forward(y, stats, in[0], in[1], in[2], ROWS, WIDTH);
	ops->norm_backward(gradients[0], gradients[1], gradients[2], dy, in[0], stats, in[1], ROWS,
			   WIDTH);
}

START_TEST(norm_gradients_are_those_of_its_forward)
{
	check_probe(&(struct probe){ 3,
				     { ROWS * WIDTH, WIDTH, WIDTH },
				     ROWS * WIDTH,
				     { true },
				     norm_forward,
				     norm_backward });
}
END_TEST

static void linear_forward(const struct ops *ops, void *const *in, void *y)
{
	ops->linear_forward(y, in[0], in[1], in[2], NULL, ROWS, WIDTH, OUT);
}

static void linear_backward(const struct ops *ops, void *const *in, void *y, void *dy,
			    void *const *gradients)
{
	ops->linear_backward(gradients[0], gradients[1], gradients[2], dy, in[0], in[1], ROWS,
			     WIDTH, OUT);
}

START_TEST(linear_gradients_are_those_of_its_forward)
{
	check_probe(&(struct probe){ 3,
				     { ROWS * WIDTH, OUT * WIDTH, OUT },
				     ROWS * OUT,
				     { false },
				     linear_forward,
				     linear_backward });
}
END_TEST

static void attention_forward(const struct ops *ops, void *const *in, void *y)
{
	double probability[BATCH * HEADS * CONTEXT * CONTEXT];

	ops->attention_forward(y, probability, in[0], &shape);
}

static void attention_backward(const struct ops *ops, void *const *in, void *y, void *dy,
			       void *const *gradients)
{
	double probability[BATCH * HEADS * CONTEXT * CONTEXT], scratch[CONTEXT * CONTEXT];

	ops->attention_forward(y, probability, in[0], &shape);
	ops->attention_backward(gradients[0], scratch, dy, probability, in[0], &shape);
}

START_TEST(attention_gradients_are_those_of_its_forward)
{
	check_probe(&(struct probe){ 1,
				     { ROWS * 3 * WIDTH },
				     ROWS * WIDTH,
				     { false },
				     attention_forward,
				     attention_backward });
}
END_TEST

static void gelu_forward(const struct ops *ops, void *const *in, void *y)
{
	ops->gelu_forward(y, in[0], ROWS * WIDTH);
}

static void gelu_backward(const struct ops *ops, void *const *in, void *y, void *dy,
			  void *const *gradients)
{
	memcpy(gradients[0], dy, ROWS * WIDTH * sizeof(double));
	ops->gelu_backward(gradients[0], in[0], ROWS * WIDTH);
}

START_TEST(gelu_gradients_are_those_of_its_forward)
{
	check_probe(&(struct probe){
		1, { ROWS * WIDTH }, ROWS * WIDTH, { false }, gelu_forward, gelu_backward });
}
END_TEST

static void embed_forward(const struct ops *ops, void *const *in, void *y)
{
	ops->embed_forward(y, in[0], in[1], tokens[0], CONTEXT + 1, &shape);
}

static void embed_backward(const struct ops *ops, void *const *in, void *y, void *dy,
			   void *const *gradients)
{
	ops->embed_backward(gradients[0], gradients[1], dy, tokens[0], CONTEXT + 1, &shape);
}

START_TEST(embedding_gradients_are_those_of_its_forward)
{
	check_probe(&(struct probe){ 2,
				     { 5 * WIDTH, CONTEXT * WIDTH },
				     ROWS * WIDTH,
				     { true, false },
				     embed_forward,
				     embed_backward });
}
END_TEST

static void loss_forward(const struct ops *ops, void *const *in, void *y)
{
	double logits[ROWS * OUT];

	memcpy(logits, in[0], sizeof(logits));
	*(double *)y = ops->cross_entropy(logits, tokens[0] + 1, CONTEXT + 1, BATCH, CONTEXT, OUT);
}

static void loss_backward(const struct ops *ops, void *const *in, void *y, void *dy,
			  void *const *gradients)
{
	double *d = gradients[0];

	memcpy(d, in[0], ROWS * OUT * sizeof(double));
	ops->cross_entropy(d, tokens[0] + 1, CONTEXT + 1, BATCH, CONTEXT, OUT);
	for (size_t i = 0; i < ROWS * OUT; i++)
		d[i] *= *(double *)dy;
}

START_TEST(cross_entropy_gradient_is_that_of_the_loss)
{
	check_probe(
		&(struct probe){ 1, { ROWS * OUT }, 1, { false }, loss_forward, loss_backward });
}
END_TEST

START_TEST(cross_entropy_of_equal_logits_is_log_of_their_number)
{
	double logits[ROWS * OUT] = { 0 };

	ck_assert_double_eq_tol(
		ops_f64.cross_entropy(logits, tokens[0] + 1, CONTEXT + 1, BATCH, CONTEXT, OUT),
		log(OUT), 1e-14);
}
END_TEST

START_TEST(linear_forward_is_the_written_out_product)
{
	const double x[] = { 1, 2, 3, 4 }, weight[] = { 1, 0, 2, -1, 0, 3 },
		     bias[] = { 10, 20, 30 };
	const double residual[] = { 100, 200, 300, 400, 500, 600 };
	const double expected[] = { 111, 220, 336, 413, 522, 642 };
	double y[6];

	ops_f64.linear_forward(y, x, weight, bias, residual, 2, 2, 3);
	for (size_t i = 0; i < 6; i++)
		ck_assert_double_eq_tol(y[i], expected[i], 1e-12);
}
END_TEST

START_TEST(attention_sees_nothing_of_the_future)
{
	static double qkv[ROWS * 3 * WIDTH], before[ROWS * WIDTH], after[ROWS * WIDTH];
	double probability[BATCH * HEADS * CONTEXT * CONTEXT];
	struct random random = random_stream(7, 1);

	fill(qkv, ROWS * 3 * WIDTH, &random);
	ops_f64.attention_forward(before, probability, qkv, &shape);
	for (size_t b = 0; b < BATCH; b++)
		fill(qkv + (b * CONTEXT + CONTEXT - 1) * 3 * WIDTH, 3 * WIDTH, &random);
	ops_f64.attention_forward(after, probability, qkv, &shape);
	for (size_t i = 0; i < ROWS * WIDTH; i++) {
		if (i / WIDTH % CONTEXT < CONTEXT - 1)
			ck_assert(before[i] == after[i]);
		else
			ck_assert(before[i] != after[i]);
	}
}
END_TEST

/* Every forward with floats, and how far it is from the same with doubles. */
static double float_error(const struct probe *p)
{
	static struct buffers b;
	static float narrow[BUFFERS_MAX][ELEMENTS_MAX], y[ELEMENTS_MAX];
	struct random random = random_stream(7, 2);
	void *wide_in[BUFFERS_MAX], *narrow_in[BUFFERS_MAX];
	double worst = 0;

	for (size_t k = 0; k < p->inputs; k++) {
		fill(b.input[k], p->input_elements[k], &random);
		for (size_t i = 0; i < p->input_elements[k]; i++) {
			narrow[k][i] = (float)b.input[k][i];
			b.input[k][i] = narrow[k][i];
		}
	}
	for (size_t k = 0; k < BUFFERS_MAX; k++) {
		wide_in[k] = b.input[k];
		narrow_in[k] = narrow[k];
	}
	p->forward(&ops_f64, wide_in, b.y);
	p->forward(&ops_f32, narrow_in, y);
	for (size_t i = 0; i < p->output_elements; i++)
		worst = fmax(worst, fabs(b.y[i] - y[i]));
	return worst;
}

START_TEST(floats_compute_what_doubles_do)
{
	static const struct probe probes[] = {
		{ .inputs = 3,
		  .input_elements = { ROWS * WIDTH, WIDTH, WIDTH },
		  .output_elements = ROWS * WIDTH,
		  .forward = norm_forward },
		{ .inputs = 3,
		  .input_elements = { ROWS * WIDTH, OUT * WIDTH, OUT },
		  .output_elements = ROWS * OUT,
		  .forward = linear_forward },
		{ .inputs = 1,
		  .input_elements = { ROWS * 3 * WIDTH },
		  .output_elements = ROWS * WIDTH,
		  .forward = attention_forward },
		{ .inputs = 1,
		  .input_elements = { ROWS * WIDTH },
		  .output_elements = ROWS * WIDTH,
		  .forward = gelu_forward },
		{ .inputs = 2,
		  .input_elements = { 5 * WIDTH, CONTEXT * WIDTH },
		  .output_elements = ROWS * WIDTH,
		  .forward = embed_forward },
	};

	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++)
		ck_assert_double_lt(float_error(&probes[i]), 1e-5);
}
END_TEST

/* AdamW as in its paper (Loshchilov and Hutter, algorithm 2, with the rate on the decay too). */
struct reference {
	double value, m, v;
};

static void reference_step(struct reference *r, double gradient, int t, double rate, double decay)
{
	double m_hat, v_hat;

	r->m = 0.9 * r->m + 0.1 * gradient;
	r->v = 0.95 * r->v + 0.05 * gradient * gradient;
	m_hat = r->m / (1 - pow(0.9, t));
	v_hat = r->v / (1 - pow(0.95, t));
	r->value = r->value - rate * m_hat / (sqrt(v_hat) + 1e-8) - rate * decay * r->value;
}

static void adamw_against_reference(const struct ops *ops, double tolerance)
{
	enum { N = 5, STEPS = 20 };
	double value[N], m[N] = { 0 }, v[N] = { 0 }, gradient[N]; /* room for either type */
	struct reference reference[N];
	struct random random = random_stream(7, 3);

	for (int i = 0; i < N; i++) {
		reference[i] = (struct reference){ random_normal(&random), 0, 0 };
		ops->set(value, (size_t)i, reference[i].value);
	}
	for (int t = 1; t <= STEPS; t++) {
		struct adamw_step step = {
			0.01, 0.9, 0.95, 1e-8, 0.1, 1 - pow(0.9, t), 1 - pow(0.95, t)
		};

		for (int i = 0; i < N; i++) {
			double g = i == 0 ? 0 : random_normal(&random);

			ops->set(gradient, (size_t)i, g);
			reference_step(&reference[i], g, t, 0.01, 0.1);
		}
		ops->adamw(value, m, v, gradient, N, &step);
		for (int i = 0; i < N; i++)
			ck_assert_double_eq_tol(ops->get(value, (size_t)i), reference[i].value,
						tolerance);
	}
}

START_TEST(adamw_follows_the_written_out_formulas)
{
	adamw_against_reference(&ops_f64, 1e-14);
	adamw_against_reference(&ops_f32, 1e-6);
}
END_TEST

UNIT_MAIN("gpt_ops", norm_gradients_are_those_of_its_forward,
	  linear_gradients_are_those_of_its_forward, attention_gradients_are_those_of_its_forward,
	  gelu_gradients_are_those_of_its_forward, embedding_gradients_are_those_of_its_forward,
	  cross_entropy_gradient_is_that_of_the_loss,
	  cross_entropy_of_equal_logits_is_log_of_their_number,
	  linear_forward_is_the_written_out_product, attention_sees_nothing_of_the_future,
	  floats_compute_what_doubles_do, adamw_follows_the_written_out_formulas)

/* SPDX-License-Identifier: Apache-2.0
 *
 * train_gpt's arithmetic on a GPU, run on the CPU (tests/fake/device.c): every operation against
 * the same in double, at shapes that fill no warp, no block and no chunk; the model as a whole.
 */
#include "tests/unit/unit.h"

#include <cblas.h>
#include <math.h>
#include <stdbool.h>

#include "examples/train_gpt/model.h"
#include "examples/train_gpt/ops_cuda.h"
#include "examples/train_gpt/random.h"
#include "tests/fake/device.h"
#include "tests/fake/tierd.h"

#define ROWS    74 /* BATCH x CONTEXT, no multiple of the chunks of a sum */
#define BATCH   2
#define CONTEXT 37
#define WIDTH   66
#define HEADS   3
#define OUT     37
#define TOKENS  230
#define STRIDE  (CONTEXT + 1)

#define BUFFERS      8
#define ELEMENTS_MAX (ROWS * TOKENS) /* of the largest: logits */
#define TOLERANCE    1e-5

static const struct attention_shape shape = { BATCH, CONTEXT, WIDTH, HEADS };
static uint8_t tokens[BATCH * STRIDE];

/* The same buffers twice, each element equal at the start. An operation is run on both. */
static double wide[BUFFERS][ELEMENTS_MAX];
static float narrow[BUFFERS][ELEMENTS_MAX];
static struct device *device;
static const struct ops *ops;

static void setup(void)
{
	struct random random = random_stream(11, 0);

	for (size_t k = 0; k < BUFFERS; k++)
		for (size_t i = 0; i < ELEMENTS_MAX; i++) {
			narrow[k][i] = (float)random_normal(&random);
			wide[k][i] = narrow[k][i];
		}
	for (size_t i = 0; i < sizeof(tokens); i++)
		tokens[i] = (uint8_t)random_below(&random, 9) * 28; /* many twice, most never */
	openblas_set_num_threads(1); /* TSan does not see what keeps its threads apart */
	device = fake_device_open();
	ops = ops_cuda_open(device);
}

static void teardown(void)
{
	ops_cuda_close();
	device_close(device);
}

/* All of the buffers: what an operation must not touch counts as well. */
static void same(void)
{
	for (size_t k = 0; k < BUFFERS; k++)
		for (size_t i = 0; i < ELEMENTS_MAX; i++)
			ck_assert_msg(fabs(wide[k][i] - narrow[k][i]) <=
					      TOLERANCE * fmax(1, fabs(wide[k][i])),
				      "buffer %zu, element %zu: %g is %g", k, i, wide[k][i],
				      (double)narrow[k][i]);
}

START_TEST(embedding_is_that_of_the_cpu)
{
	ops_f64.embed_forward(wide[0], wide[1], wide[2], tokens, STRIDE, &shape);
	ops->embed_forward(narrow[0], narrow[1], narrow[2], tokens, STRIDE, &shape);
	ops_f64.embed_backward(wide[3], wide[4], wide[5], tokens, STRIDE, &shape);
	ops->embed_backward(narrow[3], narrow[4], narrow[5], tokens, STRIDE, &shape);
	same();
}
END_TEST

START_TEST(norm_is_that_of_the_cpu)
{
	ops_f64.norm_forward(wide[0], wide[1], wide[2], wide[3], wide[4], ROWS, WIDTH);
	ops->norm_forward(narrow[0], narrow[1], narrow[2], narrow[3], narrow[4], ROWS, WIDTH);
	same();
	ops_f64.norm_backward(wide[5], wide[6], wide[7], wide[0], wide[2], wide[1], wide[3], ROWS,
			      WIDTH);
	ops->norm_backward(narrow[5], narrow[6], narrow[7], narrow[0], narrow[2], narrow[1],
			   narrow[3], ROWS, WIDTH);
	same();
}
END_TEST

/* `bias` and `residual` may be missing. */
static void check_linear(bool bias, bool residual)
{
	ops_f64.linear_forward(wide[0], wide[1], wide[2], bias ? wide[3] : NULL,
			       residual ? wide[4] : NULL, ROWS, WIDTH, OUT);
	ops->linear_forward(narrow[0], narrow[1], narrow[2], bias ? narrow[3] : NULL,
			    residual ? narrow[4] : NULL, ROWS, WIDTH, OUT);
	same();
	ops_f64.linear_backward(wide[5], wide[6], bias ? wide[7] : NULL, wide[4], wide[1], wide[2],
				ROWS, WIDTH, OUT);
	ops->linear_backward(narrow[5], narrow[6], bias ? narrow[7] : NULL, narrow[4], narrow[1],
			     narrow[2], ROWS, WIDTH, OUT);
	same();
}

START_TEST(linear_is_that_of_the_cpu)
{
	check_linear(true, true);
	check_linear(true, false);
	check_linear(false, true);
	check_linear(false, false);
}
END_TEST

START_TEST(attention_is_that_of_the_cpu)
{
	ops_f64.attention_forward(wide[0], wide[1], wide[2], &shape);
	ops->attention_forward(narrow[0], narrow[1], narrow[2], &shape);
	same();
	ops_f64.attention_backward(wide[3], wide[4], wide[5], wide[1], wide[2], &shape);
	ops->attention_backward(narrow[3], narrow[4], narrow[5], narrow[1], narrow[2], &shape);
	memcpy(wide[4], wide[7], sizeof(wide[4])); /* scratch */
	memcpy(narrow[4], narrow[7], sizeof(narrow[4]));
	same();
}
END_TEST

START_TEST(gelu_is_that_of_the_cpu)
{
	ops_f64.gelu_forward(wide[0], wide[1], ROWS * WIDTH);
	ops->gelu_forward(narrow[0], narrow[1], ROWS * WIDTH);
	ops_f64.gelu_backward(wide[2], wide[1], ROWS * WIDTH);
	ops->gelu_backward(narrow[2], narrow[1], ROWS * WIDTH);
	same();
}
END_TEST

START_TEST(cross_entropy_is_that_of_the_cpu)
{
	double expected =
		ops_f64.cross_entropy(wide[0], tokens + 1, STRIDE, BATCH, CONTEXT, TOKENS);

	ck_assert_double_eq_tol(
		ops->cross_entropy(narrow[0], tokens + 1, STRIDE, BATCH, CONTEXT, TOKENS), expected,
		TOLERANCE);
	same();
}
END_TEST

START_TEST(cross_entropy_of_what_is_no_number_is_none)
{
	narrow[0][5] = NAN;
	ck_assert(isnan(ops->cross_entropy(narrow[0], tokens + 1, STRIDE, BATCH, CONTEXT, TOKENS)));
}
END_TEST

START_TEST(adamw_is_that_of_the_cpu)
{
	struct adamw_step step = { 0.01, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05 };

	for (size_t i = 0; i < ELEMENTS_MAX; i++) {
		narrow[2][i] = fabsf(narrow[2][i]);
		wide[2][i] = narrow[2][i];
	}
	ops_f64.adamw(wide[0], wide[1], wide[2], wide[3], ROWS * WIDTH, &step);
	ops->adamw(narrow[0], narrow[1], narrow[2], narrow[3], ROWS * WIDTH, &step);
	same();
}
END_TEST

START_TEST(clear_leaves_what_is_behind)
{
	ops_f64.clear(wide[0], 100 * sizeof(double));
	ops->clear(narrow[0], 100 * sizeof(float));
	same();
}
END_TEST

/* ---- the whole model ---- */

static const struct gpt_config tiny = {
	.layers = 2,
	.heads = 2,
	.width = 12,
	.context = 9,
	.batch = 2,
	.seed = 3,
	.rate = 0.01,
	.decay = 0.1,
};

static struct gpt_batch batch(void)
{
	static uint8_t bytes[2 * 10];

	for (uint8_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t) "the cat sat on the mat"[i];
	return (struct gpt_batch){ bytes, 10 };
}

static double difference_of(struct store *store, const struct ops *of)
{
	struct store *memory = store_open_memory();
	struct gpt *g = gpt_create(&tiny, of, store, 0, 0);
	struct gpt *reference = gpt_create(&tiny, &ops_f64, memory, TIERD_HOST, TIERD_HOST);
	struct gpt_batch b = batch();
	double worst = gpt_compare_gradients(g, reference, &b);

	store_close(store);
	store_close(memory);
	gpt_destroy(g);
	gpt_destroy(reference);
	return worst;
}

START_TEST(gradients_of_the_model_are_those_of_the_cpu)
{
	ck_assert_double_lt(difference_of(store_open_device(device), ops), 1e-5);
	for (size_t k = 0; k < KERNEL_COUNT; k++)
		ck_assert_msg((fake_device_launches()[k] > 0) == (k != KERNEL_adamw), "kernel %zu",
			      k);
}
END_TEST

static void no_slope(void *d, const void *x, size_t n)
{
}

static void no_number(void *d, const void *x, size_t n)
{
	((float *)d)[0] = NAN;
}

START_TEST(a_difference_is_found)
{
	struct ops wrong = *ops;

	wrong.gelu_backward = no_slope;
	ck_assert_double_gt(difference_of(store_open_device(device), &wrong), 0.01);
	wrong.gelu_backward = no_number;
	ck_assert_double_gt(difference_of(store_open_device(device), &wrong), 0.01);
}
END_TEST

#define STEPS 3

static void train(struct store *store, const struct ops *of, double *ret_losses)
{
	struct gpt *g = gpt_create(&tiny, of, store, 0, 0);
	struct gpt_batch b = batch();

	for (uint64_t step = 1; step <= STEPS; step++) {
		ret_losses[step - 1] = gpt_forward(g, &b);
		gpt_backward(g, &b);
		gpt_update(g, step);
	}
	store_close(store);
	gpt_destroy(g);
}

START_TEST(tierd_and_memory_have_equal_bits)
{
	double memory[STEPS], tierd[STEPS];

	train(store_open_device(device), ops, memory);
	train(store_open_tierd(NULL, device), ops, tierd);
	ck_assert_mem_eq(memory, tierd, sizeof(memory));
	ck_assert_uint_gt(fake_tierd_counts().on_stream, 0);
}
END_TEST

START_TEST(gradients_are_read_from_tierd)
{
	ck_assert_double_lt(difference_of(store_open_tierd(NULL, device), ops), 1e-5);
}
END_TEST

START_TEST(training_is_that_of_the_cpu)
{
	double losses[STEPS], expected[STEPS];

	train(store_open_device(device), ops, losses);
	train(store_open_memory(), &ops_f64, expected);
	ck_assert_double_lt(losses[STEPS - 1], losses[0]);
	for (size_t i = 0; i < STEPS; i++)
		ck_assert_double_eq_tol(losses[i], expected[i], 1e-4);
}
END_TEST

UNIT_MAIN_WITH(setup, teardown, "gpt_kernels", embedding_is_that_of_the_cpu,
	       norm_is_that_of_the_cpu, linear_is_that_of_the_cpu, attention_is_that_of_the_cpu,
	       gelu_is_that_of_the_cpu, cross_entropy_is_that_of_the_cpu,
	       cross_entropy_of_what_is_no_number_is_none, adamw_is_that_of_the_cpu,
	       clear_leaves_what_is_behind, gradients_of_the_model_are_those_of_the_cpu,
	       a_difference_is_found, tierd_and_memory_have_equal_bits,
	       gradients_are_read_from_tierd, training_is_that_of_the_cpu)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Are the gradients right? For random elements of every kind of parameter the backward's value is
 * compared with the central difference of two forwards, in double, through the same store. Where
 * the arithmetic is that of floats, all gradients are compared with those that another model of the
 * same configuration has in double.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/train_gpt/fatal.h"
#include "examples/train_gpt/model.h"
#include "examples/train_gpt/random.h"

/* Of a third derivative near 1 this leaves an error of 1e-11, of rounding one of 1e-11 as well. */
#define STEP 1e-5
/* Gradients smaller than this are compared absolutely: their differences are all rounding. */
#define FLOOR 1e-4

/* Element i becomes `value`; returns what it was. */
static double exchange(struct gpt *g, struct tensor *t, size_t i, double value)
{
	struct use u = use_update(t);
	double old;

	store_acquire(g->store, g->place, &u, 1);
	old = g->ops->get(u.data, i);
	g->ops->set(u.data, i, value);
	store_release(g->store, &u, 1);
	return old;
}

static double element(struct gpt *g, struct tensor *t, size_t i)
{
	struct use u = use_read(t);
	double value;

	store_acquire(g->store, g->place, &u, 1);
	value = g->ops->get(u.data, i);
	store_release(g->store, &u, 1);
	return value;
}

static double element_error(struct gpt *g, const struct gpt_batch *batch, struct param *p, size_t i)
{
	double gradient = element(g, &p->gradient, i), value = element(g, &p->value, i);
	double above, below, difference;

	exchange(g, &p->value, i, value + STEP);
	above = gpt_forward(g, batch);
	exchange(g, &p->value, i, value - STEP);
	below = gpt_forward(g, batch);
	exchange(g, &p->value, i, value);
	difference = (above - below) / (2 * STEP);
	return fabs(gradient - difference) / fmax(fmax(fabs(gradient), fabs(difference)), FLOOR);
}

/* A token's row only has a gradient through the embedding where the batch has the token. */
static size_t pick_element(const struct gpt *g, const struct gpt_batch *batch,
			   const struct param *p, struct random *random)
{
	uint64_t row = random_below(random, p->value.rows);

	if (p == &g->params[PARAM_TOKENS])
		row = batch->bytes[random_below(random, g->config.context)];
	return row * p->value.columns + random_below(random, p->value.columns);
}

/* The worst of `samples` elements of one kind, each in a random layer. */
static double kind_error(struct gpt *g, const struct gpt_batch *batch, unsigned kind,
			 unsigned samples)
{
	struct random random = random_stream(g->config.seed, 0x10000 + kind);
	double worst = 0;

	for (unsigned i = 0; i < samples; i++) {
		uint64_t layer = random_below(&random, g->config.layers);
		struct param *p = kind < MODEL_PARAM_COUNT
					  ? &g->params[kind]
					  : &g->blocks[layer].params[kind - MODEL_PARAM_COUNT];

		worst = fmax(worst, element_error(g, batch, p, pick_element(g, batch, p, &random)));
	}
	return worst;
}

static void print_kind(struct gpt *g, unsigned kind, const char *what, size_t count, double error)
{
	printf("gradient kind=%s%s %s=%zu relative_error=%.2e\n",
	       kind < MODEL_PARAM_COUNT ? "" : "block.", gpt_param(g, kind)->row->name, what, count,
	       error);
	fflush(stdout);
}

double gpt_check_gradients(struct gpt *g, const struct gpt_batch *batch, unsigned samples)
{
	double worst = 0;

	REQUIRE(g->ops->element_bytes == sizeof(double));
	gpt_forward(g, batch);
	gpt_backward(g, batch);
	for (unsigned kind = 0; kind < MODEL_PARAM_COUNT + BLOCK_PARAM_COUNT; kind++) {
		double error = kind_error(g, batch, kind, samples);

		print_kind(g, kind, "samples", samples, error);
		worst = fmax(worst, error);
	}
	return worst;
}

/* The whole gradient in host memory; free() it. */
static void *read_gradient(struct gpt *g, struct param *p)
{
	void *to = malloc(p->gradient.bytes);

	if (to == NULL)
		fatal("%s: out of memory", p->gradient.name);
	store_read(g->store, g->place, &p->gradient, to);
	return to;
}

static double param_difference(struct gpt *g, struct gpt *reference, size_t i)
{
	struct param *p = gpt_param(g, i), *q = gpt_param(reference, i);
	void *own = read_gradient(g, p), *other = read_gradient(reference, q);
	double largest = FLOOR, worst = 0;

	for (size_t k = 0; k < p->value.rows * p->value.columns; k++) {
		double expected = reference->ops->get(other, k), difference;

		largest = fmax(largest, fabs(expected));
		difference = fabs(g->ops->get(own, k) - expected);
		/* fmax() drops what is not a number, which would look like no difference. */
		worst = fmax(worst, isnan(difference) ? HUGE_VAL : difference);
	}
	free(own);
	free(other);
	return worst / largest;
}

/* The worst of all layers. */
static double kind_difference(struct gpt *g, struct gpt *reference, unsigned kind)
{
	double worst = 0;

	if (kind < MODEL_PARAM_COUNT)
		return param_difference(g, reference, kind);
	for (uint64_t layer = 0; layer < g->config.layers; layer++)
		worst = fmax(worst,
			     param_difference(g, reference, kind + layer * BLOCK_PARAM_COUNT));
	return worst;
}

static double batch_loss(struct gpt *g, const struct gpt_batch *batch)
{
	double loss = gpt_forward(g, batch);

	gpt_backward(g, batch);
	g->ops->wait();
	return loss;
}

double gpt_compare_gradients(struct gpt *g, struct gpt *reference, const struct gpt_batch *batch)
{
	double loss = batch_loss(g, batch), expected = batch_loss(reference, batch);
	double worst = fabs(loss - expected) / expected;

	REQUIRE(gpt_param_count(g) == gpt_param_count(reference));
	if (isnan(worst))
		worst = HUGE_VAL;
	printf("loss=%.6f expected=%.6f relative_error=%.2e\n", loss, expected, worst);
	for (unsigned kind = 0; kind < MODEL_PARAM_COUNT + BLOCK_PARAM_COUNT; kind++) {
		double error = kind_difference(g, reference, kind);

		print_kind(g, kind, "elements",
			   gpt_param(g, kind)->value.rows * gpt_param(g, kind)->value.columns,
			   error);
		worst = fmax(worst, error);
	}
	return worst;
}

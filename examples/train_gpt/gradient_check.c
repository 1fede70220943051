/* SPDX-License-Identifier: Apache-2.0
 *
 * Are the gradients right? For random elements of every kind of parameter the backward's value is
 * compared with the central difference of two forwards, in double, through the same store.
 */
#include <math.h>
#include <stdio.h>

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

double gpt_check_gradients(struct gpt *g, const struct gpt_batch *batch, unsigned samples)
{
	double worst = 0;

	REQUIRE(g->ops->element_bytes == sizeof(double));
	gpt_forward(g, batch);
	gpt_backward(g, batch);
	for (unsigned kind = 0; kind < MODEL_PARAM_COUNT + BLOCK_PARAM_COUNT; kind++) {
		double error = kind_error(g, batch, kind, samples);

		printf("gradient kind=%s%s samples=%u relative_error=%.2e\n",
		       kind < MODEL_PARAM_COUNT ? "" : "block.", gpt_param(g, kind)->row->name,
		       samples, error);
		fflush(stdout);
		worst = fmax(worst, error);
	}
	return worst;
}

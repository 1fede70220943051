/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer step: AdamW, one parameter at a time, the next ones' four tensors on their way.
 */
#include <math.h>

#include "examples/train_gpt/model.h"

#define BETA1   0.9
#define BETA2   0.95
#define EPSILON 1e-8

/* In two stages, as the blocks (model.c). Every other parameter is a small one. */
#define PARAMS_AHEAD      2
#define PARAMS_AHEAD_HOST 8

static void prefetch_param(struct gpt *g, int place, size_t i)
{
	struct param *p = gpt_param(g, i);
	struct tensor *next[] = { &p->value, &p->gradient, &p->moment1, &p->moment2 };

	store_prefetch(g->store, place, next, sizeof(next) / sizeof(next[0]));
}

/* Until the next step's update nobody asks for the moments: they are the furthest away of all. */
static void evict_moments(struct gpt *g, struct param *p)
{
	struct tensor *done[] = { &p->moment1, &p->moment2 };

	store_evict(g->store, done, sizeof(done) / sizeof(done[0]));
}

static void look_ahead(struct gpt *g, size_t i)
{
	size_t left = gpt_param_count(g) - 1 - i;

	if (left >= PARAMS_AHEAD)
		prefetch_param(g, g->update_place, i + PARAMS_AHEAD);
	if (left >= PARAMS_AHEAD_HOST && g->update_place != TIERD_HOST)
		prefetch_param(g, TIERD_HOST, i + PARAMS_AHEAD_HOST);
}

static void param_update(struct gpt *g, struct param *p, const struct adamw_step *step)
{
	struct adamw_step own = *step;
	struct use u[] = {
		use_update(&p->value),
		use_update(&p->moment1),
		use_update(&p->moment2),
		use_read(&p->gradient),
	};

	if (!p->row->decays)
		own.decay = 0;
	store_acquire(g->store, g->update_place, u, 4);
	g->ops->adamw(u[0].data, u[1].data, u[2].data, u[3].data, p->value.rows * p->value.columns,
		      &own);
	store_release(g->store, u, 4);
	evict_moments(g, p);
}

void gpt_update(struct gpt *g, uint64_t step)
{
	struct adamw_step s = {
		.rate = g->config.rate,
		.beta1 = BETA1,
		.beta2 = BETA2,
		.epsilon = EPSILON,
		.decay = g->config.decay,
		.correction1 = 1 - pow(BETA1, (double)step),
		.correction2 = 1 - pow(BETA2, (double)step),
	};
	size_t n = gpt_param_count(g);

	for (size_t i = 0; i < n; i++) {
		look_ahead(g, i);
		param_update(g, gpt_param(g, i), &s);
	}
	store_step(g->store);
}

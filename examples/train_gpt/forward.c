/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward: each operation takes its tensors, computes and gives them back. While a block
 * computes, the next ones' parameters are on their way.
 */
#include "examples/train_gpt/model.h"

#define COUNT(uses) (sizeof(uses) / sizeof((uses)[0]))

static void embed(struct gpt *g, const struct gpt_batch *batch)
{
	struct use u[] = {
		use_overwrite(&g->activations[ACT_EMBEDDED]),
		use_read(&g->params[PARAM_TOKENS].value),
		use_read(&g->params[PARAM_POSITIONS].value),
	};

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->embed_forward(u[0].data, u[1].data, u[2].data, batch->bytes, batch->stride,
			      &g->shape);
	store_release(g->store, u, COUNT(u));
}

static void norm(struct gpt *g, struct tensor *y, struct tensor *stats, struct tensor *x,
		 struct param *gain, struct param *bias)
{
	struct use u[] = {
		use_overwrite(y),       use_overwrite(stats),   use_read(x),
		use_read(&gain->value), use_read(&bias->value),
	};

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->norm_forward(u[0].data, u[1].data, u[2].data, u[3].data, u[4].data, x->rows,
			     x->columns);
	store_release(g->store, u, COUNT(u));
}

/* `bias` and `residual` may be NULL. */
static void linear(struct gpt *g, struct tensor *y, struct tensor *x, struct param *weight,
		   struct param *bias, struct tensor *residual)
{
	struct use u[] = {
		use_overwrite(y),         use_read(x),
		use_read(&weight->value), use_read(bias != NULL ? &bias->value : NULL),
		use_read(residual),
	};

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->linear_forward(u[0].data, u[1].data, u[2].data, u[3].data, u[4].data, x->rows,
			       x->columns, y->columns);
	store_release(g->store, u, COUNT(u));
}

static void attention(struct gpt *g, struct tensor *y, struct tensor *probability,
		      struct tensor *qkv)
{
	struct use u[] = { use_overwrite(y), use_overwrite(probability), use_read(qkv) };

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->attention_forward(u[0].data, u[1].data, u[2].data, &g->shape);
	store_release(g->store, u, COUNT(u));
}

static void gelu(struct gpt *g, struct tensor *y, struct tensor *x)
{
	struct use u[] = { use_overwrite(y), use_read(x) };

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->gelu_forward(u[0].data, u[1].data, x->rows * x->columns);
	store_release(g->store, u, COUNT(u));
}

static void block_forward(struct gpt *g, uint64_t layer)
{
	struct param *p = g->blocks[layer].params;
	struct tensor *a = g->blocks[layer].activations;
	struct tensor *x = gpt_block_input(g, layer);

	norm(g, &a[BLOCK_ACT_NORM1], &a[BLOCK_ACT_NORM1_STATS], x, &p[BLOCK_NORM1_GAIN],
	     &p[BLOCK_NORM1_BIAS]);
	linear(g, &a[BLOCK_ACT_QKV], &a[BLOCK_ACT_NORM1], &p[BLOCK_QKV_WEIGHT], &p[BLOCK_QKV_BIAS],
	       NULL);
	attention(g, &a[BLOCK_ACT_ATTENDED], &a[BLOCK_ACT_PROBABILITY], &a[BLOCK_ACT_QKV]);
	linear(g, &a[BLOCK_ACT_MIDDLE], &a[BLOCK_ACT_ATTENDED], &p[BLOCK_PROJ_WEIGHT],
	       &p[BLOCK_PROJ_BIAS], x);
	norm(g, &a[BLOCK_ACT_NORM2], &a[BLOCK_ACT_NORM2_STATS], &a[BLOCK_ACT_MIDDLE],
	     &p[BLOCK_NORM2_GAIN], &p[BLOCK_NORM2_BIAS]);
	linear(g, &a[BLOCK_ACT_FC], &a[BLOCK_ACT_NORM2], &p[BLOCK_FC_WEIGHT], &p[BLOCK_FC_BIAS],
	       NULL);
	gelu(g, &a[BLOCK_ACT_GELU], &a[BLOCK_ACT_FC]);
	linear(g, &a[BLOCK_ACT_END], &a[BLOCK_ACT_GELU], &p[BLOCK_OUT_WEIGHT], &p[BLOCK_OUT_BIAS],
	       &a[BLOCK_ACT_MIDDLE]);
}

static double loss(struct gpt *g, const struct gpt_batch *batch)
{
	struct use u[] = { use_update(&g->activations[ACT_LOGITS]) };
	double mean;

	store_acquire(g->store, g->place, u, COUNT(u));
	mean = g->ops->cross_entropy(u[0].data, batch->bytes + 1, batch->stride, g->shape.batch,
				     g->shape.context, GPT_VOCABULARY);
	store_release(g->store, u, COUNT(u));
	return mean;
}

double gpt_forward(struct gpt *g, const struct gpt_batch *batch)
{
	struct tensor *a = g->activations;

	embed(g, batch);
	for (uint64_t layer = 0; layer < g->config.layers; layer++) {
		gpt_look_ahead(g, layer, false);
		block_forward(g, layer);
	}
	norm(g, &a[ACT_NORM], &a[ACT_NORM_STATS], gpt_block_input(g, g->config.layers),
	     &g->params[PARAM_NORM_GAIN], &g->params[PARAM_NORM_BIAS]);
	linear(g, &a[ACT_LOGITS], &a[ACT_NORM], &g->params[PARAM_TOKENS], NULL, NULL);
	return loss(g, batch);
}

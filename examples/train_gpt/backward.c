/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward, from the loss to the embeddings. d.stream is the gradient of the residual stream;
 * it passes a block unchanged but for what the two branches add. Every gradient of a parameter is
 * overwritten, so that none has to be brought back from below; the token table's is written by the
 * head first and added to by the embedding last.
 */
#include "examples/train_gpt/model.h"

#define COUNT(uses) (sizeof(uses) / sizeof((uses)[0]))

/* dx =; x is what the forward read, dy the gradient of what it wrote. `bias` may be NULL. */
static void linear_backward(struct gpt *g, struct tensor *dx, struct tensor *dy, struct tensor *x,
			    struct param *weight, struct param *bias)
{
	struct use u[] = {
		use_overwrite(dx),
		use_overwrite(&weight->gradient),
		use_overwrite(bias != NULL ? &bias->gradient : NULL),
		use_read(dy),
		use_read(x),
		use_read(&weight->value),
	};

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->linear_backward(u[0].data, u[1].data, u[2].data, u[3].data, u[4].data, u[5].data,
				x->rows, x->columns, dy->columns);
	store_release(g->store, u, COUNT(u));
}

/* Adds to d.stream. */
static void norm_backward(struct gpt *g, struct tensor *x, struct tensor *stats, struct param *gain,
			  struct param *bias)
{
	struct use u[] = {
		use_update(&g->activations[ACT_D_STREAM]),
		use_overwrite(&gain->gradient),
		use_overwrite(&bias->gradient),
		use_read(&g->activations[ACT_D_NORM]),
		use_read(x),
		use_read(stats),
		use_read(&gain->value),
	};

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->norm_backward(u[0].data, u[1].data, u[2].data, u[3].data, u[4].data, u[5].data,
			      u[6].data, x->rows, x->columns);
	store_release(g->store, u, COUNT(u));
}

/* d.norm, which holds the gradient of what attention wrote, becomes d.qkv. */
static void attention_backward(struct gpt *g, struct tensor *probability, struct tensor *qkv)
{
	struct use u[] = {
		use_overwrite(&g->activations[ACT_D_QKV]),
		use_overwrite(&g->activations[ACT_D_SCORES]),
		use_read(&g->activations[ACT_D_NORM]),
		use_read(probability),
		use_read(qkv),
	};

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->attention_backward(u[0].data, u[1].data, u[2].data, u[3].data, u[4].data,
				   &g->shape);
	store_release(g->store, u, COUNT(u));
}

static void gelu_backward(struct gpt *g, struct tensor *d, struct tensor *x)
{
	struct use u[] = { use_update(d), use_read(x) };

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->gelu_backward(u[0].data, u[1].data, x->rows * x->columns);
	store_release(g->store, u, COUNT(u));
}

static void block_backward(struct gpt *g, uint64_t layer)
{
	struct param *p = g->blocks[layer].params;
	struct tensor *a = g->blocks[layer].activations, *d = g->activations;

	linear_backward(g, &d[ACT_D_FC], &d[ACT_D_STREAM], &a[BLOCK_ACT_GELU], &p[BLOCK_OUT_WEIGHT],
			&p[BLOCK_OUT_BIAS]);
	gelu_backward(g, &d[ACT_D_FC], &a[BLOCK_ACT_FC]);
	linear_backward(g, &d[ACT_D_NORM], &d[ACT_D_FC], &a[BLOCK_ACT_NORM2], &p[BLOCK_FC_WEIGHT],
			&p[BLOCK_FC_BIAS]);
	norm_backward(g, &a[BLOCK_ACT_MIDDLE], &a[BLOCK_ACT_NORM2_STATS], &p[BLOCK_NORM2_GAIN],
		      &p[BLOCK_NORM2_BIAS]);
	linear_backward(g, &d[ACT_D_NORM], &d[ACT_D_STREAM], &a[BLOCK_ACT_ATTENDED],
			&p[BLOCK_PROJ_WEIGHT], &p[BLOCK_PROJ_BIAS]);
	attention_backward(g, &a[BLOCK_ACT_PROBABILITY], &a[BLOCK_ACT_QKV]);
	linear_backward(g, &d[ACT_D_NORM], &d[ACT_D_QKV], &a[BLOCK_ACT_NORM1], &p[BLOCK_QKV_WEIGHT],
			&p[BLOCK_QKV_BIAS]);
	norm_backward(g, gpt_block_input(g, layer), &a[BLOCK_ACT_NORM1_STATS], &p[BLOCK_NORM1_GAIN],
		      &p[BLOCK_NORM1_BIAS]);
}

/* The stream's gradient starts as nothing; the final norm is the first to add to it. */
static void stream_clear(struct gpt *g)
{
	struct tensor *stream = &g->activations[ACT_D_STREAM];
	struct use u[] = { use_overwrite(stream) };

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->clear(u[0].data, stream->bytes);
	store_release(g->store, u, COUNT(u));
}

static void embed_backward(struct gpt *g, const struct gpt_batch *batch)
{
	struct use u[] = {
		use_update(&g->params[PARAM_TOKENS].gradient),
		use_overwrite(&g->params[PARAM_POSITIONS].gradient),
		use_read(&g->activations[ACT_D_STREAM]),
	};

	store_acquire(g->store, g->place, u, COUNT(u));
	g->ops->embed_backward(u[0].data, u[1].data, u[2].data, batch->bytes, batch->stride,
			       &g->shape);
	store_release(g->store, u, COUNT(u));
}

void gpt_backward(struct gpt *g, const struct gpt_batch *batch)
{
	struct tensor *a = g->activations;

	linear_backward(g, &a[ACT_D_NORM], &a[ACT_LOGITS], &a[ACT_NORM], &g->params[PARAM_TOKENS],
			NULL);
	stream_clear(g);
	norm_backward(g, gpt_block_input(g, g->config.layers), &a[ACT_NORM_STATS],
		      &g->params[PARAM_NORM_GAIN], &g->params[PARAM_NORM_BIAS]);
	for (uint64_t layer = g->config.layers; layer-- > 0;) {
		gpt_look_ahead(g, layer, true);
		block_backward(g, layer);
	}
	embed_backward(g, batch);
}

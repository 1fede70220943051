/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/train_gpt/fatal.h"
#include "examples/train_gpt/random.h"

struct activation_row {
	const char *name;
	enum gpt_dim rows, columns;
};

#define X(id, name, rows, columns, init, decays) { name, rows, columns, init, decays },
static const struct param_row model_params[] = { MODEL_PARAMETERS(X) };
static const struct param_row block_params[] = { BLOCK_PARAMETERS(X) };
#undef X
#define X(id, name, rows, columns) { name, rows, columns },
static const struct activation_row model_activations[] = { MODEL_ACTIVATIONS(X) };
static const struct activation_row block_activations[] = { BLOCK_ACTIVATIONS(X) };
#undef X

static uint64_t dim(const struct gpt_config *c, enum gpt_dim d)
{
	switch (d) {
	case DIM_ONE:
		return 1;
	case DIM_TWO:
		return 2;
	case DIM_WIDTH:
		return c->width;
	case DIM_WIDTH_3:
		return 3 * c->width;
	case DIM_WIDTH_4:
		return 4 * c->width;
	case DIM_VOCABULARY:
		return GPT_VOCABULARY;
	case DIM_CONTEXT:
		return c->context;
	case DIM_ROWS:
		return c->batch * c->context;
	case DIM_HEAD_ROWS:
		return c->heads * c->context;
	case DIM_PROBABILITY_ROWS:
		return c->batch * c->heads * c->context;
	}
	fatal("dimension %d is none", (int)d);
}

/* "block3.fc.weight.gradient"; layer < 0: of the model itself. */
static void tensor_init(struct gpt *g, struct tensor *t, int layer, const char *name,
			const char *suffix, enum tierd_class class_, uint64_t rows,
			uint64_t columns)
{
	int written;

	if (layer < 0)
		written = snprintf(t->name, sizeof(t->name), "%s%s", name, suffix);
	else
		written = snprintf(t->name, sizeof(t->name), "block%d.%s%s", layer, name, suffix);
	REQUIRE(written > 0 && (size_t)written < sizeof(t->name));
	t->class_ = class_;
	t->rows = rows;
	t->columns = columns;
	g->tensors[g->tensor_count++] = t;
}

static void param_init(struct gpt *g, struct param *p, int layer, const struct param_row *row)
{
	uint64_t rows = dim(&g->config, row->rows), columns = dim(&g->config, row->columns);

	p->row = row;
	tensor_init(g, &p->value, layer, row->name, "", TIERD_PARAMETER, rows, columns);
	tensor_init(g, &p->gradient, layer, row->name, ".gradient", TIERD_GRADIENT, rows, columns);
	tensor_init(g, &p->moment1, layer, row->name, ".moment1", TIERD_OPTIMIZER, rows, columns);
	tensor_init(g, &p->moment2, layer, row->name, ".moment2", TIERD_OPTIMIZER, rows, columns);
}

static void activation_init(struct gpt *g, struct tensor *t, int layer,
			    const struct activation_row *row)
{
	tensor_init(g, t, layer, row->name, "", TIERD_ACTIVATION, dim(&g->config, row->rows),
		    dim(&g->config, row->columns));
}

static void tensors_init(struct gpt *g)
{
	size_t count = 4 * MODEL_PARAM_COUNT + MODEL_ACT_COUNT +
		       g->config.layers * (4 * BLOCK_PARAM_COUNT + BLOCK_ACT_COUNT);

	g->tensors = calloc(count, sizeof(struct tensor *));
	g->blocks = calloc(g->config.layers, sizeof(*g->blocks));
	if (g->tensors == NULL || g->blocks == NULL)
		fatal("model: out of memory");
	for (size_t i = 0; i < MODEL_PARAM_COUNT; i++)
		param_init(g, &g->params[i], -1, &model_params[i]);
	for (size_t i = 0; i < MODEL_ACT_COUNT; i++)
		activation_init(g, &g->activations[i], -1, &model_activations[i]);
	for (int layer = 0; layer < (int)g->config.layers; layer++) {
		struct block *b = &g->blocks[layer];

		for (size_t i = 0; i < BLOCK_PARAM_COUNT; i++)
			param_init(g, &b->params[i], layer, &block_params[i]);
		for (size_t i = 0; i < BLOCK_ACT_COUNT; i++)
			activation_init(g, &b->activations[i], layer, &block_activations[i]);
	}
	REQUIRE(g->tensor_count == count);
}

/* Each parameter draws from a stream of its own: its values depend on the seed and its place only.
 */
static void param_fill(struct gpt *g, struct param *p, uint64_t stream)
{
	void *values = malloc(p->value.bytes);
	struct random random = random_stream(g->config.seed, stream);
	double deviation = 0.02;

	if (p->row->init == INIT_RESIDUAL)
		deviation /= sqrt(2.0 * (double)g->config.layers);
	if (values == NULL)
		fatal("%s: out of memory", p->value.name);
	for (size_t i = 0; i < p->value.rows * p->value.columns; i++) {
		double value = p->row->init == INIT_ONE ? 1.0 : 0.0;

		if (p->row->init == INIT_NORMAL || p->row->init == INIT_RESIDUAL)
			value = deviation * random_normal(&random);
		g->ops->set(values, i, value);
	}
	store_write(g->store, g->place, &p->value, values);
	free(values);
}

struct gpt *gpt_create(const struct gpt_config *config, const struct ops *ops, struct store *store,
		       int place, int update_place)
{
	struct gpt *g = calloc(1, sizeof(*g));

	if (g == NULL)
		fatal("model: out of memory");
	REQUIRE(config->width % config->heads == 0);
	g->config = *config;
	g->shape = (struct attention_shape){ config->batch, config->context, config->width,
					     config->heads };
	g->ops = ops;
	g->store = store;
	g->place = place;
	g->update_place = update_place;
	tensors_init(g);
	store_create(store, g->tensors, g->tensor_count, (unsigned)ops->element_bytes);
	for (size_t i = 0; i < gpt_param_count(g); i++)
		param_fill(g, gpt_param(g, i), i);
	return g;
}

void gpt_destroy(struct gpt *g)
{
	if (g == NULL)
		return;
	free(g->tensors);
	free(g->blocks);
	free(g);
}

size_t gpt_param_count(const struct gpt *g)
{
	return MODEL_PARAM_COUNT + g->config.layers * BLOCK_PARAM_COUNT;
}

struct param *gpt_param(struct gpt *g, size_t i)
{
	if (i < MODEL_PARAM_COUNT)
		return &g->params[i];
	i -= MODEL_PARAM_COUNT;
	return &g->blocks[i / BLOCK_PARAM_COUNT].params[i % BLOCK_PARAM_COUNT];
}

uint64_t gpt_parameters(const struct gpt *g)
{
	return gpt_class_bytes(g, TIERD_PARAMETER) / g->ops->element_bytes;
}

uint64_t gpt_class_bytes(const struct gpt *g, enum tierd_class class_)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < g->tensor_count; i++)
		if (g->tensors[i]->class_ == class_)
			bytes += g->tensors[i]->bytes;
	return bytes;
}

struct tensor *gpt_block_input(struct gpt *g, uint64_t layer)
{
	return layer == 0 ? &g->activations[ACT_EMBEDDED]
			  : &g->blocks[layer - 1].activations[BLOCK_ACT_END];
}

static void prefetch_block(struct gpt *g, int place, uint64_t layer, bool backward)
{
	struct tensor *next[BLOCK_PARAM_COUNT + BLOCK_ACT_COUNT];
	struct block *b = &g->blocks[layer];
	size_t n = 0;

	/* The backward runs through the block from its end. */
	for (size_t i = 0; i < BLOCK_PARAM_COUNT; i++)
		next[n++] = &b->params[backward ? BLOCK_PARAM_COUNT - 1 - i : i].value;
	for (size_t i = 0; backward && i < BLOCK_ACT_COUNT; i++)
		if (i != BLOCK_ACT_END)
			next[n++] = &b->activations[BLOCK_ACT_COUNT - 1 - i];
	store_prefetch(g->store, place, next, n);
}

/* Two stages: a block early into the place where it computes, and earlier still from the disk into
 * host memory. What is hinted for the host must be far enough to have left the place already, or
 * the hint would take it out of there. */
#define BLOCKS_AHEAD      1
#define BLOCKS_AHEAD_HOST 3

void gpt_look_ahead(struct gpt *g, uint64_t layer, bool backward)
{
	uint64_t left = backward ? layer : g->config.layers - 1 - layer;

	if (left >= BLOCKS_AHEAD)
		prefetch_block(g, g->place, backward ? layer - BLOCKS_AHEAD : layer + BLOCKS_AHEAD,
			       backward);
	if (left >= BLOCKS_AHEAD_HOST && g->place != TIERD_HOST)
		prefetch_block(g, TIERD_HOST,
			       backward ? layer - BLOCKS_AHEAD_HOST : layer + BLOCKS_AHEAD_HOST,
			       backward);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPT: which tensors it has and what one training step does with them. Every parameter,
 * gradient, moment and activation is a tensor of a store; nothing of the model's data lives
 * outside. Residual stream x: x += proj(attention(norm1(x))), x += out(gelu(fc(norm2(x)))), a
 * block; after the last, norm and the token table again as the head.
 *
 * Files: model.c tables, creation, initial values · forward.c · backward.c · update.c AdamW ·
 * gradient_check.c finite differences. One thread.
 */
#ifndef TRAIN_GPT_MODEL_H
#define TRAIN_GPT_MODEL_H

#include <stdint.h>

#include "examples/train_gpt/ops.h"
#include "examples/train_gpt/store.h"

#define GPT_VOCABULARY 256 /* bytes */

struct gpt_config {
	uint64_t layers, heads, width, context, batch;
	uint64_t seed;
	double rate, decay;
};

/* A factor of a shape; model.c has what each stands for. */
enum gpt_dim {
	DIM_ONE,
	DIM_TWO,
	DIM_WIDTH,
	DIM_WIDTH_3,
	DIM_WIDTH_4,
	DIM_VOCABULARY,
	DIM_CONTEXT,
	DIM_ROWS,             /* batch x context */
	DIM_HEAD_ROWS,        /* heads x context */
	DIM_PROBABILITY_ROWS, /* batch x heads x context */
};

enum gpt_init {
	INIT_ZERO,
	INIT_ONE,
	INIT_NORMAL,
	INIT_RESIDUAL, /* normal, made small by the number of layers that add to the stream */
};

/* X(id, "name", rows, columns, initial value, decays): gains, biases and positions do not decay. */
#define MODEL_PARAMETERS(X)                                               \
	X(TOKENS, "tokens", DIM_VOCABULARY, DIM_WIDTH, INIT_NORMAL, 1)    \
	X(POSITIONS, "positions", DIM_CONTEXT, DIM_WIDTH, INIT_NORMAL, 0) \
	X(NORM_GAIN, "norm.gain", DIM_ONE, DIM_WIDTH, INIT_ONE, 0)        \
	X(NORM_BIAS, "norm.bias", DIM_ONE, DIM_WIDTH, INIT_ZERO, 0)

#define BLOCK_PARAMETERS(X)                                                   \
	X(NORM1_GAIN, "norm1.gain", DIM_ONE, DIM_WIDTH, INIT_ONE, 0)          \
	X(NORM1_BIAS, "norm1.bias", DIM_ONE, DIM_WIDTH, INIT_ZERO, 0)         \
	X(QKV_WEIGHT, "qkv.weight", DIM_WIDTH_3, DIM_WIDTH, INIT_NORMAL, 1)   \
	X(QKV_BIAS, "qkv.bias", DIM_ONE, DIM_WIDTH_3, INIT_ZERO, 0)           \
	X(PROJ_WEIGHT, "proj.weight", DIM_WIDTH, DIM_WIDTH, INIT_RESIDUAL, 1) \
	X(PROJ_BIAS, "proj.bias", DIM_ONE, DIM_WIDTH, INIT_ZERO, 0)           \
	X(NORM2_GAIN, "norm2.gain", DIM_ONE, DIM_WIDTH, INIT_ONE, 0)          \
	X(NORM2_BIAS, "norm2.bias", DIM_ONE, DIM_WIDTH, INIT_ZERO, 0)         \
	X(FC_WEIGHT, "fc.weight", DIM_WIDTH_4, DIM_WIDTH, INIT_NORMAL, 1)     \
	X(FC_BIAS, "fc.bias", DIM_ONE, DIM_WIDTH_4, INIT_ZERO, 0)             \
	X(OUT_WEIGHT, "out.weight", DIM_WIDTH, DIM_WIDTH_4, INIT_RESIDUAL, 1) \
	X(OUT_BIAS, "out.bias", DIM_ONE, DIM_WIDTH, INIT_ZERO, 0)

/* X(id, "name", rows, columns). D_*: gradients of activations, shared by all blocks. */
#define MODEL_ACTIVATIONS(X)                           \
	X(EMBEDDED, "embedded", DIM_ROWS, DIM_WIDTH)   \
	X(NORM, "norm", DIM_ROWS, DIM_WIDTH)           \
	X(NORM_STATS, "norm.stats", DIM_ROWS, DIM_TWO) \
	X(LOGITS, "logits", DIM_ROWS, DIM_VOCABULARY)  \
	X(D_STREAM, "d.stream", DIM_ROWS, DIM_WIDTH)   \
	X(D_NORM, "d.norm", DIM_ROWS, DIM_WIDTH)       \
	X(D_QKV, "d.qkv", DIM_ROWS, DIM_WIDTH_3)       \
	X(D_FC, "d.fc", DIM_ROWS, DIM_WIDTH_4)         \
	X(D_SCORES, "d.scores", DIM_HEAD_ROWS, DIM_CONTEXT)

#define BLOCK_ACTIVATIONS(X)                                             \
	X(NORM1, "norm1", DIM_ROWS, DIM_WIDTH)                           \
	X(NORM1_STATS, "norm1.stats", DIM_ROWS, DIM_TWO)                 \
	X(QKV, "qkv", DIM_ROWS, DIM_WIDTH_3)                             \
	X(PROBABILITY, "probability", DIM_PROBABILITY_ROWS, DIM_CONTEXT) \
	X(ATTENDED, "attended", DIM_ROWS, DIM_WIDTH)                     \
	X(MIDDLE, "middle", DIM_ROWS, DIM_WIDTH)                         \
	X(NORM2, "norm2", DIM_ROWS, DIM_WIDTH)                           \
	X(NORM2_STATS, "norm2.stats", DIM_ROWS, DIM_TWO)                 \
	X(FC, "fc", DIM_ROWS, DIM_WIDTH_4)                               \
	X(GELU, "gelu", DIM_ROWS, DIM_WIDTH_4)                           \
	X(END, "end", DIM_ROWS, DIM_WIDTH)

#define X(id, ...) PARAM_##id,
enum model_param { MODEL_PARAMETERS(X) MODEL_PARAM_COUNT };
#undef X
#define X(id, ...) BLOCK_##id,
enum block_param { BLOCK_PARAMETERS(X) BLOCK_PARAM_COUNT };
#undef X
#define X(id, ...) ACT_##id,
enum model_activation { MODEL_ACTIVATIONS(X) MODEL_ACT_COUNT };
#undef X
#define X(id, ...) BLOCK_ACT_##id,
enum block_activation { BLOCK_ACTIVATIONS(X) BLOCK_ACT_COUNT };
#undef X

struct param_row {
	const char *name;
	enum gpt_dim rows, columns;
	enum gpt_init init;
	int decays;
};

struct param {
	const struct param_row *row;
	struct tensor value, gradient, moment1, moment2;
};

struct block {
	struct param params[BLOCK_PARAM_COUNT];
	struct tensor activations[BLOCK_ACT_COUNT];
};

struct gpt {
	struct gpt_config config;
	struct attention_shape shape;
	const struct ops *ops;
	struct store *store;
	int place, update_place; /* of the layers, of the optimizer: TIERD_HOST or a GPU */
	struct param params[MODEL_PARAM_COUNT];
	struct tensor activations[MODEL_ACT_COUNT];
	struct block *blocks;
	struct tensor **tensors; /* all of them */
	size_t tensor_count;
};

/* A batch of windows of bytes: `batch` rows of context + 1; the targets are one byte later. */
struct gpt_batch {
	const uint8_t *bytes;
	size_t stride;
};

/* Creates the tensors in `store` and fills the parameters; ends the program where that fails. */
struct gpt *gpt_create(const struct gpt_config *config, const struct ops *ops, struct store *store,
		       int place, int update_place);
/* The tensors go with the store: close it first. */
void gpt_destroy(struct gpt *g);

/* Forward: the mean loss; leaves all that the backward needs. */
double gpt_forward(struct gpt *g, const struct gpt_batch *batch);
/* Overwrites every gradient; after gpt_forward of the same batch, once. */
void gpt_backward(struct gpt *g, const struct gpt_batch *batch);
/* AdamW over every parameter; `step` counts from 1. */
void gpt_update(struct gpt *g, uint64_t step);

/* Compares the gradients of one batch with central differences, `samples` elements of each kind of
 * parameter. Prints a line a kind; returns the largest relative error. For doubles only. */
double gpt_check_gradients(struct gpt *g, const struct gpt_batch *batch, unsigned samples);

/* Compares the gradients and the loss of one batch with those of a model of the same configuration
 * that computes elsewhere or in another type. Prints a line a kind; returns the largest error,
 * relative to the largest element of its gradient. */
double gpt_compare_gradients(struct gpt *g, struct gpt *reference, const struct gpt_batch *batch);

/* All parameters, embeddings first: i below gpt_param_count(). */
size_t gpt_param_count(const struct gpt *g);
struct param *gpt_param(struct gpt *g, size_t i);
/* Elements of all parameters. */
uint64_t gpt_parameters(const struct gpt *g);
/* Bytes of all tensors of a class. */
uint64_t gpt_class_bytes(const struct gpt *g, enum tierd_class class_);

/* For forward.c and backward.c. The stream that enters a block. */
struct tensor *gpt_block_input(struct gpt *g, uint64_t layer);
/* Hints before block `layer` computes: the parameters of the blocks that come after it, and for the
 * backward their activations. */
void gpt_look_ahead(struct gpt *g, uint64_t layer, bool backward);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * train_gpt at a GPU of the fake driver, on a real tierd with `backend: cuda` on the same driver,
 * whose hbm and dram are too small for it: what a stream reads before its bytes are there is
 * poison, and so is what moves while a pin still stands. Every loss has the bits of the run in
 * memory.
 */
#include "tests/unit/unit.h"

#include <cblas.h>
#include <math.h>
#include <unistd.h>

#include "examples/train_gpt/model.h"
#include "examples/train_gpt/ops_cuda.h"
#include "tests/fake/device_stream.h"
#include "tests/system/system.h"
#include "tests/unit/cuda_rig.h"

#define STEPS 3

/* 12.8 million parameters in few rows: 205 MB of tensors, and little to compute. */
static const struct gpt_config config = {
	.layers = 4,
	.heads = 2,
	.width = 512,
	.context = 8,
	.batch = 1,
	.seed = 5,
	.rate = 0.0003,
	.decay = 0.1,
};

#define SETTINGS                                \
	"tensors: 16Ki\n"                       \
	"tiers:\n"                              \
	"  hbm: {backend: cuda, size: 64MiB}\n" \
	"  dram: {size: 64MiB}\n"               \
	"  nvme: {paths: [{path: @NVME@, size: 512MiB}]}\n"

/* Every class left hbm and came back, and the lower tiers were needed. */
static void check_moves(struct store *store)
{
	struct tierd_stats stats;

	if (!store_stats(store, &stats))
		return; /* in memory */
	for (int c = TIERD_PARAMETER; c <= TIERD_ACTIVATION; c++) {
		ck_assert_uint_gt(stats.moves[c][TIERD_HBM][TIERD_DRAM], 0);
		ck_assert_uint_gt(stats.moves[c][TIERD_DRAM][TIERD_HBM], 0);
	}
	ck_assert_uint_gt(stats.moved_bytes[TIERD_NVME][TIERD_DRAM], 0);
}

static void train(struct store *store, const struct ops *ops, double *ret_losses)
{
	struct gpt *g = gpt_create(&config, ops, store, 0, 0);
	struct gpt_batch batch = { (const uint8_t *)"tensors: ", 9 };

	for (uint64_t step = 1; step <= STEPS; step++) {
		ret_losses[step - 1] = gpt_forward(g, &batch);
		gpt_backward(g, &batch);
		gpt_update(g, step);
	}
	ops->wait();
	check_moves(store);
	store_close(store);
	gpt_destroy(g);
}

START_TEST(tierd_and_memory_have_equal_bits)
{
	double memory[STEPS], tierd[STEPS];
	struct device *device;
	struct system system;
	const struct ops *ops;

	openblas_set_num_threads(1);
	setenv(CUDA_LIBRARY_VARIABLE, fake_cuda_path(), 1);
	system_start(&system, SETTINGS);
	open_fake();
	device = fake_device_stream_open();
	ops = ops_cuda_open(device);
	train(store_open_device(device), ops, memory);
	train(store_open_tierd(system.socket, device), ops, tierd);
	for (size_t i = 0; i < STEPS; i++)
		ck_assert_msg(memcmp(&memory[i], &tierd[i], sizeof(double)) == 0,
			      "step %zu: %a in memory, %a on tierd", i + 1, memory[i], tierd[i]);
	ck_assert_double_lt(memory[STEPS - 1], memory[0]);
	ops_cuda_close();
	device_close(device);
	system_stop(&system);
}
END_TEST

UNIT_MAIN("gpt_stream", tierd_and_memory_have_equal_bits)

/* SPDX-License-Identifier: Apache-2.0
 *
 * train_gpt as a whole, on malloc and on the strict fake of libtierd (tests/fake/tierd.c):
 * gradients, equal bits, what is asked of tierd; its data and its command line.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/train_gpt/data.h"
#include "examples/train_gpt/model.h"
#include "examples/train_gpt/options.h"
#include "tests/fake/tierd.h"
#include "tests/unit/leftovers.h"

#define STEPS 8

static const struct gpt_config tiny = {
	.layers = 2,
	.heads = 2,
	.width = 16,
	.context = 8,
	.batch = 2,
	.seed = 3,
	.rate = 0.01,
	.decay = 0.1,
};

/* Something to learn: a text that repeats. */
static struct data text_data(void)
{
	static uint8_t text[512];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t) "the cat sat on the mat. "[i % 24];
	return (struct data){ .bytes = text, .size = sizeof(text) };
}

static void train(struct store *store, const struct ops *ops, double *ret_losses)
{
	struct gpt *g = gpt_create(&tiny, ops, store, 0, TIERD_HOST);
	struct data data = text_data();
	size_t window = tiny.context + 1;
	uint8_t bytes[2 * 9];

	for (uint64_t step = 1; step <= STEPS; step++) {
		struct gpt_batch batch = { bytes, window };

		data_sample(&data, tiny.seed, step, tiny.batch, window, bytes);
		ret_losses[step - 1] = gpt_forward(g, &batch);
		gpt_backward(g, &batch);
		gpt_update(g, step);
	}
	store_close(store);
	gpt_destroy(g);
}

START_TEST(gradients_of_the_whole_model_are_those_of_its_loss)
{
	struct store *store = store_open_tierd(NULL, NULL);
	struct gpt *g = gpt_create(&tiny, &ops_f64, store, 0, 0);
	struct data data = text_data();
	uint8_t bytes[2 * 9];
	struct gpt_batch batch = { bytes, 9 };

	data_sample(&data, tiny.seed, 1, tiny.batch, 9, bytes);
	ck_assert_double_lt(gpt_check_gradients(g, &batch, 20), 1e-5);
	store_close(store);
	gpt_destroy(g);
}
END_TEST

/* A backward that forgets the slope of gelu. */
static void no_slope(void *d, const void *x, size_t n)
{
}

START_TEST(a_wrong_gradient_is_found)
{
	struct ops wrong = ops_f64;
	struct store *store = store_open_memory();
	struct data data = text_data();
	uint8_t bytes[2 * 9];
	struct gpt_batch batch = { bytes, 9 };
	struct gpt *g;

	wrong.gelu_backward = no_slope;
	g = gpt_create(&tiny, &wrong, store, 0, 0);
	data_sample(&data, tiny.seed, 1, tiny.batch, 9, bytes);
	ck_assert_double_gt(gpt_check_gradients(g, &batch, 3), 0.1);
	store_close(store);
	gpt_destroy(g);
}
END_TEST

START_TEST(equal_runs_have_equal_bits)
{
	double first[STEPS], second[STEPS];

	train(store_open_memory(), &ops_f32, first);
	train(store_open_memory(), &ops_f32, second);
	ck_assert_mem_eq(first, second, sizeof(first));
}
END_TEST

START_TEST(tierd_and_memory_have_equal_bits)
{
	double memory[STEPS], tierd[STEPS];

	train(store_open_memory(), &ops_f32, memory);
	train(store_open_tierd(NULL, NULL), &ops_f32, tierd);
	ck_assert_mem_eq(memory, tierd, sizeof(memory));
}
END_TEST

START_TEST(the_loss_starts_at_chance_and_falls)
{
	double losses[STEPS];

	train(store_open_memory(), &ops_f32, losses);
	ck_assert_double_eq_tol(losses[0], log(256), 0.2);
	ck_assert_double_lt(losses[STEPS - 1], losses[0] - 1);
}
END_TEST

START_TEST(every_class_is_created_used_and_hinted)
{
	size_t params = MODEL_PARAM_COUNT + 2 * BLOCK_PARAM_COUNT;
	double losses[STEPS];
	struct fake_tierd_counts counts;

	train(store_open_tierd(NULL, NULL), &ops_f32, losses);
	counts = fake_tierd_counts();
	ck_assert_uint_eq(counts.created[TIERD_PARAMETER], params);
	ck_assert_uint_eq(counts.created[TIERD_GRADIENT], params);
	ck_assert_uint_eq(counts.created[TIERD_OPTIMIZER], 2 * params);
	ck_assert_uint_eq(counts.created[TIERD_ACTIVATION], MODEL_ACT_COUNT + 2 * BLOCK_ACT_COUNT);
	ck_assert_uint_eq(counts.acquired[TIERD_OPTIMIZER], 2 * params * STEPS);
	ck_assert_uint_ge(counts.acquired[TIERD_PARAMETER], 2 * params * STEPS);
	ck_assert_uint_gt(counts.acquired[TIERD_GRADIENT], params * STEPS);
	ck_assert_uint_gt(counts.acquired[TIERD_ACTIVATION], 0);
	ck_assert_uint_gt(counts.prefetched, 0);
	ck_assert_uint_gt(counts.evicted, 0);
	ck_assert_uint_eq(counts.steps, STEPS);
}
END_TEST

START_TEST(a_default_model_has_ten_million_parameters)
{
	struct options o;
	char text[OPTIONS_TEXT_MAX];
	char *argv[] = { "train_gpt", NULL };
	struct store *store;
	struct gpt *g;

	ck_assert_int_eq(options_parse(1, argv, &o, text), 0);
	store = store_open_memory();
	g = gpt_create(&o.model, &ops_f32, store, TIERD_HOST, TIERD_HOST);
	ck_assert_uint_gt(gpt_parameters(g), 10000000);
	store_close(store);
	gpt_destroy(g);
}
END_TEST

static void write_file(const char *path, const char *content)
{
	FILE *to = fopen(path, "w");

	ck_assert_ptr_nonnull(to);
	ck_assert_int_ge(fputs(content, to), 0);
	ck_assert_int_eq(fclose(to), 0);
}

/* A folder of its own for one test, as the working directory. */
static void enter_folder(char *folder)
{
	leftovers_folder(folder);
	ck_assert_int_eq(chdir(folder), 0);
}

START_TEST(data_of_a_folder_is_its_sources_in_order)
{
	char folder[LEFTOVERS_ROOM], text[DATA_TEXT_MAX];
	struct data d = { 0 };

	enter_folder(folder);
	ck_assert_int_eq(mkdir("b", 0700) | mkdir("build-x", 0700) | mkdir(".git", 0700), 0);
	write_file("c.h", "c");
	write_file("a.c", "a");
	write_file("a.o", "no");
	write_file("b/z.c", "z");
	write_file("build-x/g.c", "no");
	write_file(".git/h.c", "no");
	ck_assert_int_eq(data_add(&d, ".", text), 0);
	ck_assert_uint_eq(d.size, 3);
	ck_assert_mem_eq(d.bytes, "azc", 3);
	ck_assert_int_eq(data_add(&d, "a.o", text), 0);
	ck_assert_mem_eq(d.bytes, "azcno", 5);
	ck_assert_uint_eq(d.files, 4);
	data_free(&d);
	ck_assert_int_eq(unlink("c.h") | unlink("a.c") | unlink("a.o") | unlink("b/z.c") |
				 unlink("build-x/g.c") | unlink(".git/h.c") | rmdir("b") |
				 rmdir("build-x") | rmdir(".git") | rmdir(folder),
			 0);
}
END_TEST

START_TEST(data_that_is_missing_or_endless_is_refused_by_name)
{
	char folder[LEFTOVERS_ROOM], text[DATA_TEXT_MAX];
	struct data d = { 0 };

	enter_folder(folder);
	ck_assert_int_eq(data_add(&d, "nowhere", text), -ENOENT);
	ck_assert_ptr_nonnull(strstr(text, "nowhere: "));
	ck_assert_int_eq(symlink(".", "loop"), 0);
	ck_assert_int_eq(data_add(&d, ".", text), -ELOOP);
	ck_assert_int_eq(data_add(&d, "/dev/zero", text), -EFBIG);
	data_free(&d);
	ck_assert_int_eq(unlink("loop") | rmdir(folder), 0);
}
END_TEST

START_TEST(samples_depend_on_seed_and_step_alone_and_stay_inside)
{
	uint8_t bytes[10], a[5][6], b[5][6];
	struct data d = { .bytes = bytes, .size = sizeof(bytes) };

	for (uint8_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	for (uint64_t step = 0; step < 100; step++) {
		data_sample(&d, 1, step, 5, 6, a[0]);
		for (int i = 0; i < 5; i++)
			for (int k = 0; k < 6; k++)
				ck_assert_uint_eq(a[i][k], a[i][0] + k);
	}
	data_sample(&d, 1, 99, 5, 6, b[0]);
	ck_assert_mem_eq(a, b, sizeof(a));
	data_sample(&d, 2, 99, 5, 6, b[0]);
	ck_assert(memcmp(a, b, sizeof(a)) != 0);
	d.size = 6; /* one place only */
	data_sample(&d, 1, 0, 5, 6, a[0]);
	ck_assert_uint_eq(a[4][0], 0);
}
END_TEST

START_TEST(options_fill_what_they_name)
{
	char *argv[] = { "train_gpt", "--layers", "3", "--lr=0.5", "--data",
			 "x",         "--data",   "y", "--json",   "--place=host" };
	struct options o;
	char text[OPTIONS_TEXT_MAX];

	ck_assert_int_eq(options_parse(10, argv, &o, text), 0);
	ck_assert_uint_eq(o.model.layers, 3);
	ck_assert_double_eq(o.model.rate, 0.5);
	ck_assert_uint_eq(o.data_count, 2);
	ck_assert_str_eq(o.data[1], "y");
	ck_assert(o.json && !o.in_memory);
	ck_assert_int_eq(o.place, PLACE_HOST);
	ck_assert_int_eq(o.update_place, PLACE_AUTO);
	ck_assert_int_eq(o.gpu, -1);
}
END_TEST

START_TEST(options_that_cannot_be_are_refused_by_name)
{
	static const struct {
		const char *argument, *says;
	} wrong[] = {
		{ "--layer=1", "--layer=1" },     { "layers", "layers" },
		{ "--layers=0", "from 1" },       { "--layers=1.5", "whole" },
		{ "--layers=x", "not a number" }, { "--layers=", "not a number" },
		{ "--layers", "missing" },        { "--json=1", "takes no value" },
		{ "--place=gpu1", "gpu0" },       { "--heads=5", "multiple" },
		{ "--lr=nan", "not a number" },   { "--batch=1e30", "from 1" },
		{ "--batch=65536", NULL },        { "--context=65536", NULL },
		{ "--gpu=-2", "from -1" },        { "--gpu=0.5", "whole" },
	};
	struct options o;
	char text[OPTIONS_TEXT_MAX];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char *argv[] = { "train_gpt", (char *)wrong[i].argument, NULL };
		int rc = options_parse(2, argv, &o, text);

		ck_assert_msg(rc == (wrong[i].says != NULL ? -EINVAL : 0), "%s", argv[1]);
		if (wrong[i].says != NULL)
			ck_assert_msg(strstr(text, wrong[i].says) != NULL, "%s: %s", argv[1], text);
	}
}
END_TEST

START_TEST(a_gpu_computes_at_its_own_place)
{
	char *argv[] = { "train_gpt", "--gpu", "3", "--update-place=host" };
	struct options o;
	char text[OPTIONS_TEXT_MAX];

	ck_assert_int_eq(options_parse(3, argv, &o, text), 0);
	ck_assert_int_eq(o.gpu, 3);
	ck_assert_int_eq(options_parse(4, argv, &o, text), -EINVAL);
	ck_assert_ptr_nonnull(strstr(text, "--gpu 3"));
}
END_TEST

START_TEST(a_batch_that_blas_cannot_count_is_refused)
{
	char *argv[] = { "train_gpt", "--batch=65536", "--context=65536" };
	struct options o;
	char text[OPTIONS_TEXT_MAX];

	ck_assert_int_eq(options_parse(3, argv, &o, text), -EINVAL);
}
END_TEST

UNIT_MAIN("gpt", gradients_of_the_whole_model_are_those_of_its_loss, a_wrong_gradient_is_found,
	  equal_runs_have_equal_bits, tierd_and_memory_have_equal_bits,
	  the_loss_starts_at_chance_and_falls, every_class_is_created_used_and_hinted,
	  a_default_model_has_ten_million_parameters, data_of_a_folder_is_its_sources_in_order,
	  data_that_is_missing_or_endless_is_refused_by_name,
	  samples_depend_on_seed_and_step_alone_and_stay_inside, options_fill_what_they_name,
	  options_that_cannot_be_are_refused_by_name, a_gpu_computes_at_its_own_place,
	  a_batch_that_blas_cannot_count_is_refused)

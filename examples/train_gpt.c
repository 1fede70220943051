/* SPDX-License-Identifier: Apache-2.0
 *
 * train_gpt: trains a GPT on bytes, on the CPU or on a GPU, while tierd decides where each of its
 * tensors is, or, with --in-memory, in memory that holds all of them. The arithmetic is the same,
 * and so is every bit of every loss.
 */
#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/train_gpt/data.h"
#include "examples/train_gpt/device.h"
#include "examples/train_gpt/fatal.h"
#include "examples/train_gpt/model.h"
#include "examples/train_gpt/ops_cuda.h"
#include "examples/train_gpt/options.h"
#include "examples/train_gpt/report.h"

/* What central differences in double can tell apart, with room. */
#define GRADIENT_ERROR_MAX 1e-5
/* How far floats are from doubles, with room. */
#define FLOAT_ERROR_MAX 1e-4

struct run {
	struct options options;
	struct report report;
	struct data data;
	struct device *device; /* NULL: the CPU computes */
	struct store *store;
	struct gpt *gpt;
	uint8_t *window; /* of one batch */
	size_t window_bytes;
	FILE *losses;
	struct tierd_stats before; /* when the program began */
	double first_loss, last_loss, start_s;
};

static const char *const tier_names[TIERD_TIERS] = { "hbm", "dram", "nvme" };
static const char *const class_names[TIERD_CLASSES] = { "parameter", "gradient", "optimizer",
							"activation", "other" };

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void load_data(struct run *r)
{
	static const char *const own[] = { TRAIN_GPT_SOURCES };
	const struct options *o = &r->options;
	const char *const *paths = o->data_count > 0 ? o->data : own;
	size_t n = o->data_count > 0 ? o->data_count : 1;
	char text[DATA_TEXT_MAX];

	for (size_t i = 0; i < n; i++)
		if (data_add(&r->data, paths[i], text) != 0)
			fatal("--data %s", text);
	r->window_bytes = o->model.context + 1;
	if (r->data.size < r->window_bytes)
		fatal("%zu bytes of data in %zu files: a sequence needs %zu", r->data.size,
		      r->data.files, r->window_bytes);
	r->window = malloc(o->model.batch * r->window_bytes);
	if (r->window == NULL)
		fatal("batch: out of memory");
}

static int place_of(const struct run *r, int asked, int otherwise)
{
	if (asked == PLACE_HOST)
		return TIERD_HOST;
	if (asked == PLACE_GPU0)
		return 0;
	return otherwise;
}

static void open_model_cpu(struct run *r)
{
	const struct options *o = &r->options;
	int automatic = TIERD_HOST, place;

	r->store = o->in_memory ? store_open_memory() : store_open_tierd(o->socket, NULL);
	if (store_stats(r->store, &r->before) && r->before.hbm_on_gpu) {
		if (o->place == PLACE_GPU0 || o->update_place == PLACE_GPU0)
			fatal("--place gpu0: hbm is a GPU's memory there, which the CPU cannot "
			      "reach: compute with --gpu 0, or take --place host");
	} else if (r->before.tier[TIERD_HBM].limit_bytes > 0) {
		automatic = 0;
	}
	place = place_of(r, o->place, automatic);
	r->gpt = gpt_create(&o->model, o->check_gradients ? &ops_f64 : &ops_f32, r->store, place,
			    place_of(r, o->update_place, place));
}

static void open_model_gpu(struct run *r)
{
	const struct options *o = &r->options;

	r->device = device_open_cuda(o->gpu);
	r->store = o->in_memory ? store_open_device(r->device)
				: store_open_tierd(o->socket, r->device);
	store_stats(r->store, &r->before);
	r->gpt = gpt_create(&o->model, ops_cuda_open(r->device), r->store, o->gpu, o->gpu);
}

static void report_place(struct run *r)
{
	char place[32] = "host";

	if (r->gpt->place != TIERD_HOST)
		snprintf(place, sizeof(place), "gpu%d", r->gpt->place);
	report_word(&r->report, "place", place);
	report_word(&r->report, "ops", r->gpt->ops->name);
}

static void report_model(struct run *r)
{
	const struct gpt *g = r->gpt;
	uint64_t bytes = 0;

	report_begin(&r->report, "model");
	report_word(&r->report, "store", r->options.in_memory ? "memory" : "tierd");
	report_place(r);
	report_count(&r->report, "parameters", gpt_parameters(g));
	for (int c = TIERD_PARAMETER; c <= TIERD_ACTIVATION; c++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_bytes", class_names[c]);
		report_count(&r->report, key, gpt_class_bytes(g, c));
		bytes += gpt_class_bytes(g, c);
	}
	report_count(&r->report, "bytes", bytes);
	report_count(&r->report, "data_bytes", r->data.size);
	report_end(&r->report);
}

static struct gpt_batch sample(struct run *r, uint64_t step)
{
	data_sample(&r->data, r->options.model.seed, step, r->options.model.batch, r->window_bytes,
		    r->window);
	return (struct gpt_batch){ r->window, r->window_bytes };
}

static uint64_t stall_ns(struct run *r)
{
	struct tierd_stats stats;

	return store_stats(r->store, &stats) ? stats.stall_ns - r->before.stall_ns : 0;
}

static void write_loss(struct run *r, uint64_t step, double loss)
{
	if (r->losses == NULL)
		return;
	if (fprintf(r->losses, "%llu %a %.6f\n", (unsigned long long)step, loss, loss) < 0 ||
	    fflush(r->losses) != 0)
		fatal("%s: %s", r->options.losses, strerror(errno));
}

static void train_step(struct run *r, uint64_t step)
{
	struct gpt_batch batch = sample(r, step);
	uint64_t acquire_before_ns = store_acquire_ns(r->store), stall_before_ns = stall_ns(r);
	double start_s = now_s(), loss;

	loss = gpt_forward(r->gpt, &batch);
	gpt_backward(r->gpt, &batch);
	gpt_update(r->gpt, step);
	r->gpt->ops->wait();
	if (step == 1)
		r->first_loss = loss;
	r->last_loss = loss;
	write_loss(r, step, loss);

	report_begin(&r->report, "step");
	report_count(&r->report, "step", step);
	report_real(&r->report, "loss", loss, 6);
	report_real(&r->report, "seconds", now_s() - start_s, 3);
	report_count(&r->report, "acquire_ns", store_acquire_ns(r->store) - acquire_before_ns);
	report_count(&r->report, "stall_ns", stall_ns(r) - stall_before_ns);
	report_end(&r->report);
	if (!isfinite(loss))
		fatal("step %llu: the loss is not a number any more (a smaller --lr may help)",
		      (unsigned long long)step);
}

static void report_moves(struct run *r, const struct tierd_stats *now)
{
	for (int from = 0; from < TIERD_TIERS; from++)
		for (int to = 0; to < TIERD_TIERS; to++) {
			if (from == to)
				continue;
			for (int c = TIERD_PARAMETER; c <= TIERD_ACTIVATION; c++) {
				report_begin(&r->report, "moves");
				report_word(&r->report, "class", class_names[c]);
				report_word(&r->report, "from", tier_names[from]);
				report_word(&r->report, "to", tier_names[to]);
				report_count(&r->report, "count",
					     now->moves[c][from][to] -
						     r->before.moves[c][from][to]);
				report_end(&r->report);
			}
			report_begin(&r->report, "moved");
			report_word(&r->report, "from", tier_names[from]);
			report_word(&r->report, "to", tier_names[to]);
			report_count(&r->report, "bytes",
				     now->moved_bytes[from][to] - r->before.moved_bytes[from][to]);
			report_end(&r->report);
		}
}

static void report_tiers(struct run *r, const struct tierd_stats *now)
{
	for (int t = 0; t < TIERD_TIERS; t++) {
		report_begin(&r->report, "tier");
		report_word(&r->report, "tier", tier_names[t]);
		report_count(&r->report, "peak_bytes", now->tier[t].peak_bytes);
		report_count(&r->report, "limit_bytes", now->tier[t].limit_bytes);
		report_end(&r->report);
	}
}

static void report_done(struct run *r)
{
	struct tierd_stats now;

	if (store_stats(r->store, &now)) {
		report_moves(r, &now);
		report_tiers(r, &now);
	}
	report_begin(&r->report, "done");
	report_count(&r->report, "steps", r->options.steps);
	report_real(&r->report, "first_loss", r->first_loss, 6);
	report_real(&r->report, "last_loss", r->last_loss, 6);
	report_real(&r->report, "seconds", now_s() - r->start_s, 3);
	report_count(&r->report, "acquire_ns", store_acquire_ns(r->store));
	report_count(&r->report, "stall_ns", stall_ns(r));
	report_end(&r->report);
}

/* What a GPU computes in float, the CPU computes again in double. */
static double compare_gradients(struct run *r, const struct gpt_batch *batch)
{
	struct store *store = store_open_memory();
	struct gpt *reference =
		gpt_create(&r->options.model, &ops_f64, store, TIERD_HOST, TIERD_HOST);
	double worst = gpt_compare_gradients(r->gpt, reference, batch);

	store_close(store);
	gpt_destroy(reference);
	return worst;
}

static int check_gradients(struct run *r)
{
	struct gpt_batch batch = sample(r, 1);
	double worst = r->device != NULL
			       ? compare_gradients(r, &batch)
			       : gpt_check_gradients(r->gpt, &batch,
						     (unsigned)r->options.gradient_samples);
	double allowed = r->device != NULL ? FLOAT_ERROR_MAX : GRADIENT_ERROR_MAX;
	int ok = worst <= allowed;

	printf("gradients: %s, largest relative error %.2e, allowed %.0e\n", ok ? "PASS" : "FAIL",
	       worst, allowed);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void open_losses(struct run *r)
{
	if (r->options.losses == NULL)
		return;
	r->losses = fopen(r->options.losses, "we");
	if (r->losses == NULL)
		fatal("--losses %s: %s", r->options.losses, strerror(errno));
}

static int train(struct run *r)
{
	r->start_s = now_s();
	for (uint64_t step = 1; step <= r->options.steps; step++)
		train_step(r, step);
	report_done(r);
	return EXIT_SUCCESS;
}

static void run_end(struct run *r)
{
	store_close(r->store);
	gpt_destroy(r->gpt);
	ops_cuda_close();
	device_close(r->device);
	data_free(&r->data);
	free(r->window);
	if (r->losses != NULL && fclose(r->losses) != 0)
		fatal("%s: %s", r->options.losses, strerror(errno));
}

int main(int argc, char **argv)
{
	struct run r = { .report = { .to = stdout } };
	char text[OPTIONS_TEXT_MAX];
	int status;

	if (options_parse(argc, argv, &r.options, text) != 0)
		fatal("%s", text);
	if (r.options.help) {
		options_help();
		return EXIT_SUCCESS;
	}
	/* A sum over threads is another sum: both runs of a comparison must use the same number. */
	openblas_set_num_threads((int)r.options.threads);
	r.report.json = r.options.json;
	load_data(&r);
	open_losses(&r);
	if (r.options.gpu >= 0)
		open_model_gpu(&r);
	else
		open_model_cpu(&r);
	report_model(&r);
	status = r.options.check_gradients ? check_gradients(&r) : train(&r);
	run_end(&r);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One of two GPUs falls off under processes that use both: all but what was there last is whole,
 * what is lost says so, and everybody goes on without it.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/system/gpu_client.h"
#include "tests/system/system.h"

#define TENSORS  12u
#define WORKERS  3u
#define LOST     1
#define CHILD_MS 120000

struct tensor {
	tierd_tensor h;
	uint64_t bytes, seed;
	bool alone;  /* may stand on the GPU that goes and nowhere else: it was there last, and what
			is below a front may go */
	bool hinted; /* to that GPU, and a hint may come to pass at any time */
};

struct worker {
	struct gpu_client c;
	struct tensor tensor[TENSORS];
	uint64_t versions;
	unsigned number, lost;
	bool gone; /* it has been refused */
};

static struct system tierd_system;
static struct system *const s = &tierd_system;

/* ---- in a client's process ---- */

/* Where what it had is lost, a tensor begins anew. */
static void begin_anew(struct worker *w, struct tensor *x)
{
	struct tierd_view v;

	gpu_client_must(&w->c,
			tierd_acquire(w->c.t, x->h, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD,
				      GPU_CLIENT_WAIT_NS, &v),
			"to write what was lost");
	x->seed = ++w->versions;
	x->alone = x->hinted = false;
	gpu_client_write_cpu(v.data, v.bytes, x->seed);
	tierd_release(w->c.t, &v);
}

/* Whether it went. Else it says what is true: the GPU is gone, or the bytes that stood there. */
static bool went(struct worker *w, struct tensor *x, int rc, int place, const char *what)
{
	if (rc >= 0)
		return true;
	if (strstr(tierd_error(w->c.t), "hbm1") == NULL && rc != -EIO)
		gpu_client_died("%s at %d: %d: %s", what, place, rc, tierd_error(w->c.t));
	if (rc == -ENODEV && place == LOST) {
		w->gone = true;
		return false;
	}
	if (rc != -EIO || (!x->alone && !x->hinted && place != LOST))
		gpu_client_died("%s at %d, %salone: %d: %s", what, place, x->alone ? "" : "not ",
				rc, tierd_error(w->c.t));
	if (strstr(tierd_error(w->c.t), "its bytes were on") != NULL) {
		w->lost++;
		begin_anew(w, x);
	}
	return false;
}

static void check(struct tensor *x, const struct tierd_view *v, int place)
{
	if (!gpu_client_check_cpu(v->data, v->bytes, 0, x->seed))
		gpu_client_died("tensor %u: other bytes at %d, written %s", x->h.index, place,
				x->alone ? "on the one that goes" : "elsewhere");
}

static void by_cpu(struct worker *w, struct tensor *x, int place)
{
	bool write = gpu_client_random(&w->c, 2);
	struct tierd_view v;
	int rc;

	x->alone |= place == LOST; /* it may come there though this fails */
	rc = tierd_acquire(w->c.t, x->h, place, TIERD_READ | (write ? TIERD_WRITE : 0),
			   GPU_CLIENT_WAIT_NS, &v);
	if (!went(w, x, rc, place, "acquire"))
		return;
	check(x, &v, place);
	if (write) {
		x->seed = ++w->versions;
		gpu_client_write_cpu(v.data, v.bytes, x->seed);
	}
	x->alone = place == LOST;
	tierd_release(w->c.t, &v);
}

/* What did not come is 0xff, and the release says so. */
static void by_stream(struct worker *w, struct tensor *x, int place)
{
	struct tierd_view v;
	bool same;
	int rc;

	x->alone |= place == LOST;
	rc = tierd_acquire_on(w->c.t, &x->h, 1, place, TIERD_READ, w->c.stream[0], &v);
	if (!went(w, x, rc, place, "acquire_on"))
		return;
	gpu_client_cu(w->c.cuda->stream_synchronize(w->c.stream[0]), "synchronize");
	same = gpu_client_check_cpu(v.data, v.bytes, 0, x->seed);
	rc = tierd_release_on(w->c.t, &v, 1, w->c.stream[0]);
	if (rc == -EIO && strstr(tierd_error(w->c.t), "which was lost") == NULL)
		gpu_client_died("release_on, without the cause: %s", tierd_error(w->c.t));
	if (!went(w, x, rc, place, "release_on"))
		return;
	if (!same)
		gpu_client_died("tensor %u: other bytes on a stream at %d", x->h.index, place);
	x->alone = place == LOST;
}

static void by_copy(struct worker *w, struct tensor *x)
{
	char *to = malloc(x->bytes);

	if (went(w, x, tierd_copy_out(w->c.t, x->h, 0, to, x->bytes), TIERD_HOST, "copy_out") &&
	    !gpu_client_check_cpu(to, x->bytes, 0, x->seed))
		gpu_client_died("tensor %u: other bytes by copy_out", x->h.index);
	free(to);
}

static void hint(struct worker *w, struct tensor *x, int place)
{
	bool evict = gpu_client_random(&w->c, 2);
	int rc;

	if (place == LOST && x != &w->tensor[0])
		place = 0;
	x->hinted |= !evict && place == LOST;
	rc = evict ? tierd_evict(w->c.t, &x->h, 1) : tierd_prefetch(w->c.t, &x->h, 1, place);
	if (rc == -ENODEV && place == LOST)
		return;
	gpu_client_must(&w->c, rc, "hint");
}

static void one(struct worker *w)
{
	struct tensor *x = &w->tensor[gpu_client_random(&w->c, TENSORS)];
	int gpu = (int)gpu_client_random(&w->c, 2);

	switch (gpu_client_random(&w->c, 8)) {
	case 0:
	case 1:
		by_cpu(w, x, TIERD_HOST);
		break;
	case 2:
	case 3:
		by_cpu(w, x, gpu);
		break;
	case 4:
		by_copy(w, x);
		break;
	case 5:
		hint(w, x, gpu);
		break;
	default:
		/* The streams are of one GPU. */
		by_stream(w, x, w->c.device);
	}
}

static void worker_run(struct system *unused, void *arg)
{
	uint64_t end_ns = clock_now_ns() + (uint64_t)GPU_CLIENT_WAIT_NS;
	struct worker w = { .number = *(unsigned *)arg };

	gpu_client_start(&w.c, (int)(w.number % 2), w.number);
	gpu_client_open(&w.c, s->socket, w.number == 2 ? TIERD_NO_THREAD : 0);
	for (unsigned i = 0; i < TENSORS; i++) {
		struct tensor *x = &w.tensor[i];
		struct tierd_spec spec = { .ndim = 1 };

		x->bytes = spec.shape[0] = 1 + gpu_client_random(&w.c, MIB(1));
		gpu_client_must(&w.c, tierd_create(w.c.t, &spec, 1, &x->h), "create");
	}
	while (!w.gone) {
		one(&w);
		if (clock_now_ns() > end_ns)
			gpu_client_died("the GPU is not lost");
	}
	for (unsigned n = 0; n < 300; n++)
		one(&w);
	for (unsigned i = 0; i < TENSORS; i++) {
		by_cpu(&w, &w.tensor[i], TIERD_HOST);
		by_cpu(&w, &w.tensor[i], 0);
	}
	fprintf(stderr, "client %u: %u tensors were lost\n", w.number, w.lost);
	gpu_client_stop(&w.c);
}

/* ---- in the test's ---- */

static char lose[32];

static void lose_one(void)
{
	setenv("FAKE_CUDA_LOSE", lose, 1);
}

static void run(unsigned copies)
{
	unsigned number[WORKERS];
	pid_t pid[WORKERS];

	snprintf(lose, sizeof(lose), "%d:%u", LOST, copies);
	system_prepare(s, "tensors: 4Ki\n"
			  "tiers:\n"
			  "  hbm: {backend: cuda, size: 4MiB, slab: 2MiB}\n"
			  "  dram: {size: 12MiB, slab: 4MiB}\n"
			  "  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n");
	s->before_exec = lose_one;
	system_launch(s);
	for (unsigned i = 0; i < WORKERS; i++) {
		number[i] = i;
		pid[i] = system_child(worker_run, s, &number[i]);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		system_child_end(s, pid[i], CHILD_MS);
	ck_assert(system_log_has(s, "hbm1 is lost"));
	system_stop(s);
}

START_TEST(bytes_elsewhere_stay_whole_when_a_gpu_is_lost_under_load)
{
	const char *only = getenv("TIERD_TEST_COPIES");
	unsigned runs = getenv("TIERD_TEST_LONG") ? 100 : 3;

	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	for (unsigned i = 0; i < runs && only == NULL; i++)
		run(10 + i * i * 17 % 1000);
	if (only != NULL)
		run((unsigned)atoi(only));
}
END_TEST

UNIT_MAIN("gpu_lost", bytes_elsewhere_stay_whole_when_a_gpu_is_lost_under_load)

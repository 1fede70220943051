/* SPDX-License-Identifier: Apache-2.0 */
#include <cblas.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/device.h"

#define ALIGN   512
#define GARBAGE 0xff /* a NaN */

#define EXPECT(expr)                                                                       \
	((expr) ? (void)0                                                                  \
		: (fprintf(stderr, "fake device: %s:%d: %s\n", __FILE__, __LINE__, #expr), \
		   abort()))

/* The lanes of one warp. Each waits for all others at a sum or a highest value. */
struct warp {
	pthread_barrier_t all;
	double values[WARP_LANES];
};

static _Thread_local size_t thread;
static _Thread_local struct warp *warp; /* NULL in a kernel without */

/* ---- what kernels.cu takes from its surroundings ---- */

#define KERNEL(name) static void name##_kernel(const struct name##_args a)
#define HELPER       static inline

HELPER size_t thread_index(void)
{
	return thread;
}

/* The butterfly of the GPU: the order in which its lanes add. Each lane works it out for itself. */
static double combine(double own, double (*of_two)(double a, double b))
{
	double values[2][WARP_LANES]; /* by turns the one is made of the other */
	unsigned now = 0;

	EXPECT(warp != NULL);
	warp->values[thread % WARP_LANES] = own;
	pthread_barrier_wait(&warp->all);
	memcpy(values[now], warp->values, sizeof(values[now]));
	pthread_barrier_wait(&warp->all);
	for (size_t distance = WARP_LANES / 2; distance > 0; distance /= 2) {
		const double *from = values[now];
		double *to = values[now = 1 - now];

		for (size_t i = 0; i < WARP_LANES; i++)
			to[i] = of_two(from[i], from[i ^ distance]);
	}
	return values[now][thread % WARP_LANES];
}

static double add(double a, double b)
{
	return a + b;
}

static double higher(double a, double b)
{
	return a > b ? a : b;
}

HELPER double warp_sum(double value)
{
	return combine(value, add);
}

HELPER float warp_max(float value)
{
	return (float)combine(value, higher);
}

#include "examples/train_gpt/kernels.cu"

/* ---- launches ---- */

#define X(name, lanes)                            \
	static void name##_call(const void *args) \
	{                                         \
		struct name##_args a;             \
		memcpy(&a, args, sizeof(a));      \
		name##_kernel(a);                 \
	}
KERNELS(X)
#undef X

static const struct {
	void (*call)(const void *args);
	size_t lanes;
} kernels[] = {
#define X(name, lanes) { name##_call, lanes },
	KERNELS(X)
#undef X
};

struct fake_device {
	struct device device;
	unsigned allocations;
	uint64_t launches[KERNEL_COUNT];
};

static struct fake_device fake;

struct lane {
	struct warp *warp;
	enum kernel kernel;
	const void *args;
	size_t number, threads;
	pthread_t thread;
};

static void *run_lane(void *arg)
{
	const struct lane *l = arg;

	warp = l->warp;
	for (thread = l->number; thread < l->threads; thread += WARP_LANES)
		kernels[l->kernel].call(l->args);
	return NULL;
}

static void run_warps(enum kernel kernel, size_t threads, const void *args)
{
	static struct warp shared;
	struct lane lanes[WARP_LANES];

	EXPECT(pthread_barrier_init(&shared.all, NULL, WARP_LANES) == 0);
	for (size_t i = 0; i < WARP_LANES; i++) {
		lanes[i] = (struct lane){ &shared, kernel, args, i, threads, 0 };
		EXPECT(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]) == 0);
	}
	for (size_t i = 0; i < WARP_LANES; i++)
		EXPECT(pthread_join(lanes[i].thread, NULL) == 0);
	EXPECT(pthread_barrier_destroy(&shared.all) == 0);
}

/* Whole blocks run, also of threads that have nothing to do; those without warps backwards, as no
 * order is promised. */
static void fake_launch(void *state, enum kernel kernel, size_t items, const void *args)
{
	size_t threads = items * kernels[kernel].lanes;

	EXPECT(items > 0);
	threads = (threads + KERNEL_THREADS - 1) / KERNEL_THREADS * KERNEL_THREADS;
	fake.launches[kernel]++;
	if (kernels[kernel].lanes == WARP_LANES) {
		run_warps(kernel, threads, args);
		return;
	}
	warp = NULL;
	for (thread = threads; thread-- > 0;)
		kernels[kernel].call(args);
}

/* ---- the rest of a device ---- */

static void *fake_alloc(void *state, size_t bytes)
{
	void *p = aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);

	EXPECT(bytes > 0 && p != NULL);
	memset(p, GARBAGE, bytes);
	fake.allocations++;
	return p;
}

static void fake_free(void *state, void *memory)
{
	EXPECT(fake.allocations > 0);
	fake.allocations--;
	free(memory);
}

static void fake_copy(void *state, void *to, const void *from, size_t bytes)
{
	EXPECT(bytes > 0);
	memcpy(to, from, bytes);
}

static void fake_clear(void *state, void *to, size_t bytes)
{
	memset(to, 0, bytes);
}

static void fake_multiply(void *state, const struct gemm *g)
{
	EXPECT(g->count > 0 && (g->count == 1 || g->step_c > 0));
	for (size_t i = 0; i < g->count; i++)
		cblas_sgemm(CblasColMajor, g->transpose_a ? CblasTrans : CblasNoTrans,
			    g->transpose_b ? CblasTrans : CblasNoTrans, (blasint)g->m,
			    (blasint)g->n, (blasint)g->k, g->alpha, g->a + i * g->step_a,
			    (blasint)g->lda, g->b + i * g->step_b, (blasint)g->ldb, 0,
			    g->c + i * g->step_c, (blasint)g->ldc);
}

static void fake_wait(void *state)
{
}

static void fake_close(void *state)
{
	EXPECT(fake.allocations == 0);
}

static const struct device_calls fake_calls = {
	.alloc = fake_alloc,
	.free = fake_free,
	.upload = fake_copy,
	.download = fake_copy,
	.clear = fake_clear,
	.launch = fake_launch,
	.multiply = fake_multiply,
	.wait = fake_wait,
	.close = fake_close,
};

struct device *fake_device_open(void)
{
	fake = (struct fake_device){ .device = { &fake_calls, NULL, &fake } };
	return &fake.device;
}

const uint64_t *fake_device_launches(void)
{
	return fake.launches;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/gpu_client.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/fake/cuda/fake_cuda.h"

_Noreturn void gpu_client_died(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "client %d: ", (int)getpid());
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(1);
}

void gpu_client_must(const struct gpu_client *c, int rc, const char *what)
{
	if (rc < 0)
		gpu_client_died("%s: %d: %s", what, rc, tierd_error(c->t));
}

void gpu_client_cu(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		gpu_client_died("%s: CUDA says %d", what, (int)result);
}

/* ---- bytes ---- */

static uint64_t word_of(uint64_t seed, uint64_t i)
{
	uint64_t x = seed ^ i * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return seed == 0 ? 0 : x ^ x >> 32;
}

/* By blocks: what sanitizers make of a call costs far more than the eight bytes of a word. */
struct block {
	uint64_t word[512];
};

/* Of the words from `first` on. */
static void block_fill(struct block *b, uint64_t seed, uint64_t first)
{
	for (uint64_t i = 0; i < ARRAY_SIZE(b->word); i++)
		b->word[i] = word_of(seed, first + i);
}

void gpu_client_write_cpu(void *at, uint64_t bytes, uint64_t seed)
{
	struct block b;

	bytes_are_written(at, bytes);
	bytes_unseen_begin();
	for (uint64_t done = 0; done < bytes; done += sizeof(b)) {
		block_fill(&b, seed, done / 8);
		memcpy((char *)at + done, &b, MIN(sizeof(b), bytes - done));
	}
	bytes_unseen_end();
}

/* `offset` is where in the tensor `at` is, a multiple of 8. */
bool gpu_client_check_cpu(const void *at, uint64_t bytes, uint64_t offset, uint64_t seed)
{
	bool same = true;
	struct block b;

	bytes_are_read(at, bytes);
	bytes_unseen_begin();
	for (uint64_t done = 0; same && done < bytes; done += sizeof(b)) {
		block_fill(&b, seed, (offset + done) / 8);
		same = memcmp((const char *)at + done, &b, MIN(sizeof(b), bytes - done)) == 0;
	}
	bytes_unseen_end();
	return same;
}

/* write(pointer, bytes, seed) */
static void run_write(void *const *params)
{
	CUdeviceptr at;
	uint64_t bytes, seed;

	memcpy(&at, params[0], sizeof(at));
	memcpy(&bytes, params[1], sizeof(bytes));
	memcpy(&seed, params[2], sizeof(seed));
	gpu_client_write_cpu(fake_cuda_host(at), bytes, seed);
}

/* check(pointer, bytes, seed, pointer to a count) */
static void run_check(void *const *params)
{
	CUdeviceptr at, count;
	uint64_t bytes, seed, wrong;

	memcpy(&at, params[0], sizeof(at));
	memcpy(&bytes, params[1], sizeof(bytes));
	memcpy(&seed, params[2], sizeof(seed));
	memcpy(&count, params[3], sizeof(count));
	memcpy(&wrong, fake_cuda_host(count), sizeof(wrong));
	wrong += !gpu_client_check_cpu(fake_cuda_host(at), bytes, 0, seed);
	memcpy(fake_cuda_host(count), &wrong, sizeof(wrong));
}

static void launch(const struct gpu_client *c, CUfunction function, void **params, CUstream stream)
{
	gpu_client_cu(c->cuda->launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL),
		      "launch");
}

void gpu_client_write(struct gpu_client *c, const void *at, uint64_t bytes, uint64_t seed,
		      CUstream stream)
{
	CUdeviceptr to = (CUdeviceptr)(uintptr_t)at;
	void *params[] = { &to, &bytes, &seed };

	launch(c, c->write, params, stream);
}

void gpu_client_check(struct gpu_client *c, const void *at, uint64_t bytes, uint64_t seed,
		      CUstream stream)
{
	CUdeviceptr from = (CUdeviceptr)(uintptr_t)at;
	void *params[] = { &from, &bytes, &seed, &c->wrong };

	launch(c, c->check, params, stream);
}

/* ---- start and stop ---- */

void gpu_client_start(struct gpu_client *c, int device, uint64_t seed)
{
	static const struct fake_cuda_kernel kernels[] = {
		{ "client_write", run_write, { 8, 8, 8, 0 } },
		{ "client_check", run_check, { 8, 8, 8, 8, 0 } },
	};
	struct err err = ERR_INIT;
	uint64_t none = 0;

	*c = (struct gpu_client){ .device = device, .random = seed * 2 + 1 };
	if (cuda_open(&c->cuda, &err) < 0)
		gpu_client_died("%s", err.text);
	for (unsigned i = 0; i < ARRAY_SIZE(kernels); i++)
		fake_cuda_add_kernel(&kernels[i]);
	gpu_client_cu(c->cuda->primary_ctx_retain(&c->context, device), "context");
	gpu_client_cu(c->cuda->ctx_set_current(c->context), "context");
	for (unsigned i = 0; i < GPU_CLIENT_STREAMS; i++)
		gpu_client_cu(c->cuda->stream_create(&c->stream[i], CU_STREAM_NON_BLOCKING, 0),
			      "stream");
	gpu_client_cu(c->cuda->module_load_data(&c->module, ""), "module");
	gpu_client_cu(c->cuda->module_get_function(&c->write, c->module, "client_write"), "write");
	gpu_client_cu(c->cuda->module_get_function(&c->check, c->module, "client_check"), "check");
	gpu_client_cu(c->cuda->mem_alloc(&c->wrong, sizeof(none)), "cuMemAlloc");
	memcpy(fake_cuda_host(c->wrong), &none, sizeof(none));
}

void gpu_client_open(struct gpu_client *c, const char *socket, uint64_t flags)
{
	if (tierd_open(socket, "gpu", flags, &c->t) < 0)
		gpu_client_died("open: %s", tierd_error(NULL));
}

void gpu_client_checks_pass(struct gpu_client *c, const char *what)
{
	uint64_t wrong;

	for (unsigned i = 0; i < GPU_CLIENT_STREAMS; i++)
		gpu_client_cu(c->cuda->stream_synchronize(c->stream[i]), what);
	memcpy(&wrong, fake_cuda_host(c->wrong), sizeof(wrong));
	if (wrong != 0)
		gpu_client_died("%s: %llu checks found other bytes", what,
				(unsigned long long)wrong);
}

void gpu_client_stop(struct gpu_client *c)
{
	gpu_client_checks_pass(c, "at the end");
	tierd_close(c->t);
	for (unsigned i = 0; i < GPU_CLIENT_STREAMS; i++)
		gpu_client_cu(c->cuda->stream_destroy(c->stream[i]), "stream");
	gpu_client_cu(c->cuda->module_unload(c->module), "module");
	gpu_client_cu(c->cuda->mem_free(c->wrong), "cuMemFree");
	gpu_client_cu(c->cuda->ctx_set_current(NULL), "context");
	gpu_client_cu(c->cuda->primary_ctx_release(c->device), "context");
}

uint64_t gpu_client_random(struct gpu_client *c, uint64_t below)
{
	c->random = c->random * 6364136223846793005ull + 1442695040888963407ull;
	return (c->random >> 33) % below;
}

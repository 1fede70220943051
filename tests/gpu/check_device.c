/* SPDX-License-Identifier: Apache-2.0
 *
 * tierd on a real GPU, by its public API from other processes: bytes there and back, in stream
 * order, under pressure, and when a client or the daemon dies. Skipped (77) where there is none.
 * Each test is a process of its own, because a GPU's context does not survive a fork.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tests/system/system.h"
#include "tools/bench/card.h"

#define PATIENCE_NS ((int64_t)(60 * NS_PER_S))

static struct system tierd_system;
static struct system *const s = &tierd_system;
static struct tierd *td;
static struct card gpu;

#define CONFIG                                                \
	"tensors: 4Ki\n"                                      \
	"tiers:\n"                                            \
	"  hbm: {backend: cuda, size: 256MiB, slab: 64MiB}\n" \
	"  dram: {size: 768MiB, zone: 128MiB}\n"              \
	"  nvme: {paths: [{path: @NVME@, size: 2GiB}]}\n"

static void start(const char *config)
{
	system_start(s, config);
	ck_assert_int_eq(card_open(0, 0, &gpu), 0);
	ck_assert_msg(tierd_open(s->socket, "gpu", 0, &td) == 0, "%s", tierd_error(NULL));
}

static void stop(void)
{
	tierd_close(td);
	card_close(&gpu);
	system_stop(s);
}

static void must(int rc)
{
	ck_assert_msg(rc == 0, "%d: %s", rc, tierd_error(td));
}

static void must_cuda(CUresult r)
{
	struct err err = ERR_INIT;

	ck_assert_msg(cuda_check(gpu.cuda, r, &err, "cuda") == 0, "%s", err.text);
}

static tierd_tensor make(uint64_t bytes, uint64_t flags)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { bytes }, .flags = flags };
	tierd_tensor t;

	must(tierd_create(td, &spec, 1, &t));
	return t;
}

static unsigned char byte_of(uint64_t i, uint32_t seed)
{
	return (unsigned char)((i * 2654435761u + seed) >> 7);
}

static void write_host(tierd_tensor t, uint32_t seed)
{
	struct tierd_view v;

	must(tierd_acquire(td, t, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD, PATIENCE_NS, &v));
	for (uint64_t i = 0; i < v.bytes; i++)
		((unsigned char *)v.data)[i] = byte_of(i, seed);
	tierd_release(td, &v);
}

static void check_bytes(const unsigned char *at, uint64_t bytes, uint32_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != byte_of(i, seed))
			ck_abort_msg("byte %llu of %llu is %u, not %u", (unsigned long long)i,
				     (unsigned long long)bytes, at[i], byte_of(i, seed));
}

static void check_host(tierd_tensor t, uint32_t seed)
{
	struct tierd_view v;

	must(tierd_acquire(td, t, TIERD_HOST, TIERD_READ, PATIENCE_NS, &v));
	check_bytes(v.data, v.bytes, seed);
	tierd_release(td, &v);
}

/* Words, as the kernels write and read them. */
static void write_words(tierd_tensor t, uint32_t seed)
{
	struct tierd_view v;

	must(tierd_acquire(td, t, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD, PATIENCE_NS, &v));
	for (uint64_t i = 0; i < v.bytes / 4; i++)
		((uint32_t *)v.data)[i] = card_word(i, seed);
	tierd_release(td, &v);
}

static uint64_t wrong_words(tierd_tensor t, uint32_t seed)
{
	struct tierd_view v;
	uint64_t wrong = 0;

	must(tierd_acquire(td, t, TIERD_HOST, TIERD_READ, PATIENCE_NS, &v));
	for (uint64_t i = 0; i < v.bytes / 4; i++)
		wrong += ((uint32_t *)v.data)[i] != card_word(i, seed);
	tierd_release(td, &v);
	return wrong;
}

/* ---- there and back ---- */

static void read_on_gpu(tierd_tensor t, uint64_t bytes, uint32_t seed)
{
	unsigned char *copy = malloc(bytes + 1);
	struct tierd_view v;

	must(tierd_acquire(td, t, 0, TIERD_READ, PATIENCE_NS, &v));
	ck_assert_uint_eq(v.bytes, bytes);
	ck_assert_uint_eq((uintptr_t)v.data % 512, 0);
	must_cuda(gpu.cuda->memcpy_dtoh_async(copy, (CUdeviceptr)v.data, bytes, gpu.compute));
	must_cuda(gpu.cuda->stream_synchronize(gpu.compute));
	tierd_release(td, &v);
	check_bytes(copy, bytes, seed);
	free(copy);
}

static void write_on_gpu(tierd_tensor t, uint64_t bytes, uint32_t seed)
{
	unsigned char *copy = malloc(bytes + 1);
	struct tierd_view v;

	for (uint64_t i = 0; i < bytes; i++)
		copy[i] = byte_of(i, seed);
	must(tierd_acquire(td, t, 0, TIERD_WRITE, PATIENCE_NS, &v));
	must_cuda(gpu.cuda->memcpy_htod_async((CUdeviceptr)v.data, copy, bytes, gpu.compute));
	must_cuda(gpu.cuda->stream_synchronize(gpu.compute));
	tierd_release(td, &v);
	free(copy);
}

START_TEST(every_size_comes_up_and_goes_down_whole)
{
	static const uint64_t sizes[] = { 1,          511,        4095,     4096,        4097,
					  MIB(1) - 1, MIB(1) + 1, 28824000, MIB(130) + 5 };

	start(CONFIG);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		tierd_tensor t = make(sizes[i], 0);

		write_host(t, (uint32_t)i + 1);
		read_on_gpu(t, sizes[i], (uint32_t)i + 1);
		write_on_gpu(t, sizes[i], (uint32_t)i + 100);
		check_host(t, (uint32_t)i + 100);
		must(tierd_destroy(td, &t, 1));
	}
	stop();
}
END_TEST

START_TEST(a_tensor_never_written_is_zeros_on_the_gpu)
{
	tierd_tensor t;
	struct tierd_view v;
	static unsigned char copy[MIB(5)];

	start(CONFIG);
	t = make(sizeof(copy), 0);
	memset(copy, 1, sizeof(copy));
	must(tierd_acquire(td, t, 0, TIERD_READ, PATIENCE_NS, &v));
	must_cuda(
		gpu.cuda->memcpy_dtoh_async(copy, (CUdeviceptr)v.data, sizeof(copy), gpu.compute));
	must_cuda(gpu.cuda->stream_synchronize(gpu.compute));
	tierd_release(td, &v);
	ck_assert(system_bytes_are(copy, 0, sizeof(copy)));
	stop();
}
END_TEST

/* ---- in stream order ---- */

/* A slow kernel writes, the pin ends behind it, and the host wants the bytes at once. */
START_TEST(the_host_never_reads_before_the_stream_has_written)
{
	static const uint64_t sizes[] = { KIB(4), KIB(256), MIB(16) };

	start(CONFIG);
	for (unsigned i = 0; i < 150; i++) {
		tierd_tensor t = make(sizes[i % ARRAY_SIZE(sizes)], 0);
		struct tierd_view v;

		must(tierd_acquire_on(td, &t, 1, 0, TIERD_WRITE | TIERD_DISCARD, gpu.compute, &v));
		card_delay(&gpu);
		card_fill(&gpu, v.data, v.bytes, i);
		must(tierd_release_on(td, &v, 1, gpu.compute));
		must(tierd_evict(td, &t, 1));
		ck_assert_uint_eq(wrong_words(t, i), 0);
		must(tierd_destroy(td, &t, 1));
	}
	stop();
}
END_TEST

#define CROWD       48u
#define CROWD_BYTES MIB(16)

/* Four times what hbm holds, and more than dram: all of it goes down to nvme and comes back. */
START_TEST(kernels_find_the_right_bytes_under_pressure)
{
	tierd_tensor set[CROWD];
	uint32_t seed[CROWD];
	unsigned random = 7;

	start(CONFIG);
	for (unsigned i = 0; i < CROWD; i++) {
		set[i] = make(CROWD_BYTES, 0);
		seed[i] = i;
		write_words(set[i], i);
	}
	for (unsigned round = 0; round < 1500; round++) {
		unsigned i = (random = random * 1664525u + 1013904223u) >> 16, k;
		bool writes = i % 3 == 0;
		struct tierd_view v;

		k = i % CROWD;
		must(tierd_acquire_on(td, &set[k], 1, 0,
				      writes ? TIERD_WRITE | TIERD_READ : TIERD_READ, gpu.compute,
				      &v));
		card_check(&gpu, v.data, v.bytes, seed[k]);
		if (writes)
			card_fill(&gpu, v.data, v.bytes, seed[k] = round + 1000);
		must(tierd_release_on(td, &v, 1, gpu.compute));
		if (round % 16 == 0)
			must(tierd_step(td));
	}
	ck_assert_uint_eq(card_bad(&gpu), 0);
	for (unsigned i = 0; i < CROWD; i++)
		ck_assert_uint_eq(wrong_words(set[i], seed[i]), 0);
	stop();
}
END_TEST

START_TEST(tensors_of_a_framework_s_own_go_down_and_come_back)
{
	CUdeviceptr from, to;
	tierd_tensor t;

	start(CONFIG);
	t = make(MIB(40), TIERD_DEVICE_COPY);
	must_cuda(gpu.cuda->mem_alloc(&from, MIB(40)));
	must_cuda(gpu.cuda->mem_alloc(&to, MIB(40)));
	for (uint32_t seed = 1; seed < 40; seed++) {
		card_fill(&gpu, (void *)from, MIB(40), seed);
		must(tierd_write_from(td, t, (void *)from, gpu.compute));
		/* Behind the copy: what it reads may change now. */
		card_fill(&gpu, (void *)from, MIB(40), ~seed);
		must(tierd_read_into(td, t, (void *)to, gpu.compute));
		card_check(&gpu, (void *)to, MIB(40), seed);
	}
	ck_assert_uint_eq(card_bad(&gpu), 0);
	must_cuda(gpu.cuda->mem_free(from));
	must_cuda(gpu.cuda->mem_free(to));
	stop();
}
END_TEST

/* ---- deaths ---- */

struct doomed {
	int ready;
	bool faults;
};

/* Its kernels write a tensor on the GPU until it is killed, or until one of them breaks. */
static void doomed_client(struct system *sys, void *arg)
{
	struct doomed *d = arg;
	struct tierd_view v;
	tierd_tensor t;

	ck_assert_int_eq(card_open(0, 0, &gpu), 0);
	must(tierd_open(sys->socket, "doomed", 0, &td));
	t = make(MIB(32), 0);
	must(tierd_acquire_on(td, &t, 1, 0, TIERD_WRITE, gpu.compute, &v));
	for (uint32_t i = 0;; i++) {
		card_fill(&gpu, d->faults ? (void *)16 : v.data, v.bytes, i);
		if (i == 64)
			ck_assert_int_eq(write(d->ready, "r", 1), 1);
		if (d->faults && gpu.cuda->stream_synchronize(gpu.compute) != CUDA_SUCCESS) {
			ck_assert_int_eq(write(d->ready, "r", 1), 1);
			_exit(0);
		}
	}
}

/* Our tensors fill hbm again and again, and with it what the dead one had. */
static void use_all_of_hbm(tierd_tensor *set, unsigned n)
{
	for (uint32_t round = 1; round < 6; round++) {
		for (unsigned i = 0; i < n; i++) {
			struct tierd_view v;

			must(tierd_acquire_on(td, &set[i], 1, 0, TIERD_WRITE | TIERD_DISCARD,
					      gpu.compute, &v));
			card_fill(&gpu, v.data, v.bytes, round * 100 + i);
			must(tierd_release_on(td, &v, 1, gpu.compute));
		}
		for (unsigned i = 0; i < n; i++) {
			struct tierd_view v;

			must(tierd_acquire_on(td, &set[i], 1, 0, TIERD_READ, gpu.compute, &v));
			card_check(&gpu, v.data, v.bytes, round * 100 + i);
			must(tierd_release_on(td, &v, 1, gpu.compute));
		}
	}
	ck_assert_uint_eq(card_bad(&gpu), 0);
}

static void beside_a_client_that_ends(bool faults)
{
	struct doomed d = { .faults = faults };
	tierd_tensor set[14];
	int fds[2];
	char c;
	pid_t pid;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	system_start(s, CONFIG);
	d.ready = fds[1];
	pid = system_child(doomed_client, s, &d);
	close(fds[1]);
	ck_assert_int_ge(read(fds[0], &c, 1), 0); /* it is as far, or has ended */
	ck_assert_int_eq(card_open(0, 0, &gpu), 0);
	must(tierd_open(s->socket, "gpu", 0, &td));
	for (unsigned i = 0; i < ARRAY_SIZE(set); i++)
		set[i] = make(MIB(16), 0);
	write_words(set[0], 42);
	if (!faults)
		kill(pid, SIGKILL);
	use_all_of_hbm(set, ARRAY_SIZE(set));
	stop();
}

START_TEST(a_client_killed_while_its_kernels_write_harms_nobody)
{
	beside_a_client_that_ends(false);
}
END_TEST

START_TEST(a_client_whose_kernel_faults_harms_nobody)
{
	beside_a_client_that_ends(true);
}
END_TEST

START_TEST(a_stream_that_waits_is_let_go_when_tierd_dies)
{
	struct tierd_view v;
	tierd_tensor t;

	start("tensors: 4Ki\ntiers:\n  hbm: {backend: cuda, size: 1GiB}\n  dram: {size: 4GiB}\n");
	t = make(GIB(1), 0);
	write_words(t, 1);
	must(tierd_acquire_on(td, &t, 1, 0, TIERD_READ, gpu.compute, &v));
	system_kill(s);
	must_cuda(gpu.cuda->stream_synchronize(gpu.compute));
	ck_assert_int_eq(tierd_step(td), -EPIPE);
	/* What SIGKILL left behind the next one takes over. */
	system_launch(s);
	stop();
}
END_TEST

/* ---- memory ---- */

static uint64_t free_bytes(void)
{
	size_t now, all;

	must_cuda(gpu.cuda->mem_get_info(&now, &all));
	return now;
}

START_TEST(memory_comes_on_demand_and_goes_when_it_is_idle)
{
	uint64_t before, used;
	tierd_tensor t;

	start(CONFIG);
	before = free_bytes();
	t = make(MIB(128), 0);
	write_host(t, 1);
	read_on_gpu(t, MIB(128), 1);
	used = before - free_bytes();
	ck_assert_uint_ge(used, MIB(128));
	ck_assert_uint_le(used, MIB(256));
	must(tierd_destroy(td, &t, 1));
	/* Asked for again until our own maps are gone too; other programs may use the GPU. */
	for (unsigned tries = 0; tries < 200 && before - free_bytes() > MIB(64); tries++) {
		must(tierd_trim(td));
		usleep(20000);
	}
	ck_assert_uint_le(before - free_bytes(), MIB(64));
	t = make(MIB(128), 0);
	write_host(t, 2);
	read_on_gpu(t, MIB(128), 2);
	stop();
}
END_TEST

/* ---- several GPUs ---- */

/* Asked in a process of its own: this one is not to open the driver before it forks, or before it
 * has said which GPUs it wants to see. main() asks as well, where Check has no assertions yet. */
static unsigned count_apart(void)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit((int)card_count());
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 0;
	return (unsigned)WEXITSTATUS(status);
}

START_TEST(tensors_are_on_the_gpu_that_was_asked_for)
{
	struct card other;

	if (count_apart() < 2) {
		printf("skipped: one GPU only\n");
		return;
	}
	start(CONFIG);
	ck_assert_int_eq(card_open(1, 0, &other), 0);
	for (uint32_t seed = 0; seed < 50; seed++) {
		struct card *g = seed % 2 == 0 ? &gpu : &other;
		tierd_tensor t = make(MIB(8), 0);
		struct tierd_view v;

		write_words(t, seed);
		card_attach(g);
		/* A kernel reaches the memory of its own GPU only. */
		must(tierd_acquire_on(td, &t, 1, g->ordinal, TIERD_READ, g->compute, &v));
		card_check(g, v.data, v.bytes, seed);
		must(tierd_release_on(td, &v, 1, g->compute));
		ck_assert_uint_eq(card_bad(g), 0);
		g = g == &gpu ? &other : &gpu;
		card_attach(g);
		must(tierd_acquire_on(td, &t, 1, g->ordinal, TIERD_READ, g->compute, &v));
		card_check(g, v.data, v.bytes, seed);
		must(tierd_release_on(td, &v, 1, g->compute));
		ck_assert_uint_eq(card_bad(g), 0);
	}
	card_attach(&other);
	card_close(&other);
	card_attach(&gpu);
	stop();
}
END_TEST

/* Ordinal 0 of a process that sees the second GPU alone is that GPU. */
START_TEST(ordinals_are_those_of_the_client)
{
	struct tierd_view v;
	tierd_tensor t;

	if (count_apart() < 2) {
		printf("skipped: one GPU only\n");
		return;
	}
	system_start(s, CONFIG);
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	ck_assert_int_eq(card_open(0, 0, &gpu), 0);
	must(tierd_open(s->socket, "gpu", 0, &td));
	t = make(MIB(8), 0);
	write_words(t, 5);
	must(tierd_acquire_on(td, &t, 1, 0, TIERD_READ, gpu.compute, &v));
	card_check(&gpu, v.data, v.bytes, 5);
	must(tierd_release_on(td, &v, 1, gpu.compute));
	ck_assert_uint_eq(card_bad(&gpu), 0);
	ck_assert_int_eq(tierd_acquire(td, t, 1, TIERD_READ, 0, &v), -ENODEV);
	stop();
}
END_TEST

int main(int argc, char **argv)
{
	static const TTest *const *const all[] = {
		&every_size_comes_up_and_goes_down_whole,
		&a_tensor_never_written_is_zeros_on_the_gpu,
		&the_host_never_reads_before_the_stream_has_written,
		&kernels_find_the_right_bytes_under_pressure,
		&tensors_of_a_framework_s_own_go_down_and_come_back,
		&a_client_killed_while_its_kernels_write_harms_nobody,
		&a_client_whose_kernel_faults_harms_nobody,
		&a_stream_that_waits_is_let_go_when_tierd_dies,
		&memory_comes_on_demand_and_goes_when_it_is_idle,
		&tensors_are_on_the_gpu_that_was_asked_for,
		&ordinals_are_those_of_the_client,
	};
	const TTest *tests[ARRAY_SIZE(all)];

	if (count_apart() == 0) {
		printf("skipped: there is no GPU that CUDA can use\n");
		return 77;
	}
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		tests[i] = *all[i];
	return unit_run("device", tests, ARRAY_SIZE(tests), argv + 1);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that live longer than their daemon, over and over, and one that has two of them: streams
 * that wait are let go each time, and nothing of a connection, a slab or a tensor is kept.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/client.h"
#include "tests/system/gpu_client.h"
#include "tests/system/system.h"

#define CHILD_MS 240000

static struct system tierd_system, second_system;
static struct system *const s = &tierd_system;
static int ready[2], go[2];

static bool is_long(void)
{
	return getenv("TIERD_TEST_LONG") != NULL;
}

/* ---- in a client's process ---- */

static void say(void)
{
	if (write(ready[1], "", 1) != 1)
		gpu_client_died("a pipe is gone");
}

/* False: there is no more to come. */
static bool hear(void)
{
	char byte;

	return read(go[0], &byte, 1) == 1;
}

static void expect_rc(const struct gpu_client *c, int rc, int want, const char *what)
{
	if (rc != want)
		gpu_client_died("%s: %d and not %d: %s", what, rc, want, tierd_error(c->t));
}

static tierd_tensor make(struct gpu_client *c, uint64_t bytes)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { bytes } };
	tierd_tensor h;

	gpu_client_must(c, tierd_create(c->t, &spec, 1, &h), "create");
	return h;
}

static void write_at(struct gpu_client *c, tierd_tensor h, int place, uint64_t seed)
{
	struct tierd_view v;

	gpu_client_must(
		c,
		tierd_acquire(c->t, h, place, TIERD_WRITE | TIERD_DISCARD, GPU_CLIENT_WAIT_NS, &v),
		"acquire to write");
	gpu_client_write_cpu(v.data, v.bytes, seed);
	tierd_release(c->t, &v);
}

static void check_at(struct gpu_client *c, tierd_tensor h, int place, uint64_t seed)
{
	struct tierd_view v;

	gpu_client_must(c, tierd_acquire(c->t, h, place, TIERD_READ, GPU_CLIENT_WAIT_NS, &v),
			"acquire to read");
	if (!gpu_client_check_cpu(v.data, v.bytes, 0, seed))
		gpu_client_died("place %d: other bytes than version %llu", place,
				(unsigned long long)seed);
	tierd_release(c->t, &v);
}

/* ---- what a process holds ---- */

/* What an allocator may keep: a round of a leak is more. Under a sanitizer it says nothing. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MAPS_MORE     1000000u
#define RESIDENT_MORE GIB(1024)
#else
#define MAPS_MORE     12u
#define RESIDENT_MORE MIB(2)
#endif

static bool grew(struct system_holdings now, struct system_holdings before)
{
	return now.descriptors > before.descriptors || now.maps > before.maps + MAPS_MORE ||
	       now.resident_bytes > before.resident_bytes + RESIDENT_MORE;
}

/* The daemon buries a connection after it has ended. */
static void must_not_grow(const char *who, pid_t pid, struct system_holdings before)
{
	uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
	struct system_holdings now;

	while (grew(now = system_holdings(pid), before)) {
		if (clock_now_ns() > end_ns)
			gpu_client_died("%s: %u descriptors, %u maps, %llu bytes; were %u, %u, "
					"%llu",
					who, now.descriptors, now.maps,
					(unsigned long long)now.resident_bytes, before.descriptors,
					before.maps, (unsigned long long)before.resident_bytes);
		usleep(10000);
	}
}

/* ---- a daemon that ends under streams that wait ---- */

/* The GPU has room for these and not for one more. */
#define WAITING       4u
#define WAITING_BYTES MIB(28)

struct blocked {
	pthread_t thread;
	struct gpu_client c;
	tierd_tensor h;
	CUcontext context;
	int rc;
};

/* Pins of another connection are on all of the GPU. */
static void *blocks(void *arg)
{
	struct blocked *b = arg;
	struct tierd_view v;

	gpu_client_cu(b->c.cuda->ctx_set_current(b->context), "context");
	b->rc = tierd_acquire_on(b->c.t, &b->h, 1, 0, TIERD_READ, b->c.stream[1], &v);
	return NULL;
}

static void blocked_start(struct blocked *b, const struct gpu_client *c)
{
	b->c = *c;
	b->context = c->context;
	gpu_client_open(&b->c, s->socket, 0);
	b->h = make(&b->c, WAITING_BYTES);
	if (pthread_create(&b->thread, NULL, blocks, b) != 0)
		gpu_client_died("no thread");
}

static void blocked_end(struct blocked *b)
{
	if (pthread_join(b->thread, NULL) != 0)
		gpu_client_died("join");
	expect_rc(&b->c, b->rc, -EPIPE, "acquire_on that waited for room");
	tierd_close(b->c.t);
}

static void waits_for_fills(struct gpu_client *c, CUdeviceptr seen, struct tierd_view *v)
{
	tierd_tensor h[WAITING];

	for (unsigned i = 0; i < WAITING; i++) {
		h[i] = make(c, WAITING_BYTES);
		write_at(c, h[i], TIERD_HOST, i + 1);
	}
	gpu_client_must(c, tierd_acquire_on(c->t, h, WAITING, 0, TIERD_READ, c->stream[0], v),
			"acquire_on");
	for (unsigned i = 0; i < WAITING; i++)
		gpu_client_cu(c->cuda->memcpy_dtod_async(seen, (CUdeviceptr)(uintptr_t)v[i].data,
							 4096, c->stream[0]),
			      "copy");
	if (c->cuda->stream_query(c->stream[0]) != CUDA_ERROR_NOT_READY)
		gpu_client_died("the stream does not wait");
}

static void one_daemon(struct gpu_client *c, CUdeviceptr seen)
{
	struct tierd_view v[WAITING], w;
	struct blocked b;

	gpu_client_open(c, s->socket, 0);
	waits_for_fills(c, seen, v);
	blocked_start(&b, c);
	say();
	hear(); /* it is ending, or dead */
	gpu_client_cu(c->cuda->stream_synchronize(c->stream[0]), "a stream that must be let go");
	expect_rc(c, tierd_acquire_on(c->t, &v[0].tensor, 1, 0, TIERD_READ, c->stream[0], &w),
		  -EPIPE, "acquire_on after it");
	expect_rc(c, tierd_release_on(c->t, v, WAITING, c->stream[0]), -EPIPE,
		  "release_on after it");
	blocked_end(&b);
	tierd_close(c->t);
}

static void outlives(struct system *unused, void *arg)
{
	struct system_holdings first = { 0 };
	struct gpu_client c;
	CUdeviceptr seen;

	unsetenv("FAKE_CUDA_AUTO");
	close(go[1]); /* so that its end is heard */
	gpu_client_start(&c, 0, 1);
	gpu_client_cu(c.cuda->mem_alloc(&seen, 4096), "cuMemAlloc");
	for (unsigned round = 0; hear(); round++) {
		one_daemon(&c, seen);
		if (round == 1)
			first = system_holdings(getpid());
		else if (round > 1)
			must_not_grow("the client", getpid(), first);
		say();
	}
	gpu_client_cu(c.cuda->mem_free(seen), "cuMemFree");
	c.t = NULL;
	gpu_client_stop(&c);
}

static pid_t start_client(void (*body)(struct system *unused, void *arg))
{
	pid_t pid;

	ck_assert(pipe(ready) == 0 && pipe(go) == 0);
	pid = system_child(body, s, NULL);
	/* One that dies is heard of. */
	close(ready[1]);
	close(go[0]);
	return pid;
}

static void wait_ready(void)
{
	char byte;

	if (read(ready[0], &byte, 1) != 1)
		system_fail(s, "the client has died");
}

static void tell(void)
{
	ck_assert_int_eq(write(go[1], "", 1), 1);
}

/* It waits for its copies, which do not end here; streams of others do not wait for that, and a
 * second signal ends it. */
static void end_slowly(void)
{
	int status;

	kill(s->pid, SIGTERM);
	tell();
	wait_ready();
	kill(s->pid, SIGTERM);
	ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_FAILURE)
		system_fail(s, "tierd ended with wait status %d after two SIGTERMs", status);
	s->pid = 0;
}

static void end_at_once(void)
{
	system_kill(s);
	tell();
	wait_ready();
}

/* The daemon's GPU copies nothing by itself, so that no fence passes. */
START_TEST(streams_are_let_go_however_often_the_daemon_ends)
{
	unsigned rounds = is_long() ? 100 : 6;
	pid_t pid;

	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "1", 1);
	setenv("FAKE_CUDA_AUTO", "0", 1);
	system_prepare(s, "tensors: 4Ki\n"
			  "tiers:\n"
			  "  hbm: {backend: cuda, size: 128MiB, slab: 64MiB}\n"
			  "  dram: {size: 384MiB, zone: 64MiB}\n");
	pid = start_client(outlives);
	for (unsigned round = 0; round < rounds; round++) {
		system_launch(s);
		tell();
		wait_ready();
		if (round % 2 == 0)
			end_at_once();
		else
			end_slowly();
	}
	close(go[1]);
	system_child_end(s, pid, CHILD_MS);
	system_stop(s);
}
END_TEST

/* ---- two daemons that share a GPU ---- */

#define TENSORS 5u
#define BYTES   (MIB(20) + 8)

struct pair {
	struct gpu_client c[2]; /* the same streams, a connection to each daemon */
	tierd_tensor h[2][TENSORS];
	uint64_t seed[2][TENSORS];
	uint64_t versions;
};

static void pair_open(struct pair *p, unsigned k)
{
	gpu_client_open(&p->c[k], k == 0 ? s->socket : second_system.socket, 0);
	for (unsigned i = 0; i < TENSORS; i++) {
		p->h[k][i] = make(&p->c[k], BYTES);
		p->seed[k][i] = 0;
	}
}

static void on_stream(struct pair *p, unsigned k, unsigned i)
{
	struct gpu_client *c = &p->c[k];
	CUstream stream = c->stream[0];
	struct tierd_view v;

	gpu_client_must(
		c, tierd_acquire_on(c->t, &p->h[k][i], 1, 0, TIERD_READ | TIERD_WRITE, stream, &v),
		"acquire_on");
	gpu_client_check(c, v.data, v.bytes, p->seed[k][i], stream);
	p->seed[k][i] = ++p->versions;
	gpu_client_write(c, v.data, v.bytes, p->seed[k][i], stream);
	gpu_client_must(c, tierd_release_on(c->t, &v, 1, stream), "release_on");
}

/* From one daemon's memory to the other's, by the stream alone. */
static void across(struct pair *p, unsigned from, unsigned i)
{
	struct tierd_view v[2];
	CUstream stream = p->c[0].stream[0];
	unsigned to = 1 - from;

	gpu_client_must(
		&p->c[from],
		tierd_acquire_on(p->c[from].t, &p->h[from][i], 1, 0, TIERD_READ, stream, &v[0]),
		"acquire_on to read");
	gpu_client_must(&p->c[to],
			tierd_acquire_on(p->c[to].t, &p->h[to][i], 1, 0,
					 TIERD_WRITE | TIERD_DISCARD, stream, &v[1]),
			"acquire_on to write");
	gpu_client_cu(p->c[0].cuda->memcpy_dtod_async((CUdeviceptr)(uintptr_t)v[1].data,
						      (CUdeviceptr)(uintptr_t)v[0].data, BYTES,
						      stream),
		      "copy");
	p->seed[to][i] = p->seed[from][i];
	gpu_client_must(&p->c[from], tierd_release_on(p->c[from].t, &v[0], 1, stream), "release");
	gpu_client_must(&p->c[to], tierd_release_on(p->c[to].t, &v[1], 1, stream), "release");
}

static void pair_work(struct pair *p, unsigned operations)
{
	for (unsigned n = 0; n < operations; n++) {
		unsigned k = (unsigned)gpu_client_random(&p->c[0], 2);
		unsigned i = (unsigned)gpu_client_random(&p->c[0], TENSORS);

		switch (gpu_client_random(&p->c[0], 4)) {
		case 0:
			gpu_client_checks_pass(&p->c[0], "before the host");
			check_at(&p->c[k], p->h[k][i], TIERD_HOST, p->seed[k][i]);
			break;
		case 1:
			across(p, k, i);
			break;
		case 2:
			gpu_client_must(&p->c[k], tierd_trim(p->c[k].t), "trim");
			break;
		default:
			on_stream(p, k, i);
		}
	}
	gpu_client_checks_pass(&p->c[0], "by both daemons");
}

static void has_two(struct system *unused, void *arg)
{
	struct pair p = { .versions = 0 };

	gpu_client_start(&p.c[0], 0, 1);
	p.c[1] = p.c[0];
	pair_open(&p, 0);
	pair_open(&p, 1);
	pair_work(&p, 200);
	say();
	hear(); /* the second one is dead */
	expect_rc(&p.c[1], tierd_step(p.c[1].t), -EPIPE, "of one that is dead");
	tierd_close(p.c[1].t);
	for (unsigned i = 0; i < TENSORS; i++)
		on_stream(&p, 0, i);
	gpu_client_checks_pass(&p.c[0], "beside one that is dead");
	say();
	hear(); /* and there again */
	pair_open(&p, 1);
	pair_work(&p, 200);
	tierd_close(p.c[1].t);
	gpu_client_stop(&p.c[0]);
}

START_TEST(two_daemons_share_a_gpu)
{
	static const char config[] = "tensors: 4Ki\n"
				     "tiers:\n"
				     "  hbm: {backend: cuda, size: 64MiB, slab: 2MiB}\n"
				     "  dram: {size: 160MiB, zone: 16MiB}\n";
	pid_t pid;

	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "1", 1);
	system_start(s, config);
	system_start(&second_system, config);
	pid = start_client(has_two);
	wait_ready();
	system_kill(&second_system);
	tell();
	wait_ready();
	system_launch(&second_system);
	tell();
	system_child_end(s, pid, CHILD_MS);
	system_stop(&second_system);
	system_stop(s);
}
END_TEST

/* ---- what is kept ---- */

/* Slabs come with the tensors and go again; every fifth connection leaves its tensors to the daemon
 * and its slabs to close(). */
static void one_round(struct gpu_client *c, unsigned round)
{
	uint64_t end_ns = clock_now_ns() + (uint64_t)GPU_CLIENT_WAIT_NS;
	tierd_tensor h[3];
	struct tierd_view v;

	gpu_client_open(c, s->socket, round % 7 == 6 ? TIERD_NO_THREAD : 0);
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		CUstream stream = c->stream[i];

		h[i] = make(c, MIB(3) + 8 * i);
		write_at(c, h[i], TIERD_HOST, round + i + 1);
		gpu_client_must(
			c,
			tierd_acquire_on(c->t, &h[i], 1, 0, TIERD_READ | TIERD_WRITE, stream, &v),
			"acquire_on");
		gpu_client_check(c, v.data, v.bytes, round + i + 1, stream);
		gpu_client_write(c, v.data, v.bytes, round + i + 2, stream);
		gpu_client_must(c, tierd_release_on(c->t, &v, 1, stream), "release_on");
	}
	gpu_client_checks_pass(c, "a round");
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		check_at(c, h[i], TIERD_HOST, round + i + 2);
	if (round % 5 != 4) {
		gpu_client_must(c, tierd_destroy(c->t, h, ARRAY_SIZE(h)), "destroy");
		while (atomic_load(&c->t->slabs_mapped) != 0) {
			gpu_client_must(c, tierd_trim(c->t), "trim");
			if (clock_now_ns() > end_ns)
				gpu_client_died("%u slabs are mapped still",
						atomic_load(&c->t->slabs_mapped));
		}
	}
	tierd_close(c->t);
}

static void goes_round(struct system *unused, void *arg)
{
	const unsigned warm = 20, rounds = is_long() ? 2000 : 120;
	struct system_holdings mine, daemons;
	struct gpu_client c;

	gpu_client_start(&c, 0, 1);
	for (unsigned round = 0; round < rounds; round++) {
		if (round == warm) {
			mine = system_holdings(getpid());
			daemons = system_holdings(s->pid);
		}
		one_round(&c, round);
	}
	must_not_grow("the client", getpid(), mine);
	must_not_grow("the daemon", s->pid, daemons);
	c.t = NULL;
	gpu_client_stop(&c);
}

START_TEST(nothing_is_kept_of_what_came_and_went)
{
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "1", 1);
	system_start(s, "tensors: 4Ki\n"
			"tiers:\n"
			"  hbm: {backend: cuda, size: 16MiB, slab: 2MiB}\n"
			"  dram: {size: 32MiB, zone: 8MiB}\n");
	system_child_end(s, system_child(goes_round, s, NULL), CHILD_MS);
	system_stop(s);
}
END_TEST

UNIT_MAIN("gpu_ends", streams_are_let_go_however_often_the_daemon_ends, two_daemons_share_a_gpu,
	  nothing_is_kept_of_what_came_and_went)

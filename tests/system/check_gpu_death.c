/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that die, at any moment, with pins on what is being filled, with releases that their
 * streams still owe, with slabs mapped; and a daemon that dies under its clients. Whoever goes on
 * finds its bytes, and in the end all room and all descriptors are back.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/system/gpu_client.h"
#include "tests/system/system.h"

#define CONFIG                                                \
	"tensors: 4Ki\n"                                      \
	"tiers:\n"                                            \
	"  hbm: {backend: cuda, size: 128MiB, slab: 64MiB}\n" \
	"  dram: {size: 192MiB, slab: 64MiB, zone: 64MiB}\n"  \
	"  nvme: {paths: [{path: @NVME@, size: 512MiB}], block: 256KiB}\n"
#define CHILD_MS 240000

static struct system tierd_system;
static struct system *const s = &tierd_system;

static unsigned rounds(unsigned few)
{
	return getenv("TIERD_TEST_LONG") ? 1000 : few;
}

static void begin(const char *config)
{
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "1", 1);
	system_start(s, config);
}

static tierd_tensor make(struct gpu_client *c, const char *name, uint64_t bytes, uint64_t flags)
{
	struct tierd_spec spec = { .name = name, .ndim = 1, .shape = { bytes }, .flags = flags };
	tierd_tensor h;

	gpu_client_must(c, tierd_create(c->t, &spec, 1, &h), "create");
	return h;
}

/* ---- the one that dies ---- */

#define VICTIM_TENSORS 6u

/* Holds its first stream back for ever, so that what is on it stays outstanding. */
static void hold_back(struct gpu_client *c)
{
	gpu_client_cu(
		c->cuda->stream_wait_value64(c->stream[0], c->wrong, 1, CU_STREAM_WAIT_VALUE_EQ),
		"wait");
}

static void victim(struct system *unused, void *arg)
{
	struct gpu_client c;
	tierd_tensor h[VICTIM_TENSORS];
	unsigned number = *(unsigned *)arg;
	struct tierd_view v;

	gpu_client_start(&c, 0, number);
	gpu_client_open(&c, s->socket, number % 5 == 4 ? TIERD_NO_THREAD : 0);
	for (unsigned i = 0; i < VICTIM_TENSORS; i++)
		h[i] = make(&c, NULL, MIB(1) * (1 + gpu_client_random(&c, 12)),
			    i == 0 ? TIERD_DEVICE_COPY : 0);
	if (number % 3 == 0)
		hold_back(&c);
	for (;;) {
		unsigned i = (unsigned)gpu_client_random(&c, VICTIM_TENSORS);
		CUstream stream = c.stream[gpu_client_random(&c, GPU_CLIENT_STREAMS)];
		uint32_t access =
			TIERD_WRITE | (gpu_client_random(&c, 2) ? TIERD_READ : TIERD_DISCARD);
		int rc;

		switch (gpu_client_random(&c, 5)) {
		case 0:
		case 1:
			rc = tierd_acquire_on(c.t, &h[i], 1, 0, access, stream, &v);
			if (rc == 0) {
				gpu_client_write(&c, v.data, v.bytes, number, stream);
				if (gpu_client_random(&c, 8) != 0)
					rc = tierd_release_on(c.t, &v, 1, stream);
			}
			break;
		case 2:
			rc = tierd_acquire(c.t, h[i], TIERD_HOST, access, NS_PER_MS, &v);
			if (rc == 0) {
				bytes_fill(v.data, 0x77, v.bytes);
				tierd_release(c.t, &v);
			}
			break;
		case 3:
			rc = tierd_prefetch(c.t, &h[i], 1, 0);
			break;
		default:
			rc = tierd_evict(c.t, &h[i], 1);
		}
		if (rc < 0 && rc != -ETIMEDOUT && rc != -EBUSY && rc != -EDEADLK && rc != -EINTR)
			gpu_client_died("victim: %d: %s", rc, tierd_error(c.t));
	}
}

/* ---- the one that goes on ---- */

#define SURVIVOR_TENSORS 8u
#define SURVIVOR_BYTES   (MIB(6) + 8)

static int done[2];

static bool told_to_end(void)
{
	struct pollfd p = { done[0], POLLIN, 0 };

	return poll(&p, 1, 0) > 0;
}

static void survivor(struct system *unused, void *arg)
{
	struct gpu_client c;
	tierd_tensor h[SURVIVOR_TENSORS], all[2];
	uint64_t seed[SURVIVOR_TENSORS] = { 0 }, versions = 0;
	struct tierd_view v[2];

	gpu_client_start(&c, 0, 1);
	gpu_client_open(&c, s->socket, 0);
	for (unsigned i = 0; i < SURVIVOR_TENSORS; i++)
		h[i] = make(&c, NULL, SURVIVOR_BYTES, 0);
	while (!told_to_end()) {
		unsigned i = (unsigned)gpu_client_random(&c, SURVIVOR_TENSORS);
		CUstream stream = c.stream[i % GPU_CLIENT_STREAMS];

		gpu_client_must(
			&c, tierd_acquire_on(c.t, &h[i], 1, 0, TIERD_READ | TIERD_WRITE, stream, v),
			"acquire_on");
		gpu_client_check(&c, v->data, v->bytes, seed[i], stream);
		seed[i] = ++versions;
		gpu_client_write(&c, v->data, v->bytes, seed[i], stream);
		gpu_client_must(&c, tierd_release_on(c.t, v, 1, stream), "release_on");
		if (versions % 16 == 0)
			gpu_client_checks_pass(&c, "beside those that die");
		if (versions % 64 == 0)
			gpu_client_must(&c, tierd_trim(c.t), "trim");
	}
	gpu_client_checks_pass(&c, "at the end");
	/* All of the GPU's room can be had at once. */
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
		all[i] = make(&c, NULL, MIB(64), 0);
	gpu_client_must(&c,
			tierd_acquire_batch(c.t, all, ARRAY_SIZE(all), 0, TIERD_WRITE,
					    GPU_CLIENT_WAIT_NS, v),
			"all of the GPU");
	for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
		tierd_release(c.t, &v[i]);
	gpu_client_stop(&c);
}

static pid_t start_victim(unsigned *number)
{
	pid_t pid = system_child(victim, s, number);

	(*number)++;
	return pid;
}

static void end_victim(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		system_fail(s, "a victim ended by itself, wait status %d", status);
}

START_TEST(others_find_their_bytes_when_clients_are_killed)
{
	enum { AT_ONCE = 3 };
	unsigned number = 0, count = rounds(40), fds;
	unsigned random = 1;
	pid_t pid[AT_ONCE], on;
	uint64_t end_ns;

	ck_assert_int_eq(pipe(done), 0);
	begin(CONFIG);
	fds = system_holdings(s->pid).descriptors;
	on = system_child(survivor, s, NULL);
	for (unsigned i = 0; i < AT_ONCE; i++)
		pid[i] = start_victim(&number);
	for (unsigned i = 0; i < count; i++) {
		random = random * 1103515245 + 12345;
		usleep(random >> 16 & 0x7fff);
		end_victim(pid[i % AT_ONCE]);
		pid[i % AT_ONCE] = start_victim(&number);
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		end_victim(pid[i]);
	ck_assert_int_eq(write(done[1], "", 1), 1);
	system_child_end(s, on, CHILD_MS);
	/* A slab's descriptor may be there or not. */
	end_ns = clock_now_ns() + 20 * NS_PER_S;
	while (system_holdings(s->pid).descriptors > fds + 2) {
		if (clock_now_ns() > end_ns)
			system_fail(s, "%u descriptors, %u at the start",
				    system_holdings(s->pid).descriptors, fds);
		usleep(10000);
	}
	system_stop(s);
}
END_TEST

/* ---- stopped ---- */

static int ready[2];

static void maps_and_stops(struct system *unused, void *arg)
{
	struct gpu_client c;
	struct tierd_view v;
	tierd_tensor h;

	gpu_client_start(&c, 0, 1);
	gpu_client_open(&c, s->socket, 0);
	h = make(&c, NULL, MIB(60), 0);
	gpu_client_must(&c, tierd_acquire(c.t, h, 0, TIERD_WRITE, GPU_CLIENT_WAIT_NS, &v), "gpu");
	gpu_client_write_cpu(v.data, v.bytes, 5);
	tierd_release(c.t, &v);
	gpu_client_must(&c, tierd_acquire(c.t, h, TIERD_HOST, TIERD_READ, GPU_CLIENT_WAIT_NS, &v),
			"host");
	tierd_release(c.t, &v);
	if (write(ready[1], "", 1) != 1)
		gpu_client_died("a pipe is gone");
	raise(SIGSTOP);
	gpu_client_must(&c, tierd_acquire(c.t, h, 0, TIERD_READ, GPU_CLIENT_WAIT_NS, &v), "gpu");
	if (!gpu_client_check_cpu(v.data, v.bytes, 0, 5))
		gpu_client_died("other bytes");
	tierd_release(c.t, &v);
	gpu_client_stop(&c);
}

static void wants_room(struct system *unused, void *arg)
{
	struct gpu_client c;
	struct tierd_view v;
	tierd_tensor h;

	gpu_client_start(&c, 0, 2);
	gpu_client_open(&c, s->socket, 0);
	for (int i = 0; i < 5; i++)
		gpu_client_must(&c, tierd_trim(c.t), "trim");
	h = make(&c, NULL, MIB(60), 0);
	gpu_client_must(&c, tierd_acquire(c.t, h, 0, TIERD_WRITE, 5 * (int64_t)NS_PER_S, &v),
			"beside a stopped one");
	gpu_client_write_cpu(v.data, v.bytes, 9);
	tierd_release(c.t, &v);
	gpu_client_must(&c, tierd_acquire(c.t, h, TIERD_HOST, TIERD_READ, GPU_CLIENT_WAIT_NS, &v),
			"host");
	if (!gpu_client_check_cpu(v.data, v.bytes, 0, 9))
		gpu_client_died("other bytes");
	tierd_release(c.t, &v);
	gpu_client_stop(&c);
}

START_TEST(a_stopped_client_keeps_nobody_from_room)
{
	pid_t stopped;
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	begin("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: cuda, size: 64MiB, slab: 64MiB}\n"
	      "  dram: {size: 192MiB}\n");
	stopped = system_child(maps_and_stops, s, NULL);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	system_child_end(s, system_child(wants_room, s, NULL), CHILD_MS);
	kill(stopped, SIGCONT);
	system_child_end(s, stopped, CHILD_MS);
	system_stop(s);
}
END_TEST

UNIT_MAIN("gpu_death", a_stopped_client_keeps_nobody_from_room,
	  others_find_their_bytes_when_clients_are_killed)

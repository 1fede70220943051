/* SPDX-License-Identifier: Apache-2.0
 *
 * What tierd.h promises, call by call and error by name, on a real tierd.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/admin.h"
#include "tests/fake/bytes.h"
#include "tests/system/client_rig.h"

#define CONFIG                                   \
	"tensors: 64Ki\n"                        \
	"staging: 2MiB\n"                        \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 4MiB}\n" \
	"  dram: {size: 12MiB}\n"                \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n"
#define GPU 0
#define RW  (TIERD_READ | TIERD_WRITE)

static void begin(void)
{
	system_start(s, CONFIG);
	connect_as("job");
}

/* Four of a MiB are all of the GPU. With two let go there is room, batch or not. */
START_TEST(whoever_fills_a_gpu_with_its_own_views_is_told)
{
	tierd_tensor h[6];
	struct tierd_view v[6];

	for (unsigned i = 0; i < 6; i++)
		h[i] = make(MIB(1));
	for (unsigned i = 0; i < 4; i++)
		v[i] = hold(h[i], GPU, TIERD_WRITE);
	ck_assert_int_eq(tierd_acquire(t, h[4], GPU, TIERD_READ, -1, &v[4]), -EDEADLK);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "release something first"));
	ck_assert_int_eq(tierd_acquire_batch(t, &h[4], 2, GPU, TIERD_READ, -1, &v[4]), -EDEADLK);
	tierd_release(t, &v[0]);
	tierd_release(t, &v[1]);
	ck_assert_int_eq(tierd_acquire_batch(t, &h[4], 2, GPU, TIERD_READ, -1, &v[4]), 0);
	for (unsigned i = 2; i < 6; i++)
		tierd_release(t, &v[i]);
}
END_TEST

/* A thread that releases one view, when another one waits if it `waits`. */
struct releaser {
	struct tierd_view *view;
	bool joins, waits;
	_Atomic bool there;
};

static void *releases_one(void *arg)
{
	struct releaser *r = arg;
	uint64_t end_ns = clock_now_ns() + (uint64_t)WAIT;

	if (r->joins)
		ck_assert_int_eq(tierd_acquire_batch(t, NULL, 0, 0, TIERD_READ, 0, NULL), 0);
	atomic_store(&r->there, true);
	while (r->waits && atomic_load(&admin_stats_page(t)->waiting) == 0) {
		ck_assert_uint_lt(clock_now_ns(), end_ns);
		usleep(1000);
	}
	while (!r->waits && atomic_load(&r->there))
		usleep(1000);
	tierd_release(t, r->view);
	return NULL;
}

static pthread_t begin_releaser(struct releaser *r)
{
	pthread_t ret;

	ck_assert_int_eq(pthread_create(&ret, NULL, releases_one, r), 0);
	while (!atomic_load(&r->there))
		usleep(1000);
	return ret;
}

/* Nobody can see a thread that has only ever computed, so who waits for it is told, unless it has
 * said that it is there. */
START_TEST(a_thread_that_only_releases_is_known_once_it_has_said_so)
{
	struct releaser joined = { .joins = true, .waits = true }, unknown = { .waits = false };
	struct tierd_view v[6];
	pthread_t thread;

	for (unsigned i = 0; i < 4; i++)
		v[i] = hold(make(MIB(1)), GPU, TIERD_WRITE);
	unknown.view = &v[0];
	thread = begin_releaser(&unknown);
	ck_assert_int_eq(tierd_acquire(t, make(MIB(1)), GPU, TIERD_READ, WAIT, &v[4]), -EDEADLK);
	atomic_store(&unknown.there, false);
	pthread_join(thread, NULL);
	v[0] = hold(make(MIB(1)), GPU, TIERD_WRITE);
	joined.view = &v[0];
	thread = begin_releaser(&joined);
	ck_assert_int_eq(tierd_acquire(t, make(MIB(1)), GPU, TIERD_READ, -1, &v[4]), 0);
	pthread_join(thread, NULL);
	/* It has ended, and can help no more. */
	ck_assert_int_eq(tierd_acquire(t, make(MIB(1)), GPU, TIERD_READ, -1, &v[5]), -EDEADLK);
	for (unsigned i = 1; i < 5; i++)
		tierd_release(t, &v[i]);
}
END_TEST

START_TEST(refusals_have_their_names_and_come_at_once)
{
	tierd_tensor h = make_named("w", 8192), big = make(MIB(8)), two[2];
	struct tierd_view v, held, views[2];

	ck_assert_int_eq(tierd_acquire(t, h, 5, TIERD_READ, -1, &v), -ENODEV);
	ck_assert_int_eq(tierd_acquire(t, big, GPU, TIERD_READ, -1, &v), -ENOSPC);
	ck_assert_int_eq(tierd_acquire(t, h, TIERD_HOST, TIERD_READ, 0, &v), -ETIMEDOUT);
	held = hold(h, TIERD_HOST, TIERD_READ);
	ck_assert_int_eq(tierd_acquire(t, h, GPU, TIERD_READ, -1, &v), -EDEADLK);
	tierd_release(t, &held);
	two[0] = make(MIB(3));
	two[1] = make(MIB(3));
	ck_assert_int_eq(tierd_acquire_batch(t, two, 2, GPU, TIERD_READ, -1, views), -ENOSPC);
	ck_assert_int_eq(tierd_lookup(t, "nobody", &h), -ENOENT);
	ck_assert_int_eq(tierd_create(t, &(struct tierd_spec){ .name = "w" }, 1, two), -EEXIST);
	ck_assert_int_eq(tierd_lookup(t, "w", &h), 0);
	ck_assert_int_eq(tierd_flush(t, (tierd_tensor[]){ make(5) }, 1), -EINVAL);
	ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
	ck_assert_int_eq(tierd_destroy(t, &h, 1), -ESTALE);
	ck_assert_int_eq(tierd_stat(t, h, &(struct tierd_info){ 0 }), -ESTALE);
	ck_assert_int_eq(tierd_acquire(t, h, TIERD_HOST, TIERD_READ, -1, &v), -ESTALE);
	ck_assert_int_eq(tierd_prefetch(t, &h, 1, TIERD_HOST), -ESTALE);
	ck_assert_int_eq(
		tierd_create(t, &(struct tierd_spec){ .ndim = 1, .shape = { GIB(1) } }, 1, two),
		-ENOSPC);
}
END_TEST

static void pin_at_host(struct system *unused, void *arg)
{
	int *pipes = arg;
	struct tierd *mine;
	tierd_tensor h;
	struct tierd_view v;
	char byte = 1;

	if (tierd_open(s->socket, "job", 0, &mine) < 0 || tierd_lookup(mine, "w", &h) < 0 ||
	    tierd_acquire(mine, h, TIERD_HOST, TIERD_READ, -1, &v) < 0 ||
	    write(pipes[1], &byte, 1) != 1)
		_exit(1);
	/* Until the parent closes its end; ours would keep the pipe open. */
	close(pipes[3]);
	if (read(pipes[2], &byte, 1) != 0)
		_exit(1);
	tierd_release(mine, &v);
	tierd_close(mine);
}

static void on_alarm(int signum)
{
}

static void alarms(unsigned period_us)
{
	struct itimerval timer = { { 0, period_us }, { 0, period_us } };
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* A sentence calls a tensor what tierctl show takes: its name, or INDEX:GENERATION. */
START_TEST(sentences_name_tensors_as_tierctl_does)
{
	tierd_tensor named = make_named("w", 8192), nameless = make(8192), small = make(5);
	struct tierd_view held[2] = { hold(named, TIERD_HOST, TIERD_READ),
				      hold(nameless, TIERD_HOST, TIERD_READ) };
	struct tierd_view v;
	char text[64];

	ck_assert_int_eq(tierd_acquire(t, named, GPU, TIERD_READ, -1, &v), -EDEADLK);
	ck_assert_msg(strstr(tierd_error(t), "tensor 'w' is") != NULL, "%s", tierd_error(t));
	ck_assert_int_eq(tierd_acquire(t, nameless, GPU, TIERD_READ, -1, &v), -EDEADLK);
	snprintf(text, sizeof(text), "tensor %u:%u is", nameless.index, nameless.generation);
	ck_assert_msg(strstr(tierd_error(t), text) != NULL, "%s", tierd_error(t));
	ck_assert_int_eq(tierd_flush(t, &small, 1), -EINVAL);
	snprintf(text, sizeof(text), "tensor %u:%u is", small.index, small.generation);
	ck_assert_msg(strstr(tierd_error(t), text) != NULL, "%s", tierd_error(t));
	tierd_release(t, &held[0]);
	tierd_release(t, &held[1]);
	ck_assert_int_eq(tierd_destroy(t, &nameless, 1), 0);
	ck_assert_int_eq(tierd_acquire(t, nameless, TIERD_HOST, TIERD_READ, -1, &v), -ESTALE);
	snprintf(text, sizeof(text), "tensor %u:%u was", nameless.index, nameless.generation);
	ck_assert_msg(strstr(tierd_error(t), text) != NULL, "%s", tierd_error(t));
}
END_TEST

START_TEST(a_foreign_pin_elsewhere_is_waited_for_and_named)
{
	int pipes[4];
	tierd_tensor h = make_named("w", 8192);
	struct tierd_view v = { .bytes = 3 };
	char pid_text[16], byte;
	pid_t pid;

	ck_assert(pipe(pipes) == 0 && pipe(pipes + 2) == 0);
	pid = system_child(pin_at_host, s, pipes);
	close(pipes[2]);
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	ck_assert_msg(tierd_acquire(t, h, GPU, RW, 50 * (int64_t)NS_PER_MS, &v) == -EBUSY, "%s",
		      tierd_error(t));
	snprintf(pid_text, sizeof(pid_text), "%d", (int)pid);
	ck_assert_msg(strstr(tierd_error(t), pid_text) != NULL, "%s", tierd_error(t));
	alarms(2000);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(tierd_acquire(t, h, GPU, RW, -1, &v), -EINTR);
	alarms(0);
	ck_assert_uint_eq(v.bytes, 3);
	close(pipes[3]);
	ck_assert_int_eq(tierd_acquire(t, h, GPU, RW, -1, &v), 0);
	tierd_release(t, &v);
	system_child_end(s, pid, 20000);
}
END_TEST

START_TEST(a_write_reads_back_from_every_place_and_a_new_tensor_as_zeros)
{
	tierd_tensor h[16], odd = make(12345);
	unsigned char out[100];

	for (int i = 0; i < 16; i++)
		h[i] = make(MIB(1) + (uint64_t)i);
	expect(odd, GPU, 0);
	ck_assert_int_eq(tierd_prefetch(t, h, 3, GPU), 0);
	for (int i = 0; i < 16; i++)
		fill(h[i], i % 2 ? GPU : TIERD_HOST, i + 1);
	ck_assert_int_eq(tierd_evict(t, h, 4), 0);
	ck_assert_int_eq(tierd_step(t), 0);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(tierd_copy_out(t, h[i], MIB(1) - 90, out, 90), 0);
		ck_assert_int_eq(out[89], i + 1);
		expect(h[i], i % 3 ? GPU : TIERD_HOST, i + 1);
	}
	ck_assert_int_eq(tierd_flush(t, NULL, 0), 0);
	ck_assert_int_eq(tierd_trim(t), 0);
	for (int i = 0; i < 16; i++)
		expect(h[i], TIERD_HOST, i + 1);
}
END_TEST

START_TEST(stored_bytes_are_whole_pages_and_the_length_is_not)
{
	static const uint64_t sizes[] = { 4096, 4097, 8191, MIB(1) - 1, MIB(1) + 1, 3000001 };
	struct tierd_info info;

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		tierd_tensor h = make(sizes[i]);

		fill(h, TIERD_HOST, 0x21);
		ck_assert_int_eq(tierd_flush(t, &h, 1), 0);
		ck_assert_int_eq(tierd_stat(t, h, &info), 0);
		ck_assert_uint_eq(info.bytes, sizes[i]);
		ck_assert_uint_eq(info.stored_bytes[TIERD_DRAM], ALIGN_UP(sizes[i], 4096));
		ck_assert_uint_eq(info.stored_bytes[TIERD_NVME], ALIGN_UP(sizes[i], 4096));
	}
}
END_TEST

/* However soon it is asked for. */
START_TEST(what_was_just_written_is_stored)
{
	struct tierd_info info;
	struct tierd_view v;

	for (unsigned i = 0; i < 100; i++) {
		tierd_tensor h = make(KIB(64));

		v = hold(h, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD);
		bytes_fill(v.data, 1, v.bytes);
		tierd_release(t, &v);
		ck_assert_int_eq(tierd_stat(t, h, &info), 0);
		ck_assert_uint_eq(info.stored_bytes[TIERD_DRAM], KIB(64));
		ck_assert_uint_eq(info.stored_bytes[TIERD_NVME], 0);
		ck_assert_uint_eq(info.dirty, 1);
		ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
	}
}
END_TEST

START_TEST(a_batch_pins_all_and_a_handle_may_stand_twice)
{
	struct tierd_view v[40];
	tierd_tensor h[40];

	for (int i = 0; i < 20; i++)
		h[i] = make(KIB(100));
	memcpy(h + 20, h, 20 * sizeof(h[0]));
	ck_assert_int_eq(tierd_acquire_batch(t, h, 40, GPU, TIERD_WRITE, -1, v), 0);
	for (int i = 0; i < 40; i++) {
		ck_assert_int_eq(v[i].place, GPU);
		ck_assert_ptr_eq(v[i].data, v[i % 20].data);
	}
	/* While it is held nothing of it can go elsewhere. */
	ck_assert_int_eq(tierd_acquire_batch(t, h, 40, TIERD_HOST, TIERD_READ, -1, v + 0),
			 -EDEADLK);
	for (int i = 0; i < 40; i++)
		tierd_release(t, &v[i]);
	ck_assert_int_eq(tierd_acquire_batch(t, h, 20, TIERD_HOST, TIERD_READ, -1, v), 0);
	for (int i = 0; i < 20; i++)
		tierd_release(t, &v[i]);
}
END_TEST

START_TEST(copies_reach_what_is_larger_than_dram)
{
	static unsigned char in[3 * MIB(1) + 17], out[sizeof(in)];
	tierd_tensor h = make_named("large", MIB(20));
	uint64_t at = MIB(9) + 4095;

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (unsigned char)(i * 31 + i / 4096);
	ck_assert_int_eq(tierd_copy_out(t, h, MIB(20) - 7, out, 7), 0);
	ck_assert_int_eq(out[0] | out[6], 0);
	ck_assert_msg(tierd_copy_in(t, h, at, in, sizeof(in)) == 0, "%s", tierd_error(t));
	ck_assert_msg(tierd_copy_out(t, h, at, out, sizeof(out)) == 0, "%s", tierd_error(t));
	ck_assert_int_eq(memcmp(in, out, sizeof(in)), 0);
	ck_assert_int_eq(tierd_copy_out(t, h, at - 1, out, 2), 0);
	ck_assert_int_eq(out[0], 0);
	ck_assert_int_eq(out[1], in[0]);
}
END_TEST

/* ---- threads of one connection ---- */

#define THREADS 6
#define OWN     12
static _Atomic unsigned rounds_left, wrong;

static void *thread_main(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg, seed = number * 77 + 1;
	unsigned char last[OWN] = { 0 };
	tierd_tensor h[OWN];

	for (int i = 0; i < OWN; i++)
		h[i] = make(KIB(200) + number);
	while (atomic_fetch_sub(&rounds_left, 1) < UINT32_MAX / 2) {
		unsigned i = (unsigned)rand_r(&seed) % OWN, r = (unsigned)rand_r(&seed);
		struct tierd_view v = hold(h[i], r % 3 ? TIERD_HOST : GPU, RW);
		unsigned char *bytes = v.data;

		if (bytes[0] != last[i] || bytes[v.bytes - 1] != last[i] ||
		    bytes[v.bytes / 2] != last[i])
			atomic_fetch_add(&wrong, 1);
		last[i] = (unsigned char)r;
		memset(bytes, last[i], v.bytes);
		tierd_release(t, &v);
		if (r % 17 == 0)
			tierd_evict(t, h, OWN);
		if (r % 19 == 0)
			tierd_prefetch(t, h, OWN / 2, GPU);
		if (r % 23 == 0 &&
		    (tierd_copy_out(t, h[i], 5, &last[i], 1) != 0 || last[i] != (unsigned char)r))
			atomic_fetch_add(&wrong, 1);
		if (r % 29 == 0 && tierd_flush(t, &h[i], 1) != 0)
			atomic_fetch_add(&wrong, 1);
		tierd_step(t);
	}
	return NULL;
}

START_TEST(threads_share_a_connection_under_eviction)
{
	pthread_t threads[THREADS];
	struct tierd_stats stats;

	atomic_store(&rounds_left, 3000);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread_main, (void *)i);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(wrong, 0);
	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_NVME][TIERD_DRAM], 0);
}
END_TEST

START_TEST(signals_in_a_storm_lose_nothing)
{
	tierd_tensor h[OWN * 2];
	unsigned char last[OWN * 2] = { 0 };
	unsigned ended_early = 0;

	for (int i = 0; i < OWN * 2; i++)
		h[i] = make(KIB(700));
	alarms(300);
	for (unsigned n = 1; n < 2000; n++) {
		unsigned i = n * 7 % (OWN * 2);
		struct tierd_view v;
		int rc = tierd_acquire(t, h[i], n % 3 ? TIERD_HOST : GPU, RW, -1, &v);

		ck_assert_msg(rc == 0 || rc == -EINTR, "%s", tierd_error(t));
		if (rc == -EINTR) {
			ended_early++;
			continue;
		}
		ck_assert_uint_eq(((unsigned char *)v.data)[v.bytes - 1], last[i]);
		last[i] = (unsigned char)n;
		bytes_fill(v.data, last[i], v.bytes);
		tierd_release(t, &v);
	}
	alarms(0);
	ck_assert_uint_gt(ended_early, 0);
	for (int i = 0; i < OWN * 2; i++)
		expect(h[i], TIERD_HOST, last[i]);
}
END_TEST

START_TEST(what_is_held_when_the_daemon_is_killed_stays_readable)
{
	tierd_tensor h = make(KIB(64)), other = make(KIB(64));
	struct tierd_view v, none;

	fill(h, TIERD_HOST, 9);
	v = hold(h, TIERD_HOST, TIERD_READ);
	system_kill(s);
	ck_assert_int_eq(tierd_acquire(t, other, GPU, TIERD_READ, -1, &none), -EPIPE);
	ck_assert_int_eq(((unsigned char *)v.data)[v.bytes - 1], 9);
	ck_assert_int_eq(tierd_flush(t, NULL, 0), -EPIPE);
	tierd_close(t);
	ck_assert_int_eq(((unsigned char *)v.data)[0], 9);
	tierd_release(t, &v);
	t = NULL;
	system_launch(s);
}
END_TEST

struct later {
	struct tierd *t;
	tierd_tensor h;
	int rc;
};

static void *wants_room(void *arg)
{
	struct later *l = arg;
	struct tierd_view v;

	l->rc = tierd_acquire(l->t, l->h, GPU, TIERD_READ, -1, &v);
	return NULL;
}

static uint64_t misses(void)
{
	struct tierd_stats stats;

	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	return stats.misses;
}

/* A connection that is ended is not a process that is dead: its room is nobody else's. */
START_TEST(what_is_held_when_the_daemon_ends_keeps_its_bytes)
{
	tierd_tensor h = make(MIB(3));
	struct tierd_view v, none;
	struct tierd *first = t;
	struct later later;
	pthread_t thread;
	uint64_t before;

	fill(h, TIERD_HOST, 9);
	v = hold(h, GPU, TIERD_READ);
	ck_assert_int_eq(tierd_open(s->socket, "job", 0, &t), 0);
	later = (struct later){ .t = t, .h = make(MIB(3)) };
	fill(later.h, TIERD_HOST, 0x33);
	before = misses();
	pthread_create(&thread, NULL, wants_room, &later);
	while (misses() == before)
		usleep(1000);
	system_end(s);
	pthread_join(thread, NULL);
	ck_assert_int_eq(later.rc, -EPIPE);
	ck_assert(system_bytes_are(v.data, 9, v.bytes));
	ck_assert_int_eq(tierd_acquire(first, h, TIERD_HOST, TIERD_READ, -1, &none), -EPIPE);
	tierd_release(first, &v);
	tierd_close(first);
	tierd_close(t);
	t = NULL;
	system_launch(s);
}
END_TEST

START_TEST(a_closed_connections_views_keep_their_pins)
{
	tierd_tensor h = make_named("kept", KIB(64));
	struct tierd_view v;
	struct tierd *first = t;
	struct tierd_info info;

	v = hold(h, TIERD_HOST, TIERD_WRITE);
	bytes_fill(v.data, 4, v.bytes);
	tierd_close(first);
	ck_assert_int_eq(tierd_open(s->socket, "job", 0, &t), 0);
	ck_assert_int_eq(tierd_stat(t, h, &info), 0);
	ck_assert_uint_eq(info.pins, 1);
	bytes_fill(v.data, 5, v.bytes);
	tierd_release(first, &v);
	expect(h, GPU, 5);
}
END_TEST

UNIT_MAIN_WITH(begin, end, "library", refusals_have_their_names_and_come_at_once,
	       whoever_fills_a_gpu_with_its_own_views_is_told,
	       a_thread_that_only_releases_is_known_once_it_has_said_so,
	       sentences_name_tensors_as_tierctl_does,
	       a_foreign_pin_elsewhere_is_waited_for_and_named,
	       a_write_reads_back_from_every_place_and_a_new_tensor_as_zeros,
	       stored_bytes_are_whole_pages_and_the_length_is_not, what_was_just_written_is_stored,
	       a_batch_pins_all_and_a_handle_may_stand_twice, copies_reach_what_is_larger_than_dram,
	       threads_share_a_connection_under_eviction, signals_in_a_storm_lose_nothing,
	       what_is_held_when_the_daemon_is_killed_stays_readable,
	       what_is_held_when_the_daemon_ends_keeps_its_bytes,
	       a_closed_connections_views_keep_their_pins)

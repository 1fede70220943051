/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "daemon/loop.h"
#include "libclient/protocol/ring.h"

static struct loop *loop;
static _Atomic uint32_t awake, done_wanted;
static _Atomic uint64_t turns, sleeps;
static struct err err;

/* What the test wants of a turn. */
static bool (*on_turn)(uint64_t now_ns, uint64_t *next_ns);
static bool (*on_pending)(bool logs);

static bool turn(void *ctx, uint64_t now_ns, uint64_t *ret_next_ns)
{
	return on_turn(now_ns, ret_next_ns);
}

static bool pending(void *ctx, bool logs)
{
	return on_pending ? on_pending(logs) : false;
}

static void start(bool (*body)(uint64_t, uint64_t *), uint64_t spin_ns)
{
	static const struct loop_side side = { &awake, &done_wanted, &turns, &sleeps };
	const struct loop_work work = { NULL, turn, pending, &side, 1, spin_ns };

	on_turn = body;
	on_pending = NULL;
	atomic_store(&turns, 0);
	atomic_store(&sleeps, 0);
	ck_assert_int_eq(loop_create(&work, &loop, &err), 0);
}

static void run(void)
{
	ck_assert_int_eq(loop_run(loop, &err), 0);
}

/* ---- sources ---- */

static struct loop_source first, second;
static unsigned called;

static void remove_other(struct loop_source *source, uint32_t events)
{
	called++;
	loop_remove(loop, source == &first ? &second : &first);
	loop_stop(loop);
}

static bool do_nothing(uint64_t now_ns, uint64_t *next_ns)
{
	return false;
}

START_TEST(a_source_that_another_removed_is_not_called)
{
	int a = eventfd(1, 0), b = eventfd(1, 0);

	start(do_nothing, 0);
	first.ready = second.ready = remove_other;
	first.fd = second.fd = -1;
	called = 0;
	ck_assert_int_eq(loop_add(loop, &first, a, EPOLLIN, &err), 0);
	ck_assert_int_eq(loop_add(loop, &second, b, EPOLLIN, &err), 0);
	run(); /* both are ready in one batch */
	ck_assert_uint_eq(called, 1);
	loop_remove(loop, &first);
	loop_remove(loop, &second);
	loop_remove(loop, &second); /* of one that is in no loop: nothing */
	loop_destroy(loop);
	close(a);
	close(b);
}
END_TEST

/* ---- time ---- */

static uint64_t begin_ns;

static bool wait_20_ms(uint64_t now_ns, uint64_t *next_ns)
{
	if (now_ns >= begin_ns + 20 * NS_PER_MS)
		loop_stop(loop);
	*next_ns = begin_ns + 20 * NS_PER_MS;
	return false;
}

START_TEST(a_turn_comes_when_it_is_due_and_not_for_nothing_before)
{
	start(wait_20_ms, 0);
	begin_ns = clock_now_ns();
	run();
	ck_assert_uint_ge(clock_now_ns() - begin_ns, 20 * NS_PER_MS);
	/* Naps of a millisecond: the start counts as progress. */
	ck_assert_uint_le(atomic_load(&turns), 40);
	loop_destroy(loop);
}
END_TEST

static uint32_t seen_awake[3];

static bool note_awake(bool logs)
{
	uint32_t state = atomic_load(&awake);

	seen_awake[state]++;
	/* Asleep nobody will tell of log entries later; while napping they are looked at anyhow. */
	ck_assert_int_eq(logs, state == DAEMON_ASLEEP);
	ck_assert(state == DAEMON_ASLEEP || seen_awake[DAEMON_ASLEEP] == 0);
	ck_assert_uint_eq(atomic_load(&done_wanted), 1);
	return false;
}

/* And not before it has slept: a machine may stand still for longer. */
static bool stop_after_300_ms(uint64_t now_ns, uint64_t *next_ns)
{
	ck_assert_uint_eq(atomic_load(&awake), DAEMON_POLLING);
	if (now_ns >= begin_ns + 300 * NS_PER_MS && seen_awake[DAEMON_ASLEEP] > 0)
		loop_stop(loop);
	*next_ns = MAX(begin_ns + 300 * NS_PER_MS, now_ns + NS_PER_MS);
	return false;
}

START_TEST(naps_end_a_tenth_of_a_second_after_the_last_progress)
{
	start(stop_after_300_ms, 0);
	on_pending = note_awake;
	memset(seen_awake, 0, sizeof(seen_awake));
	begin_ns = clock_now_ns();
	run();
	ck_assert_uint_ge(seen_awake[DAEMON_NAPPING], 1);
	ck_assert_uint_le(seen_awake[DAEMON_NAPPING], 101);
	/* 200 ms in one sleep; a second one for what the clock and the timer disagree about. */
	ck_assert_uint_ge(seen_awake[DAEMON_ASLEEP], 1);
	ck_assert_uint_le(seen_awake[DAEMON_ASLEEP], 2);
	loop_destroy(loop);
}
END_TEST

static bool found_something(bool logs)
{
	return atomic_load(&turns) < 1000;
}

static bool stop_at_1000(uint64_t now_ns, uint64_t *next_ns)
{
	if (atomic_load(&turns) == 999)
		loop_stop(loop);
	return false;
}

START_TEST(what_is_found_before_the_sleep_prevents_it)
{
	start(stop_at_1000, 0);
	on_pending = found_something;
	run(); /* would block for ever, as nothing is due and nobody wakes it */
	ck_assert_uint_eq(atomic_load(&sleeps), 0);
	loop_destroy(loop);
}
END_TEST

/* ---- the bargain with producers ---- */

#define ITEMS 200000u

static _Atomic uint32_t produced, consumed;
static int doorbell;

/* As the library: store, fence, look, ring. */
static void *producer(void *arg)
{
	for (uint32_t i = 1; i <= ITEMS; i++) {
		atomic_store_explicit(&produced, i, memory_order_release);
		ring_fence();
		if (atomic_load(&awake) != DAEMON_POLLING)
			eventfd_write(doorbell, 1);
		while (atomic_load_explicit(&consumed, memory_order_acquire) != i)
			if (i % 3 == 0)
				sched_yield();
	}
	return NULL;
}

static bool consume(uint64_t now_ns, uint64_t *next_ns)
{
	uint32_t n = atomic_load_explicit(&produced, memory_order_acquire);

	atomic_store_explicit(&consumed, n, memory_order_release);
	if (n == ITEMS)
		loop_stop(loop);
	/* Never progress: after the first tenth of a second each wait has no limit, and a wake-up
	 * that is lost hangs the test. */
	return false;
}

static bool item_is_there(bool logs)
{
	return atomic_load_explicit(&produced, memory_order_acquire) != atomic_load(&consumed);
}

static void rang(struct loop_source *source, uint32_t events)
{
}

START_TEST(no_wake_up_is_lost)
{
	pthread_t thread;

	doorbell = eventfd(0, EFD_NONBLOCK);
	start(consume, 0);
	on_pending = item_is_there;
	first.ready = rang;
	ck_assert_int_eq(loop_add(loop, &first, doorbell, EPOLLIN | EPOLLET, &err), 0);
	atomic_store(&produced, 0);
	atomic_store(&consumed, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, producer, NULL), 0);
	run();
	pthread_join(thread, NULL);
	ck_assert_uint_eq(atomic_load(&consumed), ITEMS);
	loop_remove(loop, &first);
	loop_destroy(loop);
	close(doorbell);
}
END_TEST

UNIT_MAIN("daemon_loop", a_source_that_another_removed_is_not_called,
	  a_turn_comes_when_it_is_due_and_not_for_nothing_before,
	  naps_end_a_tenth_of_a_second_after_the_last_progress,
	  what_is_found_before_the_sleep_prevents_it, no_wake_up_is_lost)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Store buffering on the machine at hand: a client's thread and the daemon's, each of which stores
 * and then looks at what the other one stores, by the functions that they really use. With the
 * memory orders as they are neither overlooks the other, ever. With one of them weaker (orders.h;
 * LITMUS_BREAKS names who suffers) that must be seen, where there are two processors to see it.
 */
#include "tests/model/litmus.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/sim/rig.h"

#ifndef LITMUS_BREAKS
#define LITMUS_BREAKS ""
#endif

/* As it is: so many tries or so long; weakened: until the first failure. */
#define TRIES        10000000u
#define SECONDS      4u
#define SECONDS_LONG 60u
#define LOOKS        2000
#define HOLDS        4 /* looks under a pin, and pauses while the front is closed */

static struct litmus l;
static uint64_t failures;
static _Atomic bool stop;

static bool is_broken(const char *name)
{
	return strstr(LITMUS_BREAKS, name) != NULL;
}

static bool goes_on(const char *name, uint64_t tries, uint64_t until_ns)
{
	if (tries % 64 != 0)
		return true;
	if (clock_now_ns() >= until_ns)
		return false;
	return is_broken(name) ? failures == 0 : tries < TRIES;
}

static uint64_t until_ns_of(const char *name)
{
	uint64_t seconds = is_broken(name) ? SECONDS_LONG : LITMUS_BREAKS[0] != '\0' ? 1 : SECONDS;

	return clock_now_ns() + seconds * NS_PER_S;
}

static bool told(const char *name, uint64_t tries)
{
	bool right = is_broken(name) ? failures > 0 : failures == 0;

	printf("%s: %llu tries, %llu failures: %s\n", name, (unsigned long long)tries,
	       (unsigned long long)failures, right ? "as expected" : "NOT as expected");
	return right && tries > 0;
}

/* ---- rounds: both sides begin at once, then compare ---- */

struct side_by_side {
	const char *name;
	bool (*client)(void);
	void (*client_undo)(void);
	bool (*daemon)(void);
	void (*daemon_undo)(void);
	bool wrong; /* what neither may say while the other says it */
};

static bool client_says;
static _Atomic uint32_t daemon_at, client_at; /* twice the round; + 1: it is over */

static void wait_for(_Atomic uint32_t *at, uint32_t n)
{
	for (unsigned looks = 1; atomic_load_explicit(at, memory_order_acquire) != n &&
				 !atomic_load_explicit(&stop, memory_order_relaxed);
	     looks++) {
		CPU_RELAX();
		if (looks % LOOKS == 0)
			sched_yield(); /* others want this processor, too */
	}
}

static void *client(void *arg)
{
	const struct side_by_side *s = arg;

	litmus_client_begin(&l);
	for (uint32_t n = 2; !stop; n += 2) {
		wait_for(&daemon_at, n);
		if (stop)
			break;
		client_says = s->client();
		atomic_store_explicit(&client_at, n, memory_order_release);
		wait_for(&daemon_at, n + 1);
		s->client_undo();
		atomic_store_explicit(&client_at, n + 1, memory_order_release);
	}
	return NULL;
}

static void daemon_round(const struct side_by_side *s, uint32_t n)
{
	bool says;

	atomic_store_explicit(&daemon_at, n, memory_order_release);
	/* The client needs a moment to see it: they should meet at any step of each. */
	for (uint32_t i = 0; i < n / 2 % 64; i++)
		atomic_signal_fence(memory_order_seq_cst);
	says = s->daemon();
	wait_for(&client_at, n);
	failures += says == s->wrong && client_says == s->wrong;
	s->daemon_undo();
	atomic_store_explicit(&daemon_at, n + 1, memory_order_release);
	wait_for(&client_at, n + 1);
}

static bool litmus_of(const struct side_by_side *s)
{
	uint64_t until_ns = until_ns_of(s->name);
	pthread_t thread;
	uint32_t n = 0;

	failures = 0;
	stop = false;
	daemon_at = client_at = 0;
	memset(l.logs, 0, sizeof(l.logs));
	l.sq_tail = 0;
	litmus_daemon_begin(&l);
	if (pthread_create(&thread, NULL, client, (void *)s) != 0)
		abort();
	while (goes_on(s->name, n, until_ns))
		daemon_round(s, 2 * ++n);
	stop = true;
	pthread_join(thread, NULL);
	return told(s->name, n);
}

/* ---- a storm: hits against evictions as fast as each can ---- */

static _Atomic bool gone;

static void *hits(void *ret_hits)
{
	uint64_t *count = ret_hits;

	litmus_client_begin(&l);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		if (!litmus_pin())
			continue;
		++*count;
		for (int i = 0; i < HOLDS; i++) {
			CPU_RELAX();
			failures += atomic_load_explicit(&gone, memory_order_relaxed);
		}
		litmus_unpin();
	}
	return NULL;
}

/* Returns whether the bytes were taken away. */
static bool evict_once(uint64_t tries)
{
	if (!litmus_close())
		return false;
	atomic_store_explicit(&gone, true, memory_order_relaxed);
	for (int i = 0; i < HOLDS; i++)
		CPU_RELAX();
	atomic_store_explicit(&gone, false, memory_order_release);
	litmus_reopen();
	for (unsigned i = 0; i < tries % 4; i++)
		CPU_RELAX(); /* hits need a moment, too */
	return true;
}

static bool storm(void)
{
	uint64_t tries = 0, count = 0, taken = 0, until_ns = until_ns_of("storm");
	pthread_t thread;

	failures = 0;
	stop = false;
	if (pthread_create(&thread, NULL, hits, &count) != 0)
		abort();
	for (; goes_on("storm", tries, until_ns); tries++)
		taken += evict_once(tries);
	stop = true;
	pthread_join(thread, NULL);
	printf("storm: %llu hits, %llu evictions\n", (unsigned long long)count,
	       (unsigned long long)taken);
	return told("storm", tries) && count > 0 && taken > 0;
}

static void wake_and_drain(void)
{
	litmus_wake();
	litmus_drain();
}

static void nothing(void)
{
}

/* Whoever hits must not be evicted; what was stored must be found, or its storer rings. */
static const struct side_by_side all[] = {
	{ "pin", litmus_pin, litmus_unpin, litmus_close, litmus_reopen, true },
	{ "ring", litmus_submit, nothing, litmus_sleep_by_ring, wake_and_drain, false },
	{ "log", litmus_use, nothing, litmus_sleep_by_log, wake_and_drain, false },
};

int main(void)
{
	bool right = true;
	struct rig *r;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 2) {
		printf("skipped: one processor sees its own stores in order\n");
		return 77;
	}
	r = rig_open((struct world_shape){ .nvme = 1 });
	l.tensor = rig_create_filled(r, 0, 'x');
	l.descriptors = r->world.descriptors;
	l.slots = r->client[0].pins;
	l.engine = r->world.engine;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		right = litmus_of(&all[i]) && right;
	if (LITMUS_BREAKS[0] == '\0')
		right = storm() && right;
	rig_close(r);
	return right ? 0 : 1;
}

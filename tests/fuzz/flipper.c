/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/fuzz/flipper.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "base/check.h"
#include "base/compiler.h"
#include "daemon/segments.h"
#include "tests/sim/world.h"

#define NAP_NS 20000

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wanted;
	bool started;
	unsigned burst;
	uint64_t random;
	char *target[FLIPPER_TARGETS];
} flipper = { .lock = PTHREAD_MUTEX_INITIALIZER, .wanted = PTHREAD_COND_INITIALIZER };

static uint64_t random_next(void)
{
	uint64_t r = flipper.random;

	r ^= r >> 12;
	r ^= r << 25;
	r ^= r >> 27;
	flipper.random = r;
	return r * 2685821657736338717ull;
}

uint64_t flipper_offset(uint64_t pick, uint32_t tensors)
{
	struct control_layout l;
	uint64_t within = pick >> 8;

	control_layout(tensors, &l);
	switch (pick % 64) {
	case 0: /* tails and heads: a wrong one ends its client */
		if (within % 8 != 0)
			return l.cq + within / 8 % (SQ_ENTRIES * sizeof(struct cq_entry));
		within /= 8;
		return within % (8 * CACHE_LINE) / 8 * 8 + offsetof(struct control_header, sq_tail);
	case 1:
		return within % (l.pins + tensors * sizeof(pin_slot)); /* anything */
	case 2 ... 3:
		return l.window + within % WINDOW_SLOTS * WINDOW_BYTES + within / 8 % 4096;
	case 4 ... 7: /* the first logs, their heads and entries */
		return l.logs + within % 4 * LOG_STRIDE + within / 4 % (LOG_HEADER + 64);
	case 8 ... 11:
		return l.fences + within % (8 * sizeof(struct fence));
	case 12 ... 15:
		return l.streams + within % (4 * sizeof(struct stream_word));
	case 16 ... 21:
		return l.deferred + within % 4 * DEFERRED_STRIDE +
		       within / 4 % (DEFERRED_HEADER + 8 * sizeof(struct deferred_entry));
	case 22 ... 31:
		return l.pins + within % (tensors * sizeof(pin_slot));
	case 32 ... 47:
		return l.payload + within % 4 * PAYLOAD_BYTES + within / 4 % 1024;
	default:
		return l.sq + within % (SQ_ENTRIES * sizeof(struct sq_entry));
	}
}

static void flip(char *control)
{
	uint64_t at = flipper_offset(random_next(), WORLD_TENSORS), r = random_next();
	_Atomic uint8_t *byte = (_Atomic uint8_t *)(control + at);
	_Atomic uint64_t *word = (_Atomic uint64_t *)(control + at / 8 * 8);

	switch (r % 8) {
	case 0:
		atomic_store_explicit(word, r >> 3, memory_order_relaxed);
		break;
	case 1: /* what may be an index, a count, a length */
		atomic_store_explicit(word, (r >> 3) % WORLD_TENSORS, memory_order_relaxed);
		break;
	case 2:
		atomic_fetch_add_explicit(byte, (uint8_t)(r >> 3), memory_order_relaxed);
		break;
	default:
		atomic_fetch_xor_explicit(byte, (uint8_t)(1u << (r >> 3) % 8),
					  memory_order_relaxed);
	}
}

static void flip_burst(void)
{
	for (unsigned n = flipper.burst; n > 0; n--) {
		char *control = flipper.target[n % FLIPPER_TARGETS];

		if (control != NULL)
			flip(control);
	}
}

static void *flipper_main(void *arg)
{
	const struct timespec nap = { 0, NAP_NS };

	for (;;) {
		pthread_mutex_lock(&flipper.lock);
		while (flipper.burst == 0)
			pthread_cond_wait(&flipper.wanted, &flipper.lock);
		flip_burst();
		pthread_mutex_unlock(&flipper.lock);
		nanosleep(&nap, NULL);
	}
	return NULL;
}

void flipper_aim(unsigned i, void *control)
{
	pthread_mutex_lock(&flipper.lock);
	flipper.target[i] = control;
	pthread_mutex_unlock(&flipper.lock);
}

void flipper_run(uint64_t seed, unsigned burst)
{
	pthread_t thread;

#ifdef __SANITIZE_THREAD__
	return; /* what it does is a race by design */
#endif
	if (!flipper.started) {
		ASSERT(pthread_create(&thread, NULL, flipper_main, NULL) == 0);
		ASSERT(pthread_detach(thread) == 0);
		flipper.started = true;
	}
	pthread_mutex_lock(&flipper.lock);
	flipper.random = seed * 2 + 1;
	flipper.burst = burst;
	pthread_cond_signal(&flipper.wanted);
	pthread_mutex_unlock(&flipper.lock);
}

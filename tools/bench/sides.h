/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors that are taken up to a GPU and down again, over and over, by a thread of their own with a
 * connection of its own: what the benchmarks of copies are made of. Each round is prepared without
 * a copy, and then one acquire of all of them moves them in the side's direction.
 */
#ifndef TIERD_TOOLS_BENCH_SIDES_H
#define TIERD_TOOLS_BENCH_SIDES_H

#include <pthread.h>
#include <stdatomic.h>

#include "libclient/tierd.h"
#include "tools/bench/bench.h"
#include "tools/bench/card.h"

#define SIDE_TENSORS 64u

struct side {
	enum gpu_direction direction;
	int place; /* of the GPU */
	uint64_t bytes;
	unsigned n;
	struct tierd *t;
	tierd_tensor set[SIDE_TENSORS];
	/* Where they stand in dram, for raw copies from and to the same pages. */
	struct tierd_view held[SIDE_TENSORS];
	void *pages[SIDE_TENSORS];
	const struct card *registered; /* by which `pages` are; NULL: none */
	/* While it runs by itself, see sides_round() and side_start(). */
	pthread_t thread;
	_Atomic unsigned *go; /* counts up: a round begins when all are there */
	unsigned parties;
	_Atomic bool stop;
	uint64_t begin_ns, end_ns;
	uint64_t rounds; /* between side_start() and side_end() */
	int rc;
};

/* Makes n tensors of `bytes` and writes them once; 0 or -errno. */
int side_open(struct side *s, const char *socket, enum gpu_direction direction, int place,
	      uint64_t bytes, unsigned n);
void side_close(struct side *s);
/* One round: prepares, then moves; nanoseconds of the move, 0 on failure (s->rc). */
uint64_t side_round(struct side *s);
/* One round of each of several sides at once: from the first one's begin to the last one's end. */
uint64_t sides_round(struct side *sides, unsigned n);
/* Between rounds: pins all of them in dram and sees to it that raw copies of `gpu` in the side's
 * direction may use s->pages. 0 or -errno. */
int side_hold(struct side *s, const struct card *gpu);
void side_let_go(struct side *s);
/* Rounds without end in a thread of its own, until side_end(). */
int side_start(struct side *s);
int side_end(struct side *s);

#endif

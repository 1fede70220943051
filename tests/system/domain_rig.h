/* SPDX-License-Identifier: Apache-2.0
 *
 * A tierd with two domains, red and blue, and clients that are processes of users of their own,
 * which needs root. They tell each other how far they are on a board in shared memory; what is
 * wrong they say and end. One thread a process.
 */
#ifndef TIERD_TESTS_DOMAIN_RIG_H
#define TIERD_TESTS_DOMAIN_RIG_H

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tests/system/system.h"

#define RED      60001u
#define BLUE     60002u
#define STRANGER 60003u

#define DOMAIN_TIERS                                                     \
	"tensors: 4Ki\n"                                                 \
	"linger: 100ms\n"                                                \
	"tiers:\n"                                                       \
	"  hbm: {backend: memory, size: 24MiB}\n"                        \
	"  dram: {size: 24MiB, huge_pages: off}\n"                       \
	"  nvme: {paths: [{path: @NVME@, size: 96MiB}], block: 64KiB}\n" \
	"domains:\n"                                                     \
	"  - {name: red, users: [60001], hbm: 8MiB, dram: 8MiB, nvme: 16MiB}\n"
#define DOMAIN_TWO \
	DOMAIN_TIERS "  - {name: blue, users: [60002], hbm: 8MiB, dram: 8MiB, nvme: 50%}\n"

/* What the processes of a test share. */
struct board {
	_Atomic unsigned step;
	_Atomic unsigned kept; /* rounds in which domain_neighbour() found its bytes */
	_Atomic bool stop;     /* it ends then */
	tierd_tensor red[4];
};
extern struct board *board;
extern struct system domain_system;

#define MUST(cond, ...)                                                           \
	do {                                                                      \
		if (!(cond)) {                                                    \
			fprintf(stderr, "uid %u, line %d: ", getuid(), __LINE__); \
			fprintf(stderr, __VA_ARGS__);                             \
			fputc('\n', stderr);                                      \
			_exit(1);                                                 \
		}                                                                 \
	} while (0)

/* True where the test cannot be made, which was said. */
bool domain_root_is_missing(void);
void domain_start(const char *config);
void domain_stop(void);

void domain_become(uid_t uid);
struct tierd *domain_enter(uid_t uid);

/* Sets the step, or waits until it was reached: a minute at most. */
void domain_reach(unsigned step);
void domain_await(unsigned step);

tierd_tensor domain_make(struct tierd *t, const char *name, uint64_t bytes);
void domain_fill(struct tierd *t, tierd_tensor x, int place, int byte);
bool domain_holds(struct tierd *t, tierd_tensor x, int place, int byte);

/* A client of blue that reads 20 MiB of its own in both places, again and again, until board->stop,
 * and ends with 0 if every byte was right. */
pid_t domain_neighbour(void);
/* Fails the test unless it goes on. */
void domain_neighbour_goes_on(void);
void domain_neighbour_end(pid_t pid);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare chain of wake-ups that a miss stands on: client -> control thread -> lane -> control
 * thread -> client, with the same means (two eventfds, one eventfd back, a shared futex) and
 * nothing in between. The two threads live in a child process, as the daemon's do.
 */
#ifndef TIERD_TOOLS_BENCH_CHAIN_H
#define TIERD_TOOLS_BENCH_CHAIN_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

struct chain {
	pid_t child;
	int to_control, to_lane;
	struct chain_words {
		_Atomic uint32_t done;
	} * words; /* shared */
};

int chain_start(struct chain *ret); /* 0 or -errno */
void chain_stop(struct chain *c);
/* Once around. */
void chain_run(struct chain *c);

#endif

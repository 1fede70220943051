/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that goes on while others are killed and stopped: it made the shared tensors, knows
 * every word of them and looks, when it is told to, whether all is as it must be. Its connection is
 * its own; the test's process has none, so that it can fork. Fails the test if something is not.
 */
#ifndef TIERD_TESTS_KILL_WATCH_H
#define TIERD_TESTS_KILL_WATCH_H

#include <sys/types.h>

#include "tests/kill/ops.h"

struct watch {
	pid_t pid;
	int fd;
};

/* Begins: the shared tensors are made, words of version 1. */
void watch_start(struct watch *w, const char *socket);
/* Beside one that is stopped in `op`: every word is there for whoever asks, and others go on. */
void watch_beside(struct watch *w, const struct op *op, unsigned target, uint32_t version);
/* Behind one that is gone: nothing of it is left, every word of every shared tensor is right in
 * each place. What it may have written of the target is settled. */
void watch_behind(struct watch *w, const struct op *op, unsigned target, uint32_t version);
/* All is destroyed, and no tier holds a byte. The end. */
void watch_end(struct watch *w);
/* Its daemon is gone: the end. */
void watch_abandon(struct watch *w);

#endif

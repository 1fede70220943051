/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the access logs of one client: the one feed of every policy. The producer never waits for
 * us, so entries may be overrun: a lap number in each tells an old or torn one from the one that we
 * look for, and what is lost is counted. Everything read here may be forged; it can only mislead
 * policies about tensors of its own domain. Control thread.
 */
#ifndef TIERD_DAEMON_USES_H
#define TIERD_DAEMON_USES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/protocol/layout.h"

struct uses {
	struct access_log *logs; /* LOGS of them, in C */
	uint64_t position[LOGS]; /* next entry of each log */
	unsigned next;           /* log to go on with: the budget is fair to all threads */
};

struct uses_sink {
	void *ctx;
	void (*used)(void *ctx, uint32_t index, uint8_t place, uint8_t access);
};

void uses_init(struct uses *uses, struct access_log *logs);
/* Hands over at most `budget` entries. Returns how many; *lost grows by what was overrun. */
size_t uses_read(struct uses *uses, const struct uses_sink *sink, size_t budget, uint64_t *lost);
bool uses_pending(const struct uses *uses);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a client does when it is killed or stopped: an operation a row. Beside it stands a process
 * that goes on (watch.h), with tensors that both know by name; of one of them, the target, an
 * operation may write all words.
 */
#ifndef TIERD_TESTS_KILL_OPS_H
#define TIERD_TESTS_KILL_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/tierd.h"

#define KILL_NAME_SPACE "kill"
#define KILL_SHARED     6u
#define KILL_MADE       4u /* an operation makes at most so many, by name or without */
#define KILL_WAIT       (20 * (int64_t)1000000000)

extern const uint64_t kill_shared_bytes[KILL_SHARED]; /* multiples of 8 */

/* Every word of version `version` of the shared tensor `i`. */
uint64_t kill_word(unsigned i, uint32_t version);
void kill_shared_name(unsigned i, char *ret, size_t room);
void kill_made_name(unsigned i, char *ret, size_t room);

struct victim {
	const char *socket;
	unsigned target;  /* of the shared ones */
	uint32_t version; /* that it writes */
	struct tierd *t;
	tierd_tensor shared[KILL_SHARED], made[KILL_MADE];
	struct tierd_view views[KILL_SHARED];
	void *window;
	void *gpu; /* ops_stream.c's own */
};

struct op {
	const char *name;
	bool writes;   /* the target: its words may be of this version or of that before */
	bool discards; /* or zero */
	/* 0 or -errno; `prepare` NULL: connected, and the shared ones are known. */
	int (*prepare)(struct victim *v);
	int (*run)(struct victim *v);
};

extern const struct op kill_ops[];
extern const unsigned kill_op_count;
/* Needs a GPU's driver. */
extern const struct op kill_stream_ops[];
extern const unsigned kill_stream_op_count;

/* Connects and finds the shared ones. */
int kill_connect(struct victim *v);
void kill_fill(void *data, uint64_t bytes, uint64_t word);
/* Says what failed. */
int kill_said(struct victim *v, const char *what, int rc);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A client that knows the protocol well enough to break its rules one by one: it says hello, keeps
 * the handles that it is given, and stores what it is told to into its control segment. One thread,
 * and the flipper beside it.
 */
#ifndef TIERD_TESTS_FUZZ_HOSTILE_H
#define TIERD_TESTS_FUZZ_HOSTILE_H

#include "tests/fuzz/daemon.h"
#include "tests/system/wire.h"

#define HOSTILE_HANDLES 32u

struct hostile {
	struct fuzz_daemon *daemon;
	struct wire wire; /* fd -1: not connected */
	unsigned number;  /* among the targets of the flipper */
	unsigned pid;     /* index of its pidfd */
	unsigned ghost;   /* of one before it, that hung up and lives on until the next one does */
	struct control_layout at;
	struct wire_handle handle[HOSTILE_HANDLES]; /* that it was given */
	unsigned handles;
	uint64_t outstanding[SQ_ENTRIES / 64];
	uint32_t next_id;
	uint64_t log_head;
};

/* False: no more clients may come before a burial. */
bool hostile_connect(struct hostile *c);
/* Its end, in the way that `how` says: BYE, by a signal, or it hangs up and lives on. */
void hostile_end(struct hostile *c, unsigned how);
/* Puts an entry whose id is free unless `keep_id`; false: the ring is full. */
bool hostile_put(struct hostile *c, struct sq_entry *e, bool keep_id);
/* Takes completions and messages; false: it was dropped. */
bool hostile_look(struct hostile *c);

static inline void *hostile_part(const struct hostile *c, uint64_t offset)
{
	return (char *)c->wire.control + offset;
}

#endif

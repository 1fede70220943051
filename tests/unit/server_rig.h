/* SPDX-License-Identifier: Apache-2.0
 *
 * A server with its loop and a fake engine in the test's own thread: clients are spoken for by
 * tests/system/wire.h, and nothing happens but in rig_run().
 */
#ifndef TIERD_TESTS_SERVER_RIG_H
#define TIERD_TESTS_SERVER_RIG_H

#include "daemon/loop.h"
#include "daemon/rendezvous.h"
#include "daemon/segments.h"
#include "daemon/server.h"
#include "tests/system/wire.h"
#include "tests/unit/fake_engine.h"
#include "tests/unit/leftovers.h"

#define RIG_TENSORS    4096
#define RIG_SLAB_ARENA 0u
#define RIG_SLAB_BYTES MIB(2)
#define RIG_SLABS      70u

struct rig {
	char directory[LEFTOVERS_ROOM], socket[96];
	struct rendezvous rendezvous;
	struct segments segments;
	struct server_domain domain, other, *domains[2]; /* nobody is of the other one */
	struct loop_side side;
	struct loop *loop;
	struct server *server;
	_Atomic uint32_t done_wanted;
	unsigned turns_left;
};

extern uint64_t rig_connections_max, rig_clients_max; /* of the server that is started next */
extern unsigned rig_domains;
void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);
/* Some turns of the loop, none of which waits. */
void rig_run(struct rig *rig);
/* A client that said hello and has everything mapped. */
void rig_client(struct rig *rig, struct wire *ret);
/* Submits, turns, and takes the answer: its result. Fails the test when there is none. */
int rig_call(struct rig *rig, struct wire *w, const struct sq_entry *e, struct cq_entry *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine that knows nothing and remembers what it was asked, for tests of the parts that call
 * it. Link it instead of libengine.
 */
#ifndef TIERD_TESTS_FAKE_ENGINE_H
#define TIERD_TESTS_FAKE_ENGINE_H

#include "daemon/engine/engine.h"

#define FAKE_HOLDERS 64

struct holder {
	void *user;
	pin_slot *pins;
	char name_space[256];
	bool stopped, dead, used;
};

struct engine {
	struct holder holders[FAKE_HOLDERS];
	unsigned calls;           /* of any function below that a client can cause */
	const char *last;         /* its name */
	size_t count;             /* handles or specs of the last call */
	struct wire_handle first; /* handle of the last call */
	struct engine_spec spec;  /* of the last create */
	char name[256];           /* of the last create or lookup */
	uint8_t place, access;
	uint64_t deadline_ns, offset, bytes;
	void *window;
	uint32_t request, cancelled;
	struct holder *holder;
	int slab_fd;          /* what engine_slab_fd() answers */
	unsigned slabs_gone;  /* calls of engine_slab_gone() */
	uint64_t slab_offset; /* of the last call of either */
	unsigned slab_device;
	unsigned deferred; /* calls of engine_deferred() */
	unsigned uses;
	uint32_t use_index;
	bool ends;      /* create has no room before it is false */
	bool hold_gone; /* holder_gone does not come by itself */
};

/* The one of this process; zeroed by fake_engine_reset(). */
extern struct engine fake_engine;
void fake_engine_reset(void);
/* Bound to daemon/server.h: tells it that a holder is gone. */
void fake_engine_gone(struct holder *h);

#endif

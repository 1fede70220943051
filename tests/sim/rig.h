/* SPDX-License-Identifier: Apache-2.0
 *
 * A few clients at an engine in a world, driven by hand: for tests that need one order of events.
 */
#ifndef TIERD_TESTS_SIM_RIG_H
#define TIERD_TESTS_SIM_RIG_H

#include "tests/sim/world.h"

#define RIG_CLIENTS  3u
#define RIG_REQUESTS 16u
#define RIG_LOGS     4u

struct rig_client {
	struct holder *holder;
	pin_slot pins[WORLD_TENSORS];
	struct fence fences[FENCES];
	struct stream_word streams[STREAMS];
	struct deferred_ring deferred[STREAMS];
	struct access_log logs[RIG_LOGS];
	bool answered[RIG_REQUESTS];
	int result[RIG_REQUESTS];
	char text[RIG_REQUESTS][256];
	unsigned unmaps; /* asked of it; the last one: */
	uint64_t unmap_offset;
	uint64_t value[RIG_REQUESTS];
	bool gone;           /* the engine knows nothing of it any more */
	unsigned misbehaved; /* how often the engine has said so */
	unsigned excesses;   /* likewise that it holds too much; the last sentence: */
	char excess[EXCESS_TEXT_BYTES];
};

struct rig {
	struct world world; /* first: the hooks' context */
	struct rig_client client[RIG_CLIENTS];
};

/* All are of one namespace; where the shape has quotas they are of 'a', 'b' and 'c'. */
struct rig *rig_open(struct world_shape shape);
/* By another policy than lru, NULL: one for each class, by the seed. */
struct rig *rig_open_by(struct world_shape shape, const struct policy_ops *policy, uint64_t seed);
/* Everything still in flight comes back, all clients die. */
void rig_close(struct rig *r);

/* Another client in the place of one that has died. */
void rig_rejoin(struct rig *r, unsigned client);
void rig_rejoin_as(struct rig *r, unsigned client, char name_space);
struct wire_handle rig_create(struct rig *r, unsigned client, uint64_t bytes);
/* So many threads of the client have acquired something; until it is told nobody knows. */
void rig_threads(struct rig *r, unsigned client, unsigned threads);
/* A tensor with these bytes, all of them `c`, and its front at the place; of RIG_FILLED, in dram.
 */
struct wire_handle rig_create_written(struct rig *r, unsigned client, uint64_t bytes, uint8_t place,
				      char c);
#define RIG_FILLED (4 * WORLD_BLOCK)
struct wire_handle rig_create_filled(struct rig *r, unsigned client, char c);
void rig_destroy(struct rig *r, unsigned client, struct wire_handle t);
void rig_hint(struct rig *r, unsigned client, struct wire_handle t, uint8_t place);
/* By request 1: its result, or RIG_UNANSWERED after 100 ms. */
int rig_flush(struct rig *r, unsigned client, struct wire_handle t);
/* Requests that rig_wait() waits for: a flush of several, a copy of the first `bytes`. */
void rig_flush_all(struct rig *r, unsigned client, uint32_t id, const struct wire_handle *t,
		   size_t n);
void rig_copy(struct rig *r, unsigned client, uint32_t id, struct wire_handle t, bool in,
	      uint64_t bytes, void *window);
/* For ever where `timeout_ns` is ENGINE_NEVER. */
void rig_acquire(struct rig *r, unsigned client, uint32_t id, struct wire_handle t, uint8_t place,
		 uint8_t access, uint64_t timeout_ns);
/* The same of several, all or nothing. */
void rig_acquire_all(struct rig *r, unsigned client, uint32_t id, const struct wire_handle *t,
		     size_t n, uint8_t place, uint8_t access, uint64_t timeout_ns);
/* By request 1: all of them are brought to the place, used, and let go. */
void rig_use(struct rig *r, unsigned client, const struct wire_handle *t, size_t n, uint8_t place,
	     uint8_t access);
/* Acquires, waits and pins. Returns where the bytes are. */
char *rig_pin(struct rig *r, unsigned client, struct wire_handle t, uint8_t place, uint8_t access);
void rig_unpin(struct rig *r, unsigned client, struct wire_handle t, uint8_t access);
/* New ones of `owner`, each pinned by `client` to write, and let go again. */
void rig_hold(struct rig *r, unsigned owner, unsigned client, uint64_t bytes, uint8_t place,
	      struct wire_handle *ret, size_t n);
void rig_let_go(struct rig *r, unsigned client, const struct wire_handle *t, size_t n);
/* As rig_acquire(), for a GPU's place, of several and without a deadline. */
void rig_acquire_on(struct rig *r, unsigned client, uint32_t id, const struct wire_handle *t,
		    size_t n, uint8_t place, uint8_t access);
/* The client's try after its request was answered: pins it as it stands, FILLING or RESIDENT, or
 * returns NULL. */
char *rig_try(struct rig *r, unsigned client, struct wire_handle t, uint8_t place, uint8_t access);
/* Whether all of them are that. (An assertion a byte would cost a system call each.) */
bool rig_all_are(const char *at, char byte, uint64_t bytes);
/* Leaves a pin to be lowered when stream 0 to STREAMS - 1 gets to `value`. */
void rig_defer(struct rig *r, unsigned client, unsigned stream, struct wire_handle t,
	       uint8_t access, uint64_t value);
void rig_reach(struct rig *r, unsigned client, unsigned stream, uint64_t value);
/* Whether what the token says has come to pass. */
bool rig_passed(struct rig *r, unsigned client, uint64_t token);
bool rig_pinned(struct rig *r, unsigned client, struct wire_handle t);
#define RIG_UNANSWERED (-10000)
/* Xfers come back and time passes until the request is answered, for `ms` of the world's time at
 * most. Returns the result, or RIG_UNANSWERED. */
int rig_wait(struct rig *r, unsigned client, uint32_t id, unsigned ms);
/* Until nothing is in flight, and `ms` more. */
void rig_settle(struct rig *r, unsigned ms);
uint64_t rig_word0(struct rig *r, struct wire_handle t);
/* RESIDENT. */
bool rig_stands_at(struct rig *r, struct wire_handle t, uint8_t place);

#endif

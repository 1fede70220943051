/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's side of the protocol for one client, in a thread of the test: real memfds, socket
 * and rings, and no tiers behind them. A test may put its own answers in place of the usual ones,
 * hold requests back, and write anything into the shared memory.
 */
#ifndef TIERD_TESTS_FAKE_DAEMON_H
#define TIERD_TESTS_FAKE_DAEMON_H

#include <pthread.h>
#include <stdbool.h>

#include "libclient/protocol/hello.h"
#include "libclient/protocol/ring.h"
#include "libclient/protocol/stats_page.h"

#define FAKE_TENSORS     4096u
#define FAKE_TENSOR_SIZE 4096u /* of arena for each */
#define FAKE_ARENA       (FAKE_TENSORS * (uint64_t)FAKE_TENSOR_SIZE)
#define FAKE_SLABS       8u
#define FAKE_GPU         3u /* the wire's place of the arena of slabs */

struct fake;
/* Answers one entry; false: as usual. Under `lock`. */
typedef bool fake_answer(struct fake *f, const struct sq_entry *e);

struct fake {
	char path[108];
	int listen_fd, socket_fd, stop_fd, doorbell_fd;
	int control_fd, table_fd, stats_fd, arena_fd;
	pthread_t thread;
	pthread_mutex_t lock; /* everything below, and the rings */

	/* To be set before fake_start(). */
	fake_answer *answer;
	void (*spoil)(struct fake *f, struct hello_reply *reply); /* the hello, before it is sent */
	bool silent;                                              /* no hello at all */
	bool hold_acquire; /* ACQUIRE is not answered until fake_release_held() or CANCEL */
	bool never_sleep;  /* awake stays POLLING */
	/* A second arena, of slabs of a GPU: arena 1, place 3. `slab_bytes` 0: none. slab_fd()
	 * makes the descriptor that OP_SLAB sends; -1: it fails. */
	uint64_t slab_bytes;
	uint8_t uuid[16];
	int (*slab_fd)(struct fake *f, uint64_t offset);
	uint64_t zone_bytes; /* of the host arena */

	struct table_header *table;
	struct descriptor *descriptors;
	struct control_header *control;
	pin_slot *slots;
	struct access_log *logs;
	struct fence *fences;
	struct stream_word *streams;
	struct deferred_ring *deferred;
	uint32_t deferred_head[STREAMS];
	char *arena, *payloads, *windows, *texts;
	struct stats_page *stats;
	uint32_t sq_head, cq_tail;
	uint32_t created; /* tensors 1 to `created` exist */
	struct sq_entry held[SQ_ENTRIES];
	uint32_t held_count;
	uint32_t counts[64];   /* entries taken, an opcode */
	uint32_t doorbells;    /* times that the eventfd was found rung */
	uint32_t bye, hung_up; /* seen on the socket */
	bool asleep;           /* found nothing to do, and waits */
};

void fake_start(struct fake *f);
void fake_stop(struct fake *f);
/* Closes the socket as a dying daemon does. */
void fake_die(struct fake *f);

void fake_complete(struct fake *f, uint32_t id, int result, uint64_t value, uint32_t payload_bytes,
		   const char *text);
/* Answers everything that was held back with `result`. */
void fake_release_held(struct fake *f, int result);
void fake_wait_held(struct fake *f, uint32_t n);
/* One of the numbers above, read under `lock`. */
uint32_t fake_peek(struct fake *f, const uint32_t *number);
/* Returns once it sleeps, and is not rung for: `awake` alone also says so while what was found is
 * still answered, before it looks once more. */
void fake_wait_asleep(struct fake *f);
/* Returns once the client has said BYE. */
void fake_wait_bye(struct fake *f);
/* Sets word0 and word1 of a tensor; its bytes are in the arena at index * FAKE_TENSOR_SIZE. */
void fake_tensor(struct fake *f, uint32_t index, uint32_t generation, uint8_t state, uint8_t place,
		 uint16_t flags, uint64_t bytes);

/* The same in the arena of slabs. */
void fake_gpu_tensor(struct fake *f, uint32_t index, uint8_t state, uint64_t offset,
		     uint64_t bytes);
/* SLAB_MAP with `fd`, which is closed, or -1; SLAB_UNMAP. */
void fake_say_slab(struct fake *f, uint16_t kind, uint64_t offset, int fd);
/* Lowers the pins that streams have ended. It is done with every turn, too. */
void fake_deferred(struct fake *f);

#endif

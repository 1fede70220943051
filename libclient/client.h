/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection as the library keeps it: what a hit reads (`hot`), in pages that the kernel wipes in
 * a forked child, and the rest. Any thread; `lock` guards what its comment names. Nothing here is
 * seen by users: tierd.h is.
 */
#ifndef TIERD_CLIENT_H
#define TIERD_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/list.h"
#include "libclient/protocol/hello.h"
#include "libclient/protocol/layout.h"
#include "libclient/protocol/ring.h"
#include "libclient/protocol/stats_page.h"
#include "libclient/tierd.h"

#define CLIENT_MAGIC     0x746c6364u
#define CLIENT_HOT_BYTES 65536u /* whole pages whatever the page size is */
#define CLIENT_PLACES    16u    /* ordinals of GPUs that a process may name */
#define PLACE_UNKNOWN    0xfeu  /* in `places`: ask place_find() */
#define ZONE_CHUNK       GIB(1) /* the zone is registered in pieces of this size */
#define ZONE_CHUNKS_MAX  4096u

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct client_arena {
	char *base;
	uint64_t bytes; /* 0: not there */
};

/* All that the hit path reads. In a forked child it is all zeros: `count` refuses every handle and
 * `cookie` matches no view, so that the check for a fork costs nothing. */
struct client_hot {
	_Atomic uint32_t
		count;    /* descriptors and slots; 0 once the connection is broken or closed */
	uint32_t tensors; /* `count` as it was, for releases */
	struct descriptor *descriptors;
	pin_slot *slots;
	_Atomic uint32_t *awake; /* T's */
	uint64_t cookie;         /* of this connection; the low 8 bits are free for the access */
	struct client_arena arenas[HELLO_ARENAS_MAX];
	/* The wire's place by the caller's, from TIERD_HOST on; see place.c. */
	_Atomic uint8_t places[1 + CLIENT_PLACES];
};

/* An arena of GPU memory, mapped slab by slab (slab.c). It is no client_arena, so that a hit in
 * host memory does not ask. */
struct slab_arena {
	char *base;          /* the reserved range, NULL until the first use */
	uint64_t bytes;      /* 0: no such arena */
	uint64_t slab_bytes; /* 1 << slab_shift */
	unsigned slab_shift;
	uint8_t place;
	uint8_t uuid[16];
	int ordinal;              /* of that GPU in this process, -1: not known yet */
	_Atomic uint64_t *mapped; /* a bit a slab */
};

/* A CUDA stream of the process that releases by a word of C (deferred.c). */
struct client_stream {
	/* Under `deferred_lock`: */
	bool taken;
	unsigned users; /* threads that are about to release by it */
	uint64_t id;    /* CUDA's, never used twice */
	int device;

	pthread_mutex_t lock; /* the ring, the order on the stream, and: */
	uint64_t value;       /* last one that the stream was told to write */
	uint32_t tail;        /* entries stored in the ring */
};

enum request_state {
	REQUEST_FREE,
	REQUEST_TAKEN,       /* the caller fills its payload */
	REQUEST_OUTSTANDING, /* the daemon has it */
	REQUEST_DONE,
};

/* One a request id. Guarded by `lock`, but for the futex word. */
struct request {
	struct list link; /* in `waiters` while a thread sleeps on `word` */
	enum request_state state;
	bool forgotten;        /* nobody waits: whoever reaps the completion frees the id */
	bool cancelled;        /* an OP_CANCEL was sent */
	_Atomic uint32_t word; /* futex: WORD_* */
	int payload, window;   /* slots held, -1: none */
	struct cq_entry completion;
};

/* A segment as it is mapped here. */
struct segment {
	void *base;
	uint64_t bytes;
};

struct tierd {
	union {
		struct client_hot hot;
		char hot_pages[CLIENT_HOT_BYTES];
	};
	uint32_t magic;
	pid_t pid;
	int socket_fd, control_fd, doorbell_fd;
	uint32_t client_id;
	struct segment control, table, stats;
	const struct stats_page *page; /* NULL: its counters lie as those of another minor */

	/* Views that outlive tierd_close(), see close.c. */
	_Atomic uint64_t views_left;

	uint64_t spin_ns; /* how long a waiter looks before it sleeps */

	/* Places in C, validated once by map.c. */
	struct control_header *header;
	void *sq, *cq;
	char *texts, *payloads, *windows;
	struct access_log *logs;
	struct fence *fences;
	struct stream_word *streams;
	struct deferred_ring *deferred;
	uint32_t ids, payload_slots, window_slots, log_count, fence_count, stream_count;
	uint32_t payload_bytes, window_bytes;

	bool no_thread; /* TIERD_NO_THREAD */
	bool by_uuid;   /* GPUs are found by UUID; else ordinals are the daemon's */
	struct slab_arena slabs[HELLO_ARENAS_MAX];
	struct segment zone;           /* of dram, for TIERD_DEVICE_COPY; 0 bytes: none */
	_Atomic uint32_t slabs_mapped; /* while some are, messages of the socket are looked for */
	_Atomic uint32_t watched;      /* 1: by the watcher */
	pthread_mutex_t slab_lock;     /* ranges, maps, and reading the socket; before `lock` */
	pthread_mutex_t place_lock;    /* `places` and ordinals, while they are found out */
	pthread_mutex_t register_lock; /* what is registered with CUDA: */
	bool fences_registered;
	uint64_t zone_registered[ZONE_CHUNKS_MAX / 64];
	int register_device;

	pthread_mutex_t fence_lock;    /* fences that were handed to us (fence.c): */
	uint64_t fence_wanted[FENCES]; /* value by fence, 0: none outstanding */
	bool fences_let_go;            /* the daemon is dead: nobody stores values any more */
	struct err fence_failed;       /* the first failure that no call has told yet */
	tierd_tensor fence_failed_tensor;

	pthread_mutex_t deferred_lock; /* whose the words are; not while the driver is called */
	struct client_stream stream[STREAMS];

	pthread_mutex_t watch_lock; /* the watcher's life: */
	bool watching;
	pthread_t watcher;
	int watch_stop_fd;

	pthread_mutex_t lock; /* everything below */
	bool broken;          /* the daemon is gone or broke the protocol: `broken_why` */
	struct err broken_why;
	uint32_t sq_tail, cq_head;
	struct request requests[SQ_ENTRIES];
	uint32_t ids_taken;
	uint64_t payloads_free, windows_free; /* bitmaps */
	int leader; /* id of the request whose thread sleeps on the CQ, -1 */
	struct list waiters;
	_Atomic uint32_t freed; /* futex: counts ids and slots given back */
	uint32_t takers;        /* threads that wait for `freed` */
	uint64_t bad_completions;
};

/* Rings the doorbell: one write. */
void client_ring(struct tierd *t);

/* Process numbers do not tell: a child in a PID namespace of its own may have its parent's. */
static inline bool client_is_forked(const struct tierd *t)
{
	return t->hot.cookie == 0;
}
/* Why a call cannot be served: -EPERM in a forked child, -EPIPE with the reason, else 0. */
int client_usable(struct tierd *t);
/* 0 where t->page may be read; else -EPROTO with both versions. */
int stats_usable(const struct tierd *t);

#endif

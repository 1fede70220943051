/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes over the socket (SOCK_SEQPACKET): one hello, one answer with descriptors, messages
 * about slabs from the daemon, and a BYE.
 */
#ifndef TIERD_PROTOCOL_HELLO_H
#define TIERD_PROTOCOL_HELLO_H

#include "libclient/protocol/layout.h"

#define HELLO_ARENAS_MAX 16

struct hello_request {
	uint32_t magic;
	uint16_t major, minor;
	uint64_t features; /* wanted; 0 */
	uint32_t name_space_bytes;
	uint32_t reserved0;
	char name_space[256]; /* see HELLO_OPERATOR_NAME_SPACE */
	/* From minor 3 on, and a hello may end before it, as older ones do: the domain to look at,
	 * for root and the daemon's own user; filled up with NUL. "": that of the client's uid. */
	char domain[64];
};
/* By this one, which no job has, root and the daemon's own user are let in when others are told
 * that there is no room for clients. To look from within a job's would keep its named tensors
 * alive. */
#define HELLO_OPERATOR_NAME_SPACE "tierctl"
#define HELLO_REQUEST_BYTES_LEAST 280
static_assert(offsetof(struct hello_request, domain) == HELLO_REQUEST_BYTES_LEAST, "");
static_assert(sizeof(struct hello_request) == 344, "");

struct hello_arena {
	uint16_t arena; /* as in word1 */
	uint8_t place;  /* as in word0 */
	uint8_t reserved0[5];
	uint64_t bytes;      /* of the mapping */
	uint64_t slab_bytes; /* a power of two; 0: one descriptor came with this answer; else see
				OP_SLAB */
	uint64_t zone_bytes; /* dram: SPEC_DEVICE_COPY tensors stand in [0, zone_bytes) */
	uint8_t uuid[16];    /* of the GPU; zeros: host memory stands in for it */
};
static_assert(sizeof(struct hello_arena) == 48, "");

/* Descriptors that come with an answer of result 0, in this order: C, T, doorbell (eventfd), stats
 * page, then one an arena that has no slabs. */
#define HELLO_FDS 4

struct hello_reply {
	uint32_t magic;
	uint16_t major, minor;
	int32_t result; /* 0 or -errno, then `text` says why */
	uint32_t fds;   /* HELLO_FDS + arenas without slabs */
	uint64_t features;
	uint64_t boot_id;
	uint32_t client_id, arenas;
	uint64_t control_bytes, table_bytes, stats_bytes;
	struct hello_arena arena[HELLO_ARENAS_MAX];
	char text[256];
};
static_assert(sizeof(struct hello_reply) == 64 + 16 * 48 + 256, "");

/* Daemon to client, after the hello. MAP comes with one descriptor, before the completion of the
 * OP_SLAB that asked. UNMAP: nothing stands in that slab any more; its memory is free once every
 * client that mapped it has said SLAB_GONE or is dead. A slab that a client unmaps by itself it
 * asks for again before it uses it. */
enum { SLAB_MAP = 1, SLAB_UNMAP = 2 };
struct hello_slab {
	uint32_t magic;
	uint16_t kind, arena;
	uint64_t offset, bytes;
};
static_assert(sizeof(struct hello_slab) == 24, "");

/* The library's last message, after its last unmapping: {PROTOCOL_MAGIC, "BYE\0"}. */
struct hello_bye {
	uint32_t magic;
	char bye[4];
};
static_assert(sizeof(struct hello_bye) == 8, "");

#define HELLO_DEADLINE_NS 10000000000ull

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What EXPLAIN and WAITS answer: why a tensor is where it is, and who waits for what. Numbers as in
 * layout.h; times are distances, so that nobody needs the daemon's clock.
 */
#ifndef TIERD_PROTOCOL_EXPLAIN_H
#define TIERD_PROTOCOL_EXPLAIN_H

#include "libclient/protocol/layout.h"

/* Facts about one tensor: X(name, bit, "what it says"). Numbers are for ever. */
#define EXPLAIN_REASONS(X)                                                                      \
	X(PINNED, 0, "it stays: clients pin it")                                                \
	X(MOVING, 1, "it is being moved")                                                       \
	X(WANTED, 2, "requests want it where it is, or is going")                               \
	X(HELD, 3, "it stays: held for the client that asked for it, until its first pin")      \
	X(BACKOFF, 4, "it stays: its last write-back failed, and is tried again in a second")   \
	X(NO_HOME, 5, "it stays: no tier below can take its bytes")                             \
	X(UNFILLED, 6, "a discarding writer has it and has written nothing yet")                \
	X(DOOMED, 7, "destroyed: its last pin or move ends it")                                 \
	X(LARGE, 8, "larger than dram: on nvme or a gpu, reached from the host by copies")      \
	X(SMALL, 9, "below 4 KiB: it never goes to nvme")                                       \
	X(ZONED, 10, "made for copies by a gpu: in dram it stands in the zone alone")           \
	X(LOST, 11, "its only bytes were on a device that was lost")                            \
	X(PREFETCHED, 12, "brought by a hint, and not used since")                              \
	X(HINTED, 13, "a hint wants it elsewhere; there was no room yet")                       \
	X(TOLD, 14, "a client said that it is not needed soon: it goes before others")          \
	X(ROOM, 15, "it stays: its tier is below the high watermark and nobody waits for room") \
	X(MAY_GO, 16, "it goes when room is wanted and its turn comes")                         \
	X(UNWRITTEN, 17, "never written: reads as zeros and needs no bytes anywhere")           \
	X(CLEAN, 18, "a lower tier has the same bytes: it can go without I/O")                  \
	X(FAILED, 19, "its bytes could not be brought; it is so until its last pin ends")       \
	X(GUARANTEED, 20, "it stays while others want room: its namespace has what is its right")

enum explain_reason {
#define X(name, bit, text) EXPLAIN_##name = 1u << (bit),
	EXPLAIN_REASONS(X)
#undef X
};

/* EXPLAIN: this, then `pins_listed` of struct wire_pin. */
struct wire_explain {
	uint32_t index, generation;
	uint32_t reasons;              /* EXPLAIN_* */
	uint32_t pinners, pins_listed; /* clients that pin it; of those, in this answer */
	uint32_t waiters;              /* requests in progress that want it */
	uint32_t owner_pid;            /* of an unnamed one: its client; 0: named, or gone */
	uint32_t held_pid;             /* with HELD */
	uint64_t held_ns;              /* likewise, for how long still */
	uint64_t used_ago_ns;          /* since a client last acquired it, or made it */
	uint64_t used_ago_steps;       /* likewise in tierd_step() calls of its namespace */
	uint64_t needed_in_ms;         /* as the class's policy guesses; UINT64_MAX: it cannot */
	uint64_t score;                /* of the policy, the highest goes first; 0: no front */
	uint8_t device;                /* of the front: an index of the stats page; 0xff: none */
	uint8_t move_kind;             /* 0: none, else enum explain_move */
	uint8_t move_from, move_to;    /* devices; 0xff: nowhere, or several */
	uint32_t move_pieces, move_done;
	/* With MAY_GO: 1 + how many go before it, as things are; with GUARANTEED, of those of its
	 * namespace. 0: it cannot go now. */
	uint32_t rank;
	uint64_t move_ns; /* since it began */
	char policy[16];  /* the class's, ends with NUL */
	uint64_t steps;   /* iterations of its namespace so far */
	/* Of the move's transfers the one that is out for longest: milliseconds, and whose lane has
	 * it; 0xff: none is out. */
	uint32_t out_ms;
	uint8_t out_device;
	uint8_t rank_least; /* 1: `rank` is that or more, not all were looked at */
	uint8_t reserved[2];
};
static_assert(sizeof(struct wire_explain) == 128, "");

/* Numbers of moves; 0: none. */
enum explain_move {
	EXPLAIN_FILL = 1,
	EXPLAIN_WRITE_BACK = 2,
	EXPLAIN_COMPACT = 3,
	EXPLAIN_COPY = 4,
};

struct wire_pin {
	uint32_t pid, client;      /* client: the daemon's number of the connection */
	uint32_t pins, write_pins; /* the second among the first */
	uint8_t written, waits;    /* it has written; it waits for something itself */
	uint8_t reserved[6];
};
static_assert(sizeof(struct wire_pin) == 24, "");

/* WAITS: a request in progress, of the first tensor of it that is not there. Followed by the
 * tensor's name, the name of the tensor's namespace and that of the client's, padded to 8 bytes
 * together. */
struct wire_wait {
	uint32_t bytes; /* of this record with its names and padding */
	uint32_t pid, client;
	uint8_t kind;   /* enum wait_kind */
	uint8_t reason; /* enum wait_reason */
	uint8_t place, access;
	uint32_t index, generation; /* 0: of no tensor */
	uint32_t tensors;           /* of the request */
	uint32_t blocker_pid;       /* whose pins are in the way, 0: nobody's */
	uint64_t since_ns;
	uint64_t tensor_bytes; /* of that tensor */
	uint8_t device;        /* where to, an index of the stats page; 0xff: none */
	uint8_t name_bytes, name_space_bytes, client_space_bytes;
	/* Where it waits for room, the blocker is the client that pins most of it there (for QUOTA,
	 * of what is that namespace's): so many KiB, UINT32_MAX: that or more. */
	uint32_t blocker_kib;
};
static_assert(sizeof(struct wire_wait) == 56, "");

enum wait_kind { WAIT_ACQUIRE = 0, WAIT_COPY = 1, WAIT_FLUSH = 2, WAIT_KINDS };

/* X(name, number, "text") */
#define WAIT_REASONS(X)                                       \
	X(OTHERS, 0, "an earlier request wants it elsewhere") \
	X(ROOM, 1, "room")                                    \
	X(MOVE, 2, "bytes on their way")                      \
	X(PIN, 3, "a pin elsewhere")                          \
	X(QUOTA, 4, "room within what its namespace may have")

enum wait_reason {
#define X(name, number, text) WAIT_FOR_##name = number,
	WAIT_REASONS(X)
#undef X
		WAIT_REASON_COUNT
};

/* QUOTAS: what the namespaces of one row of `namespaces` have of one device, or of all devices of
 * dram or of nvme together. Followed by the row's name without its star, padded to 8 bytes. */
struct wire_quota {
	uint32_t bytes; /* of this record with its name and padding */
	uint8_t device; /* an index of the stats page; of several the first */
	uint8_t name_bytes;
	uint8_t prefix; /* 1: all whose names begin so */
	uint8_t others; /* 1: those without a row, together */
	uint64_t used_bytes;
	uint64_t guarantee_bytes;
	uint64_t limit_bytes; /* UINT64_MAX: the tier's size alone */
	uint64_t sure_bytes;  /* what one request may ask for, and create counts on */
};
static_assert(sizeof(struct wire_quota) == 40, "");

#endif

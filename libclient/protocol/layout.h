/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared memory between tierd and its clients, to the byte. Little-endian, fixed widths, no
 * pointers, no bitfields, no enums; reserved bytes are zero and checked. Every offset is asserted
 * at compile time below. docs/protocol.md explains; this file decides.
 *
 *  T  descriptor table, one a domain: the daemon writes, clients map it read-only.
 *  C  control segment, one a client: its owner and the daemon write; all that is read from it is
 *     copied once and then validated.
 *  D,G arenas: offsets in them come from descriptors. An arena of GPU memory is mapped slab by
 * slab; the descriptors of its slabs come over the socket when a client asks (OP_SLAB).
 */
#ifndef TIERD_PROTOCOL_LAYOUT_H
#define TIERD_PROTOCOL_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_MAGIC 0x64726574u /* "terd" */
#define PROTOCOL_MAJOR 0
#define PROTOCOL_MINOR 4

#define PROTOCOL_PLACE_HOST 0xffu
#define PROTOCOL_NAME_MAX   255u

/* The same values as in tierd.h, for those who do not see it. */
enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_DISCARD = 4 };
#define PROTOCOL_CLASSES  5u
#define PROTOCOL_NDIM_MAX 8u
#define PROTOCOL_DTYPES   11u

/* Bytes of an element, by enum tierd_dtype; 0: not known. */
static inline uint32_t dtype_bytes(uint8_t dtype)
{
	static const uint8_t bytes[PROTOCOL_DTYPES] = { 1, 1, 4, 8, 2, 2, 4, 8, 1, 1, 1 };

	return dtype < PROTOCOL_DTYPES ? bytes[dtype] : 0;
}

/* ---- descriptor ----
 * word0 {generation:32, state:8, place:8, flags:16}, word1 {arena:16, offset:48} */

enum {
	STATE_ABSENT = 0,
	STATE_FILLING = 1,
	STATE_RESIDENT = 2,
	STATE_EVICTING = 3, /* bytes intact, not yet scanned: pins still win */
	STATE_DROPPING = 4, /* scanned: bytes may be gone */
	STATE_FAILED = 5,
	STATE_COUNT
};

enum {
	FLAG_UNFILLED = 1, /* a DISCARD front that no writer has filled yet */
	FLAG_DOOMED = 2,   /* destroyed, still pinned somewhere */
	FLAG_LARGE = 4,    /* larger than dram: reached by copies */
};

struct descriptor {
	_Atomic uint64_t word0;
	_Atomic uint64_t word1;
	uint64_t bytes;
	uint8_t class_, dtype;
	uint16_t reserved0;
	uint32_t check; /* CRC-32C of {index:32, generation:32, bytes:64, class:8, dtype:8} */
	uint64_t reserved[4];
};
static_assert(sizeof(struct descriptor) == 64, "descriptor is one cache line");
static_assert(offsetof(struct descriptor, word0) == 0, "");
static_assert(offsetof(struct descriptor, word1) == 8, "");
static_assert(offsetof(struct descriptor, bytes) == 16, "");
static_assert(offsetof(struct descriptor, class_) == 24, "");
static_assert(offsetof(struct descriptor, dtype) == 25, "");
static_assert(offsetof(struct descriptor, check) == 28, "");

static inline uint64_t word0_make(uint32_t generation, uint8_t state, uint8_t place, uint16_t flags)
{
	return (uint64_t)generation | (uint64_t)state << 32 | (uint64_t)place << 40 |
	       (uint64_t)flags << 48;
}
static inline uint32_t word0_generation(uint64_t w)
{
	return (uint32_t)w;
}
static inline uint8_t word0_state(uint64_t w)
{
	return (uint8_t)(w >> 32);
}
static inline uint8_t word0_place(uint64_t w)
{
	return (uint8_t)(w >> 40);
}
static inline uint16_t word0_flags(uint64_t w)
{
	return (uint16_t)(w >> 48);
}
static inline uint64_t word1_make(uint16_t arena, uint64_t offset)
{
	return (uint64_t)arena | offset << 16;
}
static inline uint16_t word1_arena(uint64_t w)
{
	return (uint16_t)w;
}
static inline uint64_t word1_offset(uint64_t w)
{
	return w >> 16;
}

/* ---- pin slot: {pins:16, write_pins:16, written:1, filled:1, reserved:29, closing:1} ---- */

typedef _Atomic uint64_t pin_slot;

#define PIN_ONE        0x0000000000000001ull
#define PIN_MASK       0x000000000000ffffull
#define PIN_WRITE_ONE  0x0000000000010000ull
#define PIN_WRITE_MASK 0x00000000ffff0000ull
#define PIN_WRITTEN    0x0000000100000000ull
#define PIN_FILLED     0x0000000200000000ull
#define PIN_ANY        (PIN_MASK | PIN_WRITE_MASK)
/* The library's own note in a slot whose views outlive tierd_close(); nothing to the daemon. */
#define PIN_CLOSING 0x8000000000000000ull

/* ---- T ---- */

/* What the daemon is doing, in table_header.awake. A producer of ring entries rings the doorbell
 * unless it is POLLING; a producer of log entries only when it is ASLEEP. */
enum {
	DAEMON_POLLING = 0, /* will look at all rings and logs before it sleeps */
	DAEMON_NAPPING = 1, /* blocked for 1 ms at most: logs are looked at without a doorbell */
	DAEMON_ASLEEP = 2,  /* blocked until a doorbell */
};

struct table_header {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t header_bytes, total_pages; /* of 4096 bytes */
	uint64_t boot_id;                   /* random, one a daemon's life */
	uint64_t descriptors_offset;
	uint32_t descriptors_stride, descriptors_count;
	uint64_t reserved0[2];
	_Alignas(64) _Atomic uint32_t awake; /* DAEMON_*, seq_cst on both sides */
	uint32_t reserved1[15];
};
#define TABLE_HEADER_BYTES 4096u
static_assert(sizeof(struct table_header) == 128, "");
static_assert(offsetof(struct table_header, boot_id) == 16, "");
static_assert(offsetof(struct table_header, descriptors_offset) == 24, "");
static_assert(offsetof(struct table_header, awake) == 64, "");

/* ---- C ---- */

/* An array in a segment. */
struct layout_array {
	uint64_t offset;
	uint32_t stride, count;
};
static_assert(sizeof(struct layout_array) == 16, "");

struct control_header {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t header_bytes;
	uint32_t client_id;
	uint64_t total_bytes;
	uint64_t boot_id;
	struct layout_array sq, cq, texts, payload, window, logs, pins;
	uint64_t inflight_offset; /* reserved for the in-flight log of warm restart: 0 */
	uint64_t client_version, server_version;
	struct layout_array fences, streams, deferred;
	uint64_t reserved0[7];
	/* One cache line each: who writes stands beside it. */
	_Alignas(64) _Atomic uint32_t sq_tail; /* client: entries submitted */
	_Alignas(64) _Atomic uint32_t sq_head; /* daemon: entries taken */
	_Alignas(64) _Atomic uint32_t cq_tail; /* daemon: entries completed; clients sleep here */
	_Alignas(64) _Atomic uint32_t cq_head; /* client: entries consumed */
	_Alignas(64) _Atomic uint32_t cq_waiting; /* client: some thread sleeps on cq_tail */
};
#define CONTROL_HEADER_BYTES 4096u
static_assert(offsetof(struct control_header, sq) == 32, "");
static_assert(offsetof(struct control_header, inflight_offset) == 144, "");
static_assert(offsetof(struct control_header, sq_tail) == 320, "");
static_assert(offsetof(struct control_header, cq_waiting) == 576, "");
static_assert(sizeof(struct control_header) == 640, "");

#define SQ_ENTRIES    256u /* = CQ entries = requests outstanding: completions always have room */
#define TEXT_BYTES    256u /* one error sentence a request id */
#define PAYLOAD_SLOTS 32u
#define PAYLOAD_BYTES 65536u
#define WINDOW_SLOTS  8u /* copy_in and copy_out of what is in no mapped tier */
#define WINDOW_BYTES  1048576u
#define LOGS          64u /* threads with a log of their own; uses of more threads go unlogged */
#define LOG_ENTRIES   2048u
#define LOG_HEADER    64u
#define LOG_STRIDE    (LOG_HEADER + LOG_ENTRIES * 8u)

/* Access log of one thread: single producer. The producer never looks at the daemon's place: what
 * is overrun is lost and counted. Entry: {index:32, place:8, access:8, lap:16}; `lap` is the low
 * bits of (position / LOG_ENTRIES) + 1, so that a torn or old entry is told from a new one. */
struct access_log {
	_Atomic uint32_t owner; /* client: 0 free, else taken by a thread */
	uint32_t reserved0;
	_Atomic uint64_t head; /* client: entries ever stored */
	uint64_t reserved[6];
	_Atomic uint64_t entries[LOG_ENTRIES];
};
static_assert(offsetof(struct access_log, entries) == LOG_HEADER, "");
static_assert(sizeof(struct access_log) == LOG_STRIDE, "");

/* ---- GPU fences ----
 * `fences` and `streams` follow each other in whole pages of their own, which the client registers
 * with CUDA; the daemon reads and writes them with the CPU alone and never makes a GPU wait. */

#define FENCES           1024u
#define STREAMS          32u
#define DEFERRED_ENTRIES 1024u
#define DEFERRED_HEADER  128u
#define DEFERRED_STRIDE  (DEFERRED_HEADER + DEFERRED_ENTRIES * 16u)

/* An ACQUIRE_ON completes when room is reserved, and names {fence, value}: the tensors are there
 * once `value` of that fence is greater or equal. The daemon takes a fence, hands out its value +
 * 1, stores that when all moves have ended, and takes the fence again only after that, so a word
 * only grows. Every value that was handed out is stored, also when a move fails: then `failed_at`
 * has the value and the rest says what failed, stored before `value`. Daemon writes; a client
 * stores values itself only once the daemon is dead. */
struct fence {
	_Atomic uint64_t value;
	_Atomic uint64_t failed_at; /* of the last failure, 0: none yet */
	int32_t result;             /* -errno of it */
	uint32_t index, generation; /* the tensor that failed */
	uint32_t reserved0;
	uint64_t reserved[4];
};
static_assert(sizeof(struct fence) == 64, "");

/* One a CUDA stream of the client, which its GPU writes: all releases of ring [same index] up to
 * `value` may take effect. Grows by one each release_on(). */
struct stream_word {
	_Atomic uint64_t value;
	uint64_t reserved[7];
};
static_assert(sizeof(struct stream_word) == 64, "");

/* Pins that end when a stream gets there. Client produces, daemon consumes: it lowers one pin of
 * `access` in slot `index`, once, when the stream's word is greater or equal to `value`. */
struct deferred_entry {
	uint32_t index, access;
	uint64_t value;
};
struct deferred_ring {
	_Atomic uint32_t tail; /* client: entries stored, free-running */
	uint32_t reserved0[15];
	_Atomic uint32_t head; /* daemon: entries taken */
	uint32_t reserved1[15];
	struct deferred_entry entries[DEFERRED_ENTRIES];
};
static_assert(offsetof(struct deferred_ring, head) == 64, "");
static_assert(offsetof(struct deferred_ring, entries) == DEFERRED_HEADER, "");
static_assert(sizeof(struct deferred_ring) == DEFERRED_STRIDE, "");

/* cq_entry.value of ACQUIRE_ON; 0: everything is in place, there is nothing to wait for. */
static inline uint64_t fence_token(uint32_t fence, uint64_t value)
{
	return (uint64_t)fence << 48 | value;
}
static inline uint32_t fence_token_index(uint64_t token)
{
	return (uint32_t)(token >> 48);
}
static inline uint64_t fence_token_value(uint64_t token)
{
	return token & 0xffffffffffffull;
}

static inline uint64_t log_entry_make(uint32_t index, uint8_t place, uint8_t access,
				      uint64_t position)
{
	return (uint64_t)index | (uint64_t)place << 32 | (uint64_t)access << 40 |
	       ((position / LOG_ENTRIES + 1) & 0xffff) << 48;
}

/* ---- ring entries ---- */

struct sq_entry {
	uint32_t id;     /* request: index into texts[], < SQ_ENTRIES, one outstanding at a time */
	uint16_t opcode; /* OP_* */
	uint8_t place;   /* PROTOCOL_PLACE_HOST or a GPU's ordinal */
	uint8_t access;  /* TIERD_READ | TIERD_WRITE | TIERD_DISCARD */
	uint32_t index, generation;      /* the tensor, where the opcode has one */
	int64_t timeout_ns;              /* negative: for ever */
	uint32_t payload, payload_bytes; /* offset into the payload area and length, 0: none */
	uint64_t offset, bytes;          /* COPY: range in the tensor */
	uint32_t count;                  /* of what the payload lists */
	uint32_t window;                 /* COPY: window slot; CANCEL: the request's id */
	uint64_t reserved;               /* 0 */
};
static_assert(sizeof(struct sq_entry) == 64, "");
static_assert(offsetof(struct sq_entry, timeout_ns) == 16, "");
static_assert(offsetof(struct sq_entry, offset) == 32, "");
static_assert(offsetof(struct sq_entry, count) == 48, "");

struct cq_entry {
	uint32_t id;
	int32_t result;         /* 0 or a count, or -errno: then texts[id] has the sentence */
	uint64_t value;         /* by opcode */
	uint32_t payload_bytes; /* written into the request's payload */
	uint32_t reserved0;
	uint64_t reserved[5];
};
static_assert(sizeof(struct cq_entry) == 64, "");

/* Opcodes: X(name, number, "what payload and value are"). Numbers are for ever. */
#define PROTOCOL_OPCODES(X)                                                                        \
	X(ACQUIRE, 1, "bring index to place; payload: count handles for a batch, else none")       \
	X(CANCEL, 2, "request `window` is not wanted any more; both complete")                     \
	X(CREATE, 3, "payload: count struct wire_spec, each followed by its name; back: handles")  \
	X(LOOKUP, 4, "payload: name; back: one handle")                                            \
	X(DESTROY, 5, "payload: count handles")                                                    \
	X(PREFETCH, 6, "payload: count handles, earliest need first")                              \
	X(EVICT, 7, "payload: count handles")                                                      \
	X(COPY_OUT, 8, "range of the tensor into window slot; -EAGAIN: resident now, pin it")      \
	X(COPY_IN, 9, "window slot into range of the tensor; -EAGAIN: resident now, pin it")       \
	X(STEP, 10, "an iteration ended")                                                          \
	X(FLUSH, 11, "payload: count handles; count 0: the namespace")                             \
	X(STAT, 12, "back: struct wire_info, name, namespace")                                     \
	X(LIST, 13,                                                                                \
	  "offset: first index; back: struct wire_info + names, value: next index, 0 = end")       \
	X(TRIM, 14, "give unused pages back")                                                      \
	X(MARK, 15, "peaks begin anew")                                                            \
	X(ACQUIRE_ON, 16, "as ACQUIRE, but done when room is reserved; value: fence token")        \
	X(SLAB, 17, "index: arena, offset: of a slab; its descriptor comes over the socket first") \
	X(SLAB_GONE, 18, "index: arena, offset: of a slab that this client has unmapped")          \
	X(SLAB_KEPT, 19, "index: arena, offset: of a slab that it was to unmap and uses")          \
	X(EXPLAIN, 20, "back: struct wire_explain + struct wire_pin (explain.h)")                  \
	X(WAITS, 21,                                                                               \
	  "offset: where to begin; back: struct wire_wait + names, value: next, 0 = end")          \
	X(QUOTAS, 22, "likewise; back: struct wire_quota + name (explain.h)")

enum protocol_opcode {
#define X(name, number, help) OP_##name = number,
	PROTOCOL_OPCODES(X)
#undef X
};

struct wire_handle {
	uint32_t index, generation;
};

/* The same value as in tierd.h. */
enum { SPEC_DEVICE_COPY = 1 };

/* CREATE: packed one after the other, each padded with its name to 8 bytes. */
struct wire_spec {
	uint32_t bytes;                          /* of this record, name and padding included */
	uint8_t class_, dtype, ndim, name_bytes; /* name_bytes 0: unnamed */
	uint64_t flags;                          /* SPEC_* */
	uint64_t shape[8];
	/* char name[name_bytes], zero padding */
};
static_assert(sizeof(struct wire_spec) == 80, "");

/* STAT, LIST: followed by name and namespace, padded to 8 bytes together. */
struct wire_info {
	uint32_t bytes; /* of this record with its names and padding */
	uint8_t class_, dtype, ndim, name_bytes;
	uint8_t name_space_bytes, state, place, dirty;
	uint32_t index, generation, pins;
	uint64_t tensor_bytes, version;
	uint64_t stored_bytes[3];
	uint64_t shape[8];
};
static_assert(sizeof(struct wire_info) == 128, "");
static_assert(offsetof(struct wire_info, tensor_bytes) == 24, "");

#endif

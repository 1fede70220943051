/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the fake driver share. One lock covers all; every entry point is
 *
 *     ENTER(member, NEED_...);
 *     ... return leave(result);
 */
#ifndef TIERD_TESTS_FAKE_CUDA_INSIDE_H
#define TIERD_TESTS_FAKE_CUDA_INSIDE_H

#include <pthread.h>

#include "base/cuda.h"
#include "base/list.h"
#include "tests/fake/cuda/fake_cuda.h"

#define FAKE_DEVICES_MAX 16

enum fake_call {
#define X(member, symbol, version) CALL_##member,
	CUDA_ENTRY_POINTS(X)
#undef X
		CALLS,
};

/* The entry points, each with the type of its row. */
#define X(member, symbol, version) __typeof__(symbol) fake_##member;
CUDA_ENTRY_POINTS(X)
#undef X

enum fake_op_kind {
	OP_COPY,
	OP_FILL,
	OP_RECORD,
	OP_WAIT_EVENT,
	OP_WAIT_VALUE,
	OP_WRITE_VALUE,
	OP_KERNEL,
};

/* Where the bytes of an operation lie, and so what must still hold when it runs. */
enum fake_place { PLACE_DEVICE, PLACE_PINNED, PLACE_PAGEABLE };

struct fake_op {
	struct list link;
	struct fake_stream *stream;
	enum fake_op_kind kind;
	uint64_t seq;  /* of all operations of the process */
	bool poisoned; /* its destination is, once it may go */
	void *to;
	const void *from;
	size_t bytes;
	enum fake_place to_place, from_place;
	unsigned char fill;
	struct fake_event *event;
	uint64_t version;   /* of the event: the record that is meant */
	struct list record; /* of the event's records that have not run */
	CUdeviceptr word;   /* checked again whenever it is read */
	uint64_t value;
	unsigned flags;
	const struct fake_cuda_kernel *kernel;
	unsigned char params[FAKE_CUDA_PARAMS_MAX][8];
};

struct fake_stream {
	struct list link; /* of all streams, the default ones too */
	struct fake_ctx *ctx;
	struct list ops;
	uint64_t queued; /* of ops */
	unsigned flags;
	uint64_t id;
	bool is_default, capturing, spoilt, destroyed;
};

struct fake_event {
	struct list link;
	struct fake_ctx *ctx;
	unsigned flags;
	unsigned refs; /* of operations */
	bool destroyed;
	uint64_t recorded;   /* versions; each ends by itself, whatever became of later ones */
	struct list records; /* those that have not run */
	uint64_t done_ns;
};

/* A visible device and its primary context. */
struct fake_ctx {
	int physical;
	unsigned retained;
	CUresult lost;
	uint64_t copies, lose_at; /* lost when it has done so many; 0: never */
	uint64_t used_bytes;
	struct fake_stream stream; /* the legacy default one */
};

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t moved; /* something was queued, done or lost */
	bool manual, initialised, worker;
	bool forked; /* the child of a process that had initialised it */
	int version, n_physical, n_devices;
	uint64_t device_bytes, seed, seq, stream_ids;
	uint64_t queue_max; /* operations that a stream takes, 0: any number */
	struct fake_ctx ctx[FAKE_DEVICES_MAX];
	struct list streams, events;
	struct fake_cuda_counts counts;
	uint64_t calls[CALLS];
};

extern struct fake fake;

/* Kernels of the benchmarks (bench_kernels.c). */
void fake_bench_fill(void *const *params);
void fake_bench_check(void *const *params);
void fake_bench_load(void *const *params);

enum fake_need { NEED_NOTHING, NEED_INIT, NEED_CONTEXT };

/* Takes the lock and counts the call. Another result than success is the call's, without the lock.
 * A lost context does not stop a call that gives back: it returns fake_lost(). */
CUresult fake_enter(enum fake_call call, enum fake_need need);
CUresult fake_leave(CUresult result);
#define ENTER(member, need)                                         \
	do {                                                        \
		CUresult entered = fake_enter(CALL_##member, need); \
		if (entered != CUDA_SUCCESS)                        \
			return entered;                             \
	} while (0)
#define leave fake_leave

/* All below: with the lock. */
uint64_t fake_env(const char *name, uint64_t without);
void fake_devices_setup(void);
int fake_call_of(const char *symbol); /* -1: none */
struct fake_ctx *fake_current(void);
struct fake_ctx *fake_ctx_of_device(CUdevice device); /* NULL: no such device */
int fake_device_of(const struct fake_ctx *ctx);
CUresult fake_lose_ctx(struct fake_ctx *ctx, CUresult result);

/* Memory stands behind descriptors of a table apart (keeper.c). False, and -1: not to be had. */
bool fake_keeper_start(void);
int fake_keeper_create(const char *name, size_t bytes);
bool fake_keeper_map(int fd, void *at, size_t bytes);
int fake_keeper_export(int fd); /* into the process's table */
int fake_keeper_import(int fd); /* from there, where it stays as well */
void fake_keeper_close(int fd);

bool fake_device_range(const void *at, size_t bytes, bool write);
/* Of the whole range. CUDA_ERROR_INVALID_VALUE: a part of it is registered, or two of them. */
CUresult fake_host_place(const struct fake_ctx *ctx, const void *at, size_t bytes,
			 enum fake_place *ret);
/* The word of a device pointer for wait and write: registered and mapped, or of the device. */
uint64_t *fake_word(const struct fake_ctx *ctx, CUdeviceptr pointer);

/* Ends all captures badly; false: there are none. */
bool fake_spoil_captures(void);
/* Whether a stream that the legacy stream of `ctx` would wait for is being captured. */
bool fake_captures_legacy(const struct fake_ctx *ctx);
/* NULL: no such stream. The default one is that of the current context. */
struct fake_stream *fake_stream_of(CUstream stream);
/* A new operation at the end of the stream, once it has room; the caller fills in the rest before
 * it leaves. */
CUresult fake_op_new(struct fake_stream *stream, enum fake_op_kind kind, struct fake_op **ret);
void fake_op_free(struct fake_op *op);
void fake_event_put(struct fake_event *event);
bool fake_event_done(const struct fake_event *event, uint64_t version);
void fake_stream_put(struct fake_stream *stream); /* frees a destroyed one that is empty */
/* Until `done` holds or the context is lost; steps or waits for the thread that does. */
CUresult fake_wait(struct fake_ctx *ctx, bool (*done)(const void *), const void *what);
CUresult fake_drain_stream(struct fake_stream *stream);
CUresult fake_drain_ctx(struct fake_ctx *ctx);
/* After something was queued: poisons what may go now, wakes or starts the thread. */
void fake_queued(void);
bool fake_step(uint64_t seed);

#endif

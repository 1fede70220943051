/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the cuda backend share. Three threads, one after the other or apart:
 *
 *   C  opens and closes; asks for descriptors of slabs that have come back;
 *   L  the lane: streams, copies, completions, and which host memory is registered;
 *   H  the helper of the lane (tiers/backer.h): what takes the driver long (slabs, registration).
 *
 * H has an xfer from backer_queue() until backer_reap(), and with it the slab or the host memory
 * that it names.
 */
#ifndef TIERD_TIERS_GPU_INSIDE_H
#define TIERD_TIERS_GPU_INSIDE_H

#include <stdatomic.h>

#include "base/cuda.h"
#include "tiers/backer.h"
#include "tiers/gpu.h"

#define GPUS_MAX         16
#define GPU_RANGES_MAX   4
#define GPU_REGISTER_MAX GIB(1)   /* of one registration */
#define GPU_SLOTS        256      /* xfers that a stream holds */
#define GPU_AHEAD        MIB(128) /* twice what the driver has of a demand stream */
#define GPU_COPIES_MAX   64       /* copies of a stream that the driver holds */
#define GPU_BLOCK        MIB(1)   /* of pinned memory: zeros, ones, and a stream's bounce buffer */

/* ---- slabs: H, and C while H has nothing --------------------------------------------------- */

struct gpu_slab {
	CUmemGenericAllocationHandle handle;
	int fd; /* -1: it is not there */
};

/* ---- host memory: L ------------------------------------------------------------------------- */

/* What host_memory() announced. */
struct gpu_range {
	char *base;
	uint64_t bytes, ready;
};

/* What this tier registered, as one piece. H's, and L's before H starts and after it has ended. */
struct gpu_pinned {
	struct list link;
	char *base;
};

struct gpu_memory {
	struct gpu_range ranges[GPU_RANGES_MAX];
	unsigned range_count;
	/* Where registrations begin and end, by address: no copy may cross one. L's. */
	uintptr_t *borders;
	unsigned count, room, promised;
	/* H's. */
	struct list pinned;
	uint64_t pinned_bytes; /* by whomever, of what it was asked for */
	bool warned;
};

/* ---- streams: L ----------------------------------------------------------------------------- */

enum gpu_stream_use { GPU_UP, GPU_DOWN, GPU_WRITE_BACK, GPU_PREFETCH, GPU_STREAMS };

/* An xfer that a stream holds, in order. */
struct gpu_slot {
	struct xfer *x;
	uint64_t given; /* bytes of it that the driver has */
};

/* Copies that come back together. */
struct gpu_group {
	uint64_t mark, bytes, begin_ns;
	unsigned copies;
	uint32_t end; /* slots before this one are done with it */
	bool marked;  /* the stream will write `mark`; else only the stream itself can be asked */
};

struct gpu_stream {
	CUstream stream;
	_Atomic uint64_t *word; /* the stream writes marks here */
	CUdeviceptr word_at;
	unsigned char *bounce; /* GPU_BLOCK of pinned memory */
	/* Slots by running numbers: reaped <= ended <= given <= taken. */
	struct gpu_slot slots[GPU_SLOTS];
	uint32_t taken, given, ended, reaped;
	struct gpu_group groups[GPU_COPIES_MAX];
	uint32_t group_first, group_end;
	struct gpu_group open; /* copies that no mark follows yet */
	uint64_t mark;         /* the newest */
	uint64_t in_flight;    /* bytes, and copies below, that the driver has */
	unsigned copies;
	unsigned ways;        /* up, down: of what it has */
	uint64_t rate;        /* bytes a second, as seen */
	uint64_t progress_ns; /* when something came back or nothing was there before */
	uint64_t looked_ns;   /* when its words were last looked at by gpu_stream_look() */
	uint64_t asked_ns;
	unsigned ask_failures; /* in a row */
};

struct gpu {
	struct tier_base base;
	const struct gpu_config *config;
	const struct cuda *cuda;
	unsigned ordinal;
	CUdevice device;
	CUcontext context;
	unsigned char uuid[16];
	int node; /* of this machine's memory; -1: not known */
	const struct topology *topo;
	CUdeviceptr range; /* [0, base.bytes) of the tier */
	struct gpu_slab *slabs;
	_Atomic uint32_t lost; /* the CUresult after which nothing works here */
	struct gpu_memory memory;
	struct backer helper;
	/* The lane's. */
	int wake_fd;
	struct gpu_stream streams[GPU_STREAMS];
	unsigned char *block; /* pinned memory of the lane: words, zeros, ones, bounce buffers */
	unsigned char *zeros, *ones;
	struct list unpinned; /* PINs for which there was no memory, to be given back */
	uint64_t active_ns;   /* when there was last something to do */
	uint64_t looked_ns;   /* when a look of wait() found nothing */
};

struct gpu *gpu_of(struct tier *t);
/* Remembers that the device is lost, and says so the first time; any thread. */
void gpu_lose(struct gpu *g, CUresult result);
static inline bool gpu_is_lost(struct gpu *g)
{
	return atomic_load(&g->lost) != CUDA_SUCCESS;
}
/* Checks a result: cuda_check(), and gpu_lose() where it means that. Any thread. */
int gpu_check(struct gpu *g, CUresult result, struct err *err, const char *what);
/* Of a call whose failure nobody can mend, as of one that gives something back: it is said, unless
 * the device is lost, which was. Any thread. */
void gpu_say(struct gpu *g, CUresult result, const char *what);
/* Sets what failed of an xfer: "write of 4096 bytes at 0x0: hbm0: CUDA_ERROR_NAME". Any thread. */
void gpu_fail(struct gpu *g, struct xfer *x, CUresult result);
/* The same where the driver was not asked, or did not know why: `result` is -errno. */
void gpu_refuse(struct gpu *g, struct xfer *x, int result, const char *why);

/* Whether the names of `devices` can be some; "devices: ..." of the first that cannot. */
int gpu_check_names(const struct gpu_config *config, struct err *err);
/* Whether the device can do what the backend is built on: -ENOTSUP, with what it cannot. */
int gpu_check_needs(const struct cuda *cuda, CUdevice device, const char *name, struct err *err);
/* C. What the configuration's size and slab are on the device, before the size is rounded down to
 * whole slabs; `name` is for what is wrong. */
struct gpu_size {
	uint64_t bytes, slab_bytes;
};
int gpu_decide_size(const struct gpu_config *config, const struct cuda *cuda, CUdevice device,
		    const char *name, struct gpu_size *ret, struct err *err);
/* C. The ordinals that the configuration means; returns how many, or -errno. */
int gpu_choose(const struct gpu_config *config, const struct cuda *cuda, unsigned ret[GPUS_MAX],
	       struct err *err);
/* "GPU-8-4-4-4-12" in `ret`. */
#define GPU_UUID_BYTES 41
void gpu_uuid_text(const unsigned char uuid[16], char ret[GPU_UUID_BYTES]);

/* H; free: C. The context is current. */
void gpu_slab_run(struct gpu *g, struct xfer *x);
void gpu_slab_free(struct gpu *g, unsigned i);

/* L. Registers what is ready when the lane starts; gives back all that the tier registered. */
int gpu_pin_start(struct gpu *g);
void gpu_pin_stop(struct gpu *g);
/* L. Before H has a PIN: room for its borders. H: does it. L: after it has come back. */
int gpu_pin_prepare(struct gpu *g, uint64_t bytes);
void gpu_pin_run(struct gpu *g, char *base, uint64_t bytes);
void gpu_pin_done(struct gpu *g, const char *base, uint64_t bytes);
/* L. How many of `bytes` from `host` on one copy may take. */
uint64_t gpu_pin_span(const struct gpu *g, const void *host, uint64_t bytes);

/* L. */
int gpu_stream_open(struct gpu *g, enum gpu_stream_use use, struct err *err);
void gpu_stream_close(struct gpu *g, enum gpu_stream_use use);
struct gpu_stream *gpu_stream_for(struct gpu *g, const struct xfer *x);
/* False: it is full. */
bool gpu_stream_take(struct gpu_stream *s, struct xfer *x);
/* Gives the driver what it may have of all streams, the most urgent first. */
void gpu_stream_pump(struct gpu *g);
/* Looks for what has come back. */
void gpu_stream_look(struct gpu *g, struct gpu_stream *s);
/* Whether gpu_stream_look() would find something, without a call of the driver. */
bool gpu_stream_ready(const struct gpu_stream *s);
unsigned gpu_stream_reap(struct gpu_stream *s, struct xfer **done, unsigned max);
/* When the oldest group is expected back; 0: nothing is in flight. */
uint64_t gpu_stream_due_ns(const struct gpu_stream *s);

/* L: the table's. */
int gpu_lane_start(struct tier *t, int wake_fd, struct err *err);
void gpu_lane_stop(struct tier *t);
int gpu_lane_queue(struct tier *t, struct xfer *x);
void gpu_lane_commit(struct tier *t);
unsigned gpu_lane_reap(struct tier *t, struct xfer **done, unsigned max);
void gpu_lane_wait(struct tier *t, int64_t timeout_ns);

#endif

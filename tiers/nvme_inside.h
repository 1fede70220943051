/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the nvme backend, shared by its files and by nobody else:
 *   nvme_open.c  the path: what it is, its size, its space, direct I/O        (control thread)
 *   nvme_ring.c  the io_uring: probing it, its set-up, registered buffers     (lane thread)
 *   nvme.c       the table of operations                                     (both)
 *   nvme_xfer.c  the life of an xfer                                         (lane thread)
 *   nvme_seam.c  what stands between a completion and its slot               (lane thread)
 */
#ifndef TIERD_TIERS_NVME_INSIDE_H
#define TIERD_TIERS_NVME_INSIDE_H

#include <liburing.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "tiers/digest.h"
#include "tiers/nvme.h"

/* A device keeps its first and last 4 MiB: all that blkid knows of (superblocks, partition tables)
 * lives there, and what clients write must never look like one to whoever probes the device. */
#define NVME_DEVICE_EDGE MIB(4)

/* Where the bytes are, and how they may be reached. Filled by nvme_file_open(). */
struct nvme_file {
	int fd;
	bool device; /* a block device, else a file without a name */
	bool direct;
	bool in_memory; /* its file system is: this saves none */
	uint32_t unit;  /* of offset, length and memory on the device: a power of two <= GRANULE */
	uint64_t start; /* of the tier's byte 0 in the file */
	uint64_t bytes; /* of the tier */
	uint64_t room;  /* free on its file system; 0: none that is told, as of a device */
	char kind[32];  /* "ext4", "device" */
	char space[32]; /* how its space is kept: "reserved" or "not reserved" */
};

int nvme_file_open(const struct nvme_config *config, struct nvme_file *ret, struct err *err);
/* Likewise, but space is not reserved: to look at what open would do. Nothing is left by either. */
int nvme_file_probe(const struct nvme_config *config, struct nvme_file *ret, struct err *err);
void nvme_file_close(struct nvme_file *file);

/* The seam. Every completion of a read, write or sync passes nvme_seam_pass() before the lane looks
 * at it; without a `fault:` map it returns what came. */
struct nvme_seam {
	struct fault_state faults;
	uint32_t doubled_tag; /* of the request that has just come */
};
void nvme_seam_init(struct nvme_seam *seam, const struct fault_config *config);
/* What the lane is to believe instead of `result` of a request of `bytes` at `buffer`; `ret` has
 * what else is to become of it. */
int nvme_seam_pass(struct nvme_seam *seam, uint8_t op, void *buffer, uint64_t bytes, int result,
		   struct fault_decision *ret);
/* Answers that a test gives in place of the kernel; 0 means ask the kernel. Set before open. */
struct nvme_refusals {
	int (*tmpfile)(void);
	int (*fallocate)(uint64_t offset, uint64_t bytes);
	int (*register_buffer)(unsigned number, uint64_t bytes);
	int (*completion)(uint8_t op, uint64_t bytes); /* before the faults of the configuration */
};
extern struct nvme_refusals nvme_refusals;

/* Memory that may be registered: at most 1 GiB each, the kernel's limit. */
struct nvme_piece {
	unsigned char *base;
	uint64_t bytes;
	uint64_t ready; /* of bytes; all of a piece is registered at once */
	unsigned place; /* in the ring's table */
	int index;      /* the same, -1: not registered */
};

struct nvme_ring {
	struct io_uring uring;
	bool open;
	bool file_registered, table_registered;
	bool refused;              /* said once; nothing more is tried */
	bool none;                 /* injected: none is to be had */
	struct nvme_piece *pieces; /* by address once the ring is open */
	unsigned piece_count, registered_count;
};

/* Whether io_uring can be had at all, said before anything is promised. */
int nvme_ring_probe(struct err *err);
/* Before nvme_ring_open(): [base, bytes) will hold xfers; its first `ready` bytes are there.
 * -ENOMEM leaves it unregistered. */
int nvme_ring_memory(struct nvme_ring *ring, void *base, uint64_t bytes, uint64_t ready);
/* Of the open ring: [base, bytes) is there now; pieces that it completes are registered. */
void nvme_ring_pin(struct nvme_ring *ring, const char *name, const void *base, uint64_t bytes);
int nvme_ring_open(struct nvme_ring *ring, const char *name, int fd, unsigned entries,
		   struct err *err);
void nvme_ring_close(struct nvme_ring *ring);
/* The index of the registered piece that holds all of [at, bytes), or -1. */
int nvme_ring_find(const struct nvme_ring *ring, const void *at, uint64_t bytes);

enum nvme_slot_state {
	NVME_SLOT_FREE,
	NVME_SLOT_WAITING, /* a sync behind earlier writes */
	NVME_SLOT_READY,   /* staged; goes when the device has less than its depth */
	NVME_SLOT_FLIGHT,  /* the kernel has it */
	NVME_SLOT_HELD,    /* completed, held back by the seam until due_ns */
	NVME_SLOT_RETRY,   /* to be issued again at due_ns */
	NVME_SLOT_SUM,     /* its CRC is made: of a write before, of a read after */
	NVME_SLOT_DONE,    /* waits for reap */
};

/* Slots beyond the queue depth, as a share of it: so many are staged and go to the device the
 * moment that another comes back; and so many demands may go past the depth, so that they do not
 * stand in line behind a full depth of write-back or prefetch. */
#define NVME_AHEAD_SHARE 8

/* One xfer on its way. */
struct nvme_slot {
	struct list link;  /* in the list of its state */
	struct list write; /* of the writes not yet done, oldest first */
	enum nvme_slot_state state;
	int result; /* HELD: what completed */
	struct xfer *xfer;
	unsigned char *buffer; /* what the device sees: staging for most writes, else the host */
	int buffer_index;      /* registered, or -1 */
	uint64_t length;       /* xfer->bytes in whole granules */
	uint64_t from;         /* where the request in flight begins: a multiple of the unit */
	uint64_t order;        /* of queueing */
	uint64_t due_ns;
	struct digest_job job; /* SUM: its sum; a write's until it is done */
	uint8_t errors, stalls;
	uint16_t again;
	bool reread, rotten; /* rotten: by the seam, its checksum is to be another */
	bool on_device;      /* counted in in_flight */
	uint32_t tag;        /* of the request in flight: one that comes again has an older one */
};

/* User data of requests: the slot, and which of its requests. Never that of a poll (nvme.c). */
#define NVME_DATA(slot, tag) ((uint64_t)(tag) << 32 | (uint32_t)(slot))
#define NVME_DATA_SLOT(data) ((uint32_t)(data))
#define NVME_DATA_TAG(data)  ((uint32_t)((data) >> 32))
/* Of polls: no slot has these numbers, and neither is LIBURING_UDATA_TIMEOUT, which liburing takes
 * out of the ring by itself where the kernel has no timeout of a wait (before Linux 5.11). */
#define NVME_DATA_WAKE   (UINT64_MAX - 1)
#define NVME_DATA_DIGEST (UINT64_MAX - 2)

struct nvme {
	struct tier_base base; /* first */
	const struct nvme_config *config;
	struct nvme_file file;
	struct nvme_ring ring;
	struct nvme_seam seam;

	unsigned char *staging; /* the daemon's, lent */
	uint64_t staging_bytes;
	unsigned char **bounce; /* free blocks of staging; the last given back is taken first */
	unsigned bounce_free, bounce_count;

	struct nvme_slot *slots;
	unsigned slot_count, slots_used, finished_count;
	unsigned in_flight; /* on the device, or about to be again */
	struct list free, waiting, timed, finished, writes;
	struct list ready[2]; /* demand, the rest */
	struct list sums;     /* jobs that the lane keeps to itself */
	struct digest digest;
	uint64_t queued;            /* xfers so far */
	uint32_t tags;              /* requests so far */
	uint64_t strays;            /* completions that nobody waited for */
	_Atomic bool ending;        /* what the seam holds comes back now */
	uint64_t unsubmitted_bytes; /* prepared, the kernel not yet told */
	int wake_fd;
	bool wake_armed, digest_armed; /* a poll of that descriptor is in the ring */
};

/* nvme.c. */
void nvme_pin(struct nvme *n, const void *base, uint64_t bytes);
/* nvme_xfer.c. A slot must be free, and a block of staging for a write. */
void nvme_xfer_begin(struct nvme *n, struct xfer *x);
/* A completion of the ring, with the user data of its request. */
void nvme_xfer_came(struct nvme *n, uint64_t data, int result);
/* What was due by now: completions held back, and second tries. */
void nvme_xfer_expire(struct nvme *n);
/* Gives the device what is ready, up to its depth. */
void nvme_xfer_refill(struct nvme *n);
/* Sums what is to be summed, and takes what helpers have, until it has taken long enough that the
 * device should be looked after first. Returns false when there was nothing. */
bool nvme_xfer_sum(struct nvme *n);
void nvme_slot_give(struct nvme *n, struct nvme_slot *s);
struct io_uring_sqe *nvme_take_sqe(struct nvme *n);
void nvme_submit(struct nvme *n);

#endif

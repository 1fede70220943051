/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of tier backends. A `struct tier` is one level on one device: the memory of one GPU,
 * the DRAM arena, one NVMe path. A backend copies bytes between itself and host memory, verifies
 * them, and knows nothing of tensors, policies or other tiers. Each function says which thread
 * calls it:  C the control thread,  L the tier's lane thread (tiers/lane.h).
 */
#ifndef TIERD_TIERS_TIER_H
#define TIERD_TIERS_TIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "config/config.h"

enum tier_kind { TIER_KIND_HBM, TIER_KIND_DRAM, TIER_KIND_NVME, TIER_KINDS };

/* Extents are whole granules: 512 B for what is below 4 KiB, else 4 KiB. */
#define GRANULE_SMALL 512u
#define GRANULE       4096u

enum xfer_op {
	XFER_READ,  /* tier [offset, bytes) -> host */
	XFER_WRITE, /* host -> tier [offset, bytes) */
	XFER_ZERO,  /* every byte of tier [offset, bytes) becomes `value` (mapped tiers) */
	/* tier [from, bytes) -> tier [offset, bytes), may overlap (mapped tiers). Where host_base
	 * is the memory itself, a failure has moved nothing. */
	XFER_COPY,
	XFER_SYNC, /* everything written before it is durable (nvme) */
	/* Of tiers whose memory comes and goes in slabs; one whole slab each. -ENOMEM: it is not to
	 * be had now; -EMFILE, -ENFILE: nor is the descriptor that it would have. Nothing reads or
	 * writes a slab before BACK has come back, nor from UNBACK on. */
	XFER_BACK,
	XFER_UNBACK,
	/* Host memory [host, bytes), announced by host_memory() and ready from now on, is
	 * registered with the device (tiers with host_memory()). Failure is not an error: it falls
	 * back, and the result is 0. */
	XFER_PIN,
	XFER_OPS
};

enum xfer_priority { XFER_DEMAND, XFER_WRITE_BACK, XFER_PREFETCH, XFER_PRIORITIES };

/* One copy of bytes on one lane. The owner fills the first part and lends it to a lane; the lane
 * fills the second and gives it back exactly once. */
struct xfer {
	struct list link; /* the holder's: owner's list, then the lane's */
	uint8_t op, priority;
	uint8_t value;         /* ZERO: 0, or 0xff where what could not be read is marked */
	bool steady;           /* WRITE: nobody changes the host's bytes until it comes back, which
				  may be in whole granules; else what is written is a copy */
	uint64_t offset, from; /* bytes in the tier */
	uint64_t bytes;        /* exact; nvme rounds up to its block inside, the host buffer is
				  aligned to GRANULE and large enough for the rounded length */
	void *host;
	uint32_t crc;      /* nvme: READ compares with it, WRITE returns it, both over `bytes` */
	void *owner;       /* the engine's move */
	uint32_t part;     /* the engine's: which piece of the move */
	struct lent *lent; /* the engine's: it is out, and comes back once; else NULL */

	/* 0 or -errno; -EBADMSG: the CRC did not match; -ENODEV, of hbm: the device is lost for
	 * good, all that stood in it is gone and nothing will work there any more. Of nvme it is
	 * a failure like others: the kernel says it of a disk that is only offline. */
	int result;
	char cause[96]; /* what failed, "" on success: "read of 4096 of 1048576 bytes at 0x... " */
	uint64_t begin_ns, end_ns; /* when the lane took it up and was done with it */
	uint32_t retries;
};

/* What a client maps (hbm, dram). Descriptors belong to the tier; the server dups by sending. */
struct arena_token {
	int fd;              /* -1: each slab has one of its own, see slab_fd() */
	uint64_t bytes;      /* of the mapping */
	uint64_t alignment;  /* of offsets, at least 512 */
	uint64_t slab_bytes; /* where fd is -1: bytes is a multiple of it */
	uint8_t uuid[16];    /* of the GPU that must map it; zeros: host memory, any process can */
};

struct topology; /* tiers/topo.h: CPUs and NUMA nodes of this machine */
struct tier;

/* First member of every backend's struct. */
struct tier_base {
	uint32_t magic;
	const struct tier_ops *ops;
	enum tier_kind kind;
	uint64_t bytes;     /* capacity; extents lie in [0, bytes) */
	void *host_base;    /* where the daemon itself maps the arena; NULL for nvme */
	uint32_t block;     /* nvme: largest single transfer, bytes; else 0: any */
	uint32_t alignment; /* nvme: of offset and length on the device; 1 elsewhere */
	/* Becomes 1 when memory of the arena was found gone (base/guard.h); NULL: cannot be. */
	_Atomic uint32_t *damaged;
	bool registered; /* a device holds on to the pages (host_memory): no trim() */
	/* Memory that comes and goes: slab i is [i * slab_bytes, + slab_bytes), the last one
	 * perhaps shorter. 0: all of it is there as long as the tier is open. */
	uint64_t slab_bytes;
	/* Of the process, that it may take once its lane runs: one a slab, where slab_fd() is. */
	uint32_t later_fds;
	uint64_t backed_bytes; /* what open() has backed: the first whole slabs */
	bool on_demand; /* slabs are made when room is wanted and given back when idle; else all are
			   made one after the other, as soon as the lanes run */
	char pci[32];   /* where a GPU stands on the bus, as "0000:05:00.0"; "": not known */
	/* Of one move, as much is lent at once, so that a device with a queue of its own does not
	 * rest while the control thread takes in what is done; 0: a few pieces. */
	uint64_t ahead_bytes;
	uint64_t staging_want_bytes; /* share of the staging segment it would like; 0: none */
	char name[64];               /* for people: "dram", "hbm0", "nvme0 /mnt/a" */
	char chosen[256];            /* what probing chose: "direct, fixed buffers, depth 32" */
};
#define TIER_MAGIC 0x7469657bu

struct tier {
	struct tier_base base;
};

struct tier_ops {
	const char *name;
	const char *help;
	enum tier_kind kind;
	const struct config_row *rows;
	size_t config_size;
	/* C, optional: what rows cannot say and no device is needed to know, before anything is
	 * opened. 0, or -EINVAL with a sentence that begins with the key: "slab: ...". */
	int (*check)(const void *config, struct err *err);
	/* C, optional: how many tiers this configuration stands for (one a GPU), or -errno. NULL:
	 * one. */
	int (*count)(const void *config, struct err *err);
	/* C. Takes the memory, reserves the space, probes; `config` stays valid until close,
	 * `index` is below count(). What comes back is called by its own base.ops, which differ
	 * where faults stand around it. */
	int (*open)(const void *config, unsigned index, const struct topology *topo,
		    struct tier **ret, struct err *err);
	/* C. After the lane has stopped. */
	void (*close)(struct tier *t);
	/* C, optional. */
	int (*export_arena)(struct tier *t, struct arena_token *ret, struct err *err);
	/* C, optional, before lane_start: host memory that xfers will point into, of which the
	 * first `ready` bytes are there and may be registered with the device now; the rest follows
	 * piece by piece by XFER_PIN, and no xfer points into a piece before. Failure to register
	 * is not an error; it falls back. Pages of it must not be trimmed: the device would go on
	 * with the old ones, that nobody maps. The caller marks the tier that they are of as
	 * `registered`. */
	void (*host_memory)(struct tier *t, void *base, size_t bytes, size_t ready);
	/* C, optional: the descriptor by which another process maps the backed slab at `offset`;
	 * the tier's, which closes it at UNBACK. */
	int (*slab_fd)(struct tier *t, uint64_t offset);
	/* C, optional, before lane_start: the backend's share of the daemon's staging segment:
	 * whole pages, perhaps less than it wanted (never less than one block). It stands
	 * between the CRC of what is written and the device: nobody changes the bytes there. */
	void (*staging)(struct tier *t, void *base, size_t bytes);
	/* C, optional: pages of [offset, bytes) hold nothing and may go back to the system. */
	void (*trim)(struct tier *t, uint64_t offset, uint64_t bytes);
	/* C, optional, any time after lane_start: the daemon ends. BACKs that are queued or under
	 * way come back soon, and so do later ones: where not done, with -ECANCELED. */
	void (*ending)(struct tier *t);
	/* L. `wake_fd` is a non-blocking eventfd that becomes readable when xfers are queued:
	 * wait() watches it, the lane reads it. */
	int (*lane_start)(struct tier *t, int wake_fd, struct err *err);
	/* L. */
	void (*lane_stop)(struct tier *t);
	/* L. 0: the backend holds the xfer (and may use its link) until reap returns it; -EBUSY:
	 * full, offer it again after the next reap, and less urgent ones only after it. Never any
	 * other value: a failure is the xfer's result. */
	int (*queue)(struct tier *t, struct xfer *x);
	/* L. What was queued is to be started. */
	void (*commit)(struct tier *t);
	/* L. At most `max` finished xfers. Does not block. */
	unsigned (*reap)(struct tier *t, struct xfer **done, unsigned max);
	/* L. Blocks until reap() has something to do, `wake_fd` is readable, or timeout_ns has
	 * passed (negative: no limit). Called only when the last reap returned nothing. */
	void (*wait)(struct tier *t, int64_t timeout_ns);
};

/* All backends, the first of a kind being its default; ends with NULL. */
extern const struct tier_ops *const tier_backends[];

/* "hbm", "dram", "nvme" */
const char *tier_kind_name(enum tier_kind kind);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine knows, for its own files only. Records hold indices and numbers, never pointers,
 * so that they can live in a segment that outlives the process. One thread.
 *
 * Words used here: a tensor's *sources* are the places that hold its current bytes (bits of
 * enum source). A tensor never written has the one source ZERO, which costs nothing to bring back.
 * `written` bits that clients set since the last look are not in `sources` yet: whoever relies on a
 * source below the front looks at the slots first (pins.h).
 */
#ifndef TIERD_ENGINE_STATE_H
#define TIERD_ENGINE_STATE_H

#include "base/check.h"
#include "base/list.h"
#include "base/namemap.h"
#include "daemon/engine/engine.h"
#include "tiers/extent.h"

#define DEVICE_NONE 0xffu
#define TENSOR_NONE 0xffffffffu

#define HOLD_NS        (100 * NS_PER_MS) /* design section 5, *Ask* */
#define POLL_NS        NS_PER_MS         /* how often pins are looked at while somebody waits */
#define CLEAN_RETRY_NS NS_PER_S          /* after a failed write-back of a tensor, */
#define CLEAN_TICK_NS  (1u << 26)        /* and what is due within one of these together */
#define SMALL_BYTES    4096u             /* below it a tensor never goes to nvme */
#define PIECE_BYTES    MIB(4)            /* of a copy between mapped tiers */
#define PIECES_MAPPED  4u                /* in flight a move, between mapped tiers */
#define PIECES_NVME    64u               /* likewise where nvme is one side */
#define PICKS          64u               /* victims asked for at once */
#define FAILURE_BYTES  256u              /* a sentence: tensor, device, what its xfer says */
#define SWEEP_SLOTS    1024u             /* of a dead client's table, a turn: some 50 us */
#define PREFETCH_SHARE 8u                /* prefetches in flight: 1/8 of the device */
#define HINT_SIZES     32u               /* powers of two, from GRANULE */
#define STAGING_SHARE  8u                /* of the slots, 1/8 is each direction's own */

enum source {
	SOURCE_HBM = 1u << TIER_KIND_HBM,
	SOURCE_DRAM = 1u << TIER_KIND_DRAM,
	SOURCE_NVME = 1u << TIER_KIND_NVME,
	SOURCE_ZERO = 1u << TIER_KINDS,
};

enum record_flags {
	RECORD_LIVE = 1,
	RECORD_DOOMED = 2, /* destroyed, waits for the last pin or move */
	RECORD_NAMED = 4,
	RECORD_LARGE = 8,    /* larger than what dram has beside the small ones */
	RECORD_SMALL = 16,   /* below SMALL_BYTES */
	RECORD_BACKOFF = 32, /* stands in the ring of those left alone */
	RECORD_HINTED = 64,  /* prefetched, not used yet */
	RECORD_SHADOW = 256, /* << enum shadow: stands on that list */
	RECORD_LOST = 2048,  /* its bytes were on a lost device; its source says ZERO */
	RECORD_ZONED = 1024, /* its dram replicas stand in the zone alone */
};

/* Copies below fronts, which may go whenever their room is wanted: the bytes stand above. */
enum shadow {
	SHADOW_DRAM, /* under an hbm front */
	SHADOW_NVME, /* under any front */
	SHADOWS
};
struct shadow_link {
	uint32_t prev, next;
};

/* The sets in which a tensor stands by its size; see largest.h. */
enum by_size { BY_SIZE_PART, BY_SIZE_ACCOUNT, BY_SIZES };
struct size_link {
	uint32_t up, left, right; /* 0: none */
	uint8_t rank;
};
/* Of such a set: [1] of the tensors that are RECORD_LARGE, [0] of the others. */
struct sizes {
	uint32_t largest[2]; /* 0: none */
};

/* One a tensor, at records[index]. */
struct record {
	uint64_t bytes, version;
	uint64_t used_ns;       /* when a client acquired it last, or made it */
	uint64_t hold_until_ns; /* the front is kept for hold_holder until then */
	uint64_t failed_ns;     /* its last write-back failed then; 0: it did not */
	uint32_t used_step;     /* likewise used_ns, of its namespace */
	uint32_t hold_holder;
	uint32_t hbm_node, dram_node; /* extents, EXTENT_NONE */
	uint32_t map;                 /* of nvme blocks, 0: none */
	uint32_t move;                /* running move, 0: none */
	uint32_t owner_prev,
		owner_next; /* list of the holder's unnamed or the namespace's named ones */
	struct shadow_link shadow[SHADOWS];
	struct size_link size[BY_SIZES];
	uint32_t owner; /* holder id (unnamed); namespace for names is `name_space` */
	/* As many as all clients can have outstanding, which is more than 16 bits hold. */
	uint32_t ready;   /* running requests that found it in place and wait for the rest */
	uint32_t wanted;  /* requests in progress that want it at wanted_device */
	uint32_t granted; /* of those, requests that were answered before all of it was there */
	uint16_t name_space;
	uint16_t flags;
	uint8_t wanted_device;
	uint8_t front;      /* device, DEVICE_NONE */
	uint8_t hbm_device; /* of hbm_node */
	uint8_t sources;    /* enum source */
	uint8_t class_, dtype, ndim;
	uint8_t lost_on; /* the device that had the bytes */
	uint64_t shape[8];
};

/* Of a replica on nvme; see blocks.h. */
struct block {
	uint32_t node; /* EXTENT_NONE: a hole, reads as zeros */
	uint32_t crc;
	uint8_t device;
};

struct block_map {
	uint64_t block_bytes; /* of every block but the last */
	uint32_t count;
	struct block blocks[];
};

/* Of write-backs for room, since the last success: the last failure, 0 if there was none; and of
 * those that had failed before, when, the latest; 0 if none had. */
struct clean_trouble {
	int error;
	uint64_t failed_before_ns;
	char cause[FAILURE_BYTES];
};

struct slabs; /* slabs.h */

struct device {
	struct tier *tier;
	struct extents *extents;
	struct slabs *slabs;   /* of the tier; NULL: all of it is always there */
	uint8_t lane;          /* the tier's number: whose lane, whose arena in word1 */
	uint64_t base_offset;  /* of its range in the tier */
	uint64_t closed_bytes; /* ranges in extents that have no memory: not used by anybody */
	uint8_t place;         /* as in word0; nvme: not used */
	uint8_t pool;          /* quota.h: the first device of those that share a quota */
	uint64_t moving_bytes; /* of that first device: extents that are the engine's own */
	struct list queue;     /* requests that wait for room, first in first out */
	bool lost;             /* for good */
	uint32_t lost_tensors, lost_told; /* and of how many the log knows */
	bool wants_room; /* with quotas: somebody in the queue waits for what others have */
	uint32_t witness, witness_holder; /* deadlock.c: a pin of one who does not wait */
	bool outside; /* and while it looks: one was found, and less will wait, not more */
	bool look;    /* since the queue was looked at, something has changed that may help it */
	uint64_t wanted_bytes;   /* room that moves from above would like */
	uint64_t leaving_bytes;  /* of running cleans that end in a drop */
	unsigned compacting;     /* running compactions */
	uint64_t prefetch_bytes; /* of running prefetches into it */
	/* struct hint, of tensors about as large in each list, earliest need first. */
	struct list hints[HINT_SIZES];
	uint64_t reclaim_at_ns; /* nothing was eligible: do not look again before */
	uint64_t ask_all_at_ns; /* nor ask policies for all that they were denied */
	struct clean_trouble trouble;
	bool clean_refused;         /* since somebody began to look for room, for want of memory */
	uint64_t compact_at_ns;     /* no window was found: do not look again before */
	uint64_t wanted_hole_bytes; /* the largest of wanted_bytes, in one piece */
	/* slide.c: where the window ends, and the tensor before the gap that is closed next. */
	uint64_t slide_end;
	uint32_t slide_tensor;
	/* Rate, for spreading blocks: bytes done and time with something in flight, decayed. */
	uint64_t flight_bytes, busy_since_ns, done_bytes, busy_ns;
	unsigned flight;
};

struct name_space {
	char name[PROTOCOL_NAME_MAX + 1];
	uint16_t account; /* quota.h */
	uint32_t connections;
	uint64_t named_by;   /* clients and tensors until they are buried; 0: a place for another */
	uint32_t uid;        /* of the client that made it */
	uint32_t first;      /* named tensors */
	uint32_t steps;      /* the most that one of its clients has made */
	struct list link;    /* of those that are free, linger or end; see name_space.c */
	uint64_t expires_ns; /* lingering */
	uint64_t end;        /* ending: the how manieth end; see holder */
};

#define HOLDER_MAGIC 0x686f6c64u
struct holder {
	uint32_t magic, id;
	struct list link; /* e->holders or e->tombstones */
	pin_slot *pins;
	struct fence *fences; /* NULL: it has none, nor the next two */
	const struct stream_word *streams;
	struct deferred_ring *deferred;
	const struct access_log *logs; /* of its threads; log_count 0: it is not known */
	uint32_t log_count;
	bool waits, holds;               /* deadlock.c, while it looks */
	uint64_t pinned_bytes;           /* crowd.c, likewise */
	struct fence_pool *pool;         /* fence.c; NULL until the first is handed out */
	struct list granted;             /* requests that were answered and store a fence yet */
	uint32_t deferred_used;          /* bits: rings that ever had an entry */
	uint32_t deferred_probe;         /* of the others: looked at next */
	uint32_t deferred_head[STREAMS]; /* the daemon's own: what the client sees is a copy */
	bool misbehaves;                 /* its rings make no sense and are not read any more */
	int pid;
	uint32_t uid;
	uint16_t name_space;
	uint32_t steps; /* counted on from those of its namespace */
	bool stopped, dead;
	uint64_t *slabs[ENGINE_DEVICES_MAX]; /* which ones it may have mapped: bits */
	uint32_t first;                      /* unnamed tensors */
	uint32_t sweep;                      /* dead: next slot to take over */
	uint64_t end;                        /* dead: the how manieth end, of e->ends_ever */
	uint64_t waits_for_end; /* its create has no room before all ends up to it; 0: none waits */
	uint64_t waits_for_round; /* likewise of looks at the doomed: pins may have ended */
	uint64_t waits_until_ns;  /* and for moves no longer */
	void *user;
	struct list requests;
};

enum request_kind { REQUEST_ACQUIRE, REQUEST_COPY, REQUEST_FLUSH };
enum request_state {
	REQUEST_BLOCKED, /* an earlier request wants one of the tensors at another place */
	REQUEST_QUEUED,  /* waits for room; has none reserved */
	REQUEST_RUNNING, /* everything it needs is reserved */
};

/* What a queued request may do for its room now. */
enum turn {
	TURN_WAITS,
	TURN_OWN, /* its namespace's tensors make room for it, and no others */
	TURN_ALL,
};

/* One tensor of a request. */
struct item {
	struct request *request;
	uint32_t tensor;
	uint32_t generation;
	uint32_t node;    /* extent reserved for it, EXTENT_NONE */
	bool ready;       /* flush: done; else counted in record.ready */
	bool arriving;    /* counted in request.arriving */
	bool wanted;      /* counted in record.wanted */
	struct list link; /* move.waiters, or request.todo */
};

#define REQUEST_MAGIC 0x72657175u
struct request {
	uint32_t magic, id;
	enum request_kind kind;
	enum request_state state;
	struct holder *holder;
	struct list holder_link;
	struct list link;       /* e->blocked, device.queue or e->running */
	struct list woken_link; /* e->woken */
	uint64_t sequence;      /* arrival */
	uint64_t begin_ns, deadline_ns;
	uint8_t device; /* acquire: where to */
	uint8_t access;
	bool completed;
	uint8_t turn;         /* QUEUED: enum turn */
	bool denied;          /* QUEUED: all was asked for room, and nobody could go */
	bool brings;          /* QUEUED: its tensors come one by one, and stay (bring.c) */
	uint64_t leave_bytes; /* that are free, but others' before they are its own */
	struct list todo;     /* RUNNING acquires and flushes: items to be looked at next */
	size_t open;          /* items begun and not ready */
	bool polling;         /* some item waits for an unpin */
	/* acquire_on */
	bool on;         /* may be answered early: its holder has fences */
	bool granted;    /* was answered; stores the fence when the last open item's move ends */
	size_t arriving; /* open items whose fill is under way; they may be pinned once granted */
	uint32_t fence;
	uint64_t fence_value;
	uint32_t failed; /* granted: the first item that failed; with `result` */
	/* copy */
	bool in;
	uint64_t offset, bytes;
	void *window;
	/* flush */
	size_t next;             /* items from it on were not begun; copy: bytes done */
	uint32_t walk, walk_end; /* of a namespace: records to be looked at yet; 0: of a list */
	struct list spare;       /* and the items of it that are free */
	unsigned syncs;          /* sync xfers in flight */
	bool synced;
	int result; /* first failure */
	char cause[ERR_TEXT_BYTES];
	size_t n;
	struct item items[];
};

enum move_kind {
	MOVE_FILL,    /* bring a front to a mapped tier; from another front, from below, or zeros */
	MOVE_CLEAN,   /* copy the front to a lower tier while it stays readable */
	MOVE_COMPACT, /* another extent of the same tier */
	MOVE_COPY,    /* one block between nvme and staging for a REQUEST_COPY */
	MOVE_SYNC,    /* fdatasync of one device for a flush; of no tensor */
};

/* What becomes of a fill that fails under pins; see failed.c. */
enum move_phase {
	MOVE_RUNS,
	MOVE_MARKS,  /* FAILED; its extent is filled with 0xff */
	MOVE_FAILED, /* FAILED; nothing in flight, waits for the last pin */
};

#define MOVE_MAGIC 0x6d6f7665u
struct move {
	uint32_t magic, id;
	struct list link;    /* e->moves */
	struct list waiters; /* struct item: to be looked at when it ends */
	uint32_t tensor;
	uint8_t kind, priority, phase;
	uint8_t from,
		to; /* devices; from DEVICE_NONE: nvme blocks or zeros; to DEVICE_NONE: nvme */
	uint8_t from_kind, to_kind; /* TIER_KINDS: zeros */
	bool drop_after;            /* clean: the front is to go, */
	uint16_t drop_for;          /* for this account, */
	bool drop_whole;            /* as quota_demand has it */
	bool unfilled;              /* fill: for a discarding writer */
	bool stop;                  /* no further pieces */
	bool for_prefetch;
	bool slides; /* compact: to_node lies before its extent, and both become one */
	uint32_t to_node;
	struct block_map *to_map;
	uint32_t pieces, next_piece, done_pieces, in_flight;
	uint64_t piece_bytes;
	struct piece *own;        /* that no want of memory takes away; NULL: in use */
	struct list staging_link; /* waits for a staging slot */
	int result;
	char cause[FAILURE_BYTES];
	int failure;                      /* phase: what made the fill fail; `cause` says it */
	struct list failed_link;          /* MOVE_FAILED: e->failed */
	unsigned readers;                 /* MOVE_FAILED: copies that read what is below */
	struct request *request;          /* MOVE_COPY, MOVE_SYNC; NULL when it was cancelled */
	struct block fresh;               /* MOVE_COPY inwards: the block's new place */
	uint64_t copy_offset, copy_bytes; /* MOVE_COPY: range in the tensor, within one block */
	uint64_t begin_ns;
};

/* Stands beside an xfer that is out: the xfer is its lane's meanwhile, which may read all of it. */
struct lent {
	struct list link; /* engine.lent: of one lane, in their order */
	const struct xfer *x;
	uint64_t since_ns;
};

/* One xfer of a move. */
struct piece {
	struct xfer x;
	struct lent lent;
	struct move *move;
	uint32_t index;
	uint8_t device; /* whose lane has it */
	uint8_t stage;  /* 0; 1: second half of a hop through staging */
	bool hops;
	void *slot; /* staging slot */
	struct piece *next_free;
};

enum direction { DIRECTION_UP, DIRECTION_DOWN, DIRECTIONS };

struct doomed {
	uint64_t end; /* its owner's, or its own: the how manieth, of e->ends_ever */
	uint32_t tensor;
};

/* Left alone since its write-back failed. */
struct backoff {
	uint64_t until_ns;
	uint32_t tensor, generation;
};

struct hint {
	struct list link;  /* device.hints[size] */
	uint64_t sequence; /* arrival */
	uint32_t tensor;
	uint8_t device, size;
};

/* What was admitted of those tensors that share a part of dram: [1] is that of the zone. */
struct part {
	uint64_t committed_bytes, small_bytes;
	struct sizes sizes;
};

#define ENGINE_MAGIC 0x656e6769u
struct engine {
	uint32_t magic;
	uint32_t at_tensor, at_move; /* looked at last: what an assertion that fails is about */
	struct engine_params params;
	struct descriptor *descriptors;
	struct record *records;
	uint32_t index_high; /* indices ever used: [1, index_high) */
	uint32_t free_first; /* list of free indices through owner_next */
	struct device devices[ENGINE_DEVICES_MAX];
	struct hint **hint_of; /* of a tensor that waits for its hint; NULL */
	unsigned device_count;
	uint8_t dram, nvme_first; /* devices; nvme_first DEVICE_NONE without nvme */
	uint8_t zone;             /* the device of SPEC_DEVICE_COPY tensors in dram, DEVICE_NONE */
	uint8_t hbm_by_place[256];
	uint64_t block_bytes;

	struct policy *policies[ENGINE_CLASSES];
	const struct policy_ops *policy_ops[ENGINE_CLASSES];
	void *slots;
	size_t slots_bytes;
	struct policy_slots policy_slots;

	struct namemap *names;
	struct name_space *name_spaces; /* never move */
	uint32_t name_space_count;      /* numbers ever used */
	struct namemap *name_spaces_open;
	/* The oldest first: those that linger by expires_ns, those that end by end. */
	struct list name_spaces_free, name_spaces_lingering, name_spaces_ending;
	uint64_t name_spaces_ever;
	uint64_t ends_ever;       /* of clients, namespaces that have lingered, single tensors */
	struct account *accounts; /* quota.h; [0]: of whoever no row names */
	unsigned account_count;
	bool shared_domain; /* more than one namespace was ever seen: recycled bytes are zeroed */

	struct list holders, tombstones;
	struct holder **holder_table;
	uint32_t holder_room;

	struct list blocked, running; /* requests by state; QUEUED ones stand at their device */
	struct list woken;            /* to be looked at before the running call returns */
	unsigned waiting;
	uint64_t sequence;
	uint64_t next_deadline_ns, poll_at_ns; /* ENGINE_NEVER: none */

	struct move **moves_by_id;
	uint32_t move_room, move_free_hint;
	struct list moves;
	unsigned in_flight;
	struct list lent[ENGINE_DEVICES_MAX]; /* of each lane, the oldest first */
	struct piece *free_pieces;

	struct block_map **maps; /* by record.map; 0 is not used */
	uint32_t map_room, map_free;

	void **staging_free;
	unsigned staging_free_count, staging_used[DIRECTIONS];
	unsigned staging_reserve; /* slots that a direction can have whatever the other wants */
	struct list staging_waiters[DIRECTIONS];

	struct doomed *doomed; /* destroyed, still pinned or moving */
	uint32_t doomed_count;
	/* Those of this round, which begins at 0, that are to be looked at yet. */
	uint32_t doomed_next, doomed_end;
	uint64_t doomed_rounds; /* that have ended */
	/* The first end of those that no pin was found to keep, and as far as this round knows. */
	uint64_t doomed_going, doomed_going_yet;
	uint64_t doomed_at_ns, doomed_wait_ns;
	struct list failed; /* moves: FAILED fronts that are pinned */
	uint64_t failed_at_ns, failed_wait_ns;
	struct backoff *backoff; /* a ring, the first due first */
	uint32_t backoff_first, backoff_count;
	uint32_t shadow_first[SHADOWS]; /* newest first */

	uint64_t committed_bytes;
	struct part part[2];
	bool lost_any, lost_look; /* a device was; tensors there are to be looked at */
	uint64_t lost_at_ns;
	uint64_t excess_at_ns;   /* excess.c: when to look again, */
	uint64_t excess_rest_ns; /* and not sooner than this after the last look */
	uint64_t now_ns;         /* of the call that is running */
	bool again; /* something has changed: queues are looked at before the call returns */
	uint64_t leave_looks; /* compact.c: tensors asked whether they can leave, since it rested */
	uint64_t judge_looks, judge_at_ns; /* tensors that it looked at, and when it may again */
	bool judge;       /* somebody waits for pins: deadlock.c looks before the call returns */
	bool asked_fully; /* a look for victims of this demand left nobody out */
	bool orphans;     /* a tensor that somebody waits for was destroyed */
	bool unblocked;   /* a request has ended that others may be blocked by */
};

#define STAT(e, name) (&(e)->params.stats->name)

static inline void stat_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}
static inline void stat_set(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, n, memory_order_relaxed);
}
static inline void stat_sub(_Atomic uint64_t *counter, uint64_t n)
{
	stat_add(counter, (uint64_t)0 - n);
}

static inline struct record *record_of(struct engine *e, uint32_t tensor)
{
	e->at_tensor = tensor;
	ASSERT(tensor > 0 && tensor < e->index_high);
	return &e->records[tensor];
}
static inline uint64_t word0_of(struct engine *e, uint32_t tensor)
{
	return atomic_load_explicit(&e->descriptors[tensor].word0, memory_order_relaxed);
}
static inline uint8_t state_of(struct engine *e, uint32_t tensor)
{
	return word0_state(word0_of(e, tensor));
}
static inline enum tier_kind device_kind(const struct engine *e, uint8_t device)
{
	return e->devices[device].tier->base.kind;
}
/* Where the tensor's replicas in dram stand. */
static inline uint8_t dram_of(const struct engine *e, const struct record *r)
{
	return (r->flags & RECORD_ZONED) != 0 ? e->zone : e->dram;
}
/* The device that a tensor goes to in the place of `device`: all of dram is one place, with one
 * queue, that of e->dram. */
static inline uint8_t device_at(const struct engine *e, const struct record *r, uint8_t device)
{
	return device != DEVICE_NONE && device_kind(e, device) == TIER_KIND_DRAM ? dram_of(e, r)
										 : device;
}
static inline struct list *queue_of(struct engine *e, uint8_t device)
{
	return &e->devices[device == e->zone ? e->dram : device].queue;
}
/* Whether room that comes free there is somebody's already. */
static inline bool wants_room(struct engine *e, uint8_t device)
{
	const struct device *d = &e->devices[device == e->zone ? e->dram : device];

	return !list_empty(&d->queue) && (e->account_count == 1 || d->wants_room);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine: every fact about tensors, and the moves that change them. It has no sockets, no YAML,
 * no threads and no clock of its own: time is an argument, lanes are a callback, so that a test can
 * step the whole of it with a seed. One thread (the control thread, or the stepper) calls it.
 *
 * Who is who: a *holder* is a connected client as the engine sees it (its pin table and namespace);
 * a *request* is {holder, id} that the engine completes exactly once through `complete`, possibly
 * before the call that made it returns; a *device* is one struct tier.
 */
#ifndef TIERD_ENGINE_ENGINE_H
#define TIERD_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "libclient/protocol/explain.h"
#include "libclient/protocol/stats_page.h"
#include "policy/policy.h"
#include "tiers/tier.h"

#define ENGINE_DEVICES_MAX 16
#define ENGINE_CLASSES     5
#define ENGINE_NEVER       UINT64_MAX

struct engine;
struct holder;

#define EXCESS_TEXT_BYTES 320

/* Tables of what a simulation has to reach: edges.h, invariants.h. */
enum engine_table { ENGINE_TABLE_EDGES, ENGINE_TABLE_INVARIANTS };

/* How the engine reaches the world. All are called from inside engine calls, never re-enter it. */
struct engine_hooks {
	void *ctx;
	/* Lends an xfer to the lane of a device; it comes back by engine_xfer_done(). */
	void (*submit)(void *ctx, unsigned device, struct xfer *x);
	/* The answer of a request. `text` is "" or the sentence of a failure. */
	void (*complete)(void *ctx, struct holder *holder, uint32_t request, int result,
			 uint64_t value, const char *text);
	/* A dead holder's last fact was taken over: its pin table is not looked at any more. */
	void (*holder_gone)(void *ctx, struct holder *holder);
	/* Optional. What the holder keeps in its tables makes no sense; it is told once, and those
	 * tables are not read any more. It is to be dropped, by the rules for such clients. */
	void (*misbehaves)(void *ctx, struct holder *holder, const char *text);
	/* Optional. What the holder has pinned keeps others from what is theirs, for too long. */
	void (*excess)(void *ctx, struct holder *holder, const char *text);
	/* The slab at `offset` is wanted back: the holder, which has mapped it, is to be told, once
	 * until engine_slab_gone(), engine_slab_kept() or its death answers. */
	void (*slab_unmap)(void *ctx, struct holder *holder, unsigned device, uint64_t offset);
	/* Optional, for tests: rows of a table that were reached, a bit each. */
	void (*reached)(void *ctx, enum engine_table table, uint64_t rows);
};

struct engine_watermark {
	uint32_t high_permille, low_permille;
};

/* A row of `namespaces:`. */
struct engine_quota {
	char name[PROTOCOL_NAME_MAX + 1]; /* without the star */
	bool prefix; /* all namespaces that begin with it share this; else the one of that name */
	struct {
		uint64_t guarantee_bytes, limit_bytes; /* hbm: of each GPU */
	} tier[TIER_KINDS];
};

/* What a quota is of: one GPU, dram or nvme. */
struct engine_pool {
	enum tier_kind kind;
	const char *name;
	uint64_t bytes;
};

struct engine_class {
	const struct policy_ops *policy;
	const void *policy_config;
	uint32_t overcommit_permille; /* 1000: admitted at full size */
};

struct engine_params {
	struct table_header *table; /* T, header written; descriptors zero */
	uint32_t tensors;           /* capacity: descriptors and slots of every pin table */
	void *records;              /* engine_records_bytes(tensors) zero bytes, sparse */
	struct tier *devices[ENGINE_DEVICES_MAX]; /* at least one of dram; at most one dram */
	unsigned device_count;                    /* the arena number in word1 is the index here */
	/* Of dram, [0, dram_zone_bytes): for SPEC_DEVICE_COPY tensors alone; a multiple of its
	 * slabs. 0: there is no such zone and no such tensor. */
	uint64_t dram_zone_bytes;
	/* Memory of the daemon alone, aligned to GRANULE; may be NULL without nvme where there is
	 * one GPU at most. */
	void *staging;
	uint64_t staging_bytes;
	struct engine_watermark watermark[TIER_KINDS];
	struct engine_class class_[ENGINE_CLASSES];
	uint64_t linger_ns;
	const struct engine_quota *quotas; /* stay as long as the engine does */
	unsigned quota_count;
	uint64_t excess_ns; /* how long pins may keep others from what is theirs; 0: for ever */
	struct stats_page *stats;
	struct engine_hooks hooks;
};

uint64_t engine_records_bytes(uint32_t tensors);
/* Whether what they guarantee stays within the pool: 0 or -EINVAL with a sentence. The engine that
 * is created asks it of each pool; it is here for who only wants to know. */
int engine_quotas_fit(const struct engine_quota *quotas, unsigned n, const struct engine_pool *pool,
		      struct err *err);
int engine_create(const struct engine_params *params, struct engine **ret, struct err *err);
/* Every xfer must have come back. */
void engine_destroy(struct engine *e);

/* Time. engine_turn() does what is due: deadlines, polls for unpins, sweeps, reclaim, cleaning.
 * Returns when it wants to be called next (ENGINE_NEVER: only events matter); a time not after
 * `now_ns` means at once. Call it once a loop turn. */
uint64_t engine_turn(struct engine *e, uint64_t now_ns);
void engine_xfer_done(struct engine *e, struct xfer *x, uint64_t now_ns);
/* Xfers lent out now. */
unsigned engine_in_flight(const struct engine *e);

/* What the engine reads and writes in C of a holder. The fences part may be NULL: then ACQUIRE_ON
 * completes as ACQUIRE does, when everything is in place. */
struct holder_tables {
	pin_slot *pins;
	struct fence *fences;              /* FENCES */
	const struct stream_word *streams; /* STREAMS */
	struct deferred_ring *deferred;    /* STREAMS */
	/* A log a thread; may be none: then nobody can tell whether all of its threads wait. */
	const struct access_log *logs;
	uint32_t log_count;
	uint32_t uid; /* whose: it may give hints for what is of the same user; 0: for all */
};

/* Holders. The pin table joins the scan at once. `pid` is for messages. */
int engine_holder_add(struct engine *e, const char *name_space, size_t name_bytes,
		      const struct holder_tables *tables, int pid, void *user, struct holder **ret,
		      struct err *err);
void *engine_holder_user(const struct holder *h);
/* HUP: nothing is granted any more, requests are cancelled without completion; pins still count. */
void engine_holder_stop(struct engine *e, struct holder *h);
/* Dead (pidfd or BYE): pins are forgotten, unnamed tensors go; `holder_gone` follows, perhaps
 * later. */
void engine_holder_die(struct engine *e, struct holder *h, uint64_t now_ns);

struct engine_spec {
	const char *name; /* NULL: unnamed */
	size_t name_bytes;
	uint8_t class_, dtype, ndim;
	uint64_t flags; /* SPEC_* */
	uint64_t shape[8];
};
/* Whether tensors of the dead, of namespaces that have lingered, and that were destroyed, are going
 * yet, some a turn, or when their moves have ended: of those that had ended when a create of this
 * client was told -EAGAIN. What is pinned yet is not waited for. */
bool engine_ends(const struct engine *e, const struct holder *h);
/* These answer at once: 0 or -errno with the sentence in `err`. Create: -EAGAIN while there is no
 * room for it, but engine_ends(); others may end again and again, and that is not waited for. */
int engine_create_tensors(struct engine *e, struct holder *h, const struct engine_spec *specs,
			  size_t n, struct wire_handle *ret, uint64_t now_ns, struct err *err);
int engine_lookup(struct engine *e, struct holder *h, const char *name, size_t name_bytes,
		  struct wire_handle *ret, struct err *err);
int engine_destroy_tensors(struct engine *e, struct holder *h, const struct wire_handle *t,
			   size_t n, uint64_t now_ns, struct err *err);
int engine_prefetch(struct engine *e, struct holder *h, const struct wire_handle *t, size_t n,
		    uint8_t place, uint64_t now_ns, struct err *err);
int engine_evict(struct engine *e, struct holder *h, const struct wire_handle *t, size_t n,
		 uint64_t now_ns, struct err *err);
void engine_step(struct engine *e, struct holder *h, uint64_t now_ns);
void engine_trim(struct engine *e);

/* Slabs that clients map one by one. The descriptor of a backed slab, the tier's; from now on the
 * holder counts as having it mapped. -EINVAL: no such slab; -EAGAIN: it has no memory now. */
int engine_slab_fd(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		   uint64_t *ret_bytes, struct err *err);
/* The holder has unmapped it, or never did (its descriptor could not be sent). */
int engine_slab_gone(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		     uint64_t now_ns, struct err *err);
/* The holder was asked to unmap it and does not: it is in use again. */
int engine_slab_kept(struct engine *e, struct holder *h, unsigned device, uint64_t offset,
		     struct err *err);
/* Peaks begin anew. */
void engine_mark(struct engine *e, uint64_t now_ns);
/* One wire_info with names; returns bytes written, 0 when `room` is too small, -ESTALE. */
int engine_stat(struct engine *e, struct wire_handle t, void *to, size_t room, struct err *err);
/* As many as fit, from index `from` on; *next is where to go on, 0 at the end. */
size_t engine_list(struct engine *e, uint32_t from, void *to, size_t room, uint32_t *next);

/* Why a tensor is where it is: struct wire_explain and as many struct wire_pin as fit; returns
 * bytes written, 0 when `room` is too small, -ESTALE. */
int engine_explain(struct engine *e, struct wire_handle t, void *to, size_t room, uint64_t now_ns,
		   struct err *err);
/* Quotas and what is used of them: struct wire_quota with names, as many as fit. `*next` is where
 * to go on, 0 at the end. */
size_t engine_quotas(struct engine *e, uint64_t from, void *to, size_t room, uint64_t *next);
/* Who waits for what: struct wire_wait, as many as fit. `from` is 0, or where the last call said to
 * go on; *next is 0 at the end. Requests that end meanwhile move others: none is told twice. */
size_t engine_waits(struct engine *e, uint64_t from, void *to, size_t room, uint64_t now_ns,
		    uint64_t *next);

/* These complete later. `request` is the holder's id, one outstanding at a time. deadline_ns:
 * absolute, ENGINE_NEVER: for ever; 0: only if it is there. */
void engine_acquire(struct engine *e, struct holder *h, uint32_t request,
		    const struct wire_handle *t, size_t n, uint8_t place, uint8_t access,
		    uint64_t deadline_ns, uint64_t now_ns);
/* As engine_acquire(), for a GPU's place; completes as soon as every tensor stands there or has an
 * extent there into which it is being moved (FILLING, which may be pinned). The value is a
 * fence_token() that holds once all are there, 0 when they are. Out of fences: it completes when
 * everything is there, with value 0. */
void engine_acquire_on(struct engine *e, struct holder *h, uint32_t request,
		       const struct wire_handle *t, size_t n, uint8_t place, uint8_t access,
		       uint64_t deadline_ns, uint64_t now_ns);
/* Takes in what is due in the holder's rings of deferred releases: cheap when they are empty. A
 * ring that never had an entry is found within STREAMS / 4 calls. The engine does it by itself
 * before it looks for unpins. */
void engine_deferred(struct engine *e, struct holder *h, uint64_t now_ns);
void engine_flush(struct engine *e, struct holder *h, uint32_t request, const struct wire_handle *t,
		  size_t n, uint64_t now_ns);
/* `window`: WINDOW_BYTES of the client's segment; bytes <= WINDOW_BYTES, inside the tensor. */
void engine_copy(struct engine *e, struct holder *h, uint32_t request, struct wire_handle t,
		 bool in, uint64_t offset, uint64_t bytes, void *window, uint64_t now_ns);
/* The request completes with -EINTR, unless it was complete already. */
void engine_cancel(struct engine *e, struct holder *h, uint32_t request, uint64_t now_ns);

/* One entry of an access log. */
void engine_used(struct engine *e, struct holder *h, uint32_t index, uint8_t place, uint8_t access,
		 uint64_t now_ns);

/* Asserts the invariants of design section 6 over everything: O(tensors). */
void engine_check(struct engine *e);
/* After an assertion that failed: the tensor and the move that were looked at last, first; then
 * what stands beside them; then tiers, requests and moves. Takes no memory and no lock, ends
 * whatever the lists look like, and believes nothing that it can check. */
void engine_dump(struct engine *e, int fd);

#endif

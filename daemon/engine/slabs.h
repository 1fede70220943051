/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that comes and goes. Which slabs of a tier are there is decided here: a slab without
 * memory is an extent that is nobody's tensor (OWNER_SLAB), so that whoever looks for room passes
 * it by. A tier that is not on_demand gets all of its slabs, one after the other; one that is gets
 * a slab when a request finds no hole, and gives it back when nothing has stood in it for a while,
 * once every client that mapped it has let go. Control thread.
 */
#ifndef TIERD_ENGINE_SLABS_H
#define TIERD_ENGINE_SLABS_H

#include "daemon/engine/state.h"

#define OWNER_SLAB 0xfffffffdu /* of the extent of a slab that is not PRESENT */

enum slab_state {
	SLAB_ABSENT,
	SLAB_BACKING,
	SLAB_PINNING, /* has memory, which devices register one after the other */
	SLAB_PRESENT, /* tensors may stand there */
	SLAB_LEAVING, /* empty; its importers are asked to unmap it */
	SLAB_UNBACKING,
};

struct slab {
	uint64_t touched_ns; /* when something came there or left last */
	uint32_t node;       /* EXTENT_NONE: it is PRESENT */
	uint32_t importers;
	uint8_t state;
};

/* A device that registers host memory, slab by slab in the order of addresses. */
struct pinner {
	struct xfer x;
	bool used, busy;
	uint32_t done; /* slabs */
};

/* Of one tier. */
struct slabs {
	struct slab *slab;
	uint32_t count;
	uint64_t bytes, end;   /* of one; of all */
	uint64_t backed_bytes; /* that have memory */
	struct xfer x;         /* BACK or UNBACK */
	bool busy;             /* it is lent */
	uint32_t leaving;      /* the one that LEAVES or is UNBACKED; `count`: none */
	bool traded;           /* it leaves for one at another place */
	bool full;             /* the last BACK found no memory, or no descriptor */
	char cause[96];        /* full: what it said */
	uint64_t retry_at_ns;  /* full: not tried again before */
	uint64_t scan_at_ns;   /* when to look for empty ones */
	bool trim;             /* every empty one is to go, however short it has been */
	struct pinner pinner[ENGINE_DEVICES_MAX];
};

static inline uint64_t slab_begin(const struct slabs *s, uint32_t i)
{
	return i * s->bytes;
}

static inline uint64_t slab_length(const struct slabs *s, uint32_t i)
{
	return MIN(s->bytes, s->end - slab_begin(s, i));
}

struct way {
	uint64_t begin, end; /* holes and ABSENT slabs */
	uint32_t cost;       /* of those slabs */
	bool found;
};

/* Where `bytes` in one piece would take the fewest new slabs, within [first, last)
 * (slab_search.c). */
struct way slabs_find_way(const struct slabs *s, const struct extents *extents, uint64_t bytes,
			  uint64_t first, uint64_t last);
/* An empty slab in the way without which there is another one for `bytes` that takes no more new
 * slabs; `count`: none. */
uint32_t slabs_find_spare(const struct slabs *s, const struct extents *extents, uint64_t bytes,
			  const struct way *way);
/* The last slab that nothing has stood in for `idle_ns`, not in the range [begin, end); `count`:
 * none. *ret_next_ns: when the next one may be. */
uint32_t slabs_find_empty(struct engine *e, uint8_t tier, uint64_t idle_ns, const struct way *but,
			  uint64_t *ret_next_ns);

/* Of every device whose tier has them. */
int slabs_open(struct engine *e, struct err *err);
void slabs_close(struct engine *e);
/* What is due; returns when to be called again. */
uint64_t slabs_turn(struct engine *e);
void slabs_xfer_done(struct engine *e, struct xfer *x);

/* Whether more of the device is on its way, where no slab has to be chosen for that: *ret. */
bool slabs_grow_is_known(struct engine *e, uint8_t device, bool *ret);
/* The cheapest way of a tier that is on_demand. */
struct way slabs_way(struct engine *e, uint8_t device, uint64_t bytes);
/* Whoever lacks a hole of `bytes` at the device may wait for memory that is on its way, or is asked
 * for now. False: no more is to be had; others have to go. `whole`, or NULL: what would take all of
 * a batch, and is preferred where it costs no more, or where one slab was traded for another. */
bool slabs_grow(struct engine *e, uint8_t device, uint64_t bytes, const struct way *whole);
/* The same where no window is open, but whatever stands in the way could go to what is made. */
bool slabs_grow_any(struct engine *e, uint8_t device);
/* No more is to be had, and the ranges that are there have no window for `bytes`: an empty slab
 * elsewhere is given back for one between them. False: there is none. */
bool slabs_trade(struct engine *e, uint8_t device, uint64_t bytes);
/* Something comes to, or leaves, the extent. */
void slabs_touch(struct engine *e, uint8_t device, const struct extent *x);
/* Whether the holder may have it mapped (importers.c), and what follows when one has not any more.
 */
bool slabs_mapped(const struct holder *h, uint8_t tier, uint32_t slab);
void slabs_unback_if_free(struct engine *e, uint8_t tier);
void slabs_holder_gone(struct engine *e, struct holder *h);
void slabs_trim(struct engine *e);
/* Bytes of the device that could hold tensors, as far as is known now. */
uint64_t slabs_capacity(const struct engine *e, uint8_t device);
/* Why no more of the device is to be had at present; NULL: it is. */
const char *slabs_trouble(const struct engine *e, uint8_t device);
/* Tells the statistics what is there. */
void slabs_count_backed(struct engine *e, enum tier_kind kind);

#endif

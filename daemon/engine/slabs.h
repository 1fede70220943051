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
	bool kept; /* one of them did not let go when it was to be traded; until one does */
};

/* A device that registers host memory, slab by slab in the order of addresses. */
struct pinner {
	struct xfer x;
	struct lent lent;
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
	struct lent lent;
	bool busy;        /* it is lent */
	uint32_t leaving; /* the one that LEAVES or is UNBACKED; `count`: none */
	bool traded;      /* for one at another place, that was not asked for yet */
	uint64_t left_at_ns;
	/* What there was when the last BACK found no memory, or no descriptor: more is not asked
	 * for before retry_at. UINT64_MAX: as far as is known there is more. */
	uint64_t limit_bytes, retry_at_ns;
	int refused;         /* of that BACK: its result, */
	char cause[96];      /* and the sentence, whose figures may be others each time */
	uint64_t scan_at_ns; /* when to look for empty ones */
	bool trim;           /* every empty one is to go, however short it has been */
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

static inline bool slabs_full(const struct slabs *s)
{
	return s->limit_bytes != UINT64_MAX;
}

/* Full: what was given back, and can be had again. */
static inline uint64_t slabs_spare_bytes(const struct slabs *s)
{
	return slabs_full(s) ? s->limit_bytes - s->backed_bytes : 0;
}

/* Of every device whose tier has them. */
int slabs_open(struct engine *e, struct err *err);
void slabs_close(struct engine *e);
/* What is due; returns when to be called again. */
uint64_t slabs_turn(struct engine *e);
void slabs_xfer_done(struct engine *e, struct xfer *x);

/* For slab_room.c: memory for an ABSENT slab is asked for; an empty one goes (false: not now); one
 * that goes comes back, if it can, or may yet give its memory (false: none goes). */
void slabs_back(struct engine *e, uint8_t tier, uint32_t i);
bool slabs_leave(struct engine *e, uint8_t tier, uint32_t i, bool traded);
bool slabs_take_back(struct engine *e, uint8_t tier);
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
/* Whether more of the device may come by itself: it is under way, or was not asked for since then.
 */
bool slabs_may_come(const struct engine *e, uint8_t device, uint64_t since_ns);
/* Why no more of the device is to be had at present; NULL: it is. */
const char *slabs_trouble(const struct engine *e, uint8_t device);
/* Tells the statistics what is there. */
void slabs_count_backed(struct engine *e, enum tier_kind kind);

#endif

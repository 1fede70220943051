/* SPDX-License-Identifier: Apache-2.0
 *
 * One try at a pin, shared by acquire, its batches and the copies. Any thread.
 */
#ifndef TIERD_CLIENT_ACQUIRE_H
#define TIERD_CLIENT_ACQUIRE_H

#include <errno.h>

#include "libclient/access_log.h"
#include "libclient/client.h"
#include "libclient/place.h"
#include "libclient/protocol/pin.h"
#include "libclient/slab.h"

/* Why a try was no hit; no sentence is set. */
enum {
	TRY_HIT = 0,
	TRY_MISS = -EAGAIN,
	TRY_STALE = -ESTALE,
	TRY_FULL = -EOVERFLOW,
};

/* Flags that a hit may carry; any other needs a closer look. */
#define WORD0_IGNORED ((uint64_t)FLAG_LARGE << 48)

/* An UNFILLED front is for the writer that discards, and for those of this client after it. The
 * daemon cleared `filled` before it published this front, so the own slot is read after word0: what
 * stood there when the pin was raised may have been said of a front before it. */
static inline int try_flags(uint64_t word0, const pin_slot *slot, uint32_t access)
{
	if (word0_flags(word0) & FLAG_DOOMED)
		return TRY_STALE;
	if ((word0_flags(word0) & FLAG_UNFILLED) && !(access & TIERD_DISCARD) && slot != NULL &&
	    !(atomic_load_explicit(slot, memory_order_relaxed) & PIN_FILLED))
		return TRY_MISS;
	return TRY_HIT;
}

/* What word0 says to somebody who wants this generation at this place. `slot`: the own one, under a
 * pin; NULL: the first look, to which an UNFILLED front may be a hit. */
static inline int try_word0(uint64_t word0, uint32_t generation, uint8_t place,
			    const pin_slot *slot, uint32_t access)
{
	if (likely((word0 & ~WORD0_IGNORED) == word0_make(generation, STATE_RESIDENT, place, 0)))
		return TRY_HIT;
	if (word0_generation(word0) != generation || generation == 0)
		return TRY_STALE;
	if (word0_state(word0) != STATE_RESIDENT || word0_place(word0) != place)
		return word0_flags(word0) & FLAG_DOOMED ? TRY_STALE : TRY_MISS;
	return try_flags(word0, slot, access);
}

/* The second look, under the pin: the one that decides. Whoever misses is unpinned. */
static inline int try_pinned(uint64_t word0, pin_slot *slot, tierd_tensor h, uint8_t place,
			     uint32_t access)
{
	int rc = try_word0(word0, h.generation, place, slot, access);
	uint64_t old;

	if (unlikely(rc != TRY_HIT))
		pin_lower(slot, access, &old);
	return rc;
}

/* Raises the pin if the tensor is there, else leaves the counts as they were. The first look spares
 * a miss its pin (and a writer's miss a false `written`). `index` is in range. */
static inline int try_pin(struct tierd *t, tierd_tensor h, uint8_t place, uint32_t access)
{
	struct descriptor *d = &t->hot.descriptors[h.index];
	pin_slot *slot = &t->hot.slots[h.index];
	uint64_t word0 = atomic_load_explicit(&d->word0, memory_order_relaxed), old;
	int rc = try_word0(word0, h.generation, place, NULL, access);

	if (unlikely(rc != TRY_HIT))
		return rc;
	if (unlikely(!pin_raise(slot, access, &old)))
		return TRY_FULL;
	/* Pairs with the daemon's exchange to EVICTING before it reads the slots. */
	word0 = atomic_load_explicit(&d->word0, memory_order_seq_cst);
	return try_pinned(word0, slot, h, place, access);
}

/* For somebody whose stream waits FILLING is as good as RESIDENT. */
static inline uint64_t filling_will_do(uint64_t word0)
{
	return word0_state(word0) != STATE_FILLING
		       ? word0
		       : word0 ^ (uint64_t)(STATE_FILLING ^ STATE_RESIDENT) << 32;
}

/* As try_pin(); *ret_filling: the bytes are still coming. The daemon publishes where a tensor will
 * be with FILLING, and from then on a pin keeps it there. */
static inline int try_pin_filling(struct tierd *t, tierd_tensor h, uint8_t place, uint32_t access,
				  bool *ret_filling)
{
	struct descriptor *d = &t->hot.descriptors[h.index];
	pin_slot *slot = &t->hot.slots[h.index];
	uint64_t word0 = atomic_load_explicit(&d->word0, memory_order_relaxed), old;
	int rc = try_word0(filling_will_do(word0), h.generation, place, NULL, access);

	if (rc != TRY_HIT)
		return rc;
	if (!pin_raise(slot, access, &old))
		return TRY_FULL;
	word0 = atomic_load_explicit(&d->word0, memory_order_seq_cst);
	*ret_filling = word0_state(word0) == STATE_FILLING;
	return try_pinned(filling_will_do(word0), slot, h, place, access);
}

/* Under the own pin: says that this writer fills an UNFILLED front. Only once the acquire is sure
 * to succeed, for from here on the old bytes are gone. */
static inline void try_commit(struct tierd *t, tierd_tensor h, uint32_t access)
{
	uint64_t word0 =
		atomic_load_explicit(&t->hot.descriptors[h.index].word0, memory_order_relaxed);

	if (unlikely((access & TIERD_DISCARD) && (word0_flags(word0) & FLAG_UNFILLED)))
		atomic_fetch_or_explicit(&t->hot.slots[h.index], PIN_FILLED, memory_order_seq_cst);
}

/* The common case of slab_data(): all of it within one slab, which is mapped. */
static inline void *try_slab(struct tierd *t, uint64_t word1, uint64_t bytes)
{
	const struct slab_arena *a = &t->slabs[word1_arena(word1)];
	uint64_t offset = word1_offset(word1), slab, last;

	if (unlikely(offset >= a->bytes || bytes > a->bytes - offset))
		return NULL;
	slab = offset >> a->slab_shift;
	last = (offset + bytes - (bytes != 0)) >> a->slab_shift;
	if (unlikely(slab != last || !slab_is_mapped(a, slab)))
		return slab_data(t, word1, bytes);
	return a->base + offset;
}

/* Under the own pin, word1 and the size stand still. NULL: not mapped, or outside every arena;
 * slab_reach() tells which, and maps. */
static inline void *try_data(struct tierd *t, tierd_tensor h, uint64_t *ret_bytes)
{
	struct descriptor *d = &t->hot.descriptors[h.index];
	uint64_t word1 = atomic_load_explicit(&d->word1, memory_order_relaxed);
	uint64_t offset = word1_offset(word1);
	const struct client_arena *a;

	if (unlikely(word1_arena(word1) >= HELLO_ARENAS_MAX))
		return NULL;
	*ret_bytes = d->bytes;
	a = &t->hot.arenas[word1_arena(word1)];
	if (unlikely(offset >= a->bytes || d->bytes > a->bytes - offset))
		return try_slab(t, word1, d->bytes);
	return a->base + offset;
}

/* Where a tensor stands once try_data() or want_reach() has found it reachable under the own pin.
 * It stays so: whoever is asked to unmap its slab finds the pin. But the slab's bit may be down
 * while he looks, and try_data() then says that it is not mapped. */
static inline void *reached_data(struct tierd *t, tierd_tensor h)
{
	uint64_t word1 =
		atomic_load_explicit(&t->hot.descriptors[h.index].word1, memory_order_relaxed);
	const struct client_arena *a = &t->hot.arenas[word1_arena(word1)];

	return (a->bytes != 0 ? a->base : t->slabs[word1_arena(word1)].base) + word1_offset(word1);
}

/* After the pins: a daemon asleep does not read logs, so wake it. */
static inline void try_wake_daemon(struct tierd *t)
{
	if (unlikely(atomic_load_explicit(t->hot.awake, memory_order_seq_cst) == DAEMON_ASLEEP))
		client_ring(t);
}

/* The byte of a place; false: place_find() knows, or why there is none. */
static inline bool place_to_wire(struct tierd *t, int place, uint8_t *ret)
{
	uint8_t wire;

	if (unlikely((unsigned)place + 1 > CLIENT_PLACES))
		return false;
	wire = atomic_load_explicit(&t->hot.places[place + 1], memory_order_relaxed);
	*ret = wire;
	return likely(wire != PLACE_UNKNOWN);
}

static inline bool access_valid(uint32_t access)
{
	/* READ, WRITE, READ|WRITE, WRITE|DISCARD, READ|WRITE|DISCARD */
	return access < 8 && ((0xceu >> access) & 1);
}

/* One acquire while it goes on. */
struct want {
	const tierd_tensor *tensors;
	size_t n;
	int place;
	uint8_t wire_place;
	uint32_t access;
	int64_t timeout_ns;
	uint64_t until_ns; /* REQUEST_NEVER: for ever; 0: nothing had to be waited for yet */
	bool on_stream;    /* a pin may stand on FILLING, for the stream will wait */
	bool saw_filling;  /* one does */
	bool uncommitted;  /* the caller says try_commit() itself */
};

/* Checks access, number and place; fills wire_place. */
int want_check(struct tierd *t, struct want *w);
/* Pins all or none; TRY_*. *ret_at: the tensor that was refused. */
int want_pin(struct tierd *t, struct want *w, size_t *ret_at);
void want_unpin(struct tierd *t, const struct want *w);
/* Every pin stands: maps what is not mapped yet. Unpins all on failure. */
int want_reach(struct tierd *t, struct want *w);
/* Then nothing can fail any more. */
void want_view(struct tierd *t, const struct want *w, struct tierd_view *ret);
/* Asks the daemon for all of them by `opcode` and waits for its word. */
int want_ask(struct tierd *t, const struct want *w, uint16_t opcode, bool *ret_interrupted,
	     uint64_t *ret_value);
/* Acquires after a first try that gave `rc` at tensor `at`. */
int want_wait(struct tierd *t, struct want *w, size_t at, int rc, struct tierd_view *ret);
/* All of it. `rc`: what a try of a single tensor said; TRY_HIT: there was none, because of the
 * arguments or a place not used before, or a slab is not mapped. */
int want_acquire(struct tierd *t, struct want *w, int rc, struct tierd_view *ret);
/* Whether a release of this view would end a pin, or be nothing; else -EPERM or -EINVAL. */
int release_check(struct tierd *t, const struct tierd_view *view);

/* The sentence for a try that ended an acquire. */
int acquire_refused(struct tierd *t, tierd_tensor h, int rc);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/publish.h"

#include "base/log.h"
#include "daemon/engine/edges.h"
#include "daemon/engine/move.h"
#include "daemon/engine/replica.h"

static const uint8_t edges[EDGE_KINDS][STATE_COUNT][STATE_COUNT] = {
#define X(name, kind, from, to, text) [EDGE_##kind][STATE_##from][STATE_##to] = EDGE_##name,
	ENGINE_EDGES(X)
#undef X
};
_Static_assert(EDGE_COUNT <= 64, "a bit each in engine_hooks.reached");

/* Where clients are to look for the tensor in this state: where a fill brings it, from the moment
 * on that the old front is closed; else at the front. */
static uint64_t place_shown(struct engine *e, const struct record *r, uint8_t state,
			    uint8_t *ret_place)
{
	const struct move *m = r->move != 0 ? move_get(e, r->move) : NULL;
	uint8_t device = r->front;
	uint32_t node;

	if (m != NULL && m->kind == MOVE_FILL && state != STATE_RESIDENT && state != STATE_ABSENT)
		device = m->to;
	*ret_place = PROTOCOL_PLACE_HOST;
	if (device == DEVICE_NONE)
		return 0;
	node = device == r->front ? front_node(e, r) : m->to_node;
	*ret_place = e->devices[device].place;
	return word1_make(e->devices[device].lane, replica_offset(e, device, node));
}

static enum edge_kind kind_of(uint64_t from, uint64_t to)
{
	bool was_doomed = (word0_flags(from) & FLAG_DOOMED) != 0;
	uint8_t state = word0_state(from);

	if (word0_flags(to) & FLAG_DOOMED)
		return was_doomed ? EDGE_DOOMED : EDGE_DOOM;
	ASSERT(!was_doomed);
	return word0_state(to) == STATE_RESIDENT && word0_place(from) != word0_place(to) &&
			       (state == STATE_DROPPING || state == STATE_FAILED)
		       ? EDGE_AWAY
		       : EDGE_LIVE;
}

/* seq_cst: pairs with the client's pin and re-read (pins.c); also releases word1. */
static void store(struct engine *e, uint32_t tensor, enum edge_kind kind, uint64_t word0)
{
	uint8_t from = state_of(e, tensor), to = word0_state(word0);
	enum engine_edge edge = edges[kind][from][to];

	if (edge == EDGE_NONE)
		log_error(MOVE, "tensor %u: no edge of kind %u from state %u to %u", tensor, kind,
			  from, to);
	ASSERT(edge != EDGE_NONE);
	atomic_store(&e->descriptors[tensor].word0, word0);
	if (e->params.hooks.reached != NULL)
		e->params.hooks.reached(e->params.hooks.ctx, ENGINE_TABLE_EDGES, 1ull << edge);
}

void publish(struct engine *e, uint32_t tensor, uint8_t state, uint16_t flags)
{
	struct descriptor *d = &e->descriptors[tensor];
	const struct record *r = record_of(e, tensor);
	uint64_t was = word0_of(e, tensor), word0;
	uint8_t place;
	uint64_t word1 = place_shown(e, r, state, &place);

	if (r->flags & RECORD_LARGE)
		flags |= FLAG_LARGE;
	if (r->flags & RECORD_DOOMED)
		flags |= FLAG_DOOMED;
	/* Pins may stand in these states, and who holds one relies on word1. */
	if (word0_state(was) == STATE_RESIDENT || word0_state(was) == STATE_FILLING ||
	    word0_state(was) == STATE_EVICTING)
		ASSERT(word1 == atomic_load_explicit(&d->word1, memory_order_relaxed));
	atomic_store_explicit(&d->word1, word1, memory_order_relaxed);
	word0 = word0_make(word0_generation(was), state, place, flags);
	store(e, tensor, kind_of(was, word0), word0);
}

void publish_born(struct engine *e, uint32_t tensor, uint32_t generation)
{
	const struct record *r = record_of(e, tensor);
	uint16_t flags = (r->flags & RECORD_LARGE) != 0 ? FLAG_LARGE : 0;

	ASSERT(r->front == DEVICE_NONE && r->move == 0);
	atomic_store_explicit(&e->descriptors[tensor].word1, 0, memory_order_relaxed);
	store(e, tensor, EDGE_LIVE,
	      word0_make(generation, STATE_ABSENT, PROTOCOL_PLACE_HOST, flags));
}

void publish_buried(struct engine *e, uint32_t tensor)
{
	uint32_t generation = word0_generation(word0_of(e, tensor)) + 1;

	ASSERT((word0_flags(word0_of(e, tensor)) & FLAG_DOOMED) != 0);
	atomic_store_explicit(&e->descriptors[tensor].word1, 0, memory_order_relaxed);
	store(e, tensor, EDGE_BURY,
	      word0_make(generation == 0 ? 1 : generation, STATE_ABSENT, PROTOCOL_PLACE_HOST, 0));
}

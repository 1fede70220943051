/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/client.h"

#include <string.h>

#include "base/check.h"

uint64_t model_word0(struct stepper *s, const struct model *m)
{
	return atomic_load(&s->world.descriptors[m->handle.index].word0);
}

static char *address(struct stepper *s, const struct model *m)
{
	uint64_t word1 = atomic_load(&s->world.descriptors[m->handle.index].word1);

	ASSERT(world_is_backed(&s->world, word1_arena(word1), word1_offset(word1), m->bytes));
	return s->world.devices[word1_arena(word1)].memory + word1_offset(word1);
}

/* ---- slabs ---- */

void client_map(struct client *c, const struct model *m)
{
	struct world *w = &c->stepper->world;
	uint64_t word1 = atomic_load(&w->descriptors[m->handle.index].word1), bytes;
	unsigned device = word1_arena(word1);
	uint64_t at = word1_offset(word1) / WORLD_HBM_SLAB;
	struct err err = ERR_INIT;

	if (w->devices[device].tier.base.ops->slab_fd == NULL)
		return;
	for (; at * WORLD_HBM_SLAB < word1_offset(word1) + m->bytes; at++) {
		if (c->mapped[device][at])
			continue;
		ASSERT(engine_slab_fd(w->engine, c->holder, device, at * WORLD_HBM_SLAB, &bytes,
				      &err) == 1000 + (int)at);
		c->mapped[device][at] = true;
		w->devices[device].importers[at]++;
	}
}

void client_unmap(struct client *c, unsigned device, unsigned slab)
{
	struct world *w = &c->stepper->world;
	struct err err = ERR_INIT;

	if (c->mapped[device][slab])
		w->devices[device].importers[slab]--;
	c->mapped[device][slab] = c->asked[device][slab] = false;
	ASSERT(engine_slab_gone(w->engine, c->holder, device, slab * WORLD_HBM_SLAB, w->now_ns,
				&err) == 0);
}

void client_slab_unmap(void *ctx, struct holder *holder, unsigned device, uint64_t offset)
{
	struct client *c = engine_holder_user(holder);

	ASSERT(c->mapped[device][offset / WORLD_HBM_SLAB]);
	c->asked[device][offset / WORLD_HBM_SLAB] = true;
}

static bool is_idle(const struct client *c)
{
	for (unsigned j = 0; j < VIEWS; j++)
		if (c->view[j].used)
			return false;
	return true;
}

void client_unmap_some(struct client *c, bool at_once)
{
	struct stepper *s = c->stepper;

	for (unsigned d = 0; s->trouble->shape.slabs && d < s->world.shape.hbm; d++)
		for (unsigned i = 0; i < WORLD_SLABS; i++)
			if (c->asked[d][i]
				    ? at_once || world_below(&s->world, 4) == 0
				    : !at_once && is_idle(c) && world_below(&s->world, 8) == 0)
				client_unmap(c, d, i);
}

/* ---- the client's half of the handshake ---- */

void client_unpin(struct client *c, struct wire_handle t, uint8_t access)
{
	pin_slot *slot = &c->pins[t.index];

	ASSERT((atomic_load(slot) & PIN_MASK) > 0);
	atomic_fetch_sub(slot, PIN_ONE + ((access & ACCESS_WRITE) ? PIN_WRITE_ONE : 0));
}

bool client_try_pin(struct client *c, const struct model *m, uint8_t place, uint8_t access)
{
	pin_slot *slot = &c->pins[m->handle.index];
	uint64_t w, own = atomic_fetch_add(slot,
					   PIN_ONE + ((access & ACCESS_WRITE) ? PIN_WRITE_ONE : 0));

	if (access & ACCESS_WRITE)
		atomic_fetch_or(slot, PIN_WRITTEN);
	w = model_word0(c->stepper, m);
	if (word0_generation(w) == m->handle.generation && word0_state(w) == STATE_RESIDENT &&
	    word0_place(w) == place && !(word0_flags(w) & FLAG_DOOMED)) {
		if (!(word0_flags(w) & FLAG_UNFILLED) || (own & PIN_FILLED))
			return true;
		if (access & ACCESS_DISCARD)
			return true; /* `filled` is said when nothing can back out any more */
	}
	client_unpin(c, m->handle, access); /* `written` stays: a false "dirty" is only work */
	return false;
}

void model_scribble(struct stepper *s, struct model *m)
{
	char *at = address(s, m);
	uint64_t word = world_random(&s->world);

	/* Every eighth byte differs from its neighbours, every write from the one before. */
	for (uint64_t i = 0; i < m->bytes; i++) {
		if (i % 8 == 0)
			word = word * 6364136223846793005ull + 1442695040888963407ull;
		m->expected[i] = (unsigned char)(word >> (i % 8 * 8));
	}
	memcpy(at, m->expected, m->bytes);
	m->fuzzy = false;
}

void model_verify(struct stepper *s, const struct model *m)
{
	ASSERT(m->fuzzy || memcmp(address(s, m), m->expected, m->bytes) == 0);
}

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

	return s->world.devices[word1_arena(word1)].memory + word1_offset(word1);
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "libclient/protocol/pin.h"
#include "tests/sim/copies.h"
#include "tests/sim/losses.h"
#include "tests/sim/streams.h"

uint64_t model_word0(struct stepper *s, const struct model *m)
{
	return atomic_load(&s->world.descriptors[m->handle.index].word0);
}

uint64_t model_word1(struct stepper *s, const struct model *m)
{
	return atomic_load(&s->world.descriptors[m->handle.index].word1);
}

char *model_address(struct stepper *s, const struct model *m)
{
	uint64_t word1 = atomic_load(&s->world.descriptors[m->handle.index].word1);

	if (word1_arena(word1) == s->world.shape.hbm && s->trouble->shape.zone)
		ASSERT(m->zoned ? word1_offset(word1) + m->bytes <= WORLD_ZONE
				: word1_offset(word1) >= WORLD_ZONE);
	ASSERT(world_is_backed(&s->world, word1_arena(word1), word1_offset(word1), m->bytes));
	return s->world.devices[word1_arena(word1)].memory + word1_offset(word1);
}

/* ---- picks ---- */

uint64_t below(struct stepper *s, uint64_t n)
{
	return world_below(&s->world, n);
}

struct view *free_view(struct client *c)
{
	for (unsigned i = 0; i < VIEWS; i++)
		if (!c->view[i].used)
			return &c->view[i];
	return NULL;
}

bool same_tensor(const struct model *m, struct wire_handle t)
{
	return m->live && m->handle.index == t.index && m->handle.generation == t.generation;
}

struct want *free_want(struct client *c, uint32_t *ret_id)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		if (!c->want[i].used) {
			*ret_id = i;
			return &c->want[i];
		}
	}
	return NULL;
}

struct model *any_live(struct stepper *s, unsigned *ret)
{
	for (unsigned tries = 0; tries < 8; tries++) {
		unsigned i = (unsigned)below(s, s->trouble->models ? s->trouble->models : MODELS);

		if (s->models[i].live) {
			*ret = i;
			return &s->models[i];
		}
	}
	return NULL;
}

/* ---- slabs ---- */

void client_map(struct client *c, const struct model *m)
{
	struct world *w = &c->stepper->world;
	uint64_t word1 = atomic_load(&w->descriptors[m->handle.index].word1), bytes;
	unsigned device = word1_arena(word1);
	uint64_t at = word1_offset(word1) / WORLD_HBM_SLAB;
	struct err err = ERR_INIT;
	int fd;

	if (w->devices[device].tier.base.ops->slab_fd == NULL)
		return;
	for (; at * WORLD_HBM_SLAB < word1_offset(word1) + m->bytes; at++) {
		if (c->mapped[device][at])
			continue;
		do
			fd = engine_slab_fd(w->engine, c->holder, device, at * WORLD_HBM_SLAB,
					    &bytes, &err);
		while (fd == -ENOMEM && c->stepper->trouble->memory.no_memory > 0);
		if (fd == -ENODEV && w->devices[device].lost)
			return; /* the fronts there have not all gone yet */
		ASSERT(fd == 1000 + (int)at);
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

static bool uses_slab(const struct client *c, unsigned device, unsigned slab)
{
	for (unsigned j = 0; j < VIEWS; j++) {
		const struct descriptor *d =
			&c->stepper->world.descriptors[c->view[j].handle.index];
		uint64_t word1 = atomic_load(&d->word1);

		if (c->view[j].used && word1_arena(word1) == device &&
		    word1_offset(word1) < (slab + 1) * WORLD_HBM_SLAB &&
		    word1_offset(word1) + d->bytes > slab * WORLD_HBM_SLAB)
			return true;
	}
	return false;
}

/* Since it was asked, what was to go may have come into use again. */
static void answer_unmap(struct client *c, unsigned device, unsigned slab)
{
	struct err err = ERR_INIT;

	if (!uses_slab(c, device, slab)) {
		client_unmap(c, device, slab);
		return;
	}
	c->asked[device][slab] = false;
	ASSERT(engine_slab_kept(c->stepper->world.engine, c->holder, device, slab * WORLD_HBM_SLAB,
				&err) == 0);
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
			if (c->asked[d][i] && (at_once || world_below(&s->world, 4) == 0))
				answer_unmap(c, d, i);
			else if (!c->asked[d][i] && !at_once && is_idle(c) &&
				 world_below(&s->world, 8) == 0)
				client_unmap(c, d, i);
}

/* ---- the client's half of the handshake ---- */

void client_unpin(struct client *c, struct wire_handle t, uint8_t access)
{
	uint64_t old;

	ASSERT(pin_lower(&c->pins[t.index], access, &old));
}

bool client_fence_passed(const struct client *c, uint64_t token)
{
	return atomic_load(&c->fences[fence_token_index(token)].value) >= fence_token_value(token);
}

/* Under the own pin. FILLING will do for whoever was told of it, while its fence has not passed
 * after the look: from then on it would be another fill. */
static bool stands(struct client *c, const struct model *m, uint8_t place, uint64_t token)
{
	uint64_t w = model_word0(c->stepper, m);

	if (word0_state(w) == STATE_FILLING && token != 0 && client_fence_passed(c, token))
		w = model_word0(c->stepper, m);
	if (word0_state(w) != STATE_RESIDENT &&
	    (word0_state(w) != STATE_FILLING || token == 0 || client_fence_passed(c, token)))
		return false;
	return word0_generation(w) == m->handle.generation && word0_place(w) == place &&
	       !(word0_flags(w) & FLAG_DOOMED);
}

bool client_try_pin_on(struct client *c, const struct model *m, uint8_t place, uint8_t access,
		       uint64_t token)
{
	pin_slot *slot = &c->pins[m->handle.index];
	uint64_t own;

	ASSERT(pin_raise(slot, access, &own));
	if (stands(c, m, place, token)) {
		if (!(word0_flags(model_word0(c->stepper, m)) & FLAG_UNFILLED) ||
		    (own & PIN_FILLED))
			return true;
		if (access & ACCESS_DISCARD)
			return true; /* `filled` is said when nothing can back out any more */
	}
	client_unpin(c, m->handle, access); /* `written` stays: a false "dirty" is only work */
	return false;
}

bool client_try_pin(struct client *c, const struct model *m, uint8_t place, uint8_t access)
{
	return client_try_pin_on(c, m, place, access, 0);
}

void model_scribble(struct stepper *s, struct model *m)
{
	char *at = model_address(s, m);
	uint64_t word = world_random(&s->world);

	/* Every eighth byte differs from its neighbours, every write from the one before. */
	for (uint64_t i = 0; i < m->bytes; i++) {
		if (i % 8 == 0)
			word = word * 6364136223846793005ull + 1442695040888963407ull;
		m->expected[i] = (unsigned char)(word >> (i % 8 * 8));
	}
	memcpy(at, m->expected, m->bytes);
	m->fuzzy = false;
	m->writes++;
}

void client_fill(struct client *c, struct model *m)
{
	copies_keep(c->stepper, m);
	atomic_fetch_or(&c->pins[m->handle.index], PIN_FILLED);
	model_scribble(c->stepper, m);
	losses_revived(c->stepper, m);
}

void model_verify(struct stepper *s, const struct model *m)
{
	ASSERT(m->fuzzy || losses_front(s, m) ||
	       memcmp(model_address(s, m), m->expected, m->bytes) == 0);
}

/* ---- from the beginning to the end ---- */

struct client *client_new(struct stepper *s, unsigned i)
{
	struct client *c = calloc(1, sizeof(*c));
	int rc;
	unsigned n = s->trouble->name_spaces > 0 ? s->trouble->name_spaces : 2;
	char name_space[2] = { (char)('a' + i % n), 0 };
	struct err err = ERR_INIT;

	c->stepper = s;
	c->name_space = i % n;
	c->pid = (int)(1000 + i);
	c->pins = calloc(WORLD_TENSORS, sizeof(pin_slot));
	streams_open(c);
	do
		rc = engine_holder_add(s->world.engine, name_space, 1,
				       &(struct holder_tables){ .pins = c->pins,
								.fences = c->fences,
								.streams = c->streams,
								.deferred = c->deferred },
				       c->pid, c, &c->holder, &err);
	while (rc == -ENOMEM && s->trouble->memory.no_memory > 0);
	ASSERT(rc == 0);
	return c;
}

/* Its copies may have happened or not, its requests are not answered any more. */
void client_stop(struct stepper *s, struct client *c)
{
	for (unsigned i = 0; i < REQUESTS; i++) {
		struct want *w = &c->want[i];

		if (w->window == NULL)
			continue;
		if (w->in && same_tensor(&s->models[w->model[0]], w->handle[0]))
			s->models[w->model[0]].fuzzy = true;
	}
	for (unsigned i = 0; i < REQUESTS; i++) {
		copies_free(&c->want[i]);
		c->want[i] = (struct want){ 0 };
	}
	c->stopped = true;
}

/* Killed wherever it is: its unnamed tensors are gone. */
void client_kill(struct stepper *s, struct client *c)
{
	if (!c->stopped) {
		client_stop(s, c);
		if (below(s, 2))
			engine_holder_stop(s->world.engine, c->holder);
	}
	for (unsigned d = 0; d < s->world.shape.hbm; d++)
		for (unsigned i = 0; i < WORLD_SLABS; i++)
			s->world.devices[d].importers[i] -= c->mapped[d][i];
	engine_holder_die(s->world.engine, c->holder, s->world.now_ns);
}

void client_gone(void *ctx, struct holder *holder)
{
	struct client *c = engine_holder_user(holder);

	if (c == NULL)
		return; /* the flicker's, which is freed by itself */
	free(c->pins);
	streams_close(c);
	free(c);
}

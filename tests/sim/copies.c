/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tests/sim/client.h"

/* Bytes of a range before they were given up. */
struct kept {
	struct kept *next;
	char bytes[];
};

void copies_free(struct want *w)
{
	struct kept *k;

	while ((k = w->kept) != NULL) {
		w->kept = k->next;
		free(k);
	}
	free(w->window);
	w->window = NULL;
}

static void keep_for(const struct model *m, struct want *w)
{
	struct kept *k;

	if (w->window == NULL || w->in || !same_tensor(m, w->handle[0]))
		return;
	if (m->fuzzy) {
		w->any = true;
		return;
	}
	k = malloc(sizeof(*k) + w->bytes);
	ASSERT(k != NULL);
	k->next = w->kept;
	memcpy(k->bytes, m->expected + w->offset, w->bytes);
	w->kept = k;
}

void copies_keep(struct stepper *s, const struct model *m)
{
	if ((word0_flags(model_word0(s, m)) & FLAG_UNFILLED) == 0)
		return;
	for (unsigned i = 0; i < CLIENTS; i++)
		for (unsigned j = 0; j < REQUESTS; j++)
			keep_for(m, &s->clients[i]->want[j]);
}

/* What stands on a GPU alone is read there, under a pin. */
static bool on_gpu_alone(struct stepper *s, const struct model *m)
{
	char room[512] __attribute__((aligned(8)));
	const struct wire_info *info = (const struct wire_info *)room;
	struct err err = ERR_INIT;

	ASSERT(engine_stat(s->world.engine, m->handle, room, sizeof(room), &err) > 0);
	return info->dirty && info->stored_bytes[TIER_KIND_HBM] > 0;
}

static bool waits(struct stepper *s, const struct want *w)
{
	const struct model *m = &s->models[w->model[0]];

	if (w->window == NULL || w->in || !same_tensor(m, w->handle[0]))
		return false;
	return !m->may_be_lost &&
	       (word0_state(model_word0(s, m)) != STATE_FAILED || !on_gpu_alone(s, m));
}

bool copies_wait(struct stepper *s)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		for (unsigned j = 0; j < REQUESTS; j++)
			if (waits(s, &s->clients[i]->want[j]))
				return true;
	return false;
}

static bool is_right(const struct model *m, const struct want *w)
{
	if (m->fuzzy || w->any || memcmp(w->window, m->expected + w->offset, w->bytes) == 0)
		return true;
	for (const struct kept *k = w->kept; k != NULL; k = k->next)
		if (memcmp(w->window, k->bytes, w->bytes) == 0)
			return true;
	return false;
}

void copies_done(struct client *c, struct want *w, int result)
{
	struct model *m = &c->stepper->models[w->model[0]];
	bool same = same_tensor(m, w->handle[0]);

	if (same && result == 0 && w->in)
		memcpy(m->expected + w->offset, w->window, w->bytes);
	else if (same && result == 0)
		ASSERT(is_right(m, w));
	else if (same && result == -EINTR && w->in)
		m->fuzzy = true;
	copies_free(w);
}

/* Of some of the tensor, within what is a block of most. */
static void begin(struct client *c, unsigned model, bool in)
{
	struct stepper *s = c->stepper;
	const struct model *m = &s->models[model];
	uint32_t id;
	struct want *w = free_want(c, &id);

	if (w == NULL || m->bytes == 0)
		return;
	*w = (struct want){ .used = true, .n = 1, .model = { model }, .handle = { m->handle } };
	w->in = in;
	w->offset = below(s, m->bytes);
	w->bytes = MIN(m->bytes - w->offset, WORLD_BLOCK - w->offset % WORLD_BLOCK);
	if (w->bytes > 1 && below(s, 2))
		w->bytes = 1 + below(s, w->bytes);
	w->window = malloc(w->bytes);
	for (uint64_t j = 0; j < w->bytes; j++)
		w->window[j] = (char)(world_random(&s->world) >> 40);
	engine_copy(s->world.engine, c->holder, id, m->handle, in, w->offset, w->bytes, w->window,
		    s->world.now_ns);
}

void copies_begin(struct client *c)
{
	unsigned i;

	if (any_live(c->stepper, &i) != NULL)
		begin(c, i, below(c->stepper, 2));
}

void copies_below(struct client *c)
{
	struct stepper *s = c->stepper;

	for (unsigned i = 0; i < MODELS && !c->stopped; i++)
		if (s->models[i].live && word0_state(model_word0(s, &s->models[i])) == STATE_FAILED)
			begin(c, i, false);

	for (unsigned i = 0; i < CLIENTS; i++)
		for (unsigned j = 0; j < VIEWS && !c->stopped; j++) {
			const struct view *v = &s->clients[i]->view[j];

			if (v->used && v->unfilled && same_tensor(&s->models[v->model], v->handle))
				begin(c, v->model, false);
		}
}

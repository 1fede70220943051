/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/streams.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "tests/sim/client.h"
#include "tests/sim/copies.h"
#include "tests/sim/losses.h"

void streams_open(struct client *c)
{
	c->fences = calloc(FENCES, sizeof(*c->fences));
	c->streams = calloc(STREAMS, sizeof(*c->streams));
	c->deferred = calloc(STREAMS, sizeof(*c->deferred));
	ASSERT(c->fences != NULL && c->streams != NULL && c->deferred != NULL);
}

void streams_close(struct client *c)
{
	free(c->fences);
	free(c->streams);
	free(c->deferred);
}

static void trace(struct client *c, const struct model *m, const char *what)
{
	log_trace(CLIENT, "tensor %u: client %d %s, word0 %llx, slot %llx", m->handle.index, c->pid,
		  what, (unsigned long long)model_word0(c->stepper, m),
		  (unsigned long long)atomic_load(&c->pins[m->handle.index]));
}

/* ---- acquire_on ---- */

void streams_enter(struct client *c, unsigned model, const struct want *w)
{
	struct view *v = free_view(c);
	struct model *m = &c->stepper->models[model];
	bool was_fuzzy = m->fuzzy;

	trace(c, m, "pins");
	engine_used(c->stepper->world.engine, c->holder, m->handle.index, w->place, w->access,
		    c->stepper->world.now_ns);
	client_map(c, m);
	if (w->access & ACCESS_DISCARD) {
		/* The old bytes are given up now, the new ones come when the stream gets here. */
		copies_keep(c->stepper, m);
		if (word0_flags(model_word0(c->stepper, m)) & FLAG_UNFILLED)
			atomic_fetch_or(&c->pins[m->handle.index], PIN_FILLED);
		m->fuzzy = true;
	}
	if (v == NULL) {
		client_unpin(c, m->handle, w->access);
		return;
	}
	*v = (struct view){ .used = true,
			    .model = model,
			    .handle = m->handle,
			    .place = w->place,
			    .access = w->access,
			    .word1 = model_word1(c->stepper, m),
			    .token = w->token,
			    .arriving = true,
			    .was_fuzzy = was_fuzzy,
			    .writes = m->writes };
}

/* What could not be brought is 0xff, and what was there before comes back. */
static void view_failed(struct client *c, struct view *v, struct model *m)
{
	const struct fence *f = &c->fences[fence_token_index(v->token)];
	const char *at = model_address(c->stepper, m);

	v->failed = true;
	if (losses_front(c->stepper, m))
		return; /* it came, but where it came to is gone; or it did not */
	ASSERT(atomic_load(&f->failed_at) >= fence_token_value(v->token));
	ASSERT(f->result < 0 && f->index != 0);
	for (uint64_t i = 0; i < m->bytes && !c->stepper->trouble->mapped_faults; i++)
		ASSERT((unsigned char)at[i] == 0xff);
	if ((v->access & ACCESS_DISCARD) && m->writes == v->writes)
		m->fuzzy = v->was_fuzzy;
	c->stepper->marks++;
}

/* Its fence has passed. */
static void arrive(struct client *c, struct view *v)
{
	struct model *m = &c->stepper->models[v->model];
	uint64_t word0 = model_word0(c->stepper, m);

	v->arriving = false;
	trace(c, m, "arrives");
	if (!same_tensor(m, v->handle)) {
		v->failed = true; /* destroyed: the oracle knows no bytes of it */
		return;
	}
	ASSERT(word0_place(word0) == v->place);
	if (word0_state(word0) == STATE_FAILED) {
		view_failed(c, v, m);
		return;
	}
	ASSERT(word0_state(word0) == STATE_RESIDENT);
	if (v->access & ACCESS_DISCARD) {
		model_scribble(c->stepper, m);
		losses_revived(c->stepper, m);
	}
	model_verify(c->stepper, m);
	c->stepper->hits++;
}

static void look_at_fences(struct client *c)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		struct view *v = &c->view[i];

		if (v->used && v->arriving && client_fence_passed(c, v->token))
			arrive(c, v);
	}
}

void streams_use_up(struct client *c)
{
	struct stepper *s = c->stepper;
	struct model *m = NULL;
	uint32_t id;
	struct want *w = free_want(c, &id);
	unsigned model = 0;

	for (unsigned i = 0; i < MODELS && m == NULL; i++) {
		if (!s->models[i].live ||
		    word0_state(model_word0(s, &s->models[i])) != STATE_FILLING)
			continue;
		m = &s->models[i];
		model = i;
	}
	if (c->stopped || w == NULL || m == NULL ||
	    word0_place(model_word0(s, m)) == PROTOCOL_PLACE_HOST)
		return;
	for (unsigned i = 0; i <= FENCES; i++) {
		*w = (struct want){ .used = true, .acquire = true, .on = true, .n = 1 };
		w->model[0] = model;
		w->handle[0] = m->handle;
		w->place = word0_place(model_word0(s, m));
		w->access = ACCESS_READ;
		engine_acquire_on(s->world.engine, c->holder, id, w->handle, 1, w->place, w->access,
				  ENGINE_NEVER, s->world.now_ns);
		if (!w->done)
			return;
	}
	ASSERT(!"more fences than there are");
}

/* ---- release_on ---- */

static void defer(struct client *c, unsigned line, struct deferred_entry x)
{
	struct deferred_ring *ring = &c->deferred[line * 7];
	uint32_t tail = atomic_load(&ring->tail);

	ring->entries[tail % DEFERRED_ENTRIES] = x;
	atomic_store(&ring->tail, tail + 1);
}

static uint32_t room(const struct client *c, unsigned line)
{
	const struct deferred_ring *ring = &c->deferred[line * 7];

	return DEFERRED_ENTRIES - (atomic_load(&ring->tail) - atomic_load(&ring->head));
}

bool streams_release(struct client *c, struct view *v)
{
	unsigned line = (unsigned)below(c->stepper, LINES);

	if (room(c, line) == 0)
		return false;
	v->deferred = true;
	v->line = line;
	v->value = ++c->last[line];
	defer(c, line, (struct deferred_entry){ v->handle.index, v->access, v->value });
	/* Entries of tensor 0, which nobody can pin, so that rings go round. */
	for (uint64_t n = below(c->stepper, 8) ? 0 : below(c->stepper, room(c, line) + 1); n > 0;
	     n--)
		defer(c, line, (struct deferred_entry){ 0, ACCESS_READ, v->value });
	return true;
}

/* The stream's work with the view is done. */
static void end_view(struct client *c, struct view *v)
{
	struct model *m = &c->stepper->models[v->model];

	trace(c, m, "is done");
	if (same_tensor(m, v->handle) && !v->failed) {
		model_verify(c->stepper, m);
		if ((v->access & ACCESS_WRITE) && below(c->stepper, 2))
			model_scribble(c->stepper, m);
	}
	v->used = false;
}

static struct view *next_on(struct client *c, unsigned line, uint64_t value)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		struct view *v = &c->view[i];

		if (v->used && v->deferred && v->line == line && v->value == value)
			return v;
	}
	ASSERT(!"every value is that of a view");
}

void streams_step(struct client *c)
{
	unsigned line = (unsigned)below(c->stepper, LINES);
	_Atomic uint64_t *word = &c->streams[line * 7].value;
	struct view *v;

	look_at_fences(c);
	if (below(c->stepper, 4) == 0 || atomic_load(word) == c->last[line])
		return;
	v = next_on(c, line, atomic_load(word) + 1);
	if (v->arriving)
		return;
	end_view(c, v);
	atomic_store(word, v->value);
	if (below(c->stepper, 8) == 0)
		engine_deferred(c->stepper->world.engine, c->holder, c->stepper->world.now_ns);
}

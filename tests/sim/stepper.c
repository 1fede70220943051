/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/stepper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "tests/sim/client.h"
#include "tests/sim/copies.h"
#include "tests/sim/flicker.h"
#include "tests/sim/losses.h"
#include "tests/sim/oracle.h"
#include "tests/sim/plan.h"
#include "tests/sim/streams.h"

#define DRAIN_ROUNDS 100000u

static const uint64_t sizes[] = { 0,    1,    3,     511,   512,   513,   4095,   4096,
				  4097, 9999, 16384, 16385, 40000, 65536, 100001, 600000 };

/* One in four stops there, and goes on when he is to release it. */
static bool is_stopped_before_filled(struct stepper *s, const struct model *m, uint8_t access)
{
	return (access & ACCESS_DISCARD) != 0 &&
	       (word0_flags(model_word0(s, m)) & FLAG_UNFILLED) != 0 && below(s, 4) == 0;
}

/* A discarding writer writes at once, or is stopped before that; everybody else finds what the
 * oracle knows. */
static void enter_view(struct client *c, unsigned model, uint8_t place, uint8_t access)
{
	struct view *v = free_view(c);
	struct model *m = &c->stepper->models[model];
	bool stopped = v != NULL && is_stopped_before_filled(c->stepper, m, access);

	log_trace(CLIENT, "tensor %u: client %d in place %u for %u, word0 %llx, slot %llx",
		  m->handle.index, c->pid, place, access,
		  (unsigned long long)model_word0(c->stepper, m),
		  (unsigned long long)atomic_load(&c->pins[m->handle.index]));
	client_map(c, m);
	if ((access & ACCESS_DISCARD) && !stopped)
		client_fill(c, m);
	if (!stopped)
		model_verify(c->stepper, m);
	c->stepper->hits++;
	engine_used(c->stepper->world.engine, c->holder, m->handle.index, place, access,
		    c->stepper->world.now_ns);
	if (v == NULL)
		client_unpin(c, m->handle, access);
	else
		*v = (struct view){ .used = true,
				    .model = model,
				    .handle = m->handle,
				    .place = place,
				    .access = access,
				    .word1 = model_word1(c->stepper, m),
				    .unfilled = stopped };
}

/* Goes on from there. */
static void fill_view(struct client *c, struct view *v)
{
	struct model *m = &c->stepper->models[v->model];

	if (v->unfilled && same_tensor(m, v->handle))
		client_fill(c, m);
	v->unfilled = false;
}

static void pin_all(struct client *c, const struct want *w)
{
	size_t n = 0;

	while (n < w->n && same_tensor(&c->stepper->models[w->model[n]], w->handle[n]) &&
	       client_try_pin_on(c, &c->stepper->models[w->model[n]], w->place, w->access,
				 w->token))
		n++;
	if (n == w->n) {
		for (size_t i = 0; i < n; i++)
			if (w->token != 0)
				streams_enter(c, w->model[i], w);
			else
				enter_view(c, w->model[i], w->place, w->access);
		return;
	}
	while (n-- > 0)
		client_unpin(c, w->handle[n], w->access);
}

/* ---- completions ---- */

static void on_complete(void *ctx, struct holder *holder, uint32_t request, int result,
			uint64_t value, const char *text)
{
	struct client *c = engine_holder_user(holder);
	struct want *w = &c->want[request];

	ASSERT(request < REQUESTS && w->used && !w->done && !c->stopped);
	ASSERT(value == 0 || (w->on && result == 0));
	ASSERT(result <= 0 && (result == 0) == (text[0] == '\0'));
	ASSERT(result != -EDQUOT || c->stepper->trouble->shape.quota_count > 0);
	ASSERT(result != -EIO || c->stepper->trouble->faults ||
	       c->stepper->trouble->mapped_faults || c->stepper->trouble->losses);
	ASSERT(result != -ENOMEM || c->stepper->trouble->memory.no_memory > 0);
	c->stepper->broken += result == -EIO;
	losses_check_answer(c->stepper, w, result, text);
	c->stepper->completions++;
	c->stepper->errors += result < 0;
	if (w->window != NULL)
		copies_done(c, w, result);
	c->stepper->grants += value != 0;
	w->token = value;
	w->done = w->acquire && result == 0;
	w->used = w->done;
}

/* ---- actions ---- */

static uint8_t any_place(struct stepper *s)
{
	unsigned gpus = s->world.shape.hbm;

	return gpus == 0 || below(s, 2) ? PROTOCOL_PLACE_HOST : (uint8_t)below(s, gpus);
}

/* Where dram is to be filled to the last granule, small ones are those that every gap takes: of
 * larger ones a part of a page each may be out of use (docs/engine.md). */
static uint64_t any_size(struct stepper *s)
{
	if (s->trouble->crowded)
		return below(s, 6) ? GRANULE * (1 + below(s, 16)) - below(s, 2)
				   : below(s, GRANULE_SMALL + 1);
	return sizes[below(s, ARRAY_SIZE(sizes))];
}

static void do_create(struct stepper *s, struct client *c)
{
	unsigned slot = (unsigned)below(s, s->trouble->models ? s->trouble->models : MODELS);
	struct model *m = &s->models[slot];
	struct engine_spec spec = { .class_ = (uint8_t)below(s, 5), .ndim = 1 };
	struct err err = ERR_INIT;
	char name[32];

	if (m->live)
		return;
	*m = (struct model){ .owner = c->name_space, .maker = c->holder, .bytes = any_size(s) };
	spec.shape[0] = m->bytes;
	m->named = below(s, 2) == 0;
	m->zoned = s->trouble->shape.zone && below(s, 2);
	spec.flags = m->zoned * SPEC_DEVICE_COPY;
	if (m->named) {
		spec.name_bytes = (size_t)snprintf(name, sizeof(name), "t%llu",
						   (unsigned long long)s->names++);
		spec.name = name;
	}
	if (engine_create_tensors(s->world.engine, c->holder, &spec, 1, &m->handle, s->world.now_ns,
				  &err) < 0) {
		ASSERT(err.code == -ENOSPC || err.code == -EAGAIN ||
		       (err.code == -ENOMEM && s->trouble->memory.no_memory > 0) ||
		       (err.code == -EDQUOT && s->trouble->shape.quota_count > 0));
		return;
	}
	m->expected = calloc(1, m->bytes + 1);
	m->live = true;
}

static void forget(struct model *m)
{
	free(m->expected);
	m->expected = NULL;
	m->live = false;
}

static void do_destroy(struct stepper *s, struct client *c)
{
	unsigned i;
	struct model *m = any_live(s, &i);
	struct err err = ERR_INIT;
	int rc;

	if (m == NULL)
		return;
	rc = engine_destroy_tensors(s->world.engine, c->holder, &m->handle, 1, s->world.now_ns,
				    &err);
	ASSERT(rc == (m->owner == c->name_space ? 0 : -EPERM));
	if (rc == 0)
		forget(m);
}

static void do_acquire(struct stepper *s, struct client *c)
{
	static const uint8_t accesses[] = { ACCESS_READ, ACCESS_READ, ACCESS_READ | ACCESS_WRITE,
					    ACCESS_WRITE, ACCESS_WRITE | ACCESS_DISCARD };
	uint64_t timeouts[] = { 0, 5 * NS_PER_MS, 100 * NS_PER_MS, 0 };
	uint64_t timeout = timeouts[below(s, 4)];
	uint32_t id;
	struct want *w = free_want(c, &id);

	if (w == NULL)
		return;
	*w = (struct want){ .acquire = true };
	w->n = 1 + (below(s, 4) == 0) * below(s, BATCH);
	w->place = any_place(s);
	w->access = accesses[below(s, ARRAY_SIZE(accesses))];
	if (s->trouble->discards && below(s, 2))
		w->access = ACCESS_WRITE | ACCESS_DISCARD;
	for (size_t i = 0; i < w->n; i++) {
		struct model *m = any_live(s, &w->model[i]);

		if (m == NULL)
			return;
		w->handle[i] = m->handle;
	}
	w->used = true;
	if (w->n == 1 && client_try_pin(c, &s->models[w->model[0]], w->place, w->access)) {
		w->used = false;
		enter_view(c, w->model[0], w->place, w->access);
		return;
	}
	if (timeout == 0 && below(s, 4))
		timeout = ENGINE_NEVER;
	else if (timeout != 0)
		timeout += s->world.now_ns;
	w->on = w->place != PROTOCOL_PLACE_HOST && below(s, 2);
	(w->on ? engine_acquire_on : engine_acquire)(s->world.engine, c->holder, id, w->handle,
						     w->n, w->place, w->access, timeout,
						     s->world.now_ns);
}

/* What was answered is pinned, some of it late. */
static void do_pin(struct stepper *s, struct client *c)
{
	for (unsigned i = 0; i < REQUESTS; i++) {
		if (!c->want[i].done || below(s, 8) == 0)
			continue;
		c->want[i].done = c->want[i].used = false;
		pin_all(c, &c->want[i]);
	}
}

static void do_release(struct stepper *s, struct client *c)
{
	struct view *v = &c->view[below(s, VIEWS)];
	struct model *m = &s->models[v->model];

	if (!v->used || v->deferred)
		return;
	if (v->unfilled) {
		fill_view(c, v);
		return;
	}
	if (below(s, 2) && streams_release(c, v))
		return;
	if (same_tensor(m, v->handle) && !v->arriving && !v->failed) {
		model_verify(s, m);
		if ((v->access & ACCESS_WRITE) && below(s, 2))
			model_scribble(s, m);
	}
	v->used = false;
	client_unpin(c, v->handle, v->access);
}

static void do_flush(struct stepper *s, struct client *c)
{
	uint32_t id;
	struct want *w = free_want(c, &id);
	unsigned i;
	struct model *m = any_live(s, &i);

	if (w == NULL || m == NULL)
		return;
	*w = (struct want){ .used = true };
	engine_flush(s->world.engine, c->holder, id, &m->handle, below(s, 3) ? 1 : 0,
		     s->world.now_ns);
}

static void do_hint(struct stepper *s, struct client *c)
{
	struct err err = ERR_INIT;
	unsigned i;
	struct model *m = any_live(s, &i);

	if (m == NULL)
		return;
	switch (below(s, 4)) {
	case 0:
		engine_evict(s->world.engine, c->holder, &m->handle, 1, s->world.now_ns, &err);
		break;
	case 1:
		engine_step(s->world.engine, c->holder, s->world.now_ns);
		break;
	default:
		engine_prefetch(s->world.engine, c->holder, &m->handle, 1, any_place(s),
				s->world.now_ns, &err);
	}
}

static void do_cancel(struct stepper *s, struct client *c)
{
	uint32_t id = (uint32_t)below(s, REQUESTS);

	if (c->want[id].used && !c->want[id].done)
		engine_cancel(s->world.engine, c->holder, id, s->world.now_ns);
}

static void do_physical(struct stepper *s)
{
	if (s->trouble->faults)
		s->world.physical_bytes = below(s, WORLD_SLABS + 1) * WORLD_HBM_SLAB;
	if (below(s, 2))
		engine_trim(s->world.engine);
}

/* ---- the run ---- */

static struct {
	uint64_t seed, step;
	const char *policy, *command;
	struct engine *engine;
} where;

static void say_where(void *ctx)
{
	fprintf(stderr, "sim: failed at step %llu; again with SIM_SEED=%llu SIM_STEPS=%llu",
		(unsigned long long)where.step, (unsigned long long)where.seed,
		(unsigned long long)where.step + 1);
	if (where.command != NULL)
		fprintf(stderr, " %s\n", where.command);
	else
		fprintf(stderr, " SIM_POLICY=%s\n", where.policy);
	if (where.engine != NULL)
		engine_dump(where.engine, STDERR_FILENO);
}

static void do_kill(struct stepper *s, unsigned i)
{
	struct client *c = s->clients[i];

	if (!c->stopped && below(s, 2)) {
		engine_holder_stop(s->world.engine, c->holder);
		client_stop(s, c);
		return;
	}
	/* An unnamed tensor dies with the connection that made it. */
	for (unsigned j = 0; j < MODELS; j++)
		if (s->models[j].live && !s->models[j].named && s->models[j].maker == c->holder)
			forget(&s->models[j]);
	client_kill(s, c);
	s->clients[i] = client_new(s, i);
}

/* What happens next, of a thousand: see do_something(). */
static uint64_t any_action(struct stepper *s)
{
	static const uint16_t first[STEPPER_FAVOURS + 1] = { 0,   60,  75,  300, 450, 500, 515,
							     560, 577, 587, 593, 700, 1000 };
	unsigned favour = s->trouble->favour;

	if (favour == 0 || below(s, 3) > 0)
		return below(s, 1000);
	return first[favour - 1] + below(s, first[favour] - first[favour - 1]);
}

static void do_something(struct stepper *s)
{
	unsigned i = (unsigned)below(s, CLIENTS);
	struct client *c = s->clients[i];
	uint64_t dice = any_action(s);

	/* A stopped one asks for nothing, but what it has begun goes on. */
	if (c->stopped && (dice < 300 || (dice >= 450 && dice < 577)))
		dice = dice < 20 ? 576 : 300 + below(s, 150);
	streams_step(c);
	if (s->shaken > 0 && s->shaken-- % 4 == 0)
		dice = c->stopped || below(s, 2) ? 576 : 60;
	if (s->trouble->crowded && !c->stopped && below(s, 8) == 0)
		do_create(s, c);
	else if (dice < 60)
		do_create(s, c);
	else if (dice < 75)
		do_destroy(s, c);
	else if (dice < 300)
		do_acquire(s, c);
	else if (dice < 450)
		do_release(s, c);
	else if (dice < 500)
		copies_begin(c);
	else if (dice < 515)
		do_flush(s, c);
	else if (dice < 560)
		do_hint(s, c);
	else if (dice < 575)
		do_cancel(s, c);
	else if (dice < 577)
		do_kill(s, i);
	else if (dice < 587)
		client_unmap_some(c, false);
	else if (dice < 590)
		do_physical(s);
	else if (dice < 592)
		world_turn(&s->world, 6 * NS_PER_S); /* what stands empty is given back */
	else if (dice < 593)
		streams_use_up(c);
	else if (dice < 700)
		world_turn(&s->world, below(s, 3 * NS_PER_MS));
	else
		world_finish_one(&s->world);
	do_pin(s, s->clients[i]); /* not c: it may have been killed */
	engine_check(s->world.engine);
	oracle_look(s);
}

static bool idle(const struct stepper *s)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		for (unsigned j = 0; j < REQUESTS; j++)
			if (s->clients[i]->want[j].used)
				return false;
	for (unsigned i = 0; i < CLIENTS; i++)
		for (unsigned j = 0; j < VIEWS; j++)
			if (s->clients[i]->view[j].used)
				return false;
	return s->world.flying == 0;
}

/* All but what those hold who are stopped, or that too. */
static void release_all(struct client *c, bool stopped_too)
{
	for (unsigned j = 0; j < VIEWS; j++) {
		struct view *v = &c->view[j];

		if (!v->used || v->deferred || (v->unfilled && !stopped_too))
			continue;
		fill_view(c, v);
		v->used = false;
		client_unpin(c, v->handle, v->access);
	}
	for (unsigned i = 0; i < 10; i++)
		streams_step(c);
}

static void drain_some(struct stepper *s, bool stopped_too)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		do_pin(s, s->clients[i]);
		client_unmap_some(s->clients[i], true);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		release_all(s->clients[i], stopped_too);
	losses_look(s); /* before a device can say so, and not after */
	if (!world_finish_one(&s->world))
		world_turn(&s->world, NS_PER_MS);
}

/* Nobody holds anything and no device fails: every request must be answered, within bounds. */
static void drain(struct stepper *s)
{
	unsigned rounds = 0;

	for (; !idle(s) && rounds < DRAIN_ROUNDS; rounds++)
		drain_some(s, true);
	ASSERT(rounds < DRAIN_ROUNDS); /* requests that nobody can be in the way of are answered */
}

/* Nor can who is stopped before he says `filled`, or while he pins what has failed, be in the way
 * of copies of what is below. */
static void drain_copies(struct stepper *s)
{
	unsigned rounds = 0;

	for (unsigned i = 0; i < CLIENTS; i++)
		copies_below(s->clients[i]);
	for (; copies_wait(s) && rounds < DRAIN_ROUNDS; rounds++)
		drain_some(s, false);
	ASSERT(rounds < DRAIN_ROUNDS);
}

/* Every tensor that lives is read back whole, by whatever way there is. */
static void read_back(struct stepper *s)
{
	struct client *c = s->clients[0];

	for (unsigned i = 0; i < MODELS; i++) {
		struct model *m = &s->models[i];
		uint64_t before = s->hits, excused = s->lost + (s->world.rotten ? s->broken : 0);

		if (!m->live)
			continue;
		if (!(word0_flags(model_word0(s, m)) & FLAG_LARGE)) {
			c->want[0] = (struct want){ .used = true,
						    .acquire = true,
						    .n = 1,
						    .model = { i },
						    .handle = { m->handle },
						    .place = PROTOCOL_PLACE_HOST,
						    .access = ACCESS_READ };
			engine_acquire(s->world.engine, c->holder, 0, &m->handle, 1,
				       PROTOCOL_PLACE_HOST, ACCESS_READ, ENGINE_NEVER,
				       s->world.now_ns);
			drain(s);
			ASSERT(s->hits == before + 1 ||
			       s->lost + (s->world.rotten ? s->broken : 0) > excused);
			continue;
		}
		for (uint64_t at = 0; at < m->bytes; at += WORLD_BLOCK) {
			c->want[0] = (struct want){ .used = true,
						    .n = 1,
						    .model = { i },
						    .handle = { m->handle },
						    .offset = at,
						    .bytes = MIN(WORLD_BLOCK, m->bytes - at) };
			c->want[0].window = malloc(WORLD_BLOCK);
			engine_copy(s->world.engine, c->holder, 0, m->handle, false, at,
				    c->want[0].bytes, c->want[0].window, s->world.now_ns);
			drain(s);
		}
	}
}

static void finish(struct stepper *s)
{
	world_heal(&s->world);
	drain_copies(s);
	drain(s);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (s->clients[i]->stopped)
			do_kill(s, i);
	world_turn(&s->world, 2 * NS_PER_S); /* what backed off is tried again */
	read_back(s);
	for (unsigned i = 0; i < MODELS; i++)
		if (s->models[i].live)
			forget(&s->models[i]);
	for (unsigned i = 0; i < CLIENTS; i++)
		client_kill(s, s->clients[i]);
	for (unsigned i = 0; i < 1000; i++)
		if (!world_finish_one(&s->world))
			world_turn(&s->world, 100 * NS_PER_MS);
	engine_check(s->world.engine);
	/* After the last connection and the linger nothing is left anywhere. */
	for (unsigned k = 0; k < TIER_KINDS; k++)
		ASSERT(s->world.stats->tier[k].reserved_bytes == 0);
	if (s->trouble->shape.slabs) {
		ASSERT(s->world.stats->tier[TIER_KIND_HBM].backed_bytes == 0);
		ASSERT(s->world.stats->tier[TIER_KIND_DRAM].backed_bytes == WORLD_DRAM);
	}
	ASSERT(s->world.stats->tensors == 0 && s->world.stats->committed_bytes == 0);
}

void stepper_run(uint64_t seed, uint64_t steps, const struct policy_ops *policy,
		 const struct stepper_trouble *trouble)
{
	struct flicker *flicker = NULL;
	struct stepper *s = calloc(1, sizeof(*s));
	struct engine_hooks hooks = { .ctx = &s->world,
				      .submit = world_submit,
				      .complete = on_complete,
				      .holder_gone = client_gone,
				      .reached = coverage_reached,
				      .slab_unmap = client_slab_unmap };

	where.seed = seed;
	where.policy = policy != NULL ? policy->name : "mixed";
	where.command = trouble->command;
	where.engine = NULL;
	where.step = 0;
	world_open(&s->world, seed, trouble->shape, policy, &hooks);
	where.engine = s->world.engine;
	check_set_panic_hook(say_where, NULL);
	s->trouble = trouble;
	plan_faults(trouble, &s->world);
	for (unsigned i = 0; i < CLIENTS; i++)
		s->clients[i] = client_new(s, i);
	if (trouble->flicker)
		flicker = flicker_start(s->world.engine);
	losses_plan(s);
	for (uint64_t step = 0; step < steps; step++) {
		where.step = step; /* the last one still while what is left is answered */
		losses_step(s, step);
		do_something(s);
	}
	if (flicker != NULL)
		flicker_stop(flicker, s->world.engine, s->world.now_ns);
	finish(s);
	free(flicker);
	printf("sim: seed %llu, %s: %llu xfers, %llu hits, %llu answers, %llu of them errors, "
	       "%llu early, %llu views that failed, %llu times lost\n",
	       (unsigned long long)seed, where.policy, (unsigned long long)s->world.finished,
	       (unsigned long long)s->hits, (unsigned long long)s->completions,
	       (unsigned long long)s->errors, (unsigned long long)s->grants,
	       (unsigned long long)s->marks, (unsigned long long)s->lost);
	world_close(&s->world);
	free(s);
}

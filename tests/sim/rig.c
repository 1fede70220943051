/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "libclient/protocol/pin.h"

static void on_complete(void *ctx, struct holder *holder, uint32_t request, int result,
			uint64_t value, const char *text)
{
	struct rig_client *c = engine_holder_user(holder);

	ASSERT(request < RIG_REQUESTS && !c->answered[request]);
	c->answered[request] = true;
	c->result[request] = result;
	c->value[request] = value;
	snprintf(c->text[request], sizeof(c->text[request]), "%s", text);
}

static void on_slab_unmap(void *ctx, struct holder *holder, unsigned device, uint64_t offset)
{
	struct rig_client *c = engine_holder_user(holder);

	c->unmaps++;
	c->unmap_offset = offset;
}

static void on_misbehaves(void *ctx, struct holder *holder, const char *text)
{
	struct rig_client *c = engine_holder_user(holder);

	c->misbehaved++;
}

static void on_excess(void *ctx, struct holder *holder, const char *text)
{
	struct rig_client *c = engine_holder_user(holder);

	c->excesses++;
	snprintf(c->excess, sizeof(c->excess), "%s", text);
}

static void on_holder_gone(void *ctx, struct holder *holder)
{
	struct rig_client *c = engine_holder_user(holder);

	if (c != NULL)
		c->gone = true;
}

struct rig *rig_open_by(struct world_shape shape, const struct policy_ops *policy, uint64_t seed)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct engine_hooks hooks = { .ctx = &r->world,
				      .submit = world_submit,
				      .complete = on_complete,
				      .holder_gone = on_holder_gone,
				      .slab_unmap = on_slab_unmap,
				      .misbehaves = on_misbehaves,
				      .excess = on_excess };

	world_open(&r->world, seed, shape, policy, &hooks);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		rig_rejoin(r, i);
	return r;
}

struct rig *rig_open(struct world_shape shape)
{
	return rig_open_by(shape, policy_all[0], 1);
}

void rig_rejoin_as(struct rig *r, unsigned client, char name_space)
{
	struct rig_client *c = &r->client[client];
	struct holder_tables tables = { .pins = c->pins,
					.fences = c->fences,
					.streams = c->streams,
					.deferred = c->deferred,
					.logs = c->logs,
					.log_count = RIG_LOGS };
	struct err err = ERR_INIT;

	memset(c->fences, 0, sizeof(c->fences));
	memset(c->streams, 0, sizeof(c->streams));
	memset(c->deferred, 0, sizeof(c->deferred));
	memset(c->logs, 0, sizeof(c->logs));
	c->gone = false;
	ASSERT(engine_holder_add(r->world.engine, &name_space, 1, &tables, 100 + (int)client, c,
				 &c->holder, &err) == 0);
}

void rig_rejoin(struct rig *r, unsigned client)
{
	rig_rejoin_as(r, client, (char)('a' + (r->world.shape.quota_count > 0 ? client : 0)));
}

void rig_threads(struct rig *r, unsigned client, unsigned threads)
{
	for (unsigned i = 0; i < RIG_LOGS; i++)
		atomic_store(&r->client[client].logs[i].owner, i < threads);
}

void rig_settle(struct rig *r, unsigned ms)
{
	do {
		while (world_finish_one(&r->world))
			engine_check(r->world.engine);
		world_turn(&r->world, NS_PER_MS);
		engine_check(r->world.engine);
	} while (r->world.flying > 0 || ms-- > 0);
}

void rig_close(struct rig *r)
{
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		if (r->client[i].holder != NULL)
			engine_holder_die(r->world.engine, r->client[i].holder, r->world.now_ns);
	rig_settle(r, 1000);
	for (unsigned k = 0; k < TIER_KINDS; k++)
		ASSERT(r->world.stats->tier[k].reserved_bytes == 0);
	world_close(&r->world);
	free(r);
}

struct wire_handle rig_create(struct rig *r, unsigned client, uint64_t bytes)
{
	struct engine_spec spec = { .ndim = 1, .shape = { bytes } };
	struct wire_handle t;
	struct err err = ERR_INIT;

	int rc;

	while ((rc = engine_create_tensors(r->world.engine, r->client[client].holder, &spec, 1, &t,
					   r->world.now_ns, &err)) == -EAGAIN)
		world_turn(&r->world, NS_PER_MS);
	ASSERT(rc == 0);
	return t;
}

struct wire_handle rig_create_written(struct rig *r, unsigned client, uint64_t bytes, uint8_t place,
				      char c)
{
	struct wire_handle t = rig_create(r, client, bytes);

	memset(rig_pin(r, client, t, place, ACCESS_WRITE), c, bytes);
	rig_unpin(r, client, t, ACCESS_WRITE);
	return t;
}

struct wire_handle rig_create_filled(struct rig *r, unsigned client, char c)
{
	return rig_create_written(r, client, RIG_FILLED, PROTOCOL_PLACE_HOST, c);
}

void rig_destroy(struct rig *r, unsigned client, struct wire_handle t)
{
	struct err err = ERR_INIT;

	ASSERT(engine_destroy_tensors(r->world.engine, r->client[client].holder, &t, 1,
				      r->world.now_ns, &err) == 0);
	engine_check(r->world.engine);
}

void rig_hint(struct rig *r, unsigned client, struct wire_handle t, uint8_t place)
{
	struct err err = ERR_INIT;

	ASSERT(engine_prefetch(r->world.engine, r->client[client].holder, &t, 1, place,
			       r->world.now_ns, &err) == 0);
	engine_check(r->world.engine);
}

void rig_flush_all(struct rig *r, unsigned client, uint32_t id, const struct wire_handle *t,
		   size_t n)
{
	r->client[client].answered[id] = false;
	engine_flush(r->world.engine, r->client[client].holder, id, t, n, r->world.now_ns);
	engine_check(r->world.engine);
}

int rig_flush(struct rig *r, unsigned client, struct wire_handle t)
{
	rig_flush_all(r, client, 1, &t, 1);
	return rig_wait(r, client, 1, 100);
}

void rig_copy(struct rig *r, unsigned client, uint32_t id, struct wire_handle t, bool in,
	      uint64_t bytes, void *window)
{
	r->client[client].answered[id] = false;
	engine_copy(r->world.engine, r->client[client].holder, id, t, in, 0, bytes, window,
		    r->world.now_ns);
	engine_check(r->world.engine);
}

void rig_acquire_all(struct rig *r, unsigned client, uint32_t id, const struct wire_handle *t,
		     size_t n, uint8_t place, uint8_t access, uint64_t timeout_ns)
{
	struct rig_client *c = &r->client[client];
	uint64_t deadline_ns = timeout_ns;

	if (timeout_ns > 0 && timeout_ns != ENGINE_NEVER)
		deadline_ns = r->world.now_ns + timeout_ns;
	c->answered[id] = false;
	engine_acquire(r->world.engine, c->holder, id, t, n, place, access, deadline_ns,
		       r->world.now_ns);
	engine_check(r->world.engine);
}

void rig_acquire(struct rig *r, unsigned client, uint32_t id, struct wire_handle t, uint8_t place,
		 uint8_t access, uint64_t timeout_ns)
{
	rig_acquire_all(r, client, id, &t, 1, place, access, timeout_ns);
}

int rig_wait(struct rig *r, unsigned client, uint32_t id, unsigned ms)
{
	struct rig_client *c = &r->client[client];

	while (!c->answered[id] && (r->world.flying > 0 || ms-- > 0)) {
		if (!world_finish_one(&r->world))
			world_turn(&r->world, NS_PER_MS);
		engine_check(r->world.engine);
	}
	return c->answered[id] ? c->result[id] : RIG_UNANSWERED;
}

uint64_t rig_word0(struct rig *r, struct wire_handle t)
{
	return atomic_load(&r->world.descriptors[t.index].word0);
}

void rig_use(struct rig *r, unsigned client, const struct wire_handle *t, size_t n, uint8_t place,
	     uint8_t access)
{
	struct rig_client *c = &r->client[client];

	rig_acquire_all(r, client, 1, t, n, place, access, ENGINE_NEVER);
	ASSERT(rig_wait(r, client, 1, 9000) == 0);
	for (size_t i = 0; i < n; i++) {
		if ((access & ACCESS_WRITE) != 0)
			atomic_fetch_or(&c->pins[t[i].index], PIN_WRITTEN);
		engine_used(r->world.engine, c->holder, t[i].index, place, access, r->world.now_ns);
	}
}

static uint64_t counts(uint8_t access)
{
	return PIN_ONE + ((access & ACCESS_WRITE) ? PIN_WRITE_ONE : 0);
}

char *rig_pin(struct rig *r, unsigned client, struct wire_handle t, uint8_t place, uint8_t access)
{
	pin_slot *slot = &r->client[client].pins[t.index];
	uint64_t word1;

	rig_acquire(r, client, RIG_REQUESTS - 1, t, place, access, ENGINE_NEVER);
	ASSERT(rig_wait(r, client, RIG_REQUESTS - 1, 1000) == 0);
	atomic_fetch_add(slot, counts(access));
	if (access & ACCESS_WRITE)
		atomic_fetch_or(slot, PIN_WRITTEN);
	if (access & ACCESS_DISCARD)
		atomic_fetch_or(slot, PIN_FILLED);
	ASSERT(word0_state(rig_word0(r, t)) == STATE_RESIDENT);
	ASSERT(word0_place(rig_word0(r, t)) == place);
	engine_used(r->world.engine, r->client[client].holder, t.index, place, access,
		    r->world.now_ns);
	word1 = atomic_load(&r->world.descriptors[t.index].word1);
	return r->world.devices[word1_arena(word1)].memory + word1_offset(word1);
}

void rig_unpin(struct rig *r, unsigned client, struct wire_handle t, uint8_t access)
{
	atomic_fetch_sub(&r->client[client].pins[t.index], counts(access));
}

void rig_hold(struct rig *r, unsigned owner, unsigned client, uint64_t bytes, uint8_t place,
	      struct wire_handle *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		ret[i] = rig_create(r, owner, bytes);
		rig_pin(r, client, ret[i], place, ACCESS_WRITE);
	}
}

void rig_let_go(struct rig *r, unsigned client, const struct wire_handle *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rig_unpin(r, client, t[i], ACCESS_WRITE);
}

void rig_acquire_on(struct rig *r, unsigned client, uint32_t id, const struct wire_handle *t,
		    size_t n, uint8_t place, uint8_t access)
{
	struct rig_client *c = &r->client[client];

	c->answered[id] = false;
	engine_acquire_on(r->world.engine, c->holder, id, t, n, place, access, ENGINE_NEVER,
			  r->world.now_ns);
	engine_check(r->world.engine);
}

bool rig_all_are(const char *at, char byte, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != byte)
			return false;
	return true;
}

char *rig_try(struct rig *r, unsigned client, struct wire_handle t, uint8_t place, uint8_t access)
{
	pin_slot *slot = &r->client[client].pins[t.index];
	uint64_t old, word0, word1;

	ASSERT(pin_raise(slot, access, &old));
	word0 = rig_word0(r, t);
	if ((word0_state(word0) != STATE_RESIDENT && word0_state(word0) != STATE_FILLING) ||
	    word0_place(word0) != place || word0_generation(word0) != t.generation) {
		ASSERT(pin_lower(slot, access, &old));
		return NULL;
	}
	if (access & ACCESS_DISCARD)
		atomic_fetch_or(slot, PIN_FILLED);
	word1 = atomic_load(&r->world.descriptors[t.index].word1);
	return r->world.devices[word1_arena(word1)].memory + word1_offset(word1);
}

void rig_defer(struct rig *r, unsigned client, unsigned stream, struct wire_handle t,
	       uint8_t access, uint64_t value)
{
	struct deferred_ring *ring = &r->client[client].deferred[stream];
	uint32_t tail = atomic_load(&ring->tail);

	ASSERT(tail - atomic_load(&ring->head) < DEFERRED_ENTRIES);
	ring->entries[tail % DEFERRED_ENTRIES] = (struct deferred_entry){ t.index, access, value };
	atomic_store(&ring->tail, tail + 1);
}

void rig_reach(struct rig *r, unsigned client, unsigned stream, uint64_t value)
{
	atomic_store(&r->client[client].streams[stream].value, value);
}

bool rig_passed(struct rig *r, unsigned client, uint64_t token)
{
	const struct fence *f = &r->client[client].fences[fence_token_index(token)];

	return atomic_load(&f->value) >= fence_token_value(token);
}

bool rig_pinned(struct rig *r, unsigned client, struct wire_handle t)
{
	return (atomic_load(&r->client[client].pins[t.index]) & PIN_ANY) != 0;
}

bool rig_stands_at(struct rig *r, struct wire_handle t, uint8_t place)
{
	uint64_t word0 = rig_word0(r, t);

	return word0_state(word0) == STATE_RESIDENT && word0_place(word0) == place;
}

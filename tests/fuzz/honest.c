/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/honest.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "libclient/protocol/pin.h"

#define WAIT_TURNS       20000u
#define HONEST_BYTES_MAX 24576u /* of a tensor */
#define SHIFTS           239u

/* The one that lives, for the calls below. */
static struct honest *alive;

/* ---- what the others may not ---------------------------------------------------------------- */

static bool is_mine(const struct wire_handle *t, size_t n)
{
	for (size_t i = 0; i < n && alive != NULL; i++)
		for (unsigned k = 0; k < HONEST_TENSORS; k++)
			if (alive->tensor[k].handle.index == t[i].index)
				return true;
	return false;
}

typedef void acquire_fn(struct engine *e, struct holder *h, uint32_t request,
			const struct wire_handle *t, size_t n, uint8_t place, uint8_t access,
			uint64_t deadline_ns, uint64_t now_ns);
typedef void copy_fn(struct engine *e, struct holder *h, uint32_t request, struct wire_handle t,
		     bool in, uint64_t offset, uint64_t bytes, void *window, uint64_t now_ns);
acquire_fn __real_engine_acquire, __wrap_engine_acquire;
acquire_fn __real_engine_acquire_on, __wrap_engine_acquire_on;
copy_fn __real_engine_copy, __wrap_engine_copy;

void __wrap_engine_acquire(struct engine *e, struct holder *h, uint32_t request,
			   const struct wire_handle *t, size_t n, uint8_t place, uint8_t access,
			   uint64_t deadline_ns, uint64_t now_ns)
{
	if (is_mine(t, n))
		access &= (uint8_t)~ACCESS_DISCARD;
	__real_engine_acquire(e, h, request, t, n, place, access, deadline_ns, now_ns);
}

void __wrap_engine_acquire_on(struct engine *e, struct holder *h, uint32_t request,
			      const struct wire_handle *t, size_t n, uint8_t place, uint8_t access,
			      uint64_t deadline_ns, uint64_t now_ns)
{
	if (is_mine(t, n))
		access &= (uint8_t)~ACCESS_DISCARD;
	__real_engine_acquire_on(e, h, request, t, n, place, access, deadline_ns, now_ns);
}

void __wrap_engine_copy(struct engine *e, struct holder *h, uint32_t request, struct wire_handle t,
			bool in, uint64_t offset, uint64_t bytes, void *window, uint64_t now_ns)
{
	if (in && is_mine(&t, 1))
		t.generation--;
	__real_engine_copy(e, h, request, t, in, offset, bytes, window, now_ns);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* What stands in a tensor: nothing yet, or a piece of one long text, another for each version. */
static const char *text_of(const struct honest_tensor *t)
{
	static char zeros[HONEST_BYTES_MAX], text[HONEST_BYTES_MAX + SHIFTS];

	if (t->version == 0)
		return zeros;
	for (size_t i = 0; text[0] == 0 && i < sizeof(text); i++)
		text[sizeof(text) - 1 - i] = (char)(i * i % 251 + 1);
	return text + (t->handle.index * 13 + t->version) % SHIFTS;
}

static char *bytes_of(const struct honest *h, const struct honest_tensor *t)
{
	const struct world *w = &h->daemon->world;
	uint64_t word1 = atomic_load(&w->descriptors[t->handle.index].word1);

	ASSERT(word1_arena(word1) < w->device_count);
	ASSERT(world_is_backed(w, word1_arena(word1), word1_offset(word1), t->bytes));
	return w->devices[word1_arena(word1)].memory + word1_offset(word1);
}

static uint64_t word0_of(const struct honest *h, const struct honest_tensor *t)
{
	return atomic_load(&h->daemon->world.descriptors[t->handle.index].word0);
}

static void check_bytes(const struct honest *h, const struct honest_tensor *t)
{
	ASSERT(memcmp(bytes_of(h, t), text_of(t), t->bytes) == 0);
}

static void write_bytes(const struct honest *h, struct honest_tensor *t)
{
	t->version += 1 + (t->version == UINT8_MAX);
	memcpy(bytes_of(h, t), text_of(t), t->bytes);
}

/* ---- what it does --------------------------------------------------------------------------- */

static bool stands_at(const struct honest *h, const struct honest_tensor *t, uint8_t place)
{
	uint64_t word0 = word0_of(h, t);

	ASSERT(word0_generation(word0) == t->handle.generation);
	return word0_state(word0) == STATE_RESIDENT && word0_place(word0) == place;
}

/* The try after an answer: it may have gone again. */
static void use(struct honest *h, struct honest_tensor *t)
{
	pin_slot *slot = &h->pins[t->handle.index];
	uint64_t old;

	ASSERT(pin_raise(slot, t->access, &old));
	if (stands_at(h, t, t->place)) {
		check_bytes(h, t);
		if (t->access & ACCESS_WRITE)
			write_bytes(h, t);
	}
	ASSERT(pin_lower(slot, t->access, &old));
}

static void on_answer(void *ctx, uint32_t request, int result, uint64_t value)
{
	struct honest *h = ctx;
	struct honest_tensor *t = &h->tensor[request];

	ASSERT(request < HONEST_TENSORS && t->asked);
	t->asked = false;
	t->result = result;
	ASSERT(result != -ESTALE && result != -EINVAL && result != -EPERM);
	if (result == 0)
		use(h, t);
}

void honest_ask(struct honest *h, unsigned i, uint8_t place, bool write, uint64_t timeout_ns)
{
	struct honest_tensor *t = &h->tensor[i];
	struct world *w = &h->daemon->world;
	uint64_t deadline_ns = timeout_ns == ENGINE_NEVER ? ENGINE_NEVER : w->now_ns + timeout_ns;

	if (t->asked)
		return;
	t->asked = true;
	t->place = place;
	t->access = write ? ACCESS_READ | ACCESS_WRITE : ACCESS_READ;
	engine_acquire(w->engine, h->holder, i, &t->handle, 1, place, t->access, deadline_ns,
		       w->now_ns);
}

static void wait_for_all(struct honest *h)
{
	unsigned asked = 1;

	for (unsigned n = 0; asked > 0; n++) {
		asked = 0;
		for (unsigned i = 0; i < HONEST_TENSORS; i++)
			asked += h->tensor[i].asked;
		ASSERT(n < WAIT_TURNS);
		if (!world_finish_one(&h->daemon->world))
			world_turn(&h->daemon->world, NS_PER_MS);
	}
}

static void make_tensor(struct honest *h, unsigned i)
{
	static const uint64_t sizes[HONEST_TENSORS] = { 4096,  100,  8192,
							12000, 512,  HONEST_BYTES_MAX,
							1,     16384 };
	struct engine_spec spec = { .ndim = 1, .shape = { sizes[i] }, .class_ = i % 5 };
	struct honest_tensor *t = &h->tensor[i];
	struct world *w = &h->daemon->world;
	struct err err = ERR_INIT;

	int rc;

	t->bytes = sizes[i];
	while ((rc = engine_create_tensors(w->engine, h->holder, &spec, 1, &t->handle, w->now_ns,
					   &err)) == -EAGAIN)
		world_turn(w, NS_PER_MS); /* those of a client before are going yet */
	ASSERT(rc == 0);
}

static void pin_first(struct honest *h)
{
	const struct honest_tensor *t = &h->tensor[0];
	uint64_t old;

	ASSERT(pin_raise(&h->pins[t->handle.index], ACCESS_READ, &old));
	ASSERT(stands_at(h, t, PROTOCOL_PLACE_HOST));
	h->pinned_word0 = word0_of(h, t);
	h->pinned_word1 = atomic_load(&h->daemon->world.descriptors[t->handle.index].word1);
}

void honest_join(struct honest *h, struct fuzz_daemon *d)
{
	struct holder_tables tables = { .pins = h->pins };
	struct err err = ERR_INIT;

	memset(h, 0, sizeof(*h));
	h->daemon = d;
	d->complete = on_answer;
	d->complete_ctx = h;
	ASSERT(engine_holder_add(d->world.engine, "honest", 6, &tables, 1, h, &h->holder, &err) ==
	       0);
	d->honest = h->holder;
	for (unsigned i = 0; i < HONEST_TENSORS; i++) {
		make_tensor(h, i);
		honest_ask(h, i, PROTOCOL_PLACE_HOST, true, ENGINE_NEVER);
	}
	wait_for_all(h);
	pin_first(h);
	alive = h;
}

void honest_look(struct honest *h)
{
	const struct world *w = &h->daemon->world;

	for (unsigned i = 0; i < HONEST_TENSORS; i++) {
		const struct honest_tensor *t = &h->tensor[i];
		uint64_t word0 = word0_of(h, t);

		ASSERT(word0_generation(word0) == t->handle.generation);
		if (word0_state(word0) == STATE_RESIDENT)
			check_bytes(h, t);
	}
	ASSERT(word0_of(h, &h->tensor[0]) == h->pinned_word0);
	ASSERT(atomic_load(&w->descriptors[h->tensor[0].handle.index].word1) == h->pinned_word1);
}

void honest_leave(struct honest *h)
{
	struct world *w = &h->daemon->world;

	wait_for_all(h);
	for (unsigned i = 0; i < HONEST_TENSORS; i++)
		honest_ask(h, i, PROTOCOL_PLACE_HOST, false, ENGINE_NEVER);
	wait_for_all(h);
	for (unsigned i = 0; i < HONEST_TENSORS; i++)
		ASSERT(h->tensor[i].result == 0);
	honest_look(h);
	alive = NULL;
	engine_holder_die(w->engine, h->holder, w->now_ns);
}

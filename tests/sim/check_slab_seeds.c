/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that comes and goes in slabs, by seed: whoever can be served is, and no slab goes round in
 * a circle. SIM_SEED repeats one run or is the first of SIM_SEEDS (default 20).
 */
#include "tests/unit/unit.h"

#include "base/compiler.h"
#include "tests/sim/rig.h"

#define SLAB WORLD_HBM_SLAB

/* As many as are admitted, some of more than one slab. */
static unsigned create_some(struct rig *r, unsigned slabs, struct wire_handle *t, uint64_t *bytes,
			    unsigned most)
{
	struct world *w = &r->world;
	struct err err = ERR_INIT;
	unsigned n = 0;

	for (; n < most; n++) {
		struct engine_spec spec = { .ndim = 1 };

		bytes[n] = 1 + world_below(w, world_below(w, 3) ? SLAB : (slabs - 1) * SLAB);
		spec.shape[0] = bytes[n];
		if (engine_create_tensors(w->engine, r->client[0].holder, &spec, 1, &t[n],
					  w->now_ns, &err) < 0)
			break;
	}
	return n;
}

/* A few of those that are not pinned, as many as the rest of the memory has room for. */
static size_t choose_batch(struct rig *r, unsigned slabs, const struct wire_handle *t,
			   const uint64_t *bytes, unsigned count, uint64_t pinned,
			   struct wire_handle *ret)
{
	struct world *w = &r->world;
	uint64_t room = slabs * SLAB - GRANULE; /* the last slab is shorter */
	size_t n = 0;

	for (unsigned i = 0; i < count; i++)
		room -= (pinned >> i & 1) != 0 ? MIN(room, ALIGN_UP(bytes[i], GRANULE)) : 0;
	for (uint64_t tries = 1 + world_below(w, 3); tries > 0; tries--) {
		unsigned i = (unsigned)world_below(w, count);

		if ((pinned >> i & 1) != 0 || ALIGN_UP(bytes[i], GRANULE) > room)
			continue;
		room -= ALIGN_UP(bytes[i], GRANULE);
		ret[n++] = t[i];
	}
	return n;
}

static void ask_for_what_fits(struct rig *r, unsigned slabs)
{
	struct world *w = &r->world;
	struct wire_handle t[12], batch[3];
	uint64_t bytes[12];
	unsigned count = create_some(r, slabs, t, bytes, ARRAY_SIZE(t));
	struct err err = ERR_INIT;

	for (unsigned round = 0; round < 200; round++) {
		uint8_t place = (uint8_t)world_below(w, w->shape.hbm);
		size_t n = choose_batch(r, slabs, t, bytes, count, 0, batch);

		if (world_below(w, 4) == 0)
			engine_prefetch(w->engine, r->client[1].holder, &t[world_below(w, count)],
					1, place, w->now_ns, &err);
		rig_use(r, 0, batch, n, place, world_below(w, 2) ? ACCESS_READ : ACCESS_WRITE);
		if (world_below(w, 20) == 0)
			engine_trim(w->engine);
	}
}

/* Client 2 pins some of what stands at the place: bits. */
static uint64_t pin_some(struct rig *r, const struct wire_handle *t, unsigned count, uint8_t place)
{
	uint64_t pinned = 0;

	for (unsigned i = 0; i < count; i++)
		if (rig_stands_at(r, t[i], place) && world_below(&r->world, 3) == 0 &&
		    rig_try(r, 2, t[i], place, ACCESS_READ) != NULL)
			pinned |= 1ull << i;
	return pinned;
}

/* There may be no way around the pins; then all stands still until they are gone. */
static void ask_beside_pins(struct rig *r, unsigned slabs)
{
	struct world *w = &r->world;
	struct wire_handle t[12], batch[3];
	uint64_t bytes[12];
	unsigned count = create_some(r, slabs, t, bytes, ARRAY_SIZE(t));

	for (unsigned round = 0; round < 100; round++) {
		uint8_t place = (uint8_t)world_below(w, w->shape.hbm);
		uint64_t pinned = pin_some(r, t, count, place), given;
		size_t n = choose_batch(r, slabs, t, bytes, count, pinned, batch);

		r->client[0].answered[1] = n == 0;
		if (n > 0)
			engine_acquire(w->engine, r->client[0].holder, 1, batch, n, place,
				       ACCESS_READ, ENGINE_NEVER, w->now_ns);
		rig_wait(r, 0, 1, 300);
		given = w->stats->tier[TIER_KIND_HBM].slabs_given;
		rig_wait(r, 0, 1, 1500); /* more memory is asked for meanwhile */
		if (!r->client[0].answered[1])
			ck_assert_uint_eq(w->stats->tier[TIER_KIND_HBM].slabs_given, given);
		for (unsigned i = 0; i < count; i++)
			if ((pinned >> i & 1) != 0)
				rig_unpin(r, 2, t[i], ACCESS_READ);
		ck_assert(r->client[0].answered[1] || rig_wait(r, 0, 1, 9000) == 0);
		if (n > 0)
			rig_use(r, 0, batch, n, place, ACCESS_READ);
	}
}

static unsigned number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text != NULL ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* By seed, what is asked for and how much memory there is. */
static void run_seeds(void (*run)(struct rig *r, unsigned slabs))
{
	unsigned first = number("SIM_SEED", 1), seeds = number("SIM_SEEDS", 20);

	if (getenv("SIM_SEED") != NULL && getenv("SIM_SEEDS") == NULL)
		seeds = 1;
	for (unsigned seed = first; seed < first + seeds; seed++) {
		struct rig *r = rig_open((struct world_shape){
			.hbm = 1 + seed % 2, .nvme = seed / 2 % 3, .slabs = true });
		unsigned slabs = 2 + seed % 7;

		r->world.random = seed * 2 + 1;
		r->world.physical_bytes = slabs * SLAB;
		fprintf(stderr, "slabs: seed %u\n", seed);
		run(r, slabs);
		rig_close(r);
	}
}

/* Nobody holds anything. */
START_TEST(whoever_fits_what_memory_there_is_gets_it)
{
	run_seeds(ask_for_what_fits);
}
END_TEST

START_TEST(pins_in_the_way_send_no_slab_in_circles)
{
	run_seeds(ask_beside_pins);
}
END_TEST

UNIT_MAIN("slab_seeds", whoever_fits_what_memory_there_is_gets_it,
	  pins_in_the_way_send_no_slab_in_circles)

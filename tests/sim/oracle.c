/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/oracle.h"

#include <string.h>

#include "base/check.h"
#include "daemon/engine/blocks.h"
#include "daemon/engine/front.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/replica.h"
#include "tests/sim/client.h"
#include "tests/sim/losses.h"

/* While a pin stands, its index is not given to another tensor, and the front stays where it is. */
static void check_view(struct stepper *s, const struct client *c, const struct view *v)
{
	const struct descriptor *d = &s->world.descriptors[v->handle.index];
	uint64_t word0 = atomic_load(&d->word0);
	uint8_t state = word0_state(word0);

	ASSERT((atomic_load(&c->pins[v->handle.index]) & PIN_MASK) != 0);
	ASSERT(word0_generation(word0) == v->handle.generation);
	ASSERT(atomic_load(&d->word1) == v->word1);
	ASSERT(word0_place(word0) == v->place);
	ASSERT(state == STATE_RESIDENT || state == STATE_FAILED ||
	       (state == STATE_FILLING && v->arriving));
	ASSERT(state != STATE_FAILED || v->arriving || v->failed || s->trouble->losses);
}

static void check_extent(struct stepper *s, const struct model *m, uint8_t device, uint32_t node)
{
	struct engine *e = s->world.engine;
	const char *memory = s->world.devices[e->devices[device].lane].memory;

	ASSERT(memcmp(memory + replica_offset(e, device, node), m->expected, m->bytes) == 0);
}

static bool is_zero(const unsigned char *bytes, uint64_t n)
{
	return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

static void check_blocks(struct stepper *s, const struct model *m, const struct record *r)
{
	struct engine *e = s->world.engine;
	const struct block_map *map = map_get(e, r);

	for (uint32_t i = 0; i < map->count; i++) {
		const struct block *b = &map->blocks[i];
		const unsigned char *want = m->expected + i * map->block_bytes;
		uint64_t bytes = map_bytes(map, r, i);
		const char *at;

		if (b->node == EXTENT_NONE) {
			ASSERT(is_zero(want, bytes));
			continue;
		}
		at = s->world.devices[e->devices[b->device].lane].memory;
		ASSERT(memcmp(at + replica_offset(e, b->device, b->node), want, bytes) == 0);
	}
}

/* Of a tensor at rest. What was written since the engine looked makes all but the front stale. */
static void check_model(struct stepper *s, const struct model *m)
{
	struct engine *e = s->world.engine;
	struct record *r = record_of(e, m->handle.index);
	uint8_t sources = r->sources;
	struct pins pins;

	pins_scan(e, m->handle.index, NULL, &pins);
	if (front_unfilled(e, m->handle.index) && pins.filled)
		return;
	if (pins.written || pins.write_pins > 0)
		sources &= r->front == DEVICE_NONE ? 0 : front_source(e, r);
	if ((sources & SOURCE_HBM) && !s->world.devices[r->hbm_device].lost)
		check_extent(s, m, r->hbm_device, r->hbm_node);
	if (sources & SOURCE_DRAM)
		check_extent(s, m, dram_of(e, r), r->dram_node);
	if ((sources & SOURCE_NVME) && s->world.rotten == 0)
		check_blocks(s, m, r);
	if ((sources & SOURCE_ZERO) && !(r->flags & RECORD_LOST))
		ASSERT(is_zero(m->expected, m->bytes));
}

void oracle_look(struct stepper *s)
{
	const struct model *m = &s->models[s->looked++ % MODELS];

	for (unsigned i = 0; i < CLIENTS; i++)
		for (unsigned j = 0; j < VIEWS; j++)
			if (s->clients[i]->view[j].used)
				check_view(s, s->clients[i], &s->clients[i]->view[j]);
	if (m->live && !m->fuzzy && !m->may_be_lost &&
	    record_of(s->world.engine, m->handle.index)->move == 0)
		check_model(s, m);
}

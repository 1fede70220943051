/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/slab_room.h"

#include "daemon/engine/compact.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slab_search.h"

struct asked {
	struct engine *e;
	uint8_t device;
};

static bool could_leave(void *ctx, const struct extent *x)
{
	const struct asked *asked = ctx;

	return compact_can_leave(asked->e, asked->device, x);
}

/* How many slabs can be made now, as far as is known. What one was given for is not asked for
 * elsewhere, in the hope of more. */
static uint32_t slabs_to_be_had(const struct engine *e, const struct slabs *s)
{
	if (!slabs_full(s) || (!s->traded && e->now_ns >= s->retry_at_ns))
		return UINT32_MAX;
	return (uint32_t)((slabs_spare_bytes(s) + s->bytes - 1) / s->bytes);
}

/* The first one in the range that has no memory. False: there is none. */
static bool back_first(struct engine *e, uint8_t tier, uint64_t begin, uint64_t end)
{
	const struct slabs *s = e->devices[tier].slabs;

	for (uint32_t i = (uint32_t)(begin / s->bytes); i < s->count && slab_begin(s, i) < end;
	     i++) {
		if (s->slab[i].state == SLAB_ABSENT) {
			slabs_back(e, tier, i);
			return true;
		}
	}
	return false;
}

/* ---- while there is memory, nobody has to leave ---- */

/* Whether more of the device is on its way, where no slab has to be chosen for that: *ret. */
static bool is_known(struct engine *e, uint8_t device, bool *ret)
{
	const struct device *d = &e->devices[device];
	const struct slabs *s = e->devices[d->lane].slabs;

	if (s == NULL || d->closed_bytes == 0 || d->lost)
		*ret = false;
	else if (!d->tier->base.on_demand)
		*ret = !slabs_full(s); /* they come by themselves */
	else if (slabs_take_back(e, d->lane) || s->busy)
		*ret = true;
	else if (slabs_to_be_had(e, s) == 0)
		*ret = false;
	else
		return false;
	return true;
}

/* Found only where it needs no more slabs than can be made. */
static struct way open_way(struct engine *e, uint8_t device, uint64_t bytes)
{
	const struct slabs *s = e->devices[device].slabs;
	struct slab_need need = { .bytes = bytes, .slabs = slabs_to_be_had(e, s) };
	struct way way = slab_search_way(s, e->devices[device].extents, &need);

	way.found &= way.cost <= need.slabs;
	return way;
}

bool slab_room_grow(struct engine *e, uint8_t device, uint64_t bytes)
{
	struct way way;
	bool grows;

	if (is_known(e, device, &grows))
		return grows;
	way = open_way(e, device, bytes);
	return way.found && back_first(e, device, way.begin, way.end);
}

/* The tensors find holes, one after the other; memory is made for the first that finds none, or for
 * all of them together where that costs no more. */
bool slab_room_grow_head(struct engine *e, struct request *q, uint8_t device)
{
	struct way whole, way;
	uint64_t bytes;
	bool grows;

	if (is_known(e, device, &grows))
		return grows;
	if (e->devices[device].slabs->traded && slab_room_trade(e, q, device))
		return true;
	e->devices[device].slabs->traded = false; /* whatever it was given for, it is not now */
	whole = open_way(e, device, acquire_lacking_bytes(e, q, device));
	bytes = compact_take_holes(e, q, device);
	grows = bytes > 0;
	if (grows) {
		way = open_way(e, device, bytes);
		if (!way.found || (whole.found && whole.cost <= way.cost))
			way = whole;
		grows = way.found && back_first(e, device, way.begin, way.end);
	}
	compact_give_holes(e, q, device);
	return grows;
}

bool slab_room_grow_any(struct engine *e, uint8_t device)
{
	bool grows;

	if (is_known(e, device, &grows))
		return grows;
	return back_first(e, device, 0, e->devices[device].slabs->end);
}

/* ---- where there is none, one slab is given for another ---- */

static struct way trade_way(struct engine *e, uint8_t device, uint64_t bytes)
{
	const struct slabs *s = e->devices[device].slabs;
	struct asked asked = { e, device };
	struct slab_need need = {
		.bytes = bytes, .slabs = slabs_to_be_had(e, s), .leaves = could_leave, .ctx = &asked
	};

	return slab_search_way(s, e->devices[device].extents, &need);
}

/* Whoever stands in the way leaves it when all of its slabs are there: compaction sees to that. */
static bool follow(struct engine *e, uint8_t device, const struct way *way)
{
	const struct slabs *s = e->devices[device].slabs;
	uint32_t i;

	if (way->cost == 0)
		return false;
	if (slabs_to_be_had(e, s) > 0)
		return back_first(e, device, way->begin, way->end);
	i = slab_search_spare(s, e->devices[device].extents, way);
	return i < s->count && slabs_leave(e, device, i, true);
}

/* For all of a batch in one piece, where that could ever be: what is given, made, and leaves for it
 * is then always nearer to that, and no slab goes round in a circle. */
bool slab_room_trade(struct engine *e, struct request *q, uint8_t device)
{
	const struct device *d = &e->devices[device];
	struct way way;
	uint64_t bytes;
	bool trades;

	if (!d->tier->base.on_demand || d->closed_bytes == 0 || d->lost || !slabs_full(d->slabs) ||
	    d->slabs->busy || d->slabs->leaving != d->slabs->count)
		return false;
	way = trade_way(e, device, acquire_lacking_bytes(e, q, device));
	if (way.found)
		return follow(e, device, &way);
	bytes = compact_take_holes(e, q, device);
	way.found = false;
	if (bytes > 0)
		way = trade_way(e, device, bytes);
	trades = way.found && follow(e, device, &way);
	compact_give_holes(e, q, device);
	return trades;
}

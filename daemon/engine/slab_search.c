/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/slabs.h"

static bool is_open(const struct slabs *s, const struct extent *x)
{
	return x->owner == EXTENT_FREE ||
	       (x->owner == OWNER_SLAB && s->slab[x->offset / s->bytes].state == SLAB_ABSENT);
}

static uint32_t cost_of(const struct extent *x)
{
	return x->owner == OWNER_SLAB;
}

/* The next node that has a part in [begin, end), and that part of it. */
static bool next_part(const struct extents *extents, uint32_t node, uint64_t begin, uint64_t end,
		      struct extent *ret)
{
	bool more = extents_next(extents, node, ret);

	while (more && ret->offset + ret->bytes <= begin)
		more = extents_next(extents, ret->node, ret);
	if (!more || ret->offset >= end)
		return false;
	end = MIN(end, ret->offset + ret->bytes);
	ret->offset = MAX(ret->offset, begin);
	ret->bytes = end - ret->offset;
	return true;
}

/* Where `bytes` would take the least new memory: of windows that slide along a run of holes and
 * absent slabs, those that end with a node are enough, for the sum can only rise where the next one
 * is entered. Ranges that are there at a slab's border are used by themselves. */
struct way slabs_find_way(const struct slabs *s, const struct extents *extents, uint64_t bytes,
			  uint64_t first, uint64_t last)
{
	struct way best = { .found = false };
	struct extent left = { 0 }, right;
	uint32_t cost = 0;
	uint64_t begin = 0;
	bool in_run = false, more = next_part(extents, EXTENT_NONE, first, last, &right);

	for (; more; more = next_part(extents, right.node, first, last, &right)) {
		uint64_t end = ALIGN_DOWN(right.offset + right.bytes, GRANULE);

		if (!is_open(s, &right)) {
			in_run = false;
			continue;
		}
		if (!in_run) {
			left = right;
			begin = ALIGN_UP(right.offset, GRANULE);
			cost = 0;
			in_run = true;
		}
		cost += cost_of(&right);
		if (end < begin + bytes)
			continue;
		while (left.offset + left.bytes <= end - bytes) {
			cost -= cost_of(&left);
			next_part(extents, left.node, first, last, &left);
		}
		if (!best.found || cost < best.cost)
			best = (struct way){ end - bytes, end, cost, true };
	}
	return best;
}

static bool is_empty(const struct extents *extents, uint64_t begin, uint64_t end)
{
	struct extent x;

	return next_part(extents, EXTENT_NONE, begin, end, &x) && x.owner == EXTENT_FREE &&
	       x.offset == begin && x.bytes == end - begin;
}

uint32_t slabs_find_spare(const struct slabs *s, const struct extents *extents, uint64_t bytes,
			  const struct way *way)
{
	for (uint32_t i = (uint32_t)(way->begin / s->bytes); slab_begin(s, i) < way->end; i++) {
		uint64_t begin = slab_begin(s, i), end = begin + slab_length(s, i);
		struct way below = slabs_find_way(s, extents, bytes, 0, begin);
		struct way above = slabs_find_way(s, extents, bytes, end, s->end);

		if (((below.found && below.cost <= way->cost) ||
		     (above.found && above.cost <= way->cost)) &&
		    is_empty(extents, begin, end))
			return i;
	}
	return s->count;
}

uint32_t slabs_find_empty(struct engine *e, uint8_t tier, uint64_t idle_ns, const struct way *but,
			  uint64_t *ret_next_ns)
{
	struct slabs *s = e->devices[tier].slabs;
	struct extents *extents = e->devices[tier].extents;
	uint32_t found = s->count;
	struct extent x;
	bool more = extents_next(extents, EXTENT_NONE, &x);

	*ret_next_ns = ENGINE_NEVER;
	for (; more; more = extents_next(extents, x.node, &x)) {
		uint64_t i = (x.offset + s->bytes - 1) / s->bytes;

		for (; x.owner == EXTENT_FREE && i < s->count; i++) {
			uint64_t begin = slab_begin(s, (uint32_t)i);
			uint64_t end = begin + slab_length(s, (uint32_t)i);

			if (end > x.offset + x.bytes)
				break;
			if (but != NULL && begin < but->end && end > but->begin)
				continue;
			if (s->slab[i].touched_ns + idle_ns <= e->now_ns)
				found = (uint32_t)i;
			else
				*ret_next_ns = MIN(*ret_next_ns, s->slab[i].touched_ns + idle_ns);
		}
	}
	return found;
}

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

/* Where `bytes` would take the least new memory: of windows that slide along a run of holes and
 * absent slabs, those that end with a node are enough, for the sum can only rise where the next one
 * is entered. Ranges that are there at a slab's border are used by themselves. */
struct way slabs_find_way(const struct slabs *s, const struct extents *extents, uint64_t bytes)
{
	struct way best = { .found = false };
	struct extent left = { 0 }, right;
	uint32_t cost = 0;
	uint64_t begin = 0;
	bool in_run = false, more = extents_next(extents, EXTENT_NONE, &right);

	for (; more; more = extents_next(extents, right.node, &right)) {
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
			extents_next(extents, left.node, &left);
		}
		if (!best.found || cost < best.cost)
			best = (struct way){ end - bytes, end, cost, true };
	}
	return best;
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

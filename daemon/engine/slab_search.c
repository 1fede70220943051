/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/slab_search.h"

/* What a node has of one slab. */
struct share {
	struct extent x;
	uint64_t begin, end;
	uint32_t slab;
};

#define SHARE_INIT                          \
	{                                   \
		.x = {.node = EXTENT_NONE } \
	}

static bool next_share(const struct slabs *s, const struct extents *extents, struct share *p)
{
	if (p->end == p->x.offset + p->x.bytes && !extents_next(extents, p->x.node, &p->x))
		return false;
	p->begin = p->end;
	p->slab = (uint32_t)(p->begin / s->bytes);
	p->end = MIN(p->x.offset + p->x.bytes, slab_begin(s, p->slab) + s->bytes);
	return p->slab < s->count;
}

static bool is_empty(const struct slabs *s, const struct share *p)
{
	return p->x.owner == EXTENT_FREE && p->begin == slab_begin(s, p->slab) &&
	       p->end - p->begin >= slab_length(s, p->slab);
}

static bool is_spare(const struct slabs *s, const struct share *p)
{
	return is_empty(s, p) && !s->slab[p->slab].kept;
}

static bool is_tensor(const struct share *p)
{
	return p->x.owner != EXTENT_FREE && p->x.owner != OWNER_SLAB;
}

/* Of the shares that a window touches. */
struct tally {
	uint64_t leave_bytes;
	uint32_t absent, spare;
};

static void enter(struct tally *t, const struct slabs *s, const struct share *p)
{
	t->absent += p->x.owner == OWNER_SLAB;
	t->spare += is_spare(s, p);
	if (is_tensor(p) && p->begin == p->x.offset)
		t->leave_bytes += p->x.bytes;
}

/* A tensor leaves as a whole, as long as one share of it is touched. */
static void leave(struct tally *t, const struct slabs *s, const struct share *p)
{
	t->absent -= p->x.owner == OWNER_SLAB;
	t->spare -= is_spare(s, p);
	if (is_tensor(p) && p->end == p->x.offset + p->x.bytes)
		t->leave_bytes -= p->x.bytes;
}

static bool could_go(const struct slabs *s, const struct share *p, const struct slab_need *need)
{
	if (p->x.owner == OWNER_SLAB)
		return s->slab[p->slab].state == SLAB_ABSENT;
	return p->x.owner == EXTENT_FREE ||
	       (need->leaves != NULL && need->leaves(need->ctx, &p->x));
}

static uint32_t count_spares(const struct slabs *s, const struct extents *extents)
{
	struct share p = SHARE_INIT;
	uint32_t n = 0;

	while (next_share(s, extents, &p))
		n += is_spare(s, &p);
	return n;
}

static uint32_t traded(const struct slab_need *need, uint32_t cost)
{
	return cost > need->slabs ? cost - need->slabs : 0;
}

static bool is_better(const struct slab_need *need, const struct tally *t, const struct way *best)
{
	if (!best->found)
		return true;
	if (t->leave_bytes != best->leave_bytes)
		return t->leave_bytes < best->leave_bytes;
	/* As few traded is as few made, but where none has to be. */
	return t->absent < best->cost;
}

/* Two ends walk over the shares in address order. Windows that begin with one are enough: what
 * begins inside of one touches no less when it is moved there. Each tensor is judged once, when the
 * right end comes to it: clients pin and unpin meanwhile. */
struct way slab_search_way(const struct slabs *s, const struct extents *extents,
			   const struct slab_need *need)
{
	struct way best = { .found = false };
	struct share left = SHARE_INIT, right = SHARE_INIT;
	struct tally in = { 0 };
	uint32_t spares = count_spares(s, extents);
	uint64_t stuck_end = 0;
	bool more = next_share(s, extents, &right), goes = false;

	ASSERT(need->bytes > 0);
	while (next_share(s, extents, &left)) {
		uint64_t begin = ALIGN_UP(left.begin, GRANULE);
		uint64_t end = begin + ALIGN_UP(need->bytes, GRANULE);

		for (; more && right.begin < end; more = next_share(s, extents, &right)) {
			if (right.begin == right.x.offset)
				goes = could_go(s, &right, need);
			if (!goes)
				stuck_end = right.end;
			enter(&in, s, &right);
		}
		if (end > s->end)
			break;
		if (left.begin >= stuck_end && traded(need, in.absent) <= spares - in.spare &&
		    is_better(need, &in, &best))
			best = (struct way){ begin, end, in.leave_bytes, in.absent, true };
		leave(&in, s, &left);
	}
	return best;
}

uint32_t slab_search_spare(const struct slabs *s, const struct extents *extents,
			   const struct way *way)
{
	uint32_t found = s->count;
	struct share p = SHARE_INIT;

	while (next_share(s, extents, &p)) {
		bool outside = p.end <= way->begin || p.begin >= way->end;

		if (is_spare(s, &p) && outside &&
		    (found == s->count || s->slab[p.slab].importers == 0 ||
		     s->slab[found].importers > 0))
			found = p.slab;
	}
	return found;
}

uint32_t slab_search_idle(const struct slabs *s, const struct extents *extents, uint64_t now_ns,
			  uint64_t idle_ns, uint64_t *ret_next_ns)
{
	uint32_t found = s->count;
	struct share p = SHARE_INIT;

	*ret_next_ns = ENGINE_NEVER;
	while (next_share(s, extents, &p)) {
		uint64_t idle_at_ns = s->slab[p.slab].touched_ns + idle_ns;

		if (!is_empty(s, &p))
			continue;
		if (idle_at_ns <= now_ns)
			found = p.slab;
		else
			*ret_next_ns = MIN(*ret_next_ns, idle_at_ns);
	}
	return found;
}

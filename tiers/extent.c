/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/extent_inside.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"

#define GROW_NODES 8u

/* ---- nodes --------------------------------------------------------------------------------- */

/* Makes sure that two nodes can be had: a take cuts a hole in at most three. Memory is touched only
 * when a node is used. */
int extents_ready(struct extents *e)
{
	uint64_t room = (uint64_t)e->node_room + e->node_room / 4 + GROW_NODES;
	struct node *nodes;

	if (e->spare_count + (e->node_room - e->node_count) >= 2)
		return 0;
	if (room >= EXTENT_SPARE)
		return -ENOMEM;
	nodes = heap_grow(e->nodes, room, sizeof(*nodes));
	if (nodes == NULL)
		return -ENOMEM;
	e->nodes = nodes;
	e->node_room = (uint32_t)room;
	return 0;
}

static uint32_t node_new(struct extents *e)
{
	uint32_t i = e->spare;

	if (i == EXTENT_NONE) {
		ASSERT(e->node_count < e->node_room);
		return e->node_count++;
	}
	ASSERT(e->nodes[i].owner == EXTENT_SPARE);
	e->spare = e->nodes[i].next;
	e->spare_count--;
	return i;
}

static void node_give(struct extents *e, uint32_t i)
{
	e->nodes[i].owner = EXTENT_SPARE;
	e->nodes[i].next = e->spare;
	e->spare = i;
	e->spare_count++;
}

static struct node *node_taken(const struct extents *e, uint32_t i)
{
	ASSERT(i < e->node_count);
	ASSERT(e->nodes[i].owner < EXTENT_SPARE);
	return &e->nodes[i];
}

/* Cuts `i` at `at` bytes from its start; returns the node of the rest. Neither is filed. */
static uint32_t node_cut(struct extents *e, uint32_t i, uint64_t at)
{
	uint32_t rest = node_new(e);
	struct node *n = &e->nodes[i], *r = &e->nodes[rest];

	ASSERT(at > 0 && at < n->bytes);
	*r = (struct node){ .offset = n->offset + at,
			    .bytes = n->bytes - at,
			    .owner = EXTENT_FREE,
			    .prev = i,
			    .next = n->next };
	if (n->next != EXTENT_NONE)
		e->nodes[n->next].prev = rest;
	n->next = rest;
	n->bytes = at;
	return rest;
}

/* Joins `i` with the one after it, which goes. Neither is filed. */
static void node_join(struct extents *e, uint32_t i)
{
	struct node *n = &e->nodes[i];
	uint32_t gone = n->next;

	ASSERT(e->nodes[gone].offset == n->offset + n->bytes);
	n->bytes += e->nodes[gone].bytes;
	n->next = e->nodes[gone].next;
	if (n->next != EXTENT_NONE)
		e->nodes[n->next].prev = i;
	node_give(e, gone);
}

/* ---- create -------------------------------------------------------------------------------- */

int extents_create(uint64_t bytes, uint32_t granule, struct extents **ret, struct err *err)
{
	struct extents *e;

	ASSERT(granule >= PAGE / 8 && (granule & (granule - 1)) == 0);
	bytes = ALIGN_DOWN(bytes, granule);
	if (bytes == 0)
		return err_set(err, EINVAL, "a tier of less than one granule of %u bytes", granule);
	e = heap_zeros(1, sizeof(*e));
	if (e == NULL || (e->nodes = heap_zeros(GROW_NODES, sizeof(*e->nodes))) == NULL) {
		heap_free(e);
		return err_set(err, ENOMEM, "no memory for the extents of a tier");
	}
	e->node_room = GROW_NODES;
	e->bytes = bytes;
	e->granule = granule;
	e->page = MAX(granule, PAGE);
	e->spare = EXTENT_NONE;
	memset(e->bins, 0xff, sizeof(e->bins)); /* EXTENT_NONE */
	memset(e->small, 0xff, sizeof(e->small));
	e->first = node_new(e);
	e->nodes[e->first] =
		(struct node){ .bytes = bytes, .prev = EXTENT_NONE, .next = EXTENT_NONE };
	hole_file(e, e->first);
	*ret = e;
	return 0;
}

void extents_destroy(struct extents *e)
{
	if (e == NULL)
		return;
	heap_free(e->nodes);
	heap_free(e);
}

/* ---- take and give ------------------------------------------------------------------------- */

uint64_t extents_rounded(const struct extents *e, uint64_t bytes)
{
	uint64_t unit = bytes < PAGE ? e->granule : e->page;

	if (bytes > UINT64_MAX - unit)
		return ALIGN_DOWN(UINT64_MAX, unit); /* more than any tier has */
	return ALIGN_UP(MAX(bytes, 1), unit);
}

/* Where in a hole a range may begin: large ones at pages. */
static uint64_t first_offset(const struct extents *e, uint64_t offset, uint64_t bytes)
{
	return bytes % e->page == 0 ? ALIGN_UP(offset, e->page) : offset;
}

/* Takes [offset, bytes) out of hole `i`, which holds it. */
static void take_from(struct extents *e, uint32_t i, uint64_t offset, uint64_t bytes,
		      uint32_t owner, struct extent *ret)
{
	uint64_t lead = offset - e->nodes[i].offset;
	uint32_t rest;

	hole_unfile(e, i);
	if (lead > 0) {
		rest = node_cut(e, i, lead);
		hole_file(e, i);
		i = rest;
	}
	if (e->nodes[i].bytes > bytes)
		hole_file(e, node_cut(e, i, bytes));
	ASSERT(e->nodes[i].bytes == bytes);
	e->nodes[i].owner = owner;
	e->used += bytes;
	extents_get(e, i, ret);
}

/* What the ways of taking begin with that round. */
static int take_prepare(struct extents *e, uint64_t *bytes, uint32_t owner)
{
	ASSERT(owner < EXTENT_SPARE);
	*bytes = extents_rounded(e, *bytes);
	if (*bytes > e->bytes - e->used)
		return -ENOSPC;
	return extents_ready(e) < 0 ? -ENOMEM : 0;
}

int extents_take(struct extents *e, uint64_t bytes, uint32_t owner, struct extent *ret)
{
	int rc = take_prepare(e, &bytes, owner);
	uint32_t i;

	if (rc < 0)
		return rc;
	i = hole_find(e, bytes);
	if (i == EXTENT_NONE)
		return -ENOSPC;
	take_from(e, i, first_offset(e, e->nodes[i].offset, bytes), bytes, owner, ret);
	return 0;
}

int extents_take_outside(struct extents *e, uint64_t bytes, uint32_t owner, uint64_t begin,
			 uint64_t end, struct extent *ret)
{
	int rc = take_prepare(e, &bytes, owner);
	struct extent x;
	bool more;

	if (rc < 0)
		return rc;
	for (more = extents_next(e, EXTENT_NONE, &x); more; more = extents_next(e, x.node, &x)) {
		uint64_t at = first_offset(e, x.offset, bytes);

		if (at < end && at + bytes > begin)
			at = first_offset(e, MAX(x.offset, end), bytes);
		if (x.owner == EXTENT_FREE && at + bytes <= x.offset + x.bytes) {
			take_from(e, x.node, at, bytes, owner, ret);
			return 0;
		}
	}
	return -ENOSPC;
}

int extents_take_at(struct extents *e, uint64_t offset, uint64_t bytes, uint32_t owner,
		    struct extent *ret)
{
	int rc = take_prepare(e, &bytes, owner);
	struct extent x;
	bool more;

	ASSERT(offset % (bytes % e->page == 0 ? e->page : e->granule) == 0);
	if (rc < 0)
		return rc;
	for (more = extents_next(e, EXTENT_NONE, &x); more; more = extents_next(e, x.node, &x)) {
		if (x.offset + x.bytes <= offset)
			continue;
		if (x.owner != EXTENT_FREE || x.offset + x.bytes < offset + bytes)
			return -ENOSPC;
		take_from(e, x.node, offset, bytes, owner, ret);
		return 0;
	}
	return -ENOSPC;
}

int extents_take_highest(struct extents *e, uint64_t bytes, uint32_t owner, uint64_t above,
			 struct extent *ret)
{
	int rc = take_prepare(e, &bytes, owner);
	struct extent x, found = { .node = EXTENT_NONE };
	bool more;

	ASSERT(bytes < e->page);
	if (rc < 0)
		return rc;
	for (more = extents_next(e, EXTENT_NONE, &x); more; more = extents_next(e, x.node, &x))
		if (x.owner == EXTENT_FREE && x.offset >= above && x.bytes >= bytes)
			found = x;
	if (found.node == EXTENT_NONE)
		return -ENOSPC;
	take_from(e, found.node, found.offset + found.bytes - bytes, bytes, owner, ret);
	return 0;
}

int extents_take_before(struct extents *e, uint32_t node, uint64_t bytes, uint32_t owner,
			struct extent *ret)
{
	uint32_t hole = node_taken(e, node)->prev;

	ASSERT(owner < EXTENT_SPARE && bytes > 0 && bytes % e->granule == 0);
	ASSERT(hole != EXTENT_NONE && e->nodes[hole].owner == EXTENT_FREE);
	ASSERT(e->nodes[hole].bytes >= bytes);
	if (extents_ready(e) < 0)
		return -ENOMEM;
	take_from(e, hole, e->nodes[node].offset - bytes, bytes, owner, ret);
	return 0;
}

void extents_swap(struct extents *e, uint32_t first, uint32_t second)
{
	struct node *a = node_taken(e, first), *b = node_taken(e, second);
	uint32_t before = a->prev, after = b->next;

	ASSERT(a->next == second);
	b->offset = a->offset;
	a->offset = b->offset + b->bytes;
	b->prev = before;
	b->next = first;
	a->prev = second;
	a->next = after;
	if (before != EXTENT_NONE)
		e->nodes[before].next = second;
	else
		e->first = second;
	if (after != EXTENT_NONE)
		e->nodes[after].prev = first;
}

void extents_give(struct extents *e, uint32_t node)
{
	struct node *n = node_taken(e, node);
	uint32_t prev = n->prev, next = n->next;

	ASSERT(e->used >= n->bytes);
	e->used -= n->bytes;
	if (next != EXTENT_NONE && e->nodes[next].owner == EXTENT_FREE) {
		hole_unfile(e, next);
		node_join(e, node);
	}
	if (prev != EXTENT_NONE && e->nodes[prev].owner == EXTENT_FREE) {
		hole_unfile(e, prev);
		node_join(e, prev);
		node = prev;
	}
	hole_file(e, node);
}

void extents_set_owner(struct extents *e, uint32_t node, uint32_t owner)
{
	ASSERT(owner < EXTENT_SPARE);
	node_taken(e, node)->owner = owner;
}

/* ---- look ---------------------------------------------------------------------------------- */

bool extents_has(const struct extents *e, uint32_t node)
{
	return node < e->node_count && e->nodes[node].owner != EXTENT_SPARE;
}

void extents_get(const struct extents *e, uint32_t node, struct extent *ret)
{
	ASSERT(extents_has(e, node));
	*ret = (struct extent){ e->nodes[node].offset, e->nodes[node].bytes, node,
				e->nodes[node].owner };
}

bool extents_next(const struct extents *e, uint32_t node, struct extent *ret)
{
	uint32_t next;

	ASSERT(node == EXTENT_NONE || extents_has(e, node));
	next = node == EXTENT_NONE ? e->first : e->nodes[node].next;
	if (next == EXTENT_NONE)
		return false;
	extents_get(e, next, ret);
	return true;
}

uint64_t extents_capacity(const struct extents *e)
{
	return e->bytes;
}

uint64_t extents_used(const struct extents *e)
{
	return e->used;
}

/* ---- check --------------------------------------------------------------------------------- */

void extents_check(const struct extents *e)
{
	uint64_t at = 0, used = 0;
	uint32_t nodes = 0, holes = 0, prev = EXTENT_NONE;

	for (uint32_t i = e->first; i != EXTENT_NONE; prev = i, i = e->nodes[i].next, nodes++) {
		const struct node *n = &e->nodes[i];

		ASSERT(extents_has(e, i));
		ASSERT(n->prev == prev && n->offset == at);
		ASSERT(n->bytes > 0 && n->bytes % e->granule == 0);
		if (n->owner == EXTENT_FREE) {
			ASSERT(prev == EXTENT_NONE || e->nodes[prev].owner != EXTENT_FREE);
			holes++;
		} else {
			ASSERT(n->bytes < e->page || (n->bytes | n->offset) % e->page == 0);
			used += n->bytes;
		}
		at += n->bytes;
	}
	ASSERT(at == e->bytes && used == e->used);
	ASSERT(nodes + e->spare_count == e->node_count);
	ASSERT(holes_check(e) == holes);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A set is two leftist heaps, of large tensors and of the others: nobody is larger than who stands
 * above it, and the way down to an end along the right is the shortest there is, so no longer than
 * O(log n). To meld two goes along those ways alone; to take any tensor out is to meld what stood
 * below it. Simpler heaps are as cheap on average, but not each single time.
 */
#include "daemon/engine/largest.h"

#include "daemon/engine/admission.h"
#include "daemon/engine/quota.h"

/* ---- a heap ---- */

static struct size_link *link_of(const struct engine *e, enum by_size by, uint32_t tensor)
{
	return &e->records[tensor].size[by];
}

/* How far it is to the nearest end; 0: it is one. */
static unsigned rank_of(const struct engine *e, enum by_size by, uint32_t tensor)
{
	return tensor == 0 ? 0 : link_of(e, by, tensor)->rank;
}

/* After a change below it; whether what is above it has to know. */
static bool set_rank(struct engine *e, enum by_size by, uint32_t tensor)
{
	struct size_link *l = link_of(e, by, tensor);
	uint32_t right = l->right;
	uint8_t was = l->rank;

	if (rank_of(e, by, l->left) < rank_of(e, by, right)) {
		l->right = l->left;
		l->left = right;
	}
	l->rank = (uint8_t)(rank_of(e, by, l->right) + 1);
	return l->rank != was;
}

/* As deep as both ways along the right are long: 64 at most. Of two as large `b` stands above, so
 * that who comes as large as the largest, as most do, costs one step. */
static uint32_t meld(struct engine *e, enum by_size by, uint32_t a, uint32_t b)
{
	uint32_t top, below;

	if (a == 0 || b == 0)
		return a | b;
	top = e->records[a].bytes <= e->records[b].bytes ? b : a;
	below = meld(e, by, link_of(e, by, top)->right, top == a ? b : a);
	link_of(e, by, top)->right = below;
	link_of(e, by, below)->up = top;
	set_rank(e, by, top);
	return top;
}

static void enter(struct engine *e, enum by_size by, uint32_t *root, uint32_t tensor)
{
	*link_of(e, by, tensor) = (struct size_link){ .rank = 1 };
	*root = meld(e, by, *root, tensor);
	link_of(e, by, *root)->up = 0;
}

/* Ranks that change on the way up differ by one from each to the next, so they end as soon. */
static void leave(struct engine *e, enum by_size by, uint32_t *root, uint32_t tensor)
{
	const struct size_link *l = link_of(e, by, tensor);
	uint32_t rest = meld(e, by, l->left, l->right), up = l->up;

	if (rest != 0)
		link_of(e, by, rest)->up = up;
	if (up == 0)
		*root = rest;
	else if (link_of(e, by, up)->left == tensor)
		link_of(e, by, up)->left = rest;
	else
		link_of(e, by, up)->right = rest;
	while (up != 0 && set_rank(e, by, up))
		up = link_of(e, by, up)->up;
}

static bool stands(const struct engine *e, enum by_size by, uint32_t root, uint32_t tensor)
{
	const struct size_link *l = link_of(e, by, tensor);
	unsigned left = rank_of(e, by, l->left), right = rank_of(e, by, l->right);

	if (left < right || l->rank != right + 1)
		return false;
	if (l->up == 0)
		return root == tensor;
	return (link_of(e, by, l->up)->left == tensor || link_of(e, by, l->up)->right == tensor) &&
	       (e->records[l->up].flags & RECORD_LIVE) != 0 &&
	       e->records[l->up].bytes >= e->records[tensor].bytes;
}

/* ---- the sets of a tensor ---- */

static uint32_t *root_of(struct engine *e, enum by_size by, uint32_t tensor)
{
	const struct record *r = &e->records[tensor];
	struct sizes *s = by == BY_SIZE_PART ? &e->part[(r->flags & RECORD_ZONED) != 0].sizes
					     : &account_of(e, tensor)->sizes;

	return &s->largest[(r->flags & RECORD_LARGE) != 0];
}

void largest_enter(struct engine *e, uint32_t tensor)
{
	for (enum by_size by = 0; by < BY_SIZES; by++)
		enter(e, by, root_of(e, by, tensor), tensor);
}

void largest_leave(struct engine *e, uint32_t tensor)
{
	for (enum by_size by = 0; by < BY_SIZES; by++)
		leave(e, by, root_of(e, by, tensor), tensor);
}

bool largest_holds(struct engine *e, uint32_t tensor)
{
	for (enum by_size by = 0; by < BY_SIZES; by++)
		if (!stands(e, by, *root_of(e, by, tensor), tensor))
			return false;
	return true;
}

/* ---- what is the largest ---- */

static void add(const struct engine *e, struct largest *l, uint32_t tensor, bool large)
{
	if (tensor != 0)
		largest_add(l, admission_rounded(e->records[tensor].bytes), large);
}

static struct largest largest_of(const struct engine *e, enum by_size by, const struct sizes *s)
{
	uint32_t first = s->largest[0];
	struct largest l = { 0 };

	add(e, &l, s->largest[1], true);
	add(e, &l, first, false);
	if (first != 0) { /* the second is right below */
		add(e, &l, link_of(e, by, first)->left, false);
		add(e, &l, link_of(e, by, first)->right, false);
	}
	return l;
}

struct largest largest_of_part(const struct engine *e, bool zoned)
{
	return largest_of(e, BY_SIZE_PART, &e->part[zoned].sizes);
}

struct largest largest_of_account(const struct engine *e, const struct account *a)
{
	return largest_of(e, BY_SIZE_ACCOUNT, &a->sizes);
}

void largest_add(struct largest *l, uint64_t bytes, bool large)
{
	l->any_bytes = MAX(l->any_bytes, bytes);
	if (large)
		return;
	l->second_dram_bytes = MAX(l->second_dram_bytes, MIN(bytes, l->dram_bytes));
	l->dram_bytes = MAX(l->dram_bytes, bytes);
}

/* Above nvme these are two tensors: what wants to come may miss a byte in dram, and what would make
 * room for it a byte on nvme. What never comes to dram counts once. Where nothing is below dram and
 * nothing above, there are no moves. */
uint64_t largest_for_moves(const struct engine *e, const struct largest *l)
{
	if (e->params.device_count == 1)
		return 0;
	if (e->nvme_first == DEVICE_NONE)
		return l->any_bytes;
	return MAX(l->any_bytes, l->dram_bytes + l->second_dram_bytes);
}

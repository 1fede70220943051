/* SPDX-License-Identifier: Apache-2.0
 *
 * Two sizes of room. Takes of a page (4 KiB, or the granule if that is larger) and more need whole
 * aligned pages, so a hole is filed by the whole pages in it; any hole filed under n pages serves a
 * take of n. Holes without a whole page are filed by their granules and serve only small takes.
 */
#include "base/check.h"
#include "base/compiler.h"
#include "tiers/extent_inside.h"

#define SCAN_FIRST 16 /* holes of the own bin looked at before a larger hole is split */

struct bin {
	unsigned fl, sl;
};

/* Pages below SL_COUNT have a bin each; above, each power of two is cut into SL_COUNT bins. */
static struct bin bin_of(uint64_t pages)
{
	unsigned log2;

	if (pages < SL_COUNT)
		return (struct bin){ 0, (unsigned)pages };
	log2 = 63 - (unsigned)__builtin_clzll(pages);
	return (struct bin){ log2 - SL_BITS + 1, (unsigned)(pages >> (log2 - SL_BITS)) - SL_COUNT };
}

/* Whole aligned pages inside a hole. */
static uint64_t hole_pages(const struct extents *e, const struct node *n)
{
	uint64_t begin = ALIGN_UP(n->offset, e->page);
	uint64_t end = ALIGN_DOWN(n->offset + n->bytes, e->page);

	return end > begin ? (end - begin) / e->page : 0;
}

static uint32_t *bin_head(struct extents *e, const struct node *n)
{
	uint64_t pages = hole_pages(e, n);
	struct bin b = bin_of(pages);

	if (pages > 0)
		return &e->bins[b.fl][b.sl];
	ASSERT(n->bytes / e->granule < SMALL_MAX);
	return &e->small[n->bytes / e->granule];
}

static void mark(struct extents *e, const struct node *n, bool filled)
{
	uint64_t pages = hole_pages(e, n), *most;
	struct bin b = bin_of(pages);
	uint32_t *map = pages > 0 ? &e->sl_map[b.fl] : &e->small_map;
	uint32_t bit = 1u << (pages > 0 ? b.sl : n->bytes / e->granule);

	*map = filled ? *map | bit : *map & ~bit;
	most = &e->most[b.fl][b.sl];
	*most = filled ? MAX(*most, pages) : 0;
	if (pages > 0 && e->sl_map[b.fl] != 0)
		e->fl_map |= 1ull << b.fl;
	else if (pages > 0)
		e->fl_map &= ~(1ull << b.fl);
}

void hole_file(struct extents *e, uint32_t i)
{
	struct node *n = &e->nodes[i];
	uint32_t *head = bin_head(e, n);

	n->owner = EXTENT_FREE;
	n->bin_prev = EXTENT_NONE;
	n->bin_next = *head;
	if (*head != EXTENT_NONE)
		e->nodes[*head].bin_prev = i;
	*head = i;
	mark(e, n, true);
}

void hole_unfile(struct extents *e, uint32_t i)
{
	struct node *n = &e->nodes[i];
	uint32_t *head = bin_head(e, n);

	ASSERT(n->owner == EXTENT_FREE);
	if (n->bin_next != EXTENT_NONE)
		e->nodes[n->bin_next].bin_prev = n->bin_prev;
	if (n->bin_prev != EXTENT_NONE) {
		e->nodes[n->bin_prev].bin_next = n->bin_next;
		return;
	}
	ASSERT(*head == i);
	*head = n->bin_next;
	if (*head == EXTENT_NONE)
		mark(e, n, false);
}

/* The first of at most `max` holes of a bin that has `pages`. Who looks at all of them in vain
 * leaves what they have at most, so that nobody does it twice: holes of one size may be millions.
 */
static uint32_t scan(struct extents *e, struct bin b, uint64_t pages, uint32_t max)
{
	uint32_t i = e->bins[b.fl][b.sl];
	uint64_t most = 0;

	if (pages > e->most[b.fl][b.sl])
		return EXTENT_NONE;
	for (; i != EXTENT_NONE && max > 0; i = e->nodes[i].bin_next, max--) {
		uint64_t has = hole_pages(e, &e->nodes[i]);

		if (has >= pages)
			return i;
		most = MAX(most, has);
	}
	if (i == EXTENT_NONE)
		e->most[b.fl][b.sl] = most;
	return EXTENT_NONE;
}

/* Any hole of the bins from `b` on. */
static uint32_t first_from(const struct extents *e, struct bin b)
{
	uint32_t sl = b.sl < SL_COUNT ? e->sl_map[b.fl] & (UINT32_MAX << b.sl) : 0;
	uint64_t fl = e->fl_map & (UINT64_MAX << (b.fl + 1));

	if (sl != 0)
		return e->bins[b.fl][__builtin_ctz(sl)];
	if (fl == 0)
		return EXTENT_NONE;
	b.fl = (unsigned)__builtin_ctzll(fl);
	return e->bins[b.fl][__builtin_ctz(e->sl_map[b.fl])];
}

/* A bin holds sizes of a range, so its holes may be too small: a few are tried, then a larger one
 * is split, and only if there is none are all of the own bin looked at. */
static uint32_t find_pages(struct extents *e, uint64_t pages)
{
	struct bin b = bin_of(pages);
	uint32_t found = scan(e, b, pages, SCAN_FIRST);

	if (found == EXTENT_NONE)
		found = first_from(e, (struct bin){ b.fl, b.sl + 1 });
	if (found == EXTENT_NONE)
		found = scan(e, b, pages, UINT32_MAX);
	return found;
}

uint32_t hole_find(struct extents *e, uint64_t bytes)
{
	uint32_t map;

	if (bytes % e->page == 0)
		return find_pages(e, bytes / e->page);
	map = e->small_map & (UINT32_MAX << (bytes / e->granule));
	if (map != 0)
		return e->small[__builtin_ctz(map)];
	return find_pages(e, 1);
}

uint64_t extents_largest_free(struct extents *e)
{
	struct bin b;

	if (e->fl_map == 0)
		return e->small_map != 0 ? MIN((31u - (unsigned)__builtin_clz(e->small_map)) *
						       (uint64_t)e->granule,
					       e->page - e->granule)
					 : 0;
	b.fl = 63 - (unsigned)__builtin_clzll(e->fl_map);
	b.sl = 31 - (unsigned)__builtin_clz(e->sl_map[b.fl]);
	/* Found, or known from now on. */
	scan(e, b, e->most[b.fl][b.sl], UINT32_MAX);
	return e->most[b.fl][b.sl] * e->page;
}

static uint32_t check_bin(const struct extents *e, const uint32_t *head, bool marked, uint64_t most)
{
	uint32_t count = 0, prev = EXTENT_NONE;

	ASSERT((*head != EXTENT_NONE) == marked);
	for (uint32_t i = *head; i != EXTENT_NONE; i = e->nodes[i].bin_next, count++) {
		ASSERT(e->nodes[i].owner == EXTENT_FREE);
		ASSERT(e->nodes[i].bin_prev == prev);
		ASSERT(bin_head((struct extents *)e, &e->nodes[i]) == head);
		ASSERT(hole_pages(e, &e->nodes[i]) <= most);
		prev = i;
	}
	return count;
}

uint32_t holes_check(const struct extents *e)
{
	uint32_t holes = 0;

	for (unsigned i = 0; i < SMALL_MAX; i++)
		holes += check_bin(e, &e->small[i], e->small_map >> i & 1, 0);
	for (unsigned fl = 0; fl < FL_COUNT; fl++) {
		ASSERT((e->sl_map[fl] != 0) == (e->fl_map >> fl & 1));
		for (unsigned sl = 0; sl < SL_COUNT; sl++)
			holes += check_bin(e, &e->bins[fl][sl], e->sl_map[fl] >> sl & 1,
					   e->most[fl][sl]);
	}
	return holes;
}

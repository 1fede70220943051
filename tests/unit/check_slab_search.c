/* SPDX-License-Identifier: Apache-2.0
 *
 * Where slabs would have to come, beside a search that tries every address.
 */
#include "tests/unit/unit.h"

#include <stdint.h>

#include "base/compiler.h"
#include "daemon/engine/slab_search.h"

#define SLABS 8u
#define SLAB  KIB(32)
#define END   (SLABS * SLAB - GRANULE) /* the last slab is shorter */

#define STUCK 100u /* tensors from here on cannot leave */

struct layout {
	struct slabs slabs;
	struct slab slab[SLABS];
	struct extents *extents;
	unsigned asked;
};

static void open_layout(struct layout *l)
{
	struct err err = ERR_INIT;

	*l = (struct layout){ .slabs = { .count = SLABS, .bytes = SLAB, .end = END } };
	l->slabs.slab = l->slab;
	for (unsigned i = 0; i < SLABS; i++)
		l->slab[i].state = SLAB_PRESENT;
	ck_assert_int_eq(extents_create(END, GRANULE_SMALL, &l->extents, &err), 0);
}

static bool take(struct layout *l, uint64_t offset, uint64_t bytes, uint32_t owner)
{
	struct extent x;

	return extents_take_at(l->extents, offset, bytes, owner, &x) == 0;
}

static bool make_absent(struct layout *l, uint32_t i)
{
	if (!take(l, slab_begin(&l->slabs, i), slab_length(&l->slabs, i), OWNER_SLAB))
		return false;
	l->slab[i].state = SLAB_ABSENT;
	return true;
}

static bool leaves(void *ctx, const struct extent *x)
{
	struct layout *l = ctx;

	l->asked++;
	return x->owner < STUCK;
}

static struct way find(struct layout *l, uint64_t bytes, uint32_t slabs, bool anybody)
{
	struct slab_need need = { .bytes = bytes, .slabs = slabs, .ctx = l };

	if (anybody)
		need.leaves = leaves;
	return slab_search_way(&l->slabs, l->extents, &need);
}

/* Six slabs of eight have memory, all of it is needed in one piece, and what stands in the second
 * could leave. */
START_TEST(the_only_way_leads_over_a_tensor_that_could_leave)
{
	struct layout l;
	struct way way;

	open_layout(&l);
	ck_assert(take(&l, 53248, 8192, 7) && make_absent(&l, 2) && make_absent(&l, 7));
	ck_assert(!find(&l, 118784 + 69632, 0, false).found);
	way = find(&l, 118784 + 69632, 0, true);
	ck_assert(way.found);
	ck_assert_uint_eq(way.begin, 0);
	ck_assert_uint_eq(way.cost, 1);
	ck_assert_uint_eq(way.leave_bytes, 8192);
	ck_assert_uint_eq(slab_search_spare(&l.slabs, l.extents, &way), 6);
	/* With memory for one slab more nobody has to leave: the other is given for. */
	way = find(&l, 118784 + 69632, 1, true);
	ck_assert(way.found);
	ck_assert_uint_eq(way.begin, 61440);
	ck_assert_uint_eq(way.cost, 2);
	ck_assert_uint_eq(way.leave_bytes, 0);
	ck_assert_uint_eq(slab_search_spare(&l.slabs, l.extents, &way), 0);
	extents_destroy(l.extents);
}
END_TEST

START_TEST(who_cannot_leave_is_passed_by)
{
	struct layout l;
	struct way way;

	open_layout(&l);
	ck_assert(take(&l, 53248, 8192, STUCK) && make_absent(&l, 2) && make_absent(&l, 7));
	ck_assert(!find(&l, 118784 + 69632, 0, true).found);
	/* Nor is a slab a way that is on its own way in or out. */
	way = find(&l, 118784 + 69632, 1, true);
	ck_assert(way.found && way.begin == 61440);
	l.slab[2].state = SLAB_LEAVING;
	ck_assert(!find(&l, 118784 + 69632, 1, true).found);
	extents_destroy(l.extents);
}
END_TEST

START_TEST(a_slab_is_given_that_nobody_has_mapped_and_none_that_was_kept)
{
	struct layout l;
	struct way way;

	open_layout(&l);
	ck_assert(make_absent(&l, 3) && take(&l, 0, 512, 1));
	way = (struct way){ .begin = 3 * SLAB, .end = 4 * SLAB, .cost = 1, .found = true };
	ck_assert_uint_eq(slab_search_spare(&l.slabs, l.extents, &way), 7);
	l.slab[7].importers = l.slab[6].importers = 1;
	ck_assert_uint_eq(slab_search_spare(&l.slabs, l.extents, &way), 5);
	l.slab[1].importers = l.slab[2].importers = l.slab[4].importers = l.slab[5].importers = 1;
	ck_assert_uint_eq(slab_search_spare(&l.slabs, l.extents, &way), 7);
	l.slab[7].kept = true;
	ck_assert_uint_eq(slab_search_spare(&l.slabs, l.extents, &way), 6);
	for (unsigned i = 0; i < SLABS; i++)
		l.slab[i].kept = true;
	ck_assert_uint_eq(slab_search_spare(&l.slabs, l.extents, &way), SLABS);
	ck_assert(find(&l, 2 * SLAB, 0, false).found); /* a hole */
	ck_assert(!find(&l, 5 * SLAB, 0, false).found);
	l.slab[1].kept = false;
	ck_assert(find(&l, 5 * SLAB, 0, false).found);
	extents_destroy(l.extents);
}
END_TEST

START_TEST(idle_is_what_nothing_has_stood_in_for_long_enough)
{
	struct layout l;
	uint64_t next_ns;

	open_layout(&l);
	ck_assert(make_absent(&l, 6) && take(&l, 5 * SLAB + 512, 512, 1));
	for (unsigned i = 0; i < SLABS; i++)
		l.slab[i].touched_ns = 100 + i;
	ck_assert_uint_eq(slab_search_idle(&l.slabs, l.extents, 113, 10, &next_ns), 3);
	ck_assert_uint_eq(next_ns, 114);
	ck_assert_uint_eq(slab_search_idle(&l.slabs, l.extents, 109, 10, &next_ns), SLABS);
	ck_assert_uint_eq(next_ns, 110);
	ck_assert_uint_eq(slab_search_idle(&l.slabs, l.extents, 100, 0, &next_ns), 0);
	ck_assert_uint_eq(slab_search_idle(&l.slabs, l.extents, 200, 10, &next_ns), 7);
	ck_assert(next_ns == ENGINE_NEVER);
	extents_destroy(l.extents);
}
END_TEST

/* ---- every address ---- */

static uint64_t random_state;

static uint64_t below(uint64_t n)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (random_state >> 33) % n;
}

static void fill_by_seed(struct layout *l, uint64_t seed)
{
	random_state = seed;
	open_layout(l);
	for (uint64_t n = below(6); n > 0; n--)
		make_absent(l, (uint32_t)below(SLABS));
	for (uint64_t n = below(6); n > 0; n--) {
		uint32_t owner = (uint32_t)(n + (below(4) == 0 ? STUCK : 0));

		if (below(3) == 0)
			take(l, below(END / 512) * 512, 512 * (1 + below(7)), owner);
		else
			take(l, below(END / GRANULE) * GRANULE, GRANULE * (1 + below(20)), owner);
	}
	for (uint64_t n = below(3); n > 0; n--)
		l->slab[below(SLABS)].kept = true;
}

static bool touches(const struct extent *x, uint64_t begin, uint64_t end)
{
	return x->offset < end && x->offset + x->bytes > begin;
}

/* What the range would take: false if it cannot be. */
static bool judge(const struct layout *l, uint64_t begin, uint64_t end, uint32_t slabs,
		  struct way *ret)
{
	struct extent x = { .node = EXTENT_NONE };
	uint32_t spares = 0;

	*ret = (struct way){ .begin = begin, .end = end, .found = true };
	while (extents_next(l->extents, x.node, &x)) {
		for (uint32_t i = 0; i < SLABS; i++) {
			uint64_t b = slab_begin(&l->slabs, i), e = b + slab_length(&l->slabs, i);

			spares += x.owner == EXTENT_FREE && x.offset <= b &&
				  x.offset + x.bytes >= e && (e <= begin || b >= end) &&
				  !l->slab[i].kept;
		}
		if (!touches(&x, begin, end) || x.owner == EXTENT_FREE)
			continue;
		if (x.owner == OWNER_SLAB)
			ret->cost++;
		else if (x.owner < STUCK)
			ret->leave_bytes += x.bytes;
		else
			return false;
	}
	return ret->cost <= slabs + spares;
}

START_TEST(no_address_would_have_been_cheaper)
{
	unsigned found = 0, none = 0;

	for (uint64_t seed = 1; seed <= 20000; seed++) {
		struct way best = { .found = false }, at, way;
		struct layout l;
		uint32_t slabs;
		uint64_t bytes;

		fill_by_seed(&l, seed);
		bytes = GRANULE * (1 + below(END / GRANULE));
		slabs = (uint32_t)below(3);
		for (uint64_t begin = 0; begin + bytes <= END; begin += GRANULE)
			if (judge(&l, begin, begin + bytes, slabs, &at) &&
			    (!best.found || at.leave_bytes < best.leave_bytes ||
			     (at.leave_bytes == best.leave_bytes && at.cost < best.cost)))
				best = at;
		way = find(&l, bytes, slabs, true);
		ck_assert_uint_le(l.asked, 6);
		ck_assert_msg(way.found == best.found && way.leave_bytes == best.leave_bytes &&
				      way.cost == best.cost,
			      "seed %llu", (unsigned long long)seed);
		if (way.found) {
			ck_assert(judge(&l, way.begin, way.end, slabs, &at));
			ck_assert_uint_eq(at.cost, way.cost);
			ck_assert_uint_eq(way.end - way.begin, bytes);
		}
		found += way.found;
		none += !way.found;
		extents_destroy(l.extents);
	}
	ck_assert_uint_gt(found, 2000);
	ck_assert_uint_gt(none, 2000);
}
END_TEST

UNIT_MAIN("slab_search", the_only_way_leads_over_a_tensor_that_could_leave,
	  who_cannot_leave_is_passed_by,
	  a_slab_is_given_that_nobody_has_mapped_and_none_that_was_kept,
	  idle_is_what_nothing_has_stood_in_for_long_enough, no_address_would_have_been_cheaper)

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/heap.h"

static const struct heap_site *last;
static unsigned asked;
static bool refusing;

static bool refuses(const struct heap_refusal *r, const struct heap_site *site)
{
	last = site;
	asked++;
	return refusing;
}
static const struct heap_refusal refusal = { refuses };

/* Every way of taking memory, by number; NULL: there is none. */
static void *take(unsigned way)
{
	switch (way) {
	case 0:
		return heap_zeros(3, 100);
	case 1:
		return heap_aligned_zeros(64, 128);
	case 2:
		return heap_text("abc");
	case 3:
		return heap_grow(NULL, 3, 100);
	default:
		return heap_map(8192);
	}
}
#define WAYS 5u

static void give(unsigned way, void *memory)
{
	if (way < WAYS - 1)
		heap_free(memory);
	else
		heap_unmap(memory, 8192);
}

START_TEST(what_was_taken_is_counted_until_it_is_given_back)
{
	uint64_t before = heap_taken();
	void *memory[WAYS];

	for (unsigned i = 0; i < WAYS; i++)
		ck_assert_ptr_nonnull(memory[i] = take(i));
	ck_assert_uint_eq(heap_taken(), before + WAYS);
	for (unsigned i = 0; i < WAYS; i++)
		give(i, memory[i]);
	heap_free(NULL);
	heap_unmap(NULL, 0);
	ck_assert_uint_eq(heap_taken(), before);
}
END_TEST

START_TEST(each_way_is_refused_at_its_place_and_takes_nothing)
{
	uint64_t before = heap_taken();

	heap_refuse(&refusal);
	refusing = true;
	for (unsigned i = 0; i < WAYS; i++) {
		const struct heap_site *was = last;

		errno = 0;
		ck_assert_ptr_null(take(i));
		ck_assert_int_eq(errno, ENOMEM);
		ck_assert_ptr_ne(last, was);
		ck_assert_str_eq(last->function, "take");
		ck_assert_str_eq(heap_site_file(last), "tests/unit/check_heap.c");
	}
	errno = 0;
	ck_assert(heap_refused());
	ck_assert_int_eq(errno, ENOMEM);
	heap_refuse(NULL);
	ck_assert(!heap_refused());
	ck_assert_uint_eq(asked, WAYS + 1);
	ck_assert_uint_eq(heap_taken(), before);
}
END_TEST

START_TEST(what_cannot_grow_stays_as_it_was)
{
	char *memory = heap_text("abc");

	heap_refuse(&refusal);
	refusing = true;
	ck_assert_ptr_null(heap_grow(memory, 1000, 8));
	ck_assert_str_eq(memory, "abc");
	refusing = false;
	memory = heap_grow(memory, 1000, 8);
	ck_assert_str_eq(memory, "abc");
	ck_assert_ptr_null(heap_grow(memory, SIZE_MAX / 4, 8));
	ck_assert_str_eq(memory, "abc");
	heap_refuse(NULL);
	heap_free(memory);
	ck_assert_uint_eq(heap_taken(), 0);
}
END_TEST

START_TEST(memory_comes_as_zeros_and_aligned)
{
	static const char zeros[128];
	void *none = heap_zeros(0, 0), *memory = heap_aligned_zeros(64, 128);

	ck_assert_ptr_nonnull(none);
	ck_assert_uint_eq((uintptr_t)memory % 64, 0);
	ck_assert_mem_eq(memory, zeros, 128);
	heap_free(none);
	heap_free(memory);
}
END_TEST

START_TEST(all_places_of_the_program_are_known)
{
	size_t n, own = 0;
	const struct heap_site *sites = heap_sites(&n);

	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_gt(sites[i].line, 0);
		own += strcmp(sites[i].function, "take") == 0;
	}
	ck_assert_uint_eq(own, WAYS);
}
END_TEST

UNIT_MAIN("heap", what_was_taken_is_counted_until_it_is_given_back,
	  each_way_is_refused_at_its_place_and_takes_nothing, what_cannot_grow_stays_as_it_was,
	  memory_comes_as_zeros_and_aligned, all_places_of_the_program_are_known)

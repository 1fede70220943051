/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/seqset.h"

#include <errno.h>

#include "base/check.h"
#include "base/heap.h"

static uint64_t words(uint32_t bits)
{
	return ((uint64_t)bits + 63) / 64;
}

int seqset_create(struct seqset *s, uint32_t capacity)
{
	uint64_t bits = capacity;

	ASSERT(capacity > 0);
	*s = (struct seqset){ .capacity = capacity };
	do {
		uint64_t n = words((uint32_t)bits);

		ASSERT(s->levels < SEQSET_LEVELS);
		s->level[s->levels] = heap_zeros(n, sizeof(uint64_t));
		if (s->level[s->levels] == NULL) {
			seqset_destroy(s);
			return -ENOMEM;
		}
		s->levels++;
		bits = n;
	} while (bits > 1);
	return 0;
}

void seqset_destroy(struct seqset *s)
{
	for (unsigned i = 0; i < s->levels; i++)
		heap_free(s->level[i]);
	*s = (struct seqset){ 0 };
}

void seqset_add(struct seqset *s, uint32_t n)
{
	ASSERT(n < s->capacity);
	for (unsigned i = 0; i < s->levels; i++, n /= 64)
		s->level[i][n / 64] |= 1ull << (n % 64);
}

void seqset_remove(struct seqset *s, uint32_t n)
{
	if (!seqset_has(s, n))
		return; /* a set that nobody is in has no pages */
	for (unsigned i = 0; i < s->levels; i++, n /= 64) {
		s->level[i][n / 64] &= ~(1ull << (n % 64));
		if (s->level[i][n / 64] != 0)
			return;
	}
}

bool seqset_has(const struct seqset *s, uint32_t n)
{
	ASSERT(n < s->capacity);
	return s->level[0][n / 64] >> (n % 64) & 1;
}

/* Below a bit of a level that is set, the least (greatest) member. */
static uint32_t descend(const struct seqset *s, unsigned level, uint32_t n, bool least)
{
	while (level-- > 0) {
		uint64_t word = s->level[level][n];

		ASSERT(word != 0);
		n = n * 64 + (least ? (uint32_t)__builtin_ctzll(word)
				    : 63 - (uint32_t)__builtin_clzll(word));
	}
	return n;
}

uint32_t seqset_at_or_after(const struct seqset *s, uint32_t n)
{
	uint32_t at = n;

	if (n >= s->capacity)
		return SEQSET_NONE;
	for (unsigned i = 0; i < s->levels; i++) {
		uint64_t from = ~0ull << (at % 64); /* `at` itself counts on level 0 only */
		uint64_t word = s->level[i][at / 64] & (i == 0 ? from : from << 1);

		if (word != 0)
			return descend(s, i, at / 64 * 64 + (uint32_t)__builtin_ctzll(word), true);
		at /= 64;
	}
	return SEQSET_NONE;
}

uint32_t seqset_at_or_before(const struct seqset *s, uint32_t n)
{
	uint32_t at = n;

	ASSERT(n < s->capacity);
	for (unsigned i = 0; i < s->levels; i++) {
		uint64_t upto = ~0ull >> (63 - at % 64); /* as above */
		uint64_t word = s->level[i][at / 64] & (i == 0 ? upto : upto >> 1);

		if (word != 0)
			return descend(s, i, at / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word),
				       false);
		at /= 64;
	}
	return SEQSET_NONE;
}

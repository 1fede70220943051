/* SPDX-License-Identifier: Apache-2.0 */
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

struct state {
	uint64_t a, b, c, d;
};

static uint64_t rotate_left(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void half_round(uint64_t *a, uint64_t *b, uint64_t *c, uint64_t *d, unsigned s, unsigned t)
{
	*a += *b;
	*c += *d;
	*b = rotate_left(*b, s) ^ *a;
	*d = rotate_left(*d, t) ^ *c;
	*a = rotate_left(*a, 32);
}

static void rounds(struct state *v, unsigned n)
{
	while (n-- > 0) {
		half_round(&v->a, &v->b, &v->c, &v->d, 13, 16);
		half_round(&v->c, &v->b, &v->a, &v->d, 17, 21);
	}
}

static void absorb(struct state *v, uint64_t word)
{
	v->d ^= word;
	rounds(v, 2);
	v->a ^= word;
}

uint64_t siphash(struct siphash_key key, const void *data, size_t bytes)
{
	/* The constants spell "somepseudorandomlygeneratedbytes". */
	struct state v = {
		.a = key.half[0] ^ 0x736f6d6570736575u,
		.b = key.half[1] ^ 0x646f72616e646f6du,
		.c = key.half[0] ^ 0x6c7967656e657261u,
		.d = key.half[1] ^ 0x7465646279746573u,
	};
	const unsigned char *at = data;
	size_t left = bytes;
	uint64_t word;

	for (; left >= sizeof(word); at += sizeof(word), left -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		absorb(&v, le64toh(word));
	}
	word = 0;
	if (left > 0)
		memcpy(&word, at, left);
	absorb(&v, le64toh(word) | (uint64_t)bytes << 56);
	v.c ^= 0xff;
	rounds(&v, 4);
	return v.a ^ v.b ^ v.c ^ v.d;
}

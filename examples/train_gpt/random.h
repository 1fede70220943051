/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers that are the same on every run with the same seed: splitmix64, one state a stream,
 * so that no draw depends on what another part drew before. A value; any thread with its own.
 */
#ifndef TRAIN_GPT_RANDOM_H
#define TRAIN_GPT_RANDOM_H

#include <math.h>
#include <stdint.h>

struct random {
	uint64_t state;
};

static inline uint64_t random_next(struct random *r)
{
	uint64_t z = (r->state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Stream number `stream` of a seed; neighbouring streams share nothing. */
static inline struct random random_stream(uint64_t seed, uint64_t stream)
{
	struct random r = { seed };

	r.state = random_next(&r) ^ (stream * 0xd1342543de82ef95ull);
	r.state = random_next(&r);
	return r;
}

/* Below `bound`, which is not 0; the bias of the remainder is far below what training notices. */
static inline uint64_t random_below(struct random *r, uint64_t bound)
{
	return random_next(r) % bound;
}

/* Over (0, 1). */
static inline double random_unit(struct random *r)
{
	return ((double)(random_next(r) >> 11) + 0.5) * 0x1p-53;
}

/* Normal, mean 0, deviation 1 (Box and Muller; the second value is not kept: a value, no memory).
 */
static inline double random_normal(struct random *r)
{
	double radius = sqrt(-2.0 * log(random_unit(r)));

	return radius * cos(2.0 * 3.14159265358979323846 * random_unit(r));
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of numbers below a fixed capacity, as a tree of 64-bit words: adding, removing and finding
 * the neighbour of a number take a step a level (four for 16 million). Control thread; allocates
 * only in seqset_create(), and pages that are never touched cost nothing.
 */
#ifndef TIERD_POLICY_SEQSET_H
#define TIERD_POLICY_SEQSET_H

#include <stdbool.h>
#include <stdint.h>

#define SEQSET_LEVELS 6
#define SEQSET_NONE   UINT32_MAX

struct seqset {
	uint64_t *level[SEQSET_LEVELS]; /* [0]: a bit a number; above: a bit a word that is not 0 */
	unsigned levels;
	uint32_t capacity;
};

/* `capacity` is at least 1. 0 or -ENOMEM. */
int seqset_create(struct seqset *s, uint32_t capacity);
void seqset_destroy(struct seqset *s);
void seqset_add(struct seqset *s, uint32_t n);
void seqset_remove(struct seqset *s, uint32_t n);
bool seqset_has(const struct seqset *s, uint32_t n);
/* The least member >= n, the greatest member <= n; SEQSET_NONE when there is none. */
uint32_t seqset_at_or_after(const struct seqset *s, uint32_t n);
uint32_t seqset_at_or_before(const struct seqset *s, uint32_t n);

#endif

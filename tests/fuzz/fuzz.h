/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzzers share. A fuzzer is one function that takes any bytes and stops the process by an
 * assertion or a sanitizer when something is wrong. With libFuzzer (--enable-fuzzer) it is called
 * with new bytes for ever; without, replay.c feeds it the files of its corpus. One thread.
 */
#ifndef TIERD_TESTS_FUZZ_H
#define TIERD_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* An input as a language reads it: one number after the other, zeros once it has ended. */
struct fuzz_bytes {
	const uint8_t *at, *end;
};

static inline bool fuzz_ended(const struct fuzz_bytes *b)
{
	return b->at == b->end;
}

static inline uint8_t fuzz_u8(struct fuzz_bytes *b)
{
	return fuzz_ended(b) ? 0 : *b->at++;
}

/* Little-endian, of `n` bytes. */
static inline uint64_t fuzz_number(struct fuzz_bytes *b, unsigned n)
{
	uint64_t ret = 0;

	for (unsigned i = 0; i < n; i++)
		ret |= (uint64_t)fuzz_u8(b) << (8 * i);
	return ret;
}

/* At most `room` of what follows; returns how many. */
static inline size_t fuzz_copy(struct fuzz_bytes *b, void *to, size_t room)
{
	size_t n = MIN(room, (size_t)(b->end - b->at));

	memcpy(to, b->at, n);
	b->at += n;
	return n;
}

/* A count that the end of the process prints: "fuzz_ring: 12345 entries". */
void fuzz_count(const char *what, uint64_t n);

/* Open descriptors of the process. */
unsigned fuzz_descriptors(void);
/* Asserts that there are `before` of them. */
void fuzz_check_descriptors(unsigned before);

#endif

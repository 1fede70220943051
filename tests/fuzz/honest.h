/* SPDX-License-Identifier: Apache-2.0
 *
 * A client beside those that keep no rules: it knows every byte of its tensors, and wants them
 * right wherever they stand. What others may do to them by the protocol's own rules (one domain
 * shares its bytes) is kept from them by the linker: a copy_in and a DISCARD. One thread.
 */
#ifndef TIERD_TESTS_FUZZ_HONEST_H
#define TIERD_TESTS_FUZZ_HONEST_H

#include <stdbool.h>

#include "tests/fuzz/daemon.h"

#define HONEST_TENSORS 8u

struct honest_tensor {
	struct wire_handle handle;
	uint64_t bytes;
	uint8_t version; /* what is written there; 0: nothing yet */
	bool asked;
	int result;            /* of the last answer */
	uint8_t place, access; /* of what was asked for */
};

struct honest {
	struct fuzz_daemon *daemon;
	struct holder *holder;
	pin_slot pins[WORLD_TENSORS];
	struct honest_tensor tensor[HONEST_TENSORS];
	uint64_t pinned_word0, pinned_word1; /* of the first one, which is pinned all the time */
};

/* Joins, makes its tensors and writes them. */
void honest_join(struct honest *h, struct fuzz_daemon *d);
/* Asks for one of its tensors, to read it or to write something new. */
void honest_ask(struct honest *h, unsigned i, uint8_t place, bool write, uint64_t timeout_ns);
/* Those that stand somewhere have the right bytes there, and the pinned one stands where it did. */
void honest_look(struct honest *h);
/* Once all others are gone: reads all that it has, and leaves. */
void honest_leave(struct honest *h);

#endif

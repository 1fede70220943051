/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fake libtierd of tests/fake/tierd.c saw.
 */
#ifndef TIERD_TESTS_FAKE_TIERD_H
#define TIERD_TESTS_FAKE_TIERD_H

#include <stdint.h>

#include "libclient/tierd.h"

struct fake_tierd_counts {
	uint64_t created[TIERD_CLASSES], acquired[TIERD_CLASSES];
	uint64_t prefetched, evicted, steps;
	uint64_t on_stream; /* of the views acquired */
};

/* Of the connection that was closed last. */
struct fake_tierd_counts fake_tierd_counts(void);

#endif

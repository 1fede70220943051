/* SPDX-License-Identifier: Apache-2.0
 *
 * SipHash-2-4: a hash under a secret key, for tables whose keys a hostile client picks. Any thread.
 */
#ifndef TIERD_BASE_SIPHASH_H
#define TIERD_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
	uint64_t half[2];
};

uint64_t siphash(struct siphash_key key, const void *data, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel offers of 2 MiB pages for shared memory: a pool that root filled, or transparent
 * ones that an madvise() asks for. Control thread, at start.
 */
#ifndef TIERD_TIERS_HUGEPAGE_H
#define TIERD_TIERS_HUGEPAGE_H

#include <stdbool.h>
#include <stdint.h>

#define HUGE_BYTES (2u << 20)

/* Free bytes of the pool that nobody has reserved. */
uint64_t hugepage_pool_bytes(void);
/* Whether an madvise() on shared memory has an effect at all. */
bool hugepage_shmem_advice(void);
/* How many bytes of a mapping stand on transparent large pages now. */
uint64_t hugepage_mapped_bytes(const void *base, uint64_t bytes);

#endif

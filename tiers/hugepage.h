/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel offers of 2 MiB pages for shared memory: a pool that root filled, or transparent
 * ones that are asked for one by one. Any thread.
 */
#ifndef TIERD_TIERS_HUGEPAGE_H
#define TIERD_TIERS_HUGEPAGE_H

#include <stdint.h>

#define HUGE_BYTES (2u << 20)

/* Free bytes of the pool that nobody has reserved. */
uint64_t hugepage_pool_bytes(void);
/* Puts [base, bytes) of a shared mapping on 2 MiB pages where the kernel can, whatever its switches
 * say of those (MADV_COLLAPSE, Linux 6.1); pages not there yet come as zeros, and sooner than by
 * touching each. Returns how many 2 MiB pages could not be had; it stops after a few in a row.
 * *ret_came is how many bytes stand on large pages now. */
unsigned hugepage_collapse(void *base, uint64_t bytes, uint64_t *ret_came);
/* How many bytes of a mapping stand on transparent large pages now. */
uint64_t hugepage_mapped_bytes(const void *base, uint64_t bytes);

#endif

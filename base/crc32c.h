/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C (Castagnoli, reflected, initial and final value all ones), by libisal. Any thread.
 */
#ifndef TIERD_BASE_CRC32C_H
#define TIERD_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC of `bytes` bytes at `data`; crc32c(crc32c(0, a), b) is the CRC of a followed by b. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

#endif

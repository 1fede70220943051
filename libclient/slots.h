/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks of the own pin table. Only pages that exist are looked at: reading a hole would make it
 * one. Any thread.
 */
#ifndef TIERD_CLIENT_SLOTS_H
#define TIERD_CLIENT_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/client.h"

/* Calls `is` for each slot until one is; false: none was. */
bool slots_any(struct tierd *t, bool (*is)(struct tierd *t, uint32_t index, void *ctx), void *ctx);

#endif

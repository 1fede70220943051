/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading struct wire_info. Any thread.
 */
#ifndef TIERD_CLIENT_INFO_H
#define TIERD_CLIENT_INFO_H

#include <stddef.h>

#include "libclient/tierd.h"

/* Reads the record at `from`, of which `room` bytes are there (shared memory: it is copied first).
 * Returns the record's length, or -EPROTO. */
int info_read(const void *from, size_t room, struct tierd_info *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers for people, and the names of what the protocol numbers. Pure; any thread.
 */
#ifndef TIERD_TIERCTL_TEXT_H
#define TIERD_TIERCTL_TEXT_H

#include <stdint.h>

#include "base/compiler.h"

#define TEXT_ROOM 32

/* A transfer that a lane has had for longer is told of: no device that works takes so long. */
#define TEXT_HANGS_NS (10 * NS_PER_S)

/* "?" for a number without a name. */
const char *text_class(uint32_t class_);
const char *text_dtype(uint32_t dtype);
const char *text_state(uint32_t state);

/* "0", "512 B", "4.0 KiB", "28.8 GiB": three digits or four. Returns `ret`. */
const char *text_bytes(uint64_t bytes, char ret[TEXT_ROOM]);
/* "0", "350 us", "12.5 s", "3 h 12 min". */
const char *text_duration(uint64_t ns, char ret[TEXT_ROOM]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of bytes that nobody reads again soon. Any thread.
 */
#ifndef TIERD_BASE_COPY_H
#define TIERD_BASE_COPY_H

#include <stddef.h>

/* memcpy() past the caches: stores do not read the lines that they overwrite, and what others have
 * cached stays. For megabytes at a time; everything is visible to other threads by whatever
 * publishes it afterwards. The ranges do not overlap. */
void copy_stream(void *to, const void *from, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins that end when a stream gets there. A stream that releases has a word of C, which it writes,
 * and a ring, from which the daemon lowers the pins that the word has passed. A lock of each keeps
 * entries and writes of a stream in one order; no stream waits for another. Any thread.
 */
#ifndef TIERD_CLIENT_DEFERRED_H
#define TIERD_CLIENT_DEFERRED_H

#include "libclient/client.h"
#include "libclient/gpu.h"

/* Ends `n` views, which pin, at this point of the stream, and zeroes them. Where no word or no
 * room is free, waits for the stream first. A failure is the stream's; they are released anyhow. */
int deferred_release(struct tierd *t, struct gpu_stream *s, struct tierd_view *views, size_t n);
/* tierd_close(): waits until streams have passed their fences and words and the daemon has lowered
 * every pin. False: not within its patience, and then nothing may be unmapped. */
bool deferred_settle(struct tierd *t);

#endif

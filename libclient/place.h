/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU's ordinal is the caller's own, after its CUDA_VISIBLE_DEVICES; the wire's place is the
 * daemon's. What was found out stands in hot.places. Any thread.
 */
#ifndef TIERD_CLIENT_PLACE_H
#define TIERD_CLIENT_PLACE_H

#include "libclient/client.h"

/* Once, after the arenas are known. */
void place_start(struct tierd *t);
/* What place_to_wire() does not know: opens the driver where UUIDs must be compared. -ENODEV. */
int place_find(struct tierd *t, int place, uint8_t *ret);
/* The caller's ordinal of a wire's place. find: opens the driver if need be; else only what is
 * known already. -ENODEV: this process does not see that GPU, or has not looked. */
int place_ordinal(struct tierd *t, uint8_t wire, bool find, int *ret);

#endif

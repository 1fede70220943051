/* SPDX-License-Identifier: Apache-2.0
 *
 * What of the shared memory this process has registered with CUDA: the pages of fences and stream
 * words, and pieces of the zone of dram. Once each, when it is used first; `register_lock` guards
 * it. Any thread.
 */
#ifndef TIERD_CLIENT_REGISTRATION_H
#define TIERD_CLIENT_REGISTRATION_H

#include "libclient/client.h"
#include "libclient/gpu.h"

int registration_fences(struct tierd *t, struct gpu_stream *s);
/* All pieces that [offset, bytes) of the zone touches. A copy goes over one piece at a time. */
int registration_zone(struct tierd *t, struct gpu_stream *s, uint64_t offset, uint64_t bytes);
void registration_undo(struct tierd *t);

#endif

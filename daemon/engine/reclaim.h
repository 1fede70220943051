/* SPDX-License-Identifier: Apache-2.0
 *
 * Making room: which fronts go (the policies pick, the engine re-checks), what is dropped at once
 * and what is cleaned first, and compaction where there is room but no hole. Control thread.
 */
#ifndef TIERD_ENGINE_RECLAIM_H
#define TIERD_ENGINE_RECLAIM_H

#include "daemon/engine/state.h"

/* Whether the tensor's front on `device` could be taken now. */
bool reclaim_eligible(struct engine *e, uint8_t device, uint32_t tensor);
/* Whether there is a tier below that could take the tensor's bytes, or already has them. */
bool reclaim_has_home(const struct engine *e, const struct record *r, uint8_t device);
/* Whether room is wanted there now. */
bool reclaim_presses(struct engine *e, uint8_t device);
/* What it costs to bring bytes back that leave it. */
struct policy_cost reclaim_cost(const struct engine *e, uint8_t device);
/* For the head of the device's queue, which lacks `bytes` in all. */
void reclaim_for(struct engine *e, uint8_t device, uint64_t bytes);
/* nvme is full: copies of what stands valid in a front go, `bytes` of them if there are. Returns
 * what came free. */
uint64_t reclaim_nvme(struct engine *e, uint64_t bytes);
/* Pins are gone: whom policies were denied may be asked for again. */
void reclaim_ask_all(struct engine *e);
/* Above the high watermark, or when moves from above want room. */
void reclaim_device(struct engine *e, uint8_t device);

#endif

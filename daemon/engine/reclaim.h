/* SPDX-License-Identifier: Apache-2.0
 *
 * Making room: which fronts go (the policies pick, the engine re-checks), what is dropped at once
 * and what is cleaned first, and compaction where there is room but no hole. Control thread.
 */
#ifndef TIERD_ENGINE_RECLAIM_H
#define TIERD_ENGINE_RECLAIM_H

#include "daemon/engine/quota.h"

/* Whether the tensor's front on `device` could be taken now. */
bool reclaim_eligible(struct engine *e, uint8_t device, uint32_t tensor);
/* Whether there is a tier below that has room to take the tensor's bytes, or already has them. */
bool reclaim_has_home(const struct engine *e, uint32_t tensor, uint8_t device);
/* Whether that is so whatever becomes of dram. */
bool reclaim_needs_no_dram(const struct engine *e, uint32_t tensor, uint8_t device);
/* Whether room is wanted there now. */
bool reclaim_presses(struct engine *e, uint8_t device);
/* What it costs to bring bytes back that leave it. */
struct policy_cost reclaim_cost(const struct engine *e, uint8_t device);
/* For a request of the device's queue whose turn it is, and which lacks `bytes` in all. */
void reclaim_for(struct engine *e, struct request *q, uint8_t device, uint64_t bytes);
/* Likewise, but only tensors of that account make room. */
void reclaim_own(struct engine *e, struct request *q, const struct account *own, uint8_t device,
		 uint64_t bytes);
/* Room is free, but in pieces: one victim more. Whether anything moves. */
bool reclaim_more(struct engine *e, struct request *q, uint8_t device);
/* nvme is full (`why` -ENOSPC), or what the tensor's namespace may have of it (-EDQUOT): copies of
 * what stands valid in a front go, `bytes` of them if there are. Returns what came free. */
uint64_t reclaim_nvme(struct engine *e, uint32_t tensor, uint64_t bytes, int why);
/* Pins are gone: whom policies were denied may be asked for again. */
void reclaim_ask_all(struct engine *e);
/* Above the high watermark, or when moves from above want room. */
void reclaim_device(struct engine *e, uint8_t device);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How much is admitted: by one sum, at create, so that nothing that exists is ever without a home.
 * Control thread.
 */
#ifndef TIERD_ENGINE_ADMISSION_H
#define TIERD_ENGINE_ADMISSION_H

#include "daemon/engine/state.h"

/* 0, or -ENOSPC, -EDQUOT or -ENOTSUP with the sentence. */
int admission_check(struct engine *e, const struct holder *h, const struct engine_spec *s,
		    uint64_t bytes, struct err *err);
/* What a tensor of so many bytes counts. */
uint64_t admission_rounded(uint64_t bytes);
/* A tensor has come or gone. */
void admission_count(struct engine *e, uint32_t tensor, bool in);
uint64_t admission_bytes(struct engine *e);
/* What of the zone, or of the rest of dram, is not taken for good by small tensors. */
uint64_t admission_dram_for_moves(const struct engine *e, bool zoned);

#endif

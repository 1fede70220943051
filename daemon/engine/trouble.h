/* SPDX-License-Identifier: Apache-2.0
 *
 * Write-backs for room that fail: who waits for that room is told, and nobody else. What is known
 * stands at the device, and at the share of each account there. Control thread.
 */
#ifndef TIERD_ENGINE_TROUBLE_H
#define TIERD_ENGINE_TROUBLE_H

#include "daemon/engine/quota.h"

/* A write-back for room has failed; the one of that tensor before it did at `before_ns`, 0: not. */
void trouble_note(struct engine *e, const struct move *m, uint64_t before_ns);
/* One of the tensor went well. */
void trouble_forget(struct engine *e, uint32_t tensor);
/* Ends the request, for which nobody can go by that demand, if something of what could make room
 * has failed twice since it waits. */
void trouble_tell(struct engine *e, struct request *request, uint8_t device,
		  const struct quota_demand *demand);
/* Why something that would make room for the request could not be written back a moment ago; NULL:
 * nothing such stands there. */
const char *trouble_text(struct engine *e, struct request *request);

#endif

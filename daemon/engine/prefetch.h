/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefetch: what hints say will be needed is brought into free room, earliest need first, inside a
 * byte budget, and never by evicting anything: reclaim keeps room below the watermark. A hint
 * without room waits, and only those of its device that need as much wait with it. Control thread.
 */
#ifndef TIERD_ENGINE_PREFETCH_H
#define TIERD_ENGINE_PREFETCH_H

#include "daemon/engine/state.h"

/* Of one device: begins what has room; whether any waits; drops all. */
void prefetch_run(struct engine *e, uint8_t device);
bool prefetch_waits(const struct engine *e, uint8_t device);
void prefetch_forget(struct engine *e, uint8_t device);
/* The tensor waits for no hint any more, if it did. */
void prefetch_cancel(struct engine *e, uint32_t tensor);

#endif

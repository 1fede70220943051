/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of all devices as one: submits by device, kicks those that got something once a turn,
 * reaps them all into the engine. Owns the eventfd by which lanes wake the control thread. Control
 * thread.
 */
#ifndef TIERD_DAEMON_LANES_H
#define TIERD_DAEMON_LANES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/engine/engine.h"
#include "tiers/lane.h"

struct lanes {
	struct lane *lane[ENGINE_DEVICES_MAX];
	bool kick[ENGINE_DEVICES_MAX];
	unsigned count;
	int done_fd;
	bool closed; /* what is submitted comes back as -ECANCELED */
	struct list refused;
	_Atomic uint32_t done_wanted;
};

int lanes_start(struct tier *const *devices, unsigned count, struct lanes *ret, struct err *err);
/* Every xfer was reaped before. */
void lanes_stop(struct lanes *lanes);

void lanes_submit(struct lanes *lanes, unsigned device, struct xfer *x);
void lanes_kick(struct lanes *lanes);
/* Hands finished xfers to the engine, at most `budget` a lane; returns how many. */
unsigned lanes_reap(struct lanes *lanes, struct engine *engine, unsigned budget, uint64_t now_ns);
/* The end: what is on its way comes back, what would start now fails at once. Returns when the
 * engine has nothing in flight. */
void lanes_drain(struct lanes *lanes, struct engine *engine);

#endif

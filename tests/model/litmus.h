/* SPDX-License-Identifier: Apache-2.0
 *
 * The two sides of each litmus: what one thread of a client does and what the daemon's does, by the
 * functions that they really call. litmus.c runs them against each other.
 */
#ifndef TIERD_TESTS_MODEL_LITMUS_H
#define TIERD_TESTS_MODEL_LITMUS_H

#include <stdbool.h>
#include <stdint.h>

#include "libclient/protocol/layout.h"

#define LITMUS_RING 4096u

/* What both sides map. */
struct litmus {
	_Alignas(64) _Atomic uint32_t awake;
	_Alignas(64) _Atomic uint32_t sq_tail;
	_Alignas(64) uint64_t sq[LITMUS_RING * 8];
	_Alignas(64) struct access_log logs[LOGS];
	struct descriptor *descriptors;
	pin_slot *slots;
	struct wire_handle tensor; /* stands in dram */
	struct engine *engine;
};

/* ---- client (litmus_client.c), one thread ---- */

void litmus_client_begin(struct litmus *l);
/* Whether the pin stands; then unpin, if it does. */
bool litmus_pin(void);
void litmus_unpin(void);
/* Stores an entry in the ring, or in the log, and pins. Whether the daemon is to be woken. */
bool litmus_submit(void);
bool litmus_use(void);

/* ---- daemon (litmus_daemon.c), one thread ---- */

void litmus_daemon_begin(struct litmus *l);
/* Whether the front is closed; then open it again, if it is. */
bool litmus_close(void);
void litmus_reopen(void);
/* Whether it may not sleep: something is in the ring, or the log; takes it. Then wake up. */
bool litmus_sleep_by_ring(void);
bool litmus_sleep_by_log(void);
void litmus_wake(void);
/* Takes what is there, once the client is quiet. */
void litmus_drain(void);

#endif

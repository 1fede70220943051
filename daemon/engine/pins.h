/* SPDX-License-Identifier: Apache-2.0
 *
 * What the daemon learns from, and does to, the pin tables of its clients. The slots are written by
 * clients at any time: every read is one seq_cst load, every change a compare-exchange that touches
 * one bit. Tables of dead clients (tombstones) have no pins, but their `written` and `filled` bits
 * are still facts. Control thread.
 */
#ifndef TIERD_ENGINE_PINS_H
#define TIERD_ENGINE_PINS_H

#include "daemon/engine/state.h"

struct pins {
	uint32_t pins, write_pins; /* of all live holders */
	bool written, filled;
	bool mine;       /* the asker holds one of the pins */
	int foreign_pid; /* of some other holder with a pin, 0: none */
};

/* Looks at every slot of `tensor` once. `asker` may be NULL. */
void pins_scan(struct engine *e, uint32_t tensor, const struct holder *asker, struct pins *ret);
/* Whether anybody pins it: the short form. */
bool pins_any(struct engine *e, uint32_t tensor);
/* How long to leave it at having looked at the slots of so many tensors: twenty times what that
 * took, so that others lose a twentieth of the time to one who waits, however many tensors and
 * clients there are. */
uint64_t pins_rest_ns(const struct engine *e, uint64_t tensors);
/* Takes `written` out of the slots that have no write pins. Returns whether one was set; bits
 * beside a write pin stay. */
bool pins_clear_written(struct engine *e, uint32_t tensor);
void pins_clear_filled(struct engine *e, uint32_t tensor);

#endif

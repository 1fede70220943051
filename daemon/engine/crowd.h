/* SPDX-License-Identifier: Apache-2.0
 *
 * Who pins how much of a device: for people who wait for room there, and for excess.c. Control
 * thread.
 */
#ifndef TIERD_ENGINE_CROWD_H
#define TIERD_ENGINE_CROWD_H

#include "daemon/engine/quota.h"

/* Whether pins of the tensor keep room of the device. */
bool crowd_stands(struct engine *e, uint8_t device, uint32_t tensor);
bool crowd_pins(const struct holder *h, uint32_t tensor);
/* Adds up what each client, and all clients of each account, have pinned there (`pinned_bytes`);
 * of tensors of the account `of` alone, NULL: of all. *slots: how many may be looked at, and then
 * how many more. Returns of how many tensors each client's slot was read. */
uint64_t crowd_count(struct engine *e, uint8_t device, const struct account *of, uint64_t *slots);

/* What was asked for last: those who wait for the same are told the same. Zeroed before use. */
struct crowd {
	bool known;
	uint8_t device;
	const struct account *of; /* of that account's tensors alone; NULL: of all */
	int pid;                  /* 0: nobody pins anything there */
	uint64_t bytes;
	uint64_t looks; /* slots that may be looked at yet; beyond that the answer is of a part */
};

void crowd_find(struct engine *e, uint8_t device, const struct account *of, struct crowd *c);

#endif

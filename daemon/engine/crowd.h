/* SPDX-License-Identifier: Apache-2.0
 *
 * Who pins most of a device, for people who wait for room there. Control thread.
 */
#ifndef TIERD_ENGINE_CROWD_H
#define TIERD_ENGINE_CROWD_H

#include "daemon/engine/quota.h"

/* What was asked for last: those who wait for the same are told the same. Zeroed before use. */
struct crowd {
	bool known;
	uint8_t device;
	const struct account *of; /* of that account's tensors alone; NULL: of all */
	int pid;                  /* 0: nobody pins anything there */
	uint64_t bytes;
	uint32_t looks; /* slots that may be looked at yet; beyond that the answer is of a part */
};

void crowd_find(struct engine *e, uint8_t device, const struct account *of, struct crowd *c);

#endif

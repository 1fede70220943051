/* SPDX-License-Identifier: Apache-2.0
 *
 * How many tensors would go before one, for people: what the policies would pick, one after the
 * other, as things are now. Nothing is changed by it. Control thread.
 */
#ifndef TIERD_ENGINE_RANK_H
#define TIERD_ENGINE_RANK_H

#include "daemon/engine/quota.h"

struct rank {
	uint32_t before;
	bool known;      /* it may go; false: it has no rank */
	bool least;      /* those, and more that were not looked at */
	bool guaranteed; /* others' need does not take it: those before it are its namespace's */
};

void rank_find(struct engine *e, uint32_t tensor, struct rank *ret);

#endif

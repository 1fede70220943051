/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's half of the pin handshake: taking a front away from clients (EVICTING, scan,
 * DROPPING) and taking over what their `written` and `filled` bits say. Control thread.
 */
#include <errno.h>

#include "daemon/engine/front.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/publish.h"
#include "daemon/engine/replica.h"

bool front_unfilled(struct engine *e, uint32_t tensor)
{
	return (word0_flags(word0_of(e, tensor)) & FLAG_UNFILLED) != 0;
}

/* What was written since the last look makes the front the only source. */
static void take_over_written(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);

	source_set(e, tensor, front_source(e, r));
}

uint8_t front_sources_now(struct engine *e, uint32_t tensor, const struct pins *pins)
{
	const struct record *r = record_of(e, tensor);
	bool said = front_unfilled(e, tensor) ? pins->filled : pins->written;

	/* What was written where a fill has failed is thrown away. */
	if (r->front == DEVICE_NONE || !said || state_of(e, tensor) == STATE_FAILED)
		return r->sources;
	return (uint8_t)front_source(e, r);
}

bool front_settle(struct engine *e, uint32_t tensor)
{
	struct pins pins;

	if (!front_unfilled(e, tensor))
		return true;
	/* A copy reads what is below: its blocks go when it has ended, and not before. */
	if (record_of(e, tensor)->move != 0)
		return false;
	pins_scan(e, tensor, NULL, &pins);
	if (!pins.filled)
		return false;
	take_over_written(e, tensor);
	publish(e, tensor, state_of(e, tensor), 0);
	return true;
}

int front_close(struct engine *e, uint32_t tensor, const struct holder *asker)
{
	struct record *r = record_of(e, tensor);
	bool unfilled = front_unfilled(e, tensor);
	uint16_t flags = unfilled ? FLAG_UNFILLED : 0;
	struct pins pins;

	ASSERT(r->front != DEVICE_NONE && r->move == 0);
	ASSERT(state_of(e, tensor) == STATE_RESIDENT);
	publish(e, tensor, STATE_EVICTING, flags);
	pins_scan(e, tensor, asker, &pins);
	if (pins.pins > 0) {
		publish(e, tensor, STATE_RESIDENT, flags);
		return pins.mine ? -EDEADLK : -EBUSY;
	}
	if (unfilled ? pins.filled : pins.written) {
		/* No pins: whoever sets the bit from here on backs out and leaves a false "dirty".
		 */
		pins_clear_written(e, tensor);
		take_over_written(e, tensor);
	}
	publish(e, tensor, STATE_DROPPING, 0);
	return 0;
}

void front_reopen(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);

	ASSERT(r->front != DEVICE_NONE);
	publish(e, tensor, STATE_RESIDENT, (r->sources & front_source(e, r)) ? 0 : FLAG_UNFILLED);
}

void front_forget(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);
	enum tier_kind kind = device_kind(e, r->front);

	front_set(e, tensor, DEVICE_NONE);
	replica_drop(e, tensor, kind);
	if (kind == TIER_KIND_HBM && (r->sources & SOURCE_DRAM) != 0)
		front_set(e, tensor, dram_of(e, r));
	publish(e, tensor, r->front == DEVICE_NONE ? STATE_ABSENT : STATE_RESIDENT, 0);
}

int front_drop(struct engine *e, uint32_t tensor)
{
	struct record *r = record_of(e, tensor);
	int rc = front_close(e, tensor, NULL);

	if (rc < 0)
		return -EBUSY;
	if ((r->sources & ~front_source(e, r)) == 0) {
		front_reopen(e, tensor);
		return -EAGAIN;
	}
	if (r->flags & RECORD_HINTED)
		stat_add(STAT(e, prefetches_unused), 1);
	r->flags &= (uint16_t)~RECORD_HINTED;
	stat_add(STAT(e, drops_clean), 1);
	front_forget(e, tensor);
	return 0;
}

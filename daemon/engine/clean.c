/* SPDX-License-Identifier: Apache-2.0
 *
 * Cleans: the front is copied to a lower tier while clients go on reading it. Whoever writes
 * meanwhile voids the copy.
 */
#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "daemon/engine/blocks.h"
#include "daemon/engine/front.h"
#include "daemon/engine/move.h"
#include "daemon/engine/piece.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/tensor.h"
#include "daemon/engine/trouble.h"

/* Blocks for all of the tensor. Where nvme is full of copies of what stands above, those go. */
static int take_map(struct engine *e, struct move *m)
{
	int rc;

	do
		rc = map_take(e, m->tensor, &m->to_map);
	while (reclaim_nvme(e, m->tensor, record_of(e, m->tensor)->bytes, rc) > 0);
	return rc;
}

/* Room for a clean's target: an extent in dram, or blocks on nvme. */
static int clean_target(struct engine *e, struct move *m, bool to_nvme)
{
	const struct record *r = record_of(e, m->tensor);
	uint8_t dram = dram_of(e, r);
	uint64_t lacks = 0;
	int rc = -ENODEV;

	if (!to_nvme && r->front != dram && !(r->flags & RECORD_LARGE)) {
		/* Whoever waits for dram was there first. */
		rc = !wants_room(e, dram) || (r->flags & RECORD_SMALL)
			     ? replica_take(e, dram, m->tensor, &m->to_node)
			     : -ENOSPC;
		m->to = dram;
		m->to_kind = TIER_KIND_DRAM;
		if (rc == -ENOSPC)
			lacks = replica_rounded(e, dram, r->bytes);
		if (rc == -EDQUOT)
			share_of(e, m->tensor, dram)->wanted_bytes +=
				replica_rounded(e, dram, r->bytes);
	}
	if (rc < 0 && e->nvme_first != DEVICE_NONE && !(r->flags & RECORD_SMALL)) {
		rc = take_map(e, m);
		m->to = DEVICE_NONE;
		m->to_kind = TIER_KIND_NVME;
	}
	e->devices[dram].wanted_bytes += lacks;
	if (rc == -ENOSPC) /* there is no other way down */
		e->devices[dram].wanted_hole_bytes = MAX(e->devices[dram].wanted_hole_bytes, lacks);
	return rc;
}

static int clean_begin(struct engine *e, uint32_t tensor, bool to_nvme)
{
	struct record *r = record_of(e, tensor);
	uint8_t wanted = (uint8_t)~0u;
	struct pins pins;

	ASSERT(r->front != DEVICE_NONE && r->move == 0 && state_of(e, tensor) == STATE_RESIDENT);
	if (!front_settle(e, tensor))
		return -EALREADY;
	pins_scan(e, tensor, NULL, &pins);
	if (pins.write_pins > 0)
		return -EBUSY;
	/* From here on a new writer is seen by the look at the end. */
	if (pins_clear_written(e, tensor))
		source_set(e, tensor, front_source(e, r));
	if (to_nvme)
		wanted = SOURCE_NVME | SOURCE_ZERO;
	return (r->sources & ~front_source(e, r) & wanted) != 0 ? -EALREADY : 0;
}

/* Nothing is wrong with the front: who waits for its room is told if nothing else makes any. */
static int clean_without_memory(struct engine *e, uint32_t tensor)
{
	e->devices[record_of(e, tensor)->front].clean_refused = true;
	return -ENOMEM;
}

int move_clean(struct engine *e, uint32_t tensor, bool to_nvme, bool drop_after, uint8_t priority)
{
	struct record *r = record_of(e, tensor);
	struct move *m;
	int rc = clean_begin(e, tensor, to_nvme);

	if (rc < 0)
		return rc;
	m = move_new(e, MOVE_CLEAN, tensor);
	if (m == NULL)
		return clean_without_memory(e, tensor);
	rc = clean_target(e, m, to_nvme);
	if (rc < 0) {
		move_free(e, m);
		return rc == -ENOMEM ? clean_without_memory(e, tensor) : rc;
	}
	m->from = to_nvme && (r->sources & SOURCE_DRAM) ? dram_of(e, r) : r->front;
	m->from_kind = (uint8_t)device_kind(e, m->from);
	m->priority = priority;
	m->drop_after = drop_after;
	m->drop_for = (uint16_t)(account_of(e, tensor) - e->accounts);
	move_plan(e, m, r->bytes);
	if (drop_after) {
		e->devices[r->front].leaving_bytes += replica_rounded(e, r->front, r->bytes);
		share_of(e, tensor, r->front)->leaving_bytes +=
			replica_rounded(e, r->front, r->bytes);
	}
	stat_add(STAT(e, cleans), 1);
	log_debug(MOVE, "tensor %u: clean from %s to %s, %llu bytes", tensor,
		  e->devices[m->from].tier->base.name, tier_kind_name(m->to_kind),
		  (unsigned long long)r->bytes);
	pieces_pump(e, m);
	return 0;
}

static void clean_give_target(struct engine *e, struct move *m)
{
	if (m->to_kind == TIER_KIND_NVME)
		map_give(e, m->to_map);
	else
		replica_give(e, m->to, m->to_node);
}

/* A write-back that failed is not tried again at once: the front stays, others are looked at. */
static void clean_failed(struct engine *e, struct move *m)
{
	struct record *r = record_of(e, m->tensor);
	uint64_t before_ns = r->failed_ns;

	request_backoff(e, m->tensor);
	r->failed_ns = e->now_ns;
	if (m->drop_after) /* a flush tells whoever asked for it */
		trouble_note(e, m, before_ns);
}

void move_clean_end(struct engine *e, struct move *m)
{
	struct record *r = record_of(e, m->tensor);
	char text[TENSOR_TEXT_BYTES];
	struct pins pins;

	if (m->drop_after) {
		e->devices[r->front].leaving_bytes -= replica_rounded(e, r->front, r->bytes);
		share_of(e, m->tensor, r->front)->leaving_bytes -=
			replica_rounded(e, r->front, r->bytes);
	}
	pins_scan(e, m->tensor, NULL, &pins);
	if (m->result < 0 || m->stop || pins.write_pins > 0 || pins.written) {
		clean_give_target(e, m);
		if (m->result < 0)
			clean_failed(e, m);
		else
			stat_add(STAT(e, cleans_void), 1);
		return;
	}
	trouble_forget(e, m->tensor);
	if (m->to_kind == TIER_KIND_DRAM) {
		ASSERT(r->dram_node == EXTENT_NONE);
		r->dram_node = m->to_node;
		source_add(e, m->tensor, SOURCE_DRAM);
	} else if (map_set(e, r, m->to_map) == 0) {
		source_add(e, m->tensor, SOURCE_NVME);
	} else {
		clean_give_target(e, m);
		m->result = -ENOMEM;
		snprintf(m->cause, sizeof(m->cause), "%.150s: no memory for its map of blocks",
			 tensor_text(e, m->tensor, text));
		clean_failed(e, m);
		return;
	}
	r->failed_ns = 0;
}

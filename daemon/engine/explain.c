/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a tensor is where it is, for people: what the engine would ask before it moved or dropped it.
 * It looks and changes nothing. O(clients), and where the tensor may go what rank.c looks at.
 */
#include <errno.h>
#include <string.h>

#include "base/whole.h"
#include "daemon/engine/front.h"
#include "daemon/engine/holder.h"
#include "daemon/engine/lost.h"
#include "daemon/engine/move.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/rank.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

/* ---- reasons -------------------------------------------------------------------------------- */

static uint32_t reasons_of_flags(uint16_t flags)
{
	static const struct {
		uint16_t flag;
		uint32_t reason;
	} rows[] = {
		{ RECORD_DOOMED, EXPLAIN_DOOMED },     { RECORD_LARGE, EXPLAIN_LARGE },
		{ RECORD_SMALL, EXPLAIN_SMALL },       { RECORD_ZONED, EXPLAIN_ZONED },
		{ RECORD_BACKOFF, EXPLAIN_BACKOFF },   { RECORD_LOST, EXPLAIN_LOST },
		{ RECORD_HINTED, EXPLAIN_PREFETCHED },
	};
	uint32_t ret = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (flags & rows[i].flag)
			ret |= rows[i].reason;
	return ret;
}

static uint32_t reasons_of_bytes(struct engine *e, uint32_t tensor, const struct record *r,
				 const struct pins *pins)
{
	uint8_t sources = front_sources_now(e, tensor, pins);
	uint32_t ret = 0;

	if ((sources & SOURCE_ZERO) && !(r->flags & RECORD_LOST))
		ret |= EXPLAIN_UNWRITTEN;
	if (r->front == DEVICE_NONE)
		return ret;
	if (front_unfilled(e, tensor) && !pins->filled)
		return ret | EXPLAIN_UNFILLED;
	if ((sources & ~front_source(e, r)) != 0)
		ret |= EXPLAIN_CLEAN;
	return ret;
}

/* Of a front: what keeps it, or that nothing does. */
static uint32_t reasons_to_stay(struct engine *e, uint32_t tensor, const struct record *r)
{
	uint32_t ret = 0;

	if (r->front == DEVICE_NONE)
		return 0;
	if (record_held(e, r))
		ret |= EXPLAIN_HELD;
	if (!reclaim_has_home(e, tensor, r->front))
		ret |= EXPLAIN_NO_HOME;
	if (!reclaim_presses(e, r->front))
		ret |= EXPLAIN_ROOM;
	if (reclaim_eligible(e, r->front, tensor))
		ret |= EXPLAIN_MAY_GO;
	return ret;
}

static uint32_t reasons_of(struct engine *e, uint32_t tensor, const struct pins *pins)
{
	const struct record *r = record_of(e, tensor);
	uint32_t ret = reasons_of_flags(r->flags) | reasons_of_bytes(e, tensor, r, pins) |
		       reasons_to_stay(e, tensor, r);

	if (pins->pins > 0)
		ret |= EXPLAIN_PINNED;
	if (r->move != 0)
		ret |= EXPLAIN_MOVING;
	if (r->wanted > 0)
		ret |= EXPLAIN_WANTED;
	if (e->hint_of[tensor] != NULL)
		ret |= EXPLAIN_HINTED;
	if (state_of(e, tensor) == STATE_FAILED)
		ret |= EXPLAIN_FAILED;
	return ret;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static uint32_t pid_of(const struct engine *e, uint32_t holder)
{
	const struct holder *h = holder < e->holder_room ? e->holder_table[holder] : NULL;

	return h != NULL && !h->dead ? (uint32_t)h->pid : 0;
}

static void put_holders(const struct engine *e, const struct record *r, struct wire_explain *ret)
{
	if (!(r->flags & RECORD_NAMED))
		ret->owner_pid = pid_of(e, r->owner);
	if (ret->reasons & EXPLAIN_HELD) {
		ret->held_pid = pid_of(e, r->hold_holder);
		ret->held_ns = r->hold_until_ns - e->now_ns;
	}
	ret->used_ago_ns = e->now_ns - MIN(r->used_ns, e->now_ns);
	ret->steps = e->name_spaces[r->name_space].steps;
	ret->used_ago_steps = ret->steps - r->used_step;
}

static void put_policy(struct engine *e, uint32_t tensor, const struct record *r,
		       struct wire_explain *ret)
{
	const struct policy_ops *ops = e->policy_ops[r->class_];
	struct policy_opinion opinion;
	struct policy_cost cost;

	strncpy(ret->policy, ops->name, sizeof(ret->policy) - 1);
	ret->needed_in_ms = UINT64_MAX;
	if (r->flags & RECORD_DOOMED)
		return; /* the policy has forgotten it */
	ops->opinion(e->policies[r->class_], tensor, e->now_ns, &opinion);
	ret->needed_in_ms = whole_of(opinion.needed_in_s * 1e3);
	if (opinion.told)
		ret->reasons |= EXPLAIN_TOLD;
	if (r->front == DEVICE_NONE)
		return;
	cost = reclaim_cost(e, r->front);
	ret->score = whole_of(policy_score(r->bytes, opinion.needed_in_s, &cost));
}

static void put_rank(struct engine *e, uint32_t tensor, struct wire_explain *ret)
{
	struct rank rank;

	if ((ret->reasons & EXPLAIN_MAY_GO) == 0)
		return;
	rank_find(e, tensor, &rank);
	ret->rank = rank.before + 1;
	ret->rank_least = rank.least;
	if (rank.guaranteed)
		ret->reasons |= EXPLAIN_GUARANTEED;
}

/* As the stats page numbers devices. */
static uint8_t page_device(const struct engine *e, uint8_t device)
{
	return device == DEVICE_NONE ? DEVICE_NONE : e->devices[device].lane;
}

/* The oldest that is out of a move. */
static void put_out(const struct engine *e, const struct move *m, struct wire_explain *ret)
{
	uint64_t oldest_ns = UINT64_MAX;
	const struct list *it;

	for (unsigned lane = 0; lane < ENGINE_DEVICES_MAX; lane++)
		list_for_each (it, &e->lent[lane]) {
			const struct lent *l = list_entry(it, struct lent, link);

			if (l->x->owner != m)
				continue;
			if (l->since_ns < oldest_ns) {
				oldest_ns = l->since_ns;
				ret->out_device = (uint8_t)lane;
			}
			break; /* those behind it are younger */
		}
	if (oldest_ns != UINT64_MAX)
		ret->out_ms = (uint32_t)MIN((e->now_ns - MIN(oldest_ns, e->now_ns)) / NS_PER_MS,
					    UINT32_MAX);
}

static void put_move(struct engine *e, const struct record *r, struct wire_explain *ret)
{
	static const uint8_t kinds[] = { [MOVE_FILL] = EXPLAIN_FILL,
					 [MOVE_CLEAN] = EXPLAIN_WRITE_BACK,
					 [MOVE_COMPACT] = EXPLAIN_COMPACT,
					 [MOVE_COPY] = EXPLAIN_COPY };
	const struct move *m;

	ret->move_from = ret->move_to = ret->out_device = DEVICE_NONE;
	if (r->move == 0)
		return;
	m = move_get(e, r->move);
	ASSERT(m->kind < ARRAY_SIZE(kinds));
	ret->move_kind = kinds[m->kind];
	ret->move_from = page_device(e, m->from);
	ret->move_to = page_device(e, m->to);
	ret->move_pieces = m->pieces;
	ret->move_done = m->done_pieces;
	ret->move_ns = e->now_ns - MIN(m->begin_ns, e->now_ns);
	put_out(e, m, ret);
}

static void put_pins(struct engine *e, uint32_t tensor, struct wire_explain *ret,
		     struct wire_pin *pins, size_t max)
{
	const struct list *it;

	list_for_each (it, &e->holders) {
		const struct holder *h = list_entry(it, struct holder, link);
		uint64_t slot = atomic_load(&h->pins[tensor]);

		if (h->dead || (slot & PIN_ANY) == 0)
			continue;
		if (ret->pins_listed < max)
			pins[ret->pins_listed++] = (struct wire_pin){
				.pid = (uint32_t)h->pid,
				.client = h->id,
				.pins = (uint32_t)(slot & PIN_MASK),
				.write_pins = (uint32_t)((slot & PIN_WRITE_MASK) >> 16),
				.written = (slot & PIN_WRITTEN) != 0,
				.waits = !list_empty(&h->requests),
			};
		ret->pinners++;
	}
}

/* ---- the answer ----------------------------------------------------------------------------- */

int engine_explain(struct engine *e, struct wire_handle t, void *to, size_t room, uint64_t now_ns,
		   struct err *err)
{
	struct wire_explain x = { .index = t.index, .generation = t.generation };
	struct wire_pin *list = (struct wire_pin *)(void *)((char *)to + sizeof(x));
	const struct record *r;
	struct pins pins;

	e->now_ns = now_ns;
	if (!handle_live(e, t.index, t.generation))
		return err_set(err, ESTALE, "tensor %u:%u was destroyed", t.index, t.generation);
	if (room < sizeof(x))
		return 0;
	r = record_of(e, t.index);
	pins_scan(e, t.index, NULL, &pins);
	x.reasons = reasons_of(e, t.index, &pins);
	x.waiters = r->wanted;
	x.device = page_device(e, r->front);
	put_holders(e, r, &x);
	put_policy(e, t.index, r, &x);
	put_rank(e, t.index, &x);
	put_move(e, r, &x);
	put_pins(e, t.index, &x, list, (room - sizeof(x)) / sizeof(*list));
	memcpy(to, &x, sizeof(x));
	return (int)(sizeof(x) + x.pins_listed * sizeof(*list));
}

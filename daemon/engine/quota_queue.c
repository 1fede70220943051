/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose turn it is, where there are quotas. In an account it is first in, first out; between
 * accounts nobody is held up by those who wait for what is their own affair:
 * - who stays within its guarantee with what it lacks comes first, and what is free of its
 *   guarantee is taken by nobody else meanwhile;
 * - who is at its limit waits for its own tensors to go, and others pass;
 * - of all others the oldest has all rights, as the head of a queue without quotas has;
 * - behind it, who has its guarantee full may change what stands there.
 */
#include "daemon/engine/quota.h"
#include "daemon/engine/reclaim.h"
#include "daemon/engine/request.h"

struct look {
	struct engine *e;
	uint8_t device;
	uint64_t leave; /* free, but of those who wait within their guarantee */
	bool head;      /* the oldest had its turn */
};

/* Returns whether the request, which may be gone by now, stands in the queue yet. */
static bool still_waits(const struct look *l, const struct list *link)
{
	const struct list *it;

	list_for_each (it, queue_of(l->e, l->device))
		if (it == link)
			return true;
	return false;
}

static bool give_turn(struct look *l, struct request *q, enum turn turn, uint64_t leave)
{
	const struct list *link = &q->link;

	q->turn = (uint8_t)turn;
	q->leave_bytes = leave;
	acquire_admit(l->e, q);
	return still_waits(l, link);
}

static uint64_t lacking(struct engine *e, const struct request *q)
{
	uint8_t second = acquire_second_device(e, q);
	uint64_t bytes = acquire_lacking_bytes(e, q, q->device);

	return second != q->device ? bytes + acquire_lacking_bytes(e, q, second) : bytes;
}

static const struct quota_share *share_of_request(const struct look *l, const struct request *q)
{
	return &quota_of_request(l->e, q)->pool[l->e->devices[l->device].pool];
}

/* What it lacks it may have by right. */
static bool is_within(const struct look *l, const struct request *q)
{
	const struct quota_share *s = share_of_request(l, q);
	uint64_t bytes = lacking(l->e, q);

	return bytes == 0 || s->used_bytes + bytes <= s->guarantee_bytes;
}

/* What is free of its guarantee, as far as it wants it. */
static uint64_t right_of(const struct look *l, const struct request *q)
{
	const struct quota_share *s = share_of_request(l, q);
	uint64_t bytes = lacking(l->e, q);

	if (bytes > s->guarantee_bytes || s->used_bytes >= s->guarantee_bytes)
		return 0;
	return MIN(bytes, s->guarantee_bytes - s->used_bytes);
}

/* It changes what stands in its guarantee: as much of its own goes as lets it come in by right. */
static bool change_own(struct look *l, struct request *q)
{
	const struct quota_share *s = share_of_request(l, q);
	const struct list *link = &q->link;
	uint64_t bytes = lacking(l->e, q);

	if (bytes <= s->guarantee_bytes && s->used_bytes > 0)
		reclaim_own(l->e, q, quota_of_request(l->e, q), l->device,
			    s->used_bytes + bytes - s->guarantee_bytes);
	return still_waits(l, link);
}

static bool look_beyond(struct look *l, struct request *q)
{
	uint64_t over;

	if (quota_limits(l->e, q, &over) != NULL)
		return give_turn(l, q, TURN_OWN, l->leave);
	if (l->head)
		return change_own(l, q);
	l->head = true;
	return give_turn(l, q, TURN_ALL, l->leave - right_of(l, q));
}

/* The first of each account, by right or beyond it. False: one has left the queue, and everything
 * is looked at anew. */
static bool look_at_firsts(struct look *l, bool within)
{
	struct list *it, *tmp;

	for (unsigned i = 0; i < l->e->account_count; i++)
		l->e->accounts[i].seen = false;
	list_for_each_safe (it, tmp, queue_of(l->e, l->device)) {
		struct request *q = list_entry(it, struct request, link);
		struct account *a = quota_of_request(l->e, q);
		bool waits = true;

		if (a->seen)
			continue;
		a->seen = true;
		if (within == is_within(l, q))
			waits = within ? give_turn(l, q, TURN_ALL, 0) : look_beyond(l, q);
		if (!waits)
			return false;
		if (within)
			l->leave += right_of(l, q);
	}
	return true;
}

void quota_run_queue(struct engine *e, uint8_t device)
{
	struct look l;

	do
		l = (struct look){ .e = e, .device = device };
	while (!look_at_firsts(&l, true) || !look_at_firsts(&l, false));
	e->devices[device].wants_room = l.head || l.leave > 0;
}

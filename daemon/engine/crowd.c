/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/crowd.h"

/* FILLING, too; not a copy below a front that is pinned elsewhere. Small tensors stay in dram,
 * pinned or not. */
bool crowd_stands(struct engine *e, uint8_t device, uint32_t tensor)
{
	uint64_t w = word0_of(e, tensor);

	return word0_state(w) != STATE_ABSENT && word0_place(w) == e->devices[device].place &&
	       (device_kind(e, device) != TIER_KIND_DRAM ||
		(e->records[tensor].flags & RECORD_SMALL) == 0);
}

bool crowd_pins(const struct holder *h, uint32_t tensor)
{
	return !h->dead && (atomic_load(&h->pins[tensor]) & PIN_ANY) != 0;
}

/* For a namespace it counts once, however many of its clients pin it. */
static void count_tensor(struct engine *e, uint32_t tensor, uint64_t bytes)
{
	struct list *it;

	list_for_each (it, &e->holders) {
		struct holder *h = list_entry(it, struct holder, link);
		struct account *a;

		if (!crowd_pins(h, tensor))
			continue;
		a = account_of_holder(e, h);
		h->pinned_bytes += bytes;
		if (a->pinned_last != tensor)
			a->pinned_bytes += bytes;
		a->pinned_last = tensor;
	}
}

static void forget(struct engine *e)
{
	struct list *it;

	for (unsigned i = 0; i < e->account_count; i++) {
		e->accounts[i].pinned_bytes = 0;
		e->accounts[i].pinned_last = 0;
	}
	list_for_each (it, &e->holders)
		list_entry(it, struct holder, link)->pinned_bytes = 0;
}

uint64_t crowd_count(struct engine *e, uint8_t device, const struct account *of, uint64_t *slots)
{
	const struct extents *extents = e->devices[device].extents;
	uint64_t looks = 0;
	struct extent x;

	forget(e);
	for (bool more = extents_next(extents, EXTENT_NONE, &x); more && *slots > 0;
	     more = extents_next(extents, x.node, &x)) {
		--*slots;
		if (x.owner >= e->index_high || !crowd_stands(e, device, x.owner) ||
		    (of != NULL && account_of(e, x.owner) != of))
			continue;
		count_tensor(e, x.owner, x.bytes);
		*slots -= MIN(*slots, e->holder_room);
		looks++;
	}
	return looks;
}

static void pick_most(const struct engine *e, struct crowd *c)
{
	const struct list *it;

	c->pid = 0;
	c->bytes = 0;
	list_for_each (it, &e->holders) {
		const struct holder *h = list_entry(it, struct holder, link);

		if (h->pinned_bytes > c->bytes) {
			c->pid = h->pid;
			c->bytes = h->pinned_bytes;
		}
	}
}

void crowd_find(struct engine *e, uint8_t device, const struct account *of, struct crowd *c)
{
	if (c->known && c->device == device && c->of == of)
		return;
	crowd_count(e, device, of, &c->looks);
	c->known = true;
	c->device = device;
	c->of = of;
	pick_most(e, c);
}

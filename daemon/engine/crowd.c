/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/crowd.h"

/* Not a copy below a front that is pinned elsewhere. */
static bool stands_there(struct engine *e, uint8_t device, uint32_t tensor)
{
	uint64_t w = word0_of(e, tensor);

	return word0_state(w) != STATE_ABSENT && word0_place(w) == e->devices[device].place;
}

static void add_pins(struct engine *e, const struct extent *x)
{
	struct list *it;

	list_for_each (it, &e->holders) {
		struct holder *h = list_entry(it, struct holder, link);

		if (!h->dead && (atomic_load(&h->pins[x->owner]) & PIN_ANY) != 0)
			h->pinned_bytes += x->bytes;
	}
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
	struct extents *extents = e->devices[device].extents;
	struct extent x;
	struct list *it;

	if (c->known && c->device == device && c->of == of)
		return;
	list_for_each (it, &e->holders)
		list_entry(it, struct holder, link)->pinned_bytes = 0;
	for (bool more = extents_next(extents, EXTENT_NONE, &x); more && c->looks > 0;
	     more = extents_next(extents, x.node, &x)) {
		c->looks--;
		if (x.owner >= e->index_high || !stands_there(e, device, x.owner) ||
		    (of != NULL && account_of(e, x.owner) != of))
			continue;
		add_pins(e, &x);
		c->looks -= MIN(c->looks, e->holder_room);
	}
	c->known = true;
	c->device = device;
	c->of = of;
	pick_most(e, c);
}

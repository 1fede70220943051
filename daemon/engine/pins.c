/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/pins.h"

/* What it takes to come to a tensor, and to look at one slot of it. */
#define LOOK_NS 10u
#define SLOT_NS 5u

static void scan_list(const struct list *holders, uint32_t tensor, const struct holder *asker,
		      struct pins *ret)
{
	struct list *it;

	list_for_each (it, holders) {
		const struct holder *h = list_entry(it, struct holder, link);
		/* Pairs with the client's compare-exchange: it raised its pin and then read word0;
		 * we wrote word0 and now read its pin. One of the two sees the other. */
		uint64_t slot = atomic_load(&h->pins[tensor]);
		uint32_t n = (uint32_t)(slot & PIN_MASK);
		uint32_t writers = (uint32_t)((slot & PIN_WRITE_MASK) >> 16);

		ret->written |= (slot & PIN_WRITTEN) != 0;
		ret->filled |= (slot & PIN_FILLED) != 0;
		if (h->dead || (n | writers) == 0)
			continue;
		ret->pins += n > 0 ? n : 1; /* a client that lies only hurts itself */
		ret->write_pins += writers;
		if (h == asker)
			ret->mine = true;
		else
			ret->foreign_pid = h->pid;
	}
}

void pins_scan(struct engine *e, uint32_t tensor, const struct holder *asker, struct pins *ret)
{
	*ret = (struct pins){ 0 };
	scan_list(&e->holders, tensor, asker, ret);
	scan_list(&e->tombstones, tensor, asker, ret);
}

bool pins_any(struct engine *e, uint32_t tensor)
{
	struct list *it;

	list_for_each (it, &e->holders) {
		const struct holder *h = list_entry(it, struct holder, link);

		if ((atomic_load(&h->pins[tensor]) & PIN_ANY) != 0)
			return true;
	}
	return false;
}

uint64_t pins_rest_ns(const struct engine *e, uint64_t tensors)
{
	const struct list *it;
	uint64_t slots = 0;

	list_for_each (it, &e->holders)
		slots++;
	return 20 * tensors * (LOOK_NS + slots * SLOT_NS);
}

/* Clears `bit` in one slot, by compare-exchange and never from a value that has `unless`. */
static bool clear_bit(pin_slot *slot, uint64_t bit, uint64_t unless)
{
	uint64_t old = atomic_load(slot);

	while ((old & bit) != 0 && (old & unless) == 0)
		if (atomic_compare_exchange_weak(slot, &old, old & ~bit))
			return true;
	return (old & bit) != 0;
}

static bool clear_list(const struct list *holders, uint32_t tensor, uint64_t bit, uint64_t unless)
{
	struct list *it;
	bool was = false;

	list_for_each (it, holders) {
		struct holder *h = list_entry(it, struct holder, link);

		/* A dead client's counters mean nothing. */
		was |= clear_bit(&h->pins[tensor], bit, h->dead ? 0 : unless);
	}
	return was;
}

bool pins_clear_written(struct engine *e, uint32_t tensor)
{
	bool was = clear_list(&e->holders, tensor, PIN_WRITTEN, PIN_WRITE_MASK);

	was |= clear_list(&e->tombstones, tensor, PIN_WRITTEN, PIN_WRITE_MASK);
	return was;
}

void pins_clear_filled(struct engine *e, uint32_t tensor)
{
	clear_list(&e->holders, tensor, PIN_FILLED, 0);
	clear_list(&e->tombstones, tensor, PIN_FILLED, 0);
}

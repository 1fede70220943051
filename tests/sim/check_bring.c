/* SPDX-License-Identifier: Apache-2.0
 *
 * Dram and nvme as full as they may be, all of it written: whatever was admitted still comes, alone
 * and in batches as large as dram.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "daemon/engine/state.h"
#include "tests/sim/rig.h"
#include "tests/sim/units.h"

#define HOST PROTOCOL_PLACE_HOST
#define MANY 64u

struct full {
	struct rig *r;
	struct wire_handle t[MANY];
	uint64_t bytes[MANY];
	unsigned n;
};

static bool create(struct full *f, uint64_t bytes)
{
	const struct engine_spec spec = { .ndim = 1, .shape = { bytes } };
	struct err err = ERR_INIT;
	int rc = engine_create_tensors(f->r->world.engine, f->r->client[0].holder, &spec, 1,
				       &f->t[f->n], f->r->world.now_ns, &err);

	if (rc < 0) {
		ck_assert(rc == -ENOSPC || rc == -EDQUOT);
		return false;
	}
	ck_assert_uint_lt(f->n + 1, MANY);
	f->bytes[f->n++] = bytes;
	return true;
}

static void acquire(struct full *f, const struct wire_handle *t, size_t n, uint8_t access)
{
	rig_acquire_all(f->r, 0, 1, t, n, HOST, access, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(f->r, 0, 1, 3000), 0);
}

static void use(struct full *f, unsigned i, uint8_t access)
{
	char *at;

	acquire(f, &f->t[i], 1, access);
	at = rig_try(f->r, 0, f->t[i], HOST, access);
	ck_assert_ptr_nonnull(at);
	if (access == ACCESS_READ)
		ck_assert(rig_all_are(at, (char)(i + 1), f->bytes[i]));
	else
		memset(at, (int)i + 1, f->bytes[i]);
	rig_unpin(f->r, 0, f->t[i], access);
}

/* One of `first` bytes, as many of `bytes` as are admitted, then ever smaller ones, all of them
 * written. */
static void fill(struct full *f, struct world_shape shape, uint64_t first, uint64_t bytes)
{
	*f = (struct full){ .r = rig_open(shape) };
	ck_assert(create(f, first));
	for (; bytes >= KIB(4); bytes -= KIB(4))
		while (create(f, bytes))
			;
	for (unsigned i = 0; i < f->n; i++)
		use(f, i, ACCESS_WRITE);
}

/* clang-format off */
static const struct engine_quota of_gpus[] = {
	{ .name = "a", .tier = HBM(8 * UNIT, ALL) },
};
static const struct engine_quota guarantees[] = {
	{ .name = "a", .tier = { [TIER_KIND_HBM] = FREE, [TIER_KIND_DRAM] = { KIB(300), ALL },
				 [TIER_KIND_NVME] = { KIB(900), ALL } } },
	{ .name = "b", .tier = { [TIER_KIND_HBM] = FREE, [TIER_KIND_DRAM] = { KIB(100), ALL },
				 [TIER_KIND_NVME] = { KIB(100), ALL } } },
};
static const struct engine_quota limits[] = {
	{ .name = "a", .tier = { [TIER_KIND_HBM] = FREE, [TIER_KIND_DRAM] = { 0, KIB(480) },
				 [TIER_KIND_NVME] = { 0, KIB(700) } } },
};
/* clang-format on */

static const struct world_shape shapes[] = {
	{ .nvme = 1 },
	{ .nvme = 2 },
	{ .hbm = 1, .nvme = 1 },
	{ .hbm = 1, .nvme = 1, .quotas = of_gpus, .quota_count = 1 },
	{ .nvme = 1, .quotas = guarantees, .quota_count = 2 },
	{ .nvme = 1, .quotas = limits, .quota_count = 1 },
};
/* 24 KiB of dram are left beside four of them, 12 beside five, and beside one nearly half. */
static const struct {
	uint64_t first, others;
} sizes[] = { { KIB(122), KIB(122) }, { KIB(100), KIB(100) }, { KIB(260), KIB(260) },
	      { KIB(64), KIB(64) },   { KIB(280), KIB(100) }, { KIB(280), KIB(64) } };

static void everywhere(void (*body)(struct full *f))
{
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++)
		for (unsigned k = 0; k < ARRAY_SIZE(sizes); k++) {
			struct full f;

			fill(&f, shapes[i], sizes[k].first, sizes[k].others);
			body(&f);
			rig_close(f.r);
		}
}

static void all_come(struct full *f)
{
	for (unsigned k = 0; k < 200; k++)
		use(f, (unsigned)world_below(&f->r->world, f->n),
		    k % 3 == 0 ? ACCESS_READ : ACCESS_WRITE);
	for (unsigned i = 0; i < f->n; i++)
		use(f, i, ACCESS_READ);
}

START_TEST(all_that_is_admitted_can_be_had)
{
	everywhere(all_come);
}
END_TEST

/* What the client can have of dram for sure. */
static uint64_t dram_for(const struct world_shape *shape)
{
	return shape->quotas == guarantees ? WORLD_DRAM - KIB(100)
	       : shape->quotas == limits   ? KIB(480)
					   : WORLD_DRAM;
}

/* Of those that stand below, as many as dram takes at once. */
static size_t batch_of(struct full *f, struct wire_handle *ret)
{
	uint64_t bytes = 0;
	size_t n = 0;

	for (unsigned i = 0; i < f->n; i++) {
		if (bytes + f->bytes[i] > dram_for(&f->r->world.shape) ||
		    word0_state(rig_word0(f->r, f->t[i])) != STATE_ABSENT)
			continue;
		bytes += ALIGN_UP(f->bytes[i], GRANULE);
		ret[n++] = f->t[i];
	}
	return n;
}

static void batches_come(struct full *f)
{
	static const uint8_t access[] = { ACCESS_READ, ACCESS_WRITE | ACCESS_DISCARD };
	struct wire_handle batch[MANY];

	for (unsigned k = 0; k < 20; k++) {
		uint8_t how = access[k % 2];
		size_t n = batch_of(f, batch);

		ck_assert_uint_gt(n, 0);
		acquire(f, batch, n, how);
		for (size_t i = 0; i < n; i++)
			ck_assert_ptr_nonnull(rig_try(f->r, 0, batch[i], HOST, how));
		for (size_t i = 0; i < n; i++)
			rig_unpin(f->r, 0, batch[i], how);
	}
}

START_TEST(a_batch_as_large_as_dram_comes_one_by_one)
{
	everywhere(batches_come);
}
END_TEST

/* What one of them has on nvme cannot be read: it would be begun again and again. */
static void batches_are_told(struct full *f)
{
	static const uint8_t access[] = { ACCESS_READ, ACCESS_WRITE | ACCESS_DISCARD };
	struct wire_handle batch[MANY];

	for (unsigned k = 0; k < ARRAY_SIZE(access); k++) {
		size_t n = batch_of(f, batch);
		int rc;

		f->r->world.fault_config[TIER_KIND_NVME].read_error = 1000;
		rig_acquire_all(f->r, 0, 1, batch, n, HOST, access[k], ENGINE_NEVER);
		rc = rig_wait(f->r, 0, 1, 3000);
		ck_assert_msg(rc == -EIO || (rc == 0 && access[k] != ACCESS_READ), "%d", rc);
		rig_settle(f->r, 200); /* what was begun for it may fail yet */
		f->r->world.fault_config[TIER_KIND_NVME].read_error = 0;
		acquire(f, batch, n, access[k]);
	}
}

START_TEST(a_batch_that_cannot_be_read_is_told)
{
	everywhere(batches_are_told);
}
END_TEST

/* Somebody who cannot know better pins what is on its way, and keeps it. */
static void batches_are_told_though_it_is_pinned(struct full *f)
{
	struct wire_handle batch[MANY];
	size_t n = batch_of(f, batch);

	f->r->world.fault_config[TIER_KIND_NVME].read_error = 1000;
	rig_acquire_all(f->r, 0, 1, batch, n, HOST, ACCESS_READ, ENGINE_NEVER);
	for (unsigned steps = 0; steps < 10000 && !f->r->client[0].answered[1]; steps++) {
		for (size_t i = 0; i < n; i++)
			if (word0_state(rig_word0(f->r, batch[i])) == STATE_FILLING)
				atomic_store(&f->r->client[1].pins[batch[i].index], PIN_ONE);
		if (!world_finish_one(&f->r->world))
			world_turn(&f->r->world, NS_PER_MS);
	}
	ck_assert_int_eq(rig_wait(f->r, 0, 1, 0), -EIO);
}

START_TEST(a_batch_that_cannot_be_read_is_told_though_it_is_pinned)
{
	everywhere(batches_are_told_though_it_is_pinned);
}
END_TEST

/* A hint took it to a GPU before, and it comes to nothing there. */
static void a_hint_fails_elsewhere(struct full *f)
{
	struct wire_handle batch[MANY];
	size_t n = batch_of(f, batch);

	if (f->r->world.shape.hbm == 0)
		return;
	for (size_t k = 0; k < n; k++) {
		n = batch_of(f, batch);
		f->r->world.fault_config[TIER_KIND_HBM].write_error = 1000;
		rig_hint(f->r, 0, batch[MIN(k, n - 1)], 0);
		acquire(f, batch, n, ACCESS_READ);
		rig_settle(f->r, 200);
		f->r->world.fault_config[TIER_KIND_HBM].write_error = 0;
	}
}

START_TEST(a_batch_is_not_told_of_what_fails_elsewhere)
{
	everywhere(a_hint_fails_elsewhere);
}
END_TEST

/* Whether the client's batch stands in the queue of dram and its tensors come one by one. */
static bool is_bringing(const struct full *f, unsigned client)
{
	struct engine *e = f->r->world.engine;
	struct list *it;

	for (uint8_t d = 0; d < e->device_count; d++)
		list_for_each (it, &e->devices[d].queue) {
			const struct request *q = list_entry(it, struct request, link);

			if (q->brings && q->holder == f->r->client[client].holder)
				return true;
		}
	return false;
}

static void step(struct full *f)
{
	if (!world_finish_one(&f->r->world))
		world_turn(&f->r->world, NS_PER_MS);
}

/* b has nothing in dram, where it is guaranteed something, and two tensors on nvme; all else is
 * full of what a has written. */
static void fill_beside(struct full *f, struct wire_handle below[2])
{
	struct wire_handle above[2];

	*f = (struct full){ .r = rig_open((struct world_shape){
				    .nvme = 1, .quotas = guarantees, .quota_count = 2 }) };
	for (unsigned i = 0; i < 2; i++)
		below[i] = rig_create(f->r, 1, KIB(48));
	rig_use(f->r, 1, below, 2, HOST, ACCESS_WRITE);
	for (unsigned i = 0; i < 2; i++)
		above[i] = rig_create(f->r, 1, KIB(48));
	rig_use(f->r, 1, above, 2, HOST, ACCESS_WRITE);
	for (unsigned pass = 0; pass < 2; pass++) {
		while (create(f, KIB(64)))
			;
		for (unsigned i = 0; i < f->n; i++)
			use(f, i, ACCESS_WRITE);
		for (unsigned i = 0; pass == 0 && i < 2; i++)
			rig_destroy(f->r, 1, above[i]);
	}
}

/* Two could hold halves against each other. a has brought what it can, and waits for what somebody
 * has pinned; of what is left b could bring half, if a's stayed, though it is within its guarantee:
 * so a gives way, and b need not wait for the pin. */
START_TEST(within_its_guarantee_a_batch_takes_the_turn_over)
{
	struct wire_handle below[2], batch[MANY], held[3];
	struct full f;
	unsigned i = 0;
	size_t n;

	fill_beside(&f, below);
	for (size_t k = 0; k < ARRAY_SIZE(held); i++)
		if (rig_stands_at(f.r, f.t[i], HOST)) {
			rig_pin(f.r, 2, f.t[i], HOST, ACCESS_READ);
			held[k++] = f.t[i];
		}
	n = batch_of(&f, batch);
	rig_acquire_all(f.r, 0, 1, batch, n, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(f.r, 0, 1, 3000), RIG_UNANSWERED);
	ck_assert(is_bringing(&f, 0));
	rig_acquire_all(f.r, 1, 1, below, 2, HOST, ACCESS_READ, ENGINE_NEVER);
	for (i = 0; i < 3000 && is_bringing(&f, 0); i++)
		step(&f);
	ck_assert(!is_bringing(&f, 0));
	ck_assert_int_eq(rig_wait(f.r, 1, 1, 3000), 0);
	ck_assert(!f.r->client[0].answered[1]);
	for (size_t k = 0; k < ARRAY_SIZE(held); k++)
		rig_unpin(f.r, 2, held[k], ACCESS_READ);
	ck_assert_int_eq(rig_wait(f.r, 0, 1, 3000), 0);
	rig_close(f.r);
}
END_TEST

UNIT_MAIN("bring", all_that_is_admitted_can_be_had, a_batch_as_large_as_dram_comes_one_by_one,
	  a_batch_that_cannot_be_read_is_told,
	  a_batch_that_cannot_be_read_is_told_though_it_is_pinned,
	  a_batch_is_not_told_of_what_fails_elsewhere,
	  within_its_guarantee_a_batch_takes_the_turn_over)

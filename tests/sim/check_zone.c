/* SPDX-License-Identifier: Apache-2.0
 *
 * The zone of dram: rules by hand.
 */
#include "tests/unit/unit.h"

#include <errno.h>

#include "base/compiler.h"
#include "tests/sim/rig.h"

#define HOST PROTOCOL_PLACE_HOST

static struct err refused; /* why the last create was */

static int create(struct rig *r, uint64_t bytes, uint64_t flags, struct wire_handle *ret)
{
	struct engine_spec spec = { .ndim = 1, .shape = { bytes }, .flags = flags };

	return engine_create_tensors(r->world.engine, r->client[0].holder, &spec, 1, ret,
				     r->world.now_ns, &refused);
}

START_TEST(a_hint_for_the_zone_is_in_nobodys_way_elsewhere_in_dram)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2, .zone = true });
	struct wire_handle t[3], other = rig_create(r, 0, WORLD_ZONE / 2);

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		ck_assert_int_eq(create(r, WORLD_ZONE / 2, SPEC_DEVICE_COPY, &t[i]), 0);
	rig_pin(r, 0, t[0], HOST, ACCESS_READ);
	rig_pin(r, 0, t[1], HOST, ACCESS_READ);
	rig_hint(r, 0, t[2], HOST);
	rig_hint(r, 0, other, HOST);
	rig_settle(r, 10);
	ck_assert(rig_stands_at(r, other, HOST));
	ck_assert_int_eq(word0_state(rig_word0(r, t[2])), STATE_ABSENT);
	rig_close(r);
}
END_TEST

START_TEST(tensors_for_devices_stand_in_the_zone_and_others_do_not)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2, .zone = true });
	struct wire_handle t[2];
	char *at[2];

	ck_assert_int_eq(create(r, WORLD_ZONE / 2, SPEC_DEVICE_COPY, &t[0]), 0);
	ck_assert_int_eq(create(r, WORLD_ZONE / 2, 0, &t[1]), 0);
	/* One batch of both: all or nothing, each in its part. */
	rig_acquire_all(r, 0, 1, t, 2, HOST, ACCESS_READ, ENGINE_NEVER);
	ck_assert_int_eq(rig_wait(r, 0, 1, 100), 0);
	for (unsigned i = 0; i < 2; i++)
		at[i] = rig_pin(r, 0, t[i], HOST, ACCESS_READ);
	ck_assert(at[0] < r->world.devices[1].memory + WORLD_ZONE);
	ck_assert(at[1] >= r->world.devices[1].memory + WORLD_ZONE);
	for (unsigned i = 0; i < 2; i++)
		rig_unpin(r, 0, t[i], ACCESS_READ);
	/* Elsewhere they go as any other. */
	rig_pin(r, 0, t[0], 0, ACCESS_READ);
	rig_unpin(r, 0, t[0], ACCESS_READ);
	rig_close(r);
}
END_TEST

START_TEST(the_zone_evicts_its_own_and_leaves_the_rest_alone)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2, .zone = true });
	struct wire_handle t[4], other;

	ck_assert_int_eq(create(r, WORLD_ZONE / 2, 0, &other), 0);
	rig_pin(r, 0, other, HOST, ACCESS_READ);
	rig_unpin(r, 0, other, ACCESS_READ);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(create(r, WORLD_ZONE / 2, SPEC_DEVICE_COPY, &t[i]), 0);
		memset(rig_pin(r, 0, t[i], HOST, ACCESS_WRITE), (int)i, WORLD_ZONE / 2);
		rig_unpin(r, 0, t[i], ACCESS_WRITE);
		rig_settle(r, 200);
	}
	ck_assert_int_eq(word0_state(rig_word0(r, other)), STATE_RESIDENT);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(rig_pin(r, 0, t[i], HOST, ACCESS_READ)[7], (int)i);
		rig_unpin(r, 0, t[i], ACCESS_READ);
		rig_settle(r, 200);
	}
	rig_close(r);
}
END_TEST

START_TEST(the_zone_and_the_rest_share_nvme_by_what_they_cannot_hold)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2, .zone = true });
	uint64_t nvme = WORLD_NVME0 + WORLD_NVME1, piece = WORLD_ZONE / 4, zoned = 0, others = 0;
	struct wire_handle t;

	/* The zone less the two largest, and half of nvme; then the rest and its share. */
	while (zoned < WORLD_ZONE - 2 * piece + nvme / 2 &&
	       create(r, piece, SPEC_DEVICE_COPY, &t) == 0)
		zoned += piece;
	ck_assert_uint_eq(zoned, WORLD_ZONE - 2 * piece + nvme / 2);
	while (create(r, piece, 0, &t) == 0)
		others += piece;
	ck_assert_uint_eq(others, WORLD_DRAM - WORLD_ZONE - 2 * piece + nvme / 2);
	ck_assert_int_eq(create(r, piece, SPEC_DEVICE_COPY, &t), -ENOSPC);
	rig_close(r);
}
END_TEST

START_TEST(what_could_never_stand_in_the_zone_is_refused)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2, .zone = true });
	struct wire_handle t, small;

	ck_assert_int_eq(create(r, WORLD_ZONE + 1, SPEC_DEVICE_COPY, &t), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(refused.text, "zone of dram"));
	ck_assert_int_eq(create(r, WORLD_ZONE + 1, 0, &t), 0);
	/* Small tensors never leave the zone. */
	ck_assert_int_eq(create(r, 1, SPEC_DEVICE_COPY, &small), 0);
	ck_assert_int_eq(create(r, WORLD_ZONE, SPEC_DEVICE_COPY, &t), -ENOSPC);
	ck_assert_int_eq(create(r, WORLD_ZONE - GRANULE, SPEC_DEVICE_COPY, &t), 0);
	rig_pin(r, 0, t, HOST, ACCESS_READ);
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_close(r);
}
END_TEST

START_TEST(without_a_zone_there_are_no_tensors_for_it)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 2 });
	struct wire_handle t;

	ck_assert_int_eq(create(r, WORLD_BLOCK, SPEC_DEVICE_COPY, &t), -ENOTSUP);
	rig_close(r);
}
END_TEST

UNIT_MAIN("zone", tensors_for_devices_stand_in_the_zone_and_others_do_not,
	  the_zone_evicts_its_own_and_leaves_the_rest_alone,
	  the_zone_and_the_rest_share_nvme_by_what_they_cannot_hold,
	  what_could_never_stand_in_the_zone_is_refused, without_a_zone_there_are_no_tensors_for_it,
	  a_hint_for_the_zone_is_in_nobodys_way_elsewhere_in_dram)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Want of memory in the engine, at one place after the other: who asked is told, and nothing else
 * is any different.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/sim/coverage.h"
#include "tests/sim/rig.h"

#define HOST  PROTOCOL_PLACE_HOST
#define BYTES (4 * WORLD_BLOCK)

/* From now on there is no memory in that function; NULL: there is. */
static void refuse(struct rig *r, const char *function)
{
	r->world.memory.config = (struct fault_config){ .no_memory = function ? 1000 : 0 };
	for (unsigned i = 0; function != NULL && i < coverage_sites(); i++)
		if (strcmp(coverage_site(i)->function, function) == 0) {
			r->world.memory.only = coverage_site(i);
			return;
		}
	ck_assert_msg(function == NULL, "%s takes no memory", function);
}

static unsigned refused(const struct rig *r)
{
	return r->world.memory.refused;
}

static int acquire(struct rig *r, struct wire_handle t, uint8_t place, uint8_t access)
{
	rig_acquire(r, 0, 1, t, place, access, ENGINE_NEVER);
	return rig_wait(r, 0, 1, 500);
}

static bool says(const struct rig *r, const char *text)
{
	return strstr(r->client[0].text[1], text) != NULL;
}

static void expect_bytes(struct rig *r, struct wire_handle t, uint8_t place, char c)
{
	const char *at = rig_pin(r, 0, t, place, ACCESS_READ);

	ck_assert(rig_all_are(at, c, BYTES));
	rig_unpin(r, 0, t, ACCESS_READ);
}

static struct wire_handle filled(struct rig *r, char c)
{
	struct wire_handle t = rig_create_filled(r, 0, c);

	_Static_assert(BYTES == RIG_FILLED, "");
	return t;
}

START_TEST(what_was_destroyed_under_pins_goes_without_memory)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t = filled(r, 'a');

	rig_pin(r, 0, t, HOST, ACCESS_READ);
	r->world.memory.config = (struct fault_config){ .no_memory = 1000 }; /* anywhere */
	rig_destroy(r, 0, t);
	rig_unpin(r, 0, t, ACCESS_READ);
	rig_settle(r, 1000);
	ck_assert_uint_eq(r->world.stats->tensors, 0);
	ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_DRAM].reserved_bytes, 0);
	refuse(r, NULL);
	rig_close(r);
}
END_TEST

/* And nobody is asked to go for it: there is room. */
START_TEST(room_that_cannot_be_noted_down_is_no_lack_of_room)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle kept = filled(r, 'k'), t[16];
	int rc = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = rig_create(r, 0, GRANULE);
	refuse(r, "extents_ready");
	for (unsigned i = 0; i < ARRAY_SIZE(t) && rc == 0; i++)
		rc = acquire(r, t[i], 0, ACCESS_READ);
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert(says(r, "no memory to reserve its room"));
	ck_assert_uint_eq(r->world.stats->bad_picks, 0);
	ck_assert(rig_stands_at(r, kept, HOST));
	refuse(r, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		ck_assert_int_eq(acquire(r, t[i], 0, ACCESS_READ), 0);
	expect_bytes(r, kept, 0, 'k');
	rig_close(r);
}
END_TEST

START_TEST(one_piece_is_enough_for_every_move)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t = filled(r, 'p');

	refuse(r, "piece_new");
	ck_assert_msg(rig_flush(r, 0, t) == 0, "%s", r->client[0].text[1]);
	expect_bytes(r, t, 0, 'p');
	expect_bytes(r, t, HOST, 'p');
	ck_assert_uint_gt(refused(r), 0);
	refuse(r, NULL);
	rig_close(r);
}
END_TEST

START_TEST(a_move_that_cannot_be_made_is_told_and_changes_nothing)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t = filled(r, 'm');

	refuse(r, "move_new");
	ck_assert_int_eq(acquire(r, t, 0, ACCESS_READ), -ENOMEM);
	ck_assert(rig_stands_at(r, t, HOST));
	ck_assert_int_eq(rig_flush(r, 0, t), -ENOMEM);
	ck_assert(says(r, "cannot be written for want of memory"));
	refuse(r, NULL);
	ck_assert_int_eq(rig_flush(r, 0, t), 0);
	expect_bytes(r, t, 0, 'm');
	rig_close(r);
}
END_TEST

START_TEST(blocks_whose_map_cannot_be_kept_are_given_back)
{
	static const char *const places[] = { "grow_maps", "map_new" };
	struct rig *r = rig_open((struct world_shape){ .nvme = 2 });
	struct wire_handle t = filled(r, 'b');

	for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
		refuse(r, places[i]);
		ck_assert_int_eq(rig_flush(r, 0, t), -ENOMEM);
		ck_assert(r->client[0].text[1][0] != '\0');
		ck_assert_uint_eq(r->world.stats->tier[TIER_KIND_NVME].reserved_bytes, 0);
		refuse(r, NULL);
		rig_settle(r, 10);
	}
	ck_assert_int_eq(rig_flush(r, 0, t), 0);
	expect_bytes(r, t, HOST, 'b');
	rig_close(r);
}
END_TEST

START_TEST(nvme_without_memory_is_not_taken_for_full)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 2 });
	struct wire_handle t[8];
	int rc = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		t[i] = filled(r, (char)('a' + i));
	refuse(r, "extents_ready");
	for (unsigned i = 0; i < ARRAY_SIZE(t) && rc == 0; i++)
		rc = rig_flush(r, 0, t[i]);
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert(says(r, "cannot be written for want of memory"));
	refuse(r, NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		ck_assert_int_eq(rig_flush(r, 0, t[i]), 0);
	rig_close(r);
}
END_TEST

/* Not for ever, where room could be made if there were memory. */
START_TEST(who_waits_for_room_is_told_that_there_is_no_memory_to_make_it)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t[WORLD_DRAM / BYTES + 1];
	int rc = 0;

	for (unsigned i = 0; i + 1 < ARRAY_SIZE(t); i++)
		t[i] = filled(r, (char)('a' + i));
	t[ARRAY_SIZE(t) - 1] = rig_create(r, 0, BYTES);
	refuse(r, "map_new");
	for (unsigned i = 0; i < ARRAY_SIZE(t) && rc == 0; i++)
		rc = acquire(r, t[ARRAY_SIZE(t) - 1 - i], HOST, ACCESS_READ);
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert(says(r, "no memory to write back"));
	refuse(r, NULL);
	rig_settle(r, 2000);
	ck_assert_int_eq(acquire(r, t[ARRAY_SIZE(t) - 1], HOST, ACCESS_READ), 0);
	for (unsigned i = 0; i + 1 < ARRAY_SIZE(t); i++)
		expect_bytes(r, t[i], HOST, (char)('a' + i));
	rig_close(r);
}
END_TEST

START_TEST(without_memory_for_fences_an_acquire_on_waits_for_the_bytes)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t = filled(r, 'f');

	refuse(r, "pool_of");
	rig_acquire_on(r, 0, 1, &t, 1, 0, ACCESS_READ);
	ck_assert_int_eq(rig_wait(r, 0, 1, 100), 0);
	ck_assert_uint_eq(r->client[0].value[1], 0);
	ck_assert_uint_gt(refused(r), 0);
	expect_bytes(r, t, 0, 'f');
	refuse(r, NULL);
	rig_close(r);
}
END_TEST

START_TEST(a_client_that_there_is_no_memory_for_leaves_nothing)
{
	static const char *const places[] = { "engine_holder_add", "take_id" };
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct holder_tables tables = { .pins = r->client[0].pins };
	struct holder *h[8];

	for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
		struct err err = ERR_INIT;
		unsigned n = 0;
		int rc = 0;

		refuse(r, places[i]);
		while (n < ARRAY_SIZE(h) && rc == 0) {
			char name = (char)('A' + n);

			rc = engine_holder_add(r->world.engine, &name, 1, &tables, 7, NULL, &h[n],
					       &err);
			n += rc == 0;
		}
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert(err.text[0] != '\0');
		while (n-- > 0)
			engine_holder_die(r->world.engine, h[n], r->world.now_ns);
		refuse(r, NULL);
		rig_settle(r, 1000);
	}
	rig_close(r);
}
END_TEST

START_TEST(hints_that_there_is_no_memory_for_keep_none_of_the_others)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t[2] = { filled(r, 'x'), filled(r, 'y') };
	struct err err = ERR_INIT;

	refuse(r, "add_hint");
	r->world.memory.config.after = 1;
	r->world.memory.state.slabs = 0; /* the second one */
	ck_assert_int_eq(engine_prefetch(r->world.engine, r->client[0].holder, t, 2, 0,
					 r->world.now_ns, &err),
			 -ENOMEM);
	refuse(r, NULL);
	rig_settle(r, 50);
	ck_assert(rig_stands_at(r, t[0], 0));
	ck_assert(rig_stands_at(r, t[1], HOST));
	rig_close(r);
}
END_TEST

UNIT_MAIN("memory", what_was_destroyed_under_pins_goes_without_memory,
	  room_that_cannot_be_noted_down_is_no_lack_of_room, one_piece_is_enough_for_every_move,
	  a_move_that_cannot_be_made_is_told_and_changes_nothing,
	  blocks_whose_map_cannot_be_kept_are_given_back, nvme_without_memory_is_not_taken_for_full,
	  who_waits_for_room_is_told_that_there_is_no_memory_to_make_it,
	  without_memory_for_fences_an_acquire_on_waits_for_the_bytes,
	  a_client_that_there_is_no_memory_for_leaves_nothing,
	  hints_that_there_is_no_memory_for_keep_none_of_the_others)

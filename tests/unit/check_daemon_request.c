/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "daemon/connection.h"
#include "daemon/request.h"
#include "tests/unit/server_rig.h"

static struct rig rig;
static struct wire wire;

static void start(void)
{
	rig_start(&rig);
	rig_client(&rig, &wire);
	fake_engine.calls = 0;
}

static void stop(void)
{
	wire_close(&wire);
	rig_run(&rig);
	rig_stop(&rig);
}

static int call(struct sq_entry e)
{
	struct cq_entry c;

	return rig_call(&rig, &wire, &e, &c);
}

/* The answer is an error with a sentence, and the engine never heard of it. */
static void refused(struct sq_entry e, int result)
{
	unsigned before = fake_engine.calls;

	ck_assert_int_eq(call(e), result);
	ck_assert_uint_gt(strlen(wire_text(&wire, e.id)), 5);
	ck_assert_uint_eq(fake_engine.calls, before);
}

static bool served(void)
{
	struct sq_entry e = { .id = 200, .opcode = OP_STEP };
	struct cq_entry c;

	wire_submit(&wire, &e);
	rig_run(&rig);
	return wire_poll(&wire, &c);
}

START_TEST(every_opcode_has_a_row_and_no_other_number_has)
{
	unsigned known = 0;

#define X(name_, number, help)                               \
	ck_assert_ptr_nonnull(request_row(number));          \
	ck_assert_str_eq(request_row(number)->name, #name_); \
	known++;
	PROTOCOL_OPCODES(X)
#undef X
	for (unsigned i = 0; i <= UINT16_MAX; i++)
		known -= request_row((uint16_t)i) != NULL;
	ck_assert_uint_eq(known, 0);
}
END_TEST

START_TEST(unknown_opcodes_are_answered)
{
	uint16_t unknown = 1;

	start();
	while (request_row(unknown) != NULL)
		unknown++;
	refused((struct sq_entry){ .opcode = 0 }, -EOPNOTSUPP);
	refused((struct sq_entry){ .opcode = unknown }, -EOPNOTSUPP);
	refused((struct sq_entry){ .opcode = UINT16_MAX, .id = 255 }, -EOPNOTSUPP);
	stop();
}
END_TEST

START_TEST(a_payload_outside_its_area_is_refused)
{
	const uint32_t area = PAYLOAD_SLOTS * PAYLOAD_BYTES;
	const struct {
		uint32_t at, bytes, count;
	} bad[] = {
		{ area, 8, 1 },
		{ area - 8, 16, 2 },
		{ UINT32_MAX - 7, 8, 1 },
		{ 0, UINT32_MAX - 7, UINT32_MAX / 8 },
		{ 4, 8, 1 },
		{ PAYLOAD_BYTES - 8, 16, 2 },
		{ 0, PAYLOAD_BYTES + 8, PAYLOAD_BYTES / 8 + 1 },
	};

	start();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		refused((struct sq_entry){ .opcode = OP_DESTROY,
					   .payload = bad[i].at,
					   .payload_bytes = bad[i].bytes,
					   .count = bad[i].count },
			-EINVAL);
	stop();
}
END_TEST

START_TEST(counts_must_be_those_of_the_payload)
{
	start();
	refused((struct sq_entry){ .opcode = OP_EVICT, .payload_bytes = 16, .count = 3 }, -EINVAL);
	refused((struct sq_entry){ .opcode = OP_EVICT, .payload_bytes = 12, .count = 1 }, -EINVAL);
	/* 2^29 handles are 2^32 bytes: 0 in 32 bits */
	refused((struct sq_entry){ .opcode = OP_EVICT, .count = 1u << 29 }, -EINVAL);
	refused((struct sq_entry){ .opcode = OP_FLUSH, .count = 2 }, -EINVAL);
	refused((struct sq_entry){ .opcode = OP_STEP, .payload_bytes = 8 }, -EINVAL);
	stop();
}
END_TEST

START_TEST(handles_arrive_whole)
{
	struct wire_handle list[3] = { { 1, 2 }, { 3, 4 }, { 5, 6 } };

	start();
	memcpy(wire_payload(&wire, 5), list, sizeof(list));
	ck_assert_int_eq(call((struct sq_entry){ .opcode = OP_PREFETCH,
						 .place = 1,
						 .payload = 5 * PAYLOAD_BYTES,
						 .payload_bytes = sizeof(list),
						 .count = 3 }),
			 0);
	ck_assert_str_eq(fake_engine.last, "prefetch");
	ck_assert_uint_eq(fake_engine.count, 3);
	ck_assert_uint_eq(fake_engine.first.index, 1);
	ck_assert_uint_eq(fake_engine.first.generation, 2);
	ck_assert_uint_eq(fake_engine.place, 1);
	stop();
}
END_TEST

START_TEST(a_full_slot_of_handles_is_taken)
{
	start();
	ck_assert_int_eq(call((struct sq_entry){ .opcode = OP_DESTROY,
						 .payload = 31 * PAYLOAD_BYTES,
						 .payload_bytes = PAYLOAD_BYTES,
						 .count = PAYLOAD_BYTES / 8 }),
			 0);
	ck_assert_uint_eq(fake_engine.count, 8192);
	stop();
}
END_TEST

START_TEST(names_are_checked)
{
	struct sq_entry e = { .opcode = OP_LOOKUP };

	start();
	refused(e, -EINVAL);
	e.payload_bytes = 256;
	memset(wire_payload(&wire, 0), 'x', 256);
	refused(e, -EINVAL);
	e.payload_bytes = 3;
	memcpy(wire_payload(&wire, 0), "a\0b", 3);
	refused(e, -EINVAL);
	memcpy(wire_payload(&wire, 0), "../", 3);
	ck_assert_int_eq(call(e), 0);
	ck_assert_str_eq(fake_engine.name, "../");
	ck_assert_int_eq(memcmp(wire_payload(&wire, 0), &(struct wire_handle){ 3, 4 }, 8), 0);
	stop();
}
END_TEST

START_TEST(an_engine_error_comes_with_its_sentence_and_without_payload)
{
	struct sq_entry e = { .opcode = OP_LOOKUP, .payload_bytes = 7 };
	struct cq_entry c;

	start();
	memcpy(wire_payload(&wire, 0), "missing", 7);
	ck_assert_int_eq(rig_call(&rig, &wire, &e, &c), -ENOENT);
	ck_assert_uint_eq(c.payload_bytes, 0);
	ck_assert_str_eq(wire_text(&wire, 0), "no tensor of that name");
	ck_assert_int_eq(memcmp(wire_payload(&wire, 0), "missing", 7), 0);
	stop();
}
END_TEST

/* One spec with a name of 5 bytes, which a test then spoils. */
static struct wire_spec *spec_put(void)
{
	char *at = wire_payload(&wire, 0);
	struct wire_spec spec = { .bytes = 88, .ndim = 2, .name_bytes = 5, .shape = { 3, 4 } };

	memcpy(at, &spec, sizeof(spec));
	memcpy(at + sizeof(spec), "alpha\0\0", 8);
	return (struct wire_spec *)(void *)at;
}

static const struct sq_entry create_one = { .opcode = OP_CREATE, .payload_bytes = 88, .count = 1 };

START_TEST(a_good_spec_arrives_whole)
{
	start();
	spec_put();
	ck_assert_int_eq(call(create_one), 0);
	ck_assert_str_eq(fake_engine.name, "alpha");
	ck_assert_uint_eq(fake_engine.spec.name_bytes, 5);
	ck_assert_uint_eq(fake_engine.spec.shape[1], 4);
	ck_assert_int_eq(memcmp(wire_payload(&wire, 0), &(struct wire_handle){ 0, 7 }, 8), 0);
	stop();
}
END_TEST

/* Its later entries stand behind it. */
START_TEST(what_has_no_room_before_ended_jobs_are_gone_waits_for_that)
{
	struct sq_entry behind = { .id = 9, .opcode = OP_STEP };
	struct cq_entry c;

	start();
	spec_put();
	fake_engine.ends = true;
	wire_submit(&wire, &create_one);
	wire_submit(&wire, &behind);
	rig_run(&rig);
	ck_assert_uint_eq(fake_engine.calls, 1);
	ck_assert(!wire_poll(&wire, &c));
	/* The thread may sleep, but not over the end. */
	ck_assert(!server_pending(rig.server, true));
	fake_engine.ends = false;
	ck_assert(server_pending(rig.server, true));
	rig_run(&rig);
	ck_assert(wire_poll(&wire, &c));
	ck_assert_uint_eq(c.id, create_one.id);
	ck_assert_int_eq(c.result, 0);
	ck_assert(wire_poll(&wire, &c));
	ck_assert_uint_eq(c.id, behind.id);
	ck_assert_str_eq(fake_engine.name, "alpha");
	stop();
}
END_TEST

START_TEST(spoilt_specs_are_refused)
{
	struct sq_entry e = create_one;

	start();
	spec_put()->bytes = 96; /* beyond the payload */
	refused(e, -EINVAL);
	spec_put()->bytes = 0; /* would never come to an end */
	refused(e, -EINVAL);
	spec_put()->bytes = 84; /* not of 8 */
	refused(e, -EINVAL);
	spec_put()->name_bytes = 255; /* runs out of the record */
	refused(e, -EINVAL);
	spec_put()->flags = 2;
	refused(e, -EINVAL);
	((char *)spec_put())[82] = '\0'; /* in the name */
	refused(e, -EINVAL);
	spec_put();
	e.count = 2; /* the second is not there */
	refused(e, -EINVAL);
	e.count = 0;
	refused(e, -EINVAL);
	e.count = UINT32_MAX;
	refused(e, -EINVAL);
	e = create_one;
	e.payload_bytes = 96; /* 8 bytes that are no spec */
	refused(e, -EINVAL);
	e.payload_bytes = 40;
	refused(e, -EINVAL);
	stop();
}
END_TEST

START_TEST(access_must_be_a_combination_that_means_something)
{
	const uint8_t bad[] = { 0, 4, 5, 8, 255 };
	const uint8_t good[] = { 1, 2, 3, 6, 7 };

	start();
	for (size_t i = 0; i < sizeof(bad); i++)
		refused((struct sq_entry){ .opcode = OP_ACQUIRE, .access = bad[i] }, -EINVAL);
	for (size_t i = 0; i < sizeof(good); i++) {
		struct sq_entry e = { .id = (uint32_t)i, .opcode = OP_ACQUIRE, .access = good[i] };

		wire_submit(&wire, &e);
		rig_run(&rig);
		ck_assert_uint_eq(fake_engine.access, good[i]);
		ck_assert_uint_eq(fake_engine.count, 1);
	}
	stop();
}
END_TEST

START_TEST(timeouts_become_deadlines_without_wrapping)
{
	struct sq_entry e = { .opcode = OP_ACQUIRE, .access = 1, .index = 9, .timeout_ns = -5 };

	start();
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert_uint_eq(fake_engine.deadline_ns, ENGINE_NEVER);
	e.id = 1;
	e.timeout_ns = 0;
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert_uint_eq(fake_engine.deadline_ns, 0);
	e.id = 2;
	e.timeout_ns = INT64_MAX;
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert_uint_ge(fake_engine.deadline_ns, INT64_MAX);
	stop();
}
END_TEST

START_TEST(copies_stay_inside_their_window)
{
	struct sq_entry e = { .opcode = OP_COPY_IN, .window = WINDOW_SLOTS, .bytes = 1 };

	start();
	refused(e, -EINVAL);
	e.window = UINT32_MAX;
	refused(e, -EINVAL);
	e.window = 7;
	e.bytes = WINDOW_BYTES + 1;
	refused(e, -EINVAL);
	e.bytes = UINT64_MAX;
	refused(e, -EINVAL);
	e.bytes = 16;
	e.offset = UINT64_MAX - 15;
	refused(e, -EINVAL);
	e.offset = 5;
	e.bytes = WINDOW_BYTES;
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert_str_eq(fake_engine.last, "copy_in");
	ck_assert_uint_eq(fake_engine.bytes, WINDOW_BYTES);
	stop();
}
END_TEST

START_TEST(answers_end_where_the_slot_ends)
{
	const uint32_t at = 3 * PAYLOAD_BYTES - 256;
	struct sq_entry e = { .opcode = OP_LIST, .payload = at, .offset = 12 };
	struct cq_entry c;

	start();
	memset(wire_payload(&wire, 3), 0, 64);
	ck_assert_int_eq(rig_call(&rig, &wire, &e, &c), 0);
	ck_assert_uint_eq(c.payload_bytes, 256);
	ck_assert_uint_eq(c.value, 99);
	ck_assert_uint_eq(*(unsigned char *)wire_payload(&wire, 3), 0);
	e.offset = UINT64_MAX;
	refused(e, -EINVAL);
	e = (struct sq_entry){ .opcode = OP_STAT, .payload = 3 * PAYLOAD_BYTES - 64 };
	ck_assert_int_eq(call(e), -EINVAL);
	stop();
}
END_TEST

START_TEST(cancel_reaches_the_engine_only_for_what_is_outstanding)
{
	struct sq_entry e = { .id = 4, .opcode = OP_ACQUIRE, .access = 1, .timeout_ns = -1 };

	start();
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert_int_eq(call((struct sq_entry){ .id = 5, .opcode = OP_CANCEL, .window = 4 }), 0);
	ck_assert_uint_eq(fake_engine.cancelled, 4);
	fake_engine.calls = 0;
	ck_assert_int_eq(call((struct sq_entry){ .id = 5, .opcode = OP_CANCEL, .window = 77 }), 0);
	ck_assert_int_eq(
		call((struct sq_entry){ .id = 5, .opcode = OP_CANCEL, .window = 1u << 31 }), 0);
	ck_assert_uint_eq(fake_engine.calls, 0);
	refused((struct sq_entry){ .id = 5, .opcode = OP_CANCEL, .window = 5 }, -EINVAL);
	stop();
}
END_TEST

START_TEST(an_id_out_of_range_drops_the_client)
{
	struct sq_entry e = { .id = SQ_ENTRIES, .opcode = OP_STEP };

	start();
	ck_assert(served());
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert(!served());
	ck_assert(fake_engine.holders[0].stopped);
	ck_assert(!fake_engine.holders[0].dead); /* its pins count until its pidfd */
	stop();
}
END_TEST

START_TEST(an_id_that_is_still_out_drops_the_client)
{
	struct sq_entry e = { .id = 9, .opcode = OP_ACQUIRE, .access = 1, .timeout_ns = -1 };

	start();
	wire_submit(&wire, &e);
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].stopped);
	stop();
}
END_TEST

START_TEST(a_wild_tail_drops_the_client)
{
	start();
	atomic_store(&wire.control->sq_tail, 1u << 31);
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].stopped);
	ck_assert_uint_eq(fake_engine.calls, 0);
	stop();
}
END_TEST

START_TEST(what_the_header_says_is_never_believed)
{
	start();
	memset((char *)wire.control + 32, 0xff, 7 * sizeof(struct layout_array));
	ck_assert_uint_eq(fake_engine.calls, 0);
	/* Our own view of the ring is gone, so write to where it is known to be. */
	ring_put((char *)wire.control + CONTROL_HEADER_BYTES, SQ_ENTRIES, &wire.control->sq_tail,
		 &wire.sq_tail, &(struct sq_entry){ .opcode = OP_STEP });
	rig_run(&rig);
	ck_assert_uint_eq(fake_engine.calls, 1);
	stop();
}
END_TEST

UNIT_MAIN("daemon_request", every_opcode_has_a_row_and_no_other_number_has,
	  unknown_opcodes_are_answered, a_payload_outside_its_area_is_refused,
	  counts_must_be_those_of_the_payload, handles_arrive_whole,
	  a_full_slot_of_handles_is_taken, names_are_checked,
	  an_engine_error_comes_with_its_sentence_and_without_payload, a_good_spec_arrives_whole,
	  what_has_no_room_before_ended_jobs_are_gone_waits_for_that, spoilt_specs_are_refused,
	  access_must_be_a_combination_that_means_something,
	  timeouts_become_deadlines_without_wrapping, copies_stay_inside_their_window,
	  answers_end_where_the_slot_ends, cancel_reaches_the_engine_only_for_what_is_outstanding,
	  an_id_out_of_range_drops_the_client, an_id_that_is_still_out_drops_the_client,
	  a_wild_tail_drops_the_client, what_the_header_says_is_never_believed)

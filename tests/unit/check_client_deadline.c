/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines of libtierd's acquires where the daemon says nothing.
 */
#include "tests/unit/unit.h"

#include <errno.h>

#include "base/clock.h"
#include "libclient/client.h"
#include "libclient/request.h"
#include "tests/unit/fake_daemon.h"

static struct fake fake;
static struct tierd *t;

static void begin(void)
{
	fake_start(&fake);
	for (uint32_t i = 8; i < 10; i++)
		fake_tensor(&fake, i, 1, STATE_ABSENT, 0, 0, FAKE_TENSOR_SIZE);
	ck_assert_int_eq(tierd_open(fake.path, "job", 0, &t), 0);
}

static void end(void)
{
	tierd_close(t);
	fake_stop(&fake);
}

START_TEST(a_daemon_that_never_answers_does_not_hold_a_deadline_for_ever)
{
	struct tierd_view v;
	uint64_t before;

	fake.hold_acquire = true;
	begin();
	before = clock_now_ns();
	ck_assert_int_eq(tierd_acquire(t, (tierd_tensor){ 8, 1 }, TIERD_HOST, TIERD_READ, 1000, &v),
			 -ETIMEDOUT);
	ck_assert_uint_lt(clock_now_ns() - before, 30 * NS_PER_S);
	end();
}
END_TEST

static bool swallow(struct fake *f, const struct sq_entry *e)
{
	return true;
}

/* Ids, and payload slots of batches, that were left behind to a daemon that says nothing. */
START_TEST(a_deadline_holds_when_all_requests_are_out)
{
	static struct call calls[SQ_ENTRIES];
	tierd_tensor h[2] = { { 8, 1 }, { 9, 1 } };
	struct tierd_view v[2];
	uint32_t n = 0;

	fake.answer = swallow;
	begin();
	for (; n < t->payload_slots; n++) {
		ck_assert_int_eq(request_begin(t, CALL_PAYLOAD | CALL_TRY, OP_STEP, &calls[n]), 0);
		request_send(t, &calls[n]);
	}
	ck_assert_int_eq(tierd_acquire_batch(t, h, 2, TIERD_HOST, TIERD_READ, 0, v), -ETIMEDOUT);
	ck_assert_str_eq(tierd_error(t), "no place for one more request came free in time: 32 of "
					 "this connection are under way");
	while (request_begin(t, CALL_TRY, OP_STEP, &calls[n]) == 0)
		request_send(t, &calls[n++]);
	ck_assert_int_eq(tierd_acquire(t, h[0], TIERD_HOST, TIERD_READ, 0, v), -ETIMEDOUT);
	pthread_mutex_lock(&fake.lock);
	for (uint32_t i = 0; i < n; i++)
		fake_complete(&fake, calls[i].entry.id, 0, 0, 0, "");
	fake.answer = NULL;
	pthread_mutex_unlock(&fake.lock);
	ck_assert_int_eq(tierd_acquire_batch(t, h, 2, TIERD_HOST, TIERD_READ, 0, v), 0);
	for (unsigned i = 0; i < 2; i++)
		tierd_release(t, &v[i]);
	end();
}
END_TEST

/* As many as can wait do, each for others; what the daemon answers at once goes on beside them. */
static void keep_waiting(unsigned needs)
{
	static struct call calls[SQ_ENTRIES];
	tierd_tensor made[3];
	struct tierd_spec specs[3] = { 0 };
	uint32_t n = 0;

	begin();
	while (request_begin(t, CALL_SIGNALS | CALL_TRY | needs, OP_ACQUIRE, &calls[n]) == 0)
		n++;
	ck_assert_uint_ge(n, needs != 0 ? t->payload_slots / 2 : t->ids / 2);
	ck_assert_int_eq(tierd_create(t, specs, 3, made), 0);
	ck_assert_int_eq(tierd_destroy(t, made, 3), 0);
	while (n > 0)
		request_end(t, &calls[--n]);
	end();
}

START_TEST(who_waits_for_others_keeps_nobody_from_the_daemon)
{
	keep_waiting(0);
}
END_TEST

START_TEST(who_waits_with_a_list_keeps_nobody_from_the_daemon)
{
	keep_waiting(CALL_PAYLOAD);
}
END_TEST

UNIT_MAIN("client_deadline", who_waits_for_others_keeps_nobody_from_the_daemon,
	  who_waits_with_a_list_keeps_nobody_from_the_daemon,
	  a_daemon_that_never_answers_does_not_hold_a_deadline_for_ever,
	  a_deadline_holds_when_all_requests_are_out)

/* SPDX-License-Identifier: Apache-2.0
 *
 * libtierd's hits, pins, logs, and the life of a connection, against a daemon in a thread.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/acquire.h"
#include "libclient/admin.h"
#include "libclient/client.h"
#include "libclient/protocol/pin.h"
#include "tests/unit/fake_daemon.h"

static struct fake fake;
static struct tierd *t;

static const tierd_tensor one = { 1, 5 };

static void begin(void)
{
	fake.never_sleep = false;
	fake_start(&fake);
	fake_tensor(&fake, 1, 5, STATE_RESIDENT, PROTOCOL_PLACE_HOST, 0, 1000);
	ck_assert_int_eq(tierd_open(fake.path, "job", 0, &t), 0);
}

static void end(void)
{
	tierd_close(t);
	fake_stop(&fake);
}

static void expect_slot(uint32_t index, uint64_t want)
{
	ck_assert_uint_eq(atomic_load(&fake.slots[index]), want);
}

START_TEST(a_hit_pins_the_slot_and_points_into_the_arena)
{
	struct tierd_view v;

	begin();
	memset(fake.arena + FAKE_TENSOR_SIZE, 7, 1000);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), 0);
	ck_assert_uint_eq(v.bytes, 1000);
	ck_assert_int_eq(((char *)v.data)[999], 7);
	ck_assert_uint_eq((uintptr_t)v.data % 512, 0);
	ck_assert_int_eq(v.place, TIERD_HOST);
	expect_slot(1, PIN_ONE);
	tierd_release(t, &v);
	expect_slot(1, 0);
	ck_assert_ptr_null(v.data);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_ACQUIRE]), 0);
	end();
}
END_TEST

START_TEST(a_write_leaves_written_behind_and_a_missed_write_nothing)
{
	struct tierd_view v;

	begin();
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_WRITE, 0, &v), 0);
	expect_slot(1, PIN_ONE | PIN_WRITE_ONE | PIN_WRITTEN);
	tierd_release(t, &v);
	expect_slot(1, PIN_WRITTEN);
	atomic_store(&fake.slots[1], 0);
	fake.hold_acquire = true;
	fake_tensor(&fake, 1, 5, STATE_EVICTING, PROTOCOL_PLACE_HOST, 0, 1000);
	ck_assert_int_eq(tierd_acquire(t, (tierd_tensor){ 1, 6 }, TIERD_HOST, TIERD_WRITE, 0, &v),
			 -ESTALE);
	expect_slot(1, 0);
	end();
}
END_TEST

START_TEST(overflow_is_refused_and_changes_nothing)
{
	struct tierd_view v, first;

	begin();
	for (unsigned i = 0; i < 65535; i++)
		ck_assert_int_eq(
			tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, i == 0 ? &first : &v), 0);
	expect_slot(1, 65535);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), -EOVERFLOW);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_WRITE, 0, &v), -EOVERFLOW);
	expect_slot(1, 65535);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "65535"));
	for (unsigned i = 0; i < 65535; i++) {
		v = first;
		tierd_release(t, &v);
	}
	expect_slot(1, 0);
	end();
}
END_TEST

START_TEST(write_pins_overflow_before_they_carry)
{
	pin_slot slot = PIN_WRITE_MASK | 65534;
	uint64_t old;

	ck_assert(!pin_raise(&slot, TIERD_WRITE, &old));
	ck_assert_uint_eq(slot, PIN_WRITE_MASK | 65534);
	ck_assert(pin_raise(&slot, TIERD_READ, &old));
	ck_assert(!pin_raise(&slot, TIERD_READ, &old));
}
END_TEST

START_TEST(wrong_releases_are_caught_and_change_nothing)
{
	struct tierd_view v, copy, foreign;

	begin();
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_WRITE, 0, &v), 0);
	copy = v;
	foreign = v;
	foreign.cookie ^= (uint64_t)1 << 20;
	tierd_release(t, &foreign);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "another connection"));
	expect_slot(1, PIN_ONE | PIN_WRITE_ONE | PIN_WRITTEN);
	/* A reader's release while only a writer's pin stands would take the writer's. */
	foreign = v;
	foreign.cookie = (v.cookie & ~(uint64_t)0xff) | TIERD_READ;
	tierd_release(t, &foreign);
	expect_slot(1, PIN_ONE | PIN_WRITE_ONE | PIN_WRITTEN);
	foreign = v;
	foreign.tensor.index = UINT32_MAX;
	tierd_release(t, &foreign);
	tierd_release(t, &v);
	tierd_release(t, &v);
	tierd_release(t, &copy);
	ck_assert_ptr_nonnull(strstr(tierd_error(t), "does not pin"));
	expect_slot(1, PIN_WRITTEN);
	end();
}
END_TEST

START_TEST(stale_and_wild_handles_are_refused_without_a_request)
{
	const tierd_tensor wild[] = {
		{ 1, 4 }, { 0, 0 }, { 2, 0 }, { FAKE_TENSORS, 5 }, { UINT32_MAX, UINT32_MAX }
	};
	struct tierd_view v = { .bytes = 77 };

	begin();
	for (size_t i = 0; i < ARRAY_SIZE(wild); i++)
		ck_assert_int_eq(tierd_acquire(t, wild[i], TIERD_HOST, TIERD_READ, -1, &v),
				 -ESTALE);
	fake_tensor(&fake, 1, 5, STATE_RESIDENT, PROTOCOL_PLACE_HOST, FLAG_DOOMED, 1000);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, -1, &v), -ESTALE);
	ck_assert_uint_eq(v.bytes, 77);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_ACQUIRE]), 0);
	expect_slot(1, 0);
	end();
}
END_TEST

START_TEST(bad_arguments_have_names)
{
	struct tierd_view v;

	begin();
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, 0, 0, &v), -EINVAL);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_DISCARD, 0, &v), -EINVAL);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ | TIERD_DISCARD, 0, &v),
			 -EINVAL);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, 8, 0, &v), -EINVAL);
	ck_assert_int_eq(tierd_acquire(t, one, -2, TIERD_READ, 0, &v), -ENODEV);
	ck_assert_int_eq(tierd_acquire(t, one, 255, TIERD_READ, 0, &v), -ENODEV);
	ck_assert_int_eq(
		tierd_acquire_batch(t, &one, TIERD_BATCH_MAX + 1, TIERD_HOST, TIERD_READ, 0, &v),
		-E2BIG);
	ck_assert_int_eq(tierd_acquire_batch(t, NULL, 0, TIERD_HOST, TIERD_READ, 0, NULL), 0);
	end();
}
END_TEST

START_TEST(a_descriptor_outside_its_arena_is_no_pointer)
{
	struct tierd_view v;

	begin();
	atomic_store(&fake.descriptors[1].word1, word1_make(0, FAKE_ARENA - 512));
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), -EPROTO);
	atomic_store(&fake.descriptors[1].word1, word1_make(3, 0));
	ck_assert_int_eq(tierd_acquire_batch(t, &one, 1, TIERD_HOST, TIERD_READ, 0, &v), -EPROTO);
	atomic_store(&fake.descriptors[1].word1, word1_make(9999, 0));
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), -EPROTO);
	expect_slot(1, 0);
	end();
}
END_TEST

/* The fake daemon makes the tensor FILLED for whom it asks; here it must not be asked. */
START_TEST(an_unfilled_front_is_a_hit_for_its_writer_only)
{
	struct tierd_view v;

	begin();
	fake.hold_acquire = true;
	fake_tensor(&fake, 1, 5, STATE_RESIDENT, PROTOCOL_PLACE_HOST, FLAG_UNFILLED, 1000);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD, 0, &v), 0);
	expect_slot(1, PIN_ONE | PIN_WRITE_ONE | PIN_WRITTEN | PIN_FILLED);
	tierd_release(t, &v);
	expect_slot(1, PIN_WRITTEN | PIN_FILLED);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), 0);
	tierd_release(t, &v);
	ck_assert_uint_eq(fake_peek(&fake, &fake.counts[OP_ACQUIRE]), 0);
	end();
}
END_TEST

/* Between a reader's pin and its second look another front comes, UNFILLED: what its client once
 * said of an earlier one does not let it in. */
START_TEST(what_was_filled_before_is_no_key_to_an_unfilled_front)
{
	uint64_t word0, old;
	pin_slot *slot;

	begin();
	slot = &fake.slots[1];
	atomic_store(slot, PIN_FILLED);
	ck_assert(pin_raise(slot, TIERD_READ, &old));
	atomic_fetch_and(slot, ~PIN_FILLED);
	fake_tensor(&fake, 1, 5, STATE_RESIDENT, PROTOCOL_PLACE_HOST, FLAG_UNFILLED, 1000);
	word0 = atomic_load(&fake.descriptors[1].word0);
	ck_assert_int_eq(try_pinned(word0, slot, one, PROTOCOL_PLACE_HOST, TIERD_READ), TRY_MISS);
	expect_slot(1, 0);
	atomic_store(slot, PIN_FILLED);
	ck_assert(pin_raise(slot, TIERD_READ, &old));
	ck_assert_int_eq(try_pinned(word0, slot, one, PROTOCOL_PLACE_HOST, TIERD_READ), TRY_HIT);
	expect_slot(1, PIN_FILLED | PIN_ONE);
	atomic_store(slot, 0);
	end();
}
END_TEST

static bool refuse(struct fake *f, const struct sq_entry *e)
{
	if (e->opcode != OP_ACQUIRE)
		return false;
	fake_complete(f, e->id, -ETIMEDOUT, 0, 0, "tensor x is not there");
	return true;
}

START_TEST(an_unfilled_front_is_a_miss_for_all_others_and_filled_stays_down)
{
	struct tierd_view v, two[2];
	const tierd_tensor both[] = { { 1, 5 }, { 2, 5 } };

	fake.answer = refuse;
	begin();
	fake_tensor(&fake, 1, 5, STATE_RESIDENT, PROTOCOL_PLACE_HOST, FLAG_UNFILLED, 1000);
	fake_tensor(&fake, 2, 5, STATE_ABSENT, PROTOCOL_PLACE_HOST, 0, 1000);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), -ETIMEDOUT);
	ck_assert_str_eq(tierd_error(t), "tensor x is not there");
	expect_slot(1, 0);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_WRITE, 0, &v), -ETIMEDOUT);
	expect_slot(1, PIN_WRITTEN);
	/* A batch that backs out must not have said that it fills the first. */
	ck_assert_int_eq(
		tierd_acquire_batch(t, both, 2, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD, 0, two),
		-ETIMEDOUT);
	expect_slot(1, PIN_WRITTEN);
	end();
}
END_TEST

START_TEST(the_log_tells_of_every_use_and_wakes_a_sleeping_daemon_once)
{
	struct tierd_view v;
	uint32_t before;

	fake.never_sleep = false;
	begin();
	fake_wait_asleep(&fake);
	before = fake_peek(&fake, &fake.doorbells);
	for (unsigned i = 0; i < 3000; i++) {
		ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), 0);
		tierd_release(t, &v);
	}
	ck_assert_uint_eq(fake.logs[0].owner, 1);
	ck_assert_uint_eq(atomic_load(&fake.logs[0].head), 3000);
	ck_assert_uint_eq(atomic_load(&fake.logs[0].entries[2999 % LOG_ENTRIES]),
			  log_entry_make(1, PROTOCOL_PLACE_HOST, TIERD_READ, 2999));
	/* The daemon's thread counts what it heard in its own time. */
	for (unsigned i = 0; i < 10000 && fake_peek(&fake, &fake.doorbells) == before; i++)
		usleep(1000);
	ck_assert_uint_gt(fake_peek(&fake, &fake.doorbells), before);
	end();
}
END_TEST

static void *use_once(void *arg)
{
	struct tierd_view v;

	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), 0);
	tierd_release(t, &v);
	return NULL;
}

START_TEST(threads_give_their_logs_back_when_they_end)
{
	begin();
	for (unsigned i = 0; i < 3 * LOGS; i++) {
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, use_once, NULL), 0);
		pthread_join(thread, NULL);
	}
	ck_assert_uint_eq(atomic_load(&fake.logs[0].owner), 0);
	ck_assert_uint_eq(atomic_load(&fake.logs[0].head), 3 * LOGS);
	end();
}
END_TEST

static void *join_and_release(void *view)
{
	ck_assert_int_eq(tierd_acquire_batch(t, NULL, 0, TIERD_HOST, TIERD_READ, 0, NULL), 0);
	ck_assert_uint_eq(atomic_load(&fake.logs[1].owner), 1);
	ck_assert_uint_eq(atomic_load(&fake.logs[1].head), 0);
	tierd_release(t, view);
	return NULL;
}

/* By its log the daemon knows that there is a thread; of one that only releases it does not. */
START_TEST(an_acquire_of_nothing_takes_a_log)
{
	struct tierd_view v;
	pthread_t thread;

	begin();
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), 0);
	ck_assert_uint_eq(atomic_load(&fake.logs[1].owner), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, join_and_release, &v), 0);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(atomic_load(&fake.logs[1].owner), 0);
	expect_slot(1, 0);
	end();
}
END_TEST

START_TEST(two_connections_of_a_thread_keep_their_logs_apart)
{
	static struct fake other;
	struct tierd *t2;
	struct tierd_view v;

	begin();
	fake_start(&other);
	fake_tensor(&other, 1, 5, STATE_RESIDENT, PROTOCOL_PLACE_HOST, 0, 1000);
	ck_assert_int_eq(tierd_open(other.path, NULL, 0, &t2), 0);
	for (unsigned i = 0; i < 10; i++) {
		struct tierd *now = i % 2 ? t2 : t;

		ck_assert_int_eq(tierd_acquire(now, one, TIERD_HOST, TIERD_READ, 0, &v), 0);
		tierd_release(now == t ? t2 : t, &v);
		ck_assert_ptr_nonnull(v.data);
		tierd_release(now, &v);
	}
	ck_assert_uint_eq(atomic_load(&fake.logs[0].head), 5);
	ck_assert_uint_eq(atomic_load(&other.logs[0].head), 5);
	tierd_close(t2);
	fake_stop(&other);
	end();
}
END_TEST

START_TEST(a_close_with_views_unmaps_after_the_last_release)
{
	struct tierd_view views[3];

	begin();
	fake_tensor(&fake, 3000, 1, STATE_RESIDENT, PROTOCOL_PLACE_HOST, 0, 1);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &views[0]), 0);
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_WRITE, 0, &views[1]), 0);
	ck_assert_int_eq(
		tierd_acquire(t, (tierd_tensor){ 3000, 1 }, TIERD_HOST, TIERD_READ, 0, &views[2]),
		0);
	tierd_close(t);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(fake_peek(&fake, &fake.bye), 0);
		*(volatile char *)views[i].data;
		tierd_release(t, &views[i]);
	}
	fake_wait_bye(&fake);
	fake_stop(&fake);
}
END_TEST

static int in_child(void)
{
	struct tierd_view v;
	tierd_tensor h;
	struct tierd_stats stats;

	if (tierd_acquire(t, one, TIERD_HOST, TIERD_READ, -1, &v) != -EPERM)
		return 1;
	if (tierd_lookup(t, "x", &h) != -EPERM || tierd_step(t) != -EPERM)
		return 2;
	if (tierd_stats(t, &stats) != -EPERM || tierd_flush(t, NULL, 0) != -EPERM)
		return 3;
	if (tierd_copy_out(t, one, 0, &v, 8) != -EPERM)
		return 4;
	return 0;
}

START_TEST(a_forked_child_is_refused_and_harms_nothing)
{
	struct tierd_view v;
	int status;
	pid_t pid;

	begin();
	ck_assert_int_eq(tierd_acquire(t, one, TIERD_HOST, TIERD_READ, 0, &v), 0);
	pid = fork();
	if (pid == 0) {
		int rc = in_child();

		tierd_release(t, &v);
		tierd_close(t);
		_exit(rc != 0 ? rc : v.data == NULL ? 9 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	expect_slot(1, PIN_ONE);
	ck_assert_uint_eq(fake_peek(&fake, &fake.bye), 0);
	tierd_release(t, &v);
	end();
}
END_TEST

START_TEST(stats_come_from_the_page)
{
	struct tierd_stats stats;

	begin();
	atomic_store(&fake.stats->tier[TIERD_DRAM].limit_bytes, 123);
	atomic_store(&fake.stats->moves[2][0][1], 4);
	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	ck_assert_uint_eq(stats.tier[TIERD_DRAM].limit_bytes, 123);
	ck_assert_uint_eq(stats.moves[2][0][1], 4);
	end();
}
END_TEST

static uint16_t other_minor;
static uint32_t other_bytes;

static void be_other_minor(struct fake *f, struct hello_reply *r)
{
	r->minor = f->stats->minor = other_minor;
	f->stats->bytes = other_bytes;
}

/* Whatever its page has where ours has counters. */
START_TEST(counters_of_another_minor_are_not_misread)
{
	static const struct {
		uint16_t minor;
		uint32_t bytes;
	} of[] = { { PROTOCOL_MINOR + 1, sizeof(struct stats_page) + 64 },
		   { PROTOCOL_MINOR - 1, sizeof(struct stats_page) - 64 },
		   { PROTOCOL_MINOR - 1, STATS_PAGE_HEAD } };
	char want[64];

	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		struct tierd_stats stats = { .tensors = 4711 };

		memset(&fake, 0, sizeof(fake));
		other_minor = of[i].minor;
		other_bytes = of[i].bytes;
		fake.spoil = be_other_minor;
		fake_start(&fake);
		ck_assert_int_eq(tierd_open(fake.path, "job", 0, &t), 0);
		ck_assert_int_eq(tierd_stats(t, &stats), -EPROTO);
		ck_assert_uint_eq(stats.tensors, 4711);
		snprintf(want, sizeof(want), "version %u.%u", PROTOCOL_MAJOR, other_minor);
		ck_assert_ptr_nonnull(strstr(tierd_error(t), want));
		ck_assert_ptr_null(admin_stats_page(t));
		end();
	}
}
END_TEST

UNIT_MAIN("client", a_hit_pins_the_slot_and_points_into_the_arena,
	  a_write_leaves_written_behind_and_a_missed_write_nothing,
	  overflow_is_refused_and_changes_nothing, write_pins_overflow_before_they_carry,
	  wrong_releases_are_caught_and_change_nothing,
	  stale_and_wild_handles_are_refused_without_a_request, bad_arguments_have_names,
	  a_descriptor_outside_its_arena_is_no_pointer,
	  an_unfilled_front_is_a_hit_for_its_writer_only,
	  what_was_filled_before_is_no_key_to_an_unfilled_front,
	  an_unfilled_front_is_a_miss_for_all_others_and_filled_stays_down,
	  the_log_tells_of_every_use_and_wakes_a_sleeping_daemon_once,
	  threads_give_their_logs_back_when_they_end, an_acquire_of_nothing_takes_a_log,
	  two_connections_of_a_thread_keep_their_logs_apart,
	  a_close_with_views_unmaps_after_the_last_release,
	  a_forked_child_is_refused_and_harms_nothing, stats_come_from_the_page,
	  counters_of_another_minor_are_not_misread)

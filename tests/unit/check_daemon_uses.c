/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <string.h>

#include "daemon/uses.h"

static struct access_log *logs;
static struct uses uses;
static uint64_t seen, last, lost;
static bool in_order;

static void sink_used(void *ctx, uint32_t index, uint8_t place, uint8_t access)
{
	seen++;
	in_order = in_order && (seen == 1 || index > last);
	last = index;
	ck_assert_uint_eq(place, 0xff);
	ck_assert_uint_eq(access, 3);
}

static const struct uses_sink sink = { NULL, sink_used };

static void start(void)
{
	logs = aligned_alloc(64, LOGS * sizeof(*logs));
	memset((void *)logs, 0, LOGS * sizeof(*logs));
	uses_init(&uses, logs);
	seen = last = lost = 0;
	in_order = true;
}

/* As the library does. */
static void store(unsigned log, uint64_t position)
{
	atomic_store_explicit(&logs[log].entries[position % LOG_ENTRIES],
			      log_entry_make((uint32_t)position + 1, 0xff, 3, position),
			      memory_order_relaxed);
	atomic_store_explicit(&logs[log].head, position + 1, memory_order_release);
}

START_TEST(entries_come_once_and_in_order)
{
	start();
	atomic_store(&logs[0].owner, 1);
	for (uint64_t i = 0; i < 5000; i++) {
		store(0, i);
		if (i % 1000 == 999)
			ck_assert_uint_eq(uses_read(&uses, &sink, 1 << 20, &lost), 1000);
	}
	ck_assert_uint_eq(uses_read(&uses, &sink, 1 << 20, &lost), 0);
	ck_assert_uint_eq(seen, 5000);
	ck_assert(in_order);
	ck_assert_uint_eq(lost, 0);
	free(logs);
}
END_TEST

START_TEST(what_is_overrun_is_counted)
{
	start();
	atomic_store(&logs[0].owner, 1);
	for (uint64_t i = 0; i < 3 * LOG_ENTRIES + 10; i++)
		store(0, i);
	uses_read(&uses, &sink, 1 << 20, &lost);
	ck_assert_uint_eq(seen, LOG_ENTRIES);
	ck_assert_uint_eq(lost, 2 * LOG_ENTRIES + 10);
	ck_assert_uint_eq(last, 3 * LOG_ENTRIES + 10);
	free(logs);
}
END_TEST

START_TEST(the_budget_is_kept_and_no_thread_is_starved)
{
	start();
	for (unsigned k = 0; k < 3; k++) {
		atomic_store(&logs[k].owner, 1);
		for (uint64_t i = 0; i < 100; i++)
			store(k, i);
	}
	ck_assert_uint_eq(uses_read(&uses, &sink, 150, &lost), 150);
	ck_assert(uses_pending(&uses));
	/* The first thread goes on storing; the last one must still get its turn. */
	for (uint64_t i = 100; i < 300; i++)
		store(0, i);
	ck_assert_uint_eq(uses_read(&uses, &sink, 150, &lost), 150);
	ck_assert_uint_eq(uses.position[2], 100);
	while (uses_read(&uses, &sink, 150, &lost) > 0)
		;
	ck_assert_uint_eq(seen, 500);
	ck_assert(!uses_pending(&uses));
	free(logs);
}
END_TEST

START_TEST(a_thread_that_ended_hides_nobody_behind_it)
{
	start();
	atomic_store(&logs[0].owner, 1);
	store(0, 0);
	uses_read(&uses, &sink, 100, &lost);
	atomic_store(&logs[0].owner, 0);
	atomic_store(&logs[1].owner, 1);
	store(1, 0);
	ck_assert(uses_pending(&uses));
	ck_assert_uint_eq(uses_read(&uses, &sink, 100, &lost), 1);
	free(logs);
}
END_TEST

START_TEST(forged_heads_do_no_harm)
{
	start();
	atomic_store(&logs[0].owner, 1);
	store(0, 0);
	uses_read(&uses, &sink, 100, &lost);
	atomic_store(&logs[0].head, UINT64_MAX);
	ck_assert_uint_eq(uses_read(&uses, &sink, 100, &lost), 0);
	atomic_store(&logs[0].head, 0);
	ck_assert_uint_eq(uses_read(&uses, &sink, 100, &lost), 0);
	ck_assert_uint_eq(lost, 0);
	ck_assert(!uses_pending(&uses));
	store(0, 0);
	ck_assert_uint_eq(uses_read(&uses, &sink, 100, &lost), 1);
	free(logs);
}
END_TEST

#define RACE_ENTRIES 2000000u

static void *producer(void *arg)
{
	for (uint64_t i = 0; i < RACE_ENTRIES; i++)
		store(0, i);
	return NULL;
}

START_TEST(beside_a_running_producer_nothing_is_invented)
{
	pthread_t thread;
	bool more = true;

	start();
	atomic_store(&logs[0].owner, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, producer, NULL), 0);
	while (more) {
		more = uses.position[0] < RACE_ENTRIES;
		uses_read(&uses, &sink, 100000, &lost);
	}
	pthread_join(thread, NULL);
	/* Each entry was handed over or counted as lost, and the index grew from one to the next.
	 */
	ck_assert_uint_eq(seen + lost, RACE_ENTRIES);
	ck_assert(in_order);
	free(logs);
}
END_TEST

UNIT_MAIN("daemon_uses", entries_come_once_and_in_order, what_is_overrun_is_counted,
	  the_budget_is_kept_and_no_thread_is_starved, a_thread_that_ended_hides_nobody_behind_it,
	  forged_heads_do_no_harm, beside_a_running_producer_nothing_is_invented)

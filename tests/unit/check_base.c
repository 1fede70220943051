/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

#include "base/copy.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"

START_TEST(crc32c_matches_the_published_check_values)
{
	unsigned char zeros[32] = { 0 };

	/* RFC 3720, B.4 */
	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283u);
	ck_assert_uint_eq(crc32c(0, zeros, sizeof(zeros)), 0x8a9136aau);
	ck_assert_uint_eq(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
	ck_assert_uint_eq(crc32c(0, NULL, 0), 0);
}
END_TEST

START_TEST(copy_stream_copies_every_byte_and_no_other)
{
	unsigned char from[512], to[512];

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 + 1);
	for (size_t to_at = 0; to_at < 65; to_at += 3) {
		for (size_t bytes = 0; bytes < 300; bytes++) {
			size_t from_at = (to_at * 5 + bytes) % 67;

			memset(to, 0, sizeof(to));
			copy_stream(to + to_at, from + from_at, bytes);
			ck_assert_mem_eq(to + to_at, from + from_at, bytes);
			for (size_t i = 0; i < sizeof(to); i++)
				if (i < to_at || i >= to_at + bytes)
					ck_assert_uint_eq(to[i], 0);
		}
	}
}
END_TEST

START_TEST(err_keeps_code_and_puts_prefixes_before_the_text)
{
	struct err err = ERR_INIT;

	ck_assert_int_eq(err_set(&err, EIO, "read of %d bytes", 7), -EIO);
	ck_assert_int_eq(err_prefix(&err, "nvme%d", 0), -EIO);
	ck_assert_str_eq(err.text, "nvme0: read of 7 bytes");
	ck_assert_int_eq(err_set(NULL, ENOMEM, "nobody listens"), -ENOMEM);
}
END_TEST

START_TEST(err_prefix_of_a_full_text_stays_in_bounds)
{
	struct err err = ERR_INIT;
	char longtext[2 * ERR_TEXT_BYTES];

	memset(longtext, 'x', sizeof(longtext) - 1);
	longtext[sizeof(longtext) - 1] = '\0';
	err_set(&err, EIO, "%s", longtext);
	err_prefix(&err, "%s", longtext);
	ck_assert_uint_eq(strlen(err.text), ERR_TEXT_BYTES - 1);
}
END_TEST

START_TEST(list_keeps_order_and_forgets_what_is_removed)
{
	struct list l, a, b, c;

	list_init(&l);
	list_init(&a);
	list_push_back(&l, &b);
	list_push_back(&l, &c);
	list_push_front(&l, &a);
	list_remove(&b);
	ck_assert(!list_linked(&b));
	ck_assert_ptr_eq(list_pop_front(&l), &a);
	ck_assert_ptr_eq(list_pop_front(&l), &c);
	ck_assert(list_empty(&l));
	ck_assert_ptr_null(list_pop_front(&l));
}
END_TEST

START_TEST(log_levels_follow_the_topic_and_unknown_ones_are_refused)
{
	ck_assert_int_eq(log_configure("move:debug,lane:error"), 0);
	ck_assert(log_enabled(LOG_TOPIC_MOVE, LOG_DEBUG));
	ck_assert(!log_enabled(LOG_TOPIC_LANE, LOG_WARN));
	ck_assert(log_enabled(LOG_TOPIC_SERVER, LOG_INFO));
	ck_assert_int_eq(log_configure("nosuch:debug"), -EINVAL);
	ck_assert_int_eq(log_configure("move:loud"), -EINVAL);
}
END_TEST

UNIT_MAIN("base", copy_stream_copies_every_byte_and_no_other,
	  crc32c_matches_the_published_check_values,
	  err_keeps_code_and_puts_prefixes_before_the_text,
	  err_prefix_of_a_full_text_stays_in_bounds, list_keeps_order_and_forgets_what_is_removed,
	  log_levels_follow_the_topic_and_unknown_ones_are_refused)

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/copy.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "base/whole.h"

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

static unsigned next_of(unsigned *calls)
{
	return ++*calls;
}

START_TEST(min_and_max_call_what_stands_in_them_once)
{
	unsigned calls = 0;

	ck_assert_uint_eq(MIN(10u, next_of(&calls)), 1);
	ck_assert_uint_eq(MIN(next_of(&calls), 10u), 2);
	ck_assert_uint_eq(MAX(next_of(&calls), 0u), 3);
	ck_assert_uint_eq(MAX(0u, next_of(&calls)), 4);
	ck_assert_uint_eq(MIN(10u, MAX(next_of(&calls), MIN(next_of(&calls), 9u))), 6);
	ck_assert_uint_eq(calls, 6);
	/* Of both types the wider one. */
	ck_assert_uint_eq(MAX(1, UINT64_MAX), UINT64_MAX);
	ck_assert_double_eq(MIN(1, 0.5), 0.5);
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

/* Runs `body` with stderr in a file and returns the lines it printed. */
static unsigned lines_of(void (*body)(void), char *text, size_t room)
{
	FILE *f = tmpfile();
	int was = dup(STDERR_FILENO);
	unsigned n = 0;
	size_t bytes;

	ck_assert(f != NULL && was >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
	body();
	fflush(stderr);
	dup2(was, STDERR_FILENO);
	close(was);
	rewind(f);
	bytes = fread(text, 1, room - 1, f);
	fclose(f);
	text[bytes] = '\0';
	for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
		n++;
	return n;
}

static void a_device_fails_for_every_tensor(void)
{
	for (int i = 0; i < 5000; i++)
		log_warn(MOVE, "tensor %d: EIO", i);
	log_warn(SERVER, "a client that nobody may miss for that");
	log_error(MOVE, "nor an error");
	log_end();
}

START_TEST(a_flood_of_warnings_is_counted_and_hides_no_other_topic)
{
	char text[8192];
	unsigned n = lines_of(a_device_fails_for_every_tensor, text, sizeof(text));

	ck_assert_msg(n > 3 && n <= 20, "%u lines: %s", n, text);
	ck_assert_ptr_nonnull(strstr(text, "tensor 0: EIO"));
	ck_assert_ptr_nonnull(strstr(text, "nobody may miss"));
	ck_assert_ptr_nonnull(strstr(text, "nor an error"));
	ck_assert_ptr_nonnull(strstr(text, "4988 more"));
}
END_TEST

static void one_line_again_and_again(void)
{
	for (int i = 0; i < 5000; i++) {
		log_warn(SERVER, "the same");
		log_flush();
	}
	log_end();
}

START_TEST(a_line_that_comes_after_every_nap_is_counted_too)
{
	char text[8192];
	unsigned n = lines_of(one_line_again_and_again, text, sizeof(text));

	ck_assert_msg(n > 1 && n <= 20, "%u lines: %s", n, text);
	ck_assert_ptr_nonnull(strstr(text, "repeated"));
}
END_TEST

static void a_name_with_controls(void)
{
	log_warn(MOVE, "tensor 'a\ntierd: error: main: forged\x1b[2J'");
}

START_TEST(a_line_of_the_log_is_one_line_whatever_a_client_names)
{
	char text[512];

	ck_assert_uint_eq(lines_of(a_name_with_controls, text, sizeof(text)), 1);
	ck_assert_ptr_null(strchr(text, '\x1b'));
}
END_TEST

START_TEST(whole_of_saturates_where_c_leaves_it_open)
{
	ck_assert_uint_eq(whole_of(-1), 0);
	ck_assert_uint_eq(whole_of(NAN), 0);
	ck_assert_uint_eq(whole_of(-INFINITY), 0);
	ck_assert_uint_eq(whole_of(0.9), 0);
	ck_assert_uint_eq(whole_of(7.9), 7);
	ck_assert_uint_eq(whole_of(0x1.fffffffffffffp63), 0xfffffffffffff800);
	ck_assert_uint_eq(whole_of(0x1p64), UINT64_MAX);
	ck_assert_uint_eq(whole_of(INFINITY), UINT64_MAX);
}
END_TEST

UNIT_MAIN("base", min_and_max_call_what_stands_in_them_once,
	  copy_stream_copies_every_byte_and_no_other, crc32c_matches_the_published_check_values,
	  err_keeps_code_and_puts_prefixes_before_the_text,
	  err_prefix_of_a_full_text_stays_in_bounds, list_keeps_order_and_forgets_what_is_removed,
	  log_levels_follow_the_topic_and_unknown_ones_are_refused,
	  a_flood_of_warnings_is_counted_and_hides_no_other_topic,
	  a_line_that_comes_after_every_nap_is_counted_too,
	  a_line_of_the_log_is_one_line_whatever_a_client_names,
	  whole_of_saturates_where_c_leaves_it_open)

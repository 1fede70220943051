/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/nofile.h"

static void limit_to(rlim_t n)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = n;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

START_TEST(what_is_open_is_counted)
{
	struct nofile n, more;
	struct err err = ERR_INIT;
	int fd;

	ck_assert_int_eq(nofile_read(&n, &err), 0);
	fd = dup(STDERR_FILENO);
	ck_assert_int_eq(nofile_read(&more, &err), 0);
	ck_assert_uint_eq(more.open, n.open + 1);
	close(fd);
	ck_assert_int_eq(nofile_read(&more, &err), 0);
	ck_assert_uint_eq(more.open, n.open);
	/* One above the limit takes nothing from those below. */
	limit_to(200);
	ck_assert_int_eq(nofile_read(&n, &err), 0);
	nofile_raise();
	fd = fcntl(STDERR_FILENO, F_DUPFD, 200);
	ck_assert_int_ge(fd, 200);
	limit_to(200);
	ck_assert_int_eq(nofile_read(&more, &err), 0);
	ck_assert_uint_eq(more.open, n.open);
	ck_assert_int_eq(nofile_check("hbm0", 200 - n.open, &err), 0);
	ck_assert_int_eq(nofile_check("hbm0", 201 - n.open, &err), -EMFILE);
	ck_assert_ptr_nonnull(strstr(err.text, "hbm0: about "));
	ck_assert_ptr_nonnull(strstr(err.text, " are free of the 200 that RLIMIT_NOFILE allows"));
}
END_TEST

START_TEST(a_full_table_is_told)
{
	struct err err = ERR_INIT;
	struct nofile n;
	int fd = dup(STDERR_FILENO);

	close(fd);
	limit_to((rlim_t)fd); /* not one more */
	ck_assert_int_eq(nofile_try(), -EMFILE);
	ck_assert_int_eq(nofile_read(&n, &err), 0);
	ck_assert_uint_eq(n.open, n.limit);
	ck_assert_int_eq(nofile_check("hbm0", 1, &err), -EMFILE);
	limit_to((rlim_t)fd + 1);
	ck_assert_int_eq(nofile_try(), 0);
	nofile_raise();
	ck_assert_int_eq(nofile_read(&n, &err), 0);
	ck_assert_uint_gt(n.limit, (uint64_t)fd + 1);
}
END_TEST

static struct nofile_shares divide(uint64_t room, uint64_t later)
{
	struct nofile n = { 40 + NOFILE_OWN + room, 40 };
	struct nofile_shares shares;
	struct err err = ERR_INIT;

	ck_assert_msg(nofile_divide(&n, later, 3, &shares, &err) == 0, "%s", err.text);
	ck_assert_uint_le(shares.later + 3 * shares.clients, room);
	ck_assert_uint_ge(shares.clients, 1);
	return shares;
}

START_TEST(what_comes_later_is_kept_up_to_a_half)
{
	struct nofile full = { 40 + NOFILE_OWN + 2, 40 }, over = { 40, 41 };
	struct nofile_shares shares;
	struct err err = ERR_INIT;

	shares = divide(300, 0);
	ck_assert_uint_eq(shares.later, 0);
	ck_assert_uint_eq(shares.clients, 100);
	shares = divide(300, 30);
	ck_assert_uint_eq(shares.later, 30);
	ck_assert_uint_eq(shares.clients, 90);
	shares = divide(300, UINT64_MAX);
	ck_assert_uint_eq(shares.later, 150);
	ck_assert_uint_eq(shares.clients, 50);
	for (uint64_t room = 3; room < 12; room++)
		divide(room, 64);
	ck_assert_int_eq(nofile_divide(&full, 0, 3, &shares, &err), -EMFILE);
	ck_assert_ptr_nonnull(strstr(err.text, "40 descriptors are open of the 58"));
	ck_assert_int_eq(nofile_divide(&over, 0, 3, &shares, &err), -EMFILE);
}
END_TEST

UNIT_MAIN("nofile", what_is_open_is_counted, a_full_table_is_told,
	  what_comes_later_is_kept_up_to_a_half)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that fail: check_leftovers runs them and looks at what stays.
 */
#include "tests/unit/unit.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/system/system.h"

#define CONFIG "tensors: 4Ki\ntiers: {dram: {size: 16MiB, huge_pages: off}}\n"

static struct system s;

START_TEST(asserts)
{
	system_start(&s, CONFIG);
	ck_assert_msg(false, "as it should");
}
END_TEST

START_TEST(says_so)
{
	system_start(&s, CONFIG);
	system_fail(&s, "as it should");
}
END_TEST

/* As tests without a daemon: a folder with files, links and folders in it. */
START_TEST(has_files)
{
	char folder[LEFTOVERS_ROOM];

	leftovers_folder(folder);
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert_int_eq(mkdir("inside", 0700) | symlink("..", "inside/link"), 0);
	fclose(fopen("inside/file", "we"));
	ck_assert_msg(false, "as it should");
}
END_TEST

/* A socket by itself, and a process that no assertion ends. */
START_TEST(exits)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	leftovers_name(address.sun_path, "socket");
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	exit(EXIT_FAILURE);
}
END_TEST

/* Until somebody ends it; its standard output says that it is there. */
START_TEST(hangs)
{
	system_start(&s, CONFIG);
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (;;)
		pause();
}
END_TEST

UNIT_MAIN("failing", asserts, says_so, has_files, exits, hangs)

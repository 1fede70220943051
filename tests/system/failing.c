/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that fail: check_leftovers runs them and looks at what stays.
 */
#include "tests/unit/unit.h"

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

UNIT_MAIN("failing", asserts, says_so, hangs)

/* SPDX-License-Identifier: Apache-2.0
 *
 * What every Check program shares: a main() over one list of test functions.
 *
 *     START_TEST(name_says_what_holds) { ck_assert_int_eq(1 + 1, 2); } END_TEST
 *     UNIT_MAIN("module", name_says_what_holds)
 *
 * Arguments of the program are the names of the tests to run, none: all. CK_FORK=no and
 * CK_VERBOSITY work as in Check's manual.
 */
#ifndef TIERD_TESTS_UNIT_H
#define TIERD_TESTS_UNIT_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/unit/point.h"

static int unit_asked(const char *test, char *const *names)
{
	if (*names == NULL)
		return 1;
	for (; *names != NULL; names++)
		if (strcmp(test, *names) == 0)
			return 1;
	return 0;
}

/* Run before and after each test, in its process; see UNIT_MAIN_WITH. */
static void (*unit_setup)(void), (*unit_teardown)(void);

static pid_t unit_runner;

/* Check gives a test a group of its own: whoever kills the runner with its group leaves it. */
static void unit_end_with_runner(void)
{
	if (getpid() == unit_runner)
		return; /* CK_FORK=no */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != unit_runner)
		_exit(EXIT_FAILURE);
}

static int unit_run(const char *name, const TTest *const *tests, size_t n, char *const *names)
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner;
	size_t added = 0;
	int failed;

	unit_runner = getpid();
	tcase_set_timeout(tcase, 300);
	tcase_add_checked_fixture(tcase, unit_end_with_runner, NULL);
	if (unit_setup != NULL)
		tcase_add_checked_fixture(tcase, unit_setup, unit_teardown);
	for (size_t i = 0; i < n; i++)
		if (unit_asked(tests[i]->name, names)) {
			tcase_add_test(tcase, tests[i]);
			added++;
		}
	if (added == 0) {
		fprintf(stderr, "%s: no such test\n", *names);
		exit(EXIT_FAILURE);
	}
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The same with a fixture: what every test begins and ends with. */
#define UNIT_MAIN_WITH(setup, teardown, name, ...)                                        \
	int main(int argc, char **argv)                                                   \
	{                                                                                 \
		const TTest *const tests[] = { __VA_ARGS__ };                             \
		unit_setup = setup;                                                       \
		unit_teardown = teardown;                                                 \
		return unit_run(name, tests, sizeof(tests) / sizeof(tests[0]), argv + 1); \
	}

#define UNIT_MAIN(name, ...)                                                              \
	int main(int argc, char **argv)                                                   \
	{                                                                                 \
		const TTest *const tests[] = { __VA_ARGS__ };                             \
		return unit_run(name, tests, sizeof(tests) / sizeof(tests[0]), argv + 1); \
	}

#endif

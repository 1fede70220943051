/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of tests that failed. Check ends such a test's process at once, so that the one which
 * runs all of them looks at its end for what they left, or who watches it if a signal ends it: it
 * prints the log of a daemon that nobody has printed, and removes the folder, or with
 * TIERD_TEST_KEEP says where it is.
 */
#ifndef TIERD_TESTS_LEFTOVERS_H
#define TIERD_TESTS_LEFTOVERS_H

#include <stddef.h>

/* A template for mkdtemp(), by which this program finds the folder again. */
void leftovers_name(char *ret, size_t room);

#endif

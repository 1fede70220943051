/* SPDX-License-Identifier: Apache-2.0
 *
 * Where tests keep their files, and the end of what failed ones left. Check ends such a test's
 * process at once, so that the one which runs all of them looks at its end for what they left, or
 * who watches it if a signal ends it: it prints the log of a daemon that nobody has printed, and
 * removes the folder, or with TIERD_TEST_KEEP says where it is. Any thread.
 */
#ifndef TIERD_TESTS_LEFTOVERS_H
#define TIERD_TESTS_LEFTOVERS_H

#include <stddef.h>

/* Long enough for a path of these, and short: a sentence of the library names a path and has 127
 * bytes. */
#define LEFTOVERS_ROOM 64

/* A path in TIERD_TEST_DIR, else /var/tmp, by which this program finds again what is there then.
 * `end` tells it from others of this program. */
void leftovers_name(char ret[LEFTOVERS_ROOM], const char *end);
/* Makes a folder there, which users of other ids may not enter. */
void leftovers_folder(char ret[LEFTOVERS_ROOM]);

#endif

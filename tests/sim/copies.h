/* SPDX-License-Identifier: Apache-2.0
 *
 * The stepper's copies by windows, and what they may bring: the bytes that the oracle knows, or
 * those that a writer has given up since, who came after the engine had begun to read them.
 */
#ifndef TIERD_TESTS_SIM_COPIES_H
#define TIERD_TESTS_SIM_COPIES_H

#include "tests/sim/stepper.h"

/* Any copy, in or out, of any tensor. */
void copies_begin(struct client *c);
/* Out of each tensor whose front lets nobody in as long as somebody is stopped: before he has said
 * `filled`, or while he pins what has failed. */
void copies_below(struct client *c);
/* Its answer; the window is gone after it. */
void copies_done(struct client *c, struct want *w, int result);
/* Whether one out of a tensor waits whose bytes stand elsewhere than on a GPU, and are not lost. */
bool copies_wait(struct stepper *s);
/* Before `filled` is said, if that is what gives up the old bytes. */
void copies_keep(struct stepper *s, const struct model *m);
/* The window and what was kept for it, if there is any. */
void copies_free(struct want *w);

#endif

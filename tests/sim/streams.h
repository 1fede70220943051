/* SPDX-License-Identifier: Apache-2.0
 *
 * The stepper's clients at a GPU: views that are there once a fence has passed, and releases that
 * take effect when a stream gets to them. A stream here is a row of deferred releases, each of
 * which first waits for its view's fence, as work on a GPU would.
 */
#ifndef TIERD_TESTS_SIM_STREAMS_H
#define TIERD_TESTS_SIM_STREAMS_H

#include "tests/sim/stepper.h"

void streams_open(struct client *c);
void streams_close(struct client *c);
/* A tensor was pinned that is there once the fence of `w` has passed. */
void streams_enter(struct client *c, unsigned model, const struct want *w);
/* Leaves the view's pin to a stream. False: its ring is full. */
bool streams_release(struct client *c, struct view *v);
/* Views whose fence has passed are looked at, and one stream perhaps gets on. */
void streams_step(struct client *c);
/* Takes fences until there are none left, where some tensor is just being brought. */
void streams_use_up(struct client *c);

#endif

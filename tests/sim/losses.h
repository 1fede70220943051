/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs that fall off during a run, and what the oracle knows then: whose bytes may be lost with
 * them, because they stood nowhere else or may have been written there.
 */
#ifndef TIERD_TESTS_SIM_LOSSES_H
#define TIERD_TESTS_SIM_LOSSES_H

#include "tests/sim/stepper.h"

/* Chooses the steps, where the run is one with losses. */
void losses_plan(struct stepper *s);
/* Before each step: what is due falls off; who stands there alone is noted. */
void losses_step(struct stepper *s, uint64_t step);
/* The note alone: the world may not go on between what makes a front dirty and this. */
void losses_look(struct stepper *s);
/* Whether the tensor's front stands on a GPU that has fallen off: its bytes are no bytes. */
bool losses_front(struct stepper *s, const struct model *m);
/* An answer that says that bytes were lost is true of one of the models. */
void losses_check_answer(struct stepper *s, const struct want *w, int result, const char *text);
/* Somebody has overwritten all of it, perhaps where all is lost. */
void losses_revived(struct stepper *s, struct model *m);

#endif

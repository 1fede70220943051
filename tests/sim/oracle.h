/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be true of the bytes after every step, whatever clients do next: pinned fronts have not
 * moved, and every replica that the engine counts as valid has the bytes that were written last.
 */
#ifndef TIERD_TESTS_SIM_ORACLE_H
#define TIERD_TESTS_SIM_ORACLE_H

#include "tests/sim/stepper.h"

/* All pins, and all valid replicas of one tensor after the other, a step each. */
void oracle_look(struct stepper *s);

#endif

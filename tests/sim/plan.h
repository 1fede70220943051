/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run meets, by its seed alone: the machine, its policies, what fails and who asks for what.
 */
#ifndef TIERD_TESTS_SIM_PLAN_H
#define TIERD_TESTS_SIM_PLAN_H

#include "tests/sim/stepper.h"

struct plan {
	struct stepper_trouble trouble;
	const struct policy_ops *policy; /* NULL: one for each class */
	uint64_t steps;
};
/* What the flags of a trouble stand for, where it does not say more. */
void plan_faults(const struct stepper_trouble *t, struct world *w);
void plan_make(uint64_t seed, struct plan *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The stepper's clients keep libtierd's half of the pin handshake, and its oracle knows every byte.
 */
#ifndef TIERD_TESTS_SIM_CLIENT_H
#define TIERD_TESTS_SIM_CLIENT_H

#include "tests/sim/stepper.h"

uint64_t model_word0(struct stepper *s, const struct model *m);
/* Writes new bytes under the writer's pin; the oracle knows them. */
void model_scribble(struct stepper *s, struct model *m);
/* Under any pin: the bytes are those that the oracle knows. */
void model_verify(struct stepper *s, const struct model *m);

/* One try at a hit, as try_pin() of libtierd. */
bool client_try_pin(struct client *c, const struct model *m, uint8_t place, uint8_t access);
void client_unpin(struct client *c, struct wire_handle t, uint8_t access);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The stepper's clients keep libtierd's half of the pin handshake, and its oracle knows every byte.
 */
#ifndef TIERD_TESTS_SIM_CLIENT_H
#define TIERD_TESTS_SIM_CLIENT_H

#include "tests/sim/stepper.h"

uint64_t model_word0(struct stepper *s, const struct model *m);
uint64_t model_word1(struct stepper *s, const struct model *m);
/* Where the descriptor says that the tensor stands. */
char *model_address(struct stepper *s, const struct model *m);
/* Writes new bytes under the writer's pin; the oracle knows them. */
void model_scribble(struct stepper *s, struct model *m);
/* Says `filled`, and writes all of it. */
void client_fill(struct client *c, struct model *m);
/* Under any pin: the bytes are those that the oracle knows. */
void model_verify(struct stepper *s, const struct model *m);

/* A random number below `n`. */
uint64_t below(struct stepper *s, uint64_t n);
/* Whether the model still stands for this tensor. */
bool same_tensor(const struct model *m, struct wire_handle t);
struct view *free_view(struct client *c);
struct want *free_want(struct client *c, uint32_t *ret_id);
struct model *any_live(struct stepper *s, unsigned *ret);

/* One try at a hit, as try_pin() of libtierd. */
bool client_try_pin(struct client *c, const struct model *m, uint8_t place, uint8_t access);
/* Maps the slabs that the tensor, which is pinned, stands in. */
void client_map(struct client *c, const struct model *m);
/* Lets go of a slab, which nothing of the client's stands in. */
void client_unmap(struct client *c, unsigned device, unsigned slab);
/* Answers what was asked, all of it or some; unmaps by itself what it does not use, and says so
 * twice. */
void client_unmap_some(struct client *c, bool at_once);
/* The hook for engine_hooks.slab_unmap. */
void client_slab_unmap(void *ctx, struct holder *holder, unsigned device, uint64_t offset);
/* The try after an ACQUIRE_ON was answered with `token`: what is FILLING for it will do, too. */
bool client_try_pin_on(struct client *c, const struct model *m, uint8_t place, uint8_t access,
		       uint64_t token);
bool client_fence_passed(const struct client *c, uint64_t token);
void client_unpin(struct client *c, struct wire_handle t, uint8_t access);

/* Joins as the i-th. */
struct client *client_new(struct stepper *s, unsigned i);
/* Its copies may have happened or not, its requests are not answered any more. */
void client_stop(struct stepper *s, struct client *c);
/* Killed wherever it is: its unnamed tensors are gone. */
void client_kill(struct stepper *s, struct client *c);
/* The hook for engine_hooks.holder_gone. */
void client_gone(void *ctx, struct holder *holder);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How a hostile client is run: in domain red, beside a neighbour in blue whose bytes are looked at
 * all the time; afterwards both domains must serve somebody new. One thread a process.
 */
#ifndef TIERD_TESTS_HOSTILE_RIG_H
#define TIERD_TESTS_HOSTILE_RIG_H

#include "tests/system/domain_rig.h"
#include "tests/system/wire.h"

/* By a seed of the process. */
uint32_t hostile_any(void);
uint64_t hostile_any64(void);

/* `hostile` runs in a process of its own, as root until it becomes somebody: until
 * hostile_end_ns(), or for ever if it is to be killed. */
void hostile_beside_a_neighbour(void (*hostile)(struct system *, void *), bool killed);
/* Long enough for thousands of tries. */
uint64_t hostile_end_ns(void);
/* As red, again and again, each time by a new process: one that was dropped counts while it lives.
 */
void hostile_by_processes(void (*body)(struct wire *w));

void hostile_open(struct wire *w);
/* It answers, within 2 s. */
bool hostile_is_served(struct wire *w);
/* The daemon dropped it, within 10 s. */
bool hostile_is_hung_up(const struct wire *w);

#endif

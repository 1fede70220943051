/* SPDX-License-Identifier: Apache-2.0
 *
 * Who stands where among all connections: what caps and descriptors are counted by. Each looks at
 * all of a list of struct connection. Control thread.
 */
#ifndef TIERD_DAEMON_PLACES_H
#define TIERD_DAEMON_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"

struct connection;

/* Whether it counts against the caps: those that said nothing yet, or are dead, do not. */
bool place_counts(const struct connection *c);
/* Those of one user. */
unsigned places_of_user(const struct list *connections, uid_t uid);
/* Likewise those that said nothing yet. */
unsigned places_silent(const struct list *connections, uid_t uid);
/* Those that have descriptors, which the dead have not; guests are counted apart. */
uint64_t places_open(const struct list *connections, bool guests);
/* The one but `newcomer` that has said nothing for longest; or NULL. None that will be told no, nor
 * an operator's, who may be slow. Who has but one may be about to speak, and goes only where nobody
 * has more. */
struct connection *places_most_silent(const struct list *connections,
				      const struct connection *newcomer);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The descriptors that this process may have (RLIMIT_NOFILE), and whom they are for. A descriptor
 * of the process, that is; that of a tensor is another thing.
 */
#ifndef TIERD_BASE_NOFILE_H
#define TIERD_BASE_NOFILE_H

#include <stdint.h>

#include "base/err.h"

#define NOFILE_LEAST \
	64u            /* of a daemon: tiers, lanes, a driver's first look at its GPUs, a client */
#define NOFILE_OWN 16u /* kept for what nobody counts, as a listening socket that is made anew */

struct nofile {
	uint64_t limit, open; /* numbers below the limit */
};

/* Whoever was started without one of 0, 1 and 2 has it then, and what is printed there fails as it
 * did: else the first files that are opened would be printed to. 0 or -errno. */
int nofile_keep_stdio(void);
/* For a library: the descriptor by a number above those, if there is one free. */
int nofile_above_stdio(int fd);
/* The soft limit to the hard one: as many as the administrator allows. */
void nofile_raise(void);
/* What there is now. */
int nofile_read(struct nofile *ret, struct err *err);
/* Whether so many more can be opened: 0, or -EMFILE, "WHAT: ...". */
int nofile_check(const char *what, uint64_t more, struct err *err);
/* Whether one more can be opened, by doing it: 0 or -errno. Costs two system calls. */
int nofile_try(void);

struct nofile_shares {
	uint64_t later;   /* kept of what is wanted later */
	uint64_t clients; /* that fit in what is left */
};

/* Keeps what will be wanted later, at most half of what is left, from clients that take `each`.
 * -EMFILE: there is not room for one. */
int nofile_divide(const struct nofile *n, uint64_t later, uint64_t each, struct nofile_shares *ret,
		  struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory this process may count on: the machine's, or less where a container's limit (a
 * cgroup of version 1 or 2) stands anywhere on the path to it. Any thread; reads a file a block of
 * memory and a few more.
 */
#ifndef TIERD_TIERS_LIMITS_H
#define TIERD_TIERS_LIMITS_H

#include <stdint.h>

#include "base/err.h"

struct limit {
	uint64_t bytes;
	char source[192]; /* for people: the file that says so */
};

struct limits {
	struct limit total;     /* what a size in % is of */
	struct limit available; /* what can be taken now without driving somebody else out */
};

/* `root` stands before /proc and /sys ("" but in tests). -ENODATA when nothing can be known. */
int limits_read(const char *root, struct limits *ret, struct err *err);

/* Whether `bytes` can be taken now: 0, or what is wanted and what is there. -ENOMEM: another time,
 * perhaps; -EINVAL: never, it is more than all. */
int limits_check(const char *name, uint64_t bytes, struct err *err);

#endif

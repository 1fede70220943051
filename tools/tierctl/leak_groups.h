/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors summed up by namespace, class and name prefix, and whether the sums grew from look to
 * look. Takes no more memory than groups: tensors that differ in a number are one. One thread.
 */
#ifndef TIERD_TIERCTL_LEAK_GROUPS_H
#define TIERD_TIERCTL_LEAK_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/tierd.h"

/* One job, as far as it can be seen from its tensors. */
struct leak_space {
	char name[TIERD_NAME_MAX + 1];
	tierd_tensor asked; /* a tensor of it, for its steps */
	bool listed;        /* has tensors in this look */
	bool known;         /* its steps are */
	uint64_t steps;     /* as it was last told */
	uint64_t seen;      /* that have ended meanwhile */
	uint64_t looks;     /* after a step had ended */
	bool moved;         /* has ended a step since its last look */
};

/* How a sum went on from look to look. A look comes somewhere within a step, so that one late in
 * its step and the next one early may show the same; between every other two lies a whole step. */
struct leak_trend {
	uint64_t now, first, before_last, last;
	bool grew; /* never less than at the last look, always more than at the one before */
};

struct leak_group {
	uint32_t space; /* of leak_groups.spaces */
	enum tierd_class class_;
	char prefix[TIERD_NAME_MAX + 1]; /* "": unnamed ones */
	uint64_t tensors;                /* of this look */
	struct leak_trend bytes, pins;
	uint64_t looks; /* of its namespace, from the first that saw it */
};

struct leak_groups {
	struct leak_space *spaces;
	size_t space_count, space_room;
	struct leak_group *groups;
	size_t count, room;
	uint32_t *buckets; /* of groups by hash, 1 + index, 0: none */
	size_t bucket_count;
};

/* Bytes of the name that its group shares: up to the first digit. */
size_t leak_prefix_bytes(const char *name);

/* A look: begin, add every tensor, end. -ENOMEM. */
void leak_groups_begin(struct leak_groups *g);
int leak_groups_add(struct leak_groups *g, const struct tierd_info *i);
/* Groups of namespaces that have ended a step are compared with the look after the step before: at
 * other times an iteration is somewhere in its middle. */
void leak_groups_end(struct leak_groups *g);
bool leak_trend_grows(const struct leak_trend *t);
void leak_groups_free(struct leak_groups *g);

#endif

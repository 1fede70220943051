/* SPDX-License-Identifier: Apache-2.0
 *
 * Two snapshots of the stats page, and what has grown between them. One thread.
 */
#ifndef TIERD_TIERCTL_SAMPLE_H
#define TIERD_TIERCTL_SAMPLE_H

#include "tools/tierctl/json.h"
#include "libclient/protocol/page.h"

struct tierd;

struct sample {
	struct page first, last;
	double seconds; /* between the two; 0: there is one only */
};

/* Takes one. */
void sample_begin(struct sample *s, struct tierd *t);
/* The last becomes the first, and `seconds` later there is another. */
void sample_next(struct sample *s, struct tierd *t, double seconds);
/* A counter's growth a second. */
double sample_rate(const struct sample *s, uint64_t first, uint64_t last);
/* Every counter as members of the open map, with "rates" where there are two. */
void sample_json(struct json *j, const struct sample *s);
/* A map, a member a class. */
void sample_json_classes(struct json *j, const char *key, const uint64_t of[STATS_CLASSES]);

#endif

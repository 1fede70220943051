/* SPDX-License-Identifier: Apache-2.0
 *
 * A snapshot of a stats page, as plain numbers, for tools and for the metrics listener. Any thread.
 */
#ifndef TIERD_PROTOCOL_PAGE_H
#define TIERD_PROTOCOL_PAGE_H

#include <stddef.h>

#include "libclient/protocol/stats_page.h"

struct page_tier {
#define X(name, unit, kind, help) uint64_t name;
	STATS_PER_TIER(X)
#undef X
	uint64_t class_bytes[STATS_CLASSES], class_peak_bytes[STATS_CLASSES];
	uint64_t at_peak_bytes[STATS_CLASSES];
};

struct page_device {
#define X(name, unit, kind, help) uint64_t name;
	STATS_PER_DEVICE(X)
#undef X
};

struct page {
	uint64_t taken_ns; /* by the monotonic clock; of kind SINCE there are ages */
#define X(name, unit, kind, help) uint64_t name;
	STATS_SCALARS(X)
#undef X
	struct page_tier tier[STATS_TIERS];
	struct page_device device[STATS_DEVICES];
	uint64_t moved_bytes[STATS_TIERS][STATS_TIERS];
	uint64_t moves[STATS_CLASSES][STATS_TIERS][STATS_TIERS];
	uint64_t class_stall_ns[STATS_CLASSES];
	char chosen[STATS_DEVICES][128]; /* each ended by NUL */
	char domain[64];                 /* and so is this */
};

/* X(number, name, of many): the rows of enum tierd_class, in its order. The names of tiers are
 * those of tiers/tier.h. */
#define PAGE_CLASSES(X)                      \
	X(0, "parameter", "parameters")      \
	X(1, "gradient", "gradients")        \
	X(2, "optimizer", "optimizer state") \
	X(3, "activation", "activations")    \
	X(4, "other", "everything else")
extern const char *const page_classes[STATS_CLASSES];

/* Each number is right by itself; all are read within a few microseconds. */
void page_read(const struct stats_page *from, struct page *ret);

/* The first word of chosen[device] is the device's name: so many bytes. 0: there is no such. */
size_t page_device_bytes(const struct page *p, unsigned device);

#endif

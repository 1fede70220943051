/* SPDX-License-Identifier: Apache-2.0
 *
 * Every table that daemon and clients share is made here, in one place and before anything else
 * runs, so that a keeper process can make them instead one day. A segment is a memfd of fixed size:
 * close-on-exec, without exec permission, sealed against shrinking and growing; those that clients
 * only read are sealed against new writable mappings after the daemon has mapped them. Offsets
 * only, no pointer. Control thread.
 */
#ifndef TIERD_DAEMON_SEGMENTS_H
#define TIERD_DAEMON_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "libclient/protocol/layout.h"
#include "libclient/protocol/stats_page.h"

struct segment {
	int fd; /* -1: none */
	void *base;
	uint64_t bytes;
};
#define SEGMENT_NONE        \
	{                   \
		-1, NULL, 0 \
	}

/* `name` is for people (/proc/PID/maps). `read_only`: clients can map it for reading alone. */
int segment_create(const char *name, uint64_t bytes, bool read_only, struct segment *ret,
		   struct err *err);
void segment_destroy(struct segment *segment);

/* What stands for the daemon's whole life. */
struct segments {
	struct segment table, stats, records;
	uint64_t boot_id;
	uint32_t tensors;
};

int segments_create(uint32_t tensors, uint64_t records_bytes, struct segments *ret,
		    struct err *err);
void segments_destroy(struct segments *segments);

static inline struct table_header *segments_table(const struct segments *segments)
{
	return segments->table.base;
}
static inline struct stats_page *segments_stats(const struct segments *segments)
{
	return segments->stats.base;
}

/* Where the parts of a control segment are. Computed, never read back from the segment, where its
 * client could have changed it. */
struct control_layout {
	uint64_t sq, cq, texts, payload, window, logs, fences, streams, deferred, pins, bytes;
};
void control_layout(uint32_t tensors, struct control_layout *ret);
/* C of one client, its header written. */
int control_create(const struct segments *segments, uint32_t client_id, struct segment *ret,
		   struct err *err);

#endif

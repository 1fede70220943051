/* SPDX-License-Identifier: Apache-2.0
 *
 * The stats page: the daemon's counters in shared memory, readable without a request and by rows
 * that explain themselves. The daemon's control thread writes with relaxed stores; any client
 * reads. Each counter is true by itself; two that are read together may be of two moments.
 */
#ifndef TIERD_PROTOCOL_STATS_PAGE_H
#define TIERD_PROTOCOL_STATS_PAGE_H

#include <stddef.h>

#include "libclient/protocol/layout.h"

#define STATS_TIERS   3
#define STATS_CLASSES 5
#define STATS_DEVICES 16 /* as many as an engine has */

/* Scalars: X(name, "unit", COUNTER, "help"). A new counter is one row. A COUNTER grows only, a
 * GAUGE does not; of SINCE the page has the time by the monotonic clock, 0: none, and page_read()
 * makes of it how long ago that was, so that it is true also while the daemon sleeps. */
#define STATS_SCALARS(X)                                                                         \
	X(uptime_ns, "ns", SINCE, "since the daemon began to serve")                             \
	X(clients, "clients", GAUGE, "connected now")                                            \
	X(tensors, "tensors", GAUGE, "existing now")                                             \
	X(committed_bytes, "bytes", GAUGE,                                                       \
	  "admitted by create: bytes of all tensors, in pages of 4 KiB above 512 bytes")         \
	X(admissible_bytes, "bytes", GAUGE, "create refuses beyond this")                        \
	X(hits_logged, "uses", COUNTER, "read from access logs")                                 \
	X(log_lost, "uses", COUNTER, "overrun in access logs")                                   \
	X(misses, "requests", COUNTER, "acquires that needed the daemon")                        \
	X(stall_ns, "ns", COUNTER, "that acquires waited, summed over waiters")                  \
	X(waiting, "requests", GAUGE, "acquires waiting now")                                    \
	X(moves_running, "moves", GAUGE, "in flight now")                                        \
	X(fills_zero, "moves", COUNTER, "first uses: zeroed or left to a discarding writer")     \
	X(drops_clean, "tensors", COUNTER, "fronts dropped without I/O")                         \
	X(cleans, "moves", COUNTER, "fronts written to a lower tier while readable")             \
	X(cleans_void, "moves", COUNTER, "cleans voided by a writer")                            \
	X(compactions, "moves", COUNTER, "extents moved within their tier")                      \
	X(prefetches, "moves", COUNTER, "begun by hint or schedule")                             \
	X(prefetches_unused, "tensors", COUNTER, "prefetched and dropped without a use")         \
	X(bad_picks, "picks", COUNTER, "policy picks that the engine refused")                   \
	X(read_errors, "transfers", COUNTER,                                                     \
	  "failed, short or corrupt reads that were not mended by a retry")                      \
	X(write_errors, "transfers", COUNTER,                                                    \
	  "failed or short writes that were not mended by a retry")                              \
	X(tensors_lost, "tensors", COUNTER, "whose only bytes were on a gpu that was lost")      \
	X(retries, "transfers", COUNTER, "transfers tried again")                                \
	X(nvme_written_bytes, "bytes", COUNTER, "handed to nvme devices")                        \
	X(nvme_read_bytes, "bytes", COUNTER, "taken from nvme devices")                          \
	X(requests, "entries", COUNTER, "taken from submission rings")                           \
	X(turns, "turns", COUNTER, "of the control loop")                                        \
	X(sleeps, "sleeps", COUNTER, "of the control thread, without a time limit")              \
	X(steps, "steps", COUNTER, "iterations that clients said have ended, each client's own") \
	X(marked_at_ns, "ns", GAUGE,                                                             \
	  "when peaks began anew, by the monotonic clock; 0: at the start")                      \
	X(deadlocks, "requests", COUNTER,                                                        \
	  "acquires that ended because clients waited for nothing but each other's pins")        \
	X(excesses, "times", COUNTER,                                                            \
	  "a client's pins had kept others from what is theirs for excess.patience")

/* A tier (index: enum tier_kind order hbm, dram, nvme). */
#define STATS_PER_TIER(X)                                                                    \
	X(limit_bytes, "bytes", GAUGE, "as configured, 0: no such tier")                     \
	X(resident_bytes, "bytes", GAUGE, "extents that hold valid bytes")                   \
	X(reserved_bytes, "bytes", GAUGE, "extents taken, being filled ones among them")     \
	X(peak_bytes, "bytes", GAUGE, "highest reserved_bytes since start or the last mark") \
	X(largest_free_bytes, "bytes", GAUGE, "largest extent that could be taken now")      \
	X(queue_waiters, "requests", GAUGE, "waiting for room now")                          \
	X(backed_bytes, "bytes", GAUGE, "that there is memory for now")                      \
	X(slabs_made, "slabs", COUNTER, "given memory")                                      \
	X(slabs_given, "slabs", COUNTER, "empty ones whose memory went back")                \
	X(slabs_refused, "slabs", COUNTER, "not made because there was no memory")           \
	X(peak_at_ns, "ns", GAUGE, "when it was peak_bytes last, by the monotonic clock")

/* A device, in the order of `chosen`: those of hbm come first, by place. */
#define STATS_PER_DEVICE(X)                                                                     \
	X(limit_bytes, "bytes", GAUGE, "as configured, 0: no such device")                      \
	X(backed_bytes, "bytes", GAUGE, "that have memory; the rest gets it when it is wanted") \
	X(reserved_bytes, "bytes", GAUGE, "extents taken, being filled ones among them")        \
	X(lost, "0 or 1", GAUGE, "a gpu that was lost, for good")                               \
	X(in_bytes, "bytes", COUNTER, "that its lane has written, zeroed ones among them")      \
	X(out_bytes, "bytes", COUNTER, "that its lane has read")                                \
	X(flight, "transfers", GAUGE, "that its lane has now")                                  \
	X(flight_bytes, "bytes", GAUGE, "of those")                                             \
	X(busy_ns, "ns", COUNTER, "with at least one of them")                                  \
	X(oldest_ns, "ns", SINCE, "since the first of those was given to the lane, 0: none")

struct stats_page {
	uint32_t magic;
	uint16_t major, minor; /* other minors: nothing but the head, up to uptime_ns, is sure */
	uint32_t bytes, reserved0;
	uint64_t boot_id;
	uint64_t reserved1;
#define X(name, unit, kind, help) _Atomic uint64_t name;
	STATS_SCALARS(X)
#undef X
	struct {
#define X(name, unit, kind, help) _Atomic uint64_t name;
		STATS_PER_TIER(X)
#undef X
		_Atomic uint64_t class_bytes[STATS_CLASSES];
		_Atomic uint64_t class_peak_bytes[STATS_CLASSES]; /* highest since the last mark */
		_Atomic uint64_t at_peak_bytes[STATS_CLASSES];    /* when it was at peak_bytes */
	} tier[STATS_TIERS];
	struct {
#define X(name, unit, kind, help) _Atomic uint64_t name;
		STATS_PER_DEVICE(X)
#undef X
	} device[STATS_DEVICES];
	_Atomic uint64_t moved_bytes[STATS_TIERS][STATS_TIERS];          /* from, to */
	_Atomic uint64_t moves[STATS_CLASSES][STATS_TIERS][STATS_TIERS]; /* class, from, to */
	_Atomic uint64_t class_stall_ns[STATS_CLASSES];
	char chosen[STATS_DEVICES][128]; /* what probing chose, a line a device; "" ends */
	char domain[64];                 /* the name of the domain that all this is of */
};

/* What a page of any minor begins with. */
#define STATS_PAGE_HEAD offsetof(struct stats_page, uptime_ns)

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The stats page: the daemon's counters in shared memory, readable without a request and by rows
 * that explain themselves. The daemon's control thread writes with relaxed stores; any client
 * reads. A snapshot is consistent when `sequence` was even and equal before and after.
 */
#ifndef TIERD_PROTOCOL_STATS_PAGE_H
#define TIERD_PROTOCOL_STATS_PAGE_H

#include "libclient/protocol/layout.h"

#define STATS_TIERS   3
#define STATS_CLASSES 5
#define STATS_DEVICES 16 /* as many as an engine has */

/* Scalars: X(name, "unit", "help"). A new counter is one row. */
#define STATS_SCALARS(X)                                                                       \
	X(uptime_ns, "ns", "since the daemon began to serve")                                  \
	X(clients, "clients", "connected now")                                                 \
	X(tensors, "tensors", "existing now")                                                  \
	X(committed_bytes, "bytes",                                                            \
	  "admitted by create: bytes of all tensors, in pages of 4 KiB above 512 bytes")       \
	X(admissible_bytes, "bytes", "create refuses beyond this")                             \
	X(hits_logged, "uses", "read from access logs")                                        \
	X(log_lost, "uses", "overrun in access logs")                                          \
	X(misses, "requests", "acquires that needed the daemon")                               \
	X(stall_ns, "ns", "that acquires waited, summed over waiters")                         \
	X(waiting, "requests", "acquires waiting now")                                         \
	X(moves_running, "moves", "in flight now")                                             \
	X(fills_zero, "moves", "first uses: zeroed or left to a discarding writer")            \
	X(drops_clean, "tensors", "fronts dropped without I/O")                                \
	X(cleans, "moves", "fronts written to a lower tier while readable")                    \
	X(cleans_void, "moves", "cleans voided by a writer")                                   \
	X(compactions, "moves", "extents moved within their tier")                             \
	X(prefetches, "moves", "begun by hint or schedule")                                    \
	X(prefetches_unused, "tensors", "prefetched and dropped without a use")                \
	X(bad_picks, "picks", "policy picks that the engine refused")                          \
	X(read_errors, "transfers",                                                            \
	  "failed, short or corrupt reads that were not mended by a retry")                    \
	X(write_errors, "transfers", "failed or short writes that were not mended by a retry") \
	X(tensors_lost, "tensors", "whose only bytes were on a gpu that was lost")             \
	X(retries, "transfers", "transfers tried again")                                       \
	X(nvme_written_bytes, "bytes", "handed to nvme devices")                               \
	X(nvme_read_bytes, "bytes", "taken from nvme devices")                                 \
	X(requests, "entries", "taken from submission rings")                                  \
	X(turns, "turns", "of the control loop")                                               \
	X(sleeps, "sleeps", "of the control thread, without a time limit")                     \
	X(steps, "steps", "iterations that clients said have ended, each client's own")        \
	X(marked_at_ns, "ns", "when peaks began anew, by the monotonic clock; 0: at the start")

/* A tier (index: enum tier_kind order hbm, dram, nvme). */
#define STATS_PER_TIER(X)                                                             \
	X(limit_bytes, "bytes", "as configured, 0: no such tier")                     \
	X(resident_bytes, "bytes", "extents that hold valid bytes")                   \
	X(reserved_bytes, "bytes", "extents taken, being filled ones among them")     \
	X(peak_bytes, "bytes", "highest reserved_bytes since start or the last mark") \
	X(largest_free_bytes, "bytes", "largest extent that could be taken now")      \
	X(queue_waiters, "requests", "waiting for room now")                          \
	X(backed_bytes, "bytes", "that there is memory for now")                      \
	X(slabs_made, "slabs", "given memory")                                        \
	X(slabs_given, "slabs", "empty ones whose memory went back")                  \
	X(slabs_refused, "slabs", "not made because there was no memory")             \
	X(peak_at_ns, "ns", "when it was peak_bytes last, by the monotonic clock")

/* A device, in the order of `chosen`: those of hbm come first, by place. */
#define STATS_PER_DEVICE(X)                                                              \
	X(limit_bytes, "bytes", "as configured, 0: no such device")                      \
	X(backed_bytes, "bytes", "that have memory; the rest gets it when it is wanted") \
	X(reserved_bytes, "bytes", "extents taken, being filled ones among them")        \
	X(lost, "0 or 1", "a gpu that was lost, for good")                               \
	X(in_bytes, "bytes", "that its lane has written, zeroed ones among them")        \
	X(out_bytes, "bytes", "that its lane has read")                                  \
	X(flight, "transfers", "that its lane has now")                                  \
	X(flight_bytes, "bytes", "of those")                                             \
	X(busy_ns, "ns", "with at least one of them")

struct stats_page {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t bytes, reserved0;
	uint64_t boot_id;
	_Atomic uint64_t sequence;
#define X(name, unit, help) _Atomic uint64_t name;
	STATS_SCALARS(X)
#undef X
	struct {
#define X(name, unit, help) _Atomic uint64_t name;
		STATS_PER_TIER(X)
#undef X
		_Atomic uint64_t class_bytes[STATS_CLASSES];
		/* The highest class_bytes since start or the last mark, each for itself; and those
		 * of the moment when the tier was at peak_bytes. */
		_Atomic uint64_t class_peak_bytes[STATS_CLASSES];
		_Atomic uint64_t at_peak_bytes[STATS_CLASSES];
	} tier[STATS_TIERS];
	struct {
#define X(name, unit, help) _Atomic uint64_t name;
		STATS_PER_DEVICE(X)
#undef X
	} device[STATS_DEVICES];
	_Atomic uint64_t moved_bytes[STATS_TIERS][STATS_TIERS];          /* from, to */
	_Atomic uint64_t moves[STATS_CLASSES][STATS_TIERS][STATS_TIERS]; /* class, from, to */
	_Atomic uint64_t class_stall_ns[STATS_CLASSES];
	char chosen[STATS_DEVICES][128]; /* what probing chose, a line a device; "" ends */
};

#endif

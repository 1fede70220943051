/* SPDX-License-Identifier: Apache-2.0
 *
 * The invariants of design section 6, one row each. engine_check() (invariants.c) asserts them; a
 * run of the simulator fails unless each was asserted of something that it speaks of.
 */
#ifndef TIERD_ENGINE_INVARIANTS_H
#define TIERD_ENGINE_INVARIANTS_H

/* X(name, "what holds") */
#define ENGINE_INVARIANTS(X)                                                              \
	X(SOURCE, "the bytes of a tensor stand somewhere, or are zeros")                  \
	X(STATE, "EVICTING does not last across calls")                                   \
	X(FRONT_EXTENT, "a front has an extent")                                          \
	X(FRONT_SHOWN, "clients are shown the front, at its place and address")           \
	X(FRONT_CURRENT, "a front has the current bytes")                                 \
	X(FRONT_UNFILLED, "or is unfilled: then a source is below, or zeros are")         \
	X(ABSENT, "without a front the state is ABSENT")                                  \
	X(FILLING, "FILLING is a fill, and its target is shown")                          \
	X(FAILED_FILL, "FAILED is a fill that has failed")                                \
	X(FAILED_RESTS, "once it is marked, nothing of it is on its way")                 \
	X(FAILED_LOST, "or a front on a gpu that was lost")                               \
	X(FAILED_READ, "copies that read below a failed fill are counted there")          \
	X(DROPPING, "DROPPING is a move inside the tier")                                 \
	X(MOVE, "a tensor has one move at most, and the move that tensor")                \
	X(CLEAN, "while a front is cleaned it stays where it is, and readable")           \
	X(COPY_BELOW, "while a copy reads below a front it stays unfilled, or failed")    \
	X(SOURCE_HBM, "a source in hbm has an extent there")                              \
	X(SOURCE_DRAM, "a source in dram has an extent there")                            \
	X(SOURCE_NVME, "a source on nvme has blocks there")                               \
	X(LARGE, "what is too large for dram has nothing there")                          \
	X(SMALL, "what is below 4 KiB has nothing on nvme")                               \
	X(ZONED, "what stands in the zone belongs there, and nothing else does")          \
	X(DOOMED, "what was destroyed says so to clients")                                \
	X(USED, "extents of records, moves, requests and absent slabs are what is used")  \
	X(MOVE_EXTENT, "a move owns the extent that it fills")                            \
	X(MOVE_BLOCKS, "and the blocks")                                                  \
	X(RESERVED, "a running request owns what was reserved for it")                    \
	X(QUOTA_USED, "what namespaces have of a pool, and moves, is what is used of it") \
	X(QUOTA_LIMIT, "no namespace has more than its limit")                            \
	X(LARGEST, "the largest tensors of a part of dram, and of an account, are known") \
	X(LEAVING, "what cleans are to free is what reclaim counts on")                   \
	X(PREFETCH, "what prefetches take is counted")                                    \
	X(RESIDENT, "valid bytes of a tier are what is told of it")                       \
	X(READY, "what a running request found in place is held for it")                  \
	X(WANTED, "records count the requests that want them")                            \
	X(GRANTED, "a fence is out for each request that was answered early")             \
	X(GRANTED_OPEN, "and such a request waits for a move, and holds no extent")       \
	X(QUEUED, "who waits for room has none reserved")                                 \
	X(BLOCKED, "who waits for another request holds nothing")                         \
	X(NAMED, "a namespace counts its clients and tensors until they are buried")      \
	X(HINT, "a tensor waits for one hint at most, and none that has gone")            \
	X(SLAB_CLOSED, "a slab without memory is nobody's room")                          \
	X(SLAB_MAPPED, "a slab that a client has mapped has its memory")                  \
	X(SLAB_BACKED, "memory of slabs is counted, and below its limit")                 \
	X(FLIGHT, "xfers that were lent are those in flight, a lane's each")              \
	X(FLIGHT_MOVES, "and those of moves: none is lost, none comes twice")             \
	X(STAGING, "a staging slot is free or a direction's, and each has its own")

enum engine_invariant {
#define X(name, text) INVARIANT_##name,
	ENGINE_INVARIANTS(X)
#undef X
		INVARIANT_COUNT
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The state machine of a tensor as clients see it (design section 5), one row an edge. publish.c is
 * the only place that stores a state, and an edge that is not here stops the daemon. A run of the
 * simulator fails unless it took every one of them (tests/sim/coverage.c).
 */
#ifndef TIERD_ENGINE_EDGES_H
#define TIERD_ENGINE_EDGES_H

/* What beside the state tells edges apart. DOOMED is a flag that stands beside every state. */
enum edge_kind {
	EDGE_LIVE,
	EDGE_AWAY,   /* from DROPPING or FAILED to a front at another place than was shown */
	EDGE_DOOM,   /* destroy: the state stays, DOOMED comes */
	EDGE_DOOMED, /* of a tensor that is DOOMED */
	EDGE_BURY,   /* the index is free again, its generation one more */
	EDGE_KINDS
};

/* X(name, kind, from, to, "when") */
#define ENGINE_EDGES(X)                                                                           \
	X(BORN, LIVE, ABSENT, ABSENT, "create")                                                   \
	X(FILL, LIVE, ABSENT, FILLING, "a fill begins")                                           \
	X(FILL_FROM_FRONT, LIVE, DROPPING, FILLING, "a fill begins from a front that was closed") \
	X(CAME, LIVE, FILLING, RESIDENT, "what was filled is all there")                          \
	X(BREAK, LIVE, FILLING, DROPPING, "a fill has failed")                                    \
	X(FAIL, LIVE, DROPPING, FAILED, "a fill has failed under pins")                           \
	X(FAILED_ABSENT, LIVE, FAILED, ABSENT, "the last pin of what failed is gone")             \
	X(FAILED_AWAY, AWAY, FAILED, RESIDENT, "likewise, and there is a front elsewhere")        \
	X(SETTLE, LIVE, RESIDENT, RESIDENT, "an unfilled front was filled")                       \
	X(SETTLE_LOST, LIVE, FAILED, FAILED, "likewise, on a gpu that was lost")                  \
	X(CLOSE, LIVE, RESIDENT, EVICTING, "a front is to go: pins still win")                    \
	X(PINNED, LIVE, EVICTING, RESIDENT, "a pin was found")                                    \
	X(CLOSED, LIVE, EVICTING, DROPPING, "no pin was found")                                   \
	X(DROP, LIVE, DROPPING, ABSENT, "the front is gone")                                      \
	X(REOPEN, LIVE, DROPPING, RESIDENT, "the front stays, or was moved inside its tier")      \
	X(REOPEN_AWAY, AWAY, DROPPING, RESIDENT, "a replica at another place is the front")       \
	X(LOSE_PINNED, LIVE, RESIDENT, FAILED, "the gpu of a pinned front was lost")              \
	X(DOOM_ABSENT, DOOM, ABSENT, ABSENT, "destroy")                                           \
	X(DOOM_FILLING, DOOM, FILLING, FILLING, "destroy, while it is filled")                    \
	X(DOOM_RESIDENT, DOOM, RESIDENT, RESIDENT, "destroy of a front")                          \
	X(DOOM_DROPPING, DOOM, DROPPING, DROPPING, "destroy, while its front moves in its tier")  \
	X(DOOM_FAILED, DOOM, FAILED, FAILED, "destroy, while pins stand on what failed")          \
	X(DOOMED_CAME, DOOMED, FILLING, RESIDENT, "a fill that is pinned still comes")            \
	X(DOOMED_BREAK, DOOMED, FILLING, DROPPING, "a fill has failed or was stopped")            \
	X(DOOMED_FAIL, DOOMED, DROPPING, FAILED, "it was pinned")                                 \
	X(DOOMED_FAILED_ABSENT, DOOMED, FAILED, ABSENT, "until now")                              \
	X(DOOMED_FAILED_BACK, DOOMED, FAILED, RESIDENT, "likewise, with a front before the fill") \
	X(DOOMED_SETTLE, DOOMED, RESIDENT, RESIDENT, "an unfilled front was filled")              \
	X(DOOMED_SETTLE_LOST, DOOMED, FAILED, FAILED, "likewise, on a gpu that was lost")         \
	X(DOOMED_CLOSE, DOOMED, RESIDENT, EVICTING, "nobody may pin it any more: is it pinned?")  \
	X(DOOMED_PINNED, DOOMED, EVICTING, RESIDENT, "a pin was found")                           \
	X(DOOMED_CLOSED, DOOMED, EVICTING, DROPPING, "no pin was found")                          \
	X(DOOMED_DROP, DOOMED, DROPPING, ABSENT, "its fill was stopped")                          \
	X(DOOMED_REOPEN, DOOMED, DROPPING, RESIDENT, "a fill or a move in its tier has ended")    \
	X(DOOMED_LOSE_PINNED, DOOMED, RESIDENT, FAILED, "the gpu of a pinned front was lost")     \
	X(BURY_ABSENT, BURY, ABSENT, ABSENT, "it had no front")                                   \
	X(BURY_DROPPING, BURY, DROPPING, ABSENT, "its front was closed")                          \
	X(BURY_FAILED, BURY, FAILED, ABSENT, "its front was on a gpu that was lost")

enum engine_edge {
	EDGE_NONE,
#define X(name, kind, from, to, text) EDGE_##name,
	ENGINE_EDGES(X)
#undef X
		EDGE_COUNT
};

#endif

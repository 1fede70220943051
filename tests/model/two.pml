/* SPDX-License-Identifier: Apache-2.0
 *
 * Two tensors that share two extents: what is dropped makes room for the other one, a compaction
 * moves a tensor to the free extent, and a destroyed tensor's index comes back with the next
 * generation. Clients only read: what they read must be the tensor that their handle names.
 *
 * word0 here: {state:3, -, generation:2, DOOMED:1}; word1: the extent.
 */

#define W0(t)      (t)
#define W1(t)      (2 + (t))
#define BYTES(e)   (4 + (e))
#define SLOT(c, t) (6 + ((c) - A) * 2 + (t))
#define WORDS      10

#define ON_STORE(who, word, value) skip

#include "rules.pml"

#ifndef SESSIONS_A
#define SESSIONS_A 1
#endif
#ifndef SESSIONS_B
#define SESSIONS_B 1
#endif
#ifndef BUDGET
#define BUDGET 2
#endif

#define GENERATION(g) ((g) << 4)
#define DOOMED        64
#define NONE          2

/* The bytes of one life of a tensor. */
#define TAG(t, g)   (1 + (t) + ((g) << 1))
#define IS_OF(b, t) ((b) != 0 && (((b) - 1) & 1) == (t))

byte generation[2];   /* as the daemon has it, and as a lookup would answer */
byte destroyed[2];    /* how many lives are over: their destroy was answered */
byte place[2] = NONE; /* extent by tensor */
byte asks[BUFFERS];   /* 1 + tensor */
byte done, budget = BUDGET;

/* ---- client ---- */

#ifdef NO_GENERATION
#define SAME(w, g) true
#else
#define SAME(w, g) (((w) & GENERATION(3)) == GENERATION(g))
#endif
#ifdef NO_DOOMED_LOOK
#define STALE(w, g) (!SAME(w, g))
#else
#define STALE(w, g) (!SAME(w, g) || ((w) & DOOMED))
#endif

proctype client(byte me; byte sessions)
{
	byte n, t, g, w, e;
	bit late;

	do
	:: n < sessions ->
		if
		:: t = 0
		:: t = 1
		fi;
		g = generation[t];
		do
		:: d_step { late = destroyed[t] > g };
			PIN_RAISE(me, SLOT(me, t), READ, 0, w);
#ifdef WORD1_EARLY
			e = mem[W1(t)];
#endif
			w = mem[W0(t)];
			if
			:: STALE(w, g) -> PIN_LOWER(me, SLOT(me, t), READ);
				break
			:: !STALE(w, g) && STATE(w) == RESIDENT ->
#ifndef WORD1_EARLY
				e = mem[W1(t)];
#endif
				d_step {
					w = mem[BYTES(e)];
					assert(use_after_drop || IS_OF(w, t));
					assert(stale_hit || w == TAG(t, g));
					assert(hit_after_destroy || !late)
				};
				PIN_LOWER(me, SLOT(me, t), READ);
				break
			:: !STALE(w, g) && STATE(w) != RESIDENT ->
				PIN_LOWER(me, SLOT(me, t), READ);
				asks[me] = 1 + t;
				!asks[me]
			fi
		od;
		atomic { n++; t = 0; g = 0; w = 0; e = 0; late = 0 }
	:: else -> break
	od;
	done++
}

/* ---- daemon ---- */

#define FREE(e)     (place[0] != (e) && place[1] != (e))
#ifdef SAME_GENERATION
#define WORD(t)     GENERATION(0)
#else
#define WORD(t)     GENERATION(generation[t])
#endif
/* publish(): word1 first, then word0, which is seq_cst. */
#ifdef WORD1_LATE
#define PUBLISH(t, state, flags) \
	STORE_SC(D, W0(t), (state) | WORD(t) | (flags)); STORE(D, W1(t), place[t])
#else
#define PUBLISH(t, state, flags) \
	STORE(D, W1(t), place[t]); STORE_SC(D, W0(t), (state) | WORD(t) | (flags))
#endif

/* front_close(): leaves 1 in `closed` if nobody pins it. */
inline close(t, flags)
{
	PUBLISH_EVICTING(W0(t), WORD(t) | flags);
	SCAN_BEGIN(s);
	SCAN_ONE(s, A, SLOT(A, t));
	SCAN_ONE(s, B, SLOT(B, t));
	if
	:: PINNED(s) -> PUBLISH(t, RESIDENT, flags)
	:: else -> STORE_SC(D, W0(t), DROPPING | WORD(t) | flags);
		closed = 1
	fi;
	s = 0
}

inline drop(t)
{
	close(t, 0);
	if
	:: closed -> closed = 0;
		place[t] = NONE;
		PUBLISH(t, ABSENT, 0)
	:: else -> skip
	fi
}

/* move_compact(), to the extent that is free. */
inline compact(t)
{
#ifdef COMPACT_OPEN
	closed = 1;
#else
	close(t, 0);
#endif
	if
	:: closed -> closed = 0;
		STORE(L, BYTES(1 - place[t]), TAG(t, generation[t]));
		FENCE(L);
		/* What was there is anybody's now. */
		d_step { mem[BYTES(place[t])] = 0; place[t] = 1 - place[t] };
		PUBLISH(t, RESIDENT, 0)
	:: else -> skip
	fi
}

/* destroy_one(), and bury() once nobody pins it; the index is given to a new tensor at once. */
inline destroy(t)
{
	PUBLISH(t, STATE(mem[W0(t)]), DOOMED);
	d_step { destroyed[t] = generation[t] + 1 }
}

inline bury(t)
{
	if
	:: STATE(mem[W0(t)]) == RESIDENT -> close(t, DOOMED)
	:: else -> closed = 1
	fi;
	if
	:: closed -> closed = 0;
		d_step {
			place[t] = NONE;
			generation[t]++
		};
		PUBLISH(t, ABSENT, 0)
	:: else -> skip
	fi
}

inline fill(t, e)
{
	place[t] = e;
	PUBLISH(t, FILLING, 0);
	STORE(L, BYTES(e), TAG(t, generation[t]));
	FENCE(L);
	PUBLISH(t, RESIDENT, 0)
}

#define IS(t, state)  ((mem[W0(t)] & (7 | DOOMED)) == (state))
#define ASKED(t)      (asks[A] == 1 + (t) || asks[B] == 1 + (t))
#define ANSWER(t)     d_step { \
		asks[A] = (asks[A] == 1 + (t) -> 0 : asks[A]); \
		asks[B] = (asks[B] == 1 + (t) -> 0 : asks[B]) \
	}
#define MAY(t, state) (budget > 0 && IS(t, state))

inline look(t)
{
	if
	:: ASKED(t) && (IS(t, RESIDENT) || (mem[W0(t)] & DOOMED)) -> ANSWER(t)
	:: ASKED(t) && IS(t, ABSENT) && FREE(0) -> fill(t, 0)
	:: ASKED(t) && IS(t, ABSENT) && FREE(1) -> fill(t, 1)
	:: MAY(t, RESIDENT) -> budget--;
		if
		:: drop(t)
		:: FREE(1 - place[t]) -> compact(t)
		:: t == 0 && generation[t] < 2 -> destroy(t)
		fi
	:: mem[W0(t)] & DOOMED -> bury(t)
	fi
}

#define DUE(t) \
	(mem[W0(t)] & DOOMED || MAY(t, RESIDENT) || (ASKED(t) && (IS(t, RESIDENT) || IS(t, ABSENT))))

active proctype daemon()
{
	byte s;
	bit closed;

	do
	:: DUE(0) -> look(0)
	:: DUE(1) -> look(1)
	:: done == 2 -> break
	od
}

init
{
	atomic { run client(A, SESSIONS_A); run client(B, SESSIONS_B) }
}

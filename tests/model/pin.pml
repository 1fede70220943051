/* SPDX-License-Identifier: Apache-2.0
 *
 * Pin, drop and clean of one tensor with a lower replica: two clients and the daemon. With -DDEATH
 * clients are killed at any step and leave tombstones; with -DCRASH the daemon is killed at any step
 * and another goes on from what stands in memory (segments, records and slots outlive it).
 *
 * A client's first look at word0, which only spares a miss its pin, is left out: so more pins are
 * raised in vain than in acquire.h.
 */

#define W0    0
#define BYTES 1
#define SLOT(c) (c) /* A, B: 2, 3 */
#define WORDS 4

/* Each write has a number of its own, and the tensor holds the last one to reach memory. */
#define ON_STORE(who, word, value) \
	if \
	:: (word) == BYTES && (who) >= A -> \
		assert(use_after_drop || owned); \
		latest = value; \
		RACED \
	:: else -> skip \
	fi

bit owned = 1;   /* the front's extent is the tensor's */
byte latest;     /* what the tensor holds */

/* -DCOPIES: a clean's copy counts only if nobody wrote between it and the look at the end. */
#ifdef COPIES
bit raced;
#define RACED raced = 1
#else
#define RACED skip
#endif

#include "rules.pml"

/* How often each client pins, and how often the daemon drops or cleans without need. */
#ifndef SESSIONS_A
#define SESSIONS_A 2
#endif
#ifndef SESSIONS_B
#define SESSIONS_B 1
#endif
#ifndef BUDGET
#define BUDGET 3
#endif

/* The record: it and the lower replica outlive a crash. */
#define FRONT 1
#define LOW   2
byte sources = FRONT | LOW;
byte low;

bit asks[BUFFERS];
byte done;       /* clients that are through, or dead */
byte budget = BUDGET;
byte lane = L;

/* ---- client ---- */

#ifdef NO_REREAD
#define LOOK(w) w = RESIDENT
#else
#define LOOK(w) w = mem[W0]
#endif

inline use(me, access, n)
{
	if
	:: access == READ -> assert(use_after_drop || owned);
		assert(lost_write || mem[BYTES] == latest)
	:: access == WRITE -> STORE(me, BYTES, 1 + (me == A -> n : SESSIONS_A))
	fi
}

bit killed[BUFFERS];

proctype client(byte me; byte sessions)
{
	byte n, access, w;

	{
		do
		:: n < sessions ->
			if
			:: access = READ
			:: access = WRITE
			fi;
			do
			:: PIN_RAISE(me, SLOT(me), access, 0, w);
				LOOK(w);
				if
				:: STATE(w) == RESIDENT -> use(me, access, n);
					PIN_LOWER(me, SLOT(me), access);
					break
				:: else -> BACK_OUT(me, SLOT(me), access);
					asks[me] = 1;
					!asks[me]
				fi
			od;
			atomic { n++; access = 0; w = 0 }
		:: else -> break
		od
	} unless { killed[me] };
	atomic { n = 0; access = 0; w = 0 };
	/* The pidfd comes after the last store. */
	FENCE(me);
	if
	:: killed[me] -> DIES(me)
	:: else -> skip
	fi;
	d_step { asks[me] = 0; done++ }
}

#ifdef DEATH
/* One client at most; the other one finds what it left. */
active proctype killer()
{
	if
	:: killed[A] = 1
	:: skip
	fi
}
#endif

/* ---- daemon ---- */

#ifdef COPIES
#define RESET d_step { s = 0; was = 0; copied = 0; torn = 0 }
#else
#define RESET d_step { s = 0; was = 0; copied = 0 }
#endif

inline scan()
{
	SCAN_BEGIN(s);
	SCAN_ONE(s, A, SLOT(A));
	SCAN_ONE(s, B, SLOT(B))
}

inline clear_written()
{
	CLEAR_WRITTEN(was, A, SLOT(A));
	CLEAR_WRITTEN(was, B, SLOT(B))
}

/* front_close() and front_drop(). */
inline drop()
{
	PUBLISH_EVICTING(W0, 0);
	scan();
	if
	:: PINNED(s) -> STORE_SC(D, W0, RESIDENT)
	:: else ->
#ifndef NO_WRITTEN_LOOK
		if
		:: s & WRITTEN -> clear_written(); sources = FRONT
		:: else -> skip
		fi;
#endif
		PUBLISH_DROPPING(W0);
		if
		:: sources & LOW -> forget()
		:: else -> STORE_SC(D, W0, RESIDENT)
		fi
	fi
}

/* From here on the bytes are somebody else's. */
inline forget()
{
	d_step {
		assert(lost_write || low == latest);
		sources = LOW;
		owned = 0;
		mem[BYTES] = 0
	};
	STORE_SC(D, W0, ABSENT)
}

/* move_clean() and move_clean_end(). */
inline clean()
{
	scan();
	if
	:: s & WPIN -> skip
	:: else ->
#ifndef CLEAR_AFTER_COPY
		clear_written();
		if
		:: was -> sources = FRONT
		:: else -> skip
		fi;
#endif
		if
		:: sources & LOW -> skip
		:: else ->
			copied = mem[BYTES];
#ifdef COPIES
			raced = 0;
#endif
#ifdef CLEAR_AFTER_COPY
			clear_written();
#endif
#ifdef COPIES
			torn = raced;
#endif
			scan();
#ifdef NO_SECOND_LOOK
			s = 0;
#endif
			if
			:: s & (WPIN | WRITTEN) -> skip
			:: else ->
#ifdef COPIES
				assert(stale_copy || !torn);
#endif
				low = copied;
				sources = sources | LOW
			fi
		fi
	fi
}

inline fill()
{
	STORE_SC(D, W0, FILLING);
	owned = 1;
	STORE(lane, BYTES, low);
	FENCE(lane); /* it says that it is done */
	sources = sources | FRONT;
	STORE_SC(D, W0, RESIDENT)
}

/* What a dead client wrote becomes the daemon's own knowledge. */
inline take_over(who)
{
	if
	:: STATE(mem[W0]) == RESIDENT && (mem[SLOT(who)] & WRITTEN) -> sources = FRONT
	:: else -> skip
	fi;
	buried[who] = 1
}

#ifdef CRASH
bit crash;
active proctype crasher()
{
	if
	:: crash = 1
	:: skip
	fi
}

/* A new daemon: what it does not know of a front that stands, it takes for written. */
inline restart()
{
	FENCE(D);
#ifndef NO_QUARANTINE
	FENCE(L); /* nothing is reused before what was under way can have landed */
#endif
	if
	:: STATE(mem[W0]) == FILLING ->
		d_step { sources = LOW; owned = 0 };
		STORE_SC(D, W0, ABSENT)
	:: STATE(mem[W0]) == DROPPING && (sources & LOW) -> forget()
	:: STATE(mem[W0]) == RESIDENT || STATE(mem[W0]) == EVICTING ||
	   (STATE(mem[W0]) == DROPPING && (sources & LOW) == 0) ->
#ifndef RESTART_BELIEVES_CLEAN
		sources = FRONT;
#endif
		STORE_SC(D, W0, RESIDENT)
	:: else -> skip
	fi
}
#endif

inline serve(who)
{
	if
	:: mem[W0] == ABSENT -> fill()
	:: else -> skip
	fi;
	asks[who] = 0
}

inline turns()
{
	do
	:: asks[A] -> serve(A)
	:: asks[B] -> serve(B)
	:: budget > 0 && mem[W0] == RESIDENT -> budget--; drop(); RESET
	:: budget > 0 && mem[W0] == RESIDENT -> budget--; clean();
		RESET
#ifdef DEATH
	:: dead[A] && !buried[A] -> take_over(A)
#endif
	:: done == 2 && !asks[A] && !asks[B] -> break
	od
}

active proctype daemon()
{
	byte s, copied;
	bit was;
#ifdef COPIES
	bit torn;
#endif

#ifdef CRASH
	{
		turns()
	} unless { crash };
	if
	:: crash ->
		RESET;
		restart();
		lane = G; /* another daemon has another lane */
		turns()
	:: else -> skip
	fi
#else
	turns()
#endif
}

init
{
	mem[W0] = RESIDENT;
	atomic { run client(A, SESSIONS_A); run client(B, SESSIONS_B) }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * DISCARD: a front that is published UNFILLED over a valid lower replica, for a writer that needs
 * nothing loaded. Two clients that read, write, or write all of it; one may be killed (-DDEATH).
 * The daemon fills, settles, drops and cleans.
 */

#define W0    0
#define BYTES 1
#define SLOT(c) (c) /* A, B: 2, 3 */
#define WORDS 4

#define JUNK 0 /* what stood in the extent before */
#define OLD  1 /* what the lower replica holds at first */

#define ON_STORE(who, word, value) \
	if \
	:: (word) == BYTES && (who) >= A -> \
		assert(use_after_drop || owned); \
		latest = value \
	:: else -> skip \
	fi

bit owned;
byte latest = OLD;

#include "rules.pml"

#ifndef SESSIONS_A
#define SESSIONS_A 2
#endif
#ifndef SESSIONS_B
#define SESSIONS_B 1
#endif
#ifndef BUDGET
#define BUDGET 2
#endif

#define FRONT 1
#define LOW   2
byte sources = LOW;
byte low = OLD;

#define READS    1
#define WRITES   2
#define DISCARDS 3
byte asks[BUFFERS];
byte done;
byte budget = BUDGET;

/* ---- client ---- */

#ifdef DISCARD_IN_EXCHANGE
#define SAYS_FILLED(kind) ((kind) == DISCARDS -> FILLED : 0)
#else
#define SAYS_FILLED(kind) 0
#endif

/* try_flags(): an UNFILLED front is for the writer that discards, and its client after it. */
#ifdef NO_UNFILLED_MISS
#define LETS_IN(w, old, kind) true
#else
#define LETS_IN(w, old, kind) \
	(((w) & UNFILLED) == 0 || (kind) == DISCARDS || ((old) & FILLED))
#endif

#define HITS(w, old, kind) (STATE(w) == RESIDENT && LETS_IN(w, old, kind))
#define ACCESS(kind)       ((kind) == READS -> READ : WRITE)

/* try_commit(). From here on the old bytes are gone, by contract. */
inline commit(me)
{
	w = mem[W0];
	if
	:: w & UNFILLED ->
		d_step {
			empty(buf[me]) -> mem[SLOT(me)] = mem[SLOT(me)] | FILLED;
			latest = mem[BYTES]
		}
	:: else -> skip
	fi
}

inline use(me, kind, n)
{
	if
	:: kind == READS -> assert(use_after_drop || owned);
		assert(unfilled_read || mem[BYTES] != JUNK || latest == JUNK);
		assert(lost_write || mem[BYTES] == latest)
	:: kind == WRITES -> STORE(me, BYTES, OLD + 1 + (me == A -> n : SESSIONS_A))
	:: kind == DISCARDS ->
#if !defined(DISCARD_IN_EXCHANGE) && !defined(COMMIT_WITHOUT_PIN)
		commit(me);
#endif
		STORE(me, BYTES, OLD + 1 + (me == A -> n : SESSIONS_A))
	fi
}

bit killed[BUFFERS];

proctype client(byte me; byte sessions)
{
	byte n, kind, w, old;

	{
		do
		:: n < sessions ->
			if
			:: kind = READS
			:: kind = WRITES
			:: kind = DISCARDS
			fi;
			do
			:: PIN_RAISE(me, SLOT(me), ACCESS(kind), SAYS_FILLED(kind), old);
				w = mem[W0];
#ifndef STALE_FILLED
				old = mem[SLOT(me)]; /* what stood there before may be of another front */
#endif
				if
				:: HITS(w, old, kind) -> use(me, kind, n);
					PIN_LOWER(me, SLOT(me), ACCESS(kind));
#ifdef COMMIT_WITHOUT_PIN
					commit(me);
#endif
					break
				:: else -> BACK_OUT(me, SLOT(me), ACCESS(kind));
					asks[me] = kind;
					!asks[me]
				fi
			od;
			atomic { n++; kind = 0; w = 0; old = 0 }
		:: else -> break
		od
	} unless { killed[me] };
	atomic { n = 0; kind = 0; w = 0; old = 0 };
	FENCE(me); /* the pidfd comes after the last store */
	if
	:: killed[me] -> DIES(me)
	:: else -> skip
	fi;
	d_step { asks[me] = 0; done++ }
}

#ifdef DEATH
active proctype killer()
{
	if
	:: killed[A] = 1
	:: skip
	fi
}
#endif

/* ---- daemon ---- */

#define RESET d_step { s = 0; unfilled = 0; was = 0; copied = 0 }

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

inline clear_filled()
{
	CLEAR_FILLED(SLOT(A));
	CLEAR_FILLED(SLOT(B))
}

/* The front is all that there is from now on. */
inline only_front()
{
	d_step {
		assert(unfilled_written_back || mem[BYTES] == latest);
		sources = FRONT
	}
}

#ifdef NO_FILLED_LOOK
#define DIRTY(unfilled) ((unfilled) -> 0 : WRITTEN)
#elif defined(UNFILLED_BY_WRITTEN)
#define DIRTY(unfilled) WRITTEN
#else
#define DIRTY(unfilled) ((unfilled) -> FILLED : WRITTEN)
#endif

/* front_close() and front_drop(). */
inline drop()
{
	unfilled = mem[W0] & UNFILLED;
	PUBLISH_EVICTING(W0, unfilled);
	scan();
	if
	:: PINNED(s) -> STORE_SC(D, W0, RESIDENT | unfilled)
	:: else ->
		if
		:: s & DIRTY(unfilled) -> clear_written(); only_front()
		:: else -> skip
		fi;
		PUBLISH_DROPPING(W0);
		if
		:: sources & LOW -> forget()
		:: else -> STORE_SC(D, W0, RESIDENT)
		fi
	fi
}

inline forget()
{
	d_step {
		assert(lost_write || low == latest);
		sources = LOW;
		owned = 0;
		mem[BYTES] = JUNK
	};
	STORE_SC(D, W0, ABSENT)
}

/* front_settle(): leaves 0 in `unfilled` where the front is filled by now. */
inline settle()
{
	unfilled = mem[W0] & UNFILLED;
	if
	:: unfilled -> scan();
		if
		:: s & FILLED -> only_front(); unfilled = 0;
			STORE_SC(D, W0, RESIDENT)
		:: else -> skip
		fi
	:: else -> skip
	fi
}

inline clean()
{
	settle();
#ifdef CLEAN_UNFILLED
	unfilled = 0;
#endif
	if
	:: unfilled -> skip
	:: else -> scan();
		if
		:: s & WPIN -> skip
		:: else -> clear_written();
			if
			:: was -> sources = FRONT
			:: else -> skip
			fi;
			if
			:: sources & LOW -> skip
			:: else -> copy()
			fi
		fi
	fi
}

inline copy()
{
	d_step {
		copied = mem[BYTES];
		assert(unfilled_written_back || copied == latest)
	};
	scan();
	if
	:: s & (WPIN | WRITTEN) -> skip
	:: else ->
		low = copied;
		sources = sources | LOW
	fi
}

/* Bytes that will be overwritten are not loaded, if what the tensor holds stays safe below. */
inline fill(kind)
{
	if
	:: kind == DISCARDS && (sources & LOW) ->
#if !defined(NO_FILLED_CLEAR) && !defined(FILLED_CLEARED_LATE)
		clear_filled();
#endif
		STORE_SC(D, W0, FILLING | UNFILLED);
		owned = 1;
		STORE_SC(D, W0, RESIDENT | UNFILLED);
#ifdef FILLED_CLEARED_LATE
		clear_filled();
#endif
	:: else ->
		STORE_SC(D, W0, FILLING);
		owned = 1;
		STORE(L, BYTES, low);
		FENCE(L);
		sources = sources | FRONT;
		STORE_SC(D, W0, RESIDENT)
	fi
}

/* acquire_drop_unfilled(): a writer under a pin may still say `filled`. */
inline drop_unfilled()
{
	scan();
	if
	:: PINNED(s) -> skip
	:: else -> drop()
	fi
}

/* It goes on asking until it is there: a front that stays pinned UNFILLED is looked at again. */
inline serve(who)
{
	if
	:: mem[W0] == ABSENT -> fill(asks[who]); asks[who] = 0
	:: mem[W0] == (RESIDENT | UNFILLED) && asks[who] != DISCARDS ->
		settle();
		if
		:: unfilled -> drop_unfilled()
		:: else -> asks[who] = 0
		fi
	:: else -> asks[who] = 0
	fi;
	RESET
}

inline take_over(who)
{
	if
	:: STATE(mem[W0]) == RESIDENT && (mem[SLOT(who)] & (WRITTEN | FILLED)) ->
		if
		:: mem[SLOT(who)] & FILLED -> settle()
		:: else -> skip
		fi;
		if
		:: (mem[SLOT(who)] & WRITTEN) && (mem[W0] & UNFILLED) == 0 -> sources = FRONT
		:: else -> skip
		fi
	:: else -> skip
	fi;
	buried[who] = 1;
	RESET
}

active proctype daemon()
{
	byte s, unfilled, copied;
	bit was;

	do
	:: asks[A] -> serve(A)
	:: asks[B] -> serve(B)
	:: budget > 0 && STATE(mem[W0]) == RESIDENT -> budget--; drop(); RESET
	:: budget > 0 && STATE(mem[W0]) == RESIDENT -> budget--; clean(); RESET
#ifdef DEATH
	:: dead[A] && !buried[A] -> take_over(A)
#endif
	:: done == 2 && !asks[A] && !asks[B] -> break
	od
}

init
{
	/* `filled` may be left over: it was said of a front that has been cleaned and dropped. */
#ifndef DEATH
	if
	:: mem[SLOT(A)] = FILLED
	:: skip
	fi;
#endif
	atomic { run client(A, SESSIONS_A); run client(B, SESSIONS_B) }
}

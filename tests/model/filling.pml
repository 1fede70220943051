/* SPDX-License-Identifier: Apache-2.0
 *
 * acquire_on, a fill that fails under pins, and deferred releases: client A with a stream G of its
 * GPU, client B that acquires as usual, and the daemon, whose fills may fail. With -DDEATH A is
 * killed at any step, and what it put on its stream may still run until then.
 */

#define W0      0
#define BYTES   1
#define SLOT(c) (c) /* A, B: 2, 3 */
#define FENCE_VALUE  4
#define FAILED_AT    5
#define WORD         6 /* the stream's */
#define TAIL         7
#define ENTRY        8 /* values of deferred releases, one a session */
#define WORDS        (ENTRY + SESSIONS_A)

#ifndef SESSIONS_A
#define SESSIONS_A 2
#endif
#ifndef SESSIONS_B
#define SESSIONS_B 1
#endif
#ifndef BUDGET
#define BUDGET 1
#endif

#define JUNK 0
#define DATA 1
#define MARK 2 /* 0xff */

#define ON_STORE(who, word, value) \
	if \
	:: (word) == BYTES && (who) == G -> assert(use_after_drop || owned) \
	:: else -> skip \
	fi

bit owned;

#include "rules.pml"

/* ---- what the GPU does, in order ---- */

#define WAITS  0
#define READS  1
#define WRITES 2
#define SAYS   3
chan stream = [3] of { byte, byte };

/* Under a pin and after the fence: the tensor, or 0xff if its fill failed. */
#define THERE (mem[BYTES] != JUNK)

bit killed[BUFFERS];
bit gpu_idle = 1;

active proctype gpu()
{
	byte what, value;
	bit cut;

end:	do
	:: d_step { stream?what, value -> gpu_idle = 0 };
#ifdef DEATH
		if
		:: cut
		:: killed[A] -> cut = 1 /* with its process goes its work */
		:: !cut && !killed[A]
		fi;
#endif
		if
		:: cut
		:: !cut && what == WAITS ->
			if
			:: mem[FENCE_VALUE] >= value
			:: killed[A] -> cut = 1
			fi
		:: !cut && what == READS -> assert(use_after_drop || owned);
			assert(not_ready || THERE)
		:: !cut && what == WRITES -> STORE(G, BYTES, DATA)
		:: !cut && what == SAYS -> STORE(G, WORD, value)
		fi;
		atomic { gpu_idle = empty(stream); what = 0; value = 0 }
	od
}

/* ---- client A: acquire_on and release_on ---- */

bit asks_on, asks;
byte token;      /* the answer: the fence's value, 0: all is there */
byte deferred, lowered; /* how many, for the last assertion */

#define PASSED (token == 0 || mem[FENCE_VALUE] >= token)

inline put_on_stream()
{
	if
	:: STATE(w) == FILLING && !PASSED -> stream!WAITS, token
	:: else -> skip
	fi;
	stream!READS, 0;
#ifdef WITH_WRITES
	stream!WRITES, 0;
#endif
	/* entries_store(), then word_write() */
	deferred++;
#ifdef TAIL_BEFORE_ENTRY
	STORE(A, TAIL, n + 1);
	STORE(A, ENTRY + n, n + 1);
#else
	STORE(A, ENTRY + n, n + 1);
	STORE(A, TAIL, n + 1);
#endif
	stream!SAYS, n + 1;
#ifdef CLIENT_LOWERS_TOO
	PIN_LOWER(A, SLOT(A), READ);
#endif
}

byte done;
bit through;     /* it lives on, and does nothing more */

active proctype client_on()
{
	byte n, w, old;

	{
		do
		:: n < SESSIONS_A ->
			do
			:: PIN_RAISE(A, SLOT(A), READ, 0, old);
				w = mem[W0];
				if
				:: STATE(w) == RESIDENT -> break
				/* Only somebody who was given a fence; one that has passed speaks of
				 * an earlier fill. */
#ifdef NO_FENCE_LOOK
				:: STATE(w) == FILLING && token -> break
#else
				:: STATE(w) == FILLING && token && !PASSED -> break
#endif
				:: else -> PIN_LOWER(A, SLOT(A), READ);
					asks_on = 1;
					!asks_on
				fi
			od;
			put_on_stream();
			atomic { n++; w = 0; old = 0; token = 0 }
		:: else -> break
		od
	} unless { killed[A] };
	atomic { through = 1; n = 0; w = 0; old = 0 };
	if
	:: killed[A] ->
#ifndef HUP_IS_DEATH
		/* Its GPU's work ends before its pidfd comes. */
		empty(stream) && gpu_idle;
		FENCE(A);
		FENCE(G);
#endif
		DIES(A)
	:: else -> skip
	fi;
	d_step { asks_on = 0; done++ }
}

#ifdef DEATH
active proctype killer()
{
	if
	:: atomic { !through -> killed[A] = 1 }
	:: skip
	fi
}
#endif

/* ---- client B ---- */

active proctype client()
{
	byte n, w, old;

	do
	:: n < SESSIONS_B ->
		do
		:: PIN_RAISE(B, SLOT(B), READ, 0, old);
			w = mem[W0];
#ifdef FILLING_IS_A_HIT
			if
			:: STATE(w) == RESIDENT || STATE(w) == FILLING ->
#else
			if
			:: STATE(w) == RESIDENT ->
#endif
				assert(use_after_drop || owned);
				assert(not_ready || THERE);
				PIN_LOWER(B, SLOT(B), READ);
				break
			:: else -> PIN_LOWER(B, SLOT(B), READ);
				asks = 1;
				!asks
			fi
		od;
		atomic { n++; w = 0; old = 0 }
	:: else -> break
	od;
	done++
}

/* ---- daemon ---- */

inline scan()
{
	SCAN_BEGIN(s);
	SCAN_ONE(s, A, SLOT(A));
	SCAN_ONE(s, B, SLOT(B))
}

byte fence;      /* the last value handed out */
bit granted;     /* it is out */
byte head;       /* entries taken */
byte budget = BUDGET;
bit may_fail = 1; /* once, so that requests end */

inline fence_store()
{
	if
	:: granted ->
		STORE(D, FENCE_VALUE, fence);
		granted = 0
	:: else -> skip
	fi
}

/* The extent goes to somebody else. */
inline give_up()
{
	d_step { owned = 0; mem[BYTES] = JUNK };
	STORE_SC(D, W0, ABSENT)
}

/* failed_under_pins() */
inline fill_fails()
{
#ifdef NO_FAILED
	give_up();
	fence_store();
#else
#ifdef FAILED_SCAN_FIRST
	scan();
	STORE_SC(D, W0, DROPPING);
#else
	STORE_SC(D, W0, DROPPING);
	scan();
#endif
	if
	:: PINNED(s) ->
#ifdef FENCE_BEFORE_MARKS
		fence_store();
#endif
		STORE(L, BYTES, MARK);
		FENCE(L);
		STORE_SC(D, W0, FAILED);
		fence_store()
	:: else ->
		give_up();
		fence_store()
	fi;
#endif
	s = 0
}

inline fill_ends()
{
	if
	:: STORE(L, BYTES, DATA);
		FENCE(L);
		STORE_SC(D, W0, RESIDENT);
		fence_store()
	:: may_fail -> may_fail = 0;
		fill_fails()
	fi
}

/* FAILED lets nobody in. */
inline failed_ends()
{
	scan();
	if
	:: PINNED(s) -> skip
	:: else -> give_up()
	fi;
	s = 0
}

inline drop()
{
	PUBLISH_EVICTING(W0, 0);
	scan();
	if
	:: PINNED(s) -> STORE_SC(D, W0, RESIDENT)
	:: else -> PUBLISH_DROPPING(W0); give_up()
	fi;
	s = 0
}

inline lower_one()
{
	d_step {
		empty(buf[D]) ->
		if
		:: (mem[SLOT(A)] & PINS) > 0 ->
			mem[SLOT(A)] = mem[SLOT(A)] - PIN;
			lowered++;
			assert(lowers_once || lowered <= deferred)
		:: else -> assert(lowers_once || false)
		fi
	}
}

/* take_ring(): tail, then the word, then entries. */
inline deferred_look()
{
	tail = mem[TAIL];
	reached = mem[WORD];
	at = head;
	do
	:: at < tail ->
#ifdef LOWER_EARLY
		at++;
		lower_one()
#else
		if
		:: mem[ENTRY + at] > reached -> break
		:: else -> at++;
			lower_one()
		fi
#endif
	:: else -> break
	od;
	atomic {
#ifndef HEAD_STAYS
		head = at;
#endif
		tail = 0; reached = 0; at = 0
	}
}

#define WAITING (asks_on || asks)

active proctype daemon()
{
	byte s, tail, reached, at;

	do
	:: mem[W0] == ABSENT && WAITING ->
		STORE_SC(D, W0, FILLING);
		owned = 1
	/* acquire_on is answered once there is room; a fence is out until the fill ends. */
	:: mem[W0] == FILLING && asks_on && !granted ->
		d_step { fence++; granted = 1; token = fence; asks_on = 0 }
	:: mem[W0] == FILLING -> fill_ends()
	:: mem[W0] == RESIDENT && asks_on -> d_step { token = 0; asks_on = 0 }
	:: mem[W0] == RESIDENT && asks -> asks = 0
	:: mem[W0] == FAILED -> failed_ends()
	:: budget > 0 && mem[W0] == RESIDENT -> budget--; drop()
	:: !dead[A] && mem[TAIL] > head && mem[WORD] > 0 -> deferred_look()
	:: done == 2 && !WAITING && !granted &&
	   (dead[A] || (head == deferred && empty(stream) && gpu_idle)) -> break
	od;
	/* Every deferred pin has gone, and once. */
	assert(lowers_once || dead[A] || (lowered == deferred && mem[SLOT(A)] == 0))
}

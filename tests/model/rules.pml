/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules that all models share: memory as x86 has it, the pin slot of pin.h, and what the daemon
 * does to word0 and to the slots (front.c, pins.c). A switch takes one rule out.
 *
 * Every process has a FIFO buffer of stores that drain at any time (TSO). A plain store goes into
 * it; an exchange, or a seq_cst store, waits until it is empty. Nobody reads by a plain load what
 * stands in its own buffer, so that no load looks there: exchanges read memory, and the daemon
 * knows its own word0.
 *
 * A model defines before it includes this: WORDS, and ON_STORE(who, word, value), which is what a
 * store means when it reaches memory. Each of its processes has a number: D the daemon, L its
 * lane, then clients.
 */

/* ---- properties: never set, they give the assertions their names ---- */

bit use_after_drop, lost_write, stale_copy, unfilled_read, unfilled_written_back, not_ready,
    stale_hit, hit_after_destroy, lowers_once;

/* ---- memory ---- */

#define D 0
#define L 1
#define A 2
#define B 3
#define G 4 /* a GPU's stream of A */
#define BUFFERS 5

#ifndef DEPTH
#define DEPTH 2
#endif

byte mem[WORDS];
chan buf[BUFFERS] = [DEPTH] of { byte, byte };

#define STORE(who, word, value) buf[who]!word, value
#define FENCE(who)              empty(buf[who])
#define STORE_SC(who, word, value) \
	d_step { empty(buf[who]) -> mem[word] = value; ON_STORE(who, word, value) }

#define DRAIN(who) d_step { buf[who]?a, v -> mem[a] = v; ON_STORE(who, a, v); a = 0; v = 0 }

active proctype drain()
{
	byte a, v;

end:	do
	:: DRAIN(D)
	:: DRAIN(L)
	:: DRAIN(A)
	:: DRAIN(B)
	:: DRAIN(G)
	od
}

/* ---- word0: {state:3, UNFILLED:1, ...} ---- */

#define ABSENT    0
#define FILLING   1
#define RESIDENT  2
#define EVICTING  3
#define DROPPING  4
#define FAILED    5
#define STATE(w)  ((w) & 7)
#define UNFILLED  8

/* ---- the slot: {pins:2, write_pins:2, written:1, filled:1} ---- */

#define PIN       1
#define PINS      3
#define WPIN      4
#define WPINS     12
#define WRITTEN   16
#define FILLED    32

#define READ      PIN
#define WRITE     (PIN + WPIN)

/* Access is READ or WRITE; `written` goes up with a writer's pin. With `filled` for a DISCARD only
 * where that is a mutant's. */
#define RAISED(slot, access, filled) \
	(((slot) + (access)) | ((access) == WRITE -> WRITTEN : 0) | (filled))

/* `old`: the slot before. */
#ifdef RELAXED_PIN
/* No full barrier: the new value waits in the buffer while the client looks at word0. */
#define PIN_RAISE(who, slot, access, filled, old) \
	atomic { \
		nfull(buf[who]) -> old = mem[slot]; \
		buf[who]!slot, RAISED(old, access, filled) \
	}
#else
#define PIN_RAISE(who, slot, access, filled, old) \
	d_step { \
		empty(buf[who]) -> old = mem[slot]; \
		mem[slot] = RAISED(old, access, filled) \
	}
#endif

#ifdef RELAXED_RELEASE
/* What was written under the pin may come after the pin is gone. */
#define PIN_LOWER(who, slot, access) mem[slot] = mem[slot] - (access)
#else
#define PIN_LOWER(who, slot, access) \
	d_step { empty(buf[who]) -> mem[slot] = mem[slot] - (access) }
#endif

/* A try that came to nothing. */
#ifdef BACKOUT_CLEARS_WRITTEN
#define BACK_OUT(who, slot, access) \
	d_step { empty(buf[who]) -> mem[slot] = (mem[slot] - (access)) & ~WRITTEN }
#else
#define BACK_OUT(who, slot, access) PIN_LOWER(who, slot, access)
#endif

/* ---- what the daemon sees in the slots: pins, write_pins, written, filled of pins.c ---- */

bit dead[BUFFERS];   /* the daemon has seen its pidfd: a tombstone, whose pins count no more */
bit buried[BUFFERS]; /* swept: out of the scan */

#define SCAN_BEGIN(s) s = 0
/* Gathers in `s` as one slot has it; any pin counts as one. */
#define SCAN_ONE(s, who, slot) \
	d_step { \
		if \
		:: buried[who] -> skip \
		:: else -> \
			s = s | (mem[slot] & (WRITTEN | FILLED)) \
			  | ((!dead[who] && (mem[slot] & PINS)) -> PIN : 0) \
			  | ((!dead[who] && (mem[slot] & WPINS)) -> WPIN : 0) \
		fi \
	}
#define PINNED(s) ((s) & (PIN | WPIN))

/* Clears `written` from a value without write pins; of a dead client in any case. One exchange. */
#ifdef CLEAN_CLEARS_UNDER_WRITE_PIN
#define MAY_CLEAR(who, slot) true
#else
#define MAY_CLEAR(who, slot) (dead[who] || (mem[slot] & WPINS) == 0)
#endif
#define CLEAR_WRITTEN(was, who, slot) \
	d_step { \
		empty(buf[D]) -> \
		if \
		:: !buried[who] && (mem[slot] & WRITTEN) -> \
			was = 1; \
			if \
			:: MAY_CLEAR(who, slot) -> mem[slot] = mem[slot] & ~WRITTEN \
			:: else -> skip \
			fi \
		:: else -> skip \
		fi \
	}
#define CLEAR_FILLED(slot) \
	d_step { empty(buf[D]) -> mem[slot] = mem[slot] & ~FILLED }

#ifdef NO_TOMBSTONE
/* The table of a dead client goes at once, with what it says of writes. */
#define DIES(who) d_step { dead[who] = 1; buried[who] = 1 }
#else
#define DIES(who) dead[who] = 1
#endif

/* ---- publishing EVICTING, before the scan ---- */

#if defined(NO_EVICTING)
#define PUBLISH_EVICTING(word, flags) skip
#elif defined(RELAXED_EVICTING)
#define PUBLISH_EVICTING(word, flags) STORE(D, word, EVICTING | (flags))
#else
#define PUBLISH_EVICTING(word, flags) STORE_SC(D, word, EVICTING | (flags))
#endif

#ifdef NO_DROPPING
/* One state for both: nobody can tell whether bytes are intact. */
#define PUBLISH_DROPPING(word) skip
#else
#define PUBLISH_DROPPING(word) STORE_SC(D, word, DROPPING)
#endif

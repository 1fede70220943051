/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sleeps is woken: a client's submissions and the daemon's `awake` (request.c, loop.c),
 * completions and the client's `cq_waiting` (completion.c), the access log and `awake`
 * (access_log.h, acquire.h). A wake-up that is lost is an end in which somebody sleeps.
 */

#define SQ_TAIL    0
#define CQ_TAIL    1
#define CQ_WAITING 2
#define AWAKE      3
#define LOG_HEAD   4
#define SLOT       5
#define WORDS      6

#define ON_STORE(who, word, value) skip

#include "rules.pml"

#define REQUESTS 2
#define USES     2

#define POLLING 0
#define NAPPING 1 /* for a millisecond at most */
#define ASLEEP  2

bit bell;    /* the eventfd: a system call, so in order with what came before */
bit sleeper; /* a thread in the futex at cq_tail */
byte taken, used;

#define RING d_step { empty(buf[me]) -> bell = 1 }

/* ---- the client's thread that asks ---- */

inline submit()
{
#ifdef LOOK_BEFORE_TAIL
	w = mem[AWAKE];
	STORE(me, SQ_TAIL, n + 1);
#else
	STORE(me, SQ_TAIL, n + 1);
#ifndef NO_SUBMIT_FENCE
	FENCE(me);
#endif
	w = mem[AWAKE];
#endif
	if
	:: w != POLLING -> RING
	:: else -> skip
	fi
}

/* The futex compares again, with all that was stored before it in memory. */
inline wait()
{
	do
	:: mem[CQ_TAIL] > n -> break
	:: else ->
#ifndef NO_WAITING
		STORE_SC(me, CQ_WAITING, 1);
#endif
		FENCE(me);
		if
		:: mem[CQ_TAIL] > n -> skip
		:: else ->
			atomic {
				if
				:: mem[CQ_TAIL] > n -> skip
				:: else -> sleeper = 1
				fi
			};
			!sleeper
		fi;
		STORE(me, CQ_WAITING, 0)
	od
}

active proctype asks()
{
	byte me = A, n, w;

	do
	:: n < REQUESTS -> submit(); wait();
		atomic { n++; w = 0 }
	:: else -> break
	od
}

/* ---- a thread that hits ---- */

active proctype uses()
{
	byte me = B, n, w;

	do
	:: n < USES ->
#ifndef LOG_AFTER_PIN
		STORE(me, LOG_HEAD, n + 1);
#endif
		/* The pin's exchange is the fence. */
		PIN_RAISE(me, SLOT, READ, 0, w);
#ifdef LOG_AFTER_PIN
		STORE(me, LOG_HEAD, n + 1);
#endif
		w = mem[AWAKE];
		if
		:: w == ASLEEP -> RING
		:: else -> skip
		fi;
		PIN_LOWER(me, SLOT, READ);
		atomic { n++; w = 0 }
	:: else -> break
	od
}

/* ---- the daemon ---- */

inline turn()
{
	do
	:: taken < mem[SQ_TAIL] -> taken++;
#ifdef LOOK_BEFORE_CQ_TAIL
		w = mem[CQ_WAITING];
		STORE(D, CQ_TAIL, taken);
#else
		STORE(D, CQ_TAIL, taken);
#ifndef NO_COMPLETION_FENCE
		FENCE(D);
#endif
		w = mem[CQ_WAITING];
#endif
		if
		:: w -> d_step { empty(buf[D]) -> sleeper = 0 }
		:: else -> skip
		fi
	:: used < mem[LOG_HEAD] -> used++
	:: taken == mem[SQ_TAIL] && used == mem[LOG_HEAD] -> break
	od
}

#ifdef NO_SECOND_PENDING
#define PENDING 0
#elif defined(PENDING_WITHOUT_LOGS)
#define PENDING (taken < mem[SQ_TAIL])
#else
#define PENDING (taken < mem[SQ_TAIL] || (how == ASLEEP && used < mem[LOG_HEAD]))
#endif

active proctype daemon()
{
	byte how, w;

	do
	:: taken == REQUESTS && used == USES -> break
	:: else ->
		turn();
		if
		:: how = NAPPING
		:: how = ASLEEP
		fi;
#ifdef NO_SLEEP_FENCE
		STORE(D, AWAKE, how);
#else
		STORE_SC(D, AWAKE, how);
#endif
		if
		:: PENDING -> skip
		:: else ->
			if
			:: bell -> bell = 0
			:: how == NAPPING -> skip /* its time is up */
			:: taken == REQUESTS && used == USES -> skip
			fi
		fi;
		STORE_SC(D, AWAKE, POLLING);
		atomic { how = 0; w = 0 }
	od
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The futex system call. `shared`: the word lies in memory of several processes. Any thread.
 */
#ifndef TIERD_CLIENT_FUTEX_H
#define TIERD_CLIENT_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"

/* Sleeps while *word == value, until the monotonic time `until_ns`. 0: woken or the word differs
 * already; -ETIMEDOUT; -EINTR a signal was handled (with SA_RESTART too, since there is a time). */
static inline int futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t until_ns, bool shared)
{
	int op = FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG);
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };

	if (syscall(SYS_futex, word, op, value, &until, NULL, FUTEX_BITSET_MATCH_ANY) == 0 ||
	    errno == EAGAIN)
		return 0;
	return -errno;
}

static inline void futex_wake(_Atomic uint32_t *word, int threads, bool shared)
{
	syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), threads, NULL,
		NULL, 0);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#include "base/check.h"

struct guarded {
	_Atomic uintptr_t base; /* 0: none; set last and cleared first, for the handler */
	uint64_t bytes, page_bytes;
	_Atomic uint32_t *damaged;
};

/* The handler reads it on any thread, so it is no list and is never moved. */
static struct guarded ranges[GUARD_RANGES];

static struct guarded *range_at(uintptr_t at)
{
	for (unsigned i = 0; i < GUARD_RANGES; i++) {
		uintptr_t base = atomic_load(&ranges[i].base);

		if (base != 0 && at >= base && at - base < ranges[i].bytes)
			return &ranges[i];
	}
	return NULL;
}

/* Two threads may meet the same page: the second only puts fresh memory there once more. */
static bool replace(const struct guarded *g, uintptr_t at)
{
	uintptr_t page = at & ~(uintptr_t)(g->page_bytes - 1);

	return mmap((void *)page, g->page_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void sigbus_came(int number, siginfo_t *info, void *context)
{
	struct sigaction plain = { .sa_handler = SIG_DFL };
	int was = errno;
	struct guarded *g = NULL;

	/* Of an access, and not sent by somebody. */
	if (info->si_code > 0)
		g = range_at((uintptr_t)info->si_addr);
	if (g != NULL && replace(g, (uintptr_t)info->si_addr)) {
		atomic_store(g->damaged, 1);
		errno = was;
		return;
	}
	/* The access is made again, and ends the process. One that was sent is not. */
	sigaction(SIGBUS, &plain, NULL);
	if (info->si_code <= 0)
		raise(SIGBUS);
}

static void handler_set(void)
{
	struct sigaction action = { .sa_sigaction = sigbus_came, .sa_flags = SA_SIGINFO };

	sigemptyset(&action.sa_mask);
	ASSERT(sigaction(SIGBUS, &action, NULL) == 0);
}

void guard_add(void *base, uint64_t bytes, uint64_t page_bytes, _Atomic uint32_t *damaged)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned i = 0;

	ASSERT(pthread_once(&once, handler_set) == 0);
	ASSERT(base != NULL && bytes > 0 && (uintptr_t)base % page_bytes == 0);
	while (i < GUARD_RANGES && atomic_load(&ranges[i].base) != 0)
		i++;
	ASSERT(i < GUARD_RANGES);
	ranges[i].bytes = bytes;
	ranges[i].page_bytes = page_bytes;
	ranges[i].damaged = damaged;
	atomic_store(&ranges[i].base, (uintptr_t)base);
}

void guard_remove(void *base)
{
	struct guarded *g = range_at((uintptr_t)base);

	ASSERT(g != NULL);
	atomic_store(&g->base, 0);
}

void guard_block_signals(sigset_t *was)
{
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, SIGBUS);
	ASSERT(pthread_sigmask(SIG_SETMASK, &set, was) == 0);
}

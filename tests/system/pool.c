/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/system.h"
#include "tests/unit/point.h"

#define POOL "/proc/sys/vm/nr_hugepages"

static unsigned pool_get(void)
{
	unsigned n = 0;
	FILE *f = fopen(POOL, "re");

	if (f) {
		n = fscanf(f, "%u", &n) == 1 ? n : 0;
		fclose(f);
	}
	return n;
}

void pool_set(unsigned n)
{
	FILE *f = fopen(POOL, "we");

	if (f) {
		fprintf(f, "%u\n", n);
		fclose(f);
	}
}

void pool_return(int pool, pid_t guardian)
{
	close(pool);
	waitpid(guardian, NULL, 0);
}

int pool_borrow(unsigned pages, pid_t *ret_guardian)
{
	unsigned was = pool_get(), want = was + pages;
	int ends[2];
	char nothing;

	ck_assert_int_eq(pipe(ends), 0);
	*ret_guardian = fork();
	ck_assert_int_ge(*ret_guardian, 0);
	if (*ret_guardian == 0) {
		/* Out of the group that is killed with a test that fails. */
		setsid();
		close(ends[1]);
		while (read(ends[0], &nothing, 1) > 0)
			;
		pool_set(was);
		_exit(0);
	}
	close(ends[0]);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	system_pool_take();
	pool_set(want);
	if (pool_get() >= want)
		return ends[1];
	system_pool_leave();
	pool_return(ends[1], *ret_guardian);
	return -1;
}

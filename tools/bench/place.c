/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tools/bench/place.h"

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

static cpu_set_t allowed; /* before place_apart() */

/* The n-th CPU of `allowed` alone; false: there are fewer. */
static bool nth_cpu(unsigned n, cpu_set_t *ret)
{
	CPU_ZERO(ret);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || n-- > 0)
			continue;
		CPU_SET(cpu, ret);
		return true;
	}
	return false;
}

/* A thread that ends meanwhile, or is another user's, stays where it is. */
static void place_process(pid_t pid, const cpu_set_t *cpus)
{
	char path[64];
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = pid > 0 ? opendir(path) : NULL;
	if (tasks == NULL)
		return;
	while ((entry = readdir(tasks)) != NULL)
		if (entry->d_name[0] != '.')
			sched_setaffinity(atoi(entry->d_name), sizeof(*cpus), cpus);
	closedir(tasks);
}

void place_apart(const pid_t *served_by, unsigned n)
{
	cpu_set_t first, second;

	ASSERT(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	if (!nth_cpu(0, &first) || !nth_cpu(1, &second))
		return;
	sched_setaffinity(0, sizeof(first), &first);
	for (unsigned i = 0; i < n; i++)
		place_process(served_by[i], &second);
}

void place_freely(const pid_t *served_by, unsigned n)
{
	sched_setaffinity(0, sizeof(allowed), &allowed);
	for (unsigned i = 0; i < n; i++)
		place_process(served_by[i], &allowed);
}

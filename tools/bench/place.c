/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tools/bench/place.h"

#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"

#define ADDITIONS 200000u /* some 0.1 ms */

static cpu_set_t allowed; /* before this file changed it */
static bool known;

static void learn_allowed(void)
{
	if (!known)
		ASSERT(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
	known = true;
}

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

	learn_allowed();
	if (!nth_cpu(0, &first) || !nth_cpu(1, &second))
		return;
	sched_setaffinity(0, sizeof(first), &first);
	for (unsigned i = 0; i < n; i++)
		place_process(served_by[i], &second);
}

/* The quicker of two: an interrupt is nobody's speed. */
static double addition_ns(void)
{
	uint64_t best = UINT64_MAX, x = 0;

	for (unsigned turn = 0; turn < 2; turn++) {
		uint64_t begin = clock_now_ns();

		for (unsigned i = 0; i < ADDITIONS; i++) {
			x += i;
			__asm__ volatile("" : "+r"(x));
		}
		best = MIN(best, clock_now_ns() - begin);
	}
	return (double)best / ADDITIONS;
}

double place_quickest(void)
{
	cpu_set_t one, quickest;
	double best = 0;

	learn_allowed();
	quickest = allowed;
	for (unsigned n = 0; nth_cpu(n, &one); n++) {
		double ns;

		if (sched_setaffinity(0, sizeof(one), &one) < 0)
			continue;
		ns = addition_ns();
		if (best == 0 || ns < best) {
			best = ns;
			quickest = one;
		}
	}
	sched_setaffinity(0, sizeof(quickest), &quickest);
	return best;
}

void place_freely(const pid_t *served_by, unsigned n)
{
	learn_allowed();
	sched_setaffinity(0, sizeof(allowed), &allowed);
	for (unsigned i = 0; i < n; i++)
		place_process(served_by[i], &allowed);
}

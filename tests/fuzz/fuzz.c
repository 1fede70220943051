/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"

#define COUNTS 4

static struct {
	const char *what;
	uint64_t n;
} counts[COUNTS];

static void counts_print(void)
{
	for (unsigned i = 0; i < COUNTS && counts[i].what != NULL; i++)
		fprintf(stderr, "%s: %" PRIu64 " %s\n", program_invocation_short_name, counts[i].n,
			counts[i].what);
}

void fuzz_count(const char *what, uint64_t n)
{
	unsigned i = 0;

	if (counts[0].what == NULL)
		ASSERT(atexit(counts_print) == 0);
	while (i < COUNTS && counts[i].what != NULL && strcmp(counts[i].what, what) != 0)
		i++;
	ASSERT(i < COUNTS);
	counts[i].what = what;
	counts[i].n += n;
}

unsigned fuzz_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	ASSERT(dir != NULL);
	while (readdir(dir) != NULL)
		n++;
	ASSERT(closedir(dir) == 0);
	return n - 3; /* "." and "..", and the folder itself */
}

void fuzz_check_descriptors(unsigned before)
{
	unsigned now = fuzz_descriptors();

	if (now != before)
		fprintf(stderr, "%u descriptors are open, %u were before\n", now, before);
	ASSERT(now == before);
}

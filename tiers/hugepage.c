/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiers/hugepage.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/compiler.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static uint64_t read_count(const char *path)
{
	FILE *f = fopen(path, "re");
	uint64_t count = 0;

	if (f == NULL)
		return 0;
	if (fscanf(f, "%" SCNu64, &count) != 1)
		count = 0;
	fclose(f);
	return count;
}

uint64_t hugepage_pool_bytes(void)
{
	uint64_t free_pages = read_count(POOL "free_hugepages");
	uint64_t reserved = read_count(POOL "resv_hugepages");

	return free_pages > reserved ? (free_pages - reserved) * HUGE_BYTES : 0;
}

/* One 4 KiB page must be there already: of an empty range the kernel says EINVAL. */
static bool collapse_one(char *at)
{
	return madvise(at, KIB(4), MADV_POPULATE_WRITE) == 0 &&
	       madvise(at, HUGE_BYTES, MADV_COLLAPSE) == 0;
}

/* All at once: each call waits until every CPU has emptied its lists, which takes milliseconds on a
 * busy machine. */
static bool collapse_range(char *at, char *end)
{
	for (char *p = at; p < end; p += HUGE_BYTES)
		if (madvise(p, KIB(4), MADV_POPULATE_WRITE) < 0)
			return false;
	return at < end && madvise(at, (size_t)(end - at), MADV_COLLAPSE) == 0;
}

unsigned hugepage_collapse(void *base, uint64_t bytes, uint64_t *ret_came)
{
	const unsigned in_a_row_max = 4;
	char *at = (char *)ALIGN_UP((uintptr_t)base, (uint64_t)HUGE_BYTES);
	char *end = (char *)ALIGN_DOWN((uintptr_t)base + bytes, (uint64_t)HUGE_BYTES);
	unsigned failed = 0, in_a_row = 0;

	*ret_came = at < end ? (uint64_t)(end - at) : 0;
	if (collapse_range(at, end))
		return 0;
	*ret_came = 0;
	for (; at < end && in_a_row < in_a_row_max; at += HUGE_BYTES) {
		in_a_row = collapse_one(at) ? 0 : in_a_row + 1;
		failed += in_a_row > 0;
		*ret_came += in_a_row == 0 ? HUGE_BYTES : 0;
	}
	return failed;
}

uint64_t hugepage_mapped_bytes(const void *base, uint64_t bytes)
{
	uintptr_t begin = (uintptr_t)base, from, to;
	FILE *f = fopen("/proc/self/smaps", "re");
	uint64_t sum = 0, kib;
	bool inside = false;
	char line[512];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
			inside = from >= begin && to <= begin + bytes;
		else if (inside && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
			sum += kib << 10;
	}
	if (f != NULL)
		fclose(f);
	return sum;
}

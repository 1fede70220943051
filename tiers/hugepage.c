/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/hugepage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define POOL  "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define SHMEM "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

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

/* The word in brackets is in force. */
bool hugepage_shmem_advice(void)
{
	static const char *const takes[] = { "[advise]", "[always]", "[within_size]", "[force]" };
	char text[128] = "";
	FILE *f = fopen(SHMEM, "re");
	bool found = false;

	if (f == NULL)
		return false;
	if (fgets(text, sizeof(text), f) == NULL)
		text[0] = '\0';
	fclose(f);
	for (unsigned i = 0; i < sizeof(takes) / sizeof(takes[0]); i++)
		found |= strstr(text, takes[i]) != NULL;
	return found;
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

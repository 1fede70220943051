/* SPDX-License-Identifier: Apache-2.0
 *
 * A memory cgroup of a test's own, of either version; it takes root and a controller.
 */
#ifndef TIERD_TESTS_CGROUP_RIG_H
#define TIERD_TESTS_CGROUP_RIG_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/unit/unit.h"

static inline bool cgroup_put(const char *folder, const char *file, uint64_t value)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	f = fopen(path, "r+e");
	if (f == NULL)
		return false;
	fprintf(f, "%" PRIu64 "\n", value);
	return fclose(f) == 0;
}

/* False where none may be made. */
static inline bool cgroup_make(uint64_t limit, char *folder, size_t room)
{
	static const char *const tops[][2] = {
		{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
		{ "/sys/fs/cgroup", "memory.max" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(tops); i++) {
		snprintf(folder, room, "%s/tierd-test-%d", tops[i][0], getpid());
		if (mkdir(folder, 0700) < 0)
			continue;
		if (cgroup_put(folder, tops[i][1], limit))
			return true;
		rmdir(folder);
	}
	return false;
}

static inline bool cgroup_join(const char *folder)
{
	return cgroup_put(folder, "cgroup.procs", (uint64_t)getpid());
}

static inline bool cgroup_enter(uint64_t limit, char *folder, size_t room)
{
	return cgroup_make(limit, folder, room) && cgroup_join(folder);
}

/* Of the process that entered it. */
static inline void cgroup_leave(const char *folder)
{
	char top[256];

	snprintf(top, sizeof(top), "%s/..", folder);
	ck_assert(cgroup_join(top));
	ck_assert_int_eq(rmdir(folder), 0);
}

#endif

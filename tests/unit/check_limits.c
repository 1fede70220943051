/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory limits read from made-up /proc and /sys trees, one small table of files a case.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/leftovers.h"
#include "tiers/limits.h"

#define MEMINFO_8G                                                                                 \
	{                                                                                          \
		"/proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n" \
	}
#define MOUNT_V1(root)                         \
	"25 1 0:9 / / rw - ext4 /dev/vda rw\n" \
	"30 24 0:26 " root " /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
#define MOUNT_V2(root) \
	"31 24 0:27 " root " /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_HYBRID  \
	MOUNT_V1("/") \
	"32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
#define V1 "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"

struct file {
	const char *path, *text;
};

struct scene {
	const char *what;
	struct file files[12];
	uint64_t total_mib, available_mib;
	const char *source; /* of the total */
};

/* clang-format off */
static const struct scene scenes[] = {
	{ "no container", { MEMINFO_8G }, 8192, 6144, "MemTotal of /proc/meminfo" },
	{ "version 1, 512 MiB",
	  { MEMINFO_8G, { "/proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n0::/\n" },
	    { "/proc/self/mountinfo", MOUNT_V1("/") },
	    { V1 "/job/memory.limit_in_bytes", "536870912\n" },
	    { V1 "/job/memory.usage_in_bytes", "134217728\n" },
	    { V1 "/memory.limit_in_bytes", "9223372036854771712\n" } },
	  512, 384, V1 "/job/memory.limit_in_bytes" },
	{ "version 1, page cache gives way",
	  { MEMINFO_8G, { "/proc/self/cgroup", "4:cpuset,memory,hugetlb:/job\n" },
	    { "/proc/self/mountinfo", MOUNT_V1("/") },
	    { V1 "/job/memory.limit_in_bytes", "536870912\n" },
	    { V1 "/job/memory.usage_in_bytes", "536870912\n" },
	    { V1 "/job/memory.stat", "inactive_file 7\ntotal_inactive_file 268435456\n" } },
	  512, 256, V1 "/job/memory.limit_in_bytes" },
	{ "version 1, unlimited",
	  { MEMINFO_8G, { "/proc/self/cgroup", "4:memory:/job\n" },
	    { "/proc/self/mountinfo", MOUNT_V1("/") },
	    { V1 "/job/memory.limit_in_bytes", "9223372036854771712\n" },
	    { V1 "/job/memory.usage_in_bytes", "134217728\n" } },
	  8192, 6144, "MemTotal of /proc/meminfo" },
	{ "version 2, limited",
	  { MEMINFO_8G, { "/proc/self/cgroup", "0::/a/b\n" },
	    { "/proc/self/mountinfo", MOUNT_V2("/") },
	    { V2 "/a/b/memory.max", "1073741824\n" }, { V2 "/a/b/memory.current", "1048576\n" },
	    { V2 "/a/memory.max", "max\n" }, { V2 "/a/memory.current", "1048576\n" } },
	  1024, 1023, V2 "/a/b/memory.max" },
	{ "version 2, the parent is tighter than its child",
	  { MEMINFO_8G, { "/proc/self/cgroup", "0::/a/b/c\n" },
	    { "/proc/self/mountinfo", MOUNT_V2("/") },
	    { V2 "/a/b/c/memory.max", "4294967296\n" }, { V2 "/a/b/c/memory.current", "0\n" },
	    { V2 "/a/b/memory.max", "max\n" },
	    { V2 "/a/memory.max", "2147483648\n" }, { V2 "/a/memory.current", "1073741824\n" } },
	  2048, 1024, V2 "/a/memory.max" },
	{ "version 2, held up before its limit",
	  { MEMINFO_8G, { "/proc/self/cgroup", "0::/a\n" },
	    { "/proc/self/mountinfo", MOUNT_V2("/") },
	    { V2 "/a/memory.max", "4294967296\n" }, { V2 "/a/memory.high", "1073741824\n" },
	    { V2 "/a/memory.current", "268435456\n" } },
	  1024, 768, V2 "/a/memory.high" },
	{ "version 2, its limit below what holds it up",
	  { MEMINFO_8G, { "/proc/self/cgroup", "0::/a\n" },
	    { "/proc/self/mountinfo", MOUNT_V2("/") },
	    { V2 "/a/memory.max", "1073741824\n" }, { V2 "/a/memory.high", "max\n" },
	    { V2 "/a/memory.current", "0\n" } },
	  1024, 1024, V2 "/a/memory.max" },
	{ "version 2, unlimited",
	  { MEMINFO_8G, { "/proc/self/cgroup", "0::/a\n" },
	    { "/proc/self/mountinfo", MOUNT_V2("/") },
	    { V2 "/a/memory.max", "max\n" }, { V2 "/a/memory.current", "1073741824\n" } },
	  8192, 6144, "MemTotal of /proc/meminfo" },
	{ "the child has room, the parent's siblings used it up",
	  { MEMINFO_8G, { "/proc/self/cgroup", "0::/a/b\n" },
	    { "/proc/self/mountinfo", MOUNT_V2("/") },
	    { V2 "/a/b/memory.max", "1073741824\n" }, { V2 "/a/b/memory.current", "0\n" },
	    { V2 "/a/memory.max", "4294967296\n" }, { V2 "/a/memory.current", "4194304000\n" } },
	  1024, 96, V2 "/a/b/memory.max" },
	{ "hybrid: the memory controller is in version 1",
	  { MEMINFO_8G, { "/proc/self/cgroup", "4:memory:/job\n0::/job\n" },
	    { "/proc/self/mountinfo", MOUNT_HYBRID },
	    { V1 "/job/memory.limit_in_bytes", "1073741824\n" },
	    { V1 "/job/memory.usage_in_bytes", "0\n" },
	    { "/sys/fs/cgroup/unified/job/cgroup.procs", "1\n" } },
	  1024, 1024, V1 "/job/memory.limit_in_bytes" },
	{ "a container that sees its own part only",
	  { MEMINFO_8G, { "/proc/self/cgroup", "4:memory:/docker/f00\n" },
	    { "/proc/self/mountinfo", MOUNT_V1("/docker/f00") },
	    { V1 "/memory.limit_in_bytes", "1073741824\n" },
	    { V1 "/memory.usage_in_bytes", "0\n" } },
	  1024, 1024, V1 "/memory.limit_in_bytes" },
	{ "a container with a cgroup namespace",
	  { MEMINFO_8G, { "/proc/self/cgroup", "0::/\n" },
	    { "/proc/self/mountinfo", MOUNT_V2("/../../docker") },
	    { V2 "/memory.max", "1073741824\n" }, { V2 "/memory.current", "0\n" } },
	  1024, 1024, V2 "/memory.max" },
	{ "a machine whose memory grows as it is used",
	  { MEMINFO_8G, { "/sys/devices/system/memory/block_size_bytes", "100000000\n" },
	    { "/sys/devices/system/memory/memory0/online", "1\n" },
	    { "/sys/devices/system/memory/memory1/online", "1\n" },
	    { "/sys/devices/system/memory/memory2/online", "1\n" },
	    { "/sys/devices/system/memory/memory3/online", "0\n" } },
	  12288, 10240, "/sys/devices/system/memory" },
};
/* clang-format on */

static char root[LEFTOVERS_ROOM];

static void put(const struct file *file)
{
	char path[512];
	FILE *to;

	snprintf(path, sizeof(path), "%s%s", root, file->path);
	for (char *at = strchr(path + strlen(root), '/'); at != NULL; at = strchr(at + 1, '/')) {
		*at = '\0';
		ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
		*at = '/';
	}
	to = fopen(path, "we");
	ck_assert_ptr_nonnull(to);
	ck_assert_int_ge(fputs(file->text, to), 0);
	ck_assert_int_eq(fclose(to), 0);
}

static void scene_make(const struct scene *scene)
{
	leftovers_folder(root);
	for (unsigned i = 0; i < ARRAY_SIZE(scene->files) && scene->files[i].path != NULL; i++)
		put(&scene->files[i]);
}

static void scene_remove(void)
{
	char command[LEFTOVERS_ROOM + 8];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(the_tightest_limit_on_the_path_counts_and_is_named)
{
	for (size_t i = 0; i < ARRAY_SIZE(scenes); i++) {
		const struct scene *s = &scenes[i];
		struct err err = ERR_INIT;
		struct limits limits;

		scene_make(s);
		ck_assert_msg(limits_read(root, &limits, &err) == 0, "%s: %s", s->what, err.text);
		ck_assert_msg(limits.total.bytes == MIB(s->total_mib), "%s: total %lu MiB", s->what,
			      limits.total.bytes >> 20);
		ck_assert_msg(limits.available.bytes == MIB(s->available_mib),
			      "%s: available %lu MiB (%s)", s->what, limits.available.bytes >> 20,
			      limits.available.source);
		ck_assert_str_eq(limits.total.source, s->source);
		scene_remove();
	}
}
END_TEST

START_TEST(nothing_known_is_an_error)
{
	struct scene broken = { .files = { { "/proc/meminfo", "MemTotal: lots\n" } } };
	struct err err = ERR_INIT;
	struct limits limits;

	ck_assert_int_eq(limits_read("nosuchroot", &limits, &err), -ENODATA);
	scene_make(&broken);
	ck_assert_int_eq(limits_read(root, &limits, &err), -ENODATA);
	scene_remove();
}
END_TEST

START_TEST(this_machine_has_memory)
{
	struct err err = ERR_INIT;
	struct limits limits;

	ck_assert_int_eq(limits_read("", &limits, &err), 0);
	ck_assert_uint_gt(limits.total.bytes, MIB(64));
	ck_assert_uint_le(limits.available.bytes, limits.total.bytes);
}
END_TEST

UNIT_MAIN("limits", the_tightest_limit_on_the_path_counts_and_is_named, nothing_known_is_an_error,
	  this_machine_has_memory)

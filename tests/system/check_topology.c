/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine that tells nonsense of its NUMA nodes, to a real tierd: files of the kernel's are put
 * over the true ones, in a mount namespace of the daemon's. Wants root.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/system/client_rig.h"

#define NODES "/sys/devices/system/node"
/* Three that would each say it. */
#define CONFIG                                                           \
	"tensors: 4Ki\n"                                                 \
	"tiers:\n"                                                       \
	"  hbm: {backend: memory, size: 8MiB}\n"                         \
	"  dram: {size: 32MiB}\n"                                        \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n" \
	"domains:\n"                                                     \
	"  - {name: red, users: [65533], dram: 8MiB}\n"                  \
	"  - {name: blue, users: [65534], dram: 8MiB}\n"

static const char *cpus[2]; /* of each node, as the kernel writes them */

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) == EOF || fclose(f) != 0)
		_exit(98);
}

/* Of the daemon: two nodes. */
static void lie(void)
{
	char at[64] = "/tmp/tierd-nodes-XXXXXX", path[128], text[64];

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tierd-test", "/tmp", "tmpfs", 0, "size=1m") < 0 || !mkdtemp(at) ||
	    chdir(at) < 0 || mkdir("node0", 0755) < 0 || mkdir("node1", 0755) < 0)
		_exit(99);
	put("online", "0-1\n");
	put("possible", "0-1\n");
	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "node%u/cpumap", i);
		put(path, cpus[i]);
		snprintf(path, sizeof(path), "node%u/meminfo", i);
		snprintf(text, sizeof(text), "Node %u MemTotal:       4194304 kB\n", i);
		put(path, text);
		snprintf(path, sizeof(path), "node%u/distance", i);
		put(path, i == 0 ? "10 20\n" : "20 10\n");
	}
	if (mount(at, NODES, NULL, MS_BIND, NULL) < 0 || chdir("/") < 0)
		_exit(99);
}

static void all_works(const char *cpus_0, const char *cpus_1)
{
	tierd_tensor h[20];

	cpus[0] = cpus_0;
	cpus[1] = cpus_1;
	system_prepare(s, CONFIG);
	s->before_exec = lie;
	system_launch(s);
	connect_as("job");
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		h[i] = make(MIB(1));
		fill(h[i], TIERD_HOST, (int)i + 1);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		expect(h[i], i % 2 ? 0 : TIERD_HOST, (int)i + 1);
}

START_TEST(nodes_that_share_cpus_are_warned_of_once_and_all_works)
{
	static const char *const shared[][2] = { { "1\n", "1\n" }, { "3\n", "2\n" } };

	if (geteuid() != 0 || access(NODES "/online", F_OK) != 0) {
		printf("skipped: wants root and a kernel with NUMA\n");
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(shared); i++) {
		all_works(shared[i][0], shared[i][1]);
		ck_assert_uint_eq(system_log_count(s, "NUMA"), 1);
		ck_assert_uint_eq(
			system_log_count(
				s, "warn: tier: topology: NUMA nodes share CPUs, which cannot "
				   "be; NUMA is not used"),
			1);
		ck_assert_uint_eq(system_log_count(s, "hwloc"), 0);
		end();
	}
}
END_TEST

/* So it is the nonsense that is warned of. */
START_TEST(nodes_that_share_none_are_not_warned_of)
{
	if (geteuid() != 0 || access(NODES "/online", F_OK) != 0)
		return;
	all_works("1\n", "2\n");
	ck_assert_uint_eq(system_log_count(s, "share CPUs"), 0);
	end();
}
END_TEST

UNIT_MAIN("topology", nodes_that_share_cpus_are_warned_of_once_and_all_works,
	  nodes_that_share_none_are_not_warned_of)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement on recorded machines (data/hwloc of the shared test data, unpacked to a scratch folder)
 * and on this one. TIERD_TEST_DATA names the folder of the data; without it these are skipped.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <numaif.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/leftovers.h"
#include "tiers/topo.h"

struct expected_node {
	unsigned os_index, cpus, mib;
	bool usable;
};

struct expected {
	const char *archive, *folder;
	unsigned cpus, node_count;
	bool numa;
	struct expected_node nodes[8];
};

/* As the data's README says. */
static const struct expected trees[] = {
	{ "offline-cpu0-node0", "offline-cpu0-node0", 17, 1, false, { { 1, 8, 65536, true } } },
	{ "16amd64-8n2c-cpusets",
	  "16amd64-8n2c-cpusets",
	  10,
	  4,
	  true,
	  { { 1, 2, 8192, true },
	    { 2, 1, 8192, true },
	    { 3, 1, 8192, true },
	    { 4, 0, 8192, true } } },
	{ "16em64t-4s2c2t-offlines",
	  "16em64t-4s2c2t-offlines",
	  12,
	  1,
	  false,
	  { { 0, 12, 16379, true } } },
	{ "32amd64-4s2n4c-cgroup2",
	  "32amd64-4s2n4c-cgroup",
	  6,
	  6,
	  true,
	  { { 0, 4, 16381, true },
	    { 1, 2, 16384, true },
	    { 2, 0, 16384, true },
	    { 3, 0, 16384, true },
	    { 4, 0, 16384, true },
	    { 5, 0, 16384, true } } },
	{ "fakeheteromemtiers",
	  "fakeheteromemtiers",
	  6,
	  7,
	  true,
	  { { 0, 2, 2934, true },
	    { 8, 2, 384, false },
	    { 1, 2, 978, true },
	    { 4, 2, 512, false },
	    { 6, 2, 384, false },
	    { 2, 2, 512, false },
	    { 9, 2, 384, false } } },
	{ "32em64t-2n8c+dax+nvme+mic+dimms",
	  "32em64t-2n8c+1mic",
	  16,
	  2,
	  true,
	  { { 0, 8, 16354, true }, { 1, 8, 16384, true } } },
};

static char scratch[LEFTOVERS_ROOM];

static int sh(const char *fmt, ...) PRINTF(1, 2);
static int sh(const char *fmt, ...)
{
	char command[4096];
	va_list args;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	return system(command);
}

/* False: the archive is not there, which is said. */
static bool unpack(const char *archive)
{
	const char *data = getenv("TIERD_TEST_DATA");
	char path[2048];

	snprintf(path, sizeof(path), "%s/hwloc/%s.tar.bz2", data != NULL ? data : TEST_DATA,
		 archive);
	if (access(path, R_OK) < 0) {
		printf("skipped: %s is not there (TIERD_TEST_DATA names its folder)\n", path);
		return false;
	}
	if (sh("bzip2 --version </dev/null >/dev/null 2>&1") != 0) {
		printf("skipped: %s: bzip2 is not installed\n", archive);
		return false;
	}
	leftovers_folder(scratch);
	ck_assert_int_eq(sh("tar xjf '%s' -C %s && chmod -R u+w %s", path, scratch, scratch), 0);
	return true;
}

/* hwloc reads that machine from now on. */
static void point_at(const char *folder)
{
	char path[256], *root;

	snprintf(path, sizeof(path), "%s/%s", scratch, folder);
	root = realpath(path, NULL);
	ck_assert_ptr_nonnull(root);
	setenv("HWLOC_FSROOT", root, 1);
	setenv("HWLOC_COMPONENTS", "linux,stop", 1);
	setenv("HWLOC_THISSYSTEM", "0", 1);
	free(root);
}

static void point_back(void)
{
	unsetenv("HWLOC_FSROOT");
	unsetenv("HWLOC_COMPONENTS");
	unsetenv("HWLOC_THISSYSTEM");
}

static struct topology *open_recorded(const char *folder)
{
	struct topology *topo;
	struct err err = ERR_INIT;

	point_at(folder);
	ck_assert_msg(topo_open(&topo, &err) == 0, "%s: %s", folder, err.text);
	ck_assert(!topo->this_system);
	point_back();
	return topo;
}

static void remove_scratch(void)
{
	ck_assert_int_eq(sh("rm -rf %s", scratch), 0);
}

static const struct topo_node *node_of(const struct topology *topo, unsigned os_index)
{
	for (unsigned i = 0; i < topo->node_count; i++)
		if (topo->nodes[i].os_index == os_index)
			return &topo->nodes[i];
	ck_abort_msg("a plan names node %u, which is not there", os_index);
}

/* Shares follow each other without a gap, lie on usable nodes and begin at whole pages. */
static void check_plan(const struct topology *topo, enum topo_mode mode, uint64_t bytes)
{
	struct topo_share shares[TOPO_NODES_MAX];
	unsigned n = topo_plan(topo, mode, bytes, shares, TOPO_NODES_MAX), want = 0;
	uint64_t at = 0;
	bool near = mode == TOPO_NEAREST;

	for (unsigned i = 0; i < topo->node_count; i++)
		want += topo->nodes[i].usable && (!near || topo->nodes[i].cpus > 0);
	if (!topo->numa || mode == TOPO_OFF)
		want = 1;
	ck_assert_uint_ge(n, 1);
	ck_assert_uint_le(n, want);
	ck_assert(bytes < GIB(1) || n == want);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_uint_eq(shares[i].offset, at);
		ck_assert_uint_eq(at % 4096, 0);
		ck_assert_uint_gt(shares[i].bytes, 0);
		at += shares[i].bytes;
		if (topo->node_count == 0)
			continue;
		ck_assert(node_of(topo, shares[i].os_index)->usable);
		ck_assert(!near || !topo->numa || node_of(topo, shares[i].os_index)->cpus > 0);
	}
	ck_assert_uint_eq(at, bytes);
	/* Room for fewer shares: the last takes the rest. */
	ck_assert_uint_eq(topo_plan(topo, mode, bytes, shares, 1), 1);
	ck_assert_uint_eq(shares[0].bytes, bytes);
}

static void check_plans(const struct topology *topo)
{
	static const uint64_t sizes[] = { 4096, MIB(1), MIB(3) + 4096, GIB(1), GIB(300) + 4096 };

	for (enum topo_mode mode = TOPO_NEAREST; mode <= TOPO_OFF; mode++)
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
			check_plan(topo, mode, sizes[i]);
}

static void check_tree(const struct expected *want)
{
	struct topology *topo;

	if (!unpack(want->archive))
		return;
	topo = open_recorded(want->folder);
	ck_assert_msg(topo->cpus == want->cpus, "%s: %u CPUs", want->archive, topo->cpus);
	ck_assert_msg(topo->node_count == want->node_count, "%s: %u nodes", want->archive,
		      topo->node_count);
	ck_assert_msg(topo->numa == want->numa, "%s: numa %d", want->archive, topo->numa);
	for (unsigned i = 0; i < want->node_count; i++) {
		const struct topo_node *node = &topo->nodes[i];

		ck_assert_uint_eq(node->os_index, want->nodes[i].os_index);
		ck_assert_uint_eq(node->cpus, want->nodes[i].cpus);
		ck_assert_uint_eq(node->bytes >> 20, want->nodes[i].mib);
		ck_assert_int_eq(node->usable, want->nodes[i].usable);
	}
	check_plans(topo);
	/* Nothing may be bound to a machine that is not this one. */
	topo_bind(topo, NULL, &(struct topo_share){ 0, 0, 4096 }, 1);
	topo_run_on(topo, want->nodes[0].os_index);
	topo_close(topo);
	remove_scratch();
}

START_TEST(recorded_machines_are_read_and_planned_for)
{
	for (size_t i = 0; i < ARRAY_SIZE(trees); i++)
		check_tree(&trees[i]);
}
END_TEST

START_TEST(shares_are_as_the_memory_of_the_nodes)
{
	struct topo_share shares[TOPO_NODES_MAX];
	struct topology *topo;

	if (!unpack("fakeheteromemtiers"))
		return;
	topo = open_recorded("fakeheteromemtiers");
	/* P0 has three times the memory of P1. */
	ck_assert_uint_eq(topo_plan(topo, TOPO_INTERLEAVE, GIB(4), shares, TOPO_NODES_MAX), 2);
	ck_assert_uint_eq(shares[0].os_index, 0);
	ck_assert_uint_eq(shares[1].os_index, 1);
	ck_assert_uint_ge(shares[0].bytes, shares[1].bytes * 29 / 10);
	ck_assert_uint_le(shares[0].bytes, shares[1].bytes * 31 / 10);
	topo_close(topo);
	remove_scratch();
}
END_TEST

/* A network card and a graphics card of the one package, a co-processor of the other, a disk of
 * which only the CPUs are told; and what is not there. */
START_TEST(a_device_lies_near_the_node_of_its_bus)
{
	static const struct {
		const char *pci;
		int node;
	} devices[] = {
		{ "0000:02:00.0", 0 }, { "0000:05:00.0", 0 },
		{ "0000:83:00.0", 1 }, { "00000000:83:00.0", 1 },
		{ "0000:00:02.0", 0 }, { "0000:99:00.0", -1 },
		{ "nonsense", -1 },    { "", -1 },
	};
	static const char folder[] = "32em64t-2n8c+1mic";
	struct topology *topo;

	if (!unpack("32em64t-2n8c+dax+nvme+mic+dimms"))
		return;
	topo = open_recorded(folder);
	point_at(folder);
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		int node = topo_pci_node(topo, devices[i].pci);

		ck_assert_msg(node == devices[i].node, "%s: node %d", devices[i].pci, node);
	}
	point_back();
	topo_close(topo);
	remove_scratch();
}
END_TEST

/* Recorded without a bus. */
START_TEST(a_machine_that_tells_of_no_devices_has_none)
{
	struct topology *topo;

	if (!unpack("16amd64-8n2c-cpusets"))
		return;
	topo = open_recorded("16amd64-8n2c-cpusets");
	point_at("16amd64-8n2c-cpusets");
	ck_assert_int_eq(topo_pci_node(topo, "0000:05:00.0"), -1);
	point_back();
	topo_close(topo);
	remove_scratch();
}
END_TEST

START_TEST(the_nodes_of_gpus_come_first_and_are_not_filled)
{
	struct topo_share shares[TOPO_NODES_MAX];
	struct topology *topo;

	if (!unpack("32em64t-2n8c+dax+nvme+mic+dimms"))
		return;
	topo = open_recorded("32em64t-2n8c+1mic"); /* 16 GiB each */
	topo_prefer_node(topo, -1);
	ck_assert_uint_eq(topo_plan(topo, TOPO_NEAREST, GIB(4), shares, TOPO_NODES_MAX), 2);
	topo_prefer_node(topo, 1);
	ck_assert_uint_eq(topo_plan(topo, TOPO_NEAREST, GIB(4), shares, TOPO_NODES_MAX), 1);
	ck_assert_uint_eq(shares[0].os_index, 1);
	ck_assert_uint_eq(shares[0].bytes, GIB(4));
	ck_assert_uint_eq(topo_plan(topo, TOPO_NEAREST, GIB(20), shares, TOPO_NODES_MAX), 2);
	ck_assert_uint_eq(shares[0].os_index, 1);
	ck_assert_uint_eq(shares[0].bytes, GIB(12));
	ck_assert_uint_eq(shares[1].os_index, 0);
	ck_assert_uint_eq(shares[1].offset, GIB(12));
	ck_assert_uint_eq(shares[1].bytes, GIB(8));
	/* Who asks for all nodes gets all nodes. */
	ck_assert_uint_eq(topo_plan(topo, TOPO_INTERLEAVE, GIB(4), shares, TOPO_NODES_MAX), 2);
	ck_assert_uint_eq(shares[0].os_index, 0);
	ck_assert_uint_eq(topo_plan(topo, TOPO_NEAREST, GIB(20), shares, 1), 1);
	ck_assert_uint_eq(shares[0].bytes, GIB(20));
	/* A GPU on each: as without. */
	topo_prefer_node(topo, 0);
	ck_assert_uint_eq(topo_plan(topo, TOPO_NEAREST, GIB(20), shares, TOPO_NODES_MAX), 2);
	ck_assert_uint_eq(shares[0].os_index, 0);
	ck_assert_uint_lt(shares[0].bytes - GIB(10) + MIB(64), MIB(128));
	check_plans(topo);
	topo_close(topo);
	remove_scratch();
}
END_TEST

/* What a virtual machine may tell: a CPU in two nodes, in part or altogether. */
START_TEST(nodes_that_share_cpus_turn_numa_off)
{
	static const char *const maps[][2] = {
		{ "00000000,00000fff", "00000000,0000ff00" },
		{ "00000000,0000ffff", "00000000,0000ffff" },
	};
	static const char folder[] = "32em64t-2n8c+1mic";

	if (!unpack("32em64t-2n8c+dax+nvme+mic+dimms"))
		return;
	setenv("HWLOC_HIDE_ERRORS", "2", 1);
	for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
		struct topology *topo;

		for (unsigned node = 0; node < 2; node++)
			ck_assert_int_eq(sh("echo %s > %s/%s/sys/devices/system/node/node%u/cpumap",
					    maps[i][node], scratch, folder, node),
					 0);
		topo = open_recorded(folder);
		ck_assert(!topo->numa);
		check_plans(topo);
		topo_close(topo);
	}
	remove_scratch();
}
END_TEST

START_TEST(this_machine_is_read_and_bound)
{
	struct topo_share shares[TOPO_NODES_MAX];
	struct topology *topo;
	struct err err = ERR_INIT;
	void *base = mmap(NULL, MIB(8), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned n;

	ck_assert_int_eq(topo_open(&topo, &err), 0);
	ck_assert(topo->this_system);
	ck_assert_uint_ge(topo->cpus, 1);
	check_plans(topo);
	n = topo_plan(topo, TOPO_NEAREST, MIB(8), shares, TOPO_NODES_MAX);
	topo_bind(topo, base, shares, n);
	topo_run_on(topo, shares[0].os_index);
	memset(base, 1, MIB(8));
	munmap(base, MIB(8));
	topo_close(topo);
}
END_TEST

/* Where a thread takes memory from is as it was afterwards, whatever that was. */
START_TEST(memory_comes_from_a_node_for_a_while)
{
	struct topology topo = { .numa = true, .this_system = true };
	unsigned long nodes[TOPO_MASK_WORDS] = { 1 }, seen[TOPO_MASK_WORDS];
	struct topo_policy was;
	int mode;

	topo_take_from(NULL, 0, &was);
	topo_take_end(&was);
	topo_take_from(&topo, -1, &was);
	topo_take_end(&was);
	if (set_mempolicy(MPOL_INTERLEAVE, nodes, 8 * sizeof(nodes)) < 0) {
		printf("skipped: this kernel has no memory policies\n");
		return;
	}
	topo_take_from(&topo, 0, &was);
	ck_assert_int_eq(get_mempolicy(&mode, seen, 8 * sizeof(seen), NULL, 0), 0);
	ck_assert_int_eq(mode, MPOL_PREFERRED);
	ck_assert_uint_eq(seen[0], 1);
	topo_take_end(&was);
	ck_assert_int_eq(get_mempolicy(&mode, seen, 8 * sizeof(seen), NULL, 0), 0);
	ck_assert_int_eq(mode, MPOL_INTERLEAVE);
	ck_assert_uint_eq(seen[0], 1);
	/* There is no such node: all goes on as before. */
	topo_take_from(&topo, 1000, &was);
	ck_assert_int_eq(get_mempolicy(&mode, NULL, 0, NULL, 0), 0);
	ck_assert_int_eq(mode, MPOL_INTERLEAVE);
	topo_take_end(&was);
}
END_TEST

UNIT_MAIN("topo", recorded_machines_are_read_and_planned_for, shares_are_as_the_memory_of_the_nodes,
	  a_device_lies_near_the_node_of_its_bus, a_machine_that_tells_of_no_devices_has_none,
	  the_nodes_of_gpus_come_first_and_are_not_filled, nodes_that_share_cpus_turn_numa_off,
	  this_machine_is_read_and_bound, memory_comes_from_a_node_for_a_while)

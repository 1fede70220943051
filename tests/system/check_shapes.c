/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiers of odd shapes, and memory tiers that fail, on a real tierd under the byte oracle: an error
 * reaches who waits, and no byte is ever wrong, then or later.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/system/oracle.h"
#include "tests/system/system.h"

static struct system tierd_system;
static struct system *const s = &tierd_system;
static struct tierd *td;

static const uint64_t odd_sizes[] = {
	0,     1,      3,      511,   512,   513,    4095,      4096,     4097,     65537,
	65535, 300001, 300002, 65536, 12288, 700000, 100 * 512, 33 * 513, KIB(512), KIB(512) - 1,
};

static unsigned seconds(unsigned plain, unsigned at_length)
{
	return getenv("TIERD_TEST_LONG") ? at_length : plain;
}

static void start(const char *config)
{
	system_start(s, config);
	ck_assert_msg(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &td) == 0, "%s",
		      tierd_error(NULL));
}

static void stop(struct oracle *o)
{
	tierd_close(td);
	oracle_close(o);
	system_stop(s);
}

/* ---- shapes ------------------------------------------------------------------------------------
 */

struct shape {
	const char *config;
	uint64_t gpu_max, bytes; /* bytes of all tensors together */
	bool no_nvme;
};

static const struct shape shapes[] = {
	{ "tiers: {hbm: {backend: memory, size: 1MiB}, dram: {size: 4MiB},\n"
	  "        nvme: {paths: [{path: @NVME@, size: 16MiB}], block: 64KiB}}\n",
	  KIB(600), MIB(10), false },
	{ "tiers: {dram: {size: 4MiB},\n"
	  "        nvme: {paths: [{path: @NVME@, size: 16MiB}], block: 4KiB, queue_depth: 1}}\n",
	  0, MIB(10), false },
	{ "tiers: {hbm: {backend: memory, size: 1MiB}, dram: {size: 8MiB}}\n", KIB(600), MIB(5),
	  true },
	{ "tiers: {dram: {size: 4MiB}}\n", 0, MIB(2), true },
	{ "tiers: {hbm: {backend: memory, size: 1MiB}, dram: {size: 4MiB}, nvme: {block: 16KiB,\n"
	  "        paths: [{path: @NVME@, size: 15MiB}, {path: @NVME@, size: 1MiB}]}}\n",
	  KIB(600), MIB(10), false },
	/* Memory that comes and goes, of hbm less than its range. */
	{ "tiers: {hbm: {backend: memory, size: 12MiB, slab: 2MiB, physical: 4MiB},\n"
	  "        dram: {size: 6MiB, slab: 2MiB},\n"
	  "        nvme: {paths: [{path: @NVME@, size: 16MiB}], block: 64KiB}}\n",
	  KIB(600), MIB(10), false },
	{ "tiers: {hbm: {backend: memory, size: 6MiB, slab: 2MiB, physical: 2MiB, devices: 2},\n"
	  "        dram: {size: 14MiB, slab: 4MiB}}\n",
	  KIB(600), MIB(5), true },
	/* hbm larger than everything below it. */
	{ "tiers: {hbm: {backend: memory, size: 64MiB}, dram: {size: 4MiB},\n"
	  "        nvme: {paths: [{path: @NVME@, size: 16MiB}], block: 256KiB}}\n",
	  MIB(1), MIB(10), false },
};

static void add_odd(struct oracle *o, uint64_t bytes)
{
	for (unsigned i = 0; bytes >= KIB(700) && i < ORACLE_TENSORS_MAX; i++) {
		uint64_t next = odd_sizes[i % ARRAY_SIZE(odd_sizes)];

		oracle_add(o, td, next);
		bytes -= next;
	}
}

START_TEST(tiers_of_every_shape_keep_bytes_whole)
{
	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		const struct shape *shape = &shapes[i];
		const struct oracle_params params = { .host_max = MIB(1),
						      .gpu_max = shape->gpu_max,
						      .batch_max = KIB(600),
						      .no_nvme = shape->no_nvme };
		struct oracle *o = oracle_open(&params, MIB(64));

		printf("shape %u\n", i);
		start(shape->config);
		add_odd(o, shape->bytes);
		oracle_run(s, o, 4, seconds(1, 30));
		oracle_check_all(s, o);
		stop(o);
	}
}
END_TEST

/* ---- faults ------------------------------------------------------------------------------------
 */

#define BAD_NVME                                                                           \
	"read_error: 2%, write_error: 2%, no_space: 2%, short_read: 5%, short_write: 5%, " \
	"corrupt: 2%, delay: 200us"

static const char *const memory_faults[] = {
	"read_error: 5%, write_error: 5%",
	"short_read: 5%, short_write: 5%",
	"late: 5%, late_by: 20ms, delay: 1ms",
};

/* A map that says nothing is refused. */
static const char *fault_key(char *ret, size_t room, const char *faults)
{
	*ret = '\0';
	if (*faults != '\0')
		snprintf(ret, room, ", fault: {%s}", faults);
	return ret;
}

static void fault_run(const char *hbm, const char *dram, const char *nvme)
{
	const struct oracle_params params = {
		.host_max = MIB(1), .gpu_max = KIB(600), .batch_max = KIB(600), .io_fails = true
	};
	struct oracle *o = oracle_open(&params, MIB(64));
	char config[1024], key[3][256];

	snprintf(config, sizeof(config),
		 "tiers:\n"
		 "  hbm: {backend: memory, size: 1MiB%s}\n"
		 "  dram: {size: 4MiB%s}\n"
		 "  nvme: {block: 64KiB%s, paths: [{path: @NVME@, size: 16MiB}]}\n",
		 fault_key(key[0], sizeof(key[0]), hbm), fault_key(key[1], sizeof(key[1]), dram),
		 fault_key(key[2], sizeof(key[2]), nvme));
	printf("hbm {%s} dram {%s} nvme {%s}\n", hbm, dram, nvme);
	start(config);
	add_odd(o, MIB(10));
	oracle_run(s, o, 4, seconds(1, 30));
	oracle_check_all(s, o);
	stop(o);
}

/* check_faults has nvme's faults one by one; here most of its requests fail, or all for a time. */
START_TEST(an_nvme_that_hardly_works_loses_nothing)
{
	fault_run("", "", "read_error: 60%, write_error: 60%");
	fault_run("", "", "after: 200, count: 400, write_error: 100%, read_error: 100%");
}
END_TEST

START_TEST(failing_memory_loses_nothing)
{
	for (unsigned i = 0; i < ARRAY_SIZE(memory_faults); i++) {
		fault_run(memory_faults[i], "", "");
		fault_run(memory_faults[i], memory_faults[i], BAD_NVME);
	}
}
END_TEST

UNIT_MAIN("shapes", tiers_of_every_shape_keep_bytes_whole, an_nvme_that_hardly_works_loses_nothing,
	  failing_memory_loses_nothing)

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "config.h"
#include "daemon/domain.h"
#include "daemon/quotas.h"
#include "daemon/settings.h"
#include "daemon/share.h"
#include "libclient/protocol/page.h"
#include "libclient/tierd.h"
#include "tiers/memory.h"

static struct settings s;
static struct err err;

static int load(const char *text)
{
	err = (struct err)ERR_INIT;
	return settings_load_text("t.yaml", text, strlen(text), &s, &err);
}

#define DRAM "tiers: {dram: {size: 64MiB}}\n"
#define NVME "tiers: {dram: {size: 64MiB}, nvme: {paths: [{path: /a, size: 1GiB}], block: 1MiB}}\n"

#define CUDA "tiers: {dram: {size: 64MiB}, hbm: {backend: cuda, size: 128MiB, "

/* 64 MiB of hbm and dram, 100 MiB of nvme on two paths, in one map that goes on. */
#define SHARED                                                                                    \
	"tiers: {hbm: {backend: memory, size: 64MiB}, dram: {size: 64MiB}, nvme: {block: 64KiB, " \
	"paths: [{path: /a, size: 75MiB}, {path: /b, size: 25MiB}]}}\n"
#define RED        "  - {name: red, users: [7, joe], hbm: 25%, dram: 16MiB, nvme: 40MiB}\n"
#define VAST(name) "  - {name: " #name ", users: [" #name "], dram: 4194304TiB}\n"
#define TWO_GPUS   "tiers: {dram: {size: 64MiB}, hbm: {backend: memory, size: 1MiB, devices: 2}}\n"

START_TEST(the_smallest_configuration_has_all_defaults)
{
	ck_assert_msg(load(DRAM) == 0, "%s", err.text);
	ck_assert_str_eq(s.socket, "/run/tierd/tierd.sock");
	ck_assert_uint_eq(s.tensors, 4u << 20);
	ck_assert_uint_eq(s.linger_ns, 60 * NS_PER_S);
	ck_assert_uint_eq(s.excess.patience_ns, 30 * NS_PER_S);
	ck_assert_int_eq(s.excess.then, EXCESS_CUT_OFF);
	ck_assert_int_eq(s.tiers.hbm.choice, -1);
	ck_assert_ptr_null(settings_backend(TIER_KIND_HBM, &s.tiers.hbm));
	ck_assert_ptr_nonnull(settings_backend(TIER_KIND_DRAM, &s.tiers.dram));
	ck_assert_ptr_null(settings_nvme_options(&s));
	ck_assert_uint_eq(s.watermarks.hbm.high_permille, 950);
	ck_assert_uint_eq(s.watermarks.dram.low_permille, 880);
	for (unsigned i = 0; i < ENGINE_CLASSES; i++) {
		ck_assert_str_eq(policy_all[s.class_[i].policy.choice]->name, "lru");
		ck_assert_uint_eq(s.class_[i].overcommit_permille, 1000);
	}
	settings_free(&s);
}
END_TEST

START_TEST(a_full_configuration_arrives_whole)
{
	const char *text =
		"socket: /tmp/x/tierd.sock\n"
		"tensors: 1Mi\n"
		"linger: 5s\n"
		"staging: 32MiB\n"
		"tiers:\n"
		"  hbm:  {backend: memory, size: 16MiB}\n"
		"  dram: {size: 64MiB, huge_pages: try, numa: nearest}\n"
		"  nvme:\n"
		"    paths: [{path: /mnt/a, size: 800GiB}, {path: /dev/nvme1n1, size: 400GiB}]\n"
		"    queue_depth: 32\n"
		"    block: 1MiB\n"
		"    direct: try\n"
		"watermarks: {hbm: {high: 95%, low: 90%}, dram: {high: 92%, low: 80.5%}}\n"
		"classes:\n"
		"  parameter:  {policy: next_use}\n"
		"  optimizer:  {policy: pin_fraction, fraction: 60%, overcommit: 150%}\n"
		"  activation: {policy: lru}\n"
		"  gradient:   {policy: hotness, half_life: 30s}\n";
	const struct nvme_path *paths;

	ck_assert_msg(load(text) == 0, "%s", err.text);
	paths = s.tiers.nvme.paths.items;
	ck_assert_uint_eq(s.tiers.nvme.paths.count, 2);
	ck_assert_str_eq(paths[1].path, "/dev/nvme1n1");
	ck_assert_uint_eq(paths[0].size.bytes, GIB(800));
	ck_assert_uint_eq(settings_nvme_options(&s)->block_bytes, MIB(1));
	ck_assert_str_eq(settings_backend(TIER_KIND_HBM, &s.tiers.hbm)->name, "memory");
	ck_assert_str_eq(policy_all[s.class_[0].policy.choice]->name, "next_use");
	ck_assert_str_eq(policy_all[s.class_[2].policy.choice]->name, "pin_fraction");
	ck_assert_uint_eq(s.class_[2].overcommit_permille, 1500);
	ck_assert_uint_eq(s.watermarks.dram.low_permille, 805);
	settings_free(&s);
}
END_TEST

/* What design section 8 wants refused, and what the message must hold. */
static const struct {
	const char *text, *says;
} wrong[] = {
	{ "", "tiers" },
	{ "tiers: {}\n", "dram" },
	{ "tiers: {nvme: {paths: [{path: /a, size: 1GiB}]}}\n", "dram" },
	{ DRAM "tensor: 1Mi\n", "tensors" },                   /* unknown, the nearest */
	{ DRAM "tensors: 1Mi\ntensors: 2Mi\n", "t.yaml:3:1" }, /* twice */
	{ DRAM "tensors: [1]\n", "tensors" },                  /* wrong type */
	{ DRAM "tensors: 0\n", "tensors" },                    /* out of range */
	{ DRAM "tensors: 2Gi\n", "tensors" },
	{ "tiers: {dram: {size: 64}}\n", "64" },   /* no unit */
	{ "tiers: {dram: {size: 64G}}\n", "GiB" }, /* ambiguous: the two spellings */
	{ "tiers: {dram: {size: 64MiB, blok: 1}}\n", "tiers.dram.blok" },
	{ "tiers: {dram: {size: 64MiB}, hbm: {size: 1MiB}}\n", "backend" },
	{ "tiers: {dram: {size: 64MiB}, hbm: {backend: rocm, size: 1MiB}}\n", "memory" },
	{ "tiers: {dram: {size: 64MiB}, nvme: {}}\n", "paths" },
	{ "tiers: {dram: {size: 64MiB}, nvme: {paths: []}}\n", "paths" },
	{ "tiers: {dram: {size: 64MiB}, nvme: {paths: [{path: a, size: 1GiB}]}}\n", "path" },
	{ DRAM "socket: tierd.sock\n", "socket" }, /* a relative path */
	{ DRAM "watermarks: {dram: {high: 50%, low: 60%}}\n", "t.yaml:2:32: watermarks.dram.low" },
	{ DRAM "watermarks: {hbm: {high: 80%, low: 81%}}\n", "t.yaml:2:31: watermarks.hbm.low" },
	{ DRAM "watermarks: {nvme: {high: 80%}}\n", "watermarks.nvme" },
	{ DRAM "watermarks: {dram: {high: 101%}}\n", "high" },
	{ DRAM "classes: {parameter: {policy: lfu}}\n", "lru" },
	{ DRAM "classes: {weights: {policy: lru}}\n", "classes.weights" },
	{ DRAM "classes: {parameter: {policy: lru, fraction: 60%}}\n", "fraction" },
	{ DRAM "domains: [{name: a}]\n", "t.yaml:2:11: domains[0]: the key 'users' is missing" },
	{ DRAM "domains: [{name: a, users: [], dram: 1MiB}]\n", "domains[0].users" },
	{ DRAM "strangers: refuse\n", "t.yaml:2:1: strangers: without `domains`" },
	{ DRAM "domains: [{name: a, users: [1], dram: 1MiB, hbm: 2MiB}]\n",
	  "t.yaml:2:45: domains[0].hbm: there is no tier hbm" },
	{ DRAM "domains: [{name: a, users: [1], dram: 1MiB, nvme: 2MiB}]\n",
	  "domains[0].nvme: there is no tier nvme" },
	{ DRAM "domains: [{name: default, users: [1], dram: 1MiB}]\n",
	  "domains[0].name: 'default'" },
	{ SHARED "domains:\n" RED RED, "t.yaml:4:6: domains[1].name: 'red' stands twice" },
	{ SHARED "domains:\n" RED "  - {name: b, users: [9, joe], dram: 1MiB}\n",
	  "t.yaml:4:15: domains[1].users: 'joe' is in domain 'red' already" },
	{ SHARED "domains:\n" RED "  - {name: b, users: [9], dram: 49MiB}\n",
	  "t.yaml:2:1: domains: their shares of dram are 68157440 bytes together, tiers.dram has "
	  "67108864" },
	{ SHARED "domains:\n" RED "  - {name: b, users: [9], dram: 48MiB}\n",
	  "domains: they leave 0 of the 67108864 bytes of tiers.dram" },
	{ SHARED "domains:\n" RED "  - {name: b, users: [9], dram: 4MiB, hbm: 49MiB}\n",
	  "their shares of hbm are 68157440 bytes" },
	{ SHARED "domains:\n" RED "  - {name: b, users: [9], dram: 4MiB, nvme: 61MiB}\n",
	  "their shares of nvme are 105906176 bytes" },
	{ SHARED "domains:\n" RED "  - {name: b, users: [9], dram: 40MiB, nvme: 0.1%}\n",
	  "t.yaml:4:40: domains[1].nvme: 24576 bytes of /b" },
	{ SHARED "domains:\n  - {name: b, users: [9], dram: 1%}\n",
	  "domains[0].dram: 667648 bytes" },
	{ SHARED "domains:\n  - {name: b, users: [9], dram: 4MiB, hbm: 1%}\n",
	  "domains[0].hbm: 667648 bytes" },
	/* Together 2^64. */
	{ SHARED "domains:\n" VAST(a) VAST(b) VAST(c) VAST(d), "their shares of dram are" },
	{ SHARED "staging: 4MiB\ndomains:\n" RED
		 "  - {name: b, users: [9], dram: 1MiB, nvme: 20MiB}\n",
	  "t.yaml:5:5: domains[1]: staging: 65536 bytes are too small" },
	{ "tiers: {dram: {size: 50%}}\ndomains: [{name: a, users: [1], dram: 1MiB}]\n",
	  "t.yaml:1:16: tiers.dram.size: beside `domains`" },
#ifdef HAVE_MICROHTTPD
	{ DRAM "metrics: {listen: localhost:9477}\n",
	  "t.yaml:2:11: metrics.listen: 'localhost:9477' is no ADDRESS:PORT" },
	{ DRAM "metrics: {listen: 127.0.0.1}\n", "metrics.listen: '127.0.0.1' is no" },
	{ DRAM "metrics: {listen: \"127.0.0.1:65536\"}\n", "is no ADDRESS:PORT" },
	{ DRAM "metrics: {listen: \"::1:9477\"}\n", "is no ADDRESS:PORT" },
	{ DRAM "metrics: {listen: 0.0.0.0:9477}\n",
	  "metrics.listen: 0.0.0.0:9477 is reached by other machines" },
	{ DRAM "metrics: {listen: \"[fe80::1]:9477\"}\n", "is reached by other machines" },
#else
	{ DRAM "metrics: {listen: 127.0.0.1:9477}\n", "built without libmicrohttpd" },
#endif
	{ DRAM "namespaces: [{dram: {limit: 1MiB}}]\n", "the key 'name' is missing" },
	{ DRAM "namespaces: [{name: 'a*b'}]\n",
	  "t.yaml:2:15: namespaces[0].name: a star stands at the end alone" },
	{ DRAM "namespaces: [{name: a, dram: {limit: 0B}}]\n", "namespaces[0].dram.limit" },
	{ DRAM "namespaces: [{name: a, dram: {limit: 0%}}]\n", "namespaces[0].dram.limit" },
	{ DRAM "excess: {patience: 0s}\n", "excess.patience" },
	{ DRAM "excess: {then: kill}\n", "excess.then" },
	{ DRAM "fault: {read_error: 1%}\n",
	  "fault.read_error: unknown key; the keys here are seed, no_memory, after, count" },
	{ DRAM "fault: {no_memry: 1%}\n",
	  "fault.no_memry: unknown key; the nearest is 'no_memory'" },
	{ DRAM "namespaces: [{name: a}, {name: a}]\n", "namespaces[1].name: 'a' stands twice" },
	{ DRAM "namespaces: [{name: a, hbm: {limit: 1MiB}}]\n",
	  "namespaces[0].hbm: there is no tier hbm" },
	{ DRAM "namespaces: [{name: a, dram: {guarantee: 2MiB, limit: 1MiB}}]\n",
	  "namespaces[0].dram.guarantee: above its limit" },
	{ DRAM "namespaces: [{name: a, dram: {guarantee: 60%}}, {name: b, dram: {guarantee: "
	       "40.5%}}]\n",
	  "namespaces: guarantees of dram are 100.5% of it together" },
	{ "tiers: {dram: {size: 64MiB, zone: 16MiB}}\n"
	  "namespaces: [{name: a, dram: {limit: 1MiB}}]\n",
	  "namespaces[0].dram: beside tiers.dram.zone" },
	{ NVME "staging: 2MiB\n", "tiers.nvme.block" }, /* block against staging */
	{ NVME "staging: 64MiB\n", "t.yaml:1:16: tiers.dram.size" },
	{ "tiers: {dram: {size: 64MiB}, hbm: {backend: memory, size: 10%}}\n", "tiers.hbm.size" },
	{ "tiers: {dram: {size: 64MiB}, nvme: {paths: [{path: /a, size: 1GiB}], block: 5000B}}\n",
	  "tiers.nvme.block: 5000 bytes" },
	{ TWO_GPUS "staging: 3MiB\n", "staging: 3145728 bytes are too small for what 2 devices" },
	{ "tiers: {dram: {size: 3MiB}, hbm: {backend: memory, size: 1MiB, devices: 2}}\n",
	  "tiers.dram.size" },
	{ "tiers: {dram: {size: 64MiB}, hbm: {backend: memory, size: 1MiB, devices: 9}}\n",
	  "tiers.hbm.devices" },
	{ "tiers: {dram: {size: 64MiB}, hbm: {backend: memory, size: 1MiB, devices: 0}}\n",
	  "tiers.hbm.devices" },
	{ "tiers: {dram: {size: 64MiB, zone: 64MiB}}\n", "t.yaml:1:29: tiers.dram.zone" },
	{ "tiers: {dram: {size: 64MiB, zone: 8EiB}}\n", "tiers.dram.zone" },
	{ "tiers: {dram: {size: 64MiB, zone: 10%}}\n", "tiers.dram.zone" },
	{ "tiers: {dram: {size: 64MiB, zone: 56MiB}, nvme: {paths: [{path: /a, size: 1GiB}]}}\n",
	  "leave nothing of the 58720256 bytes" }, /* beside staging */
	{ "tiers: {hbm: {backend: memory, size: 1MiB, devices: 8}, dram: {size: 64MiB}, nvme: "
	  "{paths: "
	  "[{path: /a, size: 1GiB}, {path: /b, size: 1GiB}, {path: /c, size: 1GiB}, {path: /d, "
	  "size: "
	  "1GiB}, {path: /e, size: 1GiB}, {path: /f, size: 1GiB}, {path: /g, size: 1GiB}, {path: "
	  "/h, "
	  "size: 1GiB}]}}\n",
	  "tiers: 8 devices of hbm, one of dram and 8 paths of nvme are 17, 16 are possible" },
	{ "tiers: {dram: {size: 64MiB}, hbm: {backend: memory, size: 4MiB, slab: 5MiB}}\n",
	  "t.yaml:1:65: tiers.hbm.slab: 5242880 bytes are more than `size`" },
#ifdef HAVE_CUDA
	{ CUDA "slab: 96MiB}}\n", "t.yaml:1:65: tiers.hbm.slab: 100663296 bytes are no power" },
	{ CUDA "slab: 256MiB}}\n", "tiers.hbm.slab: 268435456 bytes are more than `size`" },
	{ CUDA "devices: [0, all]}}\n", "tiers.hbm.devices: `all` stands alone" },
	{ CUDA "devices: [GPU-0, gpu-0]}}\n", "tiers.hbm.devices: 'gpu-0' stands twice" },
	{ CUDA "devices: [1, cuda:0]}}\n", "tiers.hbm.devices: 'cuda:0' is no ordinal and no" },
	{ CUDA "devices: -1}}\n", "tiers.hbm.devices: '-1' is no ordinal" },
#else
	{ CUDA "slab: 64MiB}}\n", "t.yaml:1:45: tiers.hbm.backend: cuda is not in this build" },
#endif
	{ DRAM "linger: 60\n", "linger" },
	{ DRAM "max_clients: 0\n", "max_clients" },
	{ DRAM "spin: 2ms\n", "spin" },
	{ DRAM "spin: 100\n", "t.yaml:2:7: spin: '100' has no unit: write 100us or 100ns" },
	{ DRAM "linger: 100\n", "linger: '100' has no unit: write 100s or 100ms" },
	{ "tiers: {nvme: {block: 4096, paths: []}, dram: {size: 64MiB}}\n",
	  "tiers.nvme.block: '4096' has no unit: write 4096KiB or 4096B" },
#ifdef HAVE_CUDA
	{ CUDA "device: 0}}\n", "; 'device' is a key of tiers.hbm.devices[0] with backend cuda" },
	{ CUDA "devices: [{devise: 0}]}}\n", "tiers.hbm.devices[0].devise: unknown key" },
	{ CUDA "spin: 100}}\n", "tiers.hbm.spin: '100' has no unit: write 100ms" },
#endif
};

START_TEST(wrong_configurations_are_refused_by_name)
{
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		ck_assert_msg(load(wrong[i].text) == -EINVAL, "taken:\n%s", wrong[i].text);
		ck_assert_msg(strncmp(err.text, "t.yaml", 6) == 0, "no file: %s", err.text);
		ck_assert_msg(strstr(err.text, wrong[i].says) != NULL, "%s\n%s", wrong[i].text,
			      err.text);
	}
}
END_TEST

START_TEST(metrics_are_for_this_machine_unless_it_is_said)
{
#ifdef HAVE_MICROHTTPD
	ck_assert_msg(load(DRAM "metrics: {listen: 127.0.0.1:9477}\n") == 0, "%s", err.text);
	ck_assert_str_eq(s.metrics.listen, "127.0.0.1:9477");
	ck_assert(!s.core_dumps);
	settings_free(&s);
	ck_assert_msg(load(DRAM "metrics: {listen: \"[::1]:9477\"}\ncore_dumps: true\n") == 0, "%s",
		      err.text);
	ck_assert(s.core_dumps);
	settings_free(&s);
	ck_assert_msg(load(DRAM "metrics: {listen: 10.0.0.1:1, beyond_loopback: true}\n") == 0,
		      "%s", err.text);
	settings_free(&s);
#endif
}
END_TEST

START_TEST(a_socket_path_that_is_too_long_is_refused_at_once)
{
	char text[512];

	snprintf(text, sizeof(text), DRAM "socket: /%0200d\n", 1);
	ck_assert_int_eq(load(text), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "socket"));
}
END_TEST

START_TEST(staging_is_divided_without_rest)
{
	struct settings_staging parts;

	ck_assert_int_eq(load(NVME "staging: 16MiB\n"), 0);
	settings_staging(&s, 1, &parts);
	ck_assert_uint_eq(parts.total_bytes, MIB(16));
	ck_assert_uint_eq(parts.engine_bytes, MIB(8));
	ck_assert_uint_eq(parts.share_bytes, MIB(8));
	settings_free(&s);
	ck_assert_int_eq(load(NVME), 0);
	settings_staging(&s, 0, &parts);
	ck_assert_uint_eq(parts.total_bytes, MIB(8)); /* an eighth of dram */
	ck_assert_uint_eq(parts.share_bytes, MIB(4));
	/* What goes on to a GPU is not to keep the disk waiting. */
	settings_staging(&s, 1, &parts);
	ck_assert_uint_eq(parts.total_bytes, MIB(8));
	ck_assert_uint_eq(parts.share_bytes, MIB(2));
	ck_assert_uint_eq(parts.engine_bytes, MIB(8) - parts.share_bytes);
	settings_free(&s);
	ck_assert_int_eq(load(DRAM "staging: 16MiB\n"), 0);
	settings_staging(&s, 1, &parts);
	ck_assert_uint_eq(parts.total_bytes, 0);
	settings_free(&s);
}
END_TEST

START_TEST(gpus_hand_to_each_other_through_staging)
{
	struct settings_staging parts;

	ck_assert_msg(load(TWO_GPUS) == 0, "%s", err.text);
	settings_staging(&s, 2, &parts);
	ck_assert_uint_eq(parts.total_bytes, MIB(8)); /* an eighth of dram */
	ck_assert_uint_eq(parts.engine_bytes, MIB(8));
	ck_assert_uint_eq(parts.share_bytes, 0);
	/* Another backend may find one GPU alone, and then it goes through dram. */
	settings_staging(&s, 1, &parts);
	ck_assert_uint_eq(parts.total_bytes, 0);
	settings_free(&s);
	ck_assert_int_eq(load("tiers: {dram: {size: 64GiB}, "
			      "hbm: {backend: memory, size: 1MiB, devices: 3}}\n"),
			 0);
	settings_staging(&s, 3, &parts);
	ck_assert_uint_eq(parts.engine_bytes, 3 * MIB(64));
	ck_assert_int_eq(settings_check_staging(&s, 8, &err), 0);
	settings_free(&s);
	/* What only the driver tells, after the file was read. */
	ck_assert_int_eq(load(TWO_GPUS "staging: 8MiB\n"), 0);
	ck_assert_int_eq(settings_check_staging(&s, 4, &err), 0);
	ck_assert_int_eq(settings_check_staging(&s, 5, &err), -EINVAL);
	settings_free(&s);
}
END_TEST

START_TEST(what_is_printed_loads_to_the_same)
{
	char *text, *again;
	size_t bytes;
	FILE *f;

	ck_assert_int_eq(load(NVME "linger: 1500ms\nclasses: {other: {policy: fifo}}\n"), 0);
	f = open_memstream(&text, &bytes);
	config_print(settings_rows, &s, f);
	fclose(f);
	settings_free(&s);
	ck_assert_msg(load(text) == 0, "%s\n%s", err.text, text);
	f = open_memstream(&again, &bytes);
	config_print(settings_rows, &s, f);
	fclose(f);
	ck_assert_str_eq(text, again);
	settings_free(&s);
	free(text);
	free(again);
}
END_TEST

START_TEST(quotas_are_bytes_of_the_tiers_there_are)
{
	const uint64_t bytes[TIER_KINDS] = { MIB(64), MIB(1000), 0 };
	const uint64_t small[TIER_KINDS] = { MIB(64), MIB(4), 0 };
	struct engine_quota *q = NULL;
	unsigned n = 0;

	ck_assert_msg(load(SHARED "namespaces: [{name: 'job-*', hbm: {guarantee: 25%, "
				  "limit: 100%}, dram: {guarantee: 5MiB, limit: 12.5%}, "
				  "nvme: {guarantee: 1%}}, "
				  "{name: x}]\n") == 0,
		      "%s", err.text);
	ck_assert_int_eq(quotas_make(&s, bytes, &q, &n, &err), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert(q[0].prefix && !q[1].prefix);
	ck_assert_str_eq(q[0].name, "job-");
	ck_assert_uint_eq(q[0].tier[TIER_KIND_HBM].guarantee_bytes, MIB(16));
	ck_assert_uint_eq(q[0].tier[TIER_KIND_HBM].limit_bytes, MIB(64));
	ck_assert_uint_eq(q[0].tier[TIER_KIND_DRAM].guarantee_bytes, MIB(5));
	ck_assert_uint_eq(q[0].tier[TIER_KIND_DRAM].limit_bytes, MIB(125));
	ck_assert_uint_eq(q[0].tier[TIER_KIND_NVME].guarantee_bytes, 0);
	ck_assert_uint_eq(q[1].tier[TIER_KIND_DRAM].limit_bytes, UINT64_MAX);
	free(q);
	ck_assert_int_eq(quotas_make(&s, small, &q, &n, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "namespaces[0].dram.guarantee: 5242880 bytes are "
					       "above its limit, 524288"));
	settings_free(&s);
}
END_TEST

static uint64_t hbm_of(const struct share *share)
{
	return ((const struct memory_config *)share->settings.tiers.hbm.config)->size.bytes;
}

/* Every byte of a tier is in one share, and of a path each share begins where another ends. */
START_TEST(shares_are_cut_out_of_the_tiers_and_the_rest_is_the_default)
{
	struct share red, rest;

	ck_assert_msg(load(SHARED "domains:\n" RED) == 0, "%s", err.text);
	ck_assert_uint_eq(share_count(&s), 2);
	ck_assert(!share_is_default(&s, 0) && share_is_default(&s, 1));
	ck_assert_int_eq(share_make(&s, 0, &red, &err), 0);
	ck_assert_int_eq(share_make(&s, 1, &rest, &err), 0);
	ck_assert_str_eq(red.name, "red");
	ck_assert_str_eq(rest.name, "default");
	ck_assert_uint_eq(hbm_of(&red), MIB(16));
	ck_assert_uint_eq(hbm_of(&rest), MIB(48));
	ck_assert_uint_eq(red.dram.size.bytes, MIB(16));
	ck_assert_uint_eq(rest.dram.size.bytes, MIB(48));
	/* Before a page is touched, what the others will take must be there as well. */
	ck_assert_uint_eq(red.dram.beside_bytes, MIB(48));
	ck_assert_uint_eq(rest.dram.beside_bytes, 0);
	ck_assert_uint_eq(red.settings.tiers.nvme.paths.count, 2);
	ck_assert_str_eq(red.paths[1].path, "/b");
	ck_assert_uint_eq(red.paths[0].size.bytes, MIB(30));
	ck_assert_uint_eq(red.paths[1].size.bytes, MIB(10));
	ck_assert_uint_eq(red.paths[0].start_bytes, 0);
	ck_assert_uint_eq(rest.paths[0].size.bytes, MIB(45));
	ck_assert_uint_eq(rest.paths[0].start_bytes, MIB(30));
	ck_assert_uint_eq(rest.paths[1].size.bytes, MIB(15));
	ck_assert_uint_eq(rest.paths[1].start_bytes, MIB(10));
	share_free(&red);
	share_free(&rest);
	settings_free(&s);
}
END_TEST

START_TEST(a_share_may_leave_tiers_out_and_strangers_may_be_refused)
{
	struct share red, b;

	ck_assert_msg(load(SHARED "strangers: refuse\nstaging: 8MiB\ndomains:\n" RED
				  "  - {name: b, users: [9], dram: 48MiB}\n") == 0,
		      "%s", err.text);
	ck_assert_uint_eq(share_count(&s), 2);
	ck_assert_int_eq(share_make(&s, 0, &red, &err), 0);
	ck_assert_int_eq(share_make(&s, 1, &b, &err), 0);
	ck_assert_int_eq(b.settings.tiers.hbm.choice, -1);
	ck_assert_ptr_null(settings_nvme_options(&b.settings));
	ck_assert_uint_eq(red.settings.staging_bytes, MIB(2));
	share_free(&red);
	share_free(&b);
	settings_free(&s);
}
END_TEST

/* A domain without a zone would refuse what the configuration lets its users make. */
START_TEST(the_share_of_a_zone_is_a_page_at_least)
{
	struct share red, rest;

	ck_assert_msg(load("tiers: {dram: {size: 64MiB, zone: 8KiB}}\ndomains:\n"
			   "  - {name: red, users: [7], dram: 16MiB}\n") == 0,
		      "%s", err.text);
	ck_assert_int_eq(share_make(&s, 0, &red, &err), 0);
	ck_assert_int_eq(share_make(&s, 1, &rest, &err), 0);
	ck_assert_uint_eq(red.dram.zone_bytes, KIB(4));
	ck_assert_uint_eq(rest.dram.zone_bytes, KIB(4));
	share_free(&red);
	share_free(&rest);
	settings_free(&s);
}
END_TEST

START_TEST(without_domains_one_has_everything)
{
	struct share all;

	ck_assert_msg(load(SHARED) == 0, "%s", err.text);
	ck_assert_uint_eq(share_count(&s), 1);
	ck_assert_int_eq(share_make(&s, 0, &all, &err), 0);
	ck_assert_ptr_eq(all.settings.tiers.hbm.config, s.tiers.hbm.config);
	ck_assert_ptr_eq(all.settings.tiers.dram.config, s.tiers.dram.config);
	ck_assert_ptr_eq(all.settings.tiers.nvme.paths.items, s.tiers.nvme.paths.items);
	share_free(&all);
	settings_free(&s);
}
END_TEST

/* Stands before the one of the C library. */
static int answer_errno;
struct passwd *getpwnam(const char *name)
{
	errno = answer_errno;
	return NULL;
}

/* Only the first may be another time, and whoever starts tierd goes by the code. */
START_TEST(users_that_could_not_be_asked_for_are_not_said_to_be_none)
{
	static const struct {
		int code, ret;
		const char *says;
	} answers[] = {
		{ EIO, -EAGAIN, "domains[0].users: user 'joe' cannot be looked up: Input/output" },
		{ ENFILE, -EAGAIN, "domains[0].users: user 'joe' cannot be looked up: Too many" },
		{ 0, -EINVAL, "domains[0].users: there is no user 'joe'" },
		{ ENOENT, -EINVAL, "domains[0].users: there is no user 'joe'" },
	};

	struct domain *all[DOMAINS_MAX];
	unsigned n;

	ck_assert_msg(load(SHARED "domains:\n" RED) == 0, "%s", err.text);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		answer_errno = answers[i].code;
		ck_assert_int_eq(domains_create(&s, all, &n, &err), answers[i].ret);
		ck_assert_uint_eq(n, 0);
		ck_assert_msg(strncmp(err.text, answers[i].says, strlen(answers[i].says)) == 0,
			      "%s", err.text);
	}
	settings_free(&s);
}
END_TEST

/* Clients say a class by its number, people by its name: in the configuration and to tierctl. */
START_TEST(classes_have_the_names_of_their_numbers)
{
	static const struct {
		enum tierd_class class_;
		const char *name;
	} want[STATS_CLASSES] = { { TIERD_PARAMETER, "parameter" },
				  { TIERD_GRADIENT, "gradient" },
				  { TIERD_OPTIMIZER, "optimizer" },
				  { TIERD_ACTIVATION, "activation" },
				  { TIERD_OTHER, "other" } };
	char text[256];

	for (unsigned i = 0; i < STATS_CLASSES; i++) {
		enum tierd_class class_ = want[i].class_;

		ck_assert_str_eq(page_classes[class_], want[i].name);
		snprintf(text, sizeof(text), DRAM "classes: {%s: {overcommit: 300%%}}\n",
			 want[i].name);
		ck_assert_msg(load(text) == 0, "%s", err.text);
		for (unsigned k = 0; k < STATS_CLASSES; k++)
			ck_assert_uint_eq(s.class_[k].overcommit_permille,
					  k == class_ ? 3000 : 1000);
		settings_free(&s);
	}
}
END_TEST

UNIT_MAIN("daemon_settings", the_smallest_configuration_has_all_defaults,
	  a_full_configuration_arrives_whole, wrong_configurations_are_refused_by_name,
	  a_socket_path_that_is_too_long_is_refused_at_once, staging_is_divided_without_rest,
	  gpus_hand_to_each_other_through_staging,
	  shares_are_cut_out_of_the_tiers_and_the_rest_is_the_default,
	  a_share_may_leave_tiers_out_and_strangers_may_be_refused,
	  the_share_of_a_zone_is_a_page_at_least,
	  users_that_could_not_be_asked_for_are_not_said_to_be_none,
	  without_domains_one_has_everything, classes_have_the_names_of_their_numbers,
	  metrics_are_for_this_machine_unless_it_is_said, quotas_are_bytes_of_the_tiers_there_are,
	  what_is_printed_loads_to_the_same)

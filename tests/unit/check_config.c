/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "config/config.h"
#include "tests/unit/config_sample.h"

static const char full_text[] =
	"socket: /tmp/a b.sock\n"
	"tensors: 1Mi\n"
	"linger: 1.5s\n"
	"tiers:\n"
	"  hbm: {backend: memory, size: 16MiB, rate: 2GB/s, fault: {seed: 7, error: 0.5%}}\n"
	"  dram: {size: 64GiB, numa: \"off\", touch: false}\n"
	"  nvme:\n"
	"    paths:\n"
	"      - {path: /mnt/nvme0, size: 800GB}\n"
	"      - /dev/nvme1n1\n"
	"    queue_depth: '64'\n"
	"class: {policy: hotness, half_life: 2min}\n"
	"users: [train-a, \"b \\\"c\\\\\", {name: 12}]\n"
	"high: 92.5%\n"
	"listen: 127.0.0.1:9477\n";

static void check_full(const struct sample *s)
{
	const struct sample_memory *memory = s->tiers.hbm.backend.config;
	const struct sample_path *paths = s->tiers.nvme.paths.items;
	const struct sample_user *users = s->users.items;

	ck_assert_str_eq(s->socket, "/tmp/a b.sock");
	ck_assert_uint_eq(s->tensors, 1 << 20);
	ck_assert_uint_eq(s->linger_ns, 1500000000);
	ck_assert_int_eq(s->tiers.hbm.backend.choice, 1);
	ck_assert_uint_eq(memory->size_bytes, MIB(16));
	ck_assert_uint_eq(memory->rate, 2000000000);
	ck_assert(s->tiers.hbm.fault.presence.present);
	ck_assert_uint_eq(s->tiers.hbm.fault.seed, 7);
	ck_assert_uint_eq(s->tiers.hbm.fault.error, 5);
	ck_assert_uint_eq(s->tiers.dram.size.bytes, GIB(64));
	ck_assert_int_eq(s->tiers.dram.numa, SAMPLE_OFF);
	ck_assert(!s->tiers.dram.touch);
	ck_assert_uint_eq(s->tiers.nvme.paths.count, 2);
	ck_assert_str_eq(paths[0].path, "/mnt/nvme0");
	ck_assert_uint_eq(paths[0].size.bytes, 800000000000);
	ck_assert_str_eq(paths[1].path, "/dev/nvme1n1");
	ck_assert_uint_eq(paths[1].size.permille, 1000);
	ck_assert_uint_eq(s->tiers.nvme.queue_depth, 64);
	ck_assert_int_eq(s->class_.choice, 1);
	ck_assert_uint_eq(((struct sample_lru *)s->class_.config)->half_life_ns, 120 * NS_PER_S);
	ck_assert_uint_eq(s->users.count, 3);
	ck_assert_str_eq(users[0].name, "train-a");
	ck_assert_str_eq(users[1].name, "b \"c\\");
	ck_assert_str_eq(users[2].name, "12");
	ck_assert_uint_eq(s->high_permille, 925);
	ck_assert_str_eq(s->listen, "127.0.0.1:9477");
}

START_TEST(a_full_text_fills_every_kind)
{
	struct err err = ERR_INIT;
	struct sample s;

	ck_assert_msg(sample_load(full_text, &s, &err) == 0, "%s", err.text);
	check_full(&s);
	config_free(sample_rows, &s);
	ck_assert_ptr_null(s.socket);
	ck_assert_ptr_null(s.users.items);
	config_free(sample_rows, &s);
}
END_TEST

START_TEST(an_item_that_stands_for_a_key_needs_no_list_where_it_is_alone)
{
	static const char *const texts[] = {
		"tiers: {dram: {size: 1GiB}}\nusers: train-a\n",
		"tiers: {dram: {size: 1GiB}}\nusers: [train-a]\n",
		"tiers: {dram: {size: 1GiB}}\nusers: [{name: train-a}]\n"
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct err err = ERR_INIT;
		struct sample s;

		ck_assert_msg(sample_load(texts[i], &s, &err) == 0, "%s", err.text);
		ck_assert_uint_eq(s.users.count, 1);
		ck_assert_str_eq(((const struct sample_user *)s.users.items)[0].name, "train-a");
		config_free(sample_rows, &s);
	}
}
END_TEST

START_TEST(what_is_left_out_has_its_default_or_is_not_set)
{
	struct err err = ERR_INIT;
	struct sample s;

	ck_assert_msg(sample_load("tiers: {dram: {size: 50%}}", &s, &err) == 0, "%s", err.text);
	ck_assert_str_eq(s.socket, "/run/tierd/tierd.sock");
	ck_assert_uint_eq(s.tensors, MIB(4));
	ck_assert_uint_eq(s.tiers.dram.size.bytes, 0);
	ck_assert_uint_eq(s.tiers.dram.size.permille, 500);
	ck_assert(s.tiers.dram.touch);
	ck_assert_int_eq(s.tiers.hbm.backend.choice, -1);
	ck_assert_ptr_null(s.tiers.hbm.backend.config);
	ck_assert(!s.tiers.nvme.presence.present);
	ck_assert_uint_eq(s.tiers.nvme.queue_depth, 0);
	ck_assert_int_eq(s.class_.choice, -1);
	ck_assert_uint_eq(s.users.count, 0);
	ck_assert_ptr_null(s.listen);
	config_free(sample_rows, &s);
}
END_TEST

START_TEST(a_variant_without_selector_takes_its_default)
{
	struct err err = ERR_INIT;
	const struct sample_cuda *cuda;
	struct sample s;

	ck_assert_int_eq(sample_load("tiers: {hbm: {}, dram: {size: 1GiB}}", &s, &err), 0);
	ck_assert_int_eq(s.tiers.hbm.backend.choice, 0);
	cuda = s.tiers.hbm.backend.config;
	ck_assert_uint_eq(cuda->size.permille, 900);
	ck_assert_str_eq(cuda->devices, "all");
	ck_assert(!s.tiers.hbm.fault.presence.present);
	config_free(sample_rows, &s);
	ck_assert_int_eq(sample_load("tiers: {hbm: {backend: none}, dram: {size: 1GiB}}", &s, &err),
			 0);
	ck_assert_int_eq(s.tiers.hbm.backend.choice, 2);
	ck_assert_ptr_nonnull(s.tiers.hbm.backend.config);
	config_free(sample_rows, &s);
}
END_TEST

struct refusal {
	const char *text, *want;
};

static void check_refusals(const struct refusal *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct err err = ERR_INIT;
		struct sample s;

		ck_assert_msg(sample_load(rows[i].text, &s, &err) == -EINVAL, "taken: %s",
			      rows[i].text);
		ck_assert_str_eq(err.text, rows[i].want);
		ck_assert_int_eq(err.code, -EINVAL);
	}
}

#define DRAM "tiers: {dram: {size: 1GiB}}\n"

START_TEST(unknown_keys_are_refused_with_what_was_meant)
{
	static const struct refusal rows[] = {
		{ "sockt: /a\n" DRAM, "t:1:1: sockt: unknown key; the nearest is 'socket'" },
		{ DRAM "tensor: 4Mi\n", "t:2:1: tensor: unknown key; the nearest is 'tensors'" },
		{ "tiers:\n  drma: {size: 1GiB}\n",
		  "t:2:3: tiers.drma: unknown key; the nearest is 'dram'" },
		{ DRAM "queue_depth: 3\n",
		  "t:2:1: queue_depth: unknown key; 'queue_depth' is a key of tiers.nvme" },
		{ DRAM "quue_depth: 3\n",
		  "t:2:1: quue_depth: unknown key; 'queue_depth' is a key of tiers.nvme" },
		{ "tiers: {dram: {size: 1GiB, high: 3%}}",
		  "t:1:28: tiers.dram.high: unknown key; 'high' is a key of the top level" },
		{ "tiers: {dram: {size: 1GiB}, nvme: {path: /a}}",
		  "t:1:36: tiers.nvme.path: unknown key; the nearest is 'paths'; 'path' is a key "
		  "of tiers.nvme.paths[0]" },
		{ DRAM "size: 1GiB\n",
		  "t:2:1: size: unknown key; 'size' is a key of tiers.hbm with backend cuda, "
		  "tiers.hbm with backend memory and others" },
		{ "tiers: {hbm: {backend: memory, devices: all}}",
		  "t:1:32: tiers.hbm.devices: unknown key with backend memory; 'devices' is a key "
		  "of tiers.hbm with backend cuda" },
		{ "tiers: {hbm: {beckend: memory}}",
		  "t:1:15: tiers.hbm.beckend: unknown key with backend cuda; the nearest is "
		  "'backend'" },
		{ DRAM "compression_level_of_later: 1\n",
		  "t:2:1: compression_level_of_later: unknown key; the keys here are socket, "
		  "tensors, linger, tiers, class, users, high, listen" },
		{ "tiers: {dram: {size: 1GiB, Numa: off}}",
		  "t:1:28: tiers.dram.Numa: unknown key; the nearest is 'numa'" },
		{ DRAM "users:\n  - nme: a\n",
		  "t:3:5: users[0].nme: unknown key; the nearest is 'name'" },
	};

	check_refusals(rows, ARRAY_SIZE(rows));
}
END_TEST

START_TEST(wrong_kinds_and_missing_keys_are_refused)
{
	static const struct refusal rows[] = {
		{ "", "t:1:1: the key 'tiers' is missing" },
		{ "# nothing\n\n", "t:1:1: the key 'tiers' is missing" },
		{ "{}", "t:1:1: the key 'tiers' is missing" },
		{ "tiers: {}", "t:1:8: tiers: the key 'dram' is missing" },
		{ "tiers: {dram: {}}", "t:1:15: tiers.dram: the key 'size' is missing" },
		{ "tiers: true", "t:1:8: tiers: a map of keys is expected here, not 'true'" },
		{ "tiers:\nhigh: 95%\n", "t:1:7: tiers: has no value; a map of keys is expected" },
		{ "tiers: {dram: 64GiB}",
		  "t:1:15: tiers.dram: a map of keys is expected here, not '64GiB'" },
		{ "tiers: [a]", "t:1:8: tiers: a map of keys is expected here, not a list" },
		{ "- a\n- b\n", "t:1:1: a map of keys is expected here, not a list" },
		{ "a:1", "t:1:1: a map of keys is expected here, not 'a:1'; a colon needs a space "
			 "after it" },
		{ DRAM "socket: [/a]\n",
		  "t:2:9: socket: a single value is expected here, not a list" },
		{ DRAM "users: {name: train-a}\n",
		  "t:2:8: users: a list is expected here, not a map of keys" },
		{ DRAM "users: [[a]]\n",
		  "t:2:9: users[0]: a map of keys is expected here, not a list" },
		{ DRAM "users:\n", "t:2:7: users: has no value; a list is expected" },
		{ DRAM "users: [a, '']\n", "t:2:12: users[1].name: is empty" },
		{ DRAM "socket:\n", "t:2:8: socket: is empty" },
		{ DRAM "socket: run/a\n", "t:2:9: socket: 'run/a' is not an absolute path" },
		{ DRAM "socket: ~/a\n", "t:2:9: socket: '~/a' is not an absolute path" },
		{ DRAM "socket: /a\nsocket: /b\n",
		  "t:3:1: socket: the key stands twice; first at 2:1" },
		{ "tiers: {dram: {size: 1GiB, 'size': 2GiB}}",
		  "t:1:28: tiers.dram.size: the key stands twice; first at 1:16" },
		{ "tiers: {dram: {size: 1GiB}, hbm: {backend: cuda, backend: memory}}",
		  "t:1:50: tiers.hbm.backend: the key stands twice; first at 1:35" },
		{ "tiers: {hbm: {backend: memroy}}",
		  "t:1:24: tiers.hbm.backend: 'memroy' is none of cuda, memory, none; the nearest "
		  "is 'memory'" },
		{ "tiers: {hbm: {backend: hip}}",
		  "t:1:24: tiers.hbm.backend: 'hip' is none of cuda, memory, none" },
		{ "tiers: {hbm: {backend: rocm}}",
		  "t:1:24: tiers.hbm.backend: rocm is not in this build: no header of it was "
		  "found" },
		{ "tiers: {hbm: {backend: [cuda]}}",
		  "t:1:24: tiers.hbm.backend: a single value is expected here, not a list" },
		{ "tiers: {hbm: {backend: memory}}",
		  "t:1:14: tiers.hbm: the key 'size' is missing" },
		{ DRAM "class: {half_life: 3s}\n", "t:2:8: class: the key 'policy' is missing" },
		{ "tiers: {dram: {size: 1GiB}, nvme: {paths: []}}",
		  "t:1:43: tiers.nvme.paths: the number of items, 0 is out of range; from 1 to 4" },
		{ "tiers: {dram: {size: 1GiB}, nvme: {paths: [/a, /b, /c, /d, /e]}}",
		  "t:1:43: tiers.nvme.paths: the number of items, 5 is out of range; from 1 to 4" },
		{ "tiers: {dram: {size: 1GiB}, nvme: {paths: [{size: 1GB}]}}",
		  "t:1:44: tiers.nvme.paths[0]: the key 'path' is missing" },
	};

	check_refusals(rows, ARRAY_SIZE(rows));
}
END_TEST

START_TEST(values_are_refused_at_their_place)
{
	static const struct refusal rows[] = {
		{ "tiers: {dram: {size: 64G}}",
		  "t:1:22: tiers.dram.size: '64G' is ambiguous: write 64GB or 64GiB" },
		{ "tiers: {dram: {size: 1KiB}}",
		  "t:1:22: tiers.dram.size: 1KiB is out of range; from 1MiB to 1TiB" },
		{ "tiers: {dram: {size: 101%}}",
		  "t:1:22: tiers.dram.size: '101%' is out of range; from 0.1% to 100%" },
		{ "tiers: {dram: {size: 0%}}",
		  "t:1:22: tiers.dram.size: '0%' is out of range; from 0.1% to 100%" },
		{ "tiers: {dram: {size: 1GiB, numa: nearst}}",
		  "t:1:34: tiers.dram.numa: 'nearst' is none of nearest, interleave, off; the "
		  "nearest is 'nearest'" },
		{ "tiers: {dram: {size: 1GiB, touch: yes}}",
		  "t:1:35: tiers.dram.touch: 'yes' is not true or false" },
		{ DRAM "high: 49.9%\n", "t:2:7: high: 49.9% is out of range; from 50% to 100%" },
		{ DRAM "high: 100.1%\n", "t:2:7: high: 100.1% is out of range; from 50% to 100%" },
		{ DRAM "high: 0.95\n", "t:2:7: high: '0.95' has no unit: write 95%" },
		{ DRAM "tensors: 0\n", "t:2:10: tensors: 0 is out of range; from 1 to 16Mi" },
		{ DRAM "class: {policy: hotness, half_life: 1us}\n",
		  "t:2:37: class.half_life: 1us is out of range; at least 1ms" },
	};

	check_refusals(rows, ARRAY_SIZE(rows));
}
END_TEST

static char *printed(const struct sample *s)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	ck_assert_ptr_nonnull(to);
	config_print(sample_rows, s, to);
	ck_assert_int_eq(fclose(to), 0);
	return text;
}

START_TEST(what_is_printed_loads_back_to_the_same)
{
	struct err err = ERR_INIT;
	struct sample s, again;
	char *first, *second;

	ck_assert_int_eq(sample_load(full_text, &s, &err), 0);
	first = printed(&s);
	ck_assert_msg(sample_load(first, &again, &err) == 0, "%s\n%s", err.text, first);
	check_full(&again);
	second = printed(&again);
	ck_assert_str_eq(first, second);
	free(first);
	free(second);
	config_free(sample_rows, &s);
	config_free(sample_rows, &again);
}
END_TEST

START_TEST(printing_names_defaults_and_spells_sizes_out)
{
	static const char want[] = "socket: /run/tierd/tierd.sock  # default\n"
				   "tensors: 4Mi  # default\n"
				   "linger: 60s  # default\n"
				   "tiers:\n"
				   "  hbm:\n"
				   "    backend: none\n"
				   "  dram:\n"
				   "    size: 64GB  # 64000000000 bytes = 59.60 GiB\n"
				   "    numa: nearest  # default\n"
				   "    touch: true  # default\n"
				   "  nvme:\n"
				   "    paths:\n"
				   "      - path: /a\n"
				   "        size: 100%  # default\n"
				   "    queue_depth: 32  # default\n"
				   "class:\n"
				   "  policy: lru\n"
				   "users: []\n"
				   "high: 95%  # default\n"
				   "# listen: not set\n";
	struct err err = ERR_INIT;
	struct sample s;
	char *text;

	ck_assert_msg(sample_load("tiers: {hbm: {backend: none}, dram: {size: 64GB}, "
				  "nvme: {paths: [/a]}}\nclass: {policy: lru}",
				  &s, &err) == 0,
		      "%s", err.text);
	text = printed(&s);
	ck_assert_str_eq(text, want);
	free(text);
	config_free(sample_rows, &s);
}
END_TEST

START_TEST(the_reference_has_a_line_for_every_key_but_hidden_ones)
{
	static const char *const want[] = {
		"| `socket` | path | `/run/tierd/tierd.sock` |  | Where clients connect. |\n",
		"| `tensors` | number | `4Mi` | 1 to 16Mi | Tensors at most. |\n",
		"| `tiers.hbm` | map | not set |  | GPU memory. |\n",
		"| `tiers.hbm.backend` | `cuda`, `memory`, `none` | `cuda` | | `cuda`: A GPU. `",
		"| `tiers.hbm(memory).size` | size | required | at least 4KiB | Bytes of the ",
		"| `tiers.dram.numa` | `nearest`, `interleave`, `off` | `nearest` |  | Where ",
		"| `tiers.nvme.paths[].path` | path | required |  | A folder \\| device. |\n",
		"| `class.policy` | `lru`, `hotness` | required | | ",
		("| `users[]` | list | empty |  | Who may connect. An item that is no map stands "
		 "for its `name`, and needs no list where it is alone. |\n"),
		"| `high` | share | `95%` | 50% to 100% | High watermark. |\n",
	};
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	ck_assert_ptr_nonnull(to);
	config_reference(sample_rows, to);
	ck_assert_int_eq(fclose(to), 0);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		ck_assert_msg(strstr(text, want[i]) != NULL, "missing %s in\n%s", want[i], text);
	ck_assert_ptr_null(strstr(text, "delay"));
	free(text);
}
END_TEST

static void append_size(void *ctx, const char *path, const char *text)
{
	char *to = ctx;

	strcat(to, path);
	strcat(to, ": ");
	strcat(to, text);
	strcat(to, "\n");
}

START_TEST(each_size_is_said_in_bytes)
{
	char said[1024] = "";
	struct err err = ERR_INIT;
	struct sample s;

	ck_assert_int_eq(sample_load(full_text, &s, &err), 0);
	config_each_size(sample_rows, &s, append_size, said);
	ck_assert_str_eq(said, "tiers.hbm.size: 16777216 bytes = 0.02 GiB\n"
			       "tiers.dram.size: 68719476736 bytes = 64.00 GiB\n"
			       "tiers.nvme.paths[0].size: 800000000000 bytes = 745.06 GiB\n"
			       "tiers.nvme.paths[1].size: 100%\n");
	config_free(sample_rows, &s);
}
END_TEST

#define ROW(...)                                     \
	{                                            \
		.key = "k", .help = "h", __VA_ARGS__ \
	}

static bool no_choice(size_t i, struct config_choice *ret)
{
	return false;
}

START_TEST(a_table_that_breaks_the_contract_is_found)
{
	static const struct config_row scalar_rows[] = { ROW(.kind = CONFIG_COUNT), CONFIG_END };
	static const struct config_sub no_size = { .rows = scalar_rows };
	static const struct config_sub small = { .rows = sample_dram_rows, .size = 8 };
	static const struct config_sub no_scalar = { .rows = scalar_rows,
						     .size = 8,
						     .scalar_key = "x" };
	static const struct config_sub no_default = { .size = sizeof(struct config_variant),
						      .selector = "s",
						      .selector_default = "d",
						      .variant = no_choice };
	static const struct {
		struct config_row row;
		const char *want;
	} rows[] = {
		{ ROW(.kind = CONFIG_COUNT), "" },
		{ ROW(.kind = CONFIG_COUNT, .default_text = "1e3"),
		  "k: the table says '1e3' has an exponent: write 1000" },
		{ ROW(.kind = CONFIG_COUNT, .default_text = "3", .min = "4"),
		  "k: the table says 3 is out of range; at least 4" },
		{ ROW(.kind = CONFIG_SIZE, .max = "4"),
		  "k: the table says '4' has no unit: write 4GB or 4GiB" },
		{ ROW(.kind = CONFIG_COUNT, .default_text = "3", .flags = CONFIG_REQUIRED),
		  "k: REQUIRED with a default" },
		{ ROW(.kind = CONFIG_COUNT, .flags = CONFIG_OPTIONAL),
		  "k: a scalar with sub or OPTIONAL" },
		{ ROW(.kind = CONFIG_CHOICE), "k: choices belong to a CHOICE" },
		{ ROW(.kind = CONFIG_COUNT, .offset = 4),
		  "k: the offset is not that of such a member" },
		{ ROW(.kind = CONFIG_COUNT, .offset = 64), "k: the member ends behind its struct" },
		{ ROW(.kind = CONFIG_MAP), "k: a MAP, LIST or VARIANT needs a sub" },
		{ ROW(.kind = CONFIG_MAP, .sub = &no_size),
		  "k: a MAP or LIST needs rows and a size" },
		{ ROW(.kind = CONFIG_MAP, .sub = &small),
		  "k.size: the member ends behind its struct" },
		{ ROW(.kind = CONFIG_LIST, .sub = &no_scalar), "k: scalar_key names no scalar" },
		{ ROW(.kind = CONFIG_VARIANT, .sub = &no_default),
		  "k: the selector's default is no choice" },
		{ { .key = "k", .kind = CONFIG_COUNT }, "k: needs a kind and a help" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct config_row table[] = { rows[i].row, CONFIG_END };
		struct err err = ERR_INIT;
		int res = config_check_rows(table, 64, &err);

		ck_assert_str_eq(err.text, rows[i].want);
		ck_assert_int_eq(res, *rows[i].want != '\0' ? -EINVAL : 0);
	}
}
END_TEST

START_TEST(the_tables_of_the_tests_keep_the_contract)
{
	static const struct config_row twice[] = { ROW(.kind = CONFIG_BOOL),
						   ROW(.kind = CONFIG_BOOL), CONFIG_END };
	struct err err = ERR_INIT;

	ck_assert_msg(config_check_rows(sample_rows, sizeof(struct sample), &err) == 0, "%s",
		      err.text);
	ck_assert_int_eq(config_check_rows(twice, 64, &err), -EINVAL);
	ck_assert_str_eq(err.text, "k: the key stands twice");
}
END_TEST

UNIT_MAIN("config", a_full_text_fills_every_kind,
	  an_item_that_stands_for_a_key_needs_no_list_where_it_is_alone,
	  what_is_left_out_has_its_default_or_is_not_set,
	  a_variant_without_selector_takes_its_default,
	  unknown_keys_are_refused_with_what_was_meant, wrong_kinds_and_missing_keys_are_refused,
	  values_are_refused_at_their_place, what_is_printed_loads_back_to_the_same,
	  printing_names_defaults_and_spells_sizes_out,
	  the_reference_has_a_line_for_every_key_but_hidden_ones, each_size_is_said_in_bytes,
	  a_table_that_breaks_the_contract_is_found, the_tables_of_the_tests_keep_the_contract)

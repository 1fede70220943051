/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader without memory: this program refuses what base/heap.h is asked for, brings the
 * allocator of libyaml, lets the n-th call fail for every n, and counts what stays behind.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/heap.h"
#include "config/config.h"
#include "tests/unit/config_sample.h"

static unsigned calls, fail_at; /* 0: never */
static unsigned yaml_calls;
static long yaml_taken;

static bool call_fails(void)
{
	return ++calls == fail_at;
}

static bool refuses(const struct heap_refusal *r, const struct heap_site *site)
{
	return call_fails();
}
static const struct heap_refusal refusal = { refuses };

static long outstanding(void)
{
	return yaml_taken + (long)heap_taken();
}

static void *counted(void *memory)
{
	ck_assert_ptr_nonnull(memory);
	yaml_taken++;
	return memory;
}

/* libyaml's own, which it exports and calls by these names; yaml.h does not declare them. */
void *yaml_malloc(size_t bytes);
void *yaml_realloc(void *memory, size_t bytes);
yaml_char_t *yaml_strdup(const yaml_char_t *text);
void yaml_free(void *memory);

void *yaml_malloc(size_t bytes)
{
	yaml_calls++;
	return call_fails() ? NULL : counted(malloc(bytes != 0 ? bytes : 1));
}

void *yaml_realloc(void *memory, size_t bytes)
{
	void *moved;

	if (memory == NULL)
		return yaml_malloc(bytes);
	if (call_fails())
		return NULL;
	moved = realloc(memory, bytes != 0 ? bytes : 1);
	ck_assert_ptr_nonnull(moved);
	return moved;
}

yaml_char_t *yaml_strdup(const yaml_char_t *text)
{
	if (text == NULL || call_fails())
		return NULL;
	return counted(strdup((const char *)text));
}

void yaml_free(void *memory)
{
	yaml_taken -= memory != NULL;
	free(memory);
}

static const char good_text[] = "socket: &s /run/a\n"
				"tiers:\n"
				"  hbm: {backend: memory, size: 16MiB, fault: {seed: 7}}\n"
				"  dram: {size: 1GiB}\n"
				"  nvme: {paths: [{path: /a, size: 800GB}, /b, *s]}\n"
				"class: {policy: hotness}\n"
				"users: [a, {name: b}, \"c\\u00e4\", 'd']\n";

/* One load whose n-th allocation fails. Returns whether there were so many. */
static bool load_failing(const char *text, unsigned n, int result_with_memory)
{
	struct err err = ERR_INIT;
	struct sample s;
	int res;

	heap_refuse(&refusal);
	calls = 0;
	fail_at = n;
	res = sample_load(text, &s, &err);
	fail_at = 0;
	if (res == 0)
		config_free(sample_rows, &s);
	ck_assert_msg(outstanding() == 0, "%ld left after call %u failed", outstanding(), n);
	if (calls < n) {
		ck_assert_int_eq(res, result_with_memory);
		return false;
	}
	ck_assert_msg(res == -ENOMEM, "call %u: %d: %s", n, res, err.text);
	ck_assert_msg(strncmp(err.text, "t: no memory", 12) == 0, "%s", err.text);
	return true;
}

static unsigned load_failing_everywhere(const char *text, int result_with_memory)
{
	unsigned n = 1;

	while (load_failing(text, n, result_with_memory))
		n++;
	return n - 1;
}

START_TEST(every_allocation_may_fail_and_nothing_stays_behind)
{
	unsigned all;

	yaml_calls = 0;
	all = load_failing_everywhere(good_text, 0);
	ck_assert_uint_gt(yaml_calls, 0); /* libyaml does call ours */
	ck_assert_uint_gt(all, 60);
}
END_TEST

START_TEST(a_refused_text_leaves_nothing_behind_either)
{
	static const char *const texts[] = {
		"tiers: {dram: {size: 1GiB}}\nusers: [a, b, {nme: c}]\n",
		"tiers: {hbm: {backend: memory, size: 1MiB, rate: x}}\n",
		"tiers: {dram: {size: 1GiB}}\nusers: [a, b\n",
		"a: &a [*a]\n",
		"tiers: !!map {}\n",
		"a: b\n---\nc: d\n",
		"tiers: {nvme: {paths: [/a, /b], queue_depth: 0}}\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_uint_gt(load_failing_everywhere(texts[i], -EINVAL), 3);
}
END_TEST

START_TEST(a_file_without_memory_is_closed_and_leaves_nothing)
{
	struct err err = ERR_INIT;
	struct sample s = { 0 };
	int lowest_fd = dup(STDERR_FILENO), again;

	ck_assert_int_eq(close(lowest_fd), 0);
	heap_refuse(&refusal);
	calls = 0;
	fail_at = 1;
	ck_assert_int_eq(config_load_file(sample_rows, "/proc/self/status", &s, &err), -ENOMEM);
	fail_at = 0;
	ck_assert_str_eq(err.text, "/proc/self/status: no memory to read it");
	ck_assert_int_eq(outstanding(), 0);
	again = dup(STDERR_FILENO);
	ck_assert_int_eq(again, lowest_fd);
	close(again);
}
END_TEST

UNIT_MAIN("config_memory", every_allocation_may_fail_and_nothing_stays_behind,
	  a_refused_text_leaves_nothing_behind_either,
	  a_file_without_memory_is_closed_and_leaves_nothing)

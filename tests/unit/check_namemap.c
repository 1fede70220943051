/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "base/namemap.h"
#include "base/siphash.h"

static struct namemap *new_map(uint32_t capacity)
{
	struct namemap *m;
	struct err err = ERR_INIT;

	ck_assert_msg(namemap_create(capacity, &m, &err) == 0, "%s", err.text);
	return m;
}

static int add(struct namemap *m, uint32_t ns, const char *name, uint32_t value)
{
	return namemap_add(m, ns, name, strlen(name), value);
}

static int find(const struct namemap *m, uint32_t ns, const char *name, uint32_t *ret)
{
	return namemap_find(m, ns, name, strlen(name), ret);
}

START_TEST(siphash_matches_the_published_check_values)
{
	/* Aumasson and Bernstein, appendix A: key 00..0f, message 00..0e; and the empty message. */
	struct siphash_key key;
	unsigned char bytes[16];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	memcpy(&key, bytes, sizeof(key));
	ck_assert_uint_eq(siphash(key, bytes, 15), 0xa129ca6149be45e5u);
	ck_assert_uint_eq(siphash(key, NULL, 0), 0x726fdb47dd0e0e31u);
}
END_TEST

START_TEST(namemap_finds_a_name_in_its_own_namespace_only)
{
	struct namemap *m = new_map(8);
	uint32_t value = 77;

	ck_assert_int_eq(add(m, 1, "wte", 3), 0);
	ck_assert_int_eq(add(m, 2, "wte", 4), 0);
	ck_assert_int_eq(add(m, 1, "wte", 5), -EEXIST);
	ck_assert_int_eq(find(m, 3, "wte", &value), -ENOENT);
	ck_assert_int_eq(find(m, 1, "wt", &value), -ENOENT);
	ck_assert_uint_eq(value, 77);
	ck_assert_int_eq(find(m, 1, "wte", &value), 0);
	ck_assert_uint_eq(value, 3);
	ck_assert_int_eq(find(m, 2, "wte", &value), 0);
	ck_assert_uint_eq(value, 4);
	namemap_destroy(m);
}
END_TEST

START_TEST(namemap_gives_the_name_of_a_value_until_it_is_removed)
{
	struct namemap *m = new_map(8);
	const char *name = NULL;
	uint32_t ns = 0, value;

	ck_assert_uint_eq(namemap_name(m, 7, &name, &ns), 0);
	ck_assert_ptr_null(name);
	ck_assert_int_eq(add(m, 9, "h.0.attn", 7), 0);
	ck_assert_uint_eq(namemap_name(m, 7, &name, &ns), 8);
	ck_assert_mem_eq(name, "h.0.attn", 8);
	ck_assert_uint_eq(ns, 9);
	namemap_remove(m, 7);
	namemap_remove(m, 7); /* has no name any more: nothing happens */
	ck_assert_uint_eq(namemap_name(m, 7, &name, &ns), 0);
	ck_assert_int_eq(find(m, 9, "h.0.attn", &value), -ENOENT);
	ck_assert_uint_eq(namemap_count(m), 0);
	namemap_destroy(m);
}
END_TEST

START_TEST(namemap_takes_any_bytes_of_every_length_and_no_other_length)
{
	struct namemap *m = new_map(256);
	char bytes[NAMEMAP_NAME_BYTES_MAX + 1];
	const char *name;
	uint32_t value, ns;

	memset(bytes, 0xff, sizeof(bytes));
	ck_assert_int_eq(namemap_add(m, 0, bytes, 0, 0), -EINVAL);
	ck_assert_int_eq(namemap_add(m, 0, bytes, sizeof(bytes), 0), -EINVAL);
	ck_assert_int_eq(namemap_find(m, 0, bytes, 0, &value), -ENOENT);
	ck_assert_int_eq(namemap_find(m, 0, bytes, sizeof(bytes), &value), -ENOENT);
	for (uint32_t n = 1; n <= NAMEMAP_NAME_BYTES_MAX; n++)
		ck_assert_int_eq(namemap_add(m, 0, bytes, n, n), 0);
	for (uint32_t n = 1; n <= NAMEMAP_NAME_BYTES_MAX; n++) {
		ck_assert_int_eq(namemap_find(m, 0, bytes, n, &value), 0);
		ck_assert_uint_eq(value, n);
		ck_assert_uint_eq(namemap_name(m, n, &name, &ns), n);
		ck_assert_mem_eq(name, bytes, n);
	}
	namemap_destroy(m);
}
END_TEST

START_TEST(namemap_reuses_the_room_of_names_that_went)
{
	struct namemap *m = new_map(1000);
	uint64_t used;
	char name[32];

	for (uint32_t round = 0; round < 50; round++)
		for (uint32_t i = 0; i < 1000; i++) {
			snprintf(name, sizeof(name), "round.%02u.tensor.%03u", round, i);
			namemap_remove(m, i);
			ck_assert_int_eq(add(m, 0, name, i), 0);
			if (round == 0 && i == 999)
				used = namemap_used_bytes(m);
		}
	ck_assert_uint_eq(namemap_used_bytes(m), used);
	namemap_destroy(m);
}
END_TEST

START_TEST(namemap_holds_the_longest_names_at_full_capacity_after_every_shorter_one)
{
	/* The worst order for a pool without merging; one name stays, so that it never restarts. */
	enum { VALUES = 100 };
	struct namemap *m = new_map(VALUES);
	char name[NAMEMAP_NAME_BYTES_MAX];

	memset(name, 'x', sizeof(name));
	for (uint32_t bytes = 3; bytes <= sizeof(name); bytes += 4) {
		for (uint32_t i = 0; i < VALUES; i++) {
			namemap_remove(m, i);
			memcpy(name, (char[]){ (char)i, (char)bytes }, 2);
			ck_assert_int_eq(namemap_add(m, 0, name, bytes, i), 0);
		}
	}
	ck_assert_uint_eq(namemap_count(m), VALUES);
	namemap_destroy(m);
}
END_TEST

/* What a map must say, kept the plain way: a flag for each of a fixed set of names. */
#define MODEL_NAMES 512u

static uint32_t model_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static void model_step(struct namemap *m, int32_t *owner, int32_t *names, uint64_t *state)
{
	uint32_t n = model_random(state) % MODEL_NAMES, v = model_random(state) % MODEL_NAMES;
	uint32_t ns = n % 3, found = 0;
	char name[16];

	snprintf(name, sizeof(name), "%*u", (int)(1 + n % 13), n);
	ck_assert_int_eq(find(m, ns, name, &found), owner[n] < 0 ? -ENOENT : 0);
	if (owner[n] >= 0)
		ck_assert_int_eq(found, owner[n]);
	if (names[v] >= 0) {
		owner[names[v]] = -1;
		names[v] = -1;
		namemap_remove(m, v);
	} else {
		int rc = add(m, ns, name, v);

		ck_assert_int_eq(rc, owner[n] < 0 ? 0 : -EEXIST);
		if (rc == 0) {
			owner[n] = (int32_t)v;
			names[v] = (int32_t)n;
		}
	}
}

START_TEST(namemap_agrees_with_a_plain_model_over_random_calls)
{
	struct namemap *m = new_map(MODEL_NAMES);
	int32_t owner[MODEL_NAMES], names[MODEL_NAMES];
	uint64_t state = 42;

	memset(owner, 0xff, sizeof(owner));
	memset(names, 0xff, sizeof(names));
	for (unsigned i = 0; i < 200000; i++)
		model_step(m, owner, names, &state);
	namemap_destroy(m);
}
END_TEST

/* Of this thread alone: a busy machine must not look like a long call. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

START_TEST(namemap_of_a_million_names_is_small_and_no_insertion_is_long)
{
	enum { VALUES = 1000000 };
	struct namemap *m = new_map(4 << 20);
	uint64_t worst_ns = 0;
	uint32_t value = 0;
	char name[32];

	for (uint32_t i = 0; i < VALUES; i++) {
		uint64_t start_ns, took_ns;

		snprintf(name, sizeof(name), "layer.%03u.weight.%07u", i % 100, i);
		start_ns = cpu_ns();
		ck_assert_int_eq(add(m, 1, name, i), 0);
		took_ns = cpu_ns() - start_ns;
		worst_ns = MAX(worst_ns, took_ns);
	}
	ck_assert_uint_le(namemap_used_bytes(m), 45u * VALUES);
	/* One rehash of all of them takes a hundred milliseconds. */
	ck_assert_uint_lt(worst_ns, 20 * NS_PER_MS);
	for (uint32_t i = 0; i < VALUES; i += 7) {
		snprintf(name, sizeof(name), "layer.%03u.weight.%07u", i % 100, i);
		ck_assert_int_eq(find(m, 1, name, &value), 0);
		ck_assert_uint_eq(value, i);
	}
	namemap_destroy(m);
}
END_TEST

UNIT_MAIN("namemap", siphash_matches_the_published_check_values,
	  namemap_finds_a_name_in_its_own_namespace_only,
	  namemap_gives_the_name_of_a_value_until_it_is_removed,
	  namemap_takes_any_bytes_of_every_length_and_no_other_length,
	  namemap_reuses_the_room_of_names_that_went,
	  namemap_holds_the_longest_names_at_full_capacity_after_every_shorter_one,
	  namemap_agrees_with_a_plain_model_over_random_calls,
	  namemap_of_a_million_names_is_small_and_no_insertion_is_long)

/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML that is hostile, broken or merely unusual. All of it is loaded on a thread with a stack of
 * 256 KiB.
 */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <yaml.h>

#include "base/compiler.h"
#include "config/config.h"
#include "tests/unit/config_sample.h"
#include "tests/unit/leftovers.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 20 /* and resident bytes say nothing */
#else
#define SLOWER 1
#endif

struct load {
	const char *path; /* or */
	const char *text;
	size_t bytes;
	struct err err;
	int result;
	double cpu_s;
};

static double cpu_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *load_run(void *arg)
{
	struct load *load = arg;
	struct sample s = { 0 };
	double begin = cpu_now();

	if (load->path != NULL)
		load->result = config_load_file(sample_rows, load->path, &s, &load->err);
	else
		load->result =
			config_load_text(sample_rows, "t", load->text, load->bytes, &s, &load->err);
	load->cpu_s = cpu_now() - begin;
	if (load->result == 0)
		config_free(sample_rows, &s);
	return NULL;
}

static void load_on_small_stack(struct load *load)
{
	pthread_attr_t attr;
	pthread_t thread;

	load->err = (struct err)ERR_INIT;
	ck_assert_int_eq(pthread_attr_init(&attr), 0);
	ck_assert_int_eq(pthread_attr_setstacksize(&attr, 256 << 10), 0);
	ck_assert_int_eq(pthread_create(&thread, &attr, load_run, load), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	pthread_attr_destroy(&attr);
}

/* Refused with this text, in 100 ms and in less than 32 MiB. */
static void check_hostile(const char *text, size_t bytes, const char *want)
{
	struct load load = { .text = text, .bytes = bytes };
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	load_on_small_stack(&load);
	getrusage(RUSAGE_SELF, &after);
	ck_assert_int_eq(load.result, -EINVAL);
	ck_assert_str_eq(load.err.text, want);
	ck_assert_msg(load.cpu_s < 0.1 * SLOWER, "%.3f s", load.cpu_s);
	if (SLOWER == 1)
		ck_assert_int_lt(after.ru_maxrss - before.ru_maxrss, 32 << 10);
}

static char *repeated(const char *before, const char *what, size_t n, const char *after,
		      size_t *ret_bytes)
{
	char *text = malloc(strlen(before) + n * strlen(what) + strlen(after) + 1), *at = text;

	ck_assert_ptr_nonnull(text);
	at = stpcpy(at, before);
	for (size_t i = 0; i < n; i++)
		at = stpcpy(at, what);
	at = stpcpy(at, after);
	*ret_bytes = (size_t)(at - text);
	return text;
}

static void check_repeated(const char *before, const char *what, size_t n, const char *after,
			   const char *want)
{
	size_t bytes;
	char *text = repeated(before, what, n, after, &bytes);

	check_hostile(text, bytes, want);
	free(text);
}

START_TEST(nesting_is_bounded)
{
	static const size_t depths[] = { 65, 1000, 20000, 100000 };

	for (size_t i = 0; i < ARRAY_SIZE(depths); i++) {
		check_repeated("", "[", depths[i], "", "t:1:33: nested deeper than 32");
		check_repeated("a: ", "{b: ", depths[i], "", "t:1:128: nested deeper than 32");
		check_repeated("", "- ", depths[i], "x", "t:1:65: nested deeper than 32");
	}
	check_repeated("a: ", "[\n", 70000, "", "t:32:1: nested deeper than 32");
	check_repeated("", "? ", 20000, "x", "t:1:3: a key must be plain text");
	check_repeated("", "[", 32, "",
		       "t:1:33: while parsing a flow node: did not find expected "
		       "node content");
}
END_TEST

/* 65, 1000 and 20,000 deep, each line indented by one more: long texts are refused by their size.
 */
static void check_staircase(size_t depth, int want_result, const char *want)
{
	size_t room = depth * (depth + 3) / 2 + depth * 2 + 16;
	char *text = malloc(room), *at = text;
	struct load load;

	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < depth && i < 3000; i++) {
		memset(at, ' ', i);
		at = stpcpy(at + i, "a:\n");
	}
	load = (struct load){ .text = text, .bytes = (size_t)(at - text) };
	load_on_small_stack(&load);
	ck_assert_int_eq(load.result, want_result);
	ck_assert_str_eq(load.err.text, want);
	ck_assert(load.cpu_s < 0.1 * SLOWER);
	free(text);
}

START_TEST(nesting_in_block_style_is_bounded)
{
	check_staircase(65, -EINVAL, "t:33:33: nested deeper than 32");
	check_staircase(1000, -EINVAL, "t:33:33: nested deeper than 32");
	check_staircase(20000, -EFBIG, "t: has 4507500 bytes; a configuration has at most 1048576");
}
END_TEST

START_TEST(aliases_count_as_what_they_stand_for)
{
	static const char bomb[] = "a: &a [x,x,x,x,x,x,x,x,x]\n"
				   "b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
				   "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
				   "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
				   "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
				   "f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
				   "g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n"
				   "h: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n"
				   "i: &i [*h,*h,*h,*h,*h,*h,*h,*h,*h]\n";
	static const char self[] = "a: &a [*a]";
	static const char deep[] = "a: &a [[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]\n"
				   "b: [[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]\n";

	check_hostile(bomb, sizeof(bomb) - 1,
		      "t:4:32: more than 8192 keys and values, aliases expanded");
	check_hostile(self, sizeof(self) - 1, "t:1:8: the alias stands inside what it names");
	check_hostile(deep, sizeof(deep) - 1, "t:2:20: nested deeper than 32, aliases expanded");
	check_hostile("a: *b", 5, "t:1:4: the alias names no anchor before it");
	check_hostile("a: &a b\n*a : c", 14, "t:2:1: an alias cannot be a key");
	check_hostile("&a b: c", 7, "t:1:1: a key cannot have an anchor");
}
END_TEST

START_TEST(anchors_and_aliases_mean_what_yaml_says)
{
	static const char text[] = "tiers:\n"
				   "  dram: {size: &s 2GiB, numa: &n off}\n"
				   "  nvme: {paths: [{path: &p /a, size: *s}, &q {path: *p}, *q]}\n"
				   "users: [&s x, *s, *n]\n";
	struct err err = ERR_INIT;
	const struct sample_path *paths;
	const struct sample_user *users;
	struct sample s;

	ck_assert_msg(sample_load(text, &s, &err) == 0, "%s", err.text);
	paths = s.tiers.nvme.paths.items;
	ck_assert_uint_eq(paths[0].size.bytes, GIB(2));
	ck_assert_str_eq(paths[1].path, "/a");
	ck_assert_str_eq(paths[2].path, "/a");
	ck_assert(paths[1].path != paths[2].path);
	users = s.users.items;
	ck_assert_str_eq(users[1].name, "x");
	ck_assert_str_eq(users[2].name, "off");
	config_free(sample_rows, &s);
}
END_TEST

START_TEST(anchors_nodes_scalars_and_directives_are_bounded)
{
	size_t bytes;
	char *text = repeated("a: \"", "x", 500000, "\"", &bytes);

	check_hostile(text, bytes, "t:1:4: a text of more than 4096 bytes");
	free(text);
	check_repeated("", "- &abc x\n", 64000, "", "t:65:3: more than 64 anchors");
	check_repeated("", "- x\n", 100000, "",
		       "t:8192:3: more than 8192 keys and values, aliases expanded");
	check_repeated("a: &", "x", 900000, " b", "t:1:4: an anchor of more than 4096 bytes");
	check_repeated("", "%TAG !a! b\n", 90000, "--- a", "t:1:1: directives are not taken");
	check_repeated("a: ", "x\n ", 300000, "", "t:1:4: a text of more than 4096 bytes");
	check_repeated("", "#", 1000000, "", "t:1:1: the key 'tiers' is missing");
	check_repeated("", "\n", 1000000, "", "t:1:1: the key 'tiers' is missing");
	check_repeated("a: ", " ", 1000000, "b",
		       "t:1:1: a: unknown key; the keys here are socket, tensors, linger, tiers, "
		       "class, users, high, listen");
	check_repeated("", "a", 4097, ": b", "t:1:1: a text of more than 4096 bytes");
	check_repeated("", "a", 2000, ": b",
		       "t:1:2001: mapping values are not allowed in this context");
}
END_TEST

static char folder[LEFTOVERS_ROOM];

static const char *file_named(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void check_file(const char *path, int result, const char *want)
{
	struct load load = { .path = path };

	load_on_small_stack(&load);
	ck_assert_int_eq(load.result, result);
	ck_assert_str_eq(load.err.text, want);
	ck_assert(load.cpu_s < 0.1 * SLOWER);
}

static void write_file(const char *path, const char *text, off_t bytes)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	ck_assert_int_eq(close(fd), 0);
}

START_TEST(files_that_are_no_configuration_are_refused_at_once)
{
	char want[512];
	const char *path;

	leftovers_folder(folder);
	check_file("/dev/zero", -EINVAL, "/dev/zero: is not a regular file");
	check_file("-", -EINVAL, "-: a configuration is read from a file, not from standard input");
	path = file_named("fifo");
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	snprintf(want, sizeof(want), "%s: is not a regular file", path);
	check_file(path, -EINVAL, want);
	unlink(path);
	snprintf(want, sizeof(want), "%s: is not a regular file", folder);
	check_file(folder, -EISDIR, want);
	path = file_named("none");
	snprintf(want, sizeof(want), "%s: open: No such file or directory", path);
	check_file(path, -ENOENT, want);
	path = file_named("large");
	write_file(path, "a", 100 << 20);
	snprintf(want, sizeof(want), "%s: has 104857600 bytes; a configuration has at most 1048576",
		 path);
	check_file(path, -EFBIG, want);
	unlink(path);
	rmdir(folder);
}
END_TEST

START_TEST(a_file_is_loaded_and_named_in_messages)
{
	struct err err = ERR_INIT;
	struct sample s = { 0 };
	const char *path;
	char want[512];

	leftovers_folder(folder);
	path = file_named("good");
	write_file(path, "tiers: {dram: {size: 1GiB}}", 27);
	ck_assert_int_eq(config_load_file(sample_rows, path, &s, &err), 0);
	ck_assert_uint_eq(s.tiers.dram.size.bytes, GIB(1));
	config_free(sample_rows, &s);
	write_file(path, "tiers: {dram: {size: 1gib}}", 27);
	ck_assert_int_eq(config_load_file(sample_rows, path, &s, &err), -EINVAL);
	snprintf(want, sizeof(want),
		 "%s:1:22: tiers.dram.size: '1gib' is ambiguous: write 1GB or 1GiB", path);
	ck_assert_str_eq(err.text, want);
	unlink(path);
	rmdir(folder);
}
END_TEST

struct shape_row {
	const char *text;
	size_t bytes;     /* 0: strlen */
	const char *want; /* NULL: taken */
};

#define GOOD    "tiers: {dram: {size: 1GiB}}"
#define MISSING "t:1:1: the key 'tiers' is missing"

START_TEST(unusual_shapes_are_a_stated_default_or_an_error_with_its_place)
{
	static const struct shape_row rows[] = {
		{ GOOD, 0, NULL },
		{ GOOD "\r\nhigh: 95%\r\n", 0, NULL },
		{ "\xef\xbb\xbf" GOOD, 0, NULL },
		{ "---\n" GOOD "\n...\n", 0, NULL },
		{ "tiers: {dram: {\"size\": '1GiB'}}", 0, NULL },
		{ "--- \n", 0, "t:2:1: has no value; a map of keys is expected" },
		{ "\xef\xbb\xbf", 0, MISSING },
		{ "\n\n# comment\n", 0, MISSING },
		{ GOOD "\r\nhigh: 9\r\n", 0, "t:2:7: high: '9' has no unit: write 9%" },
		{ GOOD "\n---\nb: 1\n", 0, "t:2:1: a second document; a configuration is one" },
		{ GOOD "\n...\n---\n", 0, "t:3:1: a second document; a configuration is one" },
		{ "? [a]\n: b\n", 0, "t:1:3: a key must be plain text" },
		{ "? {a: b}\n: c\n", 0, "t:1:3: a key must be plain text" },
		{ "[a]: b\n", 0, "t:1:1: a key must be plain text" },
		{ ": b\n", 0, "t:1:1: while parsing a block mapping: did not find expected key" },
		{ "?\n: b\n", 0, "t:1:2: a key is empty" },
		{ "'': b\n", 0, "t:1:1: a key is empty" },
		{ "<<: {a: b}\n", 0, "t:1:1: merge keys (<<) are not taken; write the keys out" },
		{ "tiers: !!binary AA==\n", 0, "t:1:8: tags are not taken; write the plain value" },
		{ "tiers: !foo {a: b}\n", 0, "t:1:8: tags are not taken; write the plain value" },
		{ "!!str tiers: 5\n", 0, "t:1:1: tags are not taken; write the plain value" },
		{ GOOD "\ntensors: !!str 5\n", 0,
		  "t:2:10: tags are not taken; write the plain value" },
		{ "%YAML 1.1\n---\n" GOOD, 0, "t:1:1: directives are not taken" },
		{ "tiers:\n\tdram: {}\n", 0,
		  "t:2:1: while scanning for the next token: found character that cannot start any "
		  "token; a tab cannot indent, write spaces" },
		{ "a\0b: c", 6, "t:1:2: a NUL byte" },
		{ "a: \xc3\xa4\nb: \xff\n", 0, "t:2:4: a byte that is not UTF-8" },
		{ "\xc3\xa4: \xc0\x80\n", 0, "t:1:4: a byte that is not UTF-8" },
		{ "a: \xed\xa0\x80\n", 0, "t:1:4: a byte that is not UTF-8" },
		{ "a: \xf4\x90\x80\x80\n", 0, "t:1:4: a byte that is not UTF-8" },
		{ "a: \xe2\x82", 0, "t:1:4: a byte that is not UTF-8" },
		{ "\xff\xfe"
		  "a\0",
		  4, "t:1:1: a byte that is not UTF-8" },
		{ "a: b\x01\n", 0, "t:1:5: a control character" },
		{ "a: \xc2\x85\n", 0, "t:1:4: a control character" },
		{ "a: \xe2\x80\xa8\n", 0, "t:1:4: a control character" },
		{ "a: \xef\xbb\xbf\n", 0,
		  "t:1:4: a byte order mark or noncharacter inside the text" },
		{ GOOD "\nlisten: \"a\\0b\"\n", 0, "t:2:9: the text holds a NUL byte" },
		{ GOOD "\nlisten: \"a\\nb\"\n", 0, "t:2:9: the text holds a control character" },
		{ GOOD "\nlisten: |\n  a\n", 0, "t:2:9: the text holds a control character" },
		{ GOOD "\nlisten: |-\n  a\n", 0, NULL },
		{ "tiers: {dram: {size: 1GiB}\n", 0,
		  "t:2:1: while parsing a flow mapping: did not find expected ',' or '}'" },
		{ "tiers: \"abc\n", 0,
		  "t:2:1: while scanning a quoted scalar: found unexpected end of stream" },
		{ "a: b: c\n", 0, "t:1:5: mapping values are not allowed in this context" },
		{ "@a: b\n", 0,
		  "t:1:1: while scanning for the next token: found character that "
		  "cannot start any token" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct load load = { .text = rows[i].text, .bytes = rows[i].bytes };

		if (load.bytes == 0)
			load.bytes = strlen(rows[i].text);
		load_on_small_stack(&load);
		ck_assert_msg((load.result == 0) == (rows[i].want == NULL), "%zu: %s: %s", i,
			      rows[i].text, load.err.text);
		ck_assert_str_eq(load.err.text, rows[i].want != NULL ? rows[i].want : "");
	}
}
END_TEST

/* "name:LINE:COLUMN: something" */
static void check_placed(const struct err *err, const char *name, const char *text)
{
	unsigned line = 0, column = 0;
	int end = 0;

	ck_assert_msg(strncmp(err->text, name, strlen(name)) == 0, "%s", err->text);
	ck_assert_msg(sscanf(err->text + strlen(name), ":%u:%u: %n", &line, &column, &end) == 2 &&
			      line > 0 && column > 0 && err->text[strlen(name) + (size_t)end] != 0,
		      "%s\n%s", err->text, text);
}

/* None of the suite is a configuration of tierd, so all of it is refused; and so is what is left
 * when it is cut off anywhere, or when a byte of it is another. */
static void check_suite_text(char *text, size_t bytes)
{
	for (size_t cut = 0; cut <= bytes; cut++) {
		struct err err = ERR_INIT;
		struct sample s = { 0 };
		char was = text[bytes - cut];

		ck_assert_int_eq(config_load_text(sample_rows, "t", text, cut, &s, &err), -EINVAL);
		check_placed(&err, "t", text);
		text[bytes - cut] ^= (char)(1 << cut % 8);
		ck_assert_int_eq(config_load_text(sample_rows, "t", text, bytes, &s, &err),
				 -EINVAL);
		check_placed(&err, "t", text);
		text[bytes - cut] = was;
	}
}

/* Visible characters of the suite become what they stand for; `text` only shrinks. */
static size_t suite_decode(char *text)
{
	static const char *const marks[][2] = {
		{ "\xe2\x90\xa3", " " }, /* open box */
		{ "\xe2\x80\x94\xe2\x80\x94\xe2\x80\x94\xc2\xbb", "\t" },
		{ "\xe2\x80\x94\xe2\x80\x94\xc2\xbb", "\t" },
		{ "\xe2\x80\x94\xc2\xbb", "\t" },
		{ "\xc2\xbb", "\t" },               /* guillemet */
		{ "\xe2\x86\xb5", "" },             /* end of line */
		{ "\xe2\x86\x90", "\r" },           /* left arrow */
		{ "\xe2\x87\x94", "\xef\xbb\xbf" }, /* byte order mark */
		{ "\xe2\x88\x8e\n", "" },           /* no end of line at the end */
	};
	char *from = text, *to = text;

	while (*from != '\0') {
		size_t m = 0;

		while (m < ARRAY_SIZE(marks) &&
		       strncmp(from, marks[m][0], strlen(marks[m][0])) != 0)
			m++;
		if (m == ARRAY_SIZE(marks)) {
			*to++ = *from++;
			continue;
		}
		from += strlen(marks[m][0]);
		to = stpcpy(to, marks[m][1]);
	}
	*to = '\0';
	return (size_t)(to - text);
}

/* The tests of one file stand below `yaml:` in a list of maps. Returns how many. */
static unsigned check_suite_tests(yaml_document_t *doc)
{
	unsigned tests = 0;

	for (int i = 1; yaml_document_get_node(doc, i) != NULL; i++) {
		yaml_node_t *map = yaml_document_get_node(doc, i);

		if (map->type != YAML_MAPPING_NODE)
			continue;
		for (yaml_node_pair_t *pair = map->data.mapping.pairs.start;
		     pair < map->data.mapping.pairs.top; pair++) {
			yaml_node_t *key = yaml_document_get_node(doc, pair->key);
			yaml_node_t *value = yaml_document_get_node(doc, pair->value);

			if (strcmp((char *)key->data.scalar.value, "yaml") != 0)
				continue;
			check_suite_text((char *)value->data.scalar.value,
					 suite_decode((char *)value->data.scalar.value));
			tests++;
		}
	}
	return tests;
}

static unsigned check_suite_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct err err = ERR_INIT;
	struct sample s = { 0 };
	yaml_parser_t parser;
	yaml_document_t doc;
	unsigned tests;

	ck_assert_int_eq(config_load_file(sample_rows, path, &s, &err), -EINVAL);
	check_placed(&err, path, path);
	ck_assert_ptr_nonnull(file);
	ck_assert(yaml_parser_initialize(&parser));
	yaml_parser_set_input_file(&parser, file);
	ck_assert_msg(yaml_parser_load(&parser, &doc), "%s", path);
	tests = check_suite_tests(&doc);
	yaml_document_delete(&doc);
	yaml_parser_delete(&parser);
	fclose(file);
	return tests;
}

START_TEST(the_yaml_test_suite_is_refused_with_a_place_and_without_a_crash)
{
	const char *data = getenv("TIERD_TEST_DATA");
	unsigned files = 0, tests = 0;
	char path[4096];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/yaml", data != NULL ? data : TEST_DATA);
	dir = opendir(path);
	if (dir == NULL) {
		printf("skipped: no YAML test suite at %s (TIERD_TEST_DATA names its folder)\n",
		       path);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (strstr(entry->d_name, ".yaml") == NULL)
			continue;
		snprintf(path, sizeof(path), "%s/yaml/%s", data != NULL ? data : TEST_DATA,
			 entry->d_name);
		tests += check_suite_file(path);
		files++;
	}
	closedir(dir);
	ck_assert_uint_eq(files, 351);
	ck_assert_uint_ge(tests, 351);
}
END_TEST

UNIT_MAIN("config_yaml", nesting_is_bounded, nesting_in_block_style_is_bounded,
	  aliases_count_as_what_they_stand_for, anchors_and_aliases_mean_what_yaml_says,
	  anchors_nodes_scalars_and_directives_are_bounded,
	  files_that_are_no_configuration_are_refused_at_once,
	  a_file_is_loaded_and_named_in_messages,
	  unusual_shapes_are_a_stated_default_or_an_error_with_its_place,
	  the_yaml_test_suite_is_refused_with_a_place_and_without_a_crash)

/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl's commands against a daemon's side that says what the test wants: names of any bytes, a
 * million tensors, refusals. tests/system runs the program against tierd itself.
 */
#define _GNU_SOURCE /* memfd_create */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/protocol/explain.h"
#include "tests/unit/fake_daemon.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/leak_groups.h"
#include "tools/tierctl/text.h"

static char output[1 << 16];

/* What a command prints, cut to `output`; its exit status. Check gives each test a process. */
static int run(int (*command)(const struct arguments *), const struct arguments *a,
	       off_t *ret_bytes)
{
	int saved = dup(STDOUT_FILENO), fd = memfd_create("out", MFD_CLOEXEC), status;
	ssize_t n;

	fflush(stdout);
	ck_assert_int_ge(dup2(fd, STDOUT_FILENO), 0);
	status = command(a);
	fflush(stdout);
	ck_assert_int_ge(dup2(saved, STDOUT_FILENO), 0);
	*ret_bytes = lseek(fd, 0, SEEK_END);
	n = pread(fd, output, sizeof(output) - 1, 0);
	ck_assert_int_ge(n, 0);
	output[n] = '\0';
	close(saved);
	close(fd);
	return status;
}

static const char *escaped(const char *bytes, size_t count, bool json)
{
	static char text[512];
	FILE *to = fmemopen(text, sizeof(text), "w");
	struct json j = { to, false };

	if (json)
		json_name(&j, NULL, bytes, count);
	else
		json_plain(to, bytes, count);
	fclose(to);
	return text;
}

#define PLAIN(s) escaped(s, sizeof(s) - 1, false)
#define JSON(s)  escaped(s, sizeof(s) - 1, true)

START_TEST(names_cannot_steer_a_terminal_nor_break_json)
{
	ck_assert_str_eq(PLAIN("layer.0/w\xc3\xa4ge"), "layer.0/w\xc3\xa4ge");
	ck_assert_str_eq(PLAIN("a\x1b[31mb\n\x7f"), "a\\x1b[31mb\\x0a\\x7f");
	ck_assert_str_eq(PLAIN("a\\x1b"), "a\\\\x1b");     /* told from the line before */
	ck_assert_str_eq(PLAIN("\xc2\x9b"), "\\xc2\\x9b"); /* a control character of two bytes */
	ck_assert_str_eq(PLAIN("a\xe2\x80\xae"), "a\\xe2\\x80\\xae"); /* turns the line around */
	ck_assert_str_eq(JSON("say \"\\\" \t"), "\"say \\\"\\\\\\\\\\\" \\\\x09\"");
	ck_assert_str_eq(JSON("\xff"), "\"\\\\xff\"");
}
END_TEST

START_TEST(what_only_looks_like_utf8_is_escaped)
{
	ck_assert_str_eq(PLAIN("\xc0\xaf"), "\\xc0\\xaf");          /* longer than needed */
	ck_assert_str_eq(PLAIN("\xed\xa0\x80"), "\\xed\\xa0\\x80"); /* half of a pair */
	ck_assert_str_eq(PLAIN("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80"); /* beyond the last */
	ck_assert_str_eq(PLAIN("\xe2\x82"), "\\xe2\\x82");                   /* cut */
	ck_assert_str_eq(PLAIN("\x80q"), "\\x80q");                          /* stray */
	ck_assert_str_eq(PLAIN("\xf8\x88\x80\x80\x80"), "\\xf8\\x88\\x80\\x80\\x80");
	ck_assert_str_eq(PLAIN("\xf0\x9f\xa6\x86"), "\xf0\x9f\xa6\x86");
}
END_TEST

START_TEST(numbers_keep_their_magnitude)
{
	char t[TEXT_ROOM];

	ck_assert_str_eq(text_bytes(0, t), "0");
	ck_assert_str_eq(text_bytes(1023, t), "1023 B");
	ck_assert_str_eq(text_bytes(1024, t), "1.0 KiB");
	ck_assert_str_eq(text_bytes(MIB(1) - 1, t), "1.0 MiB");
	ck_assert_str_eq(text_bytes(UINT64_MAX, t), "16.0 EiB");
	ck_assert_str_eq(text_duration(0, t), "0");
	ck_assert_str_eq(text_duration(1500, t), "1.5 us");
	ck_assert_str_eq(text_duration(90 * NS_PER_S, t), "90.0 s");
	ck_assert_str_eq(text_duration(3 * 3600 * NS_PER_S, t), "3 h 0 min");
	ck_assert_str_eq(text_duration(UINT64_MAX, t), "213503 d 23 h");
	ck_assert_str_eq(text_class(99), "?");
}
END_TEST

/* ---- a daemon that lists ---- */

static uint32_t listed; /* tensors that it says there are */
static const char *name_of(uint32_t index, char room[32])
{
	if (index == 0)
		return "bad\xff\x1bname";
	if (index == 1)
		return "";
	snprintf(room, 32, "layer.%u", index);
	return room;
}

static size_t put_record(char *to, uint32_t index)
{
	char room[32];
	const char *name = name_of(index, room);
	size_t n = strlen(name), bytes = ALIGN_UP(sizeof(struct wire_info) + n + 3, 8);
	struct wire_info w = { .bytes = (uint32_t)bytes,
			       .class_ = 2,
			       .dtype = 6,
			       .ndim = 2,
			       .name_bytes = (uint8_t)n,
			       .name_space_bytes = 3,
			       .state = 2,
			       .place = PROTOCOL_PLACE_HOST,
			       .dirty = 1,
			       .index = index,
			       .generation = 7,
			       .pins = 1,
			       .tensor_bytes = 4096,
			       .version = 3,
			       .stored_bytes = { 0, 4096, 0 },
			       .shape = { 32, 32 } };

	memcpy(to, &w, sizeof(w));
	memcpy(to + sizeof(w), name, n);
	memcpy(to + sizeof(w) + n, index % 2 ? "one" : "two", 3);
	return bytes;
}

/* What is wrong with the answers about one tensor and about waiters. */
static enum { RIGHT, CUT_SHORT, TOO_LONG } wrong;
static uint64_t waits_next; /* where WAITS says to go on, whoever asks */

static size_t put_explain(char *to)
{
	struct wire_explain x = { .index = 2,
				  .generation = 7,
				  .reasons = EXPLAIN_PINNED | EXPLAIN_TOLD,
				  .pinners = 3,
				  .pins_listed = wrong == TOO_LONG ? 9 : 1,
				  .used_ago_ns = 5,
				  .used_ago_steps = 4,
				  .needed_in_ms = UINT64_MAX,
				  .device = 0xff,
				  .policy = "lru" };
	struct wire_pin pin = { .pid = 77, .client = 3, .pins = 2, .write_pins = 1 };

	memcpy(to, &x, sizeof(x));
	memcpy(to + sizeof(x), &pin, sizeof(pin));
	return wrong == CUT_SHORT ? sizeof(x) - 8 : sizeof(x) + sizeof(pin);
}

static size_t put_wait(char *to)
{
	struct wire_wait w = { .bytes = wrong == TOO_LONG ? 4096 : 64,
			       .pid = 78,
			       .reason = WAIT_FOR_PIN,
			       .blocker_pid = 77,
			       .place = 1,
			       .since_ns = 9,
			       .name_bytes = 3,
			       .name_space_bytes = 1,
			       .client_space_bytes = 1 };

	memcpy(to, &w, sizeof(w));
	memcpy(to + sizeof(w), "a\x1b\"jk\0\0\0", 8);
	return wrong == CUT_SHORT ? 40 : 64;
}

static bool answer(struct fake *f, const struct sq_entry *e)
{
	char *payload = f->payloads + e->payload;
	uint64_t index = e->offset;
	size_t at = 0;

	if (e->opcode == OP_EXPLAIN || e->opcode == OP_WAITS) {
		fake_complete(f, e->id, 0, e->opcode == OP_WAITS ? waits_next : 0,
			      (uint32_t)(e->opcode == OP_EXPLAIN ? put_explain(payload)
								 : put_wait(payload)),
			      "");
		return true;
	}
	if (e->opcode == OP_STAT && e->index >= listed) {
		fake_complete(f, e->id, -ESTALE, 0, 0, "the tensor was destroyed");
		return true;
	}
	if (e->opcode == OP_STAT) {
		at = put_record(payload, e->index);
		fake_complete(f, e->id, 0, 0, (uint32_t)at, "");
		return true;
	}
	if (e->opcode != OP_LIST)
		return false;
	for (; index < listed && at + sizeof(struct wire_info) + 40 <= PAYLOAD_BYTES; index++)
		at += put_record(payload + at, (uint32_t)index);
	fake_complete(f, e->id, 0, index < listed ? index : 0, (uint32_t)at, "");
	return true;
}

static void start(struct fake *f, struct arguments *a, uint32_t tensors)
{
	listed = tensors;
	*f = (struct fake){ .answer = answer };
	fake_start(f);
	a->socket = f->path;
}

START_TEST(list_prints_every_tensor_on_a_line)
{
	struct arguments a = { 0 };
	struct fake f;
	off_t bytes;

	start(&f, &a, 3);
	ck_assert_int_eq(run(list_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "two/bad\\xff\\x1bname\n"));
	ck_assert_ptr_nonnull(strstr(output, "one/\n"));
	ck_assert_ptr_nonnull(strstr(output, "2:7 "));
	ck_assert_ptr_nonnull(strstr(output, "optimizer"));
	ck_assert_ptr_nonnull(strstr(output, "4.0 KiB"));
	fake_stop(&f);
}
END_TEST

START_TEST(list_prints_json_and_takes_a_namespace)
{
	struct arguments a = { .json = "", .name_space = "two" };
	struct fake f;
	off_t bytes;

	start(&f, &a, 3);
	ck_assert_int_eq(run(list_run, &a, &bytes), STATUS_OK);
	ck_assert_str_eq(
		output,
		"{\"index\":0,\"generation\":7,\"namespace\":\"two\",\"name\":"
		"\"bad\\\\xff\\\\x1bname\","
		"\"class\":\"optimizer\",\"dtype\":\"f32\",\"shape\":[32,32],\"bytes\":4096,"
		"\"version\":3,\"state\":\"resident\",\"place\":\"host\",\"dirty\":true,\"pins\":1,"
		"\"stored_bytes\":{\"hbm\":0,\"dram\":4096,\"nvme\":0}}\n"
		"{\"index\":2,\"generation\":7,\"namespace\":\"two\",\"name\":\"layer.2\","
		"\"class\":\"optimizer\",\"dtype\":\"f32\",\"shape\":[32,32],\"bytes\":4096,"
		"\"version\":3,\"state\":\"resident\",\"place\":\"host\",\"dirty\":true,\"pins\":1,"
		"\"stored_bytes\":{\"hbm\":0,\"dram\":4096,\"nvme\":0}}\n");
	fake_stop(&f);
}
END_TEST

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIST_SECONDS 60.0 /* many times slower, and still not quadratic */
#else
#define LIST_SECONDS 5.0
#endif

START_TEST(a_million_tensors_are_listed_in_five_seconds)
{
	struct arguments a = { .json = "" };
	clock_t before = clock(); /* of the processor: others may be at work */
	struct fake f;
	off_t bytes;

	start(&f, &a, 1000000);
	ck_assert_int_eq(run(list_run, &a, &bytes), STATUS_OK);
	ck_assert_int_gt(bytes, 200 * 1000000);
	ck_assert_double_lt((double)(clock() - before) / CLOCKS_PER_SEC, LIST_SECONDS);
	fake_stop(&f);
}
END_TEST

START_TEST(show_finds_names_and_handles)
{
	struct arguments a = { .operand = "layer.2" };
	struct fake f;
	off_t bytes;

	start(&f, &a, 4);
	ck_assert_int_eq(run(show_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "two/layer.2\n"));
	ck_assert_ptr_nonnull(strstr(output, "f32 [32, 32]\n"));
	ck_assert_ptr_nonnull(strstr(output, ", 1 pin\n"));
	fake_stop(&f);

	a.operand = "1:7";
	start(&f, &a, 4);
	ck_assert_int_eq(run(show_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "one/\n"));
	fake_stop(&f);
}
END_TEST

START_TEST(why_says_who_pins_it)
{
	struct arguments a = { .operand = "layer.2", .json = "" };
	struct fake f;
	off_t bytes;

	start(&f, &a, 4);
	ck_assert_msg(run(why_run, &a, &bytes) == STATUS_OK, "%s", output);
	ck_assert_ptr_nonnull(strstr(
		output, "\"device\":null,\"reasons\":[\"PINNED\",\"TOLD\"],\"policy\":\"lru\","
			"\"needed_in_ms\":null,\"score\":0,\"before_it\":null,"
			"\"before_it_least\":false,\"used_ago_ns\":5,\"used_ago_steps\":4,"
			"\"move\":null,\"waiters\":0,\"owner_pid\":0,\"held_pid\":0,\"held_ns\":0,"
			"\"pinners\":3,\"pinned_by\":[{\"pid\":77,\"client\":3,\"pins\":2,"
			"\"write_pins\":1,\"written\":false,\"waits\":false}]}\n"));
	fake_stop(&f);
	a.json = NULL;
	start(&f, &a, 4);
	ck_assert_int_eq(run(why_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "process 77 (client 3): 2 pins, 1 of them to write"));
	ck_assert_ptr_nonnull(strstr(output, "and 2 more clients\n"));
	fake_stop(&f);
}
END_TEST

START_TEST(top_names_who_waits_and_steers_no_terminal)
{
	struct arguments a = { .once = "", .interval = "0.05" };
	struct fake f;
	off_t bytes;

	start(&f, &a, 4);
	ck_assert_int_eq(run(top_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "78 k acquire gpu1  j/a\\x1b\" (0:0): a pin elsewhere "
					     "of process 77\n"));
	ck_assert_ptr_null(strchr(output, '\x1b'));
	fake_stop(&f);
	a.json = "";
	start(&f, &a, 4);
	ck_assert_int_eq(run(top_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "\"requests_waiting\":1,\"waits\":[{\"pid\":78,"));
	ck_assert_ptr_nonnull(strstr(output, "\"tensor\":\"a\\\\x1b\\\"\","));
	fake_stop(&f);
}
END_TEST

static void be_newer(struct fake *f, struct hello_reply *r)
{
	f->stats->minor = PROTOCOL_MINOR + 1;
	memset((char *)f->stats + STATS_PAGE_HEAD, 0xa5, sizeof(*f->stats) - STATS_PAGE_HEAD);
}

/* No command shows what may be something else. */
START_TEST(counters_of_another_minor_are_not_shown)
{
	static int (*const commands[])(const struct arguments *) = { status_run, top_run, peak_run,
								     quotas_run };
	struct arguments a = { .json = "", .once = "", .interval = "0.05" };
	off_t bytes;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		struct fake f = { .spoil = be_newer };

		fake_start(&f);
		a.socket = f.path;
		ck_assert_int_eq(run(commands[i], &a, &bytes), STATUS_FAILED);
		ck_assert_ptr_nonnull(strstr(output, "\"errno\":\"EPROTO\""));
		ck_assert_ptr_nonnull(strstr(output, "use what was installed with the daemon"));
		fake_stop(&f);
	}
}
END_TEST

/* Of one command, from a daemon that has just been started. */
static void expect_failure(int (*command)(const struct arguments *), struct arguments *a,
			   const char *text)
{
	struct fake f;
	off_t bytes;

	start(&f, a, 4);
	ck_assert_int_eq(run(command, a, &bytes), STATUS_FAILED);
	ck_assert_ptr_nonnull(strstr(output, "\"errno\":\"EPROTO\""));
	ck_assert_ptr_nonnull(strstr(output, text));
	fake_stop(&f);
}

START_TEST(answers_that_cannot_be_are_errors)
{
	struct arguments why = { .operand = "layer.2", .json = "" };
	struct arguments top = { .once = "", .interval = "0.05", .json = "" };

	for (wrong = CUT_SHORT; wrong <= TOO_LONG; wrong++) {
		expect_failure(why_run, &why, "a record that cannot be");
		expect_failure(top_run, &top, "a record that cannot be");
	}
	wrong = RIGHT;
	waits_next = 5; /* for ever */
	expect_failure(top_run, &top, "goes back");
}
END_TEST

START_TEST(show_says_in_json_why_it_failed)
{
	struct arguments a = { .operand = "nosuch\"\x01", .json = "" };
	struct fake f;
	off_t bytes;

	start(&f, &a, 4);
	ck_assert_int_eq(run(show_run, &a, &bytes), STATUS_FAILED);
	ck_assert_str_eq(output, "{\"error\":{\"kind\":\"failed\",\"errno\":\"ENOENT\","
				 "\"text\":\"nosuch\\\"\\\\x01: no such tensor\"}}\n");
	fake_stop(&f);

	a.operand = "9:7";
	start(&f, &a, 4);
	ck_assert_int_eq(run(show_run, &a, &bytes), STATUS_FAILED);
	ck_assert_ptr_nonnull(strstr(output, "\"errno\":\"ESTALE\""));
	fake_stop(&f);
}
END_TEST

/* Counters that grow between the two samples of one status. */
static void *grow(void *ctx)
{
	struct fake *f = ctx;

	for (int i = 0; i < 40; i++) {
		usleep(5000);
		atomic_fetch_add(&f->stats->moved_bytes[1][2], MIB(1));
		atomic_fetch_add(&f->stats->misses, 10);
	}
	return NULL;
}

START_TEST(status_shows_bytes_rates_and_stalls)
{
	struct arguments a = { .interval = "0.1", .json = "" };
	double misses = 0, moved = 0;
	const char *rates;
	pthread_t thread;
	struct fake f;
	off_t bytes;

	start(&f, &a, 0);
	atomic_store(&f.stats->tier[1].limit_bytes, GIB(1));
	atomic_store(&f.stats->tier[1].reserved_bytes, MIB(512));
	atomic_store(&f.stats->tier[1].class_bytes[3], MIB(100));
	atomic_store(&f.stats->class_stall_ns[3], 12 * NS_PER_S);
	ck_assert_int_eq(pthread_create(&thread, NULL, grow, &f), 0);
	ck_assert_int_eq(run(status_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "\"reserved_bytes\":536870912"));
	ck_assert_ptr_nonnull(strstr(output, "\"activation\":104857600"));
	rates = strstr(output, "\"rates\":");
	ck_assert_ptr_nonnull(rates);
	ck_assert_int_eq(sscanf(strstr(rates, "\"misses\":"), "\"misses\":%lf", &misses), 1);
	rates = strstr(rates, "\"dram\":{\"hbm\"");
	ck_assert_int_eq(sscanf(strstr(rates, "\"nvme\":"), "\"nvme\":%lf", &moved), 1);
	ck_assert_double_gt(misses, 0);
	/* Ten misses a MiB, 20 times or so; the page may have been read in between. */
	ck_assert_double_eq_tol(moved / misses, (double)MIB(1) / 10, (double)MIB(1) / 50);
	pthread_join(thread, NULL);
	fake_stop(&f);
}
END_TEST

/* Of a daemon that sleeps, too: the page has when it was, not how long ago. */
static void run_hung(struct arguments *a)
{
	uint64_t now_ns = clock_now_ns();
	struct fake f;
	off_t bytes;

	start(&f, a, 0);
	for (unsigned i = 0; i < 3; i++) {
		atomic_store(&f.stats->device[i].limit_bytes, GIB(1));
		snprintf(f.stats->chosen[i], sizeof(f.stats->chosen[i]), "nvme%u: direct", i);
	}
	atomic_store(&f.stats->uptime_ns, now_ns - 3600 * NS_PER_S);
	atomic_store(&f.stats->device[1].oldest_ns, now_ns - 31 * NS_PER_S);
	atomic_store(&f.stats->device[2].oldest_ns, now_ns + 3600 * NS_PER_S);
	ck_assert_int_eq(run(top_run, a, &bytes), STATUS_OK);
	fake_stop(&f);
}

START_TEST(a_lane_that_hangs_is_named_with_its_time)
{
	struct arguments a = { .once = "", .interval = "0.05" };
	const char *hangs;

	run_hung(&a);
	ck_assert_ptr_nonnull(strstr(output, "tierd up 1 h 0 min"));
	hangs = strstr(output, " s does it hang?\n");
	ck_assert_ptr_nonnull(hangs);
	ck_assert_ptr_null(strstr(hangs + 17, "hang?"));
	a.json = "";
	run_hung(&a);
	ck_assert_ptr_nonnull(strstr(output, "\"busy_ns\":0,\"oldest_ns\":0}"));
	ck_assert_ptr_nonnull(strstr(output, "\"busy_ns\":0,\"oldest_ns\":31"));
	ck_assert_ptr_nonnull(strstr(output, "\"busy_ns\":0,\"oldest_ns\":1}"));
}
END_TEST

START_TEST(status_without_rates_and_with_every_counter)
{
	struct arguments a = { .interval = "0", .all = "" };
	struct fake f;
	off_t bytes;

	start(&f, &a, 0);
	atomic_store(&f.stats->tier[1].limit_bytes, GIB(1));
	strcpy(f.stats->chosen[0], "dram: huge pages \x1b");
	ck_assert_int_eq(run(status_run, &a, &bytes), STATUS_OK);
	ck_assert_ptr_nonnull(strstr(output, "1.0 GiB"));
	ck_assert_ptr_null(strstr(output, "\nhbm ")); /* not configured */
	ck_assert_ptr_nonnull(strstr(output, "dram: huge pages \\x1b\n"));
#define X(name, unit, kind, help) ck_assert_ptr_nonnull(strstr(output, "\n" #name " "));
	STATS_SCALARS(X)
#undef X
	fake_stop(&f);
}
END_TEST

START_TEST(a_dead_daemon_is_an_error_and_no_hang)
{
	struct arguments a = { .socket = "/nonexistent/tierd.sock", .json = "" };
	off_t bytes;

	ck_assert_int_eq(run(status_run, &a, &bytes), STATUS_FAILED);
	ck_assert_ptr_nonnull(strstr(output, "\"errno\":\"ENOENT\""));
}
END_TEST

/* Of one namespace and group, whose sum is `bytes[i]` at each look. */
static bool is_growth(const uint64_t *bytes, size_t looks)
{
	struct leak_groups g = { 0 };
	bool ret;

	for (size_t i = 0; i < looks; i++) {
		struct tierd_info x = { .bytes = bytes[i] };

		strcpy(x.name, "act.7");
		leak_groups_begin(&g);
		ck_assert_int_eq(leak_groups_add(&g, &x), 0);
		g.spaces[0].moved = true;
		leak_groups_end(&g);
	}
	ck_assert_uint_eq(g.count, 1);
	ret = leak_trend_grows(&g.groups[0].bytes);
	leak_groups_free(&g);
	return ret;
}

#define GROWS(...)                                   \
	is_growth((const uint64_t[]){ __VA_ARGS__ }, \
		  sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

START_TEST(growth_is_seen_wherever_in_a_step_a_look_comes)
{
	ck_assert(GROWS(1, 2, 3, 4));
	/* Late in a step and early in the next: the same, now and then. */
	ck_assert(GROWS(1, 1, 3, 3, 4, 4));
	ck_assert(GROWS(5, 6, 6, 8));
	ck_assert(!GROWS(5, 5, 5));
	ck_assert(!GROWS(1, 2, 2, 2));
	ck_assert(!GROWS(1, 3, 2, 4));
	ck_assert(!GROWS(5, 5));
	ck_assert(!GROWS(5));
}
END_TEST

UNIT_MAIN("tierctl", names_cannot_steer_a_terminal_nor_break_json,
	  what_only_looks_like_utf8_is_escaped, numbers_keep_their_magnitude,
	  list_prints_every_tensor_on_a_line, list_prints_json_and_takes_a_namespace,
	  a_million_tensors_are_listed_in_five_seconds, show_finds_names_and_handles,
	  why_says_who_pins_it, top_names_who_waits_and_steers_no_terminal,
	  answers_that_cannot_be_are_errors, show_says_in_json_why_it_failed,
	  status_shows_bytes_rates_and_stalls, a_lane_that_hangs_is_named_with_its_time,
	  status_without_rates_and_with_every_counter, a_dead_daemon_is_an_error_and_no_hang,
	  counters_of_another_minor_are_not_shown, growth_is_seen_wherever_in_a_step_a_look_comes)

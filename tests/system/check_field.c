/* SPDX-License-Identifier: Apache-2.0
 *
 * What went wrong with other projects in the field, tried on a real tierd: bytes of others in
 * recycled memory, clean data written again, one read for many askers, names that collide, files
 * that fill the disk, fragmentation, slow devices, what many tensors cost.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tests/fake/bytes.h"
#include "tests/system/system.h"

#define CONFIG                                   \
	"tensors: 64Ki\n"                        \
	"linger: 100ms\n"                        \
	"staging: 2MiB\n"                        \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 4MiB}\n" \
	"  dram: {size: 10MiB}\n"                \
	"  nvme: {paths: [{path: @NVME@, size: 48MiB}], block: 64KiB}\n"
#define WAIT_NS (20 * (int64_t)NS_PER_S)

static struct system tierd_system;
static struct system *const s = &tierd_system;

static struct tierd *connected(const char *name_space)
{
	struct tierd *t;

	ck_assert_msg(tierd_open(s->socket, name_space, 0, &t) == 0, "%s", tierd_error(NULL));
	return t;
}

static tierd_tensor make(struct tierd *t, const char *name, uint64_t bytes)
{
	struct tierd_spec spec = { .name = name, .ndim = 1, .shape = { bytes } };
	tierd_tensor h;

	ck_assert_msg(tierd_create(t, &spec, 1, &h) == 0, "%s", tierd_error(t));
	return h;
}

static struct tierd_view hold(struct tierd *t, tierd_tensor h, int place, uint32_t access)
{
	struct tierd_view v;

	if (tierd_acquire(t, h, place, access, WAIT_NS, &v) < 0)
		system_fail(s, "acquire of %u: %s", h.index, tierd_error(t));
	return v;
}

static void fill(struct tierd *t, tierd_tensor h, int place, int byte)
{
	struct tierd_view v = hold(t, h, place, TIERD_WRITE);

	bytes_fill(v.data, byte, v.bytes);
	tierd_release(t, &v);
}

static void expect(struct tierd *t, tierd_tensor h, int place, int byte)
{
	struct tierd_view v = hold(t, h, place, TIERD_READ);

	ck_assert(system_bytes_are(v.data, (unsigned char)byte, v.bytes));
	tierd_release(t, &v);
}

static uint64_t moved(struct tierd *t, int from, int to)
{
	struct tierd_stats stats;

	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	return stats.moved_bytes[from][to];
}

/* Other tensors push everything out of hbm and dram. */
static void sweep(struct tierd *t)
{
	tierd_tensor h[12];

	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		h[i] = make(t, NULL, MIB(1));
		fill(t, h[i], i % 2 ? TIERD_HOST : 0, 0xee);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		expect(t, h[i], TIERD_HOST, 0xee);
	ck_assert_int_eq(tierd_destroy(t, h, ARRAY_SIZE(h)), 0);
}

static bool no_byte_is(const void *data, unsigned char byte, size_t bytes)
{
	return memchr(data, byte, bytes) == NULL;
}

/* A discarding writer need not find zeros, but nothing of another namespace either. */
START_TEST(recycled_bytes_are_never_those_of_another_namespace)
{
	const uint64_t sizes[] = { 1, 511, 513, 4097, KIB(64), MIB(1) - 1, MIB(3) };
	struct tierd *a, *b;

	system_start(s, CONFIG);
	a = connected("a");
	b = connected("b");
	for (unsigned n = 0; n < 4 * ARRAY_SIZE(sizes); n++) {
		int place = n % 2 ? TIERD_HOST : 0;
		uint32_t access = TIERD_WRITE | (n / 2 % 2 ? TIERD_DISCARD : TIERD_READ);
		uint64_t bytes = sizes[n / 4];
		tierd_tensor old[2] = { make(a, NULL, bytes), make(a, NULL, bytes) }, h;
		struct tierd_view v;

		fill(a, old[0], place, 0x5a);
		fill(a, old[1], place, 0x5a);
		ck_assert_int_eq(tierd_evict(a, old, 2), 0);
		ck_assert_int_eq(tierd_destroy(a, old, 2), 0);
		h = make(b, NULL, bytes);
		v = hold(b, h, place, access);
		ck_assert_msg(no_byte_is(v.data, 0x5a, v.bytes), "%lu bytes, place %d, access %u",
			      (unsigned long)bytes, place, access);
		if (!(access & TIERD_DISCARD))
			ck_assert(system_bytes_are(v.data, 0, v.bytes));
		tierd_release(b, &v);
		ck_assert_int_eq(tierd_destroy(b, &h, 1), 0);
	}
	tierd_close(a);
	tierd_close(b);
	system_stop(s);
}
END_TEST

START_TEST(a_shorter_tensor_shows_nothing_of_the_one_before)
{
	struct tierd *t;
	tierd_tensor h;

	system_start(s, CONFIG);
	t = connected("a");
	for (unsigned n = 0; n < 6; n++) {
		uint64_t shorter = n % 2 ? 4097 : 10;

		h = make(t, "slot", n % 3 ? 8192 : MIB(1));
		fill(t, h, TIERD_HOST, 0x77);
		sweep(t);
		ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
		h = make(t, "slot", shorter);
		fill(t, h, TIERD_HOST, 0x11);
		sweep(t);
		expect(t, h, n % 2 ? TIERD_HOST : 0, 0x11);
		ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
	}
	tierd_close(t);
	system_stop(s);
}
END_TEST

START_TEST(what_was_only_read_is_not_written_again)
{
	struct tierd *t;
	uint64_t written;
	tierd_tensor h[8];

	system_start(s, CONFIG);
	t = connected("a");
	for (unsigned i = 0; i < 8; i++)
		fill(t, h[i] = make(t, NULL, MIB(1)), TIERD_HOST, (int)i);
	ck_assert_int_eq(tierd_flush(t, h, 8), 0);
	written = moved(t, TIERD_DRAM, TIERD_NVME);
	ck_assert_uint_ge(written, MIB(8));
	for (unsigned n = 0; n < 10 * 8; n++) {
		expect(t, h[n % 8], n % 3 ? TIERD_HOST : 0, (int)(n % 8));
		ck_assert_int_eq(tierd_evict(t, &h[n % 8], 1), 0);
	}
	ck_assert_int_eq(tierd_flush(t, h, 8), 0);
	ck_assert_uint_eq(moved(t, TIERD_DRAM, TIERD_NVME), written);
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* ---- many askers ---- */

#define ASKERS 24u

struct asking {
	int go; /* its end is the signal */
	const char *name;
};

static void asker(struct system *unused, void *arg)
{
	const struct asking *a = arg;
	struct tierd *t;
	tierd_tensor h;
	struct tierd_view v;
	char byte;

	if (tierd_open(s->socket, "a", 0, &t) < 0 || tierd_lookup(t, a->name, &h) < 0 ||
	    read(a->go, &byte, 1) != 0 ||
	    tierd_acquire(t, h, TIERD_HOST, TIERD_READ, WAIT_NS, &v) < 0 ||
	    !system_bytes_are(v.data, 0x42, v.bytes))
		_exit(1);
	tierd_release(t, &v);
	tierd_close(t);
}

START_TEST(one_read_serves_all_who_ask_at_once)
{
	struct asking a = { .name = "shared" };
	pid_t pid[ASKERS];
	uint64_t before;
	struct tierd *t;
	int fds[2];

	system_start(s, CONFIG);
	t = connected("a");
	fill(t, make(t, "shared", MIB(4)), TIERD_HOST, 0x42);
	sweep(t);
	before = moved(t, TIERD_NVME, TIERD_DRAM);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	a.go = fds[0];
	for (unsigned i = 0; i < ASKERS; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			close(fds[1]);
			asker(s, &a);
			_exit(0);
		}
	}
	usleep(100000); /* a late one only makes the test weaker */
	close(fds[1]);
	for (unsigned i = 0; i < ASKERS; i++)
		system_child_end(s, pid[i], 30000);
	ck_assert_uint_eq(moved(t, TIERD_NVME, TIERD_DRAM) - before, MIB(4));
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* ---- names ---- */

START_TEST(names_are_bytes_and_never_paths)
{
	static char longest[TIERD_NAME_MAX + 1], too_long[65537];
	const char *const names[] = { "a/b",         "a_b", "a-SEP-b",  "..",
				      "../../etc/x", ".",   "%2f",      "a\nb",
				      "\xff\xfe",    "A_B", "\xc3\xa9", "e\xcc\x81",
				      " ",           "a b", "*",        longest,
				      "tierd.sock",  "-",   "\x1b[2J",  "con" };
	tierd_tensor h[ARRAY_SIZE(names)], found;
	struct tierd_spec spec = { .name = "", .ndim = 1, .shape = { 8 } };
	struct tierd *t;

	memset(longest, 'n', sizeof(longest) - 1);
	memset(too_long, 'n', sizeof(too_long) - 1);
	system_start(s, CONFIG);
	t = connected("../..");
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		fill(t, h[i] = make(t, names[i], 4096 + i), TIERD_HOST, (int)i + 1);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		ck_assert_int_eq(tierd_lookup(t, names[i], &found), 0);
		ck_assert_int_eq(memcmp(&found, &h[i], sizeof(found)), 0);
		expect(t, found, 0, (int)i + 1);
	}
	ck_assert_int_eq(tierd_create(t, &spec, 1, &found), -EINVAL);
	spec.name = too_long;
	ck_assert_int_eq(tierd_create(t, &spec, 1, &found), -EINVAL);
	too_long[256] = '\0';
	ck_assert_int_eq(tierd_create(t, &spec, 1, &found), -EINVAL);
	ck_assert_int_eq(tierd_lookup(t, "", &found), -EINVAL);
	tierd_close(t);
	system_stop(s); /* fails if a file is left beside what was there */
}
END_TEST

/* ---- space ---- */

static bool becomes_ready(int timeout_s)
{
	uint64_t end_ns = clock_now_ns() + (uint64_t)timeout_s * NS_PER_S;
	int status;

	while (!system_tries(s, &status)) {
		if (clock_now_ns() > end_ns)
			return false;
		usleep(10000);
	}
	return true;
}

/* A disk with room for one daemon's file: what a killed one left would keep the next from starting.
 * (The kernel gives a file of io_uring back a little after its process.) */
START_TEST(daemons_that_were_killed_leave_no_bytes_on_the_disk)
{
	char foreign[160], line[16] = "";
	FILE *f;

	if (geteuid() != 0)
		return;
	system_prepare(s, "tiers: {dram: {size: 8MiB}, nvme: {paths: [{path: @NVME@, size: "
			  "48MiB}], block: 64KiB}}\n");
	ck_assert_int_eq(mount("tierd-test", s->nvme, "tmpfs", 0, "size=64m"), 0);
	snprintf(foreign, sizeof(foreign), "%s/tierd.data", s->nvme);
	f = fopen(foreign, "w");
	ck_assert(f != NULL && fputs("mine", f) >= 0 && fclose(f) == 0);
	for (unsigned i = 0; i < 5; i++) {
		if (!becomes_ready(30))
			system_fail(s, "start %u", i);
		system_kill(s);
	}
	f = fopen(foreign, "r");
	ck_assert(f != NULL && fgets(line, sizeof(line), f) != NULL && fclose(f) == 0);
	ck_assert_str_eq(line, "mine");
	ck_assert_int_eq(unlink(foreign), 0);
	ck_assert(becomes_ready(30));
	system_end(s);
	ck_assert_int_eq(umount2(s->nvme, MNT_DETACH), 0);
	system_stop(s);
}
END_TEST

/* Half of the tier is free in holes that are all too small, and nothing can go below. */
START_TEST(only_compaction_makes_room_in_a_crowded_tier)
{
	tierd_tensor h[30], large;
	struct tierd *t;

	system_start(s, "tiers: {dram: {size: 16MiB}}\n");
	t = connected("a");
	for (unsigned i = 0; i < 30; i++)
		fill(t, h[i] = make(t, NULL, KIB(512) - i % 3 * 512), TIERD_HOST, (int)i + 1);
	for (unsigned i = 0; i < 30; i += 2)
		ck_assert_int_eq(tierd_destroy(t, &h[i], 1), 0);
	for (unsigned round = 0; round < 3; round++) {
		large = make(t, NULL, MIB(7));
		fill(t, large, TIERD_HOST, 0x99);
		for (unsigned i = 1; i < 30; i += 2)
			expect(t, h[i], TIERD_HOST, (int)i + 1);
		expect(t, large, TIERD_HOST, 0x99);
		ck_assert_int_eq(tierd_destroy(t, &large, 1), 0);
	}
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* The holes are a twentieth of what stands between them, which is copied in several pieces. */
START_TEST(large_tensors_come_down_over_their_own_place)
{
	static const uint64_t sizes[] = { KIB(256), MIB(5), KIB(256), MIB(5), KIB(256), MIB(4) };
	struct tierd_spec rest = { .ndim = 1, .shape = { KIB(64) } };
	tierd_tensor h[6], large, filler[64];
	struct tierd *t;
	unsigned n = 0;

	system_start(s, "tiers: {dram: {size: 16MiB}}\n");
	t = connected("a");
	for (unsigned i = 0; i < 6; i++)
		fill(t, h[i] = make(t, NULL, sizes[i]), TIERD_HOST, (int)i + 1);
	for (; n < 64 && tierd_create(t, &rest, 1, &filler[n]) == 0; n++)
		fill(t, filler[n], TIERD_HOST, 0x77);
	ck_assert_uint_lt(n, 64);
	for (unsigned i = 0; i < 6; i += 2)
		ck_assert_int_eq(tierd_destroy(t, &h[i], 1), 0);
	fill(t, large = make(t, NULL, KIB(768)), TIERD_HOST, 0x99);
	for (unsigned i = 1; i < 6; i += 2)
		expect(t, h[i], TIERD_HOST, (int)i + 1);
	expect(t, large, TIERD_HOST, 0x99);
	while (n-- > 0)
		expect(t, filler[n], TIERD_HOST, 0x77);
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* Every ring of k slots over n layers, the slots being what hbm has room for. */
START_TEST(prefetch_rings_of_any_length_give_the_right_layer)
{
	const unsigned layers = getenv("TIERD_TEST_LONG") ? 17 : 9;
	tierd_tensor h[17];
	struct tierd *t;

	system_start(s, CONFIG);
	t = connected("a");
	for (unsigned i = 0; i < layers; i++)
		fill(t, h[i] = make(t, NULL, MIB(1) - 7), TIERD_HOST, (int)i + 1);
	for (unsigned n = 1; n <= layers; n++)
		for (unsigned k = 1; k <= n; k++)
			for (unsigned at = 0; at < 3 * n; at++) {
				ck_assert_int_eq(tierd_prefetch(t, &h[(at + k) % n], 1, 0), 0);
				expect(t, h[at % n], 0, (int)(at % n) + 1);
			}
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* What was acknowledged is found, at three times what dram holds. */
START_TEST(everything_that_was_stored_is_found)
{
	enum { MANY = 3000 };
	static tierd_tensor h[MANY];
	struct tierd *t;

	system_start(s, CONFIG);
	t = connected("a");
	for (unsigned i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "t%u", i);
		fill(t, h[i] = make(t, name, 4096 + i % 3), TIERD_HOST, (int)(i % 250) + 1);
	}
	for (unsigned i = 0; i < MANY; i++) {
		char name[16];
		tierd_tensor found;

		snprintf(name, sizeof(name), "t%u", i);
		ck_assert_int_eq(tierd_lookup(t, name, &found), 0);
		ck_assert_int_eq(memcmp(&found, &h[i], sizeof(found)), 0);
		expect(t, found, TIERD_HOST, (int)(i % 250) + 1);
	}
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* All of it is read and written each step, and dram holds half: what changed once goes down once.
 */
START_TEST(a_change_is_written_once)
{
	enum { STEPS = 8, MANY = 16 };
	tierd_tensor h[MANY];
	struct tierd *t;
	uint64_t written;

	system_start(s, CONFIG);
	t = connected("a");
	for (unsigned i = 0; i < MANY; i++)
		h[i] = make(t, NULL, MIB(1));
	for (unsigned n = 0; n < STEPS * MANY; n++) {
		struct tierd_view v = hold(t, h[n % MANY], TIERD_HOST, TIERD_READ | TIERD_WRITE);

		ck_assert(system_bytes_are(v.data, (unsigned char)(n / MANY), v.bytes));
		bytes_fill(v.data, (int)(n / MANY) + 1, v.bytes);
		tierd_release(t, &v);
	}
	ck_assert_int_eq(tierd_flush(t, h, MANY), 0);
	written = moved(t, TIERD_DRAM, TIERD_NVME);
	ck_assert_uint_ge(written, MIB(MANY));
	ck_assert_uint_le(written, STEPS * MIB(MANY) * 11 / 10);
	tierd_close(t);
	system_stop(s);
}
END_TEST

#define SLOW_NVME                                                       \
	"tensors: 4Ki\n"                                                \
	"tiers:\n"                                                      \
	"  dram: {size: 16MiB}\n"                                       \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB, " \
	"fault: {delay: 1500ms}}\n"

/* Not one of the writes has ended when all of this is done. */
START_TEST(a_slow_device_holds_up_nobody_who_needs_nothing_of_it)
{
	tierd_tensor h[4], here, other;
	struct tierd *t;

	system_start(s, SLOW_NVME);
	t = connected("a");
	for (unsigned i = 0; i < 4; i++)
		fill(t, h[i] = make(t, NULL, MIB(1)), TIERD_HOST, (int)i + 1);
	fill(t, here = make(t, NULL, KIB(64)), TIERD_HOST, 0x77);
	ck_assert_int_eq(tierd_evict(t, h, 4), 0);
	usleep(100000); /* the writes are out; a late one only makes the test weaker */
	for (unsigned n = 0; n < 500; n++) {
		expect(t, here, TIERD_HOST, 0x77);
		if (n % 100 != 0)
			continue;
		fill(t, other = make(t, NULL, KIB(64)), TIERD_HOST, 0x33);
		ck_assert_int_eq(tierd_destroy(t, &other, 1), 0);
	}
	ck_assert_uint_eq(moved(t, TIERD_DRAM, TIERD_NVME), 0);
	ck_assert_int_eq(tierd_flush(t, h, 4), 0);
	ck_assert_uint_eq(moved(t, TIERD_DRAM, TIERD_NVME), MIB(4));
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* ---- many tensors ---- */

/* Payloads and rings hold fewer: what they are cut into shows nowhere. */
START_TEST(any_number_of_tensors_goes_in_one_call)
{
	enum { MANY = 5000 };
	static const unsigned counts[] = { 1023, 1024, 1025, MANY };
	static struct tierd_spec specs[MANY];
	static tierd_tensor h[MANY];
	struct tierd *t;

	system_start(s, CONFIG);
	t = connected("a");
	for (unsigned i = 0; i < MANY; i++)
		specs[i] = (struct tierd_spec){ .ndim = 1, .shape = { 4096 } };
	ck_assert_int_eq(tierd_create(t, specs, MANY, h), 0);
	for (unsigned i = 0; i < MANY; i++)
		fill(t, h[i], TIERD_HOST, (int)(i % 251) + 1);
	for (unsigned c = 0; c < ARRAY_SIZE(counts); c++) {
		ck_assert_int_eq(tierd_evict(t, h, counts[c]), 0);
		ck_assert_int_eq(tierd_flush(t, h, counts[c]), 0);
		ck_assert_int_eq(tierd_prefetch(t, h, counts[c], c % 2 ? 0 : TIERD_HOST), 0);
		for (unsigned i = 0; i < counts[c]; i++)
			expect(t, h[i], c % 2 ? 0 : TIERD_HOST, (int)(i % 251) + 1);
	}
	ck_assert_int_eq(tierd_destroy(t, h, MANY), 0);
	tierd_close(t);
	system_stop(s);
}
END_TEST

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define BYTES_A_TENSOR 100000u /* says nothing there */
#define MAPS_MORE      1000000u
#else
#define BYTES_A_TENSOR 400u
#define MAPS_MORE      16u /* malloc's */
#endif

/* None has anything of the kernel's to itself, on either side. */
START_TEST(tensors_cost_no_descriptor_no_mapping_and_little_memory)
{
	enum { MANY = 100000, BATCH = 1000 };
	static struct tierd_spec specs[BATCH];
	static tierd_tensor h[MANY];
	struct system_holdings its, mine, its_then, mine_then;
	struct tierd *t;
	uint64_t begin_ns;

	system_start(s, "tensors: 128Ki\ntiers: {dram: {size: 128MiB}}\n");
	t = connected("a");
	for (unsigned i = 0; i < BATCH; i++)
		specs[i] = (struct tierd_spec){ .ndim = 1, .shape = { 16 } };
	for (unsigned i = 0; i < MANY; i += BATCH) {
		ck_assert_msg(tierd_create(t, specs, BATCH, h + i) == 0, "%s", tierd_error(t));
		for (unsigned k = i; k < i + BATCH; k += 100)
			fill(t, h[k], TIERD_HOST, (int)(k % 251) + 1);
		if (i == 0) {
			its = system_holdings(s->pid);
			mine = system_holdings(getpid());
		}
	}
	for (unsigned k = 0; k < MANY; k += 100)
		expect(t, h[k], TIERD_HOST, (int)(k % 251) + 1);
	its_then = system_holdings(s->pid);
	mine_then = system_holdings(getpid());
	ck_assert_uint_eq(its_then.descriptors, its.descriptors);
	ck_assert_uint_eq(mine_then.descriptors, mine.descriptors);
	ck_assert_uint_le(its_then.maps, its.maps + MAPS_MORE);
	ck_assert_uint_le(mine_then.maps, mine.maps + MAPS_MORE);
	ck_assert_uint_le(its_then.resident_bytes - its.resident_bytes,
			  (uint64_t)MANY * BYTES_A_TENSOR);
	begin_ns = clock_now_ns();
	system_end(s);
	ck_assert_uint_lt(clock_now_ns() - begin_ns, 5 * NS_PER_S);
	tierd_close(t);
	system_stop(s);
}
END_TEST

UNIT_MAIN("field", recycled_bytes_are_never_those_of_another_namespace,
	  a_shorter_tensor_shows_nothing_of_the_one_before, what_was_only_read_is_not_written_again,
	  one_read_serves_all_who_ask_at_once, names_are_bytes_and_never_paths,
	  daemons_that_were_killed_leave_no_bytes_on_the_disk,
	  only_compaction_makes_room_in_a_crowded_tier,
	  large_tensors_come_down_over_their_own_place,
	  prefetch_rings_of_any_length_give_the_right_layer, everything_that_was_stored_is_found,
	  a_change_is_written_once, a_slow_device_holds_up_nobody_who_needs_nothing_of_it,
	  any_number_of_tensors_goes_in_one_call,
	  tensors_cost_no_descriptor_no_mapping_and_little_memory)

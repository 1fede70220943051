/* SPDX-License-Identifier: Apache-2.0
 *
 * Lengths around those at which a kernel's or a program's own counts of 31 or 32 bits end. Always:
 * bytes beside every such border of tensors that are holes otherwise. With TIERD_TEST_LONG every
 * byte, by one call of that length, and through all tiers.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/system/client_rig.h"
#include "tests/system/tierctl_rig.h"

/* The kernel moves 2^31 - 4096 bytes by one call at most. */
static const uint64_t borders[] = { (1ull << 31) - 4096, 1ull << 31, 1ull << 32 };
static const uint64_t lengths[] = {
	(1ull << 31) - 4097, (1ull << 31) - 4096, (1ull << 31) - 4095, (1ull << 31) - 1, 1ull << 31,
	(1ull << 32) - 1,    1ull << 32,          (1ull << 32) + 1,    5ull << 30,
};

#define LONGEST (5ull << 30)
#define SHORT                     \
	"tensors: 4Ki\n"          \
	"tiers:\n"                \
	"  dram: {size: 64MiB}\n" \
	"  nvme: {paths: [{path: @NVME@, size: 11GiB}]}\n"

/* ---- bytes: the one at `offset` is pattern[offset % PERIOD] ---- */

/* A prime number of pages, so that no two places that differ by a power of two look alike. */
#define PERIOD (4099ull * 4096)

static unsigned char *pattern; /* twice in a row */
static int pattern_fd;

static void pattern_make(void)
{
	uint64_t x = 88172645463325252ull;

	pattern_fd = memfd_create("pattern", MFD_CLOEXEC);
	ck_assert_int_ge(pattern_fd, 0);
	ck_assert_int_eq(ftruncate(pattern_fd, (off_t)PERIOD), 0);
	pattern = mmap(NULL, 2 * PERIOD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(pattern, MAP_FAILED);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_ptr_ne(mmap(pattern + i * PERIOD, PERIOD, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, pattern_fd, 0),
				 MAP_FAILED);
	for (uint64_t i = 0; i < PERIOD; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(pattern + i, &x, sizeof(x));
	}
}

/* All of it in one piece, without the memory. */
static const unsigned char *pattern_at_length(void)
{
	unsigned char *at =
		mmap(NULL, LONGEST + PERIOD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	for (uint64_t o = 0; o < LONGEST; o += PERIOD)
		ck_assert_ptr_ne(
			mmap(at + o, PERIOD, PROT_READ, MAP_SHARED | MAP_FIXED, pattern_fd, 0),
			MAP_FAILED);
	return at;
}

static void pattern_put(unsigned char *to, uint64_t offset, uint64_t bytes)
{
	for (uint64_t done = 0, n; done < bytes; done += n) {
		n = MIN(bytes - done, PERIOD);
		memcpy(to + done, pattern + (offset + done) % PERIOD, n);
	}
}

static void pattern_must(const unsigned char *at, uint64_t offset, uint64_t bytes)
{
	for (uint64_t done = 0, n; done < bytes; done += n) {
		n = MIN(bytes - done, PERIOD);
		if (memcmp(at + done, pattern + (offset + done) % PERIOD, n) != 0)
			system_fail(s, "wrong bytes in the %llu at %llu", (unsigned long long)n,
				    (unsigned long long)(offset + done));
	}
}

static void must(int rc, const char *what, uint64_t bytes)
{
	if (rc < 0)
		system_fail(s, "%s of %llu bytes: %s", what, (unsigned long long)bytes,
			    tierd_error(t));
}

/* ---- holes ---- */

#define BESIDE 3001u

struct window {
	uint64_t offset, bytes;
};

/* Beside the begin, the end and every border that the tensor has. */
static unsigned windows_of(uint64_t length, struct window ret[5])
{
	unsigned n = 0;

	ret[n++] = (struct window){ 0, BESIDE };
	for (unsigned i = 0; i < ARRAY_SIZE(borders); i++)
		if (borders[i] + BESIDE < length)
			ret[n++] = (struct window){ borders[i] - BESIDE, 2 * BESIDE };
	ret[n++] = (struct window){ length - BESIDE, BESIDE };
	return n;
}

static void length_is_told(tierd_tensor h, uint64_t length)
{
	struct tierd_info info;
	char text[64];

	must(tierd_stat(t, h, &info), "stat", length);
	ck_assert_uint_eq(info.bytes, length);
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "show", "long"), 0);
	snprintf(text, sizeof(text), "\"bytes\":%llu", (unsigned long long)length);
	ck_assert_msg(tierctl_says(text), "no %s in %s", text, tierctl_said);
}

static void beside_borders(uint64_t length)
{
	unsigned char bytes[2 * BESIDE];
	struct window w[5];
	unsigned n = windows_of(length, w);
	tierd_tensor h = make_named("long", length);

	for (unsigned i = 0; i < n; i++) {
		pattern_put(bytes, w[i].offset, w[i].bytes);
		must(tierd_copy_in(t, h, w[i].offset, bytes, w[i].bytes), "copy in", w[i].bytes);
	}
	for (unsigned i = 0; i < n; i++) {
		must(tierd_copy_out(t, h, w[i].offset, bytes, w[i].bytes), "copy out", w[i].bytes);
		pattern_must(bytes, w[i].offset, w[i].bytes);
	}
	/* What lies between was never written. */
	for (unsigned i = 0; i + 1 < n; i++) {
		uint64_t after = w[i].offset + w[i].bytes;

		if (after + BESIDE > w[i + 1].offset)
			continue;
		must(tierd_copy_out(t, h, after, bytes, BESIDE), "copy out", BESIDE);
		ck_assert(system_bytes_are(bytes, 0, BESIDE));
	}
	ck_assert_int_eq(tierd_copy_out(t, h, length - 1, bytes, 2), -EINVAL);
	ck_assert_int_eq(tierd_copy_in(t, h, length, bytes, 1), -EINVAL);
	ck_assert_int_eq(tierd_copy_in(t, h, 1, bytes, length), -EINVAL);
	length_is_told(h, length);
	ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
}

START_TEST(bytes_beside_borders_of_31_and_32_bits_are_their_own)
{
	pattern_make();
	system_start(s, SHORT);
	connect_as("job");
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++)
		beside_borders(lengths[i]);
	end();
}
END_TEST

/* ---- every byte ---- */

static bool at_length(uint64_t memory)
{
	if (!getenv("TIERD_TEST_LONG"))
		return false;
#ifdef __SANITIZE_THREAD__
	return false; /* four bytes of its own for each */
#endif
	if ((uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >= memory)
		return true;
	printf("skipped: %llu GiB of memory are wanted\n", (unsigned long long)(memory >> 30));
	return false;
}

START_TEST(one_call_copies_any_length)
{
	const unsigned char *from;
	unsigned char *to;

	if (!at_length(GIB(7)))
		return;
	pattern_make();
	from = pattern_at_length();
	to = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(to, MAP_FAILED);
	system_start(s, SHORT);
	connect_as("job");
	for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
		tierd_tensor h = make(lengths[i]);

		must(tierd_copy_in(t, h, 0, from, lengths[i]), "copy in", lengths[i]);
		must(tierd_copy_out(t, h, 0, to, lengths[i]), "copy out", lengths[i]);
		pattern_must(to, 0, lengths[i]);
		ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
	}
	munmap(to, LONGEST);
	end();
}
END_TEST

/* From dram to nvme, since another takes all of dram, back, and on to the GPU. */
static void through_all_tiers(tierd_tensor other, uint64_t length)
{
	tierd_tensor h = make(length);
	struct tierd_stats before, after;
	struct tierd_view v;

	must(tierd_stats(t, &before), "stats", 0);
	must(tierd_acquire(t, h, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD, -1, &v), "acquire",
	     length);
	ck_assert_uint_eq(v.bytes, length);
	pattern_put(v.data, 0, length);
	tierd_release(t, &v);
	must(tierd_acquire(t, other, TIERD_HOST, TIERD_READ, -1, &v), "acquire", LONGEST);
	tierd_release(t, &v);
	must(tierd_acquire(t, h, TIERD_HOST, TIERD_READ, -1, &v), "acquire", length);
	pattern_must(v.data, 0, length);
	tierd_release(t, &v);
	must(tierd_acquire(t, h, 0, TIERD_READ, -1, &v), "acquire", length);
	pattern_must(v.data, 0, length);
	tierd_release(t, &v);
	must(tierd_stats(t, &after), "stats", 0);
	ck_assert_uint_ge(after.moved_bytes[TIERD_DRAM][TIERD_NVME] -
				  before.moved_bytes[TIERD_DRAM][TIERD_NVME],
			  length);
	ck_assert_uint_ge(after.moved_bytes[TIERD_DRAM][TIERD_HBM] -
				  before.moved_bytes[TIERD_DRAM][TIERD_HBM],
			  length);
	ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
}

START_TEST(tensors_of_any_length_go_through_all_tiers)
{
	tierd_tensor other;

	if (!at_length(GIB(13)))
		return;
	pattern_make();
	system_start(s, "tensors: 4Ki\n"
			"tiers:\n"
			"  hbm: {backend: memory, size: 5632MiB}\n"
			"  dram: {size: 5632MiB, huge_pages: off}\n"
			"  nvme: {paths: [{path: @NVME@, size: 16GiB}]}\n");
	connect_as("job");
	other = make(LONGEST);
	/* 2^31 - 4096, 2^31, 2^32 + 1 */
	for (unsigned i = 1; i < ARRAY_SIZE(lengths); i += 3)
		through_all_tiers(other, lengths[i]);
	end();
}
END_TEST

UNIT_MAIN("lengths", bytes_beside_borders_of_31_and_32_bits_are_their_own,
	  one_call_copies_any_length, tensors_of_any_length_go_through_all_tiers)

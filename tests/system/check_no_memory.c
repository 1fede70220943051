/* SPDX-License-Identifier: Apache-2.0
 *
 * A real tierd whose n-th allocation finds no memory, for every n: a start ends with a sentence and
 * leaves nothing, a daemon that serves tells who asked, and goes on for everybody.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tests/fake/bytes.h"
#include "tests/system/system.h"

static struct system tierd_system;
static struct system *const s = &tierd_system;

/* Every kind of tier, slabs, quotas, a policy of each kind, and another domain. */
static const char machine[] =
	"tensors: 256\n"
	"linger: 0s\n"
	"tiers:\n"
	"  hbm:  {backend: memory, size: 4MiB, slab: 2MiB}\n"
	"  dram: {size: 6MiB}\n"
	"  nvme: {paths: [{path: @NVME@, size: 16MiB}], block: 64KiB, queue_depth: 4}\n"
	"classes: {parameter: {policy: next_use}, gradient: {policy: hotness},\n"
	"          optimizer: {policy: pin_fraction}, other: {policy: fifo}}\n"
	"namespaces: [{name: quota, hbm: {limit: 50%}}]\n"
	"domains: [{name: other, users: [nobody], dram: 2MiB, nvme: 4MiB}]\n";

#define ALL_MOST 1000u /* more than there are */
/* Each costs a daemon: all of them with TIERD_TEST_LONG. Those that begin a workload let clients
 * in and are met one by one; the engine's are what the simulator goes through by seed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define START_STEP 4u
#define WORK_STEP  24u
#else
#define START_STEP 1u
#define WORK_STEP  16u
#endif
#define WORK_EACH 8u

static unsigned step_of(unsigned usual)
{
	return getenv("TIERD_TEST_LONG") != NULL ? 1 : usual;
}

static void prepare(unsigned after)
{
	char config[1024];

	snprintf(config, sizeof(config), "%sfault: {no_memory: 100%%, after: %u, count: 1}\n",
		 machine, after);
	system_prepare(s, config);
}

static bool refused(void)
{
	return system_log_has(s, "(injected, `fault.no_memory`)");
}

/* The daemon has ended. */
static void nothing_left(unsigned n)
{
	if (system_log_has(s, "taken and not given back"))
		system_fail(s, "allocation %u: something leaked", n);
}

/* Otherwise it has ended as it should. */
static bool starts(unsigned n)
{
	int status;

	if (system_tries(s, &status))
		return true;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !refused() ||
	    !system_log_has(s, "tierd: error: "))
		system_fail(s, "allocation %u: wait status %#x", n, (unsigned)status);
	nothing_left(n);
	return false;
}

/* The first allocation that is not the start's. Each of those before, or one in so many, is
 * refused.
 */
static unsigned start_count(unsigned step)
{
	unsigned count = 0;

	for (unsigned n = 0; count == 0; n += step) {
		ck_assert_uint_lt(n, ALL_MOST);
		prepare(n);
		if (starts(n) && !refused())
			count = n;
		system_stop(s);
	}
	return count;
}

START_TEST(a_start_without_memory_ends_with_a_sentence_and_leaves_nothing)
{
	ck_assert_uint_gt(start_count(step_of(START_STEP)), 60);
}
END_TEST

/* ---- a workload ---- */

#define TENSORS 10u
#define BYTES   MIB(1)
#define SECONDS ((int64_t)NS_PER_S)

static unsigned told; /* how many calls were answered -ENOMEM */

/* What a client does that is told so: it tries again. Everything else is a failure. */
#define TRY(td, call)                                                              \
	do {                                                                       \
		int rc_ = (call);                                                  \
                                                                                   \
		if (rc_ == -ENOMEM && told++ < 2)                                  \
			rc_ = (call);                                              \
		if (rc_ < 0)                                                       \
			system_fail(s, "%s: %d: %s", #call, rc_, tierd_error(td)); \
	} while (0)

static void write_one(struct tierd *td, tierd_tensor t, int place, unsigned char with)
{
	struct tierd_view v;

	TRY(td, tierd_acquire(td, t, place, TIERD_WRITE | TIERD_DISCARD, 20 * SECONDS, &v));
	bytes_fill(v.data, with, v.bytes);
	tierd_release(td, &v);
}

static void read_one(struct tierd *td, tierd_tensor t, int place, unsigned char with)
{
	struct tierd_view v;

	TRY(td, tierd_acquire(td, t, place, TIERD_READ, 20 * SECONDS, &v));
	ck_assert(system_bytes_are(v.data, with, v.bytes));
	tierd_release(td, &v);
}

static void create(struct tierd *td, const char *name, enum tierd_class class_, tierd_tensor *ret)
{
	struct tierd_spec spec = { .name = name, .class_ = class_, .ndim = 1, .shape = { BYTES } };

	TRY(td, tierd_create(td, &spec, 1, ret));
}

/* More than dram and hbm have together, through all tiers. */
static void work(struct tierd *td)
{
	static char window[KIB(96)];
	tierd_tensor t[TENSORS];
	struct tierd_view v;

	for (unsigned i = 0; i < TENSORS; i++)
		create(td, NULL, i % 5, &t[i]);
	for (unsigned i = 0; i < TENSORS; i++)
		write_one(td, t[i], i % 3 == 0 ? 0 : TIERD_HOST, (unsigned char)(i + 1));
	TRY(td, tierd_prefetch(td, t, 2, 0));
	TRY(td, tierd_flush(td, NULL, 0));
	for (unsigned i = 0; i < TENSORS; i++)
		read_one(td, t[i], i % 2 ? 0 : TIERD_HOST, (unsigned char)(i + 1));
	TRY(td, tierd_evict(td, t, TENSORS));
	memset(window, 1, sizeof(window));
	TRY(td, tierd_copy_in(td, t[0], KIB(40), window, sizeof(window)));
	TRY(td, tierd_copy_out(td, t[0], 0, window, sizeof(window)));
	ck_assert(system_bytes_are(window, 1, sizeof(window)));
	TRY(td, tierd_acquire(td, t[1], TIERD_HOST, TIERD_READ, 20 * SECONDS, &v));
	TRY(td, tierd_destroy(td, t, TENSORS));
	ck_assert(system_bytes_are(v.data, 2, v.bytes));
	tierd_release(td, &v);
}

/* One refusal, whoever it meets. Returns whether it met anybody. */
static bool serve_short(unsigned n)
{
	struct tierd *first, *second;
	struct tierd_view held;
	tierd_tensor kept;
	bool met;

	prepare(n);
	if (!starts(n)) {
		system_stop(s);
		return true;
	}
	told = 0;
	TRY(NULL, tierd_open(s->socket, "kept", 0, &first));
	create(first, "kept", TIERD_PARAMETER, &kept);
	write_one(first, kept, TIERD_HOST, 77);
	TRY(first, tierd_acquire(first, kept, TIERD_HOST, TIERD_READ, 20 * SECONDS, &held));
	TRY(NULL, tierd_open(s->socket, "quota", 0, &second));
	work(second);
	tierd_close(second);
	ck_assert(system_bytes_are(held.data, 77, held.bytes));
	tierd_release(first, &held);
	read_one(first, kept, 0, 77);
	tierd_close(first);
	ck_assert_uint_le(told, 1);
	system_end(s);
	met = refused();
	nothing_left(n);
	system_stop(s);
	return met;
}

START_TEST(who_asks_when_there_is_no_memory_is_told_and_everybody_goes_on)
{
	unsigned first = start_count(16), n = first - 16, unmet = 0;

	/* Threads of the daemon do not take the same number each time. */
	while (unmet < 3) {
		ck_assert_uint_lt(n, ALL_MOST);
		unmet = serve_short(n) ? 0 : unmet + 1;
		n += n < first + WORK_EACH ? 1 : step_of(WORK_STEP);
	}
	ck_assert_uint_gt(n, first + 100);
}
END_TEST

UNIT_MAIN("no_memory", a_start_without_memory_ends_with_a_sentence_and_leaves_nothing,
	  who_asks_when_there_is_no_memory_is_told_and_everybody_goes_on)

/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of one job that keeps another job from what that is guaranteed of a GPU, on a real
 * tierd: it is told of, cut off or ended, as the configuration says, and its bytes stay as long as
 * it lives.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/admin.h"
#include "tests/fake/bytes.h"
#include "tests/system/system.h"

#define CONFIG                                                           \
	"tensors: 4Ki\n"                                                 \
	"tiers:\n"                                                       \
	"  hbm: {backend: memory, size: 4MiB}\n"                         \
	"  dram: {size: 16MiB}\n"                                        \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB}\n" \
	"namespaces:\n"                                                  \
	"  - {name: borrower, hbm: {guarantee: 1MiB}}\n"                 \
	"  - {name: owner, hbm: {guarantee: 2MiB}}\n"
#define GPU      0
#define HELD     4u    /* of a MiB: all of the GPU */
#define PATIENCE 20000 /* ms */
#define MUST(cond)                                                                   \
	do {                                                                         \
		if (!(cond)) {                                                       \
			fprintf(stderr, "pid %d, line %d: %s\n", getpid(), __LINE__, \
				tierd_error(NULL));                                  \
			_exit(1);                                                    \
		}                                                                    \
	} while (0)

static struct system tierd_system;
static struct system *const s = &tierd_system;
static struct board {
	_Atomic bool holding, served, end;
	int last_call; /* what the borrower is to be answered at the end */
} * board;

static void begin(const char *excess)
{
	char config[1024];

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	ck_assert_ptr_ne(board, MAP_FAILED);
	snprintf(config, sizeof(config), CONFIG "excess: %s\n", excess);
	system_start(s, config);
}

static void end(void)
{
	system_stop(s);
	munmap(board, sizeof(*board));
}

static tierd_tensor make(struct tierd *t)
{
	const struct tierd_spec spec = { .ndim = 1, .shape = { MIB(1) } };
	tierd_tensor ret;

	MUST(tierd_create(t, &spec, 1, &ret) == 0);
	return ret;
}

/* What nobody uses may be borrowed. It reads what it holds, again and again, until it is to end. */
static void borrows_all(struct system *unused, void *arg)
{
	struct tierd_view v[HELD];
	tierd_tensor none;
	struct tierd *t;

	signal(SIGTERM, SIG_DFL); /* Check's would end the test */
	MUST(tierd_open(s->socket, "borrower", 0, &t) == 0);
	for (unsigned i = 0; i < HELD; i++) {
		MUST(tierd_acquire(t, make(t), GPU, TIERD_WRITE, -1, &v[i]) == 0);
		bytes_fill(v[i].data, (int)i + 1, v[i].bytes);
	}
	atomic_store(&board->holding, true);
	do
		for (unsigned i = 0; i < HELD; i++)
			MUST(system_bytes_are(v[i].data, (unsigned char)(i + 1), v[i].bytes));
	while (!atomic_load(&board->end));
	MUST(tierd_lookup(t, "nobody", &none) == board->last_call);
	for (unsigned i = 0; i < HELD; i++)
		tierd_release(t, &v[i]);
	tierd_close(t);
}

static void wants_what_is_its_own(struct system *unused, void *arg)
{
	struct tierd_view v[2];
	tierd_tensor x[2];
	struct tierd *t;

	MUST(tierd_open(s->socket, "owner", 0, &t) == 0);
	x[0] = make(t);
	x[1] = make(t);
	MUST(tierd_acquire_batch(t, x, 2, GPU, TIERD_READ, -1, v) == 0);
	MUST(system_bytes_are(v[0].data, 0, v[0].bytes));
	atomic_store(&board->served, true);
	tierd_release(t, &v[0]);
	tierd_release(t, &v[1]);
	tierd_close(t);
}

/* Both are under way, and the daemon has said so of the first. */
static void conflict(pid_t *ret_borrower, pid_t *ret_owner)
{
	uint64_t end_ns = clock_now_ns() + PATIENCE * NS_PER_MS;
	char text[128];

	*ret_borrower = system_child(borrows_all, s, NULL);
	while (!atomic_load(&board->holding)) {
		if (clock_now_ns() > end_ns)
			system_fail(s, "the GPU was never full");
		usleep(1000);
	}
	*ret_owner = system_child(wants_what_is_its_own, s, NULL);
	if (!system_log_waits(s, "whose guarantee of 1048576 is passed", PATIENCE))
		system_fail(s, "nobody was told of");
	snprintf(text, sizeof(text), "(pid %d): ", (int)*ret_borrower);
	ck_assert(system_log_has(s, text));
	snprintf(text, sizeof(text), "while process %d waits", (int)*ret_owner);
	ck_assert(system_log_has(s, text));
	ck_assert(system_log_has(s, "4194304 bytes of hbm0 are pinned by it"));
}

static uint64_t excesses(void)
{
	struct tierd *t;
	uint64_t ret;

	ck_assert_int_eq(tierd_open(s->socket, "look", 0, &t), 0);
	ret = atomic_load(&admin_stats_page(t)->excesses);
	tierd_close(t);
	return ret;
}

START_TEST(a_client_that_is_cut_off_keeps_its_bytes_until_it_ends)
{
	pid_t borrower, owner;

	begin("{patience: 200ms}");
	board->last_call = -EPIPE;
	conflict(&borrower, &owner);
	ck_assert(system_log_waits(s, "dropped: 4194304 bytes", PATIENCE));
	ck_assert_uint_eq(excesses(), 1);
	ck_assert(!atomic_load(&board->served));
	atomic_store(&board->end, true);
	system_child_end(s, borrower, PATIENCE);
	system_child_end(s, owner, PATIENCE);
	ck_assert(atomic_load(&board->served));
	end();
}
END_TEST

START_TEST(a_client_that_is_ended_gives_way)
{
	pid_t borrower, owner;
	int status;

	begin("{patience: 200ms, then: terminate}");
	conflict(&borrower, &owner);
	system_child_end(s, owner, PATIENCE);
	ck_assert_int_eq(waitpid(borrower, &status, 0), borrower);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	ck_assert(system_log_has(s, "was sent SIGTERM"));
	end();
}
END_TEST

START_TEST(a_client_that_is_told_of_is_served_on)
{
	pid_t borrower, owner;

	begin("{patience: 200ms, then: tell}");
	board->last_call = -ENOENT;
	conflict(&borrower, &owner);
	ck_assert(!system_log_has(s, "dropped"));
	ck_assert(!atomic_load(&board->served));
	atomic_store(&board->end, true);
	system_child_end(s, borrower, PATIENCE);
	system_child_end(s, owner, PATIENCE);
	ck_assert_uint_ge(excesses(), 1);
	end();
}
END_TEST

START_TEST(nobody_is_told_of_before_it_is_time)
{
	pid_t borrower, owner;
	uint64_t end_ns;

	begin("{patience: 1h}");
	board->last_call = -ENOENT;
	borrower = system_child(borrows_all, s, NULL);
	for (end_ns = clock_now_ns() + PATIENCE * NS_PER_MS; !atomic_load(&board->holding);
	     usleep(1000))
		ck_assert_uint_lt(clock_now_ns(), end_ns);
	owner = system_child(wants_what_is_its_own, s, NULL);
	ck_assert(!system_log_waits(s, "is passed", 500));
	atomic_store(&board->end, true);
	system_child_end(s, borrower, PATIENCE);
	system_child_end(s, owner, PATIENCE);
	ck_assert_uint_eq(excesses(), 0);
	end();
}
END_TEST

UNIT_MAIN("excess", a_client_that_is_cut_off_keeps_its_bytes_until_it_ends,
	  a_client_that_is_ended_gives_way, a_client_that_is_told_of_is_served_on,
	  nobody_is_told_of_before_it_is_time)

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/fake/bytes.h"
#include "tests/system/domain_rig.h"

#include <grp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "tests/unit/point.h"
#ifdef HAVE_CUDA
#include "base/cuda.h"
#endif

struct system domain_system;
struct board *board;
static struct system *const s = &domain_system;

bool domain_root_is_missing(void)
{
	if (geteuid() == 0)
		return false;
	fprintf(stderr, "skipped: clients of several users need root\n");
	return true;
}

void domain_start(const char *config)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	ck_assert_ptr_ne(board, MAP_FAILED);
	system_start(s, config);
	/* Who may connect at all is another matter. */
	ck_assert_int_eq(chmod(s->directory, 0711), 0);
	ck_assert_int_eq(chmod(s->socket, 0666), 0);
}

void domain_stop(void)
{
	system_stop(s);
	ck_assert_int_eq(munmap(board, sizeof(*board)), 0);
}

void domain_become(uid_t uid)
{
#ifdef HAVE_CUDA
	const struct cuda *cuda;

	/* The user may not be let into the folder where the driver is. */
	if (getenv("TIERD_LIBCUDA"))
		cuda_open(&cuda, NULL);
#endif
	MUST(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
		     setresuid(uid, uid, uid) == 0,
	     "it cannot become another user: %m");
}

struct tierd *domain_enter(uid_t uid)
{
	struct tierd *t;

	domain_become(uid);
	MUST(tierd_open(s->socket, "job", 0, &t) == 0, "open: %s", tierd_error(NULL));
	return t;
}

void domain_reach(unsigned step)
{
	atomic_store(&board->step, step);
}

void domain_await(unsigned step)
{
	uint64_t end_ns = clock_now_ns() + 60 * NS_PER_S;

	while (atomic_load(&board->step) < step) {
		MUST(clock_now_ns() < end_ns, "step %u was never reached", step);
		usleep(1000);
	}
}

tierd_tensor domain_make(struct tierd *t, const char *name, uint64_t bytes)
{
	const struct tierd_spec spec = { .name = name, .ndim = 1, .shape = { bytes } };
	tierd_tensor ret;

	MUST(tierd_create(t, &spec, 1, &ret) == 0, "create: %s", tierd_error(t));
	return ret;
}

void domain_fill(struct tierd *t, tierd_tensor x, int place, int byte)
{
	struct tierd_view v;

	MUST(tierd_acquire(t, x, place, TIERD_WRITE | TIERD_DISCARD, -1, &v) == 0, "acquire: %s",
	     tierd_error(t));
	bytes_fill(v.data, byte, v.bytes);
	tierd_release(t, &v);
}

bool domain_holds(struct tierd *t, tierd_tensor x, int place, int byte)
{
	struct tierd_view v;
	bool all;

	MUST(tierd_acquire(t, x, place, TIERD_READ, -1, &v) == 0, "acquire: %s", tierd_error(t));
	all = system_bytes_are(v.data, (unsigned char)byte, v.bytes);
	tierd_release(t, &v);
	return all;
}

static void keeps_its_bytes(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(BLUE);
	tierd_tensor x[20];

	for (unsigned i = 0; i < ARRAY_SIZE(x); i++)
		x[i] = domain_make(t, NULL, MIB(1));
	for (unsigned i = 0; i < ARRAY_SIZE(x); i++)
		domain_fill(t, x[i], TIERD_HOST, (int)i);
	do {
		for (unsigned i = 0; i < ARRAY_SIZE(x); i++)
			MUST(domain_holds(t, x[i], i % 2 ? TIERD_HOST : 0, (int)i), "bytes differ");
		atomic_fetch_add(&board->kept, 1);
	} while (!atomic_load(&board->stop));
	tierd_close(t);
}

pid_t domain_neighbour(void)
{
	pid_t pid = system_child(keeps_its_bytes, s, NULL);

	domain_neighbour_goes_on();
	return pid;
}

void domain_neighbour_goes_on(void)
{
	unsigned before = atomic_load(&board->kept);
	uint64_t end_ns = clock_now_ns() + 60 * NS_PER_S;

	for (; atomic_load(&board->kept) < before + 2; usleep(1000))
		if (clock_now_ns() > end_ns)
			system_fail(s, "the neighbour does not go on");
}

void domain_neighbour_end(pid_t pid)
{
	atomic_store(&board->stop, true);
	system_child_end(s, pid, 60000);
}

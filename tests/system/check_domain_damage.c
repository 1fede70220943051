/* SPDX-License-Identifier: Apache-2.0
 *
 * A client that takes the memory of its domain away: on huge pages, of a pool that has no more, the
 * daemon's next access would be its end. It is the end of that domain's service, and no other's.
 * The pool of the machine is made larger for it, and smaller again.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/system/domain_rig.h"
#include "tests/system/pool.h"
#include "tests/system/wire.h"

static struct system *const s = &domain_system;

/* Pages in use stay so, and no page is free: neither now nor when others give theirs back. */
static void pool_shrink(void)
{
	pool_set(0);
	system_pool_leave();
}

/* One that somebody else has, as daemons do that run beside this one; NULL: they have them all. */
static void *pool_page(void)
{
	char *page = mmap(NULL, MIB(2), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (page == MAP_FAILED)
		return NULL;
	*page = 1;
	return page;
}

static void waits_for_the_damage(struct system *unused, void *arg)
{
	uint64_t end_ns = clock_now_ns() + 60 * NS_PER_S;
	struct tierd *t = domain_enter(RED);
	struct tierd_view v;
	int rc = 0;

	domain_reach(1);
	domain_await(3);
	/* Its own memory is not looked at: that would be its end. */
	while (rc == 0) {
		tierd_tensor x = domain_make(t, NULL, MIB(1));

		rc = tierd_acquire(t, x, TIERD_HOST, TIERD_READ, 10 * (int64_t)NS_PER_S, &v);
		if (rc == 0) {
			tierd_release(t, &v);
			rc = tierd_destroy(t, &x, 1);
		}
		MUST(clock_now_ns() < end_ns, "nobody was cut off");
	}
	MUST(rc == -EIO || rc == -EPIPE, "cut off with %d: %s", rc, tierd_error(t));
	MUST(tierd_open(s->socket, "job", 0, &t) == -EIO &&
		     strstr(tierd_error(NULL), "domain red is damaged"),
	     "%s", tierd_error(NULL));
	domain_reach(4);
}

static void punches_holes(struct system *unused, void *arg)
{
	struct wire w;
	unsigned fd = HELLO_FDS;

	domain_become(RED);
	domain_await(1);
	MUST(wire_open(s->socket, "job", &w) == 0, "open");
	for (unsigned a = 0; a < w.reply.arenas; a++)
		if (w.reply.arena[a].slab_bytes == 0)
			MUST(fallocate(w.fds[fd++], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				       (off_t)w.reply.arena[a].bytes) == 0,
			     "punch: %m");
	domain_reach(2);
	domain_await(4);
}

static void holes_are_punched(void *others)
{
	pid_t blue = domain_neighbour(), red, hostile;

	red = system_child(waits_for_the_damage, s, NULL);
	hostile = system_child(punches_holes, s, NULL);
	domain_await(2);
	munmap(others, MIB(2));
	domain_reach(3);
	system_child_end(s, red, 60000);
	system_child_end(s, hostile, 60000);
	ck_assert(system_log_has(s, "domain red is damaged: a client took memory of dram away"));
	domain_neighbour_goes_on();
	domain_neighbour_end(blue);
}

#define CONFIG                                                           \
	"tensors: 4Ki\n"                                                 \
	"tiers:\n"                                                       \
	"  hbm: {backend: memory, size: 16MiB}\n"                        \
	"  dram: {size: 16MiB, huge_pages: require}\n"                   \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n" \
	"strangers: refuse\n"                                            \
	"domains:\n"                                                     \
	"  - {name: red, users: [60001], dram: 8MiB, nvme: 16MiB}\n"     \
	"  - {name: blue, users: [60002], hbm: 8MiB, dram: 8MiB, nvme: 32MiB}\n"
/* Of its 8 MiB one is staging. */
#define RED_ON_POOL "dram: 7340032 bytes (0.01 GiB): 2 MiB pages of the pool"

/* Others than tests take what is free in the pool as well, so it may have to be tried again.
 * Returns whether the holes were punched. */
static bool try_once(int pool, pid_t guardian)
{
	void *others = pool_page();
	bool ready = false;

	if (others) {
		domain_start(CONFIG);
		ready = system_log_has(s, RED_ON_POOL);
		pool_shrink();
		if (ready)
			holes_are_punched(others);
		else
			munmap(others, MIB(2));
		domain_stop();
	} else {
		system_pool_leave();
	}
	pool_return(pool, guardian);
	return ready;
}

START_TEST(holes_in_huge_pages_end_their_domain_and_no_other)
{
	unsigned tries = 0;
	pid_t guardian;
	int pool;

	if (domain_root_is_missing())
		return;
	do {
		pool = pool_borrow(16, &guardian);
		if (pool < 0) {
			fprintf(stderr, "skipped: there are no 32 MiB of huge pages\n");
			return;
		}
		ck_assert_msg(++tries <= 50, "others have the pages of the pool all the time");
	} while (!try_once(pool, guardian));
}
END_TEST

UNIT_MAIN("domain_damage", holes_in_huge_pages_end_their_domain_and_no_other)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Domains on a real tierd: users of one see nothing of the other's, in names, handles, bytes, sizes
 * and memory that changes hands, and what happens to one's clients does not reach the other's.
 * Clients drop to user ids of their own, which needs root.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "libclient/admin.h"
#include "tests/system/domain_rig.h"
#include "tests/system/wire.h"

static struct system *const s = &domain_system;

static int count_one(void *ctx, const struct tierd_info *info)
{
	++*(unsigned *)ctx;
	return 0;
}

static unsigned tensors_seen(struct tierd *t)
{
	unsigned n = 0;

	MUST(admin_list(t, count_one, &n) == 0, "list: %s", tierd_error(t));
	return n;
}

/* ---- names, handles, bytes ------------------------------------------------------------------ */

static void red_has_names(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(RED);
	const char *const names[ARRAY_SIZE(board->red)] = { "weights", "red alone" };
	tierd_tensor found;

	for (unsigned i = 0; i < ARRAY_SIZE(board->red); i++)
		board->red[i] = domain_make(t, names[i], MIB(1));
	for (unsigned i = 0; i < ARRAY_SIZE(board->red); i++)
		domain_fill(t, board->red[i], i % 2 ? 0 : TIERD_HOST, 0x11);
	domain_reach(1);
	domain_await(2);
	MUST(tensors_seen(t) == ARRAY_SIZE(board->red), "it sees tensors of others");
	MUST(tierd_lookup(t, "blue alone", &found) == -ENOENT, "a name of the other domain");
	for (unsigned i = 0; i < ARRAY_SIZE(board->red); i++)
		MUST(domain_holds(t, board->red[i], i % 2 ? TIERD_HOST : 0, 0x11), "bytes differ");
	tierd_close(t);
}

static void blue_has_the_same_names(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(BLUE);
	tierd_tensor own, found;
	struct tierd_view v;
	int rc;

	domain_await(1);
	MUST(tensors_seen(t) == 0, "it sees tensors of others");
	MUST(tierd_lookup(t, "weights", &found) == -ENOENT, "a name of the other domain");
	MUST(tierd_acquire(t, board->red[0], TIERD_HOST, TIERD_READ, 0, &v) == -ESTALE,
	     "a handle of the other domain");
	own = domain_make(t, "weights", MIB(1));
	domain_make(t, "blue alone", 4096);
	MUST(domain_holds(t, own, TIERD_HOST, 0), "a new tensor is not zeros");
	domain_fill(t, own, TIERD_HOST, 0x22);
	/* The first handles of both are the same numbers and mean different tensors. */
	MUST(own.index == board->red[0].index && domain_holds(t, own, 0, 0x22), "bytes differ");
	rc = tierd_acquire(t, board->red[3], 0, TIERD_WRITE, 0, &v);
	MUST(rc == -ESTALE, "a handle of the other domain: %d", rc);
	rc = tierd_copy_in(t, board->red[2], 0, "x", 1);
	MUST(rc == -ESTALE, "a handle of the other domain: %d", rc);
	rc = tierd_destroy(t, &board->red[2], 1);
	MUST(rc == -ESTALE || rc == -EPERM, "a handle of the other domain: %d", rc);
	domain_reach(2);
	tierd_close(t);
}

START_TEST(two_domains_see_neither_names_nor_handles_of_each_other)
{
	pid_t red, blue;

	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO);
	red = system_child(red_has_names, s, NULL);
	blue = system_child(blue_has_the_same_names, s, NULL);
	system_child_end(s, blue, 60000);
	system_child_end(s, red, 60000);
	domain_stop();
}
END_TEST

/* ---- places --------------------------------------------------------------------------------- */

/* Has as many as it is let have until all others have been there. */
static void connects_as_often_as_it_may(struct system *unused, void *arg)
{
	const struct tierd_spec spec = { .ndim = 1, .shape = { 1 } };
	struct tierd *t = domain_enter(RED), *more;
	tierd_tensor x;
	unsigned n = 1;
	int rc;

	while ((rc = tierd_open(s->socket, "job", 0, &more)) == 0)
		n++;
	MUST(rc == -EUSERS && n == 6, "%d after %u: %s", rc, n, tierd_error(NULL));
	MUST(strstr(tierd_error(NULL), "max_clients allows no more but of other domains"), "%s",
	     tierd_error(NULL));
	domain_reach(1);
	domain_await(4);
	MUST(tierd_create(t, &spec, 1, &x) == 0, "create: %s", tierd_error(t));
}

static void connects_once(struct system *unused, void *arg)
{
	const uid_t uid = *(const uid_t *)arg;
	struct tierd *more;
	int rc;

	domain_enter(uid);
	rc = tierd_open(s->socket, "job", 0, &more);
	MUST(rc == -EUSERS, "a second place: %d", rc);
	domain_reach(uid == BLUE ? 2 : 3);
	domain_await(4);
}

START_TEST(clients_of_one_domain_leave_places_to_the_others)
{
	static const uid_t others[] = { BLUE, STRANGER };
	pid_t red, other[2];

	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO "max_clients: 8\n");
	red = system_child(connects_as_often_as_it_may, s, NULL);
	domain_await(1);
	for (unsigned i = 0; i < 2; i++) {
		other[i] = system_child(connects_once, s, (void *)&others[i]);
		domain_await(2 + i);
	}
	domain_reach(4);
	system_child_end(s, red, 60000);
	for (unsigned i = 0; i < 2; i++)
		system_child_end(s, other[i], 60000);
	domain_stop();
}
END_TEST

/* ---- sizes ---------------------------------------------------------------------------------- */

static uint64_t limit(struct tierd *t, unsigned tier)
{
	return atomic_load(&admin_stats_page(t)->tier[tier].limit_bytes);
}

static void fills_its_share(struct system *unused, void *arg)
{
	const struct tierd_spec spec = { .ndim = 1, .shape = { KIB(512) } };
	struct tierd *t = domain_enter(RED);
	tierd_tensor x;
	uint64_t bytes = 0;
	int rc;

	MUST(limit(t, 0) == MIB(8) && limit(t, 1) < MIB(8) && limit(t, 2) == MIB(16),
	     "its tiers have %llu, %llu, %llu bytes", (unsigned long long)limit(t, 0),
	     (unsigned long long)limit(t, 1), (unsigned long long)limit(t, 2));
	while ((rc = tierd_create(t, &spec, 1, &x)) == 0) {
		domain_fill(t, x, bytes % MIB(1) ? 0 : TIERD_HOST, 0x33);
		bytes += KIB(512);
	}
	MUST(rc == -ENOSPC, "create: %s", tierd_error(t));
	MUST(bytes > MIB(16) && bytes <= MIB(24), "it got %llu bytes", (unsigned long long)bytes);
	domain_reach(1);
	domain_await(2);
	tierd_close(t);
}

static void finds_its_own_untouched(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(BLUE);
	tierd_tensor x[48];

	domain_await(1);
	MUST(limit(t, 2) == MIB(48), "half of nvme is %llu", (unsigned long long)limit(t, 2));
	for (unsigned i = 0; i < ARRAY_SIZE(x); i++) {
		x[i] = domain_make(t, NULL, MIB(1));
		domain_fill(t, x[i], i % 2 ? 0 : TIERD_HOST, (int)i);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(x); i++)
		MUST(domain_holds(t, x[i], i % 2 ? TIERD_HOST : 0, (int)i), "bytes differ");
	domain_reach(2);
	tierd_close(t);
}

START_TEST(a_full_domain_takes_nothing_from_another)
{
	pid_t red, blue;

	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO);
	red = system_child(fills_its_share, s, NULL);
	blue = system_child(finds_its_own_untouched, s, NULL);
	system_child_end(s, blue, 60000);
	system_child_end(s, red, 60000);
	domain_stop();
}
END_TEST

/* ---- who is let in -------------------------------------------------------------------------- */

static void is_refused(struct system *unused, void *arg)
{
	struct tierd *t;
	int rc;

	domain_become(STRANGER);
	rc = tierd_open(s->socket, "job", 0, &t);
	MUST(rc == -EACCES && strstr(tierd_error(NULL), "uid 60003 is in no domain") &&
		     strstr(tierd_error(NULL), "red") == NULL,
	     "%d: %s", rc, tierd_error(NULL));
	rc = admin_open(s->socket, "job", "red", &t);
	MUST(rc == -EACCES && strstr(tierd_error(NULL), "may not look"), "%d: %s", rc,
	     tierd_error(NULL));
}

static void is_not_let_in(struct system *unused, void *what)
{
	struct tierd *t;
	int rc;

	domain_become(STRANGER);
	rc = tierd_open(s->socket, "job", 0, &t);
	MUST(rc == -EACCES && strstr(tierd_error(NULL), what), "%d: %s", rc, tierd_error(NULL));
}

static void may_look_at_its_own(struct system *unused, void *arg)
{
	struct tierd *t;
	int rc;

	domain_become(RED);
	MUST(admin_open(s->socket, "job", "red", &t) == 0, "%s", tierd_error(NULL));
	tierd_close(t);
	/* Whether there is such a domain is nobody's business either. */
	for (const char *const *name = (const char *const[]){ "blue", "default", "green", NULL };
	     *name; name++) {
		rc = admin_open(s->socket, "job", *name, &t);
		MUST(rc == -EACCES, "%s: %d: %s", *name, rc, tierd_error(NULL));
	}
}

/* Beside `clients` - 1 others. */
static void root_looks(const char *name, unsigned tensors, unsigned clients)
{
	uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
	struct tierd *t;

	ck_assert_int_eq(admin_open(s->socket, "look", name, &t), 0);
	ck_assert_uint_eq(tensors_seen(t), tensors);
	ck_assert_str_eq(admin_stats_page(t)->domain, name);
	/* The page follows at the end of the turn in which we came. */
	while (atomic_load(&admin_stats_page(t)->clients) != clients) {
		ck_assert_uint_lt(clock_now_ns(), end_ns);
		usleep(1000);
	}
	tierd_close(t);
}

static void stays_with_a_tensor(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(RED);

	domain_make(t, "weights", 4096);
	domain_reach(1);
	domain_await(2);
	tierd_close(t);
}

START_TEST(strangers_are_refused_and_root_looks_at_every_domain)
{
	struct tierd *t;
	pid_t red;

	if (domain_root_is_missing())
		return;
	domain_start("strangers: refuse\n" DOMAIN_TWO);
	system_child_end(s, system_child(is_refused, s, NULL), 20000);
	system_child_end(s, system_child(may_look_at_its_own, s, NULL), 20000);
	ck_assert_int_eq(tierd_open(s->socket, "job", 0, &t), -EACCES);
	ck_assert_ptr_nonnull(
		strstr(tierd_error(NULL), "`tierctl --domain` looks at one of red, blue"));
	ck_assert_int_eq(admin_open(s->socket, "job", "default", &t), -ENOENT);
	ck_assert_ptr_nonnull(
		strstr(tierd_error(NULL), "there is no domain 'default', but red, blue"));
	red = system_child(stays_with_a_tensor, s, NULL);
	domain_await(1);
	root_looks("red", 1, 2);
	root_looks("blue", 0, 1);
	domain_reach(2);
	system_child_end(s, red, 20000);
	domain_stop();
}
END_TEST

/* Before the daemon hears of them. */
START_TEST(whom_the_socket_refuses_is_told_whom_it_serves)
{
	char whom[64];
	struct stat st;

	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO);
	ck_assert_int_eq(stat(s->socket, &st), 0);
	snprintf(whom, sizeof(whom), "uid %u and members of group %u may connect",
		 (unsigned)st.st_uid, (unsigned)st.st_gid);
	ck_assert_int_eq(chmod(s->socket, 0660), 0);
	system_child_end(s, system_child(is_not_let_in, s, whom), 20000);
	ck_assert_int_eq(stat(s->directory, &st), 0);
	ck_assert_int_eq(chmod(s->directory, 0700), 0);
	system_child_end(
		s,
		system_child(is_not_let_in, s, "a folder on the way there is closed to uid 60003"),
		20000);
	ck_assert_int_eq(chmod(s->directory, st.st_mode & 07777), 0);
	domain_stop();
}
END_TEST

static void gets_the_rest(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(STRANGER);

	MUST(limit(t, 0) == MIB(8) && limit(t, 2) == MIB(32), "its tiers have %llu, %llu bytes",
	     (unsigned long long)limit(t, 0), (unsigned long long)limit(t, 2));
	MUST(domain_holds(t, domain_make(t, NULL, MIB(1)), 0, 0), "a new tensor is not zeros");
	tierd_close(t);
}

START_TEST(strangers_share_what_is_left)
{
	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO);
	system_child_end(s, system_child(gets_the_rest, s, NULL), 20000);
	domain_stop();
}
END_TEST

/* ---- memory that changes hands -------------------------------------------------------------- */

/* Slab by slab, and back again. */
static void leaves_its_bytes_on_the_gpu(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(RED);
	tierd_tensor x[4];

	for (unsigned i = 0; i < ARRAY_SIZE(x); i++) {
		x[i] = domain_make(t, NULL, MIB(1));
		domain_fill(t, x[i], 0, 0x5c);
	}
	MUST(tierd_destroy(t, x, ARRAY_SIZE(x)) == 0, "destroy: %s", tierd_error(t));
	MUST(tierd_trim(t) == 0, "trim: %s", tierd_error(t));
	tierd_close(t);
}

/* What a writer who discards finds is whatever was there. */
static void finds_nothing_of_others(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(BLUE);
	struct tierd_view v;

	for (unsigned i = 0; i < 6; i++) {
		tierd_tensor x = domain_make(t, NULL, MIB(1));

		MUST(tierd_acquire(t, x, 0, TIERD_WRITE | TIERD_DISCARD, -1, &v) == 0,
		     "acquire: %s", tierd_error(t));
		MUST(system_bytes_are(v.data, 0, v.bytes), "bytes that it did not write");
		tierd_release(t, &v);
	}
	tierd_close(t);
}

START_TEST(memory_of_a_gpu_comes_to_another_domain_as_zeros)
{
	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO);
	for (unsigned i = 0; i < 2; i++) {
		system_child_end(s, system_child(leaves_its_bytes_on_the_gpu, s, NULL), 60000);
		system_child_end(s, system_child(finds_nothing_of_others, s, NULL), 60000);
	}
	domain_stop();
}
END_TEST

/* ---- death ---------------------------------------------------------------------------------- */

static void works_for_ever(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(RED);
	tierd_tensor x[12];

	for (unsigned i = 0; i < ARRAY_SIZE(x); i++)
		x[i] = domain_make(t, NULL, MIB(1));
	domain_reach(1);
	for (unsigned i = 0;; i++)
		domain_fill(t, x[i % ARRAY_SIZE(x)], i % 2 ? 0 : TIERD_HOST, (int)i);
}

START_TEST(killed_clients_of_one_domain_do_not_disturb_another)
{
	pid_t red, blue;

	if (domain_root_is_missing())
		return;
	domain_start(DOMAIN_TWO);
	blue = domain_neighbour();
	for (unsigned i = 0; i < 10; i++) {
		domain_reach(0);
		red = system_child(works_for_ever, s, NULL);
		domain_await(1);
		domain_neighbour_goes_on();
		kill(red, i % 2 ? SIGKILL : SIGTERM);
		ck_assert_int_eq(waitpid(red, NULL, 0), red);
	}
	domain_neighbour_end(blue);
	domain_stop();
}
END_TEST

/* ---- rest ----------------------------------------------------------------------------------- */

#define ONE(i) "  - {name: d" #i ", users: [" #i "], hbm: 2MiB, dram: 4MiB, nvme: 4MiB}\n"

START_TEST(an_idle_daemon_with_eight_domains_does_not_run)
{
	uint64_t cpu_ns, switches, turns;
	struct wire w;

	system_start(s, "tensors: 4Ki\n"
			"tiers:\n"
			"  hbm: {backend: memory, size: 18MiB}\n"
			"  dram: {size: 36MiB}\n"
			"  nvme: {paths: [{path: @NVME@, size: 36MiB}], block: 64KiB}\n"
			"domains:\n" ONE(1) ONE(2) ONE(3) ONE(4) ONE(5) ONE(6) ONE(7) ONE(8));
	ck_assert_int_eq(wire_open(s->socket, "idle", &w), 0);
	usleep(300000); /* naps end 100 ms after the last progress */
	cpu_ns = system_cpu_ns(s);
	switches = system_switches(s);
	turns = atomic_load(&w.stats->turns);
	sleep(3);
	ck_assert_uint_eq(atomic_load(&w.stats->turns), turns);
	ck_assert_uint_le(system_switches(s) - switches, SYSTEM_FOREIGN_SWITCHES);
	ck_assert_uint_le(system_cpu_ns(s) - cpu_ns, 3 * NS_PER_S / 200);
	wire_close(&w);
	system_stop(s);
}
END_TEST

static void ends_with(const char *config, const char *says)
{
	int status;

	system_prepare(s, config);
	ck_assert(!system_tries(s, &status));
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 78);
	ck_assert_msg(system_log_has(s, says), "%s", says);
	system_stop(s);
}

START_TEST(users_that_do_not_exist_or_stand_twice_are_refused_at_start)
{
	ends_with("tiers: {dram: {size: 8MiB}}\n"
		  "domains: [{name: a, users: [nobody-of-that-name], dram: 2MiB}]\n",
		  "domains[0].users: there is no user 'nobody-of-that-name' on this machine");
	ends_with("tiers: {dram: {size: 8MiB}}\n"
		  "domains: [{name: a, users: [root], dram: 2MiB}, "
		  "{name: b, users: [0], dram: 2MiB}]\n",
		  "domains: uid 0 is in 'a' and in 'b'");
	ends_with("tiers: {dram: {size: 8MiB}}\n"
		  "domains: [{name: a, users: [12x], dram: 2MiB}]\n",
		  "domains[0].users: '12x' is no user id");
}
END_TEST

UNIT_MAIN("domains", two_domains_see_neither_names_nor_handles_of_each_other,
	  clients_of_one_domain_leave_places_to_the_others,
	  a_full_domain_takes_nothing_from_another,
	  strangers_are_refused_and_root_looks_at_every_domain,
	  whom_the_socket_refuses_is_told_whom_it_serves, strangers_share_what_is_left,
	  memory_of_a_gpu_comes_to_another_domain_as_zeros,
	  killed_clients_of_one_domain_do_not_disturb_another,
	  an_idle_daemon_with_eight_domains_does_not_run,
	  users_that_do_not_exist_or_stand_twice_are_refused_at_start)

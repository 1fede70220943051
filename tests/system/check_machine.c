/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines that refuse things, on a real tierd: system calls that a container forbids, little
 * lockable memory, few descriptors, and what a container changes. It works without what it can do
 * without, or ends with a sentence; it never crashes, hangs or loses a byte.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/nofile.h"
#include "libclient/tierd.h"
#include "tests/fake/bytes.h"
#include "tests/system/system.h"
#include "tests/system/wire.h"
#include "tests/unit/cgroup_rig.h"

#define SMALL                                    \
	"tensors: 4Ki\n"                         \
	"linger: 100ms\n"                        \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 2MiB}\n" \
	"  dram: {size: 8MiB}\n"                 \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB}\n"

#define NOBODY  65534u
#define TENSORS 20u
#define BYTES   (MIB(1) - 3)
/* Ended with a sentence: */
#define STATUS_OVER   1  /* starting again may help */
#define STATUS_CONFIG 78 /* it does not */

static struct system tierd_system;
static struct system *const s = &tierd_system;

/* Every tensor written, all of them read back: more than dram holds. */
static void use(struct tierd *t)
{
	tierd_tensor h[TENSORS];
	struct tierd_view v;

	for (unsigned i = 0; i < TENSORS; i++) {
		struct tierd_spec spec = { .ndim = 1, .shape = { BYTES } };

		ck_assert_msg(tierd_create(t, &spec, 1, &h[i]) == 0, "%s", tierd_error(t));
	}
	for (unsigned n = 0; n < 2 * TENSORS; n++) {
		unsigned i = n % TENSORS;
		uint32_t access = n < TENSORS ? TIERD_WRITE : TIERD_READ;
		int rc = tierd_acquire(t, h[i], n % 3 ? TIERD_HOST : 0, access,
				       20 * (int64_t)NS_PER_S, &v);

		if (rc < 0)
			system_fail(s, "acquire %u: %s", n, tierd_error(t));
		if (n < TENSORS)
			bytes_fill(v.data, (int)i + 1, v.bytes);
		else
			ck_assert(system_bytes_are(v.data, (unsigned char)(i + 1), v.bytes));
		tierd_release(t, &v);
	}
	ck_assert_int_eq(tierd_destroy(t, h, TENSORS), 0);
}

static void use_by_a_client_of_its_own(void)
{
	struct tierd *t;

	ck_assert_msg(tierd_open(s->socket, "job", 0, &t) == 0, "%s", tierd_error(NULL));
	use(t);
	tierd_close(t);
}

/* ---- refused system calls ---- */

struct refusal {
	const char *name;
	int number, error;
	const char *said; /* tierd ends and says this; NULL: as it likes */
};

static const struct refusal refusals[] = {
	{ "io_uring_setup", SYS_io_uring_setup, EPERM, "io_uring" },
	{ "io_uring_setup", SYS_io_uring_setup, ENOSYS, "io_uring" },
	{ "io_uring_setup", SYS_io_uring_setup, ENOMEM, "io_uring" },
	{ "io_uring_enter", SYS_io_uring_enter, EPERM, NULL },
	{ "io_uring_register", SYS_io_uring_register, EPERM, NULL },
	{ "io_uring_register", SYS_io_uring_register, ENOMEM, NULL },
	{ "io_uring_register", SYS_io_uring_register, EOPNOTSUPP, NULL },
	{ "fallocate", SYS_fallocate, EOPNOTSUPP, NULL },
	{ "fallocate", SYS_fallocate, ENOSPC, NULL },
	{ "memfd_create", SYS_memfd_create, ENOSYS, "memfd" },
	{ "pidfd_open", SYS_pidfd_open, EPERM, NULL },
#ifndef __SANITIZE_THREAD__ /* which cannot do without */
	{ "madvise", SYS_madvise, EINVAL, NULL },
#endif
	{ "mlock", SYS_mlock, EPERM, NULL },
	{ "mbind", SYS_mbind, EPERM, NULL },
	{ "get_mempolicy", SYS_get_mempolicy, EPERM, NULL },
	{ "set_mempolicy", SYS_set_mempolicy, ENOSYS, NULL },
	{ "sched_setaffinity", SYS_sched_setaffinity, EPERM, NULL },
	{ "eventfd2", SYS_eventfd2, EMFILE, NULL },
	{ "epoll_create1", SYS_epoll_create1, EMFILE, NULL },
	{ "signalfd4", SYS_signalfd4, ENOSYS, NULL },
	{ "inotify_init1", SYS_inotify_init1, EMFILE, NULL },
	{ "timerfd_create", SYS_timerfd_create, EMFILE, NULL },
	{ "flock", SYS_flock, ENOLCK, NULL },
	{ "socket", SYS_socket, EMFILE, NULL },
	{ "statx", SYS_statx, ENOSYS, NULL },
	{ "getrandom", SYS_getrandom, ENOSYS, NULL },
};
static const struct refusal *refused;

static void refuse(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)refused->number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)refused->error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { ARRAY_SIZE(program), program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		_exit(99);
}

/* What is not in the kernel will not be there another time, what is forbidden may be allowed. */
static int status_without(const struct refusal *r)
{
	switch (r->error) {
	case ENOSYS:
	case EOPNOTSUPP:
	case EINVAL:
	case EMFILE:
		return STATUS_CONFIG;
	default:
		return STATUS_OVER;
	}
}

static void one_refusal(const struct refusal *r)
{
	struct tierd *t;
	int status = 0;

	refused = r;
	system_prepare(s, SMALL);
	s->before_exec = refuse;
	if (system_tries(s, &status)) {
		ck_assert_msg(r->said == NULL, "tierd started without %s", r->name);
		/* It may refuse clients with a sentence, too. */
		if (tierd_open(s->socket, "job", 0, &t) == 0) {
			use(t);
			tierd_close(t);
		} else {
			ck_assert_int_gt((int)strlen(tierd_error(NULL)), 0);
		}
	} else if (!WIFEXITED(status) || WEXITSTATUS(status) != status_without(r) ||
		   !system_log_has(s, "tierd: ") || (r->said && !system_log_has(s, r->said))) {
		system_fail(s, "without %s (%s): wait status %d", r->name, strerror(r->error),
			    status);
	}
	system_stop(s);
}

START_TEST(a_refused_system_call_is_done_without_or_named)
{
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
		printf("%s: %s\n", refusals[i].name, strerror(refusals[i].error));
		fflush(stdout);
		one_refusal(&refusals[i]);
	}
}
END_TEST

/* ---- limits ---- */

static void drop_to_nobody(void)
{
	struct rlimit little = { MIB(8), MIB(8) };

	if (setrlimit(RLIMIT_MEMLOCK, &little) < 0 || setgroups(0, NULL) < 0 ||
	    setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		_exit(99);
}

START_TEST(a_plain_user_with_8_mib_of_lockable_memory_is_served)
{
	struct stat st;

	if (geteuid() != 0)
		return;
	system_prepare(s, "tensors: 4Ki\n"
			  "tiers:\n"
			  "  hbm: {backend: memory, size: 2MiB}\n"
			  "  dram: {size: 16MiB}\n"
			  "  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 1MiB}\n"
			  "staging: 12MiB\n");
	if (system_user_misses_driver(s, NOBODY))
		return;
	ck_assert_int_eq(chown(s->directory, NOBODY, NOBODY), 0);
	ck_assert_int_eq(chown(s->nvme, NOBODY, NOBODY), 0);
	ck_assert_int_eq(chown(s->config, NOBODY, NOBODY), 0);
	ck_assert_int_eq(close(creat(s->log, 0600)), 0);
	s->before_exec = drop_to_nobody;
	system_launch(s);
	ck_assert_int_eq(stat(s->socket, &st), 0);
	ck_assert_uint_eq(st.st_uid, NOBODY);
	use_by_a_client_of_its_own();
	system_stop(s);
}
END_TEST

#define FEW 96u

static void few_descriptors(void)
{
	struct rlimit few = { FEW, FEW };

	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		_exit(99);
}

START_TEST(at_its_limit_of_descriptors_new_clients_are_refused_and_old_ones_go_on)
{
	struct tierd *t[FEW], *first;
	struct wire looks;
	unsigned n = 0;
	int rc;

	system_prepare(s, SMALL);
	s->before_exec = few_descriptors;
	system_launch(s);
	ck_assert_int_eq(tierd_open(s->socket, "first", 0, &first), 0);
	while (n < FEW && (rc = tierd_open(s->socket, "job", 0, &t[n])) == 0)
		n++;
	ck_assert_uint_gt(n, 3);
	ck_assert_uint_lt(n, FEW);
	ck_assert_msg(rc == -EMFILE || rc == -EUSERS, "%d: %s", rc, tierd_error(NULL));
	use(first);
	/* Who looks for what took them gets in. */
	ck_assert_int_eq(wire_open(s->socket, HELLO_OPERATOR_NAME_SPACE, &looks), 0);
	wire_close(&looks);
	while (n > 0)
		tierd_close(t[--n]);
	/* What they had is free again. */
	for (uint64_t end_ns = clock_now_ns() + 10 * NS_PER_S;
	     (rc = tierd_open(s->socket, "later", 0, &t[0])) < 0 && clock_now_ns() < end_ns;)
		usleep(5000);
	ck_assert_msg(rc == 0, "%s", tierd_error(NULL));
	use(t[0]);
	tierd_close(t[0]);
	tierd_close(first);
	system_stop(s);
}
END_TEST

/* Every slab of hbm is wanted at once, one after the other, while others take every descriptor that
 * they are let have: as clients, and without a word. */
#define GROWING                                   \
	"tensors: 4Ki\n"                          \
	"tiers:\n"                                \
	"  hbm: {backend: memory, size: 16MiB}\n" \
	"  dram: {size: 32MiB}\n"                 \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n"
#define SLABS 8u

static unsigned flood(struct tierd **ret, struct wire *silent)
{
	unsigned n = 0;
	int rc;

	while (n < FEW && (rc = tierd_open(s->socket, "flood", 0, &ret[n])) == 0)
		n++;
	ck_assert_msg(n > 0 && n < FEW && rc == -EMFILE, "%u clients, then %d: %s", n, rc,
		      tierd_error(NULL));
	ck_assert_ptr_nonnull(strstr(tierd_error(NULL), "descriptors"));
	for (unsigned i = 0; i < FEW; i++)
		ck_assert_int_eq(wire_connect(s->socket, &silent[i]), 0);
	return n;
}

START_TEST(clients_take_no_descriptor_that_hbm_will_want)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { MIB(2) } };
	struct tierd *first, *others[FEW];
	struct tierd_view v[SLABS];
	struct wire silent[FEW];
	struct nofile open_fds[SLABS];
	struct err err = ERR_INIT;
	tierd_tensor h[SLABS];
	unsigned n;

	system_prepare(s, GROWING);
	s->before_exec = few_descriptors;
	system_launch(s);
	ck_assert_int_eq(tierd_open(s->socket, "first", 0, &first), 0);
	n = flood(others, silent);
	for (unsigned i = 0; i < SLABS; i++) {
		ck_assert_int_eq(tierd_create(first, &spec, 1, &h[i]), 0);
		if (tierd_acquire(first, h[i], 0, TIERD_WRITE, 20 * (int64_t)NS_PER_S, &v[i]) < 0)
			system_fail(s, "slab %u: %s", i, tierd_error(first));
		bytes_fill(v[i].data, (int)i + 1, v[i].bytes);
		ck_assert_int_eq(nofile_read(&open_fds[i], &err), 0);
	}
	/* Nor does a slab that is mapped cost its client any; the first opened the driver. */
	ck_assert_uint_eq(open_fds[SLABS - 1].open, open_fds[0].open);
	for (unsigned i = 0; i < SLABS; i++) {
		ck_assert(system_bytes_are(v[i].data, (unsigned char)(i + 1), v[i].bytes));
		tierd_release(first, &v[i]);
	}
	for (unsigned i = 0; i < FEW; i++)
		wire_close(&silent[i]);
	while (n > 0)
		tierd_close(others[--n]);
	tierd_close(first);
	system_stop(s);
}
END_TEST

static void too_few_descriptors(void)
{
	struct rlimit few = { 32, 32 };

	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		_exit(99);
}

START_TEST(with_32_descriptors_it_says_what_it_needs)
{
	int status = 0;

	system_prepare(s, SMALL);
	s->before_exec = too_few_descriptors;
	ck_assert(!system_tries(s, &status));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS_CONFIG ||
	    !system_log_has(s, "RLIMIT_NOFILE allows 32 descriptors, tierd needs 64 at least"))
		system_fail(s, "wait status %d", status);
	system_stop(s);
}
END_TEST

static void soft_limit(void)
{
	struct rlimit soft = { 32, 4096 };

	if (setrlimit(RLIMIT_NOFILE, &soft) < 0)
		_exit(99);
}

START_TEST(a_soft_limit_is_raised)
{
	system_prepare(s, SMALL);
	s->before_exec = soft_limit;
	system_launch(s);
	use_by_a_client_of_its_own();
	system_stop(s);
}
END_TEST

static void small_stack(void)
{
	struct rlimit stack = { KIB(256), KIB(256) };

	if (setrlimit(RLIMIT_STACK, &stack) < 0)
		_exit(99);
}

START_TEST(a_stack_of_256_kib_is_enough)
{
#ifdef __SANITIZE_THREAD__
	return; /* its own start takes more */
#endif
	system_prepare(s, SMALL);
	s->before_exec = small_stack;
	system_launch(s);
	use_by_a_client_of_its_own();
	system_stop(s);
}
END_TEST

/* ---- containers ---- */

static void little_shared_memory(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tierd-test", "/dev/shm", "tmpfs", 0, "size=64k") < 0)
		_exit(99);
}

START_TEST(a_small_dev_shm_is_enough)
{
	if (geteuid() != 0)
		return;
	system_prepare(s, SMALL);
	s->before_exec = little_shared_memory;
	system_launch(s);
	use_by_a_client_of_its_own();
	system_stop(s);
}
END_TEST

/* What it may take is its tiers and 32 MiB; what is stored in it is four times that. */
#define CONTAINED                                \
	"tensors: 4Ki\n"                         \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 2MiB}\n" \
	"  dram: {size: 64MiB}\n"                \
	"  nvme: {paths: [{path: @NVME@, size: 512MiB}]}\n"
#define CONTAINED_MIB 98u

static char container[128];

static void join_container(void)
{
	if (!cgroup_join(container))
		_exit(99);
}

static bool is_in_memory(const char *path)
{
	struct statfs st;

	ck_assert_int_eq(statfs(path, &st), 0);
	return st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC;
}

START_TEST(a_container_with_room_for_its_tiers_is_enough)
{
	enum { MANY = 4 * CONTAINED_MIB };
	struct tierd_spec spec = { .ndim = 1, .shape = { MIB(1) } };
	tierd_tensor h[MANY];
	struct tierd_view v;
	struct tierd *t;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return; /* they take what they like */
#endif
	system_prepare(s, CONTAINED);
	if (is_in_memory(s->nvme) ||
	    !cgroup_make(MIB(CONTAINED_MIB), container, sizeof(container))) {
		printf("skipped: no memory cgroup can be made, or nvme is in memory\n");
		system_stop(s);
		return;
	}
	s->before_exec = join_container;
	system_launch(s);
	ck_assert_int_eq(tierd_open(s->socket, "job", 0, &t), 0);
	for (unsigned n = 0; n < 2 * MANY; n++) {
		unsigned i = n % MANY;
		uint32_t access = n < MANY ? TIERD_WRITE : TIERD_READ;

		if (n < MANY)
			ck_assert_msg(tierd_create(t, &spec, 1, &h[i]) == 0, "%s", tierd_error(t));
		if (tierd_acquire(t, h[i], TIERD_HOST, access, 20 * (int64_t)NS_PER_S, &v) < 0)
			system_fail(s, "acquire %u: %s", n, tierd_error(t));
		if (n < MANY)
			bytes_fill(v.data, (int)(i % 251) + 1, v.bytes);
		else
			ck_assert(system_bytes_are(v.data, (unsigned char)(i % 251 + 1), v.bytes));
		tierd_release(t, &v);
	}
	tierd_close(t);
	system_stop(s);
	ck_assert_int_eq(rmdir(container), 0);
}
END_TEST

/* Process 1 as well, of a namespace in the first: it knows by its memory that it is a child. */
static int fork_contained(struct tierd *t, struct tierd_view *v)
{
	struct tierd_stats stats;
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID) < 0)
		return 94;
	pid = fork();
	if (pid == 0) {
		if (getpid() != 1 || tierd_stats(t, &stats) != -EPERM || tierd_step(t) != -EPERM)
			_exit(93);
		tierd_release(t, v);
		tierd_close(t);
		_exit(v->cookie == 0 ? 92 : 0);
	}
	return waitpid(pid, &status, 0) == pid ? status : 91;
}

/* Process 1 of a namespace of its own: used, and then gone with a pin. */
static void contained_client(struct system *unused, void *arg)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { BYTES } };
	struct tierd_view v;
	struct tierd *t;
	tierd_tensor h;
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID) < 0)
		_exit(98);
	pid = fork();
	if (pid == 0) {
		if (getpid() != 1)
			_exit(97);
		use_by_a_client_of_its_own();
		if (tierd_open(s->socket, "job", 0, &t) < 0 || tierd_create(t, &spec, 1, &h) < 0 ||
		    tierd_acquire(t, h, TIERD_HOST, TIERD_WRITE, -1, &v) < 0)
			_exit(96);
		_exit(fork_contained(t, &v) == 0 ? 0 : 90);
	}
	_exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 95);
}

START_TEST(a_client_in_a_pid_namespace_is_served_and_its_end_is_seen)
{
	uint64_t end_ns = clock_now_ns() + 30 * NS_PER_S;
	struct tierd_stats stats;
	struct tierd *t;

	if (geteuid() != 0)
		return;
	system_start(s, SMALL);
	ck_assert_int_eq(tierd_open(s->socket, "watch", 0, &t), 0);
	system_child_end(s, system_child(contained_client, s, NULL), 60000);
	do {
		ck_assert_int_eq(tierd_stats(t, &stats), 0);
		ck_assert_msg(clock_now_ns() < end_ns, "%lu tensors are left",
			      (unsigned long)stats.tensors);
		usleep(2000);
	} while (stats.tensors != 0);
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* ---- options together ---- */

/* Seven options of two values in eight rows: each option is another of the seven parities of a
 * row's number, so that any two of them meet in all four ways. */
static bool chosen(unsigned row, unsigned option)
{
	return __builtin_parity(row & (option + 1));
}

START_TEST(any_two_options_go_together)
{
	char config[1024];

	for (unsigned row = 0; row < 8; row++) {
		snprintf(config, sizeof(config),
			 "tensors: 4Ki\n"
			 "tiers:\n"
			 "  hbm: {backend: memory, size: 2MiB}\n"
			 "  dram: {size: 10MiB, huge_pages: %s, numa: %s, zone: %s}\n"
			 "  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB,\n"
			 "         direct: %s, checksum_threads: %s}\n"
			 "classes: {other: {policy: %s}}\n"
			 "%s",
			 chosen(row, 0) ? "try" : "off", chosen(row, 1) ? "interleave" : "off",
			 chosen(row, 2) ? "2MiB" : "0B", chosen(row, 3) ? "try" : "off",
			 chosen(row, 4) ? "2" : "0", chosen(row, 5) ? "next_use" : "lru",
			 chosen(row, 6) ? "namespaces: [{name: job, hbm: {limit: 1MiB}}]\n" : "");
		system_start(s, config);
		use_by_a_client_of_its_own();
		system_stop(s);
	}
}
END_TEST

UNIT_MAIN("machine", a_refused_system_call_is_done_without_or_named,
	  a_plain_user_with_8_mib_of_lockable_memory_is_served,
	  at_its_limit_of_descriptors_new_clients_are_refused_and_old_ones_go_on,
	  clients_take_no_descriptor_that_hbm_will_want, with_32_descriptors_it_says_what_it_needs,
	  a_soft_limit_is_raised, a_stack_of_256_kib_is_enough, a_small_dev_shm_is_enough,
	  a_container_with_room_for_its_tiers_is_enough,
	  a_client_in_a_pid_namespace_is_served_and_its_end_is_seen, any_two_options_go_together)

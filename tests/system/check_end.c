/* SPDX-License-Identifier: Apache-2.0
 *
 * How a real tierd ends when something is wrong: an assertion that fails, a second signal while it
 * ends, a disk without room. A supervisor learns from the status what became of it, and the next
 * start finds nothing in its way.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/engine/state.h"
#include "tests/system/client_rig.h"
#include "tests/system/tierctl_rig.h"

#define SMALL                                    \
	"tensors: 4Ki\n"                         \
	"linger: 100ms\n"                        \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 2MiB}\n" \
	"  dram: {size: 8MiB}\n"                 \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB}\n"

static int wait_status(void)
{
	int status;

	ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
	s->pid = 0;
	return status;
}

/* ---- before it serves ---- */

static int exit_status_of(const char *arguments, const char *config)
{
	char command[512];

	system_prepare(s, config);
	snprintf(command, sizeof(command), "%s %s %s >/dev/null 2>>%s", TIERD_PATH, arguments,
		 s->config, s->log);
	return WEXITSTATUS(system(command));
}

START_TEST(exit_statuses_are_those_documented)
{
	ck_assert_int_eq(exit_status_of("--check-config --config", SMALL), 0);
	system_stop(s);
	ck_assert_int_eq(exit_status_of("--print-config --config", SMALL), 0);
	system_stop(s);
	ck_assert_int_eq(exit_status_of("--config", "tiers: {}\n"), 78);
	ck_assert(system_log_has(s, "config.yaml:2:"));
	system_stop(s);
	ck_assert_int_eq(exit_status_of("--nosuch --config", SMALL), 2);
	system_stop(s);
	ck_assert_int_eq(exit_status_of("--config", "tiers: {dram: {size: 8MiB}, nvme: {paths: "
						    "[{path: /nosuch, size: 8MiB}]}}\n"),
			 1);
	system_stop(s);
	/* A disk may have room another time. */
	ck_assert_int_eq(exit_status_of("--config", "tiers: {dram: {size: 8MiB}, nvme: {paths: "
						    "[{path: @NVME@, size: 4000TiB}]}}\n"),
			 1);
	ck_assert(system_log_has(s, "4398046511104000 wanted"));
	system_stop(s);
	/* What only a look at the machine tells. */
	ck_assert_int_eq(exit_status_of("--config", "tiers: {dram: {size: 8MiB}, nvme: {paths: "
						    "[{path: /dev/null, size: 8MiB}]}}\n"),
			 78);
	system_stop(s);
	ck_assert_int_eq(exit_status_of("--config", "tiers: {dram: {size: 100TiB}}\n"), 78);
	ck_assert(system_log_has(s, "dram: 104857600 MiB are wanted, "));
	ck_assert(system_log_has(s, " MiB are all there is ("));
	system_stop(s);
	ck_assert_int_eq(exit_status_of("--config", "tiers: {dram: {size: 0.1%, zone: 1TiB}, nvme: "
						    "{paths: [{path: @NVME@, size: 8MiB}]}}\n"),
			 78);
	system_stop(s);
}
END_TEST

/* ---- an assertion that fails ---- */

/* Where the daemon keeps what it knows of tensors. */
static uint64_t records_of(pid_t pid)
{
	char path[64], line[512];
	unsigned long from = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (from == 0 && fgets(line, sizeof(line), f))
		if (strstr(line, "tierd-records"))
			ck_assert_int_eq(sscanf(line, "%lx-", &from), 1);
	fclose(f);
	ck_assert_uint_ne(from, 0);
	return from;
}

/* A move that there is not: whoever looks for it fails an assertion. */
static void spoil(pid_t pid, tierd_tensor victim)
{
	uint64_t at = records_of(pid) + victim.index * sizeof(struct record);
	uint32_t move = 77, index = 0;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	at += offsetof(struct record, move);
	ck_assert_int_eq(pread(fd, &index, sizeof(index), (off_t)at), sizeof(index));
	ck_assert_uint_eq(index, 0);
	ck_assert_int_eq(pwrite(fd, &move, sizeof(move), (off_t)at), sizeof(move));
	close(fd);
}

static void want_a_core(void)
{
	struct rlimit limit;

	if (chdir(s->directory) < 0 || getrlimit(RLIMIT_CORE, &limit) < 0)
		_exit(99);
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_CORE, &limit) < 0)
		_exit(99);
}

/* Whether this machine writes cores into the working directory of who dies, at all. */
static bool cores_are_files(void)
{
	char pattern[256] = "|";
	struct rlimit limit;
	FILE *f = fopen("/proc/sys/kernel/core_pattern", "r");

	if (f && !fgets(pattern, sizeof(pattern), f))
		pattern[0] = '|';
	if (f)
		fclose(f);
	ck_assert_int_eq(getrlimit(RLIMIT_CORE, &limit), 0);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false; /* which let none be written */
#endif
	return strncmp(pattern, "core", 4) == 0 && !strchr(pattern, '/') &&
	       limit.rlim_max > MIB(64);
}

/* How many there were. */
static unsigned remove_cores(void)
{
	char path[512];
	unsigned n = 0;
	DIR *d = opendir(s->directory);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)) != NULL)
		if (strncmp(e->d_name, "core", 4) == 0) {
			snprintf(path, sizeof(path), "%s/%s", s->directory, e->d_name);
			ck_assert_int_eq(unlink(path), 0);
			n++;
		}
	closedir(d);
	return n;
}

/* One line of the log has all of them. */
static void log_must(const char *text)
{
	if (!system_log_has(s, text))
		system_fail(s, "not said: %s", text);
}

static void dump_must_name(tierd_tensor victim)
{
	char first[64];

	log_must("tierd: assertion failed: ");
	log_must(", at ");
	snprintf(first, sizeof(first), "looked at last: tensor %u: 1048576 bytes", victim.index);
	log_must(first);
	log_must("move 77");
	log_must("  name 'victim' in namespace 'job'");
	log_must("  slot of client ");
	log_must("  extent ");
	log_must("tier dram: ");
	log_must("tier nvme0 ");
}

/* It says what it knows, and dies so that everybody sees it; who starts it again finds nothing in
 * the way. */
static void fails_an_assertion(const char *config, unsigned cores)
{
	struct tierd_view v;
	tierd_tensor victim;
	int status;

	system_prepare(s, config);
	s->before_exec = want_a_core;
	system_launch(s);
	connect_as("job");
	victim = make_named("victim", MIB(1));
	fill(victim, TIERD_HOST, 7);
	v = hold(victim, TIERD_HOST, TIERD_READ);
	spoil(s->pid, victim);
	ck_assert_int_eq(TIERCTL(s->socket, "why", "victim"), 1);
	status = wait_status();
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %#x",
		      (unsigned)status);
	dump_must_name(victim);
	if (cores_are_files()) {
		ck_assert_int_eq(!!WCOREDUMP(status), (int)cores);
		ck_assert_uint_eq(remove_cores(), cores);
	}
	ck_assert(system_bytes_are(v.data, 7, v.bytes));
	tierd_release(t, &v);
	ck_assert_int_lt(tierd_acquire(t, victim, 0, TIERD_READ, WAIT, &v), 0);
	ck_assert_msg(strstr(tierd_error(t), "gone") != NULL, "%s", tierd_error(t));
	tierd_close(t);
	system_launch(s);
	connect_as("job");
	end();
}

START_TEST(an_assertion_that_fails_says_what_it_is_about_and_leaves_nothing)
{
	fails_an_assertion(SMALL "core_dumps: true\n", 1);
}
END_TEST

/* Only root reaches the memory of this one. */
START_TEST(no_core_is_written_where_none_is_configured)
{
	if (geteuid() != 0)
		return;
	fails_an_assertion(SMALL, 0);
}
END_TEST

/* ---- signals ---- */

static void driver_that_moves_nothing(void)
{
	setenv("FAKE_CUDA_AUTO", "0", 1);
}

/* Asks until the copy is on its way: a daemon that is late hears of the end of the wait first, and
 * begins nothing. */
static void begin_a_copy(tierd_tensor h)
{
	struct tierd_stats stats;
	struct tierd_view v;

	do {
		ck_assert_int_eq(tierd_acquire(t, h, 0, TIERD_READ, (int64_t)NS_PER_MS, &v),
				 -ETIMEDOUT);
		ck_assert_int_eq(tierd_stats(t, &stats), 0);
	} while (stats.tier[TIERD_HBM].reserved_bytes == 0);
}

/* Memory that a device may write still is not given back, so its copies are waited for, however
 * long it takes. A second signal ends that. */
START_TEST(a_second_signal_does_not_wait_for_a_device)
{
	tierd_tensor h;
	int status;

	if (access(FAKE_CUDA_PATH, F_OK) != 0) {
		printf("skipped: there is no fake driver in this build\n");
		return;
	}
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	system_prepare(s, "tensors: 4Ki\n"
			  "tiers:\n"
			  "  hbm: {backend: cuda, size: 4MiB, slab: 2MiB}\n"
			  "  dram: {size: 8MiB}\n");
	s->before_exec = driver_that_moves_nothing;
	system_launch(s);
	connect_as("job");
	h = make(MIB(1));
	fill(h, TIERD_HOST, 1);
	begin_a_copy(h);
	kill(s->pid, SIGINT);
	ck_assert(system_log_waits(s, "waiting for 1 transfer to come back", SYSTEM_STOP_MS));
	/* It goes on waiting. */
	ck_assert_int_eq(waitpid(s->pid, &status, WNOHANG), 0);
	kill(s->pid, SIGINT);
	status = wait_status();
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	tierd_close(t);
	system_stop(s);
}
END_TEST

/* The second one comes while the first is being looked at, or while it ends, or too late. */
START_TEST(two_signals_at_any_distance_leave_nothing)
{
	for (unsigned i = 0; i < 40; i++) {
		int status;

		system_start(s, SMALL);
		connect_as("job");
		fill(make(MIB(1)), TIERD_HOST, 1);
		kill(s->pid, i % 2 ? SIGINT : SIGTERM);
		for (volatile unsigned n = 0; n < i * 4000; n++)
			;
		kill(s->pid, SIGINT);
		status = wait_status();
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "status %#x",
			      (unsigned)status);
		tierd_close(t);
		system_stop(s);
	}
}
END_TEST

/* ---- without 0, 1 and 2 ---- */

static void close_stdio(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		close(fd);
}

/* What is logged would go to whatever was opened first: the lock, a table, a file of nvme. */
START_TEST(a_log_without_a_descriptor_goes_to_no_file_of_ours)
{
	char path[64], to[64], lock[128];
	ssize_t n;

	system_prepare(s, SMALL);
	s->before_exec = close_stdio;
	system_launch(s);
	connect_as("job");
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", s->pid, fd);
		n = readlink(path, to, sizeof(to) - 1);
		ck_assert_int_gt(n, 0);
		to[n] = '\0';
		ck_assert_str_eq(to, "/dev/null");
	}
	snprintf(lock, sizeof(lock), "%s.lock", s->socket);
	ck_assert_int_eq(access(lock, F_OK), 0);
	end();
}
END_TEST

/* A client's own output must reach neither the daemon's socket nor a segment. */
START_TEST(a_client_without_stdio_prints_to_nothing_of_ours)
{
	int status;
	pid_t pid;

	system_start(s, SMALL);
	pid = fork();
	if (pid == 0) {
		tierd_tensor h;

		close_stdio();
		if (tierd_open(s->socket, "job", 0, &t) < 0)
			_exit(1);
		for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
			if (write(fd, "x", 1) >= 0 || errno != EBADF)
				_exit(2);
		_exit(tierd_create(t, &(struct tierd_spec){ .ndim = 1, .shape = { MIB(1) } }, 1,
				   &h) < 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	system_stop(s);
}
END_TEST

/* ---- a full disk ---- */

static void full_log(void)
{
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(99);
}

START_TEST(a_log_without_room_stops_nothing)
{
	tierd_tensor h[12];

	system_prepare(s, SMALL);
	s->before_exec = full_log;
	system_launch(s);
	connect_as("job");
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		h[i] = make(MIB(1));
		fill(h[i], TIERD_HOST, (int)i);
	}
	kill(s->pid, SIGHUP); /* has it say something */
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		expect(h[i], TIERD_HOST, (int)i);
	end();
}
END_TEST

/* Of those that print and end: what did not arrive is not a success. */
START_TEST(what_is_printed_to_a_full_disk_is_a_failure)
{
	static const char *const what[] = { "--config %s --check-config",
					    "--config %s --print-config", "--print-reference",
					    "--help", "--version" };
	char arguments[128], command[512];

	system_prepare(s, SMALL);
	for (unsigned i = 0; i < ARRAY_SIZE(what); i++) {
		snprintf(arguments, sizeof(arguments), what[i], s->config);
		snprintf(command, sizeof(command), "%s %s >/dev/full 2>>%s", TIERD_PATH, arguments,
			 s->log);
		ck_assert_msg(WEXITSTATUS(system(command)) == 1, "%s", what[i]);
		log_must("tierd: stdout: No space left on device");
		ck_assert_int_eq(unlink(s->log), 0);
	}
	system_launch(s);
	snprintf(command, sizeof(command), "%s --socket %s status --interval 0 >/dev/full 2>>%s",
		 TIERCTL_PATH, s->socket, s->log);
	ck_assert_int_eq(WEXITSTATUS(system(command)), 1);
	log_must("tierctl: stdout: No space left on device");
	ck_assert_int_eq(unlink(s->log), 0);
	/* It looks whether that is a terminal, and closes its connection, in between. */
	snprintf(command, sizeof(command), "%s --socket %s top --once >/dev/full 2>>%s",
		 TIERCTL_PATH, s->socket, s->log);
	ck_assert_int_eq(WEXITSTATUS(system(command)), 1);
	log_must("tierctl: stdout: No space left on device");
	snprintf(command, sizeof(command), "%s --socket %s top --once >&- 2>>%s", TIERCTL_PATH,
		 s->socket, s->log);
	ck_assert_int_eq(WEXITSTATUS(system(command)), 1);
	log_must("tierctl: stdout: Bad file descriptor");
	system_stop(s);
}
END_TEST

#define NVME_BYTES MIB(32)

/* The nvme folder as another file system, for the daemon alone, on which no space is reserved: the
 * call with these many bytes is for nvme, those for memory have others. */
static void small_disk(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NVME_BYTES, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { ARRAY_SIZE(program), program };

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tierd-test", s->nvme, "tmpfs", 0, "size=48m") < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		_exit(99);
}

/* Somebody else takes all that is left of it. Returns the file, which goes with its descriptor. */
static int fill_the_disk(void)
{
	char path[192];
	struct statvfs v;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)s->pid, s->nvme);
	ck_assert_int_eq(statvfs(path, &v), 0);
	fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)(v.f_bfree * v.f_frsize)), 0);
	return fd;
}

/* Written bytes stay where they are and can be had; who wants them on the disk is told. */
START_TEST(with_a_full_disk_it_serves_answers_and_ends)
{
	tierd_tensor h[3];
	int fd;

	if (geteuid() != 0)
		return;
	system_prepare(s, SMALL);
	s->before_exec = small_disk;
	system_launch(s);
	fd = fill_the_disk();
	connect_as("job");
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		h[i] = make(MIB(1));
		fill(h[i], TIERD_HOST, (int)i + 1);
	}
	log_must("space not reserved");
	ck_assert_int_eq(tierd_flush(t, h, ARRAY_SIZE(h)), -ENOSPC);
	ck_assert_int_eq(TIERCTL(s->socket, "status", "--interval", "0"), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		expect(h[i], TIERD_HOST, (int)i + 1);
	end();
	close(fd);
}
END_TEST

UNIT_MAIN("end", exit_statuses_are_those_documented,
	  an_assertion_that_fails_says_what_it_is_about_and_leaves_nothing,
	  no_core_is_written_where_none_is_configured, a_second_signal_does_not_wait_for_a_device,
	  two_signals_at_any_distance_leave_nothing, a_log_without_room_stops_nothing,
	  a_log_without_a_descriptor_goes_to_no_file_of_ours,
	  a_client_without_stdio_prints_to_nothing_of_ours,
	  what_is_printed_to_a_full_disk_is_a_failure, with_a_full_disk_it_serves_answers_and_ends)

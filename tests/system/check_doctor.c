/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl doctor on machines that refuse things: each is one line that says what it is and how to
 * mend it, and the exit status tells whether tierd could start.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/client_rig.h"
#include "tests/system/pool.h"
#include "tests/system/tierctl_rig.h"

#define NOBODY 65534u
#define PLAIN                                      \
	"tensors: 4Ki\n"                           \
	"tiers:\n"                                 \
	"  dram: {size: 16MiB, huge_pages: off}\n" \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB}\n"

#define REQUIRES(bytes) "tensors: 4Ki\ntiers: {dram: {size: " bytes ", huge_pages: require}}\n"

static int doctor(void)
{
	return TIERCTL(s->socket, "doctor", "--config", s->config);
}

static void expect_line(const char *status, const char *what, const char *text)
{
	char head[64];
	const char *at;

	snprintf(head, sizeof(head), "%-5s %-14s ", status, what);
	at = strstr(tierctl_said, head);
	if (at == NULL || strstr(at, text) == NULL || strstr(at, text) > strchr(at, '\n'))
		ck_abort_msg("no line '%s' with '%s' in:\n%s", head, text, tierctl_said);
}

/* In --json: what is well has nothing to mend. */
static void expect_no_mending_of_ok(void)
{
	const char *line = tierctl_said, *end;

	for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		bool ok = strncmp(line, "{\"status\":\"ok\"", 14) == 0;
		const char *mend = strstr(line, "\"mend\":");

		if (ok && mend != NULL && mend < end)
			ck_abort_msg("what is well is to be mended: %.*s", (int)(end - line), line);
	}
}

START_TEST(a_machine_that_has_what_is_wanted_is_well)
{
	static const char *const checks[] = {
		"configuration", "daemon", "kernel",   "memory",     "huge pages", "memlock",
		"numa",          "cuda",   "io_uring", "direct I/O", "space",      "descriptors"
	};
	char want[64];

	system_prepare(s, PLAIN);
	ck_assert_int_eq(doctor(), 0);
	ck_assert_ptr_null(strstr(tierctl_said, "fail "));
	expect_line("ok", "space", "32.0 MiB are there");
	expect_line("ok", "huge pages", "off by the configuration");
	ck_assert_int_eq(TIERCTL(s->socket, "--json", "doctor", "--config", s->config), 0);
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		snprintf(want, sizeof(want), "\"check\":\"%s\"", checks[i]);
		ck_assert(tierctl_says(want));
	}
	expect_no_mending_of_ok();
	system_stop(s);
}
END_TEST

/* What it says of large pages is what a daemon gets. */
START_TEST(large_pages_are_those_that_a_daemon_gets)
{
	bool large;

	system_prepare(s, "tensors: 4Ki\ntiers: {dram: {size: 16MiB}}\n");
	ck_assert_int_eq(doctor(), 0);
	large = strstr(tierctl_said, "ok    huge pages") != NULL;
	expect_line(large ? "ok" : "warn", "huge pages", "of 8 MiB that were tried: ");
	system_launch(s);
	ck_assert_int_eq(system_log_has(s, "2 MiB pages"), large);
	system_end(s);
	system_stop(s);
}
END_TEST

START_TEST(with_a_daemon_it_says_what_that_chose)
{
	system_start(s, PLAIN);
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "daemon", "serving");
	expect_line("ok", "device", "dram: ");
	ck_assert(tierctl_says("device         nvme0 "));
	ck_assert_ptr_null(strstr(tierctl_said, "direct I/O"));
	system_end(s);
	system_stop(s);
}
END_TEST

START_TEST(of_several_domains_it_looks_at_the_one_that_is_named)
{
	system_start(s, PLAIN "domains: [{name: red, users: [4294967293], dram: 8MiB}]\n");
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "daemon", "serving domain default");
	ck_assert(tierctl_says("device         nvme0 "));
	ck_assert_int_eq(TIERCTL(s->socket, "--domain", "red", "doctor", "--config", s->config), 0);
	expect_line("ok", "daemon", "serving domain red");
	ck_assert_ptr_null(strstr(tierctl_said, "device         nvme0 "));
	TIERCTL(s->socket, "--domain", "blue", "doctor", "--config", s->config);
	expect_line("warn", "daemon", "there is no domain 'blue'");
	system_end(s);
	system_stop(s);
}
END_TEST

/* Who is let in to no domain does not take what the daemon has for what is missing. */
START_TEST(a_daemon_that_refuses_has_its_space_all_the_same)
{
	system_start(s,
		     PLAIN "domains: [{name: red, users: [4294967293], dram: 8MiB, nvme: 8MiB}]\n"
			   "strangers: refuse\n");
	ck_assert_int_eq(doctor(), 0);
	expect_line("warn", "daemon", "`strangers` are refused");
	expect_line("ok", "path", ": it is there; its room was not tried");
	ck_assert_ptr_null(strstr(tierctl_said, "direct I/O"));
	ck_assert_ptr_null(strstr(tierctl_said, "socket         "));
	system_end(s);
	system_stop(s);
}
END_TEST

/* The configuration that is asked about need not be the daemon's. */
START_TEST(beside_a_daemon_a_path_that_is_missing_fails)
{
	system_start(s, PLAIN);
	ck_assert_int_eq(doctor(), 0);
	ck_assert_ptr_null(strstr(tierctl_said, "what is configured the daemon has"));
	expect_line("ok", "path", ": it is there; its room was not tried");
	ck_assert_int_eq(rmdir(s->nvme), 0);
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", "path", "/nvme: does not exist");
	ck_assert_int_eq(mkdir(s->nvme, 0700), 0);
	system_end(s);
	system_stop(s);
}
END_TEST

/* With the sentence that tierd ends with. */
static void both_refuse(const char *config, const char *what, const char *sentence)
{
	int status;

	system_prepare(s, config);
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", what, sentence);
	ck_assert(!system_tries(s, &status));
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 78);
	ck_assert_msg(system_log_has(s, sentence), "tierd does not say: %s", sentence);
	system_stop(s);
}

START_TEST(users_that_tierd_refuses_fail)
{
	both_refuse(PLAIN "domains: [{name: a, users: [nobody-of-that-name], dram: 8MiB}]\n",
		    "domains",
		    "domains[0].users: there is no user 'nobody-of-that-name' on this machine");
	both_refuse(PLAIN "domains: [{name: a, users: [root], dram: 4MiB}, "
			  "{name: b, users: [0], dram: 4MiB}]\n",
		    "domains", "domains: uid 0 is in 'a' and in 'b'");
	system_prepare(s, PLAIN "domains: [{name: a, users: [root], dram: 8MiB}]\n");
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "domains", "2 domains, and all users are known");
	system_stop(s);
}
END_TEST

#define GUARANTEES(hbm, dram, nvme)                                      \
	"tensors: 4Ki\n"                                                 \
	"staging: 4MiB\n"                                                \
	"tiers:\n"                                                       \
	"  hbm: {backend: memory, size: 8MiB, devices: 2}\n"             \
	"  dram: {size: 20MiB, huge_pages: off}\n"                       \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB}\n" \
	"namespaces: [{name: prod, hbm: " hbm ", dram: " dram ", nvme: " nvme "}]\n"

START_TEST(guarantees_that_no_tier_has_fail)
{
	both_refuse(GUARANTEES("{guarantee: 9MiB}", "{}", "{}"), "namespaces",
		    "namespaces[0] ('prod'): hbm.guarantee: 9437184 bytes, more than the 8388608 "
		    "that hbm0 has");
	/* Of dram staging is gone. */
	both_refuse(GUARANTEES("{}", "{guarantee: 17MiB}", "{}"), "namespaces",
		    "namespaces[0] ('prod'): dram.guarantee: 17825792 bytes, more than the "
		    "16777216 that dram has");
	both_refuse(GUARANTEES("{}", "{}", "{guarantee: 33MiB}"), "namespaces",
		    "namespaces[0] ('prod'): nvme.guarantee: 34603008 bytes, more than the "
		    "33554432 that nvme has");
	both_refuse(GUARANTEES("{guarantee: 60%, limit: 2MiB}", "{}", "{}"), "namespaces",
		    "namespaces[0].hbm.guarantee: 5033164 bytes are above its limit, 2097152");
	/* The whole has it, a domain's share has not. */
	both_refuse(GUARANTEES("{}", "{guarantee: 12MiB}", "{}") "domains: [{name: a, users: "
								 "[root], dram: 10MiB}]\n",
		    "namespaces", "namespaces[0] ('prod'): dram.guarantee: 12582912 bytes, more");
	system_start(s,
		     GUARANTEES("{guarantee: 8MiB}", "{guarantee: 16MiB}", "{guarantee: 32MiB}"));
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "namespaces", "tiers have what is guaranteed");
	system_end(s);
	system_stop(s);
	/* The room that a share is of is the daemon's by then. */
	system_start(s, "tensors: 4Ki\ntiers:\n  dram: {size: 16MiB, huge_pages: off}\n  nvme: "
			"{paths: [{path: @NVME@, size: 0.1%}]}\n"
			"namespaces: [{name: prod, nvme: {guarantee: 50%}}]\n");
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "namespaces", "not compared with the size of nvme, which is not known");
	system_end(s);
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "namespaces", "tiers have what is guaranteed");
	system_stop(s);
}
END_TEST

static void filter(struct sock_filter *program, size_t n)
{
	struct sock_fprog all = { (unsigned short)n, program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) < 0)
		_exit(99);
}

static int refused_call;

static void refuse(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)refused_call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter(program, ARRAY_SIZE(program));
}

START_TEST(io_uring_that_a_filter_refuses_fails)
{
	static const int calls[] = { SYS_io_uring_setup, SYS_io_uring_enter };

	system_prepare(s, PLAIN);
	tierctl_before_exec = refuse;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		refused_call = calls[i];
		ck_assert_int_eq(doctor(), 1);
		expect_line("fail", "io_uring", "seccomp");
		expect_line("fail", "io_uring", "to mend: sysctl kernel.io_uring_disabled=0");
	}
	/* Nothing that is configured needs it. */
	ck_assert_int_eq(TIERCTL(s->socket, "doctor", "--config", "/dev/null"), 1);
	expect_line("warn", "io_uring", "only an nvme tier needs it");
	expect_line("fail", "configuration", "/dev/null");
	system_stop(s);
}
END_TEST

/* The kernel gives none one by one: what large pages there are, are those of the pool. */
static void refuse_to_collapse(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 25 /* MADV_COLLAPSE */, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter(program, ARRAY_SIZE(program));
}

/* With 16 MiB in the pool, unless others than tests take of them. */
static void pool_is_counted(void)
{
	unsigned tries = 0;
	int status;

	system_prepare(s, REQUIRES("64MiB"));
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", "huge pages", "dram needs 64.0 MiB; to mend: ");
	s->before_exec = refuse_to_collapse;
	ck_assert(!system_tries(s, &status));
	system_stop(s);

	system_prepare(s, REQUIRES("16MiB"));
	s->before_exec = refuse_to_collapse;
	while (doctor() != 0 || !system_tries(s, &status))
		ck_assert_msg(++tries <= 50, "it fails with enough of them:\n%s", tierctl_said);
	expect_line("ok", "huge pages", "2 MiB pages of the pool");
	/* It has them all now, and that is no fault. */
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "huge pages", "the daemon has them for dram");
	system_stop(s);
}

/* A few large pages are no promise of as many as dram is to have. */
START_TEST(required_large_pages_are_counted_and_not_tried)
{
	pid_t guardian;
	int pool;

	system_prepare(s, REQUIRES("64MiB"));
	if (doctor() == 0 && strstr(tierctl_said, "2 MiB pages of the pool") == NULL)
		expect_line("warn", "huge pages", "dram needs 64.0 MiB");
	tierctl_before_exec = refuse_to_collapse;
	doctor();
	system_stop(s);
	pool = strstr(tierctl_said, "fail  huge pages") ? pool_borrow(8, &guardian) : -1;
	if (pool < 0) {
		fprintf(stderr, "skipped: transparent huge pages, or no pool of 16 MiB\n");
		return;
	}
	pool_is_counted();
	system_pool_leave();
	pool_return(pool, guardian);
}
END_TEST

static uint64_t descriptors;

static void few_descriptors(void)
{
	struct rlimit few = { descriptors, descriptors };

	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		_exit(99);
}

START_TEST(few_descriptors_are_said_before_they_are_missed)
{
	system_prepare(s, PLAIN);
	tierctl_before_exec = few_descriptors;
	descriptors = 40;
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", "descriptors", "40, tierd needs 64 at least");
	descriptors = 200;
	ck_assert_int_eq(doctor(), 0);
	expect_line("warn", "descriptors", "clients, not max_clients: 512");
	expect_line("warn", "descriptors", "to mend: LimitNOFILE=");
	system_stop(s);
}
END_TEST

static void little_memory_to_lock(void)
{
	struct rlimit little = { MIB(8), MIB(8) };

	if (setrlimit(RLIMIT_MEMLOCK, &little) < 0 || setgroups(0, NULL) < 0 ||
	    setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		_exit(99);
}

START_TEST(little_lockable_memory_of_a_plain_user_is_a_warning)
{
	if (geteuid() != 0)
		return;
	system_prepare(s, PLAIN);
	ck_assert_int_eq(chmod(s->directory, 0755), 0);
	ck_assert_int_eq(chmod(s->config, 0644), 0);
	ck_assert_int_eq(chown(s->nvme, NOBODY, NOBODY), 0);
	tierctl_before_exec = little_memory_to_lock;
	/* The socket would stand in a folder that is not its own. */
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", "socket", "nothing can be made in ");
	ck_assert_int_eq(chown(s->directory, NOBODY, NOBODY), 0);
	ck_assert_int_eq(doctor(), 0);
	expect_line("ok", "socket", "it can be made");
	expect_line("warn", "memlock", "8.0 MiB: ");
	expect_line("warn", "memlock", "16.0 MiB are wanted");
	/* The same user in front of a folder that is not its own. */
	ck_assert_int_eq(chown(s->nvme, 0, 0), 0);
	ck_assert_int_eq(chmod(s->nvme, 0755), 0);
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", "path", "Permission denied");
	expect_line("fail", "path", "to mend: an existing folder that tierd's user may write");
	/* What is wrong with the path is said once. */
	ck_assert_ptr_null(strstr(tierctl_said, "direct I/O"));
	ck_assert_ptr_null(strstr(tierctl_said, "space "));
	system_stop(s);
}
END_TEST

START_TEST(a_path_in_memory_saves_none)
{
	if (geteuid() != 0)
		return;
	system_prepare(s, PLAIN);
	ck_assert_int_eq(mount("none", s->nvme, "ramfs", 0, NULL), 0);
	ck_assert_int_eq(doctor(), 0);
	expect_line("warn", "direct I/O", "ramfs keeps its bytes in memory");
	expect_line("warn", "direct I/O", "to mend: a folder on a disk");
	ck_assert_int_eq(umount(s->nvme), 0);
	system_stop(s);
}
END_TEST

START_TEST(sizes_that_are_not_there_fail)
{
	system_prepare(s, "tensors: 4Ki\n"
			  "tiers:\n"
			  "  dram: {size: 4TiB}\n"
			  "  nvme: {paths: [{path: @NVME@, size: 4000TiB}]}\n");
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", "memory", "4194304 MiB are wanted");
	expect_line("fail", "memory", "to mend: a smaller tiers.dram.size");
	expect_line("fail", "space", "bytes free");
	system_stop(s);
	/* What plays a GPU is host memory as well. */
	system_prepare(s, "tensors: 4Ki\n"
			  "tiers:\n"
			  "  hbm: {backend: memory, size: 1TiB, devices: 4}\n"
			  "  dram: {size: 16MiB}\n");
	ck_assert_int_eq(doctor(), 1);
	expect_line("fail", "memory", "hbm and dram: 4194320 MiB are wanted");
	expect_line("fail", "memory", "to mend: smaller sizes of tiers.hbm and tiers.dram");
	system_stop(s);
}
END_TEST

/* Each by itself has room in the folder, and the second by no other measure than the first. */
START_TEST(paths_of_one_file_system_want_room_together)
{
	char config[512];
	struct statfs fs;
	uint64_t most;

	system_prepare(s, PLAIN);
	ck_assert_int_eq(statfs(s->nvme, &fs), 0);
	most = (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize / 100 * 60 / MIB(1);
	system_stop(s);
	snprintf(config, sizeof(config),
		 "tensors: 4Ki\ntiers:\n  dram: {size: 16MiB}\n  nvme: {paths: [{path: @NVME@, "
		 "size: %" PRIu64 "MiB}, {path: @NVME@, size: %" PRIu64 "MiB}]}\n",
		 most, most);
	system_prepare(s, config);
	ck_assert_int_eq(doctor(), 1);
	expect_line("ok", "space", " are there");
	expect_line("fail", "space", "of which paths before it on this file system want ");
	system_stop(s);
	system_prepare(s, "tensors: 4Ki\ntiers:\n  dram: {size: 16MiB}\n  nvme: {paths: [{path: "
			  "@NVME@, size: 40%}, {path: @NVME@, size: 80%}]}\n");
	ck_assert_int_eq(doctor(), 0);
	system_stop(s);
}
END_TEST

#ifdef HAVE_CUDA
#define CUDA_CONFIG                                \
	"tensors: 4Ki\n"                           \
	"tiers:\n"                                 \
	"  dram: {size: 16MiB, huge_pages: off}\n" \
	"  hbm: {backend: cuda, size: 64MiB%s}\n"

static void doctor_of_gpus(int status, const char *devices)
{
	char config[256];

	snprintf(config, sizeof(config), CUDA_CONFIG, devices);
	system_prepare(s, config);
	ck_assert_int_eq(doctor(), status);
	system_stop(s);
}
#endif

START_TEST(gpus_are_looked_at_as_they_will_be_used)
{
#ifdef HAVE_CUDA
	setenv("TIERD_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	doctor_of_gpus(1, "");
	expect_line("fail", "cuda", "looked for /nonexistent/libcuda.so.1");
	expect_line("fail", "cuda", "to mend: an NVIDIA driver");
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	doctor_of_gpus(0, "");
	expect_line("ok", "cuda", "driver of CUDA 13.0, 2 GPUs of the configuration");
	expect_line("ok", "gpu", "0: ");
	expect_line("ok", "gpu", "exports its memory by descriptor");
	doctor_of_gpus(1, "}\nnamespaces: [{name: prod, hbm: {guarantee: 65MiB}}]\nmetrics: {");
	expect_line("fail", "namespaces", "more than the 67108864 that hbm0 has");
	doctor_of_gpus(1, ", devices: [5]");
	expect_line("fail", "cuda", "there is no GPU '5'");
	setenv("FAKE_CUDA_BYTES", "33554432", 1);
	doctor_of_gpus(1, "");
	expect_line("fail", "gpu", "size of 67108864 bytes: the GPU has 33554432");
	expect_line("fail", "gpu", "to mend: another tiers.hbm.size");
#endif
}
END_TEST

UNIT_MAIN("doctor", a_machine_that_has_what_is_wanted_is_well,
	  large_pages_are_those_that_a_daemon_gets, with_a_daemon_it_says_what_that_chose,
	  of_several_domains_it_looks_at_the_one_that_is_named,
	  a_daemon_that_refuses_has_its_space_all_the_same,
	  beside_a_daemon_a_path_that_is_missing_fails, users_that_tierd_refuses_fail,
	  guarantees_that_no_tier_has_fail, required_large_pages_are_counted_and_not_tried,
	  io_uring_that_a_filter_refuses_fails, few_descriptors_are_said_before_they_are_missed,
	  little_lockable_memory_of_a_plain_user_is_a_warning, a_path_in_memory_saves_none,
	  sizes_that_are_not_there_fail, paths_of_one_file_system_want_room_together,
	  gpus_are_looked_at_as_they_will_be_used)

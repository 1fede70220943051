/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/system/system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/unit/leftovers.h"
#include "tests/unit/point.h"

/* ---- files -------------------------------------------------------------------------------------
 */

static void log_print(const struct system *s)
{
	char line[1024];
	FILE *f = fopen(s->log, "r");

	while (f && fgets(line, sizeof(line), f))
		fprintf(stderr, "  %s", line);
	if (f)
		fclose(f);
	unlink(s->log); /* once is enough */
}

void system_fail(const struct system *s, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_print(s);
	ck_abort_msg("%s", text);
	abort();
}

/* Puts a tier that the fake driver has in place of one of memory: the same size in whole slabs, and
 * as many GPUs. Returns what follows in the text. */
static const char *hbm_write(FILE *f, const char *at)
{
	static const char *const of_memory[] = { ", slab: ", ", physical: ", ", devices: " };
	const char *devices = "1";
	unsigned mib = 0;
	int n = 0;

	ck_assert_msg(sscanf(at, "backend: memory, size: %uMiB%n", &mib, &n) == 1 && n > 0, "%s",
		      at);
	fprintf(f, "backend: cuda, size: %uMiB, slab: 2MiB", mib + mib % 2);
	at += n;
	for (unsigned i = 0; i < ARRAY_SIZE(of_memory); i++)
		if (strncmp(at, of_memory[i], strlen(of_memory[i])) == 0) {
			devices = i == 2 ? at + strlen(of_memory[i]) : devices;
			at += 1 + strcspn(at + 1, ",}");
		}
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", (char[]){ devices[0], '\0' }, 1);
	return at;
}

static void config_write(const struct system *s, const char *config)
{
	const char *hbm = getenv("TIERD_TEST_HBM");
	FILE *f = fopen(s->config, "w");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "socket: %s\n", s->socket);
	while (*config != '\0') {
		if (strncmp(config, "@NVME@", strlen("@NVME@")) == 0) {
			fputs(s->nvme, f);
			config += strlen("@NVME@");
		} else if (hbm && strcmp(hbm, "cuda") == 0 &&
			   strncmp(config, "backend: memory", strlen("backend: memory")) == 0) {
			config = hbm_write(f, config);
		} else {
			fputc(*config++, f);
		}
	}
	ck_assert_int_eq(fclose(f), 0);
}

void system_prepare(struct system *s, const char *config)
{
	*s = (struct system){ .notify_fd = -1 };
	leftovers_folder(s->directory);
	snprintf(s->config, sizeof(s->config), "%s/config.yaml", s->directory);
	snprintf(s->socket, sizeof(s->socket), "%s/tierd.sock", s->directory);
	snprintf(s->nvme, sizeof(s->nvme), "%s/nvme", s->directory);
	snprintf(s->log, sizeof(s->log), "%s/log", s->directory);
	ck_assert_int_eq(mkdir(s->nvme, 0700), 0);
	config_write(s, config);
}

/* ---- start -------------------------------------------------------------------------------------
 */

static void notify_path(const struct system *s, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof(ret->sun_path), "%.90s/notify", s->directory);
}

static void notify_listen(struct system *s)
{
	struct sockaddr_un address;

	notify_path(s, &address);
	s->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(s->notify_fd, 0);
	ck_assert_int_eq(bind(s->notify_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	/* A daemon that gave up its privileges must reach it as well. */
	ck_assert_int_eq(chmod(address.sun_path, 0666), 0);
}

static void notify_close(struct system *s)
{
	struct sockaddr_un address;

	if (s->notify_fd < 0)
		return;
	notify_path(s, &address);
	close(s->notify_fd);
	unlink(address.sun_path);
	s->notify_fd = -1;
}

void system_exec(const char *path, void (*before)(void), char *const *args)
{
	int program = open(path, O_PATH | O_CLOEXEC);

	if (before != NULL)
		before();
	execv(path, args);
	fexecve(program, args, environ);
}

bool system_user_misses_driver(struct system *s, uid_t user)
{
	const char *driver = getenv("TIERD_LIBCUDA");
	pid_t pid = driver != NULL ? fork() : -1;
	int status;

	if (driver == NULL)
		return false;
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(setuid(user) != 0 || access(driver, R_OK) != 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (status == 0)
		return false;
	fprintf(stderr, "skipped: others are not let into the folder of %s\n", driver);
	system_stop(s);
	return true;
}

static _Noreturn void daemon_exec(const struct system *s)
{
	const char *bin = getenv("TIERD_BIN") ? getenv("TIERD_BIN") : TIERD_PATH;
	char *const args[] = { "tierd", "--config", (char *)s->config, NULL };
	struct sockaddr_un address;
	int log = open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	notify_path(s, &address);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	/* A test that is killed must not leave its daemon behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	system_exec(bin, s->before_exec, args);
	fprintf(stderr, "exec of %s: %s\n", bin, strerror(errno));
	_exit(127);
}

static pid_t daemon_spawn(const struct system *s)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		daemon_exec(s);
	return pid;
}

/* Until "READY=1": true, or the daemon's end. */
static bool ready_wait(struct system *s)
{
	int pidfd = pidfd_open(s->pid, 0);
	struct pollfd p[] = { { s->notify_fd, POLLIN, 0 }, { pidfd, POLLIN, 0 } };
	char text[64] = "";

	ck_assert_int_ge(pidfd, 0);
	if (poll(p, 2, SYSTEM_READY_MS) <= 0)
		system_fail(s, "tierd was not ready within %d ms", SYSTEM_READY_MS);
	close(pidfd);
	if (!p[0].revents)
		return false;
	ck_assert_int_gt(recv(s->notify_fd, text, sizeof(text) - 1, 0), 0);
	ck_assert_str_eq(text, "READY=1");
	return true;
}

static int pool_fd = -1; /* >= 0: no other process begins a daemon */

/* A lock of the folder leaves no file and asks for no right to write. */
static int pool_lock(int how)
{
	int fd = open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, how), 0);
	return fd;
}

void system_pool_take(void)
{
	ck_assert_int_lt(pool_fd, 0);
	pool_fd = pool_lock(LOCK_EX);
}

void system_pool_leave(void)
{
	close(pool_fd);
	pool_fd = -1;
}

bool system_tries(struct system *s, int *ret_status)
{
	int fd = pool_fd < 0 ? pool_lock(LOCK_SH) : -1;
	bool ready;

	ck_assert_int_eq(s->pid, 0);
	notify_close(s);
	notify_listen(s);
	s->pid = daemon_spawn(s);
	ready = ready_wait(s);
	if (fd >= 0)
		close(fd);
	if (ready)
		return true;
	ck_assert_int_eq(waitpid(s->pid, ret_status, 0), s->pid);
	s->pid = 0;
	notify_close(s);
	return false;
}

void system_launch(struct system *s)
{
	int status;

	if (!system_tries(s, &status))
		system_fail(s, "tierd ended before it was ready, wait status %d", status);
}

void system_launch_unready(struct system *s)
{
	uint64_t end_ns = clock_now_ns() + SYSTEM_READY_MS * NS_PER_MS;
	char lock[112];

	snprintf(lock, sizeof(lock), "%s.lock", s->socket);
	notify_close(s);
	notify_listen(s);
	s->pid = daemon_spawn(s);
	while (access(lock, F_OK) != 0) {
		if (clock_now_ns() > end_ns)
			system_fail(s, "tierd took no lock");
		usleep(1000);
	}
}

pid_t system_launch_two(struct system *s)
{
	struct ucred from = { 0 };
	char text[16], room[CMSG_SPACE(sizeof(from))];
	struct iovec iov = { text, sizeof(text) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	struct pollfd p;
	pid_t pid[2];
	int on = 1;

	notify_listen(s);
	ck_assert_int_eq(setsockopt(s->notify_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	for (int i = 0; i < 2; i++)
		pid[i] = daemon_spawn(s);
	p = (struct pollfd){ s->notify_fd, POLLIN, 0 };
	if (poll(&p, 1, SYSTEM_READY_MS) != 1 || recvmsg(s->notify_fd, &m, 0) <= 0)
		system_fail(s, "neither of two was ready");
	memcpy(&from, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(from));
	ck_assert(from.pid == pid[0] || from.pid == pid[1]);
	s->pid = from.pid;
	return from.pid == pid[0] ? pid[1] : pid[0];
}

void system_start(struct system *s, const char *config)
{
	system_prepare(s, config);
	system_launch(s);
}

/* ---- end ---------------------------------------------------------------------------------------
 */

/* The wait status; -1 when it did not end in time. */
static int end_wait(pid_t pid, int timeout_ms)
{
	int pidfd = pidfd_open(pid, 0), status = -1;
	struct pollfd p = { pidfd, POLLIN, 0 };

	ck_assert_int_ge(pidfd, 0);
	if (poll(&p, 1, timeout_ms) == 1)
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	close(pidfd);
	return status;
}

void system_end(struct system *s)
{
	int status;

	kill(s->pid, SIGTERM);
	status = end_wait(s->pid, SYSTEM_STOP_MS);
	if (status != 0)
		system_fail(s, "tierd ended with wait status %d after SIGTERM", status);
	s->pid = 0;
	notify_close(s);
}

void system_kill(struct system *s)
{
	kill(s->pid, SIGKILL);
	ck_assert_int_ge(end_wait(s->pid, SYSTEM_STOP_MS), 0);
	s->pid = 0;
	notify_close(s);
}

static unsigned files_in(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	if (d)
		closedir(d);
	return n;
}

void system_stop(struct system *s)
{
	if (s->pid > 0)
		system_end(s);
	notify_close(s);
	if (files_in(s->nvme) != 0)
		system_fail(s, "tierd left a file in its nvme folder");
	unlink(s->config);
	unlink(s->log);
	rmdir(s->nvme);
	if (rmdir(s->directory) < 0)
		system_fail(s, "tierd left a file in %s", s->directory);
}

int system_run_again(struct system *s)
{
	pid_t pid = daemon_spawn(s);
	int status = end_wait(pid, SYSTEM_READY_MS);

	if (status < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return -1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- what it says and costs --------------------------------------------------------------------
 */

unsigned system_log_count(const struct system *s, const char *text)
{
	char line[2048];
	unsigned n = 0;
	FILE *f = fopen(s->log, "r");

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return n;
}

bool system_log_has(const struct system *s, const char *text)
{
	return system_log_count(s, text) > 0;
}

bool system_log_waits(const struct system *s, const char *text, int timeout_ms)
{
	uint64_t end_ns = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;

	while (!system_log_has(s, text)) {
		if (clock_now_ns() > end_ns)
			return false;
		usleep(5000);
	}
	return true;
}

bool system_bytes_are(const void *data, unsigned char value, size_t bytes)
{
	const unsigned char *at = data;

	/* Each byte equals the one before it, and the first is right. */
	return bytes == 0 || (at[0] == value && bytes_equal(at, at + 1, bytes - 1));
}

uint64_t system_cpu_ns(const struct system *s)
{
	char path[64], text[1024] = "", *at;
	unsigned long user = 0, sys = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", s->pid);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	at = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
	fclose(f);
	/* After the name: state and ten fields, then utime and stime in ticks. */
	ck_assert(at && sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			       &sys) == 2);
	return (user + sys) * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint64_t task_switches(const char *path)
{
	char line[128];
	unsigned long n = 0, all = 0;
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
			all += n;
	}
	if (f)
		fclose(f);
	return all;
}

uint64_t system_switches(const struct system *s)
{
	char tasks[64], path[384];
	uint64_t n = 0;
	struct dirent *e;
	DIR *d;

	snprintf(tasks, sizeof(tasks), "/proc/%d/task", s->pid);
	d = opendir(tasks);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue; /* ".." has those of the first thread once more */
		snprintf(path, sizeof(path), "%s/%s/status", tasks, e->d_name);
		n += task_switches(path);
	}
	closedir(d);
	return n;
}

static unsigned descriptors_of(pid_t pid)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n - 2; /* "." and ".." */
}

static unsigned lines_in(const char *path)
{
	FILE *f = fopen(path, "r");
	unsigned n = 0;
	int c;

	ck_assert_ptr_nonnull(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

struct system_holdings system_holdings(pid_t pid)
{
	struct system_holdings h = { .descriptors = descriptors_of(pid) };
	unsigned long pages = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	h.maps = lines_in(path);
	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*u %lu", &pages), 1);
	fclose(f);
	h.resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return h;
}

/* ---- clients -----------------------------------------------------------------------------------
 */

pid_t system_child(void (*body)(struct system *s, void *arg), struct system *s, void *arg)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	body(s, arg);
	_exit(0);
}

void system_child_end(struct system *s, pid_t pid, int timeout_ms)
{
	int status = end_wait(pid, timeout_ms);

	if (status == -1)
		kill(pid, SIGKILL);
	if (status != 0)
		system_fail(s, "a client ended with wait status %d", status);
}

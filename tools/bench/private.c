/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon under measurement: a private one is the tierd beside this program, started with a
 * configuration in a folder of its own and ended by SIGTERM.
 */
#define _GNU_SOURCE /* struct ucred */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tools/bench/bench.h"

#define START_NS (60 * NS_PER_S) /* the arenas are touched before the socket opens */

void bench_spin(void)
{
	char us[16];

	snprintf(us, sizeof(us), "%d", BENCH_SPIN_US);
	setenv("TIERD_SPIN_US", us, 0);
}

static void write_hbm(FILE *f, const struct bench_config *c)
{
	const char *backend = c->hbm_backend != NULL ? c->hbm_backend : "memory";

	if (c->hbm_bytes == 0)
		return;
	fprintf(f, "  hbm: {backend: %s, size: %" PRIu64 "B", backend, c->hbm_bytes);
	/* A GPU's lane has a thread to spare as well. */
	if (c->hbm_backend != NULL && c->spin_us != 0)
		fprintf(f, ", spin: %uus", c->spin_us);
	fputs("}\n", f);
}

static int write_config(const struct bench_daemon *d, const struct bench_config *c)
{
	FILE *f = fopen(d->config, "w");

	if (f == NULL)
		return -errno;
	fprintf(f, "socket: %s\nlinger: 0s\n", d->socket);
	if (c->spin_us != 0)
		fprintf(f, "spin: %uus\n", c->spin_us);
	if (c->staging_bytes != 0)
		fprintf(f, "staging: %" PRIu64 "B\n", c->staging_bytes);
	/* All of dram at the start: what is measured is not to run beside that. */
	fprintf(f, "tiers:\n  dram: {size: %" PRIu64 "B%s}\n", c->dram_bytes,
		c->dram_later ? "" : ", slab: 0B");
	write_hbm(f, c);
	if (c->nvme_bytes != 0)
		fprintf(f, "  nvme: {paths: [{path: %s, size: %" PRIu64 "B}]}\n", d->dir,
			c->nvme_bytes);
	if (c->overcommit_percent != 0)
		fprintf(f, "classes:\n  other: {overcommit: %u%%}\n", c->overcommit_percent);
	return fclose(f) == 0 ? 0 : -errno;
}

/* The tierd of the same build: beside this program, or above libtool's .libs, or in the path. */
static void find_tierd(char *ret, size_t room)
{
	static const char *const places[] = { "", "/..", "/../sbin" };
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	snprintf(ret, room, "tierd");
	if (n <= 0)
		return;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash != NULL)
		*slash = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char path[600];

		snprintf(path, sizeof(path), "%s%s/tierd", self, places[i]);
		if (access(path, X_OK) == 0) {
			snprintf(ret, room, "%s", path);
			return;
		}
	}
}

static _Noreturn void exec_tierd(const char *config, pid_t parent)
{
	char tierd[600];

	find_tierd(tierd, sizeof(tierd));
	/* A benchmark that is killed takes its daemon along. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	/* The usual start lines are no news; failures are. */
	setenv("TIERD_LOG", "main:warn,server:warn,tier:warn,engine:warn,move:warn,reclaim:warn",
	       0);
	execlp(tierd, "tierd", "--config", config, (char *)NULL);
	fprintf(stderr, "tierd-bench: %s: %s\n", tierd, strerror(errno));
	_exit(127);
}

/* Waits until it serves. */
static int wait_served(struct bench_daemon *d)
{
	uint64_t until = clock_now_ns() + START_NS;

	while (clock_now_ns() < until) {
		struct tierd *t;
		int status;

		if (waitpid(d->pid, &status, WNOHANG) == d->pid) {
			fprintf(stderr, "tierd-bench: the private tierd ended with status %d\n",
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
			d->pid = 0;
			return 1;
		}
		if (tierd_open(d->socket, "bench-start", 0, &t) == 0) {
			tierd_close(t);
			return 0;
		}
		usleep(10000);
	}
	return bench_failed("private tierd");
}

static int find_running(const char *socket_path, struct bench_daemon *ret)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct ucred peer;
	socklen_t n = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int rc = -1;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		rc = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n);
	if (rc < 0)
		fprintf(stderr, "tierd-bench: %s: %s\n", socket_path, strerror(errno));
	else
		ret->pid = peer.pid;
	snprintf(ret->socket, sizeof(ret->socket), "%s", socket_path);
	if (fd >= 0)
		close(fd);
	return rc < 0 ? 1 : 0;
}

/* The private daemon of this process, for the handler. */
static struct bench_daemon *volatile mine;
static volatile pid_t owner;

/* A benchmark that is told to end leaves neither daemon nor folder behind. Its clients just end. */
static void on_end(int signum)
{
	struct bench_daemon *d = mine;

	if (d != NULL && owner == getpid()) {
		kill(d->pid, SIGTERM);
		waitpid(d->pid, NULL, 0);
		unlink(d->config);
		rmdir(d->dir);
	}
	_exit(128 + signum);
}

static void watch_end(struct bench_daemon *d)
{
	/* SIGPIPE: whoever reads our lines has seen enough. */
	static const int signums[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
	struct sigaction action = { .sa_handler = on_end };

	owner = getpid();
	mine = d;
	for (size_t i = 0; i < ARRAY_SIZE(signums); i++)
		sigaction(signums[i], &action, NULL);
}

static int make_dir(const struct bench_options *o, struct bench_daemon *ret)
{
	const char *dir = o->dir != NULL ? o->dir : "/tmp";

	snprintf(ret->dir, sizeof(ret->dir), "%s/tierd-bench-XXXXXX", dir);
	if (mkdtemp(ret->dir) == NULL) {
		fprintf(stderr, "tierd-bench: %s: %s\n", ret->dir, strerror(errno));
		return 1;
	}
	snprintf(ret->config, sizeof(ret->config), "%s/config.yaml", ret->dir);
	if (snprintf(ret->socket, sizeof(ret->socket), "%s/sock", ret->dir) >=
	    (int)sizeof(ret->socket)) {
		fprintf(stderr, "tierd-bench: %s: too long for a socket\n", ret->dir);
		rmdir(ret->dir);
		return 1;
	}
	return 0;
}

int daemon_start(const struct bench_options *o, const struct bench_config *c,
		 struct bench_daemon *ret)
{
	pid_t parent = getpid();
	int rc;

	*ret = (struct bench_daemon){ 0 };
	if (o->socket != NULL)
		return find_running(o->socket, ret);
	if (make_dir(o, ret) != 0)
		return 1;
	ret->private = true;
	rc = write_config(ret, c);
	fflush(stdout);
	ret->pid = rc == 0 ? fork() : -1;
	if (ret->pid == 0)
		exec_tierd(ret->config, parent);
	watch_end(ret);
	rc = ret->pid < 0 ? 1 : wait_served(ret);
	if (rc != 0)
		daemon_stop(ret);
	return rc;
}

static void remove_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir != NULL)
		closedir(dir);
	rmdir(path);
}

int daemon_stop(struct bench_daemon *d)
{
	int status = 0;

	if (!d->private)
		return 0;
	mine = NULL;
	if (d->pid > 0) {
		kill(d->pid, SIGTERM);
		while (waitpid(d->pid, &status, 0) < 0 && errno == EINTR)
			;
		if (status != 0)
			fprintf(stderr, "tierd-bench: the private tierd ended with status %#x\n",
				(unsigned)status);
	}
	remove_dir(d->dir);
	d->pid = 0;
	return status != 0;
}

/* ---- what the kernel knows of it ---- */

/* First number of /proc/PID/task/TID/schedstat: ns on a CPU. */
static uint64_t thread_ns(pid_t pid, const char *tid)
{
	char path[128];
	uint64_t ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, tid);
	f = fopen(path, "r");
	if (f == NULL)
		return 0;
	if (fscanf(f, "%" SCNu64, &ns) != 1)
		ns = 0;
	fclose(f);
	return ns;
}

uint64_t daemon_control_ns(const struct bench_daemon *d)
{
	char tid[32];

	/* The control thread is the process's first. */
	snprintf(tid, sizeof(tid), "%d", (int)d->pid);
	return thread_ns(d->pid, tid);
}

uint64_t daemon_cpu_ns(const struct bench_daemon *d)
{
	char path[64];
	uint64_t sum = 0;
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)d->pid);
	dir = opendir(path);
	while (dir != NULL && (e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.')
			sum += thread_ns(d->pid, e->d_name);
	if (dir != NULL)
		closedir(dir);
	return sum;
}

uint64_t daemon_rss_bytes(const struct bench_daemon *d)
{
	char path[64], line[256];
	uint64_t kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)d->pid);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return KIB(kib);
}

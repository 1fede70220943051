/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* pipe2 */
#include "tests/system/tierctl_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/system/system.h"
#include "tests/unit/point.h"

#define WORDS_MAX 24
#define LIMIT_NS  (60 * NS_PER_S)

void (*tierctl_before_exec)(void);
char tierctl_said[1 << 18];

static void be_tierctl(const char *socket, const char *const *words, int fd)
{
	const char *all[WORDS_MAX + 4] = { TIERCTL_PATH };
	size_t n = 1;

	if (socket != NULL) {
		all[n++] = "--socket";
		all[n++] = socket;
	}
	for (; *words != NULL && n < WORDS_MAX + 3; words++)
		all[n++] = *words;
	if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(97);
	system_exec(TIERCTL_PATH, tierctl_before_exec, (char **)(uintptr_t)all);
	_exit(98);
}

pid_t tierctl_start(const char *socket, const char *const *words, int *ret_fd)
{
	int fds[2];
	pid_t pid;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		be_tierctl(socket, words, fds[1]);
	close(fds[1]);
	*ret_fd = fds[0];
	return pid;
}

int tierctl_end(pid_t pid, int fd)
{
	uint64_t until_ns = clock_now_ns() + LIMIT_NS;
	size_t at = 0;
	int status;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (clock_now_ns() > until_ns || poll(&p, 1, (int)(LIMIT_NS / NS_PER_MS)) <= 0) {
			kill(pid, SIGKILL);
			ck_abort_msg("tierctl did not end; it said: %s", tierctl_said);
		}
		n = read(fd, tierctl_said + at, sizeof(tierctl_said) - 1 - at);
		ck_assert_int_ge(n, 0);
		at += (size_t)n;
		tierctl_said[at] = '\0';
		ck_assert_uint_lt(at, sizeof(tierctl_said) - 1);
		if (n == 0)
			break;
	}
	close(fd);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "tierctl ended by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

int tierctl_run(const char *socket, const char *const *words)
{
	int fd;
	pid_t pid = tierctl_start(socket, words, &fd);

	return tierctl_end(pid, fd);
}

bool tierctl_says(const char *text)
{
	if (strstr(tierctl_said, text) != NULL)
		return true;
	fprintf(stderr, "not said: %s\nbut: %s\n", text, tierctl_said);
	return false;
}

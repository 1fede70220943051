/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/kill/step.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

#define ASK_EVERY 64u /* instructions */

void step_mark(void)
{
	raise(SIGSTOP);
}

static int wait_for(pid_t pid)
{
	int status;
	pid_t rc;

	do
		rc = waitpid(pid, &status, __WALL);
	while (rc < 0 && errno == EINTR);
	ASSERT(rc == pid);
	return status;
}

pid_t step_child(int (*body)(void *), void *arg)
{
	pid_t parent = getpid(), pid = fork();
	int status;

	ASSERT(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(127);
		step_mark(); /* until it stands here it cannot be told to go on */
		_exit(body(arg));
	}
	status = wait_for(pid);
	ASSERT(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	return pid;
}

/* Lets it go on by `request` and says how it came back. Signals that it gets meanwhile are its own;
 * `*signal` is one that it has still to be given. */
static enum step_at resume(pid_t pid, int request, int *signal, int *ret_status)
{
	int status;

	/* It may have been killed where it stood. */
	if (ptrace(request, pid, NULL, (void *)(long)*signal) < 0 && errno != ESRCH)
		ASSERT(!"a stopped thread goes on");
	*signal = 0;
	status = wait_for(pid);
	if (WIFEXITED(status) || WIFSIGNALED(status)) {
		*ret_status = status;
		return STEP_ENDED;
	}
	if (WSTOPSIG(status) == SIGTRAP)
		return STEP_POINT;
	if (WSTOPSIG(status) == SIGSTOP)
		return STEP_MARK;
	*signal = WSTOPSIG(status);
	return STEP_POINT;
}

enum step_at step_to_mark(pid_t pid, int *ret_status)
{
	enum step_at at;
	int signal = 0;

	do
		at = resume(pid, PTRACE_CONT, &signal, ret_status);
	while (at == STEP_POINT);
	return at;
}

enum step_at step_run(pid_t pid, uint64_t most, bool (*enough)(void *), void *arg,
		      uint64_t *ret_made, int *ret_status)
{
	enum step_at at = STEP_POINT;
	int signal = 0;

	for (*ret_made = 0; *ret_made < most && at == STEP_POINT; ++*ret_made) {
		if (enough != NULL && *ret_made % ASK_EVERY == 0 && enough(arg))
			return STEP_MARK;
		at = resume(pid, PTRACE_SINGLESTEP, &signal, ret_status);
	}
	return at;
}

int step_seize(pid_t thread)
{
	int status;

	if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) < 0)
		return -errno;
	if (ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) < 0)
		return -errno;
	status = wait_for(thread);
	return WIFSTOPPED(status) ? 0 : -ESRCH;
}

void step_leave(pid_t pid, bool stopped)
{
	if (stopped)
		kill(pid, SIGSTOP);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
}

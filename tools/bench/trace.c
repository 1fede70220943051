/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tools/bench/trace.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A call that nothing else here makes. */
#define MARK SYS_getppid

void trace_me(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
}

void trace_mark(void)
{
	syscall(MARK);
}

struct counter {
	uint64_t calls;
	unsigned marks;
};

static void count_entry(pid_t child, struct counter *c)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return;
	if (info.entry.nr == MARK)
		c->marks++;
	else if (c->marks == 1)
		c->calls++;
}

int trace_count(pid_t child, uint64_t *ret)
{
	struct counter c = { 0, 0 };
	int status, signum = 0;

	if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status))
		return -ECHILD;
	if (ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) < 0)
		return -errno;
	for (;;) {
		if (ptrace(PTRACE_SYSCALL, child, NULL, signum) < 0 ||
		    waitpid(child, &status, 0) < 0)
			return -errno;
		if (WIFEXITED(status) || WIFSIGNALED(status))
			break;
		signum = 0;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80))
			count_entry(child, &c);
		else
			signum = WSTOPSIG(status);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || c.marks != 2)
		return -ECHILD;
	*ret = c.calls;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A process or a thread of one, run instruction by instruction: every instruction is a numbered
 * point at which it can be killed or stopped. A child marks where the numbers begin and end by
 * stopping itself. One thread, which is the tracer; Linux.
 */
#ifndef TIERD_TESTS_STEP_H
#define TIERD_TESTS_STEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum step_at {
	STEP_POINT, /* as many instructions were made as were asked for */
	STEP_MARK,  /* it stopped itself before */
	STEP_ENDED, /* *ret_status is its wait status */
};

/* In the child: a mark. Where nobody traces it, it stops all the same. */
void step_mark(void);

/* Forks a child of the caller that is traced, dies with the caller and stands before `body`, which
 * returns its exit status. */
pid_t step_child(int (*body)(void *), void *arg);
/* Runs freely to the next mark. */
enum step_at step_to_mark(pid_t pid, int *ret_status);
/* Makes at most `most` instructions. `enough` is asked now and then, and true is as a mark; NULL:
 * nobody. */
enum step_at step_run(pid_t pid, uint64_t most, bool (*enough)(void *), void *arg,
		      uint64_t *ret_made, int *ret_status);

/* A thread of another process, which is halted where it is. -errno. */
int step_seize(pid_t thread);
/* Runs on untraced; stopped: it is, until SIGCONT. */
void step_leave(pid_t pid, bool stopped);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the tierctl of this build and keeps what it said. One thread; uses Check's assertions.
 */
#ifndef TIERD_TESTS_TIERCTL_RIG_H
#define TIERD_TESTS_TIERCTL_RIG_H

#include <stdbool.h>
#include <sys/types.h>

/* Set to be run in tierctl's process before its program; NULL. */
extern void (*tierctl_before_exec)(void);
/* stdout and stderr of the last one. */
extern char tierctl_said[1 << 18];

/* `words` ends with NULL; --socket is added unless `socket` is NULL. Returns the exit status; fails
 * the test after a minute. */
int tierctl_run(const char *socket, const char *const *words);
#define TIERCTL(socket, ...) tierctl_run(socket, (const char *const[]){ __VA_ARGS__, NULL })
/* Starts one, and collects it: its exit status. */
pid_t tierctl_start(const char *socket, const char *const *words, int *ret_fd);
int tierctl_end(pid_t pid, int fd);
bool tierctl_says(const char *text);

#endif

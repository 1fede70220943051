/* SPDX-License-Identifier: Apache-2.0
 *
 * A private tierd for one test: its own folder with configuration, socket, nvme folder and log.
 * Readiness comes from the daemon itself (NOTIFY_SOCKET), never from waiting a while. Every wait
 * has a deadline, and what fails prints the daemon's log. One thread; uses Check's assertions.
 */
#ifndef TIERD_TESTS_SYSTEM_H
#define TIERD_TESTS_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/unit/leftovers.h"

struct system {
	char directory[LEFTOVERS_ROOM];
	char config[96], socket[96], nvme[96], log[96];
	pid_t pid; /* 0: not running */
	int notify_fd;
	void (*before_exec)(void); /* run in the daemon's process before its program; set it after
				      system_prepare() */
};

#define SYSTEM_READY_MS 60000
#define SYSTEM_STOP_MS  20000

/* Makes the folder. In `config` "@NVME@" stands for the nvme folder; the socket is added. */
void system_prepare(struct system *s, const char *config);
/* Starts build/tierd (or $TIERD_BIN) and waits until it is ready. */
void system_launch(struct system *s);
/* The same, but it may end instead: false, with its wait status. */
bool system_tries(struct system *s, int *ret_status);
/* Whoever puts pages into the machine's pool for a daemon of his own keeps those of other tests
 * from being started until none is free: they would take of them, and be larger by the rest of a
 * page. */
void system_pool_take(void);
void system_pool_leave(void);
/* Starts it and waits for nothing but its lock file. */
void system_launch_unready(struct system *s);
/* Two at once; returns the one that was not ready first, while `s` goes on with the other. */
pid_t system_launch_two(struct system *s);
/* system_prepare() and system_launch(). */
void system_start(struct system *s, const char *config);

/* SIGTERM; fails the test unless it ends with status 0 in time. */
void system_end(struct system *s);
/* SIGKILL, and waits for the end. */
void system_kill(struct system *s);
/* Ends it if it runs; fails the test if it left a file; removes the folder. */
void system_stop(struct system *s);

/* Starts another one on the same configuration and returns its exit status; its log is appended. */
int system_run_again(struct system *s);
bool system_log_has(const struct system *s, const char *text);
/* Lines with it. */
unsigned system_log_count(const struct system *s, const char *text);
/* Waits until the log has it, at most `timeout_ms`. */
bool system_log_waits(const struct system *s, const char *text, int timeout_ms);

/* Whether all of them have this value. (An assertion a byte would cost a system call each.) */
bool system_bytes_are(const void *data, unsigned char value, size_t bytes);

/* CPU time of the daemon so far, and how often it gave up the CPU by itself. */
uint64_t system_cpu_ns(const struct system *s);
uint64_t system_switches(const struct system *s);
/* Those of an idle daemon in five seconds: ThreadSanitizer has a thread of its own. */
#ifdef __SANITIZE_THREAD__
#define SYSTEM_FOREIGN_SWITCHES 40
#else
#define SYSTEM_FOREIGN_SWITCHES 0
#endif

struct system_holdings {
	unsigned descriptors, maps;
	uint64_t resident_bytes;
};
/* What a process has now. */
struct system_holdings system_holdings(pid_t pid);

/* Becomes the program, after `before` (or NULL); returns if it cannot. The user that it is then may
 * not be let into the folders above, as in root's home. */
void system_exec(const char *path, void (*before)(void), char *const *args);

/* Whether a daemon of that user cannot have the fake driver, if it is to have it: says so then, and
 * removes what was prepared. */
bool system_user_misses_driver(struct system *s, uid_t user);

/* Runs `body` in a process of its own; its end is waited for by system_child_end(). */
pid_t system_child(void (*body)(struct system *s, void *arg), struct system *s, void *arg);
/* Fails the test unless it ends with status 0 within `timeout_ms`. */
void system_child_end(struct system *s, pid_t pid, int timeout_ms);
/* Prints the log and fails the test. */
_Noreturn void system_fail(const struct system *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif

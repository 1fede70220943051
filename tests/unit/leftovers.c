/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/leftovers.h"

#include <dirent.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t runner; /* the process that runs the tests, each in one of its own */
static pid_t guard;  /* looks when that one is ended by a signal */

static const char *base(void)
{
	const char *dir = getenv("TIERD_TEST_DIR");

	return dir != NULL ? dir : "/var/tmp";
}

/* What is this program's begins with it. */
static int prefix(char *ret, size_t room)
{
	return snprintf(ret, room, "tierd%d-", (int)runner);
}

void leftovers_name(char ret[LEFTOVERS_ROOM], const char *end)
{
	char name[32];

	prefix(name, sizeof(name));
	if (snprintf(ret, LEFTOVERS_ROOM, "%s/%s%s", base(), name, end) < LEFTOVERS_ROOM)
		return;
	fprintf(stderr, "%s: the path is too long for tests (TIERD_TEST_DIR)\n", base());
	abort();
}

void leftovers_folder(char ret[LEFTOVERS_ROOM])
{
	leftovers_name(ret, "XXXXXX");
	if (mkdtemp(ret) != NULL)
		return;
	fprintf(stderr, "%s: no folder can be made: %m\n", base());
	abort();
}

static void print_log(const char *folder)
{
	char path[600], line[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", folder);
	f = fopen(path, "r");
	if (f == NULL)
		return;
	fprintf(stderr, "%s:\n", path);
	while (fgets(line, sizeof(line), f) != NULL)
		fprintf(stderr, "  %s", line);
	fclose(f);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	return remove(path);
}

static void look_at(const char *folder)
{
	print_log(folder);
	if (getenv("TIERD_TEST_KEEP") != NULL)
		fprintf(stderr, "a test that failed left %s\n", folder);
	else if (nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
		fprintf(stderr, "a test that failed left %s, and it stays: %m\n", folder);
}

static void look(void)
{
	char name[32], path[512];
	const struct dirent *e;
	int n = prefix(name, sizeof(name));
	DIR *d = opendir(base());

	while (d != NULL && (e = readdir(d)) != NULL)
		if (strncmp(e->d_name, name, (size_t)n) == 0) {
			snprintf(path, sizeof(path), "%s/%s", base(), e->d_name);
			look_at(path);
		}
	if (d != NULL)
		closedir(d);
}

static void end(void)
{
	if (getpid() != runner)
		return; /* a test that calls exit() */
	if (guard > 0) {
		kill(guard, SIGKILL);
		waitpid(guard, NULL, 0);
	}
	look();
}

/* Its test ends with the runner, and the test's daemon with the test: soon. */
static _Noreturn void stand_guard(void)
{
	struct pollfd p = { pidfd_open(runner, 0), POLLIN, 0 };

	setsid(); /* not to be ended with the runner's group */
	if (p.fd >= 0)
		poll(&p, 1, -1);
	poll(NULL, 0, 500);
	look();
	_exit(EXIT_SUCCESS);
}

__attribute__((constructor)) static void begin(void)
{
	runner = getpid();
	guard = fork();
	if (guard == 0)
		stand_guard();
	atexit(end);
}

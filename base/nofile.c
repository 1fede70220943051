/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nofile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int nofile_keep_stdio(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return -errno;
	return 0;
}

int nofile_above_stdio(int fd)
{
	int above = -1;

	if (fd >= STDIN_FILENO && fd <= STDERR_FILENO)
		above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (above < 0)
		return fd;
	close(fd);
	return above;
}

void nofile_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* The limit is one of numbers: what was opened above it, before it was lowered, takes none. */
static int count_open(uint64_t limit, uint64_t *ret, struct err *err)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *entry;
	uint64_t n = 0;

	if (d == NULL)
		return err_set(err, errno, "/proc/self/fd: %s", strerror(errno));
	while ((entry = readdir(d)) != NULL)
		n += entry->d_name[0] != '.' && strtoull(entry->d_name, NULL, 10) < limit;
	closedir(d);
	*ret = n - 1; /* not the one by which it was read */
	return 0;
}

int nofile_read(struct nofile *ret, struct err *err)
{
	struct rlimit limit;
	uint64_t n;
	int rc;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_set(err, errno, "RLIMIT_NOFILE: %s", strerror(errno));
	n = limit.rlim_cur;
	rc = count_open(limit.rlim_cur, &n, err);
	if (rc < 0 && rc != -EMFILE)
		return rc;
	*ret = (struct nofile){ limit.rlim_cur, n };
	return 0;
}

static uint64_t free_of(const struct nofile *n)
{
	return n->limit > n->open ? n->limit - n->open : 0;
}

int nofile_check(const char *what, uint64_t more, struct err *err)
{
	struct nofile n;
	int rc = nofile_read(&n, err);

	if (rc < 0 || free_of(&n) >= more)
		return rc;
	return err_set(err, EMFILE,
		       "%s: about %" PRIu64 " descriptors are wanted, %" PRIu64
		       " are free of the %" PRIu64 " that RLIMIT_NOFILE allows",
		       what, more, free_of(&n), n.limit);
}

int nofile_try(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int nofile_divide(const struct nofile *n, uint64_t later, uint64_t each, struct nofile_shares *ret,
		  struct err *err)
{
	uint64_t room, kept;

	if (free_of(n) < NOFILE_OWN + each)
		return err_set(err, EMFILE,
			       "%" PRIu64 " descriptors are open of the %" PRIu64
			       " that RLIMIT_NOFILE allows: that leaves no room for clients",
			       n->open, n->limit);
	room = free_of(n) - NOFILE_OWN;
	kept = later < room / 2 ? later : room / 2;
	if (room - kept < each)
		kept = room - each;
	*ret = (struct nofile_shares){ kept, (room - kept) / each };
	return 0;
}

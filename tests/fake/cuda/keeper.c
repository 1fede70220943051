/* SPDX-License-Identifier: Apache-2.0
 *
 * A handle of the driver costs its process no descriptor, and memory of ours has one. So they stand
 * in a table of descriptors apart, which only one thread has: it shares memory with the others, and
 * so it can map for them. Descriptors come and go over a socket. What is said of an error there, by
 * us or by a sanitizer, goes to stderr and not to memory, so 0 to 2 stay what they are.
 *
 * ThreadSanitizer knows one table a process, and takes a descriptor here for that of the same
 * number there: what the keeper does with one goes by syscall(), past it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/fake/cuda/inside.h"

struct job {
	int (*run)(struct job *j);
	const char *name;
	void *at;
	size_t bytes;
	int fd; /* of the keeper's table */
	int result;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job *job;
	int ours, theirs; /* ends of the socket: of the process, of the keeper */
} keeper = { .lock = PTHREAD_MUTEX_INITIALIZER,
	     .changed = PTHREAD_COND_INITIALIZER,
	     .ours = -1,
	     .theirs = -1 };

static int run(struct job *j)
{
	pthread_mutex_lock(&keeper.lock);
	keeper.job = j;
	pthread_cond_broadcast(&keeper.changed);
	while (keeper.job != NULL)
		pthread_cond_wait(&keeper.changed, &keeper.lock);
	pthread_mutex_unlock(&keeper.lock);
	return j->result;
}

static void *keep(void *arg)
{
	unsigned fd = (unsigned)keeper.theirs;

	(void)arg;
	ASSERT(close_range(MAX(fd + 1, 3u), ~0u, CLOSE_RANGE_UNSHARE) == 0);
	ASSERT(fd <= 3 || close_range(3, fd - 1, 0) == 0);
	pthread_mutex_lock(&keeper.lock);
	for (;;) {
		while (keeper.job == NULL)
			pthread_cond_wait(&keeper.changed, &keeper.lock);
		keeper.job->result = keeper.job->run(keeper.job);
		keeper.job = NULL;
		pthread_cond_broadcast(&keeper.changed);
	}
	return NULL;
}

static int nothing(struct job *j)
{
	(void)j;
	return 0;
}

bool fake_keeper_start(void)
{
	struct job started = { .run = nothing };
	sigset_t all, was;
	pthread_t thread;
	int pair[2], rc;

	if (keeper.ours >= 0)
		return true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	keeper.ours = pair[0];
	keeper.theirs = pair[1];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	rc = pthread_create(&thread, NULL, keep, NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	ASSERT(rc == 0);
	pthread_detach(thread);
	run(&started); /* from here on it has a table of its own */
	close(pair[1]);
	return true;
}

/* ---- over the socket ------------------------------------------------------------------------ */

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

static int fd_send(int socket, int fd)
{
	union control control = { .room = "" };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS,
			       .cmsg_len = CMSG_LEN(sizeof(fd)) };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return syscall(SYS_sendmsg, socket, &m, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* -1: there was no descriptor for it. */
static int fd_receive(int socket)
{
	union control control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	int fd;

	ASSERT(syscall(SYS_recvmsg, socket, &m, MSG_CMSG_CLOEXEC) == 1);
	c = CMSG_FIRSTHDR(&m);
	if (c == NULL || c->cmsg_len != CMSG_LEN(sizeof(fd)))
		return -1;
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* ---- what it does --------------------------------------------------------------------------- */

static int close_here(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static int job_create(struct job *j)
{
	unsigned char page[4096];
	int fd = memfd_create(j->name, MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	memset(page, FAKE_CUDA_POISON, sizeof(page));
	if (ftruncate(fd, (off_t)j->bytes) != 0)
		goto failed;
	for (size_t at = 0; at < j->bytes; at += FAKE_CUDA_GRANULARITY)
		if (syscall(SYS_pwrite64, fd, page, sizeof(page), at) != (long)sizeof(page))
			goto failed;
	return fd;
failed:
	close_here(fd);
	return -1;
}

int fake_keeper_create(const char *name, size_t bytes)
{
	struct job j = { .run = job_create, .name = name, .bytes = bytes };

	return run(&j);
}

static int job_map(struct job *j)
{
	return mmap(j->at, j->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, j->fd, 0) == j->at ? 0 : -1;
}

bool fake_keeper_map(int fd, void *at, size_t bytes)
{
	struct job j = { .run = job_map, .at = at, .bytes = bytes, .fd = fd };

	return run(&j) == 0;
}

static int job_export(struct job *j)
{
	return fd_send(keeper.theirs, j->fd);
}

int fake_keeper_export(int fd)
{
	struct job j = { .run = job_export, .fd = fd };

	return run(&j) == 0 ? fd_receive(keeper.ours) : -1;
}

static int job_import(struct job *j)
{
	(void)j;
	return fd_receive(keeper.theirs);
}

int fake_keeper_import(int fd)
{
	struct job j = { .run = job_import };

	return fd_send(keeper.ours, fd) == 0 ? run(&j) : -1;
}

static int job_close(struct job *j)
{
	return close_here(j->fd);
}

void fake_keeper_close(int fd)
{
	struct job j = { .run = job_close, .fd = fd };

	run(&j);
}

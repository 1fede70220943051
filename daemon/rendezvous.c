/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"

#define LISTEN_BACKLOG 128
#define LOCK_TRIES     16

static bool file_id_is(const char *path, const struct file_id *id)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == id->dev && st.st_ino == id->ino;
}

/* ---- directory ------------------------------------------------------------------------------ */

/* In a directory that others can write, anybody could move our socket away and put up their own. */
static int directory_judge(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_set(err, errno, "socket directory %s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return err_set(err, ENOTDIR, "socket directory %s: not a directory", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return err_set(err, EPERM,
			       "socket directory %s: belongs to uid %u, not to uid %u or root",
			       path, (unsigned)st.st_uid, (unsigned)geteuid());
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
		return err_set(err, EPERM,
			       "socket directory %s: others can write it (mode %04o, not sticky)",
			       path, (unsigned)(st.st_mode & 07777));
	return 0;
}

static int directory_prepare(struct rendezvous *r, struct err *err)
{
	if (mkdir(r->directory, 0755) == 0)
		r->directory_made = true;
	else if (errno != EEXIST)
		return err_set(err, errno, "socket directory %s: %s", r->directory,
			       strerror(errno));
	return directory_judge(r->directory, err);
}

/* ---- lock ----------------------------------------------------------------------------------- */

static int lock_refused(const struct rendezvous *r, int fd, struct err *err)
{
	char holder[32] = "";
	ssize_t n = pread(fd, holder, sizeof(holder) - 1, 0);

	holder[n > 0 ? strcspn(holder, "\n") : 0] = '\0';
	return err_set(err, EBUSY, "%s: another tierd (pid %s) holds the lock %s", r->path,
		       holder[0] ? holder : "unknown", r->lock_path);
}

static int lock_sign(struct rendezvous *r, int fd, struct err *err)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	struct stat st;

	errno = ENOSPC; /* what a short write leaves unsaid */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n || fstat(fd, &st) < 0) {
		int rc = err_set(err, errno, "lock %s: %s", r->lock_path, strerror(errno));

		unlink(r->lock_path); /* ours, and of use to nobody */
		return rc;
	}
	r->lock = (struct file_id){ st.st_dev, st.st_ino };
	return 0;
}

/* Where locks do not work nobody has one: an empty file is what this try made. */
static int lock_impossible(const struct rendezvous *r, int fd, struct err *err)
{
	int rc = err_set(err, errno, "lock %s: %s", r->lock_path, strerror(errno));
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_size == 0 &&
	    file_id_is(r->lock_path, &(struct file_id){ st.st_dev, st.st_ino }))
		unlink(r->lock_path);
	return rc;
}

/* 1: taken; 0: the file was replaced between open and lock, try again. */
static int lock_try(struct rendezvous *r, struct err *err)
{
	int fd = open(r->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	struct stat st;
	int rc = 0;

	if (fd < 0)
		return err_set(err, errno, "lock %s: %s", r->lock_path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		rc = errno == EWOULDBLOCK ? lock_refused(r, fd, err) : lock_impossible(r, fd, err);
	/* A daemon that ends unlinks its lock before it lets go: what we locked may have no name.
	 */
	else if (fstat(fd, &st) == 0 &&
		 file_id_is(r->lock_path, &(struct file_id){ st.st_dev, st.st_ino }))
		rc = lock_sign(r, fd, err) < 0 ? err->code : 1;
	if (rc != 1) {
		close(fd);
		return rc;
	}
	r->lock_fd = fd;
	return 1;
}

static int lock_take(struct rendezvous *r, struct err *err)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		int rc = lock_try(r, err);

		if (rc != 0)
			return rc < 0 ? rc : 0;
	}
	return err_set(err, EBUSY, "lock %s: goes away each time it is taken", r->lock_path);
}

/* ---- socket --------------------------------------------------------------------------------- */

static void address_fill(const struct rendezvous *r, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	ASSERT(strlen(r->path) < sizeof(ret->sun_path));
	memcpy(ret->sun_path, r->path, strlen(r->path));
}

/* Whether somebody still serves the socket at the path although its lock is free: a daemon whose
 * lock file was unlinked. A full backlog is life, too. */
static bool socket_answers(const struct rendezvous *r)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;
	bool answers;

	if (fd < 0)
		return true;
	address_fill(r, &address);
	answers = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
		  (errno != ECONNREFUSED && errno != ENOENT && errno != EPROTOTYPE);
	close(fd);
	return answers;
}

static int socket_clear_path(const struct rendezvous *r, struct err *err)
{
	struct stat st;

	if (lstat(r->path, &st) < 0)
		return errno == ENOENT
			       ? 0
			       : err_set(err, errno, "socket %s: %s", r->path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(err, EEXIST,
			       "socket %s: the path is taken by something that is no socket",
			       r->path);
	if (socket_answers(r))
		return err_set(err, EBUSY, "socket %s: another process serves it", r->path);
	log_info(SERVER, "socket %s: of a daemon that is gone, taken over", r->path);
	if (unlink(r->path) < 0 && errno != ENOENT)
		return err_set(err, errno, "socket %s: %s", r->path, strerror(errno));
	return 0;
}

static int socket_bind(struct rendezvous *r, int fd, struct err *err)
{
	struct sockaddr_un address;
	struct stat st;
	mode_t before;
	int rc;

	address_fill(r, &address);
	/* Owner and group: inside the one domain every client can reach every tensor's bytes. */
	before = umask(0117);
	rc = bind(fd, (struct sockaddr *)&address, sizeof(address));
	umask(before);
	if (rc < 0 || lstat(r->path, &st) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return err_set(err, errno, "socket %s: %s", r->path, strerror(errno));
	r->socket = (struct file_id){ st.st_dev, st.st_ino };
	return 0;
}

int rendezvous_listen(struct rendezvous *r, struct err *err)
{
	int rc = socket_clear_path(r, err);
	int fd;

	if (rc < 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(err, errno, "socket %s: %s", r->path, strerror(errno));
	rc = socket_bind(r, fd, err);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	r->listen_fd = fd;
	r->healthy = true;
	return 0;
}

/* ---- watch ---------------------------------------------------------------------------------- */

static void watch_open(struct rendezvous *r)
{
	r->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (r->watch_fd >= 0 &&
	    inotify_add_watch(r->watch_fd, r->directory,
			      IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF |
				      IN_MOVE_SELF | IN_ONLYDIR) >= 0)
		return;
	log_warn(SERVER, "socket directory %s: no watch (%s), looked at every few seconds instead",
		 r->directory, strerror(errno));
	if (r->watch_fd >= 0)
		close(r->watch_fd);
	r->watch_fd = -1;
}

static void watch_drain(const struct rendezvous *r)
{
	_Alignas(struct inotify_event) char events[4096];

	while (r->watch_fd >= 0 && read(r->watch_fd, events, sizeof(events)) > 0)
		;
}

static void lock_check(struct rendezvous *r)
{
	struct err err = ERR_INIT;
	int old_fd = r->lock_fd;

	if (file_id_is(r->lock_path, &r->lock))
		return;
	if (lock_take(r, &err) < 0) {
		log_error(SERVER, "lock file lost: %s", err.text);
		return;
	}
	close(old_fd);
	log_warn(SERVER, "lock %s: somebody removed it, made anew", r->lock_path);
}

bool rendezvous_check(struct rendezvous *r, int *ret_old_fd)
{
	struct err err = ERR_INIT;
	int old_fd = r->listen_fd;

	watch_drain(r);
	lock_check(r);
	if (file_id_is(r->path, &r->socket)) {
		r->healthy = true;
		return false;
	}
	if (rendezvous_listen(r, &err) < 0) {
		if (r->healthy)
			log_error(SERVER, "new clients cannot connect: %s", err.text);
		r->healthy = false;
		return false;
	}
	log_warn(SERVER, "socket %s: somebody removed it, made anew", r->path);
	*ret_old_fd = old_fd;
	return true;
}

/* ---- open and close ------------------------------------------------------------------------- */

static int names_make(const char *path, struct rendezvous *r, struct err *err)
{
	struct sockaddr_un address;
	size_t room = strlen(path) + sizeof(".lock");
	char *copy;

	if (path[0] != '/' || strlen(path) >= sizeof(address.sun_path))
		return err_set(err, EINVAL,
			       "socket %s: an absolute path of at most %zu bytes is needed", path,
			       sizeof(address.sun_path) - 1);
	copy = heap_text(path);
	r->path = heap_text(path);
	r->directory = copy ? heap_text(dirname(copy)) : NULL;
	heap_free(copy);
	r->lock_path = heap_zeros(1, room);
	if (!r->path || !r->directory || !r->lock_path)
		return err_set(err, ENOMEM, "socket %s: no memory", path);
	snprintf(r->lock_path, room, "%s.lock", path);
	return 0;
}

int rendezvous_open(const char *path, struct rendezvous *ret, struct err *err)
{
	struct rendezvous r = { .lock_fd = -1, .listen_fd = -1, .watch_fd = -1 };
	struct stat st;
	int rc = names_make(path, &r, err);

	if (rc == 0)
		rc = directory_prepare(&r, err);
	if (rc == 0 && lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		rc = err_set(err, EEXIST,
			     "socket %s: the path is taken by something that is no socket", path);
	if (rc == 0)
		rc = lock_take(&r, err);
	if (rc < 0) {
		rendezvous_close(&r);
		return rc;
	}
	watch_open(&r);
	*ret = r;
	return 0;
}

void rendezvous_unlisten(struct rendezvous *r)
{
	if (r->listen_fd < 0)
		return;
	if (file_id_is(r->path, &r->socket))
		unlink(r->path);
	close(r->listen_fd);
	r->listen_fd = -1;
}

void rendezvous_close(struct rendezvous *r)
{
	rendezvous_unlisten(r);
	if (r->lock_fd >= 0) {
		/* Still locked: a starter that opened this file finds that it lost its name. */
		if (file_id_is(r->lock_path, &r->lock))
			unlink(r->lock_path);
		close(r->lock_fd);
	}
	if (r->watch_fd >= 0)
		close(r->watch_fd);
	if (r->directory_made)
		rmdir(r->directory);
	heap_free(r->path);
	heap_free(r->lock_path);
	heap_free(r->directory);
	*r = (struct rendezvous){ .lock_fd = -1, .listen_fd = -1, .watch_fd = -1 };
}

void rendezvous_abandon(const struct rendezvous *r)
{
	if (r->lock_fd >= 0)
		unlink(r->lock_path);
	if (r->directory_made)
		rmdir(r->directory);
}

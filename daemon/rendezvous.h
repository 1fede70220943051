/* SPDX-License-Identifier: Apache-2.0
 *
 * The path at which clients find the daemon, and the proof that it is ours: a lock file beside the
 * socket, held by flock for the daemon's life. A second daemon is refused by name of the holder; a
 * stale socket is taken over only when its lock is free and nobody answers; what is not a socket is
 * never removed; what is not ours any more is never removed either. Control thread.
 */
#ifndef TIERD_DAEMON_RENDEZVOUS_H
#define TIERD_DAEMON_RENDEZVOUS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Which file stands at a path. */
struct file_id {
	dev_t dev;
	ino_t ino;
};

struct rendezvous {
	char *path, *lock_path, *directory;
	int lock_fd, listen_fd, watch_fd; /* watch_fd: inotify of the directory, or -1 */
	struct file_id lock, socket;
	bool directory_made;
	bool healthy; /* false: said once that the path is lost */
};

/* Takes the lock, making the directory (one level) where it is missing. -EBUSY: another daemon
 * holds it; -EPERM: a directory in which others could replace our socket; -EEXIST: the path is
 * taken by something that is no socket. */
int rendezvous_open(const char *path, struct rendezvous *ret, struct err *err);
/* Binds and listens. From here on clients can connect. */
int rendezvous_listen(struct rendezvous *r, struct err *err);
/* Looks whether path and lock are still ours, after the watch woke or a while has passed. Makes
 * them anew where they went away; true: listen_fd is another descriptor now, the caller closes
 * `ret_old_fd` after taking it out of its loop. */
bool rendezvous_check(struct rendezvous *r, int *ret_old_fd);
/* Nobody can connect any more; the lock stays. */
void rendezvous_unlisten(struct rendezvous *r);
/* Removes what is still ours. */
void rendezvous_close(struct rendezvous *r);
/* For a signal during a long start: removes the lock file of an open rendezvous; async-signal-safe.
 */
void rendezvous_abandon(const struct rendezvous *r);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of the socket: who the peer is, its hello or BYE, our one answer with descriptors
 * and what we say about slabs. What a client sends is read once into private memory; descriptors
 * that it sends are closed. Control thread; never blocks.
 */
#ifndef TIERD_DAEMON_GREET_H
#define TIERD_DAEMON_GREET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "libclient/protocol/hello.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

struct peer {
	int pid;
	uid_t uid;
	int pid_fd;
};
/* Who connected, and a pidfd that is certainly theirs. -ESRCH: they are gone already. */
int greet_identify(int socket_fd, struct peer *ret, struct err *err);

enum greet_kind {
	GREET_NOTHING, /* no message yet */
	GREET_HANGUP,
	GREET_HELLO, /* `hello` is filled; not judged yet */
	GREET_BYE,
	GREET_BROKEN, /* `err` says what was wrong */
};
enum greet_kind greet_receive(int socket_fd, struct hello_request *hello, struct err *err);

/* 0, or why this hello is refused. */
int greet_judge(const struct hello_request *hello, struct err *err);

/* Sends `reply` with `n` descriptors. -errno when it could not be sent whole. */
int greet_send(int socket_fd, const struct hello_reply *reply, const int *fds, unsigned n,
	       struct err *err);
/* A message about a slab, with its descriptor unless that is -1. -EAGAIN: the socket takes no more
 * now, and nothing was sent. */
int greet_slab(int socket_fd, const struct hello_slab *message, int fd, struct err *err);
/* The client has not read all that it was sent. */
bool greet_unread(int socket_fd);
void greet_refuse(int socket_fd, int result, const char *text);

#endif

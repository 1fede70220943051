/* SPDX-License-Identifier: Apache-2.0
 *
 * How a connection comes to be: the socket's path, hello and its descriptors (connect.c), and the
 * mapping and checking of what came (map.c). The thread in tierd_open() or the last to close.
 */
#ifndef TIERD_CLIENT_CONNECT_H
#define TIERD_CLIENT_CONNECT_H

#include "libclient/client.h"

/* Descriptors of an answer, in hello.h's order. */
struct hello_fds {
	int fd[HELLO_FDS + HELLO_ARENAS_MAX];
	unsigned count;
};

enum { HELLO_FD_CONTROL, HELLO_FD_TABLE, HELLO_FD_DOORBELL, HELLO_FD_STATS, HELLO_FD_ARENAS };

/* The path by tierd_open()'s rule. -ENAMETOOLONG. `room` bytes at `ret`. */
int connect_path(const char *given, char *ret, size_t room, struct err *err);
/* A connected socket. */
int connect_socket(const char *path, int *ret, struct err *err);
/* Sends hello and takes the answer and its descriptors, which are the caller's. `domain`: NULL for
 * that of our uid. */
int connect_hello(int socket_fd, const char *path, const char *name_space, const char *domain,
		  struct hello_reply *ret, struct hello_fds *ret_fds, struct err *err);

/* Maps and checks everything; takes the descriptors that the connection keeps (control, doorbell)
 * and leaves the others open. Nothing stays mapped on failure. */
int map_segments(struct tierd *t, const struct hello_reply *reply, struct hello_fds *fds,
		 struct err *err);
void map_undo(struct tierd *t);

/* open.c: tierd_open() in a domain of this name. */
int open_in_domain(const char *socket_path, const char *name_space, const char *domain,
		   uint64_t flags, struct tierd **ret);

#endif

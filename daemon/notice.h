/* SPDX-License-Identifier: Apache-2.0
 *
 * What one client is told about slabs over its socket. A MAP with its descriptor goes at once or
 * not at all, and only to one that has read all it was sent. An UNMAP is a bit until the socket
 * takes it: a client that does not read costs that bit and nobody's time. What was owed goes before
 * what is new, so that a client sees one order. Control thread; never blocks.
 */
#ifndef TIERD_DAEMON_NOTICE_H
#define TIERD_DAEMON_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server.h"

struct notices {
	const struct server_arena *arena; /* the server's */
	unsigned arenas;
	uint64_t *mapped;    /* a bit a slab of all arenas, one after the other: a MAP was sent */
	uint64_t *owed;      /* likewise: an UNMAP is to be sent */
	uint64_t *asked;     /* likewise: one was sent and is not answered */
	uint32_t owed_count; /* bits of it */
};

/* -ENOMEM. One zeroed is empty and may be destroyed. */
int notices_create(const struct server_arena *arenas, unsigned count, struct notices *ret,
		   struct err *err);
void notices_destroy(struct notices *n);

/* 0, or -EINVAL: no slab of an arena that has them begins there. */
int notices_check(const struct notices *n, uint32_t arena, uint64_t offset, struct err *err);
/* The functions below are of slabs that have passed it. */
bool notices_mapped(const struct notices *n, uint32_t arena, uint64_t offset);
/* -EAGAIN: the client has to read first, nothing was sent. */
int notices_map(struct notices *n, int socket_fd, uint32_t arena, uint64_t offset, int fd,
		struct err *err);
/* Owed from now on, if it was mapped at all and was not asked for already: each UNMAP has one
 * answer, by gone or kept. */
void notices_unmap(struct notices *n, uint32_t arena, uint64_t offset);
/* The client has it no more, and is owed nothing. */
void notices_gone(struct notices *n, uint32_t arena, uint64_t offset);
/* The client uses it: it may be asked again. */
void notices_kept(struct notices *n, uint32_t arena, uint64_t offset);
/* Sends what is owed as far as the socket takes it; true when nothing is left. */
bool notices_send(struct notices *n, int socket_fd);

#endif

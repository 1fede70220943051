/* SPDX-License-Identifier: Apache-2.0
 *
 * Internet addresses as the configuration has them: ADDRESS:PORT, [ADDRESS]:PORT for IPv6. No
 * names: what they mean may change, and a start must not wait for a name server. Pure; any thread.
 */
#ifndef TIERD_DAEMON_ADDRESS_H
#define TIERD_DAEMON_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* 0 or -EINVAL. */
int address_read(const char *text, union address *ret, socklen_t *ret_bytes);
/* Likewise, with a sentence; says whether only this machine reaches it. */
int address_check(const char *text, bool *ret_loopback, struct err *err);

#endif

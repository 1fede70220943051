/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins the parts: settings, rendezvous, segments, tiers, staging, engine, lanes, loop, server. It
 * makes them in that order and takes them apart in reverse; nothing else knows all of them. Main
 * thread, which becomes the control thread.
 */
#ifndef TIERD_DAEMON_DAEMON_H
#define TIERD_DAEMON_DAEMON_H

#include "daemon/settings.h"

struct daemon;

/* Takes the lock, the memory and the space, and listens; `settings` stays valid until destroy. On
 * return clients can connect. A SIGTERM or SIGINT before that ends the process at once, without
 * leaving a file. */
int daemon_create(const struct settings *settings, struct daemon **ret, struct err *err);
/* Serves until SIGTERM or SIGINT. */
int daemon_run(struct daemon *daemon, struct err *err);
/* Ends all clients and what is in flight, and leaves no file. */
void daemon_destroy(struct daemon *daemon);

#endif

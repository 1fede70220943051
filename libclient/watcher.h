/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread a connection, from the first acquire_on() that waits until tierd_close(): when the
 * daemon dies it breaks the connection and lets the streams go, and it reads what the daemon says
 * about slabs. Started and stopped under `watch_lock`. Not in a forked child.
 */
#ifndef TIERD_CLIENT_WATCHER_H
#define TIERD_CLIENT_WATCHER_H

#include "libclient/client.h"

int watcher_start(struct tierd *t); /* 0 also when it runs already */
void watcher_stop(struct tierd *t);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells a service manager (systemd's Type=notify, or anybody who set NOTIFY_SOCKET) how far the
 * daemon is. Main thread; nothing happens where nobody asked.
 */
#ifndef TIERD_DAEMON_NOTIFY_H
#define TIERD_DAEMON_NOTIFY_H

/* "READY=1", "STOPPING=1". */
void notify(const char *state);

#endif

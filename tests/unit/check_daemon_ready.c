/* SPDX-License-Identifier: Apache-2.0
 *
 * When the daemon tells a service manager what: notify() is this program's own, and looks at the
 * socket at the very moment when READY=1 and STOPPING=1 would go out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/notify.h"
#include "tests/unit/leftovers.h"
#include "tests/unit/unit.h"

static char path[96];
static char told[64];

/* 0 or -errno of a client that does not wait. */
static int connect_now(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), rc = 0;

	ck_assert_int_ge(fd, 0);
	memcpy(address.sun_path, path, strlen(path));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

/* Instead of the daemon's. */
void notify(const char *state)
{
	strcat(told, state);
	strcat(told, " ");
	ck_assert_int_eq(connect_now(), 0);
	if (strcmp(state, "READY=1") == 0)
		ck_assert_int_eq(kill(getpid(), SIGTERM), 0);
}

START_TEST(ready_is_told_when_clients_can_connect)
{
	static const char text[] = "socket: %s\ntiers:\n  dram: {size: 4MiB}\n";
	char folder[LEFTOVERS_ROOM], yaml[256];
	struct err err = ERR_INIT;
	struct settings settings;
	struct daemon *daemon;
	int n;

	leftovers_folder(folder);
	snprintf(path, sizeof(path), "%s/tierd.sock", folder);
	n = snprintf(yaml, sizeof(yaml), text, path);
	ck_assert_msg(settings_load_text("yaml", yaml, (size_t)n, &settings, &err) == 0, "%s",
		      err.text);
	ck_assert_int_eq(connect_now(), -ENOENT);
	ck_assert_msg(daemon_create(&settings, &daemon, &err) == 0, "%s", err.text);
	ck_assert_str_eq(told, "");
	ck_assert_msg(daemon_run(daemon, &err) == 0, "%s", err.text);
	ck_assert_str_eq(told, "READY=1 STOPPING=1 ");
	daemon_destroy(daemon);
	ck_assert_int_eq(connect_now(), -ENOENT);
	settings_free(&settings);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

UNIT_MAIN("daemon_ready", ready_is_told_when_clients_can_connect)

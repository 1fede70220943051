/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/greet.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"

#define CONTROL_FDS 253 /* the kernel's limit a message */

/* ---- who ------------------------------------------------------------------------------------ */

/* Field 22 of /proc/PID/stat; the name before it may hold spaces and parentheses. */
static unsigned long long start_time_of(int pid)
{
	char path[32], text[1024], *at;
	unsigned long long ticks = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	at = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, " %llu", &ticks) != 1)
		ticks = 0;
	fclose(f);
	return ticks;
}

static bool hung_up(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 0) < 0 || (p.revents & (POLLHUP | POLLERR));
}

/* Before Linux 6.5: by number, so the number must not have been given to another process between
 * connect() and now. The same start time twice, on both sides of the open, and a socket that did
 * not hang up say so. */
static int pidfd_by_number(int socket_fd, int pid, struct err *err)
{
	unsigned long long before = start_time_of(pid);
	int fd = pid > 0 ? pidfd_open(pid, 0) : -1;

	if (fd < 0)
		return err_set(err, pid > 0 ? errno : ESRCH, "client pid %d: no pidfd", pid);
	if (before == 0 || start_time_of(pid) != before || hung_up(socket_fd) || hung_up(fd)) {
		close(fd);
		return err_set(err, ESRCH, "client pid %d: gone while it connected", pid);
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

int greet_identify(int socket_fd, struct peer *ret, struct err *err)
{
	struct ucred cred;
	socklen_t bytes = sizeof(cred);
	int fd = -1;

	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) < 0)
		return err_set(err, errno, "client: credentials: %s", strerror(errno));
	bytes = sizeof(fd);
	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) < 0) {
		if (errno != ENOPROTOOPT && errno != EINVAL)
			return err_set(err, errno, "client pid %d: pidfd: %s", cred.pid,
				       strerror(errno));
		fd = pidfd_by_number(socket_fd, cred.pid, err);
		if (fd < 0)
			return fd;
	}
	*ret = (struct peer){ cred.pid, cred.uid, fd };
	return 0;
}

/* ---- what they say -------------------------------------------------------------------------- */

/* Closes whatever descriptors came along; true if there were any, or might have been. */
static bool close_received(struct msghdr *m)
{
	bool any = m->msg_flags & MSG_CTRUNC;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		any = true;
		for (size_t i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			close(fd);
		}
	}
	return any;
}

static enum greet_kind message_kind(const void *message, size_t bytes, struct hello_request *hello,
				    struct err *err)
{
	struct hello_bye bye;

	if (bytes == sizeof(bye)) {
		memcpy(&bye, message, sizeof(bye));
		if (bye.magic == PROTOCOL_MAGIC && memcmp(bye.bye, "BYE", 4) == 0)
			return GREET_BYE;
	} else if (bytes == HELLO_REQUEST_BYTES_LEAST || bytes == sizeof(*hello)) {
		*hello = (struct hello_request){ 0 };
		memcpy(hello, message, bytes);
		return GREET_HELLO;
	}
	err_set(err, EPROTO, "a message of %zu bytes that is neither hello nor bye", bytes);
	return GREET_BROKEN;
}

enum greet_kind greet_receive(int socket_fd, struct hello_request *hello, struct err *err)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(CONTROL_FDS * sizeof(int))];
	char message[sizeof(*hello) + 1];
	struct iovec iov = { message, sizeof(message) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(socket_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return GREET_NOTHING;
	if (n <= 0 && m.msg_controllen == 0)
		return GREET_HANGUP;
	if (n >= 0 && close_received(&m)) {
		err_set(err, EPROTO, "it sent descriptors");
		return GREET_BROKEN;
	}
	return n <= 0 ? GREET_HANGUP : message_kind(message, (size_t)n, hello, err);
}

int greet_judge(const struct hello_request *hello, struct err *err)
{
	if (hello->magic != PROTOCOL_MAGIC)
		return err_set(err, EPROTO, "hello: not the tierd protocol");
	if (hello->major != PROTOCOL_MAJOR)
		return err_set(err, EPROTO,
			       "hello: this daemon speaks version %d.%d, the client %u.%u",
			       PROTOCOL_MAJOR, PROTOCOL_MINOR, hello->major, hello->minor);
	if (hello->features != 0 || hello->reserved0 != 0)
		return err_set(err, EPROTO, "hello: features that this daemon does not have");
	if (hello->name_space_bytes < 1 || hello->name_space_bytes > PROTOCOL_NAME_MAX)
		return err_set(err, EINVAL, "hello: a namespace of %u bytes, 1 to %u are possible",
			       hello->name_space_bytes, PROTOCOL_NAME_MAX);
	if (memchr(hello->name_space, '\0', hello->name_space_bytes))
		return err_set(err, EINVAL, "hello: a namespace with a NUL byte");
	if (hello->domain[sizeof(hello->domain) - 1] != '\0')
		return err_set(err, EINVAL, "hello: a domain without an end");
	return 0;
}

/* ---- what we say ---------------------------------------------------------------------------- */

/* Whole or not at all: messages keep their borders. */
static int message_send(int socket_fd, const void *message, size_t bytes, const int *fds,
			unsigned n)
{
	_Alignas(struct cmsghdr) char
		control[CMSG_SPACE((HELLO_FDS + HELLO_ARENAS_MAX) * sizeof(int))];
	struct iovec iov = { (void *)message, bytes };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t sent;

	ASSERT(n <= HELLO_FDS + HELLO_ARENAS_MAX);
	if (n > 0) {
		struct cmsghdr *c;

		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		memset(control, 0, sizeof(control));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	sent = sendmsg(socket_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0)
		return -errno;
	return sent == (ssize_t)bytes ? 0 : -EIO;
}

int greet_send(int socket_fd, const struct hello_reply *reply, const int *fds, unsigned n,
	       struct err *err)
{
	int rc = message_send(socket_fd, reply, sizeof(*reply), fds, n);

	return rc == 0 ? 0 : err_set(err, -rc, "answer to hello: %s", strerror(-rc));
}

int greet_slab(int socket_fd, const struct hello_slab *slab, int fd, struct err *err)
{
	int rc = message_send(socket_fd, slab, sizeof(*slab), &fd, fd >= 0);

	/* Too many descriptors on their way to clients that do not take them: that passes, too. */
	if (rc == -ETOOMANYREFS || rc == -ENOBUFS || rc == -EINTR)
		rc = -EAGAIN;
	return rc == 0 ? 0
		       : err_set(err, -rc, "message about a slab of arena %u: %s", slab->arena,
				 strerror(-rc));
}

bool greet_unread(int socket_fd)
{
	int bytes = 0;

	return ioctl(socket_fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

void greet_refuse(int socket_fd, int result, const char *text)
{
	struct hello_reply reply = { .magic = PROTOCOL_MAGIC,
				     .major = PROTOCOL_MAJOR,
				     .minor = PROTOCOL_MINOR,
				     .result = result };

	snprintf(reply.text, sizeof(reply.text), "%s", text);
	/* Nobody to tell when it cannot be sent: the close that follows says it, too. */
	(void)greet_send(socket_fd, &reply, NULL, 0, NULL);
}

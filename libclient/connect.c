/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/connect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/nofile.h"

#define SYSTEM_SOCKET "/run/tierd/tierd.sock"
/* Of who has not heard of a daemon at all. */
#define HOW_TO_REACH                                                                         \
	"; `tierd --config FILE` starts a daemon, whose key `socket` says where it is, and " \
	"TIERD_SOCKET names another one to clients"

int connect_path(const char *given, char *ret, size_t room, struct err *err)
{
	const char *env = getenv("TIERD_SOCKET"), *runtime = getenv("XDG_RUNTIME_DIR");
	int n;

	if (given == NULL && env != NULL && env[0] != '\0')
		given = env;
	/* To the kernel it would be a name that belongs to whoever binds it. */
	if (given != NULL && given[0] == '\0')
		return err_set(err, ENOENT, "the path of the socket is empty");
	if (given == NULL && runtime != NULL && runtime[0] != '\0') {
		n = snprintf(ret, room, "%s/tierd.sock", runtime);
		if (n > 0 && (size_t)n < room && access(ret, F_OK) == 0)
			return 0;
	}
	n = snprintf(ret, room, "%s", given != NULL ? given : SYSTEM_SOCKET);
	if (n < 0 || (size_t)n >= room)
		return err_set(err, ENAMETOOLONG, "socket path of %d bytes, at most %zu fit", n,
			       room - 1);
	return 0;
}

static int not_let_in(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_set(err, EACCES, "%s: a folder on the way there is closed to uid %u",
			       path, (unsigned)geteuid());
	return err_set(err, EACCES,
		       "%s: uid %u and members of group %u may connect; a process has the groups "
		       "of when its user logged in",
		       path, (unsigned)st.st_uid, (unsigned)st.st_gid);
}

static int not_served(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return err_set(err, ECONNREFUSED, "%s is no socket" HOW_TO_REACH, path);
	return err_set(err, ECONNREFUSED, "%s: no daemon serves this socket" HOW_TO_REACH, path);
}

static int connect_failed(const char *path, int code, struct err *err)
{
	switch (code) {
	case EAGAIN:
		return err_set(err, ETIMEDOUT, "%s: the daemon takes no connections", path);
	case EPROTOTYPE:
		return err_set(err, EPROTO, "%s is not a socket of tierd's kind", path);
	case ENOENT:
	case ENOTDIR:
		return err_set(err, ENOENT, "%s: there is no socket" HOW_TO_REACH, path);
	case EACCES:
		return not_let_in(path, err);
	case ECONNREFUSED:
		return not_served(path, err);
	default:
		return err_set(err, code, "%s: %s", path, strerror(code));
	}
}

int connect_socket(const char *path, int *ret, struct err *err)
{
	struct timeval deadline = { .tv_sec = (time_t)(HELLO_DEADLINE_NS / NS_PER_S) };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = nofile_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), rc;

	if (fd < 0)
		return err_set(err, errno, "socket: %s", strerror(errno));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	/* Bounds connect() too, which waits while the daemon's backlog is full. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof(deadline));
	do
		rc = connect(fd, (struct sockaddr *)&address, sizeof(address));
	while (rc < 0 && errno == EINTR);
	if (rc < 0) {
		rc = connect_failed(path, errno, err);
		close(fd);
		return rc;
	}
	*ret = fd;
	return 0;
}

static int wait_readable(int fd, const char *path, uint64_t deadline_ns, struct err *err)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = clock_now_ns();
		int ms = now >= deadline_ns ? 0 : (int)((deadline_ns - now) / NS_PER_MS + 1);
		int rc = poll(&p, 1, ms);

		if (rc > 0)
			return 0;
		if (rc < 0 && errno != EINTR)
			return err_set(err, errno, "%s: poll: %s", path, strerror(errno));
		if (rc == 0 && ms == 0)
			return err_set(err, ETIMEDOUT, "%s: no answer within %llu s", path,
				       HELLO_DEADLINE_NS / NS_PER_S);
	}
}

static void close_all(struct hello_fds *fds)
{
	while (fds->count > 0)
		close(fds->fd[--fds->count]);
}

/* Collects every descriptor that came, so that none leaks whatever else is wrong. */
static void take_fds(struct msghdr *m, struct hello_fds *ret)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (ret->count < ARRAY_SIZE(ret->fd))
				ret->fd[ret->count++] = nofile_above_stdio(fd);
			else
				close(fd);
		}
	}
}

static int receive(int fd, const char *path, struct hello_reply *ret, struct hello_fds *ret_fds,
		   struct err *err)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(ret_fds->fd))];
	} control;
	struct iovec iov = { .iov_base = ret, .iov_len = sizeof(*ret) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);

	if (n < 0 && errno != ECONNRESET)
		return err_set(err, errno, "%s: %s", path, strerror(errno));
	/* One without a byte may bring descriptors all the same. */
	if (n >= 0)
		take_fds(&m, ret_fds);
	if (n <= 0)
		return err_set(err, ECONNREFUSED, "%s: the daemon hung up without an answer", path);
	if (m.msg_flags & MSG_CTRUNC)
		return err_set(err, EMFILE, "%s: descriptors of the answer were cut off", path);
	if ((m.msg_flags & MSG_TRUNC) || (size_t)n != sizeof(*ret))
		return err_set(err, EPROTO, "%s: an answer of %zd bytes, not %zu", path, n,
			       sizeof(*ret));
	return 0;
}

/* Slabs have descriptors of their own, that come later. */
static unsigned arenas_with_fd(const struct hello_reply *r)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < r->arenas; i++)
		n += r->arena[i].slab_bytes == 0;
	return n;
}

static int check_reply(const struct hello_reply *r, const char *path, unsigned fds, struct err *err)
{
	if (r->magic != PROTOCOL_MAGIC)
		return err_set(err, EPROTO, "%s: the answer is not tierd's", path);
	if (r->result < 0 && r->result > -4096)
		return err_set(err, -r->result, "%s: %.*s", path, (int)sizeof(r->text), r->text);
	if (r->major != PROTOCOL_MAJOR)
		return err_set(err, EPROTO, "%s: the daemon speaks version %u, this library %u",
			       path, r->major, PROTOCOL_MAJOR);
	if (r->result != 0 || r->arenas > HELLO_ARENAS_MAX || fds != r->fds ||
	    r->fds != HELLO_FDS + arenas_with_fd(r))
		return err_set(err, EPROTO, "%s: %u descriptors came, %u were announced", path, fds,
			       r->fds);
	if (r->features != 0)
		return err_set(err, EPROTO, "%s: features %#llx were not asked for", path,
			       (unsigned long long)r->features);
	return 0;
}

/* Who names no domain says what a daemon of any minor understands. */
static size_t hello_fill(const char *name_space, const char *domain, struct hello_request *ret)
{
	*ret = (struct hello_request){ .magic = PROTOCOL_MAGIC,
				       .major = PROTOCOL_MAJOR,
				       .minor = PROTOCOL_MINOR,
				       .name_space_bytes = (uint32_t)strlen(name_space) };
	memcpy(ret->name_space, name_space, ret->name_space_bytes);
	if (domain == NULL)
		return HELLO_REQUEST_BYTES_LEAST;
	memcpy(ret->domain, domain, strlen(domain));
	return sizeof(*ret);
}

int connect_hello(int socket_fd, const char *path, const char *name_space, const char *domain,
		  struct hello_reply *ret, struct hello_fds *ret_fds, struct err *err)
{
	struct hello_request hello;
	uint64_t deadline_ns = clock_now_ns() + HELLO_DEADLINE_NS;
	size_t bytes;
	int rc;

	if (domain != NULL && strlen(domain) >= sizeof(hello.domain))
		return err_set(err, ENAMETOOLONG, "a domain of %zu bytes, at most %zu",
			       strlen(domain), sizeof(hello.domain) - 1);
	bytes = hello_fill(name_space, domain, &hello);
	/* A refused connection may hold its answer already though sending fails. */
	if (send(socket_fd, &hello, bytes, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		return err_set(err, errno, "%s: %s", path, strerror(errno));
	rc = wait_readable(socket_fd, path, deadline_ns, err);
	if (rc < 0)
		return rc;
	ret_fds->count = 0;
	rc = receive(socket_fd, path, ret, ret_fds, err);
	if (rc == 0)
		rc = check_reply(ret, path, ret_fds->count, err);
	if (rc < 0)
		close_all(ret_fds);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages over the socket as a language: hellos and BYEs, whole and mutated, with descriptors and
 * credentials, on several connections, while clients hang up, die, do not read, and the daemon runs
 * short of descriptors. All that the daemon took goes again, and what it answers is whole.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/fuzz/daemon.h"
#include "tests/fuzz/fuzz.h"
#include "tests/system/wire.h"

#define CLIENTS   4u
#define SEND_FDS  253u /* the kernel takes no more a message */
#define REPLY_FDS 64u

static struct fuzz_daemon d;
static int client[CLIENTS];
static unsigned connected;

/* ---- what is sent --------------------------------------------------------------------------- */

union message {
	struct hello_request hello;
	struct hello_bye bye;
	uint8_t bytes[1024];
};

static void overwrite(struct fuzz_bytes *b, union message *m, size_t bytes)
{
	for (unsigned n = fuzz_u8(b) % 4; n > 0 && bytes > 0; n--) {
		size_t at = fuzz_number(b, 2) % bytes;

		m->bytes[at] ^= (uint8_t)(1 + fuzz_u8(b) % 255);
	}
}

static size_t message_make(struct fuzz_bytes *b, union message *ret)
{
	static const char *const name_spaces[] = { "a", "job", "", "\x1b[2Jterminal\n" };
	uint8_t kind = fuzz_u8(b);
	size_t bytes;

	memset(ret, 0, sizeof(*ret));
	switch (kind % 4) {
	case 0:
		bytes = fuzz_copy(b, ret->bytes, fuzz_number(b, 2) % (sizeof(*ret) + 1));
		return bytes;
	case 1:
		ret->bye = (struct hello_bye){ PROTOCOL_MAGIC, "BYE" };
		bytes = sizeof(ret->bye);
		break;
	default:
		wire_hello_fill(name_spaces[kind / 4 % ARRAY_SIZE(name_spaces)], &ret->hello);
		bytes = kind & 16 ? sizeof(ret->hello) : HELLO_REQUEST_BYTES_LEAST;
	}
	if (kind >= 128)
		overwrite(b, ret, bytes);
	if (kind >= 192)
		bytes = fuzz_number(b, 2) % (bytes + 8);
	return bytes;
}

/* Any descriptor: sockets among them, of which the kernel has to find the circles. */
static int any_descriptor(struct fuzz_bytes *b, unsigned to)
{
	switch (fuzz_u8(b) % 6) {
	case 0:
		return client[to];
	case 1:
		return MAX(client[fuzz_u8(b) % CLIENTS], 0);
	case 2:
		return 1000; /* a memfd */
	case 3:
		return d.rendezvous.lock_fd;
	case 4:
		return d.rendezvous.listen_fd;
	default:
		return 2;
	}
}

static size_t put_control(struct msghdr *m, int type, const void *data, size_t bytes)
{
	struct cmsghdr *c = (struct cmsghdr *)((char *)m->msg_control + m->msg_controllen);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), data, bytes);
	return CMSG_SPACE(bytes);
}

static void controls_make(struct fuzz_bytes *b, unsigned to, struct msghdr *m)
{
	const struct ucred cred = { getpid(), getuid(), getgid() };
	uint8_t what = fuzz_u8(b);
	int fds[SEND_FDS];
	unsigned n = what >= 128 ? 1 + fuzz_u8(b) % SEND_FDS : what / 8;

	if (what & 1)
		m->msg_controllen += put_control(m, SCM_CREDENTIALS, &cred, sizeof(cred));
	for (unsigned i = 0; i < n; i++)
		fds[i] = i < 4 ? any_descriptor(b, to) : fds[i % 4];
	if ((what & 2) && n > 0)
		m->msg_controllen += put_control(m, SCM_RIGHTS, fds, n * sizeof(int));
	if ((what & 4) && n > 1)
		m->msg_controllen += put_control(m, SCM_RIGHTS, fds, n / 2 * sizeof(int));
}

static void say(struct fuzz_bytes *b, unsigned i, bool controls)
{
	static _Alignas(struct cmsghdr) char room[3 * CMSG_SPACE(SEND_FDS * sizeof(int))];
	union message message;
	struct iovec iov = { &message, message_make(b, &message) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room };

	if (controls)
		controls_make(b, i, &m);
	/* What the kernel refuses never reaches the daemon. */
	(void)!sendmsg(client[i], &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- what is answered ----------------------------------------------------------------------- */

static void reply_check(const struct hello_reply *r, unsigned fds)
{
	ASSERT(r->magic == PROTOCOL_MAGIC && r->major == PROTOCOL_MAJOR && r->result <= 0);
	ASSERT(memchr(r->text, '\0', sizeof(r->text)) != NULL);
	if (r->result < 0)
		ASSERT(fds == 0 && r->text[0] != '\0');
	else
		ASSERT(fds == r->fds && r->boot_id == d.segments.boot_id);
}

/* One message, if there is one. */
static bool hear(unsigned i)
{
	static _Alignas(struct cmsghdr) char room[CMSG_SPACE(REPLY_FDS * sizeof(int))];
	struct hello_reply reply;
	struct iovec iov = { &reply, sizeof(reply) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	ssize_t bytes = recvmsg(client[i], &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = bytes < 0 ? NULL : CMSG_FIRSTHDR(&m);
	unsigned n = 0;

	if (bytes <= 0)
		return false;
	for (; c != NULL; c = CMSG_NXTHDR(&m, c)) {
		int fds[REPLY_FDS];

		if (c->cmsg_type != SCM_RIGHTS)
			continue; /* our own wish, SO_PASSCRED */
		n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
		for (unsigned k = 0; k < n; k++)
			close(fds[k]);
	}
	ASSERT(bytes == sizeof(reply));
	if (!(m.msg_flags & MSG_CTRUNC))
		reply_check(&reply, n);
	return true;
}

/* ---- the language --------------------------------------------------------------------------- */

static void hang_up(unsigned i)
{
	if (client[i] >= 0)
		close(client[i]);
	client[i] = -1;
}

static void connect_anew(unsigned i)
{
	struct wire w;

	if (connected >= DAEMON_PIDS - 4)
		return;
	hang_up(i);
	if (wire_connect(daemon_socket(), &w) == 0) {
		client[i] = w.fd;
		connected++;
	}
}

/* The daemon's turns with room for `spare` more descriptors. */
static void turns_short(unsigned n, unsigned spare)
{
	struct rlimit limit, low;
	int fd = dup(2);

	ASSERT(fd >= 0 && close(fd) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	low = limit;
	low.rlim_cur = (rlim_t)fd + spare;
	ASSERT(setrlimit(RLIMIT_NOFILE, &low) == 0);
	daemon_turns(&d, n);
	ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void step(struct fuzz_bytes *b)
{
	static const int one = 1, little = 1;
	uint8_t op = fuzz_u8(b);
	unsigned i = op / 16 % CLIENTS;

	if (client[i] < 0 && op % 16 != 15)
		connect_anew(i);
	switch (op % 16) {
	case 0 ... 3:
		say(b, i, false);
		break;
	case 4 ... 5:
		say(b, i, true);
		break;
	case 6 ... 7:
		daemon_turns(&d, 1 + fuzz_u8(b) % 4);
		break;
	case 8:
		hear(i);
		break;
	case 9:
		hang_up(i);
		break;
	case 10:
		shutdown(client[i], fuzz_u8(b) % 3);
		break;
	case 11:
		daemon_kill(&d, fuzz_u8(b) % DAEMON_PIDS);
		break;
	case 12:
		turns_short(2, fuzz_u8(b) % 8);
		break;
	case 13:
		d.world.now_ns += fuzz_u8(b) * 100 * NS_PER_MS;
		break;
	case 14:
		setsockopt(client[i], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
		setsockopt(client[i], SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
		break;
	case 15:
		connect_anew(i);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_bytes b = { data, data + bytes };
	unsigned before;

	/* One daemon for all inputs: each leaves it without a client, and so as it was. */
	if (d.server == NULL)
		daemon_open(&d, 1, (struct world_shape){ 0 });
	before = fuzz_descriptors();
	d.turn_ns = DAEMON_TURN_NS;
	connected = 0;
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = -1;
	while (!fuzz_ended(&b))
		step(&b);
	daemon_turns(&d, 4);
	for (unsigned i = 0; i < CLIENTS; i++) {
		while (client[i] >= 0 && hear(i))
			continue;
		hang_up(i);
	}
	daemon_bury_clients(&d);
	fuzz_check_descriptors(before);
	fuzz_count("documents", 1);
	fuzz_count("connections", connected);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that send rubbish, and a daemon or its files taken away under load, on a real tierd: the
 * others go on with their bytes whole, or are told by name.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "libclient/tierd.h"
#include "tests/system/system.h"
#include "tests/system/wire.h"

#define SMALL                                    \
	"tensors: 4Ki\n"                         \
	"linger: 100ms\n"                        \
	"tiers:\n"                               \
	"  hbm: {backend: memory, size: 2MiB}\n" \
	"  dram: {size: 8MiB}\n"                 \
	"  nvme: {paths: [{path: @NVME@, size: 32MiB}], block: 64KiB}\n"
#define SLOW_NVME                                                       \
	"tensors: 4Ki\n"                                                \
	"tiers:\n"                                                      \
	"  dram: {size: 8MiB}\n"                                        \
	"  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB, " \
	"fault: {delay: 300ms}}\n"

#define SECONDS_PLAIN 2u

static struct system tierd_system;
static struct system *const s = &tierd_system;

static unsigned seconds(void)
{
	return getenv("TIERD_TEST_LONG") ? 60 : SECONDS_PLAIN;
}

/* ---- a client that behaves ---------------------------------------------------------------------
 */

#define GOOD_TENSORS 24u
#define GOOD_BYTES   (KIB(512) + 5)
#define OTHERS       (GOOD_TENSORS + 1) /* first index that is not the good client's */

struct good {
	struct tierd *t;
	tierd_tensor tensor[GOOD_TENSORS];
	unsigned char byte[GOOD_TENSORS];
	unsigned random;
};

static void good_open(struct good *g, const char *name_space)
{
	*g = (struct good){ .random = 5 };
	if (tierd_open(s->socket, name_space, 0, &g->t) < 0)
		system_fail(s, "open: %s", tierd_error(NULL));
	for (unsigned i = 0; i < GOOD_TENSORS; i++) {
		struct tierd_spec spec = { .ndim = 1, .shape = { GOOD_BYTES } };

		if (tierd_create(g->t, &spec, 1, &g->tensor[i]) < 0)
			system_fail(s, "create: %s", tierd_error(NULL));
	}
}

/* One tensor read, checked and written anew: 0, or what acquire said. */
static int good_turn(struct good *g)
{
	unsigned i = (unsigned)rand_r(&g->random) % GOOD_TENSORS;
	struct tierd_view v;
	unsigned char *bytes;
	int rc = tierd_acquire(g->t, g->tensor[i], TIERD_HOST, TIERD_READ | TIERD_WRITE,
			       20 * (int64_t)NS_PER_S, &v);

	if (rc < 0)
		return rc;
	bytes = v.data;
	for (uint64_t k = 0; k < v.bytes; k += 511)
		if (bytes[k] != g->byte[i])
			system_fail(s, "byte %lu of tensor %u is %#x, not %#x", (unsigned long)k, i,
				    bytes[k], g->byte[i]);
	g->byte[i] = (unsigned char)rand_r(&g->random);
	memset(bytes, g->byte[i], v.bytes);
	tierd_release(g->t, &v);
	return 0;
}

static void good_turns(struct good *g, unsigned n)
{
	while (n-- > 0)
		if (good_turn(g) < 0)
			system_fail(s, "acquire: %s", tierd_error(g->t));
}

/* Nobody but the good client is left. */
static void others_are_gone(const struct good *g)
{
	uint64_t end_ns = clock_now_ns() + 10 * NS_PER_S;
	struct tierd_stats stats;

	do {
		if (tierd_stats(g->t, &stats) < 0)
			system_fail(s, "stats: %s", tierd_error(g->t));
		if (clock_now_ns() > end_ns)
			system_fail(s, "%lu tensors are left", (unsigned long)stats.tensors);
		usleep(5000);
	} while (stats.tensors != GOOD_TENSORS);
}

static unsigned log_lines(void)
{
	FILE *f = fopen(s->log, "r");
	unsigned n = 0;
	int c;

	while (f && (c = fgetc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* ---- rubbish -----------------------------------------------------------------------------------
 */

static unsigned draw(unsigned *random, unsigned below)
{
	return (unsigned)rand_r(random) % below;
}

static void fill_random(void *to, size_t bytes, unsigned *random)
{
	unsigned char *at = to;

	while (bytes-- > 0)
		*at++ = (unsigned char)(rand_r(random) >> 8);
}

/* A hello with one field spoilt, or no hello at all, with or without a descriptor beside it. */
static void send_rubbish(int fd, unsigned *random)
{
	static unsigned char message[100000];
	size_t bytes = draw(random, 2) ? sizeof(struct hello_request) : draw(random, 99999);
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { message, bytes };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct hello_request hello;

	fill_random(message, bytes, random);
	if (draw(random, 2)) {
		wire_hello_fill("rubbish", &hello);
		((unsigned char *)&hello)[draw(random, sizeof(hello))] ^= 1u << draw(random, 8);
		memcpy(message, &hello, MIN(bytes, sizeof(hello)));
	}
	if (draw(random, 4) == 0) {
		m.msg_control = room;
		m.msg_controllen = sizeof(room);
		CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	}
	(void)!sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

START_TEST(rubbish_on_the_socket_harms_nobody_and_does_not_fill_the_log)
{
	unsigned random = 1;
	struct good g;

	system_start(s, SMALL);
	good_open(&g, "good");
	for (unsigned i = 0; i < 1000; i++) {
		struct wire w;

		if (wire_connect(s->socket, &w) < 0)
			continue;
		for (unsigned k = draw(&random, 3); k > 0; k--)
			send_rubbish(w.fd, &random);
		wire_close(&w);
		if (i % 20 == 0)
			good_turns(&g, 1);
	}
	good_turns(&g, 50);
	others_are_gone(&g);
	ck_assert_uint_lt(log_lines(), 100);
	tierd_close(g.t);
	system_stop(s);
}
END_TEST

/* An entry that is half right, so that it gets beyond the first check. */
static void entry_random(const struct wire *w, unsigned *random, uint32_t id, struct sq_entry *ret)
{
	struct sq_entry e = { .id = id,
			      .opcode = (uint16_t)(1 + draw(random, 16)),
			      .place = draw(random, 2) ? PROTOCOL_PLACE_HOST : 0,
			      .access = (uint8_t)draw(random, 8),
			      .index = OTHERS + draw(random, 64),
			      .generation = 1 + draw(random, 3),
			      .timeout_ns = (int64_t)draw(random, 50) * (int64_t)NS_PER_MS,
			      .payload = draw(random, PAYLOAD_SLOTS) * PAYLOAD_BYTES,
			      .payload_bytes = draw(random, 3) * 8 * draw(random, 100),
			      .count = draw(random, 40),
			      .bytes = draw(random, WINDOW_BYTES),
			      .window = draw(random, WINDOW_SLOTS) };

	if (e.opcode == OP_FLUSH)
		e.count = e.payload_bytes / 8;
	if (draw(random, 3) == 0)
		fill_random((char *)&e + 4 + draw(random, 52), 1 + draw(random, 8), random);
	/* A domain is one boundary: whoever is in it may write whatever it has a handle of. */
	if (e.index < OTHERS)
		e.index += OTHERS;
	*ret = e;
}

static void spoil_segment(struct wire *w, unsigned *random)
{
	uint64_t at = draw(random, 2) ? draw(random, CONTROL_HEADER_BYTES)
				      : (uint64_t)rand_r(random) % w->reply.control_bytes;
	uint64_t bytes = MIN(w->reply.control_bytes - at, (uint64_t)1 + draw(random, 200));

	fill_random((char *)w->control + at, bytes, random);
}

/* Slots of tensors 1 to 63 with pins that nobody took, for as long as this client lives. */
static void spoil_pins(struct wire *w, unsigned *random)
{
	uint64_t word;

	fill_random(&word, sizeof(word), random);
	atomic_store(wire_pin(w, draw(random, 64)), word);
}

static void hostile_life(unsigned *random)
{
	static uint32_t id;
	struct wire w;
	struct wire_handle h;
	struct cq_entry c;

	if (wire_open(s->socket, "hostile", &w) < 0)
		_exit(2);
	for (unsigned i = 0; i < 8; i++)
		wire_create(&w, NULL, draw(random, (unsigned)MIB(1)), &h);
	for (unsigned i = 0; i < 200; i++) {
		struct sq_entry e;

		entry_random(&w, random, id = (id + 1) % SQ_ENTRIES, &e);
		fill_random(wire_payload(&w, e.payload / PAYLOAD_BYTES % PAYLOAD_SLOTS),
			    draw(random, 400), random);
		for (unsigned k = 0; k < 4; k++)
			((struct wire_handle *)wire_payload(&w, e.payload / PAYLOAD_BYTES %
									PAYLOAD_SLOTS))[k] =
				(struct wire_handle){ OTHERS + draw(random, 64), 1 };
		wire_submit(&w, &e);
		while (wire_poll(&w, &c))
			;
		if (i > 100 && draw(random, 30) == 0)
			spoil_pins(&w, random);
		if (i > 150 && draw(random, 20) == 0)
			spoil_segment(&w, random);
	}
	/* The daemon may have let go of it; its end is that of a crash. */
	wire_close(&w);
}

static void hostile_client(struct system *unused, void *arg)
{
	unsigned random = *(unsigned *)arg;
	uint64_t end_ns = clock_now_ns() + seconds() * NS_PER_S;

	/* A life is a process: its pins go when it ends. */
	while (clock_now_ns() < end_ns) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			hostile_life(&random);
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || (WIFEXITED(status) && WEXITSTATUS(status)))
			_exit(1);
		random += 7919;
	}
}

START_TEST(rubbish_in_rings_pins_and_logs_harms_only_its_sender)
{
	unsigned seeds[3] = { 11, 22, 33 };
	pid_t pid[3];
	struct good g;

	system_start(s, SMALL);
	good_open(&g, "good");
	for (unsigned i = 0; i < 3; i++)
		pid[i] = system_child(hostile_client, s, &seeds[i]);
	for (uint64_t end_ns = clock_now_ns() + seconds() * NS_PER_S; clock_now_ns() < end_ns;)
		good_turns(&g, 1);
	for (unsigned i = 0; i < 3; i++)
		system_child_end(s, pid[i], 60000);
	good_turns(&g, 200);
	others_are_gone(&g);
	tierd_close(g.t);
	system_stop(s);
}
END_TEST

/* ---- the daemon goes while clients wait --------------------------------------------------------
 */

#define WAITERS 6u

static int said[2]; /* a byte from each client that is about to wait */

static void say(void)
{
	if (write(said[1], "x", 1) != 1)
		_exit(1);
}

static tierd_tensor wait_create(struct tierd *t, const char *name, uint64_t bytes)
{
	struct tierd_spec spec = { .name = name, .ndim = 1, .shape = { bytes } };
	tierd_tensor h;

	if (tierd_create(t, &spec, 1, &h) < 0)
		_exit(3);
	return h;
}

/* Waits for ever, each in another call; must come back with -EPIPE. */
static int wait_somehow(struct tierd *t, unsigned how)
{
	/* Copies that do not wait for room go to a tensor larger than dram. */
	tierd_tensor h = wait_create(t, NULL, how < 3 ? MIB(4) : MIB(9)), two[2] = { h, h };
	struct tierd_view v, views[2];
	static char bytes[MIB(1)];
	int rc = 0;

	if (how >= 3 && tierd_copy_in(t, h, 0, bytes, 1) < 0)
		_exit(4);
	say();
	switch (how) {
	case 0:
		return tierd_acquire(t, h, TIERD_HOST, TIERD_WRITE, -1, &v);
	case 1:
		return tierd_acquire(t, h, TIERD_HOST, TIERD_READ, 30 * (int64_t)NS_PER_S, &v);
	case 2:
		return tierd_acquire_batch(t, two, 2, TIERD_HOST, TIERD_WRITE, -1, views);
	case 3:
		while (rc == 0)
			rc = tierd_copy_in(t, h, MIB(1), bytes, sizeof(bytes));
		return rc;
	case 4:
		while (rc == 0)
			rc = tierd_copy_out(t, h, 0, bytes, sizeof(bytes));
		return rc;
	default:
		while (rc == 0) {
			rc = tierd_copy_in(t, h, 0, bytes, 4096);
			rc = rc == 0 ? tierd_flush(t, &h, 1) : rc;
		}
		return rc;
	}
}

static void waiting_client(struct system *unused, void *arg)
{
	unsigned how = *(unsigned *)arg;
	struct tierd *t;
	int rc;

	if (tierd_open(s->socket, "waits", 0, &t) < 0)
		_exit(2);
	rc = wait_somehow(t, how);
	if (rc != -EPIPE)
		fprintf(stderr, "waiter %u: %d: %s\n", how, rc, tierd_error(t));
	tierd_close(t);
	_exit(rc == -EPIPE ? 0 : 1);
}

static void daemon_goes(void (*away)(struct system *))
{
	unsigned how[WAITERS];
	pid_t pid[WAITERS];
	struct tierd *t;
	struct tierd_view v;
	char byte;

	system_start(s, SLOW_NVME);
	ck_assert_int_eq(pipe(said), 0);
	ck_assert_int_eq(tierd_open(s->socket, "waits", 0, &t), 0);
	/* Leaves too little for any of the others. */
	ck_assert_int_eq(
		tierd_acquire(t, wait_create(t, NULL, MIB(4)), TIERD_HOST, TIERD_WRITE, -1, &v), 0);
	for (unsigned i = 0; i < WAITERS; i++) {
		how[i] = i;
		pid[i] = system_child(waiting_client, s, &how[i]);
	}
	for (unsigned i = 0; i < WAITERS; i++)
		ck_assert_int_eq(read(said[0], &byte, 1), 1);
	usleep(100000); /* into their calls; who is not yet there must be told as well */
	away(s);
	for (unsigned i = 0; i < WAITERS; i++)
		system_child_end(s, pid[i], 5000);
	memset(v.data, 1, v.bytes); /* what is held stays mapped */
	tierd_release(t, &v);
	tierd_close(t);
	if (!s->pid)
		system_launch(s); /* takes over what the killed one left */
	system_stop(s);
}

START_TEST(who_waits_when_the_daemon_is_killed_is_told)
{
	daemon_goes(system_kill);
}
END_TEST

START_TEST(who_waits_when_the_daemon_ends_is_told)
{
	daemon_goes(system_end);
}
END_TEST

static void stop_and_kill(struct system *unused)
{
	kill(s->pid, SIGSTOP);
	usleep(50000);
	system_kill(s);
}

START_TEST(who_waits_when_a_stopped_daemon_is_killed_is_told)
{
	daemon_goes(stop_and_kill);
}
END_TEST

/* ---- files go ----------------------------------------------------------------------------------
 */

static bool connects_within(int timeout_ms)
{
	uint64_t end_ns = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	struct tierd *t;

	while (tierd_open(s->socket, "later", 0, &t) < 0) {
		if (clock_now_ns() > end_ns)
			return false;
		usleep(10000);
	}
	tierd_close(t);
	return true;
}

START_TEST(files_removed_under_load_stop_nobody)
{
	char lock[128];
	struct good g;

	system_start(s, SMALL);
	good_open(&g, "good");
	good_turns(&g, 40);
	ck_assert_int_eq(unlink(s->socket), 0);
	good_turns(&g, 40);
	ck_assert(connects_within(10000));
	snprintf(lock, sizeof(lock), "%s.lock", s->socket);
	ck_assert_int_eq(unlink(lock), 0);
	good_turns(&g, 40);
	/* The file of nvme has no name; its folder may go. */
	ck_assert_int_eq(rmdir(s->nvme), 0);
	good_turns(&g, 100);
	ck_assert(connects_within(10000));
	tierd_close(g.t);
	system_stop(s);
}
END_TEST

UNIT_MAIN("hostile", rubbish_on_the_socket_harms_nobody_and_does_not_fill_the_log,
	  rubbish_in_rings_pins_and_logs_harms_only_its_sender,
	  who_waits_when_the_daemon_is_killed_is_told, who_waits_when_the_daemon_ends_is_told,
	  who_waits_when_a_stopped_daemon_is_killed_is_told, files_removed_under_load_stop_nobody)

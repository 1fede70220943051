/* SPDX-License-Identifier: Apache-2.0
 *
 * One hostile program for each row of "Hostile clients" in docs/protocol.md: those that lie about
 * pins and fences, about who they are, and about being alive. The others are in
 * check_hostile_domain.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "libclient/admin.h"
#include "tests/system/hostile_rig.h"

static struct system *const s = &domain_system;

/* ---- rows: pins and fences ------------------------------------------------------------------ */

static void holds_for_ever(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(RED);
	struct tierd_view v;
	tierd_tensor x[30];

	/* All of dram and hbm of its domain, and then it waits for more, again and again. */
	for (unsigned i = 0; i < ARRAY_SIZE(x); i++)
		x[i] = domain_make(t, NULL, KIB(512));
	for (unsigned i = 0;; i++)
		(void)tierd_acquire(t, x[i % ARRAY_SIZE(x)], i % 2 ? 0 : TIERD_HOST, TIERD_WRITE,
				    (int64_t)NS_PER_S / 20, &v);
}

START_TEST(pins_that_are_held_for_ever_fill_their_own_domain)
{
	hostile_beside_a_neighbour(holds_for_ever, true);
}
END_TEST

static void lies(struct system *unused, void *arg)
{
	struct wire_handle x[16];
	struct cq_entry c;
	struct wire w;

	domain_become(RED);
	hostile_open(&w);
	for (unsigned i = 0; i < 16; i++)
		MUST(wire_create(&w, NULL, KIB(512), &x[i]) == 0, "create");
	for (unsigned round = 0;; round++) {
		const struct sq_entry e = { .opcode = OP_ACQUIRE,
					    .index = x[round % 16].index,
					    .generation = x[round % 16].generation,
					    .place = round % 2 ? 0 : PROTOCOL_PLACE_HOST,
					    .access = ACCESS_READ | ACCESS_WRITE,
					    .timeout_ns = NS_PER_MS };

		/* Whole slots of rubbish, of tensors that are there and that are not. */
		for (unsigned i = 0; i < 64; i++)
			atomic_store(wire_pin(&w, i), i % 3 == 0 ? 0 : hostile_any64());
		(void)wire_call(&w, &e, &c);
	}
}

START_TEST(lies_in_a_pin_table_harm_their_domain_alone)
{
	hostile_beside_a_neighbour(lies, true);
}
END_TEST

static void *at_random(const struct wire *w, const struct layout_array *a)
{
	return wire_part(w, a->offset + (hostile_any64() % (a->stride * a->count) & ~7ull));
}

/* Values of streams and rings of releases that nobody ever sent, beside asks for fences. */
static void never_signals(struct wire *w)
{
	const struct layout_array fences = w->control->fences, streams = w->control->streams,
				  deferred = w->control->deferred;
	struct wire_handle x[4];
	struct cq_entry c;

	for (unsigned i = 0; i < 4; i++)
		MUST(wire_create(w, NULL, KIB(512), &x[i]) == 0, "create");
	for (unsigned round = 0; round < 400; round++) {
		const struct sq_entry e = { .id = round % 200,
					    .opcode = OP_ACQUIRE_ON,
					    .index = x[round % 4].index,
					    .generation = x[round % 4].generation,
					    .place = 0,
					    .access = ACCESS_READ,
					    .timeout_ns = NS_PER_MS };

		for (unsigned i = 0; i < 64; i++) {
			*(volatile uint64_t *)at_random(w, &fences) = hostile_any64();
			*(volatile uint64_t *)at_random(w, &streams) = hostile_any64();
			*(volatile uint64_t *)at_random(w, &deferred) = hostile_any64();
		}
		wire_submit(w, &e);
		while (wire_poll(w, &c))
			;
		usleep(100);
	}
}

static void never_signal(struct system *unused, void *arg)
{
	hostile_by_processes(never_signals);
}

START_TEST(fences_that_never_come_and_wild_values_hang_nobody)
{
	hostile_beside_a_neighbour(never_signal, false);
}
END_TEST

/* ---- rows: life ----------------------------------------------------------------------------- */

static void works_until_killed(struct system *unused, void *arg)
{
	struct tierd *t = domain_enter(RED);

	for (unsigned i = 0;; i++) {
		tierd_tensor x = domain_make(t, NULL, KIB(256));

		domain_fill(t, x, i % 2 ? 0 : TIERD_HOST, (int)i);
		MUST(tierd_destroy(t, &x, 1) == 0, "destroy: %s", tierd_error(t));
	}
}

/* In the middle of whatever it does. */
static void dies_anywhere(struct system *unused, void *arg)
{
	uint64_t end_ns = hostile_end_ns();
	int status;

	while (clock_now_ns() < end_ns) {
		pid_t pid = system_child(works_until_killed, s, NULL);

		usleep(hostile_any() % 30000);
		kill(pid, SIGKILL);
		MUST(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status),
		     "it ended by itself with %d", status);
	}
}

START_TEST(who_dies_anywhere_holds_no_lock)
{
	hostile_beside_a_neighbour(dies_anywhere, false);
}
END_TEST

static void floods(struct system *unused, void *arg)
{
	struct wire w[300];
	unsigned open = 0;

	domain_become(RED);
	/* More than may be silent at once; half of a hello is no hello. */
	for (; open < ARRAY_SIZE(w); open++) {
		if (wire_connect(s->socket, &w[open]) < 0)
			break;
		if (open % 2)
			(void)!send(w[open].fd, "terd", 4, MSG_NOSIGNAL);
	}
	MUST(open > 64, "only %u connections", open);
	pause();
}

START_TEST(silent_connections_and_slow_talkers_keep_nobody_out)
{
	hostile_beside_a_neighbour(floods, true);
}
END_TEST

/* Pinned, and destroyed. */
static void keep_doomed(struct wire *w)
{
	struct wire_handle x;
	struct cq_entry c;
	struct sq_entry e = { .opcode = OP_ACQUIRE,
			      .place = PROTOCOL_PLACE_HOST,
			      .access = ACCESS_READ,
			      .count = 1,
			      .timeout_ns = -1 };

	MUST(wire_create(w, NULL, KIB(4), &x) == 0, "create");
	memcpy(wire_payload(w, 0), &x, sizeof(x));
	e.index = x.index;
	e.generation = x.generation;
	MUST(wire_call(w, &e, &c) == 0, "acquire: %d", c.result);
	atomic_store(wire_pin(w, x.index), PIN_ONE);
	e.opcode = OP_DESTROY;
	MUST(wire_call(w, &e, &c) == 0, "destroy: %d", c.result);
	MUST(word0_flags(atomic_load(&wire_descriptor(w, x.index)->word0)) & FLAG_DOOMED,
	     "it is not doomed");
}

/* Each namespace has a tensor to linger for, and stays as long as it can. */
static void makes_up_names(struct system *unused, void *arg)
{
	uint64_t end_ns = hostile_end_ns();
	struct wire pins, w;
	unsigned n = 0;

	domain_become(RED);
	hostile_open(&pins);
	keep_doomed(&pins);
	for (; clock_now_ns() < end_ns; n++) {
		struct wire_handle x;
		char name[16];
		int rc;

		snprintf(name, sizeof(name), "made-up-%u", n);
		rc = wire_open(s->socket, name, &w);
		if (rc == 0) {
			(void)wire_create(&w, "x", 0, &x);
			wire_bye(&w);
			wire_close(&w);
		}
	}
	MUST(n > 10, "only %u names", n);
	MUST(hostile_is_served(&pins), "it is not served any more");
}

START_TEST(names_that_are_made_up_are_in_nobodys_way)
{
	hostile_beside_a_neighbour(makes_up_names, false);
}
END_TEST

/* A socket of red, spoken on by blue: who connected counts, and not who speaks. */
static void speaks_for_another(struct system *unused, void *arg)
{
	struct tierd *t;
	struct wire w;
	int status;
	pid_t pid;

	MUST(setegid(RED) == 0 && seteuid(RED) == 0, "seteuid: %m");
	MUST(wire_connect(s->socket, &w) == 0, "connect");
	MUST(seteuid(0) == 0 && setegid(0) == 0, "seteuid: %m");
	pid = fork();
	if (pid == 0) {
		domain_become(BLUE);
		MUST(wire_hello(&w, "job") == 0 && wire_receive(&w) == 0, "hello");
		MUST(atomic_load(&w.stats->tier[2].limit_bytes) == MIB(16),
		     "it is in a domain with %llu bytes of nvme",
		     (unsigned long long)atomic_load(&w.stats->tier[2].limit_bytes));
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0) == pid && status == 0, "it ended with %d", status);
	wire_close(&w);
	domain_become(RED);
	MUST(admin_open(s->socket, "job", "blue", &t) == -EACCES, "%s", tierd_error(NULL));
}

START_TEST(identity_is_of_who_connected)
{
	hostile_beside_a_neighbour(speaks_for_another, false);
}
END_TEST

static void squats(struct system *unused, void *arg)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	char lock[128];

	domain_become(RED);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", s->socket);
	MUST(unlink(s->socket) < 0 && rename(s->socket, "/tmp/x") < 0, "the socket is gone");
	MUST(bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0, "the path was taken");
	snprintf(lock, sizeof(lock), "%s.lock", s->socket);
	MUST(access(lock, F_OK) == 0, "there is no lock");
	MUST(unlink(lock) < 0, "the lock is gone");
	fd = open(lock, O_RDWR);
	MUST(fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0, "the lock was taken");
	fd = open(lock, O_RDONLY);
	MUST(fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0, "the lock was taken");
}

START_TEST(the_path_cannot_be_squatted)
{
	hostile_beside_a_neighbour(squats, false);
}
END_TEST

UNIT_MAIN("hostile_life", pins_that_are_held_for_ever_fill_their_own_domain,
	  lies_in_a_pin_table_harm_their_domain_alone,
	  fences_that_never_come_and_wild_values_hang_nobody, who_dies_anywhere_holds_no_lock,
	  silent_connections_and_slow_talkers_keep_nobody_out,
	  names_that_are_made_up_are_in_nobodys_way, identity_is_of_who_connected,
	  the_path_cannot_be_squatted)

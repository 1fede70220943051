/* SPDX-License-Identifier: Apache-2.0
 *
 * Places of clients: caps, descriptors, and who is kept from neither.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/nofile.h"
#include "tests/unit/server_rig.h"

static struct rig rig;

static void close_all(struct wire *w, size_t n)
{
	for (size_t i = 0; i < n; i++)
		wire_close(&w[i]);
}

START_TEST(beyond_max_clients_the_answer_says_so)
{
	struct wire w[4];

	rig_start(&rig);
	for (unsigned i = 0; i < 3; i++)
		rig_client(&rig, &w[i]);
	ck_assert_int_eq(wire_connect(rig.socket, &w[3]), 0);
	ck_assert_int_eq(wire_hello(&w[3], "unit"), 0);
	rig_run(&rig);
	ck_assert_int_eq(wire_receive(&w[3]), -EUSERS);
	ck_assert_ptr_nonnull(strstr(w[3].reply.text, "max_clients"));
	wire_close(&w[3]);
	/* One that says BYE makes room. */
	wire_bye(&w[0]);
	rig_run(&rig);
	rig_client(&rig, &w[0]);
	for (unsigned i = 0; i < 3; i++)
		wire_close(&w[i]);
	rig_stop(&rig);
}
END_TEST

START_TEST(connections_that_say_nothing_are_few_and_do_not_count)
{
	static struct wire w[300];
	struct wire good;
	unsigned closed = 0;
	char byte;

	rig_start(&rig);
	rig_client(&rig, &good); /* of three that may */
	for (unsigned i = 0; i < ARRAY_SIZE(w); i++) {
		ck_assert_int_eq(wire_connect(rig.socket, &w[i]), 0);
		rig_run(&rig);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(w); i++)
		closed += recv(w[i].fd, &byte, 1, MSG_DONTWAIT) == 0;
	ck_assert_uint_eq(closed, 300 - 256);
	/* They hold up nobody who speaks. */
	wire_close(&w[0]);
	rig_run(&rig);
	rig_client(&rig, &w[0]);
	close_all(w, ARRAY_SIZE(w));
	rig_run(&rig);
	/* The one that spoke has hung up, which is not its end. */
	ck_assert_uint_eq(server_clients(rig.server), 2);
	wire_close(&good);
	rig_stop(&rig);
}
END_TEST

START_TEST(without_descriptors_the_answer_says_so_and_later_ones_get_in)
{
	struct rlimit limit, low;
	struct wire w;
	int rc, fd;

	rig_start(&rig);
	ck_assert_int_eq(wire_connect(rig.socket, &w), 0);
	ck_assert_int_eq(wire_hello(&w, "unit"), 0);
	fd = dup(0);
	close(fd);
	getrlimit(RLIMIT_NOFILE, &limit);
	low = limit;
	low.rlim_cur = (rlim_t)fd; /* not one more */
	setrlimit(RLIMIT_NOFILE, &low);
	rig_run(&rig);
	setrlimit(RLIMIT_NOFILE, &limit);
	rc = wire_receive(&w);
	ck_assert_int_eq(rc, -EMFILE);
	wire_close(&w);
	rig_run(&rig);
	rig_client(&rig, &w);
	wire_close(&w);
	rig_stop(&rig);
}
END_TEST

static int hello_as(const char *name_space, struct wire *w)
{
	ck_assert_int_eq(wire_connect(rig.socket, w), 0);
	ck_assert_int_eq(wire_hello(w, name_space), 0);
	rig_run(&rig);
	return wire_receive(w);
}

/* By tierctl's namespace and a uid that may look: then max_clients keeps nobody out. */
START_TEST(who_looks_is_let_in_beyond_max_clients)
{
	struct wire jobs[3], looks[SERVER_OPERATORS], late;

	rig_start(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(jobs); i++)
		rig_client(&rig, &jobs[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(looks); i++) {
		ck_assert_int_eq(hello_as("unit", &late), -EUSERS);
		wire_close(&late);
		ck_assert_int_eq(hello_as(HELLO_OPERATOR_NAME_SPACE, &looks[i]), 0);
	}
	ck_assert_int_eq(hello_as(HELLO_OPERATOR_NAME_SPACE, &late), -EUSERS);
	wire_close(&late);
	close_all(looks, ARRAY_SIZE(looks));
	close_all(jobs, ARRAY_SIZE(jobs));
	rig_stop(&rig);
}
END_TEST

#define PLACES      16u
#define FOR_CLIENTS (PLACES - SERVER_OPERATORS)

static void start_with_places(uint64_t clients_max)
{
	rig_connections_max = PLACES;
	rig_clients_max = clients_max;
	ck_assert_uint_eq(server_kept(PLACES), SERVER_OPERATORS);
	rig_start(&rig);
}

/* All that is for clients is taken. */
static void take_all_places(struct wire jobs[FOR_CLIENTS])
{
	start_with_places(FOR_CLIENTS + 1);
	for (unsigned i = 0; i < FOR_CLIENTS; i++)
		rig_client(&rig, &jobs[i]);
}

static void leave_all_places(struct wire taken[FOR_CLIENTS])
{
	close_all(taken, FOR_CLIENTS);
	rig_stop(&rig);
	rig_connections_max = 1024;
	rig_clients_max = 3;
}

START_TEST(who_looks_has_descriptors_that_no_client_takes)
{
	struct wire jobs[FOR_CLIENTS], looks[SERVER_OPERATORS], late;

	take_all_places(jobs);
	for (unsigned i = 0; i < ARRAY_SIZE(looks); i++) {
		/* Any number of clients is told no at once, and takes no place. */
		for (unsigned k = 0; k < 20; k++) {
			ck_assert_int_eq(hello_as("unit", &late), -EMFILE);
			wire_close(&late);
		}
		ck_assert_int_eq(hello_as(HELLO_OPERATOR_NAME_SPACE, &looks[i]), 0);
	}
	ck_assert_int_eq(hello_as(HELLO_OPERATOR_NAME_SPACE, &late), -EMFILE);
	wire_close(&late);
	/* Nor does one that is let in to be told so and says nothing. */
	ck_assert_int_eq(wire_connect(rig.socket, &late), 0);
	rig_run(&rig);
	wire_bye(&looks[0]);
	ck_assert_int_eq(hello_as(HELLO_OPERATOR_NAME_SPACE, &looks[0]), 0);
	wire_close(&late);
	close_all(looks, ARRAY_SIZE(looks));
	leave_all_places(jobs);
}
END_TEST

/* Whether several users can connect to the rig that was started. */
static bool users_differ(void)
{
	if (geteuid() != 0) {
		fprintf(stderr, "skipped: it takes several users\n");
		return false;
	}
	ck_assert_int_eq(chmod(rig.directory, 0755), 0);
	ck_assert_int_eq(chmod(rig.socket, 0666), 0);
	return true;
}

#define NOBODY   65534u
#define SOMEBODY 65533u

/* SO_PEERCRED has the effective uid of when it connected. */
static void connect_as(uid_t uid, struct wire *ret)
{
	ck_assert_int_eq(seteuid(uid), 0);
	ck_assert_int_eq(wire_connect(rig.socket, ret), 0);
	ck_assert_int_eq(seteuid(0), 0);
}

static bool is_closed(const struct wire *w)
{
	char byte;

	return recv(w->fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* One of an operator, one of a user, and all others of another one, who keeps nobody out. */
START_TEST(silent_ones_leave_their_places_to_those_that_speak)
{
	struct wire silent[FOR_CLIENTS], jobs[FOR_CLIENTS], late;

	start_with_places(FOR_CLIENTS + 1);
	if (users_differ()) {
		connect_as(0, &silent[0]);
		connect_as(SOMEBODY, &silent[1]);
		for (unsigned i = 2; i < ARRAY_SIZE(silent); i++)
			connect_as(NOBODY, &silent[i]);
		rig_run(&rig);
		/* Who speaks at last is not taken for one that does not. */
		ck_assert_int_eq(wire_hello(&silent[2], "unit"), 0);
		for (unsigned i = 3; i < FOR_CLIENTS - 1; i++) {
			ck_assert_int_eq(hello_as("unit", &jobs[i]), 0);
			ck_assert(is_closed(&silent[i]));
		}
		ck_assert_int_eq(wire_receive(&silent[2]), 0);
		/* Both have one now, and the older goes first. */
		ck_assert(!is_closed(&silent[1]));
		ck_assert_int_eq(hello_as("unit", &jobs[1]), 0);
		ck_assert(is_closed(&silent[1]));
		ck_assert_int_eq(hello_as("unit", &jobs[FOR_CLIENTS - 1]), 0);
		ck_assert(is_closed(&silent[FOR_CLIENTS - 1]));
		ck_assert_int_eq(hello_as("unit", &late), -EMFILE);
		wire_close(&late);
		ck_assert_int_eq(wire_hello(&silent[0], HELLO_OPERATOR_NAME_SPACE), 0);
		rig_run(&rig);
		ck_assert_int_eq(wire_receive(&silent[0]), 0);
		wire_close(&jobs[1]);
		close_all(&jobs[3], ARRAY_SIZE(jobs) - 3);
		close_all(silent, ARRAY_SIZE(silent));
	}
	rig_stop(&rig);
}
END_TEST

/* Half of the places are shared out among domains, also where descriptors are what is short. */
START_TEST(other_domains_are_sure_of_descriptors)
{
	const unsigned kept = FOR_CLIENTS / 4;
	struct wire jobs[FOR_CLIENTS], late;

	rig_domains = 2;
	start_with_places(512);
	for (unsigned i = 0; i < FOR_CLIENTS - kept; i++)
		rig_client(&rig, &jobs[i]);
	ck_assert_int_eq(hello_as("unit", &late), -EMFILE);
	ck_assert_ptr_nonnull(strstr(late.reply.text, "but for those of other domains"));
	wire_close(&late);
	ck_assert_int_eq(hello_as(HELLO_OPERATOR_NAME_SPACE, &late), 0);
	wire_bye(&late);
	wire_bye(&jobs[0]);
	rig_client(&rig, &jobs[0]);
	close_all(jobs, FOR_CLIENTS - kept);
	rig_stop(&rig);
}
END_TEST

START_TEST(a_flood_of_silent_ones_keeps_nobody_from_looking)
{
	struct wire jobs[FOR_CLIENTS], flood[40], looks;
	unsigned closed = 0;

	take_all_places(jobs);
	if (users_differ()) {
		for (unsigned i = 0; i < ARRAY_SIZE(flood); i++)
			connect_as(NOBODY, &flood[i]);
		ck_assert_int_eq(hello_as(HELLO_OPERATOR_NAME_SPACE, &looks), 0);
		for (unsigned i = 0; i < ARRAY_SIZE(flood); i++)
			closed += is_closed(&flood[i]);
		ck_assert_uint_eq(closed, ARRAY_SIZE(flood) - 1);
		wire_close(&looks);
		close_all(flood, ARRAY_SIZE(flood));
	}
	leave_all_places(jobs);
}
END_TEST

/* What is kept for the daemon's own needs, no client gets: neither by connecting nor by silence. */
START_TEST(beyond_the_descriptors_for_clients_the_answer_says_so)
{
	struct wire w[3], late[2];
	struct nofile before, after;
	struct err err = ERR_INIT;

	rig_connections_max = 3;
	rig_clients_max = 4;
	rig_start(&rig);
	for (unsigned i = 0; i < 3; i++)
		rig_client(&rig, &w[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(late); i++) {
		ck_assert_int_eq(wire_connect(rig.socket, &late[i]), 0);
		ck_assert_int_eq(wire_hello(&late[i], "unit"), 0);
		rig_run(&rig);
		ck_assert_int_eq(wire_receive(&late[i]), -EMFILE);
		ck_assert_ptr_nonnull(strstr(late[i].reply.text, "no descriptors left"));
		wire_close(&late[i]);
	}
	rig_run(&rig);
	/* One at most is let in to be told, however many stand there. */
	ck_assert_int_eq(nofile_read(&before, &err), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(late); i++)
		ck_assert_int_eq(wire_connect(rig.socket, &late[i]), 0);
	rig_run(&rig);
	rig_run(&rig);
	ck_assert_int_eq(nofile_read(&after, &err), 0);
	ck_assert_uint_eq(after.open, before.open + ARRAY_SIZE(late) + 1);
	wire_bye(&w[2]);
	close_all(late, ARRAY_SIZE(late));
	rig_run(&rig);
	rig_client(&rig, &w[2]);
	close_all(w, ARRAY_SIZE(w));
	rig_stop(&rig);
}
END_TEST

UNIT_MAIN("daemon_places", beyond_max_clients_the_answer_says_so,
	  connections_that_say_nothing_are_few_and_do_not_count,
	  without_descriptors_the_answer_says_so_and_later_ones_get_in,
	  who_looks_is_let_in_beyond_max_clients, who_looks_has_descriptors_that_no_client_takes,
	  silent_ones_leave_their_places_to_those_that_speak, other_domains_are_sure_of_descriptors,
	  a_flood_of_silent_ones_keeps_nobody_from_looking,
	  beyond_the_descriptors_for_clients_the_answer_says_so)

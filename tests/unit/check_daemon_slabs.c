/* SPDX-License-Identifier: Apache-2.0
 *
 * Slabs over the socket: what a client is told, in which order, and what happens to it and to
 * others when it does not listen.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/connection.h"
#include "daemon/greet.h"
#include "tests/unit/server_rig.h"

#define ARENA_BYTES (RIG_SLABS * RIG_SLAB_BYTES - RIG_SLAB_BYTES / 2)

static struct rig rig;
static struct wire wire;
static struct connection *connection;

static void start(void)
{
	rig_start(&rig);
	rig_client(&rig, &wire);
	connection = fake_engine.holders[0].user;
	fake_engine.slab_fd = memfd_create("slab", MFD_CLOEXEC);
	ck_assert_int_ge(fake_engine.slab_fd, 0);
	fake_engine.calls = 0;
}

static void stop(void)
{
	close(fake_engine.slab_fd);
	wire_close(&wire);
	rig_run(&rig);
	rig_stop(&rig);
}

static int call(uint16_t opcode, uint32_t arena, uint64_t offset)
{
	struct sq_entry e = { .opcode = opcode, .index = arena, .offset = offset };
	struct cq_entry c;

	return rig_call(&rig, &wire, &e, &c);
}

static int slab(unsigned i)
{
	return call(OP_SLAB, RIG_SLAB_ARENA, i * RIG_SLAB_BYTES);
}

/* The next message. False: none is there. */
static bool told(struct hello_slab *ret, int *ret_fd)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov = { ret, sizeof(*ret) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };
	ssize_t n = recvmsg(wire.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	if (n < 0)
		return false;
	ck_assert_int_eq((int)n, sizeof(*ret));
	ck_assert_uint_eq(ret->magic, PROTOCOL_MAGIC);
	*ret_fd = -1;
	if (c) {
		ck_assert_uint_eq(c->cmsg_len, CMSG_LEN(sizeof(int)));
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	}
	return true;
}

static void told_of(uint16_t kind, unsigned i)
{
	struct hello_slab m;
	int fd;

	ck_assert(told(&m, &fd));
	ck_assert_uint_eq(m.kind, kind);
	ck_assert_uint_eq(m.arena, RIG_SLAB_ARENA);
	ck_assert_uint_eq(m.offset, i * RIG_SLAB_BYTES);
	ck_assert_uint_eq(m.bytes, i == RIG_SLABS - 1 ? RIG_SLAB_BYTES / 2 : RIG_SLAB_BYTES);
	ck_assert((fd >= 0) == (kind == SLAB_MAP));
	if (fd >= 0)
		close(fd);
}

static void told_nothing(void)
{
	struct hello_slab m;
	int fd;

	ck_assert(!told(&m, &fd));
}

/* Reads what fill_socket() put there. */
static void drain_socket(void)
{
	struct hello_slab m;
	int fd;

	while (told(&m, &fd))
		ck_assert_int_eq(fd, -1);
}

/* What UNMAPs can do, until the socket takes no more. */
static void fill_socket(void)
{
	const struct hello_slab m = { .magic = PROTOCOL_MAGIC, .kind = SLAB_UNMAP };
	unsigned n = 0;

	while (greet_slab(connection->socket_fd, &m, -1, NULL) == 0)
		ck_assert_uint_lt(++n, 1000000);
	ck_assert_uint_gt(n, 10);
}

START_TEST(a_slab_comes_with_its_descriptor_by_the_completion)
{
	start();
	ck_assert_int_eq(slab(1), 0);
	ck_assert_str_eq(fake_engine.last, "slab_fd");
	ck_assert_uint_eq(fake_engine.slab_offset, RIG_SLAB_BYTES);
	ck_assert_int_eq(slab(RIG_SLABS - 1), -EAGAIN); /* it has not read the first */
	ck_assert_uint_eq(fake_engine.slabs_gone, 1);
	told_of(SLAB_MAP, 1);
	ck_assert_int_eq(slab(RIG_SLABS - 1), 0);
	told_of(SLAB_MAP, RIG_SLABS - 1); /* the short one */
	told_nothing();
	/* The engine counts it as mapped, and its descriptor stays the tier's. */
	ck_assert_uint_eq(fake_engine.slabs_gone, 1);
	ck_assert_int_ge(fcntl(fake_engine.slab_fd, F_GETFD), 0);
	stop();
}
END_TEST

START_TEST(slabs_that_cannot_be_are_refused_before_the_engine_hears_of_them)
{
	const struct {
		uint32_t arena;
		uint64_t offset;
	} bad[] = {
		{ 1, 0 }, /* has a descriptor */
		{ 2, 0 },
		{ ENGINE_DEVICES_MAX, 0 },
		{ UINT16_MAX + 1u, 0 },
		{ UINT32_MAX, 0 },
		{ 0, 1 },
		{ 0, RIG_SLAB_BYTES / 2 },
		{ 0, RIG_SLAB_BYTES + 4096 },
		{ 0, ARENA_BYTES },
		{ 0, RIG_SLABS * RIG_SLAB_BYTES },
		{ 0, 1ull << 63 },
		{ 0, UINT64_MAX },
		{ 0, UINT64_MAX - RIG_SLAB_BYTES + 1 },
	};

	start();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(call(OP_SLAB, bad[i].arena, bad[i].offset), -EINVAL);
		ck_assert_ptr_nonnull(strstr(wire_text(&wire, 0), "no slab begins at"));
		ck_assert_int_eq(call(OP_SLAB_GONE, bad[i].arena, bad[i].offset), -EINVAL);
	}
	ck_assert_uint_eq(fake_engine.calls, 0);
	told_nothing();
	stop();
}
END_TEST

START_TEST(a_slab_without_memory_is_refused_and_nothing_is_sent)
{
	int fd;

	start();
	fd = fake_engine.slab_fd;
	fake_engine.slab_fd = -EAGAIN;
	ck_assert_int_eq(slab(3), -EAGAIN);
	ck_assert_str_eq(wire_text(&wire, 0), "no memory there now");
	told_nothing();
	/* It has none that it could lose. */
	connection_slab_unmap(connection, RIG_SLAB_ARENA, 3 * RIG_SLAB_BYTES);
	told_nothing();
	fake_engine.slab_fd = fd;
	stop();
}
END_TEST

START_TEST(a_full_socket_gives_the_slab_back_and_says_so)
{
	start();
	ck_assert_int_eq(slab(0), 0);
	told_of(SLAB_MAP, 0);
	fill_socket();
	ck_assert_int_eq(slab(0), -EAGAIN);
	ck_assert_uint_eq(fake_engine.slabs_gone, 0); /* that one did come */
	ck_assert_int_eq(slab(1), -EAGAIN);
	ck_assert_uint_gt(strlen(wire_text(&wire, 0)), 10);
	ck_assert_uint_eq(fake_engine.slabs_gone, 1);
	ck_assert_uint_eq(fake_engine.slab_offset, RIG_SLAB_BYTES);
	/* Nobody waited, and other things are served. */
	ck_assert_int_eq(call(OP_STEP, 0, 0), 0);
	drain_socket();
	ck_assert_int_eq(slab(1), 0);
	told_of(SLAB_MAP, 1);
	told_nothing();
	stop();
}
END_TEST

START_TEST(an_unmap_reaches_who_has_the_slab)
{
	start();
	ck_assert_int_eq(slab(2), 0);
	told_of(SLAB_MAP, 2);
	connection_slab_unmap(connection, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES);
	connection_slab_unmap(connection, RIG_SLAB_ARENA, 3 * RIG_SLAB_BYTES);
	told_of(SLAB_UNMAP, 2);
	told_nothing();
	ck_assert_int_eq(call(OP_SLAB_GONE, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES), 0);
	ck_assert_uint_eq(fake_engine.slabs_gone, 1);
	ck_assert_uint_eq(fake_engine.slab_offset, 2 * RIG_SLAB_BYTES);
	connection_slab_unmap(connection, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES);
	rig_run(&rig);
	told_nothing();
	stop();
}
END_TEST

/* So that a client can tell an UNMAP of now from one of before. */
START_TEST(an_unmap_is_not_sent_again_before_it_is_answered)
{
	start();
	ck_assert_int_eq(slab(2), 0);
	told_of(SLAB_MAP, 2);
	for (unsigned i = 0; i < 3; i++)
		connection_slab_unmap(connection, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES);
	told_of(SLAB_UNMAP, 2);
	told_nothing();
	ck_assert_int_eq(call(OP_SLAB_KEPT, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES + 1), -EINVAL);
	ck_assert_int_eq(call(OP_SLAB_KEPT, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES), 0);
	ck_assert_uint_eq(fake_engine.slab_offset, 2 * RIG_SLAB_BYTES);
	ck_assert_uint_eq(fake_engine.slabs_gone, 0);
	connection_slab_unmap(connection, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES);
	told_of(SLAB_UNMAP, 2);
	ck_assert_int_eq(call(OP_SLAB_GONE, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES), 0);
	ck_assert_int_eq(slab(2), 0);
	told_of(SLAB_MAP, 2);
	connection_slab_unmap(connection, RIG_SLAB_ARENA, 2 * RIG_SLAB_BYTES);
	told_of(SLAB_UNMAP, 2);
	told_nothing();
	stop();
}
END_TEST

START_TEST(what_a_full_socket_does_not_take_is_owed_and_comes_once)
{
	const unsigned wanted[] = { 0, 5, 63, 64, RIG_SLABS - 1 };

	start();
	for (unsigned i = 0; i < RIG_SLABS; i++) {
		ck_assert_int_eq(slab(i), 0);
		told_of(SLAB_MAP, i);
	}
	fill_socket();
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < ARRAY_SIZE(wanted); i++)
			connection_slab_unmap(connection, RIG_SLAB_ARENA,
					      wanted[i] * RIG_SLAB_BYTES);
	ck_assert_uint_eq(connection->notices.owed_count, ARRAY_SIZE(wanted));
	/* It finds that out by itself; and no MAP may overtake. */
	ck_assert_int_eq(call(OP_SLAB_GONE, RIG_SLAB_ARENA, 5 * RIG_SLAB_BYTES), 0);
	ck_assert_int_eq(slab(9), -EAGAIN);
	drain_socket();
	rig_run(&rig); /* the socket says that it has room */
	told_of(SLAB_UNMAP, 0);
	told_of(SLAB_UNMAP, 63);
	told_of(SLAB_UNMAP, 64);
	told_of(SLAB_UNMAP, RIG_SLABS - 1);
	told_nothing();
	ck_assert_uint_eq(connection->notices.owed_count, 0);
	rig_run(&rig);
	ck_assert_int_eq(slab(9), 0);
	told_of(SLAB_MAP, 9);
	told_nothing();
	stop();
}
END_TEST

START_TEST(one_that_was_stopped_is_told_nothing_and_counts)
{
	start();
	ck_assert_int_eq(slab(0), 0);
	wire_close(&wire);
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].stopped);
	ck_assert(!fake_engine.holders[0].dead);
	connection_slab_unmap(connection, RIG_SLAB_ARENA, 0);
	connection_send_notices(connection);
	ck_assert_uint_eq(connection->notices.owed_count, 0);
	ck_assert_uint_eq(fake_engine.slabs_gone, 0); /* its end says that */
	stop();
}
END_TEST

START_TEST(deferred_releases_are_taken_in_with_the_uses)
{
	unsigned before;

	start();
	usleep(1100); /* logs are read once a millisecond */
	before = fake_engine.deferred;
	rig_run(&rig);
	ck_assert_uint_gt(fake_engine.deferred, before);
	stop();
}
END_TEST

/* The engine finds the broken rule, inside a call that must not be entered again. */
START_TEST(a_broken_rule_drops_the_client_in_the_next_turn)
{
	start();
	connection_break(connection, "a ring with more entries than it has");
	ck_assert(!fake_engine.holders[0].stopped);
	ck_assert(server_pending(rig.server, false));
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].stopped);
	ck_assert(!server_pending(rig.server, false));
	/* One that is stopped breaks nothing any more. */
	connection_break(connection, "again");
	ck_assert(!server_pending(rig.server, false));
	stop();
}
END_TEST

START_TEST(an_acquire_on_is_of_a_gpu)
{
	struct sq_entry e = { .opcode = OP_ACQUIRE_ON,
			      .index = 7,
			      .generation = 9,
			      .place = PROTOCOL_PLACE_HOST,
			      .access = ACCESS_READ,
			      .timeout_ns = -1 };
	struct cq_entry c;

	start();
	ck_assert_int_eq(rig_call(&rig, &wire, &e, &c), -EINVAL);
	ck_assert_uint_eq(fake_engine.calls, 0);
	e.place = 1;
	e.access = 0;
	ck_assert_int_eq(rig_call(&rig, &wire, &e, &c), -EINVAL);
	ck_assert_uint_eq(fake_engine.calls, 0);
	e.access = ACCESS_READ | ACCESS_WRITE;
	wire_submit(&wire, &e);
	rig_run(&rig);
	ck_assert_str_eq(fake_engine.last, "acquire_on");
	ck_assert_uint_eq(fake_engine.place, 1);
	ck_assert_uint_eq(fake_engine.count, 1);
	ck_assert_uint_eq(fake_engine.first.generation, 9);
	ck_assert_uint_eq(fake_engine.deadline_ns, ENGINE_NEVER);
	connection_complete(connection, 0, 0, fence_token(3, 4), 0, "");
	ck_assert(wire_poll(&wire, &c));
	ck_assert_uint_eq(fence_token_index(c.value), 3);
	stop();
}
END_TEST

UNIT_MAIN("daemon_slabs", a_slab_comes_with_its_descriptor_by_the_completion,
	  slabs_that_cannot_be_are_refused_before_the_engine_hears_of_them,
	  a_slab_without_memory_is_refused_and_nothing_is_sent,
	  a_full_socket_gives_the_slab_back_and_says_so, an_unmap_reaches_who_has_the_slab,
	  an_unmap_is_not_sent_again_before_it_is_answered,
	  what_a_full_socket_does_not_take_is_owed_and_comes_once,
	  one_that_was_stopped_is_told_nothing_and_counts,
	  deferred_releases_are_taken_in_with_the_uses,
	  a_broken_rule_drops_the_client_in_the_next_turn, an_acquire_on_is_of_a_gpu)

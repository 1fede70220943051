/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/unit/server_rig.h"

static struct rig rig;

/* ---- hello --------------------------------------------------------------------------------- */

static int hello_raw(const void *message, size_t bytes, struct wire *w)
{
	int rc;

	ck_assert_int_eq(wire_connect(rig.socket, w), 0);
	ck_assert_int_eq(send(w->fd, message, bytes, MSG_NOSIGNAL), (int)bytes);
	rig_run(&rig);
	rc = wire_receive(w);
	return rc;
}

START_TEST(a_hello_is_answered_with_all_segments)
{
	struct wire w;

	rig_start(&rig);
	rig_client(&rig, &w);
	ck_assert_uint_eq(w.reply.fds, HELLO_FDS + 1);
	ck_assert_uint_eq(w.reply.boot_id, rig.segments.boot_id);
	ck_assert_uint_eq(w.control->magic, PROTOCOL_MAGIC);
	ck_assert_uint_eq(w.control->pins.count, RIG_TENSORS);
	ck_assert_uint_eq(w.table->descriptors_count, RIG_TENSORS);
	ck_assert_str_eq(fake_engine.holders[0].name_space, "unit");
	/* The daemon counts pins where the client sets them. */
	atomic_store(wire_pin(&w, 77), PIN_ONE);
	ck_assert_uint_eq(atomic_load(&fake_engine.holders[0].pins[77]), PIN_ONE);
	wire_close(&w);
	rig_stop(&rig);
}
END_TEST

START_TEST(arenas_with_slabs_are_announced_without_a_descriptor)
{
	struct hello_arena *gpu, *dram;
	struct wire w;

	rig_start(&rig);
	rig_client(&rig, &w);
	ck_assert_uint_eq(w.reply.arenas, 2);
	ck_assert_uint_eq(w.fd_count, HELLO_FDS + 1);
	gpu = &w.reply.arena[0];
	dram = &w.reply.arena[1];
	ck_assert_uint_eq(gpu->slab_bytes, RIG_SLAB_BYTES);
	ck_assert_uint_eq(gpu->bytes, RIG_SLABS * RIG_SLAB_BYTES - RIG_SLAB_BYTES / 2);
	ck_assert_str_eq((const char *)gpu->uuid, "rig-gpu-uuid-15");
	ck_assert_uint_eq(gpu->zone_bytes, 0);
	ck_assert_uint_eq(dram->slab_bytes, 0);
	ck_assert_uint_eq(dram->zone_bytes, 65536);
	ck_assert_uint_eq(dram->uuid[0], 0);
	ck_assert_ptr_null(w.arena[0]);
	ck_assert_ptr_nonnull(w.arena[1]);
	wire_close(&w);
	rig_stop(&rig);
}
END_TEST

START_TEST(shared_segments_cannot_be_resized_and_tables_not_written)
{
	struct wire w;

	rig_start(&rig);
	rig_client(&rig, &w);
	for (unsigned i = 0; i < w.fd_count; i++) {
		if (i == 2 || i >= HELLO_FDS)
			continue; /* the doorbell is no memory, arenas are the tier's */
		ck_assert_int_eq(ftruncate(w.fds[i], 0), -1);
		ck_assert_int_eq(fcntl(w.fds[i], F_ADD_SEALS, F_SEAL_WRITE), -1);
	}
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, w.fds[1], 0), MAP_FAILED);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, w.fds[3], 0), MAP_FAILED);
	ck_assert_int_eq(mprotect((void *)w.table, 4096, PROT_READ | PROT_WRITE), -1);
	wire_close(&w);
	rig_stop(&rig);
}
END_TEST

START_TEST(wrong_hellos_are_refused_with_a_sentence)
{
	struct hello_request good, bad[6];
	const int want[] = { -EPROTO, -EPROTO, -EPROTO, -EINVAL, -EINVAL, -EINVAL };
	struct wire w;

	wire_hello_fill("unit", &good);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		bad[i] = good;
	bad[0].magic++;
	bad[1].major++;
	bad[2].features = 1;
	bad[3].name_space_bytes = 0;
	bad[4].name_space_bytes = UINT32_MAX;
	bad[5].name_space[1] = '\0';
	rig_start(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(hello_raw(&bad[i], sizeof(bad[i]), &w), want[i]);
		ck_assert_uint_gt(strlen(w.reply.text), 10);
		ck_assert_uint_eq(w.fd_count, 0);
		wire_close(&w);
	}
	ck_assert(!fake_engine.holders[0].used);
	rig_stop(&rig);
}
END_TEST

START_TEST(other_messages_and_a_second_hello_drop_the_client)
{
	struct hello_request hello;
	char big[8192] = { 0 };
	struct wire w;

	rig_start(&rig);
	ck_assert_int_eq(hello_raw("x", 1, &w), -ECONNRESET);
	wire_close(&w);
	ck_assert_int_eq(hello_raw(big, sizeof(big), &w), -ECONNRESET);
	wire_close(&w);
	rig_client(&rig, &w);
	wire_hello_fill("again", &hello);
	send(w.fd, &hello, sizeof(hello), 0);
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].stopped);
	wire_close(&w);
	rig_stop(&rig);
}
END_TEST

static void send_fds(int fd, const void *message, size_t bytes, int what, unsigned n)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(64 * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)message, bytes };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	for (unsigned i = 0; i < n; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &what, sizeof(int));
	ck_assert_int_eq(sendmsg(fd, &m, 0), (int)bytes);
}

static unsigned fds_open(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

START_TEST(a_client_that_sends_descriptors_is_dropped_and_they_are_closed)
{
	struct hello_request hello;
	unsigned before;
	struct wire w;

	rig_start(&rig);
	wire_hello_fill("unit", &hello);
	ck_assert_int_eq(wire_connect(rig.socket, &w), 0);
	before = fds_open();
	send_fds(w.fd, &hello, sizeof(hello), w.fd, 40);
	rig_run(&rig);
	ck_assert_int_eq(wire_receive(&w), -ECONNRESET);
	ck_assert_uint_eq(fds_open(), before);
	ck_assert(!fake_engine.holders[0].used);
	wire_close(&w);
	rig_stop(&rig);
}
END_TEST

/* ---- life and death ------------------------------------------------------------------------ */

START_TEST(a_hangup_stops_a_client_and_only_its_bye_or_end_kills_it)
{
	struct wire w;

	rig_start(&rig);
	rig_client(&rig, &w);
	wire_close(&w);
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].stopped);
	ck_assert(!fake_engine.holders[0].dead);
	rig_client(&rig, &w);
	wire_bye(&w);
	rig_run(&rig);
	ck_assert(fake_engine.holders[1].dead);
	rig_stop(&rig);
}
END_TEST

static void client_process(int ready)
{
	struct wire w;

	if (wire_connect(rig.socket, &w) == 0 && wire_hello(&w, "child") == 0 &&
	    write(ready, "x", 1) == 1)
		pause();
	_exit(1);
}

START_TEST(the_end_of_the_process_kills_a_client)
{
	char byte;
	int ready[2];
	pid_t pid;

	rig_start(&rig);
	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0)
		client_process(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].used);
	kill(pid, SIGSTOP);
	rig_run(&rig);
	ck_assert(!fake_engine.holders[0].stopped); /* a stopped process is alive */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rig_run(&rig);
	ck_assert(fake_engine.holders[0].dead);
	close(ready[0]);
	close(ready[1]);
	rig_stop(&rig);
}
END_TEST

START_TEST(a_dead_clients_table_stays_until_the_engine_lets_go)
{
	struct holder *h = &fake_engine.holders[0];
	struct wire w;

	rig_start(&rig);
	fake_engine.hold_gone = true;
	rig_client(&rig, &w);
	atomic_store(wire_pin(&w, 5), PIN_WRITTEN);
	wire_bye(&w);
	rig_run(&rig);
	ck_assert(h->dead);
	ck_assert_uint_eq(atomic_load(&h->pins[5]), PIN_WRITTEN);
	fake_engine_gone(h);
	rig_run(&rig);
	rig_stop(&rig);
}
END_TEST

START_TEST(uses_reach_the_engine_and_the_lost_are_counted)
{
	struct access_log *log;
	struct wire w;

	rig_start(&rig);
	rig_client(&rig, &w);
	log = wire_part(&w, w.control->logs.offset);
	atomic_store(&log->owner, 1);
	atomic_store(&log->entries[0], log_entry_make(11, 0xff, 1, 0));
	atomic_store(&log->entries[1],
		     log_entry_make(RIG_TENSORS, 0xff, 1, 1)); /* no such tensor */
	atomic_store(&log->entries[2],
		     log_entry_make(11, 0xff, 1, 2 + LOG_ENTRIES)); /* a lap late */
	atomic_store(&log->head, 3);
	ck_assert(server_pending(rig.server, true));
	usleep(1100); /* logs are read once a millisecond */
	rig_run(&rig);
	ck_assert_uint_eq(fake_engine.uses, 1);
	ck_assert_uint_eq(fake_engine.use_index, 11);
	ck_assert_uint_eq(atomic_load(&segments_stats(&rig.segments)->log_lost), 1);
	ck_assert(!server_pending(rig.server, true));
	wire_close(&w);
	rig_stop(&rig);
}
END_TEST

/* ---- the path ------------------------------------------------------------------------------ */

START_TEST(a_removed_socket_and_lock_are_made_anew)
{
	char lock[128];
	struct wire old, w;

	rig_start(&rig);
	snprintf(lock, sizeof(lock), "%s.lock", rig.socket);
	rig_client(&rig, &old);
	ck_assert_int_eq(unlink(rig.socket), 0);
	ck_assert_int_eq(unlink(lock), 0);
	rig_run(&rig);
	rig_client(&rig, &w);
	ck_assert_int_eq(access(lock, F_OK), 0);
	ck_assert(!fake_engine.holders[0].stopped);
	wire_close(&w);
	wire_close(&old);
	rig_stop(&rig);
}
END_TEST

START_TEST(a_path_that_somebody_else_took_is_left_alone)
{
	struct stat st;
	FILE *f;

	rig_start(&rig);
	ck_assert_int_eq(unlink(rig.socket), 0);
	f = fopen(rig.socket, "w");
	fclose(f);
	rig_run(&rig);
	ck_assert_int_eq(lstat(rig.socket, &st), 0);
	ck_assert(S_ISREG(st.st_mode));
	ck_assert(!rig.rendezvous.healthy);
	/* When it goes, the socket comes back. */
	unlink(rig.socket);
	rig_run(&rig);
	ck_assert_int_eq(lstat(rig.socket, &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
	rig_stop(&rig);
}
END_TEST

UNIT_MAIN("daemon_server", a_hello_is_answered_with_all_segments,
	  arenas_with_slabs_are_announced_without_a_descriptor,
	  shared_segments_cannot_be_resized_and_tables_not_written,
	  wrong_hellos_are_refused_with_a_sentence,
	  other_messages_and_a_second_hello_drop_the_client,
	  a_client_that_sends_descriptors_is_dropped_and_they_are_closed,
	  a_hangup_stops_a_client_and_only_its_bye_or_end_kills_it,
	  the_end_of_the_process_kills_a_client,
	  a_dead_clients_table_stays_until_the_engine_lets_go,
	  uses_reach_the_engine_and_the_lost_are_counted, a_removed_socket_and_lock_are_made_anew,
	  a_path_that_somebody_else_took_is_left_alone)

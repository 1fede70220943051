/* SPDX-License-Identifier: Apache-2.0
 *
 * One hostile program for each row of "Hostile clients" in docs/protocol.md: those that go for
 * shared memory and rings. The others are in check_hostile_life.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/system/hostile_rig.h"

static struct system *const s = &domain_system;
/* ---- rows: memory --------------------------------------------------------------------------- */

static void descriptor_send(int socket, int fd)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { "x", 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room,
			    .msg_controllen = sizeof(room) };

	CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	MUST(sendmsg(socket, &m, MSG_NOSIGNAL) == 1, "sendmsg: %m");
}

static void truncates(struct system *unused, void *arg)
{
	struct wire w;

	domain_become(RED);
	hostile_open(&w);
	for (unsigned i = 0; i < w.fd_count; i++)
		MUST(i == 2 || (ftruncate(w.fds[i], 0) < 0 && ftruncate(w.fds[i], GIB(1)) < 0),
		     "descriptor %u can be resized", i);
	/* A segment of its own, which it could cut later, is not taken from it. */
	descriptor_send(w.fd, memfd_create("own", 0));
	MUST(hostile_is_hung_up(&w), "who sends descriptors is served on");
	wire_close(&w);
}

START_TEST(segments_cannot_be_truncated)
{
	hostile_beside_a_neighbour(truncates, false);
}
END_TEST

static void punches(struct system *unused, void *arg)
{
	uint64_t end_ns = hostile_end_ns();
	struct wire_handle x;
	struct wire w;

	domain_become(RED);
	hostile_open(&w);
	while (clock_now_ns() < end_ns) {
		for (unsigned i = HELLO_FDS; i < w.fd_count; i++)
			MUST(fallocate(w.fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				       (off_t)MIB(4)) == 0,
			     "punch: %m");
		wire_create(&w, NULL, KIB(64), &x);
	}
	wire_close(&w);
}

START_TEST(holes_are_of_their_domain)
{
	hostile_beside_a_neighbour(punches, false);
}
END_TEST

static void writes_the_table(struct system *unused, void *arg)
{
	char path[64];
	struct wire w;
	int fd;

	domain_become(RED);
	hostile_open(&w);
	/* T and the stats page. */
	for (unsigned i = 1; i <= 3; i += 2) {
		MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, w.fds[i], 0) ==
			     MAP_FAILED,
		     "segment %u can be mapped for writing", i);
		MUST(pwrite(w.fds[i], "x", 1, 0) < 0, "segment %u can be written", i);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", w.fds[i]);
		fd = open(path, O_RDWR);
		MUST(fd < 0 || (mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
				pwrite(fd, "x", 1, 0) < 0),
		     "segment %u can be opened anew and written", i);
	}
	MUST(mprotect((void *)w.table, 4096, PROT_READ | PROT_WRITE) < 0,
	     "its map can be made writable");
	snprintf(path, sizeof(path), "/proc/%d/mem", s->pid);
	MUST(open(path, O_RDWR) < 0 && open(path, O_RDONLY) < 0, "the daemon's memory opens");
	snprintf(path, sizeof(path), "/proc/%d/fd/3", s->pid);
	MUST(open(path, O_RDWR) < 0, "the daemon's descriptors open");
	fd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	MUST(fd < 0 || syscall(SYS_pidfd_getfd, fd, 3, 0) < 0, "a descriptor was taken");
	MUST(hostile_is_served(&w), "it is not served any more");
	wire_close(&w);
}

START_TEST(tables_cannot_be_written)
{
	hostile_beside_a_neighbour(writes_the_table, false);
}
END_TEST

static void writes_over_its_domain(struct system *unused, void *arg)
{
	struct wire w;

	domain_become(RED);
	hostile_open(&w);
	for (;;)
		for (unsigned a = 0; a < w.reply.arenas; a++)
			if (w.arena[a])
				memset(w.arena[a], (int)hostile_any(), w.reply.arena[a].bytes);
}

START_TEST(tensors_of_ones_own_domain_are_all_that_can_be_overwritten)
{
	hostile_beside_a_neighbour(writes_over_its_domain, true);
}
END_TEST

/* Nobody of this domain ever wrote a byte, so all that is not zero is somebody else's. */
static void reads_everything(struct system *unused, void *arg)
{
	uint64_t end_ns = hostile_end_ns();
	struct wire w;

	domain_become(RED);
	hostile_open(&w);
	while (clock_now_ns() < end_ns)
		for (unsigned a = 0; a < w.reply.arenas; a++)
			MUST(!w.arena[a] || system_bytes_are(w.arena[a], 0, w.reply.arena[a].bytes),
			     "arena %u has bytes of others", a);
	wire_close(&w);
}

START_TEST(nothing_of_another_domain_can_be_read)
{
	hostile_beside_a_neighbour(reads_everything, false);
}
END_TEST

/* ---- rows: rings ---------------------------------------------------------------------------- */

/* Entries and payloads change all the time, also between a check and a use; until it is killed. */
static _Noreturn void scribble(struct wire *w)
{
	volatile uint32_t *entries = (void *)wire_part(w, w->sq.offset);
	volatile uint32_t *payload = (void *)wire_payload(w, 0);
	unsigned random = 7;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		unsigned i = (unsigned)rand_r(&random);

		entries[i % (SQ_ENTRIES * sizeof(struct sq_entry) / 4)] = (uint32_t)rand_r(&random);
		payload[i % 64] = (uint32_t)rand_r(&random);
	}
}

/* A process and no thread: to TSan two threads here are a race, which is what this is about. */
static void scribbles_for_a_while(struct wire *w)
{
	pid_t scribbler = fork();
	struct cq_entry c;

	MUST(scribbler >= 0, "fork: %m");
	if (scribbler == 0)
		scribble(w);
	for (unsigned i = 0; i < 2000; i++) {
		const struct sq_entry e = { .id = i % 200,
					    .opcode = i % 2 ? OP_CREATE : OP_ACQUIRE,
					    .place = PROTOCOL_PLACE_HOST,
					    .access = ACCESS_READ,
					    .payload_bytes = 64,
					    .count = 1 };

		wire_submit(w, &e);
		while (wire_poll(w, &c))
			;
	}
	kill(scribbler, SIGKILL);
	MUST(waitpid(scribbler, NULL, 0) == scribbler, "waitpid: %m");
}

static void changes_entries(struct system *unused, void *arg)
{
	hostile_by_processes(scribbles_for_a_while);
}

START_TEST(entries_that_change_after_the_check_are_not_looked_at_again)
{
	hostile_beside_a_neighbour(changes_entries, false);
}
END_TEST

static void goes_wild(struct wire *w)
{
	atomic_store(&w->control->cq_head, hostile_any());
	atomic_store(&w->control->sq_head, hostile_any());
	atomic_store(&w->control->cq_tail, hostile_any());
	/* Never a number of entries that the ring could have. */
	atomic_store(&w->control->sq_tail, SQ_ENTRIES + 1 + hostile_any() % (1u << 30));
	eventfd_write(w->fds[2], 1);
	MUST(hostile_is_hung_up(w), "it is served with a wild ring");
}

static void go_wild(struct system *unused, void *arg)
{
	hostile_by_processes(goes_wild);
}

START_TEST(wild_ring_indices_drop_their_owner)
{
	hostile_beside_a_neighbour(go_wild, false);
}
END_TEST

static void overflows(struct system *unused, void *arg)
{
	static const uint64_t edges[] = { 0,          1,          4096,       WINDOW_BYTES,
					  UINT32_MAX, 1ull << 47, UINT64_MAX, UINT64_MAX - 4095 };
	struct wire_handle x;
	struct wire w;

	domain_become(RED);
	hostile_open(&w);
	MUST(wire_create(&w, NULL, KIB(64), &x) == 0, "create");
	for (unsigned i = 0; i < 4096; i++) {
		const struct sq_entry e = { .id = i % 200,
					    .opcode = i & 1 ? OP_COPY_IN : OP_COPY_OUT,
					    .index = x.index,
					    .generation = x.generation,
					    .offset = edges[i / 2 % 8],
					    .bytes = edges[i / 16 % 8],
					    .window = i / 128 % 4 ? i / 128 % 32 : UINT32_MAX };
		bool fits = e.bytes <= KIB(64) && e.offset <= KIB(64) - e.bytes &&
			    e.window < WINDOW_SLOTS;
		struct cq_entry c;
		int rc = wire_call(&w, &e, &c);

		MUST(fits == (rc == 0), "copy of %llu at %llu by window %u: %d",
		     (unsigned long long)e.bytes, (unsigned long long)e.offset, e.window, rc);
	}
	wire_close(&w);
}

START_TEST(offsets_and_lengths_do_not_overflow)
{
	hostile_beside_a_neighbour(overflows, false);
}
END_TEST

static void storms_the_doorbell(struct system *unused, void *arg)
{
	struct wire w;

	domain_become(RED);
	hostile_open(&w);
	fcntl(w.fds[2], F_SETFL, O_NONBLOCK);
	for (;;)
		eventfd_write(w.fds[2], hostile_any() % 3 ? 1 : UINT64_MAX - 1);
}

START_TEST(a_storm_of_doorbells_starves_nobody)
{
	hostile_beside_a_neighbour(storms_the_doorbell, true);
}
END_TEST

UNIT_MAIN("hostile_domain", segments_cannot_be_truncated, holes_are_of_their_domain,
	  tables_cannot_be_written, tensors_of_ones_own_domain_are_all_that_can_be_overwritten,
	  nothing_of_another_domain_can_be_read,
	  entries_that_change_after_the_check_are_not_looked_at_again,
	  wild_ring_indices_drop_their_owner, offsets_and_lengths_do_not_overflow,
	  a_storm_of_doorbells_starves_nobody)

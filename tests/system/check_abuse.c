/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that break every rule that they can reach, beside clients that keep them: the daemon goes
 * on and the bytes of the others stay whole. (Inside one domain a client can write what it has
 * mapped; here it harms only what is its own.)
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/system/oracle.h"
#include "tests/system/system.h"
#include "tests/system/wire.h"

#define SMALL                                     \
	"tensors: 4Ki\n"                          \
	"linger: 100ms\n"                         \
	"tiers:\n"                                \
	"  hbm: {backend: memory, size: 2MiB}\n"  \
	"  dram: {size: 8MiB, huge_pages: off}\n" \
	"  nvme: {paths: [{path: @NVME@, size: 48MiB}], block: 64KiB}\n"

static struct system tierd_system;
static struct system *const s = &tierd_system;
static struct tierd *td;

static unsigned run_seconds(void)
{
	return getenv("TIERD_TEST_LONG") ? 60 : 4;
}

/* An honest load for as long as `hostile` runs in a loop beside it. */
static void beside_honest_clients(void (*hostile)(struct system *, void *))
{
	const struct oracle_params params = { .host_max = MIB(1),
					      .gpu_max = MIB(1),
					      .batch_max = KIB(600) };
	struct oracle *o = oracle_open(&params, MIB(32));
	pid_t pid;

	system_start(s, SMALL);
	ck_assert_int_eq(tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &td), 0);
	for (unsigned i = 0; i < 24; i++)
		oracle_add(o, td, i % 3 == 0 ? KIB(800) : i % 3 == 1 ? 65537 : 4096);
	pid = system_child(hostile, s, NULL);
	oracle_run(s, o, 2, run_seconds());
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	oracle_check_all(s, o);
	/* It was noticed, or the run showed nothing. */
	ck_assert(system_log_has(s, "dropped"));
	tierd_close(td);
	oracle_close(o);
	system_stop(s);
}

static unsigned seed = 12345;

static uint32_t any(void)
{
	return (uint32_t)rand_r(&seed) << 16 ^ (uint32_t)rand_r(&seed);
}

/* Numbers that a check may get wrong, and any. */
static uint64_t nasty(void)
{
	const uint64_t edges[] = { 0,
				   1,
				   7,
				   PAYLOAD_BYTES - 8,
				   PAYLOAD_BYTES,
				   PAYLOAD_SLOTS * PAYLOAD_BYTES - 8,
				   PAYLOAD_SLOTS * PAYLOAD_BYTES,
				   WINDOW_BYTES,
				   WINDOW_BYTES + 1,
				   UINT32_MAX,
				   UINT32_MAX - 7,
				   1ull << 47,
				   UINT64_MAX,
				   UINT64_MAX - WINDOW_BYTES };

	return any() % 3 ? edges[any() % ARRAY_SIZE(edges)] : any() % 512;
}

static void nasty_entry(struct sq_entry *ret)
{
	*ret = (struct sq_entry){ .id = any() % 64 ? any() % SQ_ENTRIES : (uint32_t)nasty(),
				  .opcode = (uint16_t)(any() % 18),
				  .place = (uint8_t)(any() % 2 ? PROTOCOL_PLACE_HOST : any()),
				  .access = (uint8_t)(any() % 8),
				  .index = any() % 64,
				  .generation = any() % 8,
				  .timeout_ns = (int64_t)(any() % 2 ? any() % 1000000 : nasty()),
				  .payload = (uint32_t)nasty(),
				  .payload_bytes = (uint32_t)nasty(),
				  .offset = nasty(),
				  .bytes = nasty(),
				  .count = (uint32_t)nasty(),
				  .window = any() % 16 };
	/* What it must not do here: destroy or overwrite tensors of others by guessing. */
	if (ret->opcode == OP_DESTROY || ret->opcode == OP_COPY_IN)
		ret->generation = 0;
	if (ret->opcode == OP_DESTROY)
		ret->payload_bytes = 0;
}

/* Garbage into everything of its segment but the pin table, which is allowed to keep others
 * waiting. */
static void scribble(const struct wire *w, uint64_t end)
{
	char *base = (char *)w->control;

	for (unsigned i = 0; i < 64; i++) {
		uint64_t at = any() % 4 ? any() % 1024 : any() % end;
		uint32_t value = any();

		memcpy(base + ALIGN_DOWN(at, 4), &value, sizeof(value));
	}
}

static void scribbler(struct system *unused, void *arg)
{
	struct wire w;

	for (;;) {
		uint64_t pins;

		if (wire_open(s->socket, "hostile", &w) < 0)
			continue;
		pins = w.pins.offset;
		for (unsigned i = 0; i < 200; i++) {
			scribble(&w, pins);
			eventfd_write(w.fds[2], 1);
		}
		wire_bye(&w);
	}
}

START_TEST(garbage_in_a_control_segment_harms_its_owner_alone)
{
	beside_honest_clients(scribbler);
}
END_TEST

static void entry_forger(struct system *unused, void *arg)
{
	struct sq_entry e;
	struct cq_entry c;
	struct wire w;

	for (;;) {
		if (wire_open(s->socket, "hostile", &w) < 0)
			continue;
		/* Batches, so that many are outstanding at once; it goes on until it is dropped. */
		for (unsigned i = 0; i < 500; i++) {
			for (unsigned k = 0; k < 16; k++) {
				nasty_entry(&e);
				wire_submit(&w, &e);
			}
			while (wire_poll(&w, &c))
				;
		}
		if (any() % 2)
			wire_bye(&w);
		else
			wire_close(&w);
	}
}

START_TEST(forged_ring_entries_harm_their_sender_alone)
{
	beside_honest_clients(entry_forger);
}
END_TEST

/* Of arenas behind one descriptor; a GPU's slabs have no holes. */
static void punch(const struct wire *w)
{
	unsigned fd = HELLO_FDS;

	for (unsigned a = 0; a < w->reply.arenas; a++)
		if (w->reply.arena[a].slab_bytes == 0)
			ck_assert_int_eq(fallocate(w->fds[fd++],
						   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
						   (off_t)w->reply.arena[a].bytes),
					 0);
}

/* A client can punch holes into arenas that it has mapped: bytes of its domain go, the daemon
 * stays. */
START_TEST(holes_in_the_arenas_lose_bytes_and_not_the_daemon)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { KIB(700) } };
	tierd_tensor tensors[16];
	struct tierd_view v;
	struct wire w;

	system_start(s, SMALL);
	ck_assert_int_eq(wire_open(s->socket, "hostile", &w), 0);
	ck_assert_int_eq(tierd_open(s->socket, "honest", 0, &td), 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(tensors); i++) {
			ck_assert_int_eq(tierd_create(td, &spec, 1, &tensors[i]), 0);
			ck_assert_int_eq(tierd_acquire(td, tensors[i], i % 2 ? 0 : TIERD_HOST,
						       TIERD_WRITE, -1, &v),
					 0);
			bytes_fill(v.data, (int)i, v.bytes);
			tierd_release(td, &v);
			/* While write-backs of the ones before are on their way. */
			if (round < 2)
				punch(&w);
		}
		for (unsigned i = 0; i < ARRAY_SIZE(tensors); i++) {
			ck_assert_int_eq(
				tierd_acquire(td, tensors[i], TIERD_HOST, TIERD_READ, -1, &v), 0);
			/* In the last round nobody punches: what is written stays. */
			ck_assert(round < 2 || system_bytes_are(v.data, (unsigned char)i, v.bytes));
			tierd_release(td, &v);
		}
		ck_assert_int_eq(tierd_destroy(td, tensors, ARRAY_SIZE(tensors)), 0);
	}
	wire_close(&w);
	tierd_close(td);
	system_stop(s);
}
END_TEST

/* ---- writes without a pin ---- */

static _Atomic bool writing_on;

static uint64_t moved_down(void)
{
	struct tierd_stats stats;

	ck_assert_int_eq(tierd_stats(td, &stats), 0);
	return stats.moved_bytes[TIERD_DRAM][TIERD_NVME];
}

/* As one that goes on writing after its release. Whatever stands there then is its own. */
static void *writes_on(void *arg)
{
	const struct tierd_view *v = arg;

	for (unsigned n = 0; atomic_load(&writing_on); n++)
		bytes_fill(v->data, (int)n, v->bytes);
	return NULL;
}

/* What comes up where somebody writes does not have the checksum that it went down with. */
static unsigned may_be_damage(int rc)
{
	bool said = rc == -EIO && strstr(tierd_error(td), "EBADMSG") != NULL;

	ck_assert_msg(rc == 0 || said, "%d: %s", rc, tierd_error(td));
	return rc < 0;
}

/* What goes down has the checksum of what went down, whoever writes meanwhile. What comes up to
 * where the writer writes on is said to be damaged, and is whole as soon as it does not. */
START_TEST(what_is_written_without_a_pin_is_damage_while_it_lasts)
{
	struct tierd_spec spec = { .ndim = 1, .shape = { KIB(700) } };
	tierd_tensor h[16];
	struct tierd_view v, kept;
	pthread_t thread;
	unsigned n, damaged = 0;

#ifdef __SANITIZE_THREAD__
	return; /* it is a race, on purpose */
#endif
	system_start(s, SMALL);
	ck_assert_int_eq(tierd_open(s->socket, "job", 0, &td), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++)
		ck_assert_int_eq(tierd_create(td, &spec, 1, &h[i]), 0);
	ck_assert_int_eq(tierd_acquire(td, h[0], TIERD_HOST, TIERD_WRITE, -1, &v), 0);
	kept = v; /* a release zeroes its view */
	tierd_release(td, &v);
	atomic_store(&writing_on, true);
	ck_assert_int_eq(pthread_create(&thread, NULL, writes_on, &kept), 0);
	for (n = 0; n < 20 * ARRAY_SIZE(h); n++) {
		struct tierd_view w;
		unsigned i = n % ARRAY_SIZE(h);
		int rc = tierd_acquire(td, h[i], TIERD_HOST, TIERD_READ | TIERD_WRITE, -1, &w);

		damaged += may_be_damage(rc);
		if (rc < 0)
			continue;
		memset(w.data, (int)n, w.bytes);
		tierd_release(td, &w);
		if (n % 5 == 0)
			damaged += may_be_damage(tierd_flush(td, &h[i], 1));
	}
	atomic_store(&writing_on, false);
	pthread_join(thread, NULL);
	printf("%u of %u uses met bytes that were written meanwhile\n", damaged, n);
	ck_assert_uint_gt(moved_down(), MIB(16));
	for (unsigned i = 0; i < ARRAY_SIZE(h); i++) {
		ck_assert_msg(tierd_acquire(td, h[i], TIERD_HOST, TIERD_READ, -1, &v) == 0, "%s",
			      tierd_error(td));
		tierd_release(td, &v);
	}
	tierd_close(td);
	system_stop(s);
}
END_TEST

UNIT_MAIN("abuse", garbage_in_a_control_segment_harms_its_owner_alone,
	  forged_ring_entries_harm_their_sender_alone,
	  holes_in_the_arenas_lose_bytes_and_not_the_daemon,
	  what_is_written_without_a_pin_is_damage_while_it_lasts)

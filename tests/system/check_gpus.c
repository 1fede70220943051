/* SPDX-License-Identifier: Apache-2.0
 *
 * Several GPUs, played by host memory: every tensor on the one that was asked for, and bytes that
 * go from one to another.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "tests/system/client_rig.h"
#include "tests/system/oracle.h"
#include "tests/system/wire.h"

#define GPUS 3
#define CONFIG                                               \
	"tensors: 4Ki\n"                                     \
	"tiers:\n"                                           \
	"  hbm: {backend: memory, size: 4MiB, devices: 3}\n" \
	"  dram: {size: 32MiB}\n"

static struct wire w;

static void begin(const char *config)
{
	system_start(s, config);
	connect_as(ORACLE_NAME_SPACE);
}

/* Where tierd says that it stands, looked at from another process's mapping of that arena. */
static const unsigned char *stands_on(tierd_tensor h, unsigned place)
{
	const struct descriptor *d = wire_descriptor(&w, h.index);
	uint64_t word0 = atomic_load(&d->word0), word1 = atomic_load(&d->word1);

	ck_assert_uint_eq(word0_state(word0), STATE_RESIDENT);
	ck_assert_uint_eq(word0_place(word0), place);
	ck_assert_uint_eq(w.reply.arena[place].place, place);
	ck_assert_uint_eq(w.reply.arena[place].arena, word1_arena(word1));
	return (const unsigned char *)w.arena[place] + word1_offset(word1);
}

START_TEST(tensors_stand_on_the_gpu_that_was_asked_for)
{
	tierd_tensor h[GPUS];

	begin(CONFIG);
	ck_assert_int_eq(wire_open(s->socket, "watcher", &w), 0);
	ck_assert_uint_eq(w.reply.arenas, GPUS + 1);
	ck_assert_uint_eq(w.reply.arena[GPUS].place, PROTOCOL_PLACE_HOST);
	for (int i = 0; i < GPUS; i++) {
		h[i] = make(MIB(1) + (unsigned)i);
		fill(h[i], i, 0x10 + i);
	}
	for (unsigned i = 0; i < GPUS; i++)
		ck_assert(system_bytes_are(stands_on(h[i], i), (unsigned char)(0x10 + i),
					   MIB(1) + i));
	wire_bye(&w);
	end();
}
END_TEST

START_TEST(there_are_no_more_places_than_gpus)
{
	struct tierd_view v;
	tierd_tensor h;

	begin(CONFIG);
	h = make(4096);
	ck_assert_int_eq(tierd_acquire(t, h, GPUS, TIERD_READ, WAIT, &v), -ENODEV);
	ck_assert_int_eq(tierd_acquire(t, h, 254, TIERD_READ, WAIT, &v), -ENODEV);
	ck_assert_int_eq(tierd_prefetch(t, &h, 1, GPUS), -ENODEV);
	v = hold(h, GPUS - 1, TIERD_READ);
	tierd_release(t, &v);
	end();
}
END_TEST

/* What one has no room for never lands on another. */
START_TEST(a_full_gpu_is_full_though_others_are_empty)
{
	tierd_tensor a, b;
	struct tierd_view held, v;

	begin(CONFIG);
	ck_assert_int_eq(wire_open(s->socket, "watcher", &w), 0);
	a = make(MIB(3));
	b = make(MIB(3));
	held = hold(a, 1, TIERD_WRITE);
	memset(held.data, 1, held.bytes);
	/* All of it is this client's own, so to wait would be for ever. */
	ck_assert_int_eq(tierd_acquire(t, b, 1, TIERD_READ, WAIT, &v), -EDEADLK);
	fill(b, 2, 2);
	ck_assert(system_bytes_are(stands_on(a, 1), 1, MIB(3)));
	ck_assert(system_bytes_are(stands_on(b, 2), 2, MIB(3)));
	tierd_release(t, &held);
	/* Room is made on that one by moving its tensor down, not aside. */
	v = hold(b, 1, TIERD_READ);
	ck_assert(system_bytes_are(v.data, 2, v.bytes));
	ck_assert_ptr_nonnull(stands_on(b, 1));
	tierd_release(t, &v);
	v = hold(a, 0, TIERD_READ);
	ck_assert(system_bytes_are(v.data, 1, v.bytes));
	tierd_release(t, &v);
	wire_bye(&w);
	end();
}
END_TEST

START_TEST(bytes_go_from_each_gpu_to_each_other)
{
	const uint64_t sizes[] = { 1, 4096, MIB(1) + 1, MIB(3) };
	struct tierd_stats stats;

	begin(CONFIG);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		tierd_tensor h = make(sizes[i]);

		for (int k = 0; k < GPUS * GPUS; k++) {
			int from = k / GPUS, to = k % GPUS;
			struct tierd_view v;

			fill(h, from, k + 1);
			v = hold(h, to, TIERD_READ);
			ck_assert(system_bytes_are(v.data, (unsigned char)(k + 1), v.bytes));
			tierd_release(t, &v);
		}
		ck_assert_int_eq(tierd_destroy(t, &h, 1), 0);
	}
	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_HBM][TIERD_HBM], MIB(3) * (GPUS - 1));
	end();
}
END_TEST

static int check_config(void)
{
	const char *tierd = getenv("TIERD_BIN") ? getenv("TIERD_BIN") : TIERD_PATH;
	char command[512];
	int status;

	snprintf(command, sizeof(command), "%s --config %s --check-config >>%s 2>&1", tierd,
		 s->config, s->log);
	status = system(command);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Whatever this machine and this build have: the driver's name is one that nobody has. */
START_TEST(a_gpu_without_its_driver_is_refused_with_what_was_looked_for)
{
	setenv("TIERD_LIBCUDA", "/nowhere/libcuda.so.1", 1);
	system_prepare(s, "tiers:\n"
			  "  hbm: {backend: cuda, size: 128MiB}\n"
			  "  dram: {size: 64MiB}\n");
	if (check_config() == 0) {
		/* Looking at the file needs no GPU; starting does, and may work another time. */
		ck_assert_int_eq(system_run_again(s), 1);
		ck_assert(system_log_has(s, "/nowhere/libcuda.so.1"));
		ck_assert(!system_log_has(s, "dram: ")); /* no memory was taken */
	} else {
		ck_assert_int_eq(check_config(), 78);
		ck_assert_int_eq(system_run_again(s), 78);
		ck_assert(system_log_has(s, "cuda is not in this build: "));
	}
	system_stop(s);
}
END_TEST

/* A signal that a thread of a tier took would not end the daemon in order. */
static void threads_block_signals(void)
{
	const uint64_t want = 1ull << (SIGTERM - 1) | 1ull << (SIGINT - 1) | 1ull << (SIGHUP - 1);
	char path[64], line[128];
	unsigned threads = 0;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", s->pid);
	folder = opendir(path);
	ck_assert_ptr_nonnull(folder);
	while ((entry = readdir(folder)) != NULL) {
		unsigned long long blocked = 0;
		FILE *f;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", s->pid, entry->d_name);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
				break;
		if (f)
			fclose(f);
		ck_assert_msg((blocked & want) == want, "thread %s: %llx", entry->d_name, blocked);
		threads++;
	}
	closedir(folder);
	ck_assert_uint_ge(threads, GPUS + 2); /* their lanes, dram's and the control thread */
}

START_TEST(no_thread_but_by_the_loop_takes_a_signal)
{
	begin(CONFIG);
	threads_block_signals();
	end();
}
END_TEST

START_TEST(dram_comes_slab_by_slab_and_its_zone_is_whole_slabs)
{
	const struct hello_arena *dram;

	begin("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: memory, size: 4MiB, devices: 2}\n"
	      "  dram: {size: 80MiB, slab: 8MiB, zone: 3MiB}\n");
	ck_assert_int_eq(wire_open(s->socket, "watcher", &w), 0);
	dram = &w.reply.arena[2];
	ck_assert_uint_eq(dram->place, PROTOCOL_PLACE_HOST);
	ck_assert_uint_eq(dram->bytes, MIB(70)); /* beside staging */
	ck_assert_uint_eq(dram->zone_bytes, MIB(8));
	ck_assert_uint_eq(w.reply.arena[0].zone_bytes, 0);
	ck_assert(system_log_waits(s, "dram: 0.07 of 0.07 GiB ready", 20000));
	ck_assert_uint_eq(atomic_load(&w.stats->device[2].backed_bytes), MIB(70));
	wire_bye(&w);
	end();
	/* Where slabs leave nothing, rounded up. */
	system_prepare(s, "tiers: {dram: {size: 12MiB, slab: 8MiB, zone: 9MiB}}\n");
	ck_assert_int_eq(system_run_again(s), 78);
	ck_assert(system_log_has(s, "tiers.dram.zone: 9437184 bytes in slabs of 8388608 bytes"));
	system_stop(s);
}
END_TEST

/* Memory that is behind one descriptor has no slabs, whatever is asked. */
START_TEST(slabs_that_cannot_be_are_refused)
{
	const uint64_t offsets[] = { 0, 1, MIB(2), MIB(4), 1ull << 48, UINT64_MAX };
	const uint32_t arenas[] = { 0, GPUS - 1, GPUS, GPUS + 1, 16, 255, UINT16_MAX, UINT32_MAX };
	const uint16_t opcodes[] = { OP_SLAB, OP_SLAB_GONE, OP_SLAB_KEPT };
	struct cq_entry c;

	begin(CONFIG);
	ck_assert_int_eq(wire_open(s->socket, "hostile", &w), 0);
	for (unsigned k = 0; k < ARRAY_SIZE(opcodes); k++)
		for (unsigned i = 0; i < ARRAY_SIZE(arenas) * ARRAY_SIZE(offsets); i++) {
			struct sq_entry e = { .opcode = opcodes[k],
					      .index = arenas[i / ARRAY_SIZE(offsets)],
					      .offset = offsets[i % ARRAY_SIZE(offsets)] };

			ck_assert_int_eq(wire_call(&w, &e, &c), -EINVAL);
			ck_assert_ptr_nonnull(strstr(wire_text(&w, 0), "no slab begins"));
		}
	wire_bye(&w);
	end();
}
END_TEST

static void hung_up(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char byte;

	ck_assert_int_eq(poll(&p, 1, 20000), 1);
	ck_assert_int_le((int)recv(fd, &byte, 1, MSG_DONTWAIT), 0);
}

/* Rings of deferred releases are as those of requests: a wild one drops its client and nobody else.
 */
START_TEST(a_wild_ring_of_releases_drops_the_client)
{
	const uint32_t tails[] = { DEFERRED_ENTRIES + 1, 1u << 31, UINT32_MAX };
	tierd_tensor h;

	begin(CONFIG);
	h = make(MIB(1));
	for (unsigned i = 0; i < ARRAY_SIZE(tails); i++) {
		struct sq_entry e = { .opcode = OP_STEP };
		struct deferred_ring *ring;

		ck_assert_int_eq(wire_open(s->socket, "hostile", &w), 0);
		ring = wire_part(&w, w.control->deferred.offset + i * DEFERRED_STRIDE);
		atomic_store(&ring->tail, tails[i]);
		wire_submit(&w, &e);
		hung_up(w.fd);
		wire_close(&w);
		fill(h, (int)i % GPUS, (int)i);
	}
	ck_assert(system_log_has(s, "more entries than room"));
	end();
}
END_TEST

START_TEST(an_acquire_on_of_what_is_no_gpu_is_refused)
{
	const uint8_t places[] = { GPUS, 17, 254, PROTOCOL_PLACE_HOST };
	struct wire_handle h;
	struct cq_entry c;

	begin(CONFIG);
	ck_assert_int_eq(wire_open(s->socket, "hostile", &w), 0);
	ck_assert_int_eq(wire_create(&w, "x", 4096, &h), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
		struct sq_entry e = { .opcode = OP_ACQUIRE_ON,
				      .place = places[i],
				      .access = ACCESS_READ,
				      .index = h.index,
				      .generation = h.generation,
				      .timeout_ns = -1 };

		ck_assert_int_eq(wire_call(&w, &e, &c),
				 places[i] == PROTOCOL_PLACE_HOST ? -EINVAL : -ENODEV);
		e.place = 1;
		ck_assert_int_eq(wire_call(&w, &e, &c), 0);
		ck_assert_uint_lt(fence_token_index(c.value), FENCES);
	}
	wire_bye(&w);
	end();
}
END_TEST

static void crowd(const char *config, bool no_nvme)
{
	const uint64_t sizes[] = { 1, 511, 4095, 4097, 65537, KIB(300), KIB(700), MIB(1) + 1 };
	const struct oracle_params params = { .host_max = MIB(2),
					      .gpu_max = MIB(1) + KIB(512),
					      .gpus = GPUS,
					      .batch_max = MIB(1),
					      .no_nvme = no_nvme };
	struct oracle *o = oracle_open(&params, MIB(64));
	struct tierd_stats stats;

	begin(config);
	for (unsigned i = 0; i < 24; i++)
		oracle_add(o, t, sizes[i % ARRAY_SIZE(sizes)]);
	oracle_run(s, o, 4, getenv("TIERD_TEST_LONG") ? 60 : 4);
	oracle_check_all(s, o);
	ck_assert_int_eq(tierd_stats(t, &stats), 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_HBM][TIERD_HBM], 0);
	ck_assert_uint_gt(stats.moved_bytes[TIERD_HBM][TIERD_DRAM], 0);
	end();
	oracle_close(o);
}

START_TEST(bytes_stay_whole_among_gpus_without_nvme)
{
	crowd("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: memory, size: 2MiB, devices: 3}\n"
	      "  dram: {size: 32MiB}\n",
	      true);
}
END_TEST

START_TEST(bytes_stay_whole_among_gpus_above_nvme)
{
	crowd("tensors: 4Ki\n"
	      "tiers:\n"
	      "  hbm: {backend: memory, size: 2MiB, devices: 3}\n"
	      "  dram: {size: 6MiB}\n"
	      "  nvme: {paths: [{path: @NVME@, size: 64MiB}], block: 64KiB}\n",
	      false);
}
END_TEST

UNIT_MAIN("gpus", a_gpu_without_its_driver_is_refused_with_what_was_looked_for,
	  no_thread_but_by_the_loop_takes_a_signal,
	  dram_comes_slab_by_slab_and_its_zone_is_whole_slabs, slabs_that_cannot_be_are_refused,
	  a_wild_ring_of_releases_drops_the_client, an_acquire_on_of_what_is_no_gpu_is_refused,
	  tensors_stand_on_the_gpu_that_was_asked_for, there_are_no_more_places_than_gpus,
	  a_full_gpu_is_full_though_others_are_empty, bytes_go_from_each_gpu_to_each_other,
	  bytes_stay_whole_among_gpus_without_nvme, bytes_stay_whole_among_gpus_above_nvme)

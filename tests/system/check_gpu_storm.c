/* SPDX-License-Identifier: Apache-2.0
 *
 * Several processes with streams against one tierd whose GPU is too small for them: tensors of
 * their own and tensors that they share are written and checked by kernels, by the CPU and by
 * copies, hinted, destroyed and made anew, while slabs come and go.
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <errno.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/system/gpu_client.h"
#include "tests/system/system.h"

#define SHARED   6u
#define OWN      14u
#define BATCH    3u
#define CHILD_MS 240000

struct tensor {
	tierd_tensor h;
	uint64_t bytes, flags, seed;
	int stream;   /* that used it last and may be at it still; -1: none */
	bool checked; /* by that stream */
};

struct shared {
	pthread_mutex_t lock; /* of the rest, and of the tensor's bytes */
	struct tensor tensor;
};

struct storm {
	struct shared shared[SHARED];
	uint64_t largest, copy_largest;
	unsigned gpus;
	unsigned seconds;
	bool no_nvme;
	_Atomic uint64_t operations;
};

struct worker {
	struct gpu_client c;
	struct storm *storm;
	struct tensor own[OWN];
	CUevent event;
	CUdeviceptr scratch;
	uint64_t versions;
	unsigned number;
};

static struct system tierd_system;
static struct system *const s = &tierd_system;

/* ---- in a client's process ---- */

static uint64_t new_seed(struct worker *w)
{
	return (uint64_t)w->number << 48 | ++w->versions;
}

static uint64_t random_bytes(struct worker *w, uint64_t largest)
{
	static const uint64_t odd[] = { 1, 511, 4095, 4096, 4097, 65536 + 8 };
	uint64_t below = gpu_client_random(&w->c, 4);

	if (below == 0)
		return odd[gpu_client_random(&w->c, ARRAY_SIZE(odd))];
	return 1 + gpu_client_random(&w->c, below == 1 ? largest / 32 : largest);
}

static void make(struct worker *w, struct tensor *x)
{
	struct tierd_spec spec = { .ndim = 1 };

	x->flags =
		gpu_client_random(&w->c, 4) == 0 && w->storm->copy_largest ? TIERD_DEVICE_COPY : 0;
	x->bytes = random_bytes(w, x->flags ? w->storm->copy_largest : w->storm->largest);
	x->seed = 0;
	x->stream = -1;
	x->checked = false;
	spec.shape[0] = x->bytes;
	spec.flags = x->flags;
	gpu_client_must(&w->c, tierd_create(w->c.t, &spec, 1, &x->h), "create");
}

/* A stream that uses a tensor after another one waits for that. */
static CUstream stream_for(struct worker *w, struct tensor *x)
{
	int i = (int)gpu_client_random(&w->c, GPU_CLIENT_STREAMS);

	if (x->stream >= 0 && x->stream != i) {
		gpu_client_cu(w->c.cuda->event_record(w->event, w->c.stream[x->stream]), "record");
		gpu_client_cu(w->c.cuda->stream_wait_event(w->c.stream[i], w->event, 0), "wait");
	}
	x->stream = i;
	return w->c.stream[i];
}

/* The CPU comes after the streams. */
static void synchronize(struct worker *w, struct tensor *x)
{
	if (x->stream >= 0)
		gpu_client_cu(w->c.cuda->stream_synchronize(w->c.stream[x->stream]), "synchronize");
	x->stream = -1;
}

static void on_stream(struct worker *w, struct tensor *x, int place)
{
	bool write = gpu_client_random(&w->c, 2), discard = write && gpu_client_random(&w->c, 2);
	CUstream stream = stream_for(w, x);
	struct tierd_view v;

	gpu_client_must(
		&w->c,
		tierd_acquire_on(w->c.t, &x->h, 1, place,
				 (discard ? TIERD_DISCARD : TIERD_READ) | (write ? TIERD_WRITE : 0),
				 stream, &v),
		"acquire_on");
	x->checked = !discard;
	if (!discard)
		gpu_client_check(&w->c, v.data, v.bytes, x->seed, stream);
	if (write) {
		x->seed = new_seed(w);
		gpu_client_write(&w->c, v.data, v.bytes, x->seed, stream);
	}
	gpu_client_must(&w->c, tierd_release_on(w->c.t, &v, 1, stream), "release_on");
}

static void on_cpu(struct worker *w, struct tensor *x, int place)
{
	bool write = gpu_client_random(&w->c, 2), discard = write && gpu_client_random(&w->c, 2);
	struct tierd_view v;

	if (place == TIERD_HOST ? gpu_client_random(&w->c, 2) : true)
		synchronize(w, x); /* else the pins of the streams are waited for */
	gpu_client_must(
		&w->c,
		tierd_acquire(w->c.t, x->h, place,
			      (discard ? TIERD_DISCARD : TIERD_READ) | (write ? TIERD_WRITE : 0),
			      GPU_CLIENT_WAIT_NS, &v),
		"acquire");
	/* A hit at the host beside work of a stream on its host replica (read_into). */
	synchronize(w, x);
	if (!discard && !gpu_client_check_cpu(v.data, v.bytes, 0, x->seed))
		gpu_client_died("tensor %u: other bytes at place %d", x->h.index, place);
	if (write) {
		x->seed = new_seed(w);
		gpu_client_write_cpu(v.data, v.bytes, x->seed);
	}
	tierd_release(w->c.t, &v);
}

static void by_copy(struct worker *w, struct tensor *x)
{
	uint64_t offset = gpu_client_random(&w->c, x->bytes) & ~(uint64_t)7;
	uint64_t bytes = 1 + gpu_client_random(&w->c, MIN(x->bytes - offset, MIB(3)));
	char *to = malloc(bytes);

	synchronize(w, x);
	gpu_client_must(&w->c, tierd_copy_out(w->c.t, x->h, offset, to, bytes), "copy_out");
	if (!gpu_client_check_cpu(to, bytes, offset, x->seed))
		gpu_client_died("tensor %u: other bytes by copy_out", x->h.index);
	gpu_client_must(&w->c, tierd_copy_in(w->c.t, x->h, offset, to, bytes), "copy_in");
	free(to);
}

static void with_framework(struct worker *w, struct tensor *x)
{
	CUstream stream;

	if (!x->flags) {
		by_copy(w, x);
		return;
	}
	stream = stream_for(w, x);
	if (gpu_client_random(&w->c, 2)) {
		x->seed = new_seed(w);
		gpu_client_write(&w->c, (void *)(uintptr_t)w->scratch, x->bytes, x->seed, stream);
		gpu_client_must(
			&w->c,
			tierd_write_from(w->c.t, x->h, (void *)(uintptr_t)w->scratch, stream),
			"write_from");
	} else {
		gpu_client_must(
			&w->c, tierd_read_into(w->c.t, x->h, (void *)(uintptr_t)w->scratch, stream),
			"read_into");
		gpu_client_check(&w->c, (void *)(uintptr_t)w->scratch, x->bytes, x->seed, stream);
	}
	/* One scratch for all streams. */
	synchronize(w, x);
}

static void batch(struct worker *w, int place)
{
	struct tensor *x[BATCH];
	tierd_tensor h[BATCH];
	struct tierd_view v[BATCH];
	uint64_t bytes = 0;
	CUstream stream = NULL;
	unsigned first = (unsigned)gpu_client_random(&w->c, OWN);

	for (unsigned i = 0; i < BATCH; i++) {
		x[i] = &w->own[(first + i) % OWN];
		h[i] = x[i]->h;
		bytes += x[i]->bytes;
	}
	if (bytes > w->storm->largest)
		return;
	for (unsigned i = 0; i < BATCH; i++) {
		synchronize(w, x[i]);
		x[i]->stream = 0;
		x[i]->checked = true;
	}
	stream = w->c.stream[0];
	gpu_client_must(
		&w->c,
		tierd_acquire_on(w->c.t, h, BATCH, place, TIERD_READ | TIERD_WRITE, stream, v),
		"acquire_on of a batch");
	for (unsigned i = 0; i < BATCH; i++) {
		gpu_client_check(&w->c, v[i].data, v[i].bytes, x[i]->seed, stream);
		x[i]->seed = new_seed(w);
		gpu_client_write(&w->c, v[i].data, v[i].bytes, x[i]->seed, stream);
	}
	gpu_client_must(&w->c, tierd_release_on(w->c.t, v, BATCH, stream), "release_on");
}

static void hint(struct worker *w, struct tensor *x, int place)
{
	if (gpu_client_random(&w->c, 2))
		gpu_client_must(&w->c, tierd_prefetch(w->c.t, &x->h, 1, place), "prefetch");
	else
		gpu_client_must(&w->c, tierd_evict(w->c.t, &x->h, 1), "evict");
}

/* Perhaps while a stream writes it: it is doomed until the stream is done. What is still being
 * filled for a reader would come as a failed fill. */
static void renew(struct worker *w, struct tensor *x)
{
	if (x->checked)
		synchronize(w, x);
	gpu_client_must(&w->c, tierd_destroy(w->c.t, &x->h, 1), "destroy");
	make(w, x);
}

static void flush(struct worker *w, struct tensor *x)
{
	int rc;

	if (w->storm->no_nvme || x->bytes < 4096)
		return;
	synchronize(w, x);
	rc = tierd_flush(w->c.t, &x->h, 1);
	/* The daemon may not have looked at the stream's word yet. */
	if (rc != -EBUSY)
		gpu_client_must(&w->c, rc, "flush");
}

static void one(struct worker *w, struct tensor *x, bool own)
{
	int place = (int)gpu_client_random(&w->c, w->storm->gpus);

	switch (gpu_client_random(&w->c, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		/* The streams are of one GPU. */
		on_stream(w, x, w->c.device);
		break;
	case 5:
	case 6:
		on_cpu(w, x, TIERD_HOST);
		break;
	case 7:
		on_cpu(w, x, place);
		break;
	case 8:
		by_copy(w, x);
		break;
	case 9:
	case 10:
		with_framework(w, x);
		break;
	case 11:
		hint(w, x, (int)gpu_client_random(&w->c, w->storm->gpus + 1) - 1);
		break;
	case 12:
		if (own)
			renew(w, x);
		break;
	case 13:
		if (own)
			batch(w, w->c.device);
		break;
	case 14:
		flush(w, x);
		break;
	default:
		gpu_client_must(&w->c, tierd_trim(w->c.t), "trim");
		gpu_client_must(&w->c, tierd_step(w->c.t), "step");
	}
}

static void work(struct worker *w)
{
	struct shared *sh;

	if (gpu_client_random(&w->c, 4) != 0) {
		one(w, &w->own[gpu_client_random(&w->c, OWN)], true);
		return;
	}
	sh = &w->storm->shared[gpu_client_random(&w->c, SHARED)];
	pthread_mutex_lock(&sh->lock);
	one(w, &sh->tensor, false);
	synchronize(w, &sh->tensor);
	pthread_mutex_unlock(&sh->lock);
}

struct start {
	struct storm *storm;
	unsigned number;
};

static void worker_run(struct system *unused, void *arg)
{
	struct start *start = arg;
	struct worker w = { .storm = start->storm, .number = start->number };
	uint64_t end_ns = clock_now_ns() + w.storm->seconds * NS_PER_S;
	const char *seed = getenv("STORM_SEED");

	gpu_client_start(&w.c, (int)(w.number % w.storm->gpus),
			 w.number + (seed ? strtoull(seed, NULL, 10) * 100 : 0));
	gpu_client_open(&w.c, s->socket, w.number % 4 == 3 ? TIERD_NO_THREAD : 0);
	gpu_client_cu(w.c.cuda->event_create(&w.event, CU_EVENT_DISABLE_TIMING), "event");
	gpu_client_cu(w.c.cuda->mem_alloc(&w.scratch, MAX(w.storm->copy_largest, 8)), "cuMemAlloc");
	for (unsigned i = 0; i < OWN; i++)
		make(&w, &w.own[i]);
	while (clock_now_ns() < end_ns) {
		for (unsigned i = 0; i < 32; i++)
			work(&w);
		atomic_fetch_add(&w.storm->operations, 32);
		gpu_client_checks_pass(&w.c, "a round");
	}
	for (unsigned i = 0; i < OWN; i++)
		on_cpu(&w, &w.own[i], TIERD_HOST);
	gpu_client_checks_pass(&w.c, "at the end");
	gpu_client_cu(w.c.cuda->event_destroy(w.event), "event");
	gpu_client_cu(w.c.cuda->mem_free(w.scratch), "cuMemFree");
	gpu_client_stop(&w.c);
}

static void makes_shared(struct system *unused, void *arg)
{
	struct storm *storm = arg;
	struct tierd *t;

	if (tierd_open(s->socket, "gpu", 0, &t) < 0)
		gpu_client_died("open: %s", tierd_error(NULL));
	for (unsigned i = 0; i < SHARED; i++) {
		struct tensor *x = &storm->shared[i].tensor;
		struct tierd_spec spec = { .ndim = 1 };
		char name[16];

		snprintf(name, sizeof(name), "shared%u", i);
		x->bytes = i == 0 ? 4096 + 1 : storm->largest / (i + 1);
		x->flags = i % 2 && storm->copy_largest && x->bytes <= storm->copy_largest
				   ? TIERD_DEVICE_COPY
				   : 0;
		x->stream = -1;
		spec.shape[0] = x->bytes;
		spec.flags = x->flags;
		spec.name = name;
		if (tierd_create(t, &spec, 1, &x->h) < 0)
			gpu_client_died("create: %s", tierd_error(t));
	}
	tierd_close(t);
}

/* ---- in the test's ---- */

#define WORKERS 4u

/* What was not given back; the fake driver of each process has left its counts. */
static void nothing_is_left(const char *folder)
{
	static const char *const all_zero[] = { "contexts", "handles",     "reservations",
						"mappings", "allocations", "registrations",
						"modules",  "streams",     "events",
						"queued" };
	DIR *d = opendir(folder);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)) != NULL) {
		char path[400], name[32];
		unsigned long long n;
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		f = fopen(path, "re");
		while (fscanf(f, "%31s %llu", name, &n) == 2)
			for (unsigned i = 0; i < ARRAY_SIZE(all_zero); i++)
				if (strcmp(name, all_zero[i]) == 0 && n != 0)
					system_fail(s, "process %s: %llu %s are left", e->d_name, n,
						    name);
		fclose(f);
		unlink(path);
	}
	closedir(d);
	rmdir(folder);
}

static void storm_run(const char *config, const struct storm *params)
{
	pthread_mutexattr_t attr;
	struct storm *storm = mmap(NULL, sizeof(*storm), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct start start[WORKERS];
	char folder[LEFTOVERS_ROOM], gpus[16];
	pid_t pid[WORKERS];

	ck_assert_ptr_ne(storm, MAP_FAILED);
	*storm = *params;
	storm->seconds = getenv("TIERD_TEST_LONG") ? 60 : 4;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (unsigned i = 0; i < SHARED; i++)
		pthread_mutex_init(&storm->shared[i].lock, &attr);
	leftovers_folder(folder);
	snprintf(gpus, sizeof(gpus), "%u", storm->gpus);
	setenv("TIERD_LIBCUDA", FAKE_CUDA_PATH, 1);
	setenv("FAKE_CUDA_DEVICES", gpus, 1);
	setenv("FAKE_CUDA_REPORT", folder, 1);
	system_start(s, config);
	system_child_end(s, system_child(makes_shared, s, storm), CHILD_MS);
	for (unsigned i = 0; i < WORKERS; i++) {
		start[i] = (struct start){ storm, i + 1 };
		pid[i] = system_child(worker_run, s, &start[i]);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		system_child_end(s, pid[i], CHILD_MS);
	ck_assert_uint_gt(storm->operations, 0);
	system_stop(s);
	nothing_is_left(folder);
	munmap(storm, sizeof(*storm));
}

START_TEST(bytes_stay_whole_while_slabs_come_and_go)
{
	const struct storm params = { .largest = MIB(24), .copy_largest = MIB(8), .gpus = 1 };

	storm_run("tensors: 4Ki\n"
		  "tiers:\n"
		  "  hbm: {backend: cuda, size: 192MiB, slab: 64MiB}\n"
		  "  dram: {size: 384MiB, slab: 64MiB, zone: 128MiB}\n"
		  "  nvme: {paths: [{path: @NVME@, size: 1GiB}], block: 1MiB}\n",
		  &params);
}
END_TEST

START_TEST(bytes_stay_whole_on_two_small_gpus)
{
	const struct storm params = { .largest = MIB(6), .copy_largest = MIB(2), .gpus = 2 };

	storm_run("tensors: 4Ki\n"
		  "tiers:\n"
		  "  hbm: {backend: cuda, size: 64MiB, slab: 64MiB}\n"
		  "  dram: {size: 64MiB, slab: 16MiB, zone: 16MiB}\n"
		  "  nvme: {paths: [{path: @NVME@, size: 1GiB}], block: 64KiB}\n",
		  &params);
}
END_TEST

START_TEST(bytes_stay_whole_without_nvme)
{
	const struct storm params = {
		.largest = MIB(12), .copy_largest = MIB(4), .gpus = 2, .no_nvme = true
	};

	storm_run("tensors: 4Ki\n"
		  "tiers:\n"
		  "  hbm: {backend: cuda, size: 128MiB, slab: 64MiB}\n"
		  "  dram: {size: 2GiB, zone: 512MiB}\n",
		  &params);
}
END_TEST

UNIT_MAIN("gpu_storm", bytes_stay_whole_while_slabs_come_and_go, bytes_stay_whole_on_two_small_gpus,
	  bytes_stay_whole_without_nvme)

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/system/oracle.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/unit/point.h"

#define COPY_MAX  (3 * MIB(1))
#define BATCH_MAX 6u

/* ---- the model ---------------------------------------------------------------------------------
 */

static uint64_t chunks_of(uint64_t bytes)
{
	return (bytes + ORACLE_CHUNK - 1) / ORACLE_CHUNK;
}

static size_t oracle_bytes(uint64_t bytes_max)
{
	uint64_t chunks = bytes_max / ORACLE_CHUNK + ORACLE_TENSORS_MAX;

	return sizeof(struct oracle) + chunks * sizeof(uint32_t);
}

struct oracle *oracle_open(const struct oracle_params *params, uint64_t bytes_max)
{
	struct oracle *o = mmap(NULL, oracle_bytes(bytes_max), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(o, MAP_FAILED);
	o->params = *params;
	o->chunks = (uint32_t)(bytes_max / ORACLE_CHUNK + ORACLE_TENSORS_MAX);
	return o;
}

void oracle_close(struct oracle *o)
{
	munmap(o, sizeof(*o) + (size_t)o->chunks * sizeof(uint32_t));
}

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

static uint64_t pattern_word(uint64_t seed, uint32_t version, uint64_t at)
{
	uint64_t x = (seed << 32 | version) * 0x9e3779b97f4a7c15ull + at * 0xd6e8feb86659fd93ull;

	/* A word that reads the same one place on, or one version on, would hide a mistake. */
	return version == 0 ? 0 : x ^ (x >> 29);
}

/* Of chunk-aligned `offset`. */
BYTES_UNSEEN static void pattern_fill(const struct oracle_tensor *t, uint32_t version,
				      uint64_t offset, char *to, uint64_t bytes)
{
	bytes_are_written(to, bytes);
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = pattern_word(t->seed, version, offset + i);

		memcpy(to + i, &word, MIN(bytes - i, 8));
	}
}

static void mismatch(const struct oracle *o, const struct oracle_tensor *t, uint64_t at,
		     const char *got, const char *how)
{
	uint32_t version = o->version[t->first_chunk + at / ORACLE_CHUNK];
	uint64_t want = pattern_word(t->seed, version, ALIGN_DOWN(at, 8));

	die("oracle: tensor %u of %llu bytes, %s: byte %llu is %02x, not %02x (version %u)",
	    (unsigned)(t - o->tensor), (unsigned long long)t->bytes, how, (unsigned long long)at,
	    (unsigned char)*got, (unsigned)(want >> (at % 8 * 8) & 0xff), version);
}

static void verify_bytes(const struct oracle *o, const struct oracle_tensor *t, uint64_t from,
			 uint64_t to, const char *data, const char *how)
{
	for (uint64_t at = from; at < to; at++) {
		uint32_t version = o->version[t->first_chunk + at / ORACLE_CHUNK];
		uint64_t word = pattern_word(t->seed, version, ALIGN_DOWN(at, 8));

		if ((unsigned char)data[at - from] != (unsigned char)(word >> (at % 8 * 8)))
			mismatch(o, t, at, data + (at - from), how);
	}
}

/* `data` holds bytes [offset, offset + bytes) of the tensor. The lock is held. */
BYTES_UNSEEN static void verify(struct oracle *o, const struct oracle_tensor *t, uint64_t offset,
				uint64_t bytes, const char *data, const char *how)
{
	uint64_t end = offset + bytes, at = MIN(ALIGN_UP(offset, 8), end),
		 last = ALIGN_DOWN(end, 8);

	bytes_are_read(data, bytes);
	verify_bytes(o, t, offset, at, data, how);
	for (; at < last; at += 8) {
		uint32_t version = o->version[t->first_chunk + at / ORACLE_CHUNK];
		uint64_t word;

		memcpy(&word, data + (at - offset), 8);
		if (word != pattern_word(t->seed, version, at))
			verify_bytes(o, t, at, at + 8, data + (at - offset), how);
	}
	if (at < end)
		verify_bytes(o, t, at, end, data + (at - offset), how);
	atomic_fetch_add_explicit(&o->checked_bytes, bytes, memory_order_relaxed);
}

static void lock_init(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	ck_assert_int_eq(pthread_rwlock_init(lock, &attr), 0);
	pthread_rwlockattr_destroy(&attr);
}

static int tensor_create(struct tierd *td, struct oracle *o, struct oracle_tensor *t)
{
	unsigned number = (unsigned)(t - o->tensor);
	char name[32];
	struct tierd_spec spec = {
		.name = name, .class_ = number % TIERD_CLASSES, .ndim = 1, .shape = { t->bytes }
	};

	snprintf(name, sizeof(name), "tensor/%u", number);
	memset(&o->version[t->first_chunk], 0, t->chunks * sizeof(uint32_t));
	return tierd_create(td, &spec, 1, &t->handle);
}

void oracle_add(struct oracle *o, struct tierd *td, uint64_t bytes)
{
	struct oracle_tensor *t = &o->tensor[o->count];
	const struct oracle_tensor *before = o->count ? t - 1 : NULL;
	int rc;

	ck_assert_uint_lt(o->count, ORACLE_TENSORS_MAX);
	lock_init(&t->lock);
	t->bytes = bytes;
	t->seed = o->count + 1;
	t->first_chunk = before ? before->first_chunk + before->chunks : 0;
	t->chunks = (uint32_t)chunks_of(bytes);
	ck_assert_uint_le(t->first_chunk + t->chunks, o->chunks);
	rc = tensor_create(td, o, t);
	ck_assert_msg(rc == 0, "create of %llu bytes: %s", (unsigned long long)bytes,
		      tierd_error(td));
	o->count++;
}

/* No wait of these tests may take longer. */
static int64_t answer_ns(const struct oracle *o)
{
	return (int64_t)((o->params.patience_s ? o->params.patience_s : 60) * NS_PER_S);
}

/* ---- operations --------------------------------------------------------------------------------
 */

struct worker {
	struct oracle *o;
	struct tierd *td;
	unsigned random;
	char *copy; /* COPY_MAX bytes */
};

static unsigned draw(struct worker *w, unsigned below)
{
	return (unsigned)rand_r(&w->random) % below;
}

static void lock_read(struct oracle_tensor *t)
{
	pthread_rwlock_rdlock(&t->lock);
}

static void lock_write(struct oracle_tensor *t)
{
	pthread_rwlock_wrlock(&t->lock);
}

static void unlock(struct oracle_tensor *t)
{
	pthread_rwlock_unlock(&t->lock);
}

/* True: done. False: the device failed where that is part of the test. Else the process ends. */
static bool went_well(struct worker *w, int rc, const char *what, const struct oracle_tensor *t)
{
	if (rc == 0)
		return true;
	if (w->o->params.io_fails && (rc == -EIO || rc == -ENOSPC)) {
		atomic_fetch_add(&w->o->io_errors, 1);
		return false;
	}
	die("oracle: %s of tensor %u, %llu bytes: %d: %s", what, (unsigned)(t - w->o->tensor),
	    (unsigned long long)t->bytes, rc, tierd_error(w->td));
	return false;
}

static int any_gpu(struct worker *w)
{
	return w->o->params.gpus > 1 ? (int)draw(w, w->o->params.gpus) : 0;
}

static int any_place(struct worker *w)
{
	return w->o->params.gpu_max && draw(w, 2) ? any_gpu(w) : TIERD_HOST;
}

/* A place that takes the tensor, or TIERD_HOST - 1. */
static int place_of(struct worker *w, const struct oracle_tensor *t)
{
	const struct oracle_params *p = &w->o->params;
	bool host = t->bytes <= p->host_max, gpu = p->gpu_max && t->bytes <= p->gpu_max;

	if (host && gpu)
		return draw(w, 2) ? TIERD_HOST : any_gpu(w);
	return host ? TIERD_HOST : gpu ? any_gpu(w) : TIERD_HOST - 1;
}

static void op_read(struct worker *w, struct oracle_tensor *t)
{
	int place = place_of(w, t);
	struct tierd_view v;

	if (place < TIERD_HOST)
		return;
	lock_read(t);
	if (went_well(w, tierd_acquire(w->td, t->handle, place, TIERD_READ, answer_ns(w->o), &v),
		      "read", t)) {
		verify(w->o, t, 0, t->bytes, v.data, place == TIERD_HOST ? "host" : "gpu");
		tierd_release(w->td, &v);
	}
	unlock(t);
}

static uint64_t chunk_bytes(const struct oracle_tensor *t, uint32_t chunk)
{
	return MIN(t->bytes - (uint64_t)chunk * ORACLE_CHUNK, ORACLE_CHUNK);
}

static void rewrite(struct oracle *o, struct oracle_tensor *t, char *data, uint32_t chunk)
{
	uint32_t version = ++o->version[t->first_chunk + chunk];
	uint64_t offset = (uint64_t)chunk * ORACLE_CHUNK;

	pattern_fill(t, version, offset, data + offset, chunk_bytes(t, chunk));
}

/* Some chunks anew, the others must have come along; with DISCARD all anew. */
static void op_write(struct worker *w, struct oracle_tensor *t, bool discard)
{
	uint32_t access = TIERD_WRITE | (discard ? TIERD_DISCARD : TIERD_READ);
	int place = place_of(w, t);
	struct tierd_view v;

	if (place < TIERD_HOST)
		return;
	lock_write(t);
	if (went_well(w, tierd_acquire(w->td, t->handle, place, access, answer_ns(w->o), &v),
		      "write", t)) {
		if (!discard)
			verify(w->o, t, 0, t->bytes, v.data, "before a write");
		for (uint32_t i = 0; i < t->chunks; i++)
			if (discard || draw(w, 4) == 0)
				rewrite(w->o, t, v.data, i);
		tierd_release(w->td, &v);
	}
	unlock(t);
}

/* A writer that would discard but does not wait: nothing may be lost when it backs out. */
static void op_try_discard(struct worker *w, struct oracle_tensor *t)
{
	int place = place_of(w, t);
	struct tierd_view v;

	if (place < TIERD_HOST)
		return;
	lock_write(t);
	if (tierd_acquire(w->td, t->handle, place, TIERD_WRITE | TIERD_DISCARD, 0, &v) == 0) {
		for (uint32_t i = 0; i < t->chunks; i++)
			rewrite(w->o, t, v.data, i);
		tierd_release(w->td, &v);
	}
	unlock(t);
}

static void op_copy_out(struct worker *w, struct oracle_tensor *t)
{
	uint64_t offset = t->bytes ? (uint64_t)rand_r(&w->random) * 4099 % t->bytes : 0;
	uint64_t most = 1 + draw(w, COPY_MAX), bytes = MIN(t->bytes - offset, most);

	lock_read(t);
	if (went_well(w, tierd_copy_out(w->td, t->handle, offset, w->copy, bytes), "copy_out", t))
		verify(w->o, t, offset, bytes, w->copy, "copied out");
	unlock(t);
}

static void op_copy_in(struct worker *w, struct oracle_tensor *t)
{
	uint32_t chunk = t->chunks ? (uint32_t)rand_r(&w->random) % t->chunks : 0;
	uint64_t offset = (uint64_t)chunk * ORACLE_CHUNK, bytes;
	uint32_t *version = &w->o->version[t->first_chunk + chunk];

	if (t->chunks == 0)
		return;
	bytes = chunk_bytes(t, chunk);
	lock_write(t);
	pattern_fill(t, *version + 1, offset, w->copy, bytes);
	/* What failed half-way may be old or new: written again until it is known. */
	while (!went_well(w, tierd_copy_in(w->td, t->handle, offset, w->copy, bytes), "copy_in", t))
		usleep(1000);
	*version += 1;
	unlock(t);
}

static void op_hint(struct worker *w, struct oracle_tensor *t)
{
	int rc = draw(w, 2) ? tierd_evict(w->td, &t->handle, 1)
			    : tierd_prefetch(w->td, &t->handle, 1, any_place(w));

	/* Without the lock, so that it may be destroyed just now. */
	if (rc < 0 && rc != -ESTALE)
		went_well(w, rc, "hint", t);
}

/* Destroyed while others wait for the lock, and made anew: it reads as zeros. */
static void op_destroy(struct worker *w, struct oracle_tensor *t)
{
	int rc;

	lock_write(t);
	went_well(w, tierd_destroy(w->td, &t->handle, 1), "destroy", t);
	rc = tensor_create(w->td, w->o, t);
	if (rc < 0)
		die("oracle: create anew of %llu bytes: %d: %s", (unsigned long long)t->bytes, rc,
		    tierd_error(w->td));
	unlock(t);
}

static void op_flush(struct worker *w, struct oracle_tensor *t)
{
	lock_read(t);
	if (t->bytes >= 4096 && !w->o->params.no_nvme)
		went_well(w, tierd_flush(w->td, &t->handle, 1), "flush", t);
	unlock(t);
}

/* Neighbours, locked in their order, read together. */
static void op_batch(struct worker *w, struct oracle_tensor *first)
{
	struct oracle_tensor *end = &w->o->tensor[w->o->count], *t = first;
	uint64_t most = w->o->params.gpu_max ? MIN(w->o->params.host_max, w->o->params.gpu_max)
					     : w->o->params.host_max;
	tierd_tensor handles[BATCH_MAX];
	struct tierd_view views[BATCH_MAX];
	uint64_t bytes = 0;
	unsigned n = 0;

	for (; t < end && n < BATCH_MAX && t->bytes <= most &&
	       bytes + t->bytes <= w->o->params.batch_max;
	     t++, n++) {
		lock_read(t);
		handles[n] = t->handle;
		bytes += t->bytes;
	}
	if (n > 0 && went_well(w,
			       tierd_acquire_batch(w->td, handles, n, any_place(w), TIERD_READ,
						   answer_ns(w->o), views),
			       "batch", first)) {
		for (unsigned i = 0; i < n; i++) {
			verify(w->o, &first[i], 0, first[i].bytes, views[i].data, "batch");
			tierd_release(w->td, &views[i]);
		}
	}
	while (n > 0)
		unlock(&first[--n]);
}

static void op_any(struct worker *w, struct oracle_tensor *t)
{
	switch (draw(w, 20)) {
	case 0:
		return op_destroy(w, t);
	case 1:
		return op_flush(w, t);
	case 2:
		return op_try_discard(w, t);
	case 3:
		return op_write(w, t, true);
	case 4:
	case 5:
		return op_copy_in(w, t);
	case 6:
	case 7:
		return op_copy_out(w, t);
	case 8:
	case 9:
		return op_hint(w, t);
	case 10:
	case 11:
		return op_batch(w, t);
	case 12:
	case 13:
	case 14:
	case 15:
		return op_write(w, t, false);
	default:
		return op_read(w, t);
	}
}

/* ---- runs --------------------------------------------------------------------------------------
 */

void oracle_work(struct system *s, struct oracle *o, unsigned seed)
{
	struct worker w = { .o = o, .random = seed, .copy = malloc(COPY_MAX) };

	if (!w.copy || tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &w.td) < 0)
		die("oracle: open: %s", tierd_error(NULL));
	while (clock_now_ns() < atomic_load(&o->end_ns)) {
		op_any(&w, &o->tensor[draw(&w, o->count)]);
		atomic_fetch_add_explicit(&o->operations, 1, memory_order_relaxed);
	}
	tierd_close(w.td);
	free(w.copy);
}

struct work {
	struct oracle *o;
	unsigned seed;
};

static void work_body(struct system *s, void *arg)
{
	const struct work *work = arg;

	oracle_work(s, work->o, work->seed);
}

void oracle_rewrite(struct oracle *o, struct tierd *td, uint32_t tensor)
{
	struct worker w = { .o = o, .td = td, .random = 1 };

	op_write(&w, &o->tensor[tensor], true);
}

static void check_body(struct system *s, void *arg)
{
	struct oracle *o = arg;
	struct worker w = { .o = o, .random = 1, .copy = malloc(COPY_MAX) };

	if (!w.copy || tierd_open(s->socket, ORACLE_NAME_SPACE, 0, &w.td) < 0)
		die("oracle: open: %s", tierd_error(NULL));
	for (uint32_t i = 0; i < o->count; i++) {
		struct oracle_tensor *t = &o->tensor[i];

		for (uint64_t at = 0; at < t->bytes; at += COPY_MAX) {
			uint64_t bytes = MIN(t->bytes - at, COPY_MAX);

			while (!went_well(&w, tierd_copy_out(w.td, t->handle, at, w.copy, bytes),
					  "copy_out", t))
				;
			verify(o, t, at, bytes, w.copy, "at the end, copied out");
		}
		op_read(&w, t);
		op_read(&w, t);
	}
	tierd_close(w.td);
	free(w.copy);
}

void oracle_check_all(struct system *s, struct oracle *o)
{
	int patience_ms = 10 * (int)(answer_ns(o) / (int64_t)NS_PER_MS);

	system_child_end(s, system_child(check_body, s, o), patience_ms);
}

void oracle_run(struct system *s, struct oracle *o, unsigned workers, unsigned seconds)
{
	struct work work[16];
	pid_t pid[16];

	ck_assert_uint_le(workers, ARRAY_SIZE(pid));
	atomic_store(&o->end_ns, clock_now_ns() + seconds * NS_PER_S);
	for (unsigned i = 0; i < workers; i++) {
		work[i] = (struct work){ o, 1000 + i };
		pid[i] = system_child(work_body, s, &work[i]);
	}
	for (unsigned i = 0; i < workers; i++)
		system_child_end(s, pid[i],
				 (int)seconds * 1000 +
					 2 * (int)(answer_ns(o) / (int64_t)NS_PER_MS));
	printf("oracle: %llu operations, %llu MB checked, %llu I/O errors\n",
	       (unsigned long long)atomic_load(&o->operations),
	       (unsigned long long)atomic_load(&o->checked_bytes) / 1000000,
	       (unsigned long long)atomic_load(&o->io_errors));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The store on tierd. Tensors are named in a namespace of this process, so that `tierctl list`
 * tells what they are; they are destroyed at the end, and by the daemon when the process dies.
 *
 * Where a GPU computes, its stream waits for the bytes and ends the pins (tierd_acquire_on(),
 * tierd_release_on()), while the CPU goes on to the operations that come next.
 */
#include "examples/train_gpt/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "examples/train_gpt/device.h"
#include "examples/train_gpt/fatal.h"

/* Far above what one operation's bytes take on any disk: it ends only a daemon that hangs. */
#define ACQUIRE_TIMEOUT_NS (120ll * 1000000000ll)
/* How long a batch waits while another one's pins stand. */
#define PATIENCE_NS (2ll * 1000000000ll)

struct tierd_store {
	struct tierd *t;
	struct device *device; /* NULL: the CPU computes */
};

static void tierd_store_create(void *state, struct tensor *const *tensors, size_t n,
			       unsigned element_bytes)
{
	struct tierd *t = ((struct tierd_store *)state)->t;
	struct tierd_spec *specs = calloc(n, sizeof(*specs));
	tierd_tensor *handles = calloc(n, sizeof(*handles));

	if (specs == NULL || handles == NULL)
		fatal("store: out of memory");
	for (size_t i = 0; i < n; i++) {
		specs[i].name = tensors[i]->name;
		specs[i].class_ = tensors[i]->class_;
		specs[i].dtype = element_bytes == sizeof(float) ? TIERD_F32 : TIERD_F64;
		specs[i].ndim = 2;
		specs[i].shape[0] = tensors[i]->rows;
		specs[i].shape[1] = tensors[i]->columns;
	}
	if (tierd_create(t, specs, n, handles) != 0)
		fatal("tierd_create of %zu tensors: %s", n, tierd_error(t));
	for (size_t i = 0; i < n; i++)
		tensors[i]->handle = handles[i];
	free(specs);
	free(handles);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int acquire_batch(struct tierd_store *s, const tierd_tensor *handles, size_t n, int place,
			 uint32_t access, int64_t timeout_ns, struct tierd_view *ret)
{
	if (s->device != NULL)
		return tierd_acquire_on(s->t, handles, n, place, access, s->device->stream, ret);
	return tierd_acquire_batch(s->t, handles, n, place, access, timeout_ns, ret);
}

/* All uses with one access, as one batch. 0, or the library's error. */
static int acquire_same(struct tierd_store *s, int place, struct use *uses, size_t n,
			uint32_t access, int64_t timeout_ns)
{
	tierd_tensor handles[STORE_USES_MAX];
	struct tierd_view views[STORE_USES_MAX];
	struct use *which[STORE_USES_MAX];
	size_t count = 0;
	int rc;

	for (size_t i = 0; i < n; i++) {
		if (uses[i].tensor == NULL || uses[i].access != access)
			continue;
		which[count] = &uses[i];
		handles[count++] = uses[i].tensor->handle;
	}
	do {
		rc = acquire_batch(s, handles, count, place, access, timeout_ns, views);
	} while (rc == -EINTR);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		which[i]->view = views[i];
		which[i]->data = views[i].data;
	}
	return rc;
}

static void tierd_store_release(void *state, struct use *uses, size_t n)
{
	struct tierd_store *s = state;
	struct tierd_view views[STORE_USES_MAX];
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		if (uses[i].view.data == NULL) /* no tensor, or not acquired */
			continue;
		views[count++] = uses[i].view;
		uses[i].view = (struct tierd_view){ 0 };
	}
	if (s->device == NULL)
		for (size_t i = 0; i < count; i++)
			tierd_release(s->t, &views[i]);
	else if (tierd_release_on(s->t, views, count, s->device->stream) != 0)
		fatal("tierd_release_on of %s and what goes with it: %s", uses[0].tensor->name,
		      tierd_error(s->t));
}

/* A batch has one access, so the later ones wait while the earlier ones' pins stand. That two
 * programs which do so cannot wait for each other's room for ever, patience ends, all pins go, and
 * it is tried again; what has been brought meanwhile is likely to be there still. On a GPU there is
 * no patience: two programs there need room for an operation of each. */
static int acquire_all(struct tierd_store *s, int place, struct use *uses, size_t n,
		       int64_t patience_ns)
{
	static const uint32_t accesses[] = {
		TIERD_READ,
		TIERD_READ | TIERD_WRITE,
		TIERD_WRITE | TIERD_DISCARD,
	};

	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++) {
		int rc = acquire_same(s, place, uses, n, accesses[i], patience_ns);

		if (rc != 0) {
			tierd_store_release(s, uses, n);
			return rc;
		}
	}
	return 0;
}

static void tierd_store_acquire(void *state, int place, struct use *uses, size_t n)
{
	struct tierd_store *s = state;
	int64_t deadline_ns = now_ns() + ACQUIRE_TIMEOUT_NS;
	/* Not the same in two programs. */
	int64_t patience_ns = PATIENCE_NS + getpid() % 16 * (PATIENCE_NS / 16);
	int rc;

	do {
		rc = acquire_all(s, place, uses, n, patience_ns);
	} while ((rc == -ETIMEDOUT || rc == -EBUSY) && now_ns() < deadline_ns);
	if (rc != 0)
		fatal("acquire of %s and what goes with it: %s", uses[0].tensor->name,
		      tierd_error(s->t));
}

/* What the CPU computes with is filled where it computes; what a GPU does is filled by copies,
 * which reach a tensor in every tier. */
static void tierd_store_write(void *state, int place, struct tensor *t, const void *from)
{
	struct tierd_store *s = state;
	struct use use = use_overwrite(t);

	if (s->device != NULL) {
		if (tierd_copy_in(s->t, t->handle, 0, from, t->bytes) != 0)
			fatal("tierd_copy_in to %s: %s", t->name, tierd_error(s->t));
		return;
	}
	tierd_store_acquire(s, place, &use, 1);
	memcpy(use.data, from, t->bytes);
	tierd_store_release(s, &use, 1);
}

static void tierd_store_read(void *state, int place, struct tensor *t, void *to)
{
	struct tierd_store *s = state;
	struct use use = use_read(t);

	if (s->device != NULL) {
		if (tierd_copy_out(s->t, t->handle, 0, to, t->bytes) != 0)
			fatal("tierd_copy_out of %s: %s", t->name, tierd_error(s->t));
		return;
	}
	tierd_store_acquire(s, place, &use, 1);
	memcpy(to, use.data, t->bytes);
	tierd_store_release(s, &use, 1);
}

/* Hints go out in pieces of this many tensors. */
#define HINT_TENSORS 64

static void tierd_store_prefetch(void *state, int place, struct tensor *const *tensors, size_t n)
{
	struct tierd *t = ((struct tierd_store *)state)->t;
	tierd_tensor handles[HINT_TENSORS];

	for (size_t done = 0; done < n;) {
		size_t count = 0;

		while (count < HINT_TENSORS && done < n)
			handles[count++] = tensors[done++]->handle;
		if (tierd_prefetch(t, handles, count, place) != 0)
			fatal("tierd_prefetch: %s", tierd_error(t));
	}
}

static void tierd_store_evict(void *state, struct tensor *const *tensors, size_t n)
{
	struct tierd *t = ((struct tierd_store *)state)->t;
	tierd_tensor handles[HINT_TENSORS];

	for (size_t done = 0; done < n;) {
		size_t count = 0;

		while (count < HINT_TENSORS && done < n)
			handles[count++] = tensors[done++]->handle;
		if (tierd_evict(t, handles, count) != 0)
			fatal("tierd_evict: %s", tierd_error(t));
	}
}

static void tierd_store_step(void *state)
{
	struct tierd *t = ((struct tierd_store *)state)->t;

	if (tierd_step(t) != 0)
		fatal("tierd_step: %s", tierd_error(t));
}

static bool tierd_store_stats(void *state, struct tierd_stats *ret)
{
	struct tierd *t = ((struct tierd_store *)state)->t;

	if (tierd_stats(t, ret) != 0)
		fatal("tierd_stats: %s", tierd_error(t));
	return true;
}

static void tierd_store_close(void *state, struct tensor *const *tensors, size_t n)
{
	struct tierd_store *s = state;

	if (s->device != NULL)
		s->device->calls->wait(s->device->state);
	for (size_t i = 0; i < n; i++)
		if (tierd_destroy(s->t, &tensors[i]->handle, 1) != 0)
			fatal("tierd_destroy of %s: %s", tensors[i]->name, tierd_error(s->t));
	tierd_close(s->t);
	free(s);
}

static const struct store_ops tierd_store_ops = {
	.name = "tierd",
	.create = tierd_store_create,
	.acquire = tierd_store_acquire,
	.release = tierd_store_release,
	.write = tierd_store_write,
	.read = tierd_store_read,
	.prefetch = tierd_store_prefetch,
	.evict = tierd_store_evict,
	.step = tierd_store_step,
	.stats = tierd_store_stats,
	.close = tierd_store_close,
};

struct store *store_open_tierd(const char *socket, struct device *device)
{
	struct tierd_store *s = calloc(1, sizeof(*s));
	char name_space[32];

	if (s == NULL)
		fatal("store: out of memory");
	s->device = device;
	snprintf(name_space, sizeof(name_space), "train_gpt.%d", (int)getpid());
	if (tierd_open(socket, name_space, 0, &s->t) != 0)
		fatal("no tierd (--in-memory runs without one): %s", tierd_error(NULL));
	return store_open(&tierd_store_ops, s);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The store on tierd. Tensors are named in a namespace of this process, so that `tierctl list`
 * tells what they are; they are destroyed at the end, and by the daemon when the process dies.
 */
#include "examples/train_gpt/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "examples/train_gpt/fatal.h"

/* Far above what one operation's bytes take on any disk: it ends only a daemon that hangs. */
#define ACQUIRE_TIMEOUT_NS (120ll * 1000000000ll)
/* How long a batch waits while another one's pins stand. */
#define PATIENCE_NS (2ll * 1000000000ll)

static void tierd_store_create(void *state, struct tensor *const *tensors, size_t n,
			       unsigned element_bytes)
{
	struct tierd *t = state;
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

/* All uses with one access, as one batch. 0, or the library's error. */
static int acquire_same(struct tierd *t, int place, struct use *uses, size_t n, uint32_t access,
			int64_t timeout_ns)
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
		rc = tierd_acquire_batch(t, handles, count, place, access, timeout_ns, views);
	} while (rc == -EINTR);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		which[i]->view = views[i];
		which[i]->data = views[i].data;
	}
	return rc;
}

static void tierd_store_release(void *state, struct use *uses, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (uses[i].tensor != NULL)
			tierd_release(state, &uses[i].view); /* or nothing, where it has no view */
}

/* A batch has one access, so the later ones wait while the earlier ones' pins stand. That two
 * programs which do so cannot wait for each other's room for ever, patience ends, all pins go, and
 * it is tried again; what has been brought meanwhile is likely to be there still. */
static int acquire_all(struct tierd *t, int place, struct use *uses, size_t n, int64_t patience_ns)
{
	static const uint32_t accesses[] = {
		TIERD_READ,
		TIERD_READ | TIERD_WRITE,
		TIERD_WRITE | TIERD_DISCARD,
	};

	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++) {
		int rc = acquire_same(t, place, uses, n, accesses[i], patience_ns);

		if (rc != 0) {
			tierd_store_release(t, uses, n);
			return rc;
		}
	}
	return 0;
}

static void tierd_store_acquire(void *state, int place, struct use *uses, size_t n)
{
	int64_t deadline_ns = now_ns() + ACQUIRE_TIMEOUT_NS;
	/* Not the same in two programs. */
	int64_t patience_ns = PATIENCE_NS + getpid() % 16 * (PATIENCE_NS / 16);
	int rc;

	do {
		rc = acquire_all(state, place, uses, n, patience_ns);
	} while ((rc == -ETIMEDOUT || rc == -EBUSY) && now_ns() < deadline_ns);
	if (rc != 0)
		fatal("acquire of %s and what goes with it: %s", uses[0].tensor->name,
		      tierd_error(state));
}

static void tierd_store_write(void *state, int place, struct tensor *t, const void *from)
{
	struct use use = use_overwrite(t);

	tierd_store_acquire(state, place, &use, 1);
	memcpy(use.data, from, t->bytes);
	tierd_store_release(state, &use, 1);
}

static void tierd_store_read(void *state, int place, struct tensor *t, void *to)
{
	struct use use = use_read(t);

	tierd_store_acquire(state, place, &use, 1);
	memcpy(to, use.data, t->bytes);
	tierd_store_release(state, &use, 1);
}

/* Hints go out in pieces of this many tensors. */
#define HINT_TENSORS 64

static void tierd_store_prefetch(void *state, int place, struct tensor *const *tensors, size_t n)
{
	tierd_tensor handles[HINT_TENSORS];

	for (size_t done = 0; done < n;) {
		size_t count = 0;

		while (count < HINT_TENSORS && done < n)
			handles[count++] = tensors[done++]->handle;
		if (tierd_prefetch(state, handles, count, place) != 0)
			fatal("tierd_prefetch: %s", tierd_error(state));
	}
}

static void tierd_store_evict(void *state, struct tensor *const *tensors, size_t n)
{
	tierd_tensor handles[HINT_TENSORS];

	for (size_t done = 0; done < n;) {
		size_t count = 0;

		while (count < HINT_TENSORS && done < n)
			handles[count++] = tensors[done++]->handle;
		if (tierd_evict(state, handles, count) != 0)
			fatal("tierd_evict: %s", tierd_error(state));
	}
}

static void tierd_store_step(void *state)
{
	if (tierd_step(state) != 0)
		fatal("tierd_step: %s", tierd_error(state));
}

static bool tierd_store_stats(void *state, struct tierd_stats *ret)
{
	if (tierd_stats(state, ret) != 0)
		fatal("tierd_stats: %s", tierd_error(state));
	return true;
}

static void tierd_store_close(void *state, struct tensor *const *tensors, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (tierd_destroy(state, &tensors[i]->handle, 1) != 0)
			fatal("tierd_destroy of %s: %s", tensors[i]->name, tierd_error(state));
	tierd_close(state);
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

struct store *store_open_tierd(const char *socket)
{
	char name_space[32];
	struct tierd *t;

	snprintf(name_space, sizeof(name_space), "train_gpt.%d", (int)getpid());
	if (tierd_open(socket, name_space, 0, &t) != 0)
		fatal("no tierd (--in-memory runs without one): %s", tierd_error(NULL));
	return store_open(&tierd_store_ops, t);
}

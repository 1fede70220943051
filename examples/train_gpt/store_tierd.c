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
#include <unistd.h>

#include "examples/train_gpt/fatal.h"

/* Far above what one layer's bytes take on any disk: it ends only a daemon that hangs. */
#define ACQUIRE_TIMEOUT_NS (300ll * 1000000000ll)

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

/* All uses with one access, as one batch. */
static void acquire_same(struct tierd *t, int place, struct use *uses, size_t n, uint32_t access)
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
	if (count == 0)
		return;
	do {
		rc = tierd_acquire_batch(t, handles, count, place, access, ACQUIRE_TIMEOUT_NS,
					 views);
	} while (rc == -EINTR);
	if (rc != 0)
		fatal("acquire of %s and %zu more: %s", which[0]->tensor->name, count - 1,
		      tierd_error(t));
	for (size_t i = 0; i < count; i++) {
		which[i]->view = views[i];
		which[i]->data = views[i].data;
	}
}

/* The later batches wait while the earlier ones' pins stand. With one client that only needs a
 * place that holds one operation's tensors at once; several would have to ask in one batch. */
static void tierd_store_acquire(void *state, int place, struct use *uses, size_t n)
{
	static const uint32_t accesses[] = {
		TIERD_READ,
		TIERD_READ | TIERD_WRITE,
		TIERD_WRITE | TIERD_DISCARD,
	};

	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++)
		acquire_same(state, place, uses, n, accesses[i]);
}

static void tierd_store_release(void *state, struct use *uses, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (uses[i].tensor != NULL)
			tierd_release(state, &uses[i].view);
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

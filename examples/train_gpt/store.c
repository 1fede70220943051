/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/train_gpt/store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/train_gpt/fatal.h"

struct store {
	const struct store_ops *ops;
	void *state;
	struct tensor *const *tensors;
	size_t tensor_count;
	uint64_t acquire_ns;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

struct store *store_open(const struct store_ops *ops, void *state)
{
	struct store *s = calloc(1, sizeof(*s));

	if (s == NULL)
		fatal("store: out of memory");
	s->ops = ops;
	s->state = state;
	return s;
}

void store_close(struct store *s)
{
	if (s == NULL)
		return;
	s->ops->close(s->state, s->tensors, s->tensor_count);
	free(s);
}

void store_create(struct store *s, struct tensor *const *tensors, size_t n, unsigned element_bytes)
{
	REQUIRE(s->tensors == NULL);
	for (size_t i = 0; i < n; i++)
		tensors[i]->bytes = tensors[i]->rows * tensors[i]->columns * element_bytes;
	s->ops->create(s->state, tensors, n, element_bytes);
	s->tensors = tensors;
	s->tensor_count = n;
}

void store_acquire(struct store *s, int place, struct use *uses, size_t n)
{
	uint64_t start_ns = now_ns();

	REQUIRE(n <= STORE_USES_MAX);
	s->ops->acquire(s->state, place, uses, n);
	for (size_t i = 0; i < n; i++)
		if (uses[i].tensor != NULL)
			REQUIRE((uintptr_t)uses[i].data % STORE_ALIGN == 0);
	s->acquire_ns += now_ns() - start_ns;
}

void store_release(struct store *s, struct use *uses, size_t n)
{
	s->ops->release(s->state, uses, n);
	for (size_t i = 0; i < n; i++)
		uses[i].data = NULL;
}

void store_write(struct store *s, int place, struct tensor *t, const void *from)
{
	s->ops->write(s->state, place, t, from);
}

void store_read(struct store *s, int place, struct tensor *t, void *to)
{
	s->ops->read(s->state, place, t, to);
}

void store_prefetch(struct store *s, int place, struct tensor *const *tensors, size_t n)
{
	s->ops->prefetch(s->state, place, tensors, n);
}

void store_evict(struct store *s, struct tensor *const *tensors, size_t n)
{
	s->ops->evict(s->state, tensors, n);
}

void store_step(struct store *s)
{
	s->ops->step(s->state);
}

uint64_t store_acquire_ns(const struct store *s)
{
	return s->acquire_ns;
}

bool store_stats(struct store *s, struct tierd_stats *ret)
{
	return s->ops->stats(s->state, ret);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the tensors of the model live: in tierd, or for the comparison in memory that holds all of
 * them. The model asks for what one operation needs, computes, and gives it back; it never sees
 * which of the two it runs on. Both hand out addresses aligned to STORE_ALIGN, so that the
 * arithmetic cannot tell either.
 *
 * A store for a GPU works in the order of the device's stream: acquire and release may return
 * before the stream gets there, and what they hand out is for work on that stream.
 *
 * A store that cannot serve ends the program with the sentence of the failure (fatal.h). One
 * thread.
 */
#ifndef TRAIN_GPT_STORE_H
#define TRAIN_GPT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/tierd.h"

#define STORE_ALIGN    512
#define STORE_USES_MAX 8

struct store;
struct device;

/* A matrix (a vector has one row). Name, class, rows and columns are the model's; the rest is the
 * store's. */
struct tensor {
	char name[40];
	enum tierd_class class_;
	uint64_t rows, columns, bytes;
	tierd_tensor handle; /* tierd */
	void *memory;        /* in memory, of the host or of a device */
};

/* One tensor for one operation. A use whose tensor is NULL is left out: `data` stays NULL. */
struct use {
	struct tensor *tensor;
	uint32_t access; /* enum tierd_access */
	void *data;      /* between store_acquire and store_release */
	struct tierd_view view;
};

static inline struct use use_read(struct tensor *t)
{
	return (struct use){ .tensor = t, .access = TIERD_READ };
}

static inline struct use use_update(struct tensor *t)
{
	return (struct use){ .tensor = t, .access = TIERD_READ | TIERD_WRITE };
}

/* The operation writes every byte before it reads any. */
static inline struct use use_overwrite(struct tensor *t)
{
	return (struct use){ .tensor = t, .access = TIERD_WRITE | TIERD_DISCARD };
}

/* How the two ends of a backend look; `state` is the backend's. */
struct store_ops {
	const char *name;
	void (*create)(void *state, struct tensor *const *tensors, size_t n,
		       unsigned element_bytes);
	void (*acquire)(void *state, int place, struct use *uses, size_t n);
	void (*release)(void *state, struct use *uses, size_t n);
	void (*write)(void *state, int place, struct tensor *t, const void *from);
	void (*read)(void *state, int place, struct tensor *t, void *to);
	void (*prefetch)(void *state, int place, struct tensor *const *tensors, size_t n);
	void (*evict)(void *state, struct tensor *const *tensors, size_t n);
	void (*step)(void *state);
	bool (*stats)(void *state, struct tierd_stats *ret);
	void (*close)(void *state, struct tensor *const *tensors, size_t n);
};

struct store *store_open_memory(void);
struct store *store_open_device(struct device *device);
/* `socket` as tierd_open(): NULL looks where the library looks. `device`: NULL where the CPU
 * computes. */
struct store *store_open_tierd(const char *socket, struct device *device);
/* Destroys the tensors that were created. NULL does nothing. */
void store_close(struct store *s);

/* Once; `tensors` stay the caller's and must outlive the store. They read as zeros until written.
 */
void store_create(struct store *s, struct tensor *const *tensors, size_t n, unsigned element_bytes);

/* All of `uses` (at most STORE_USES_MAX) together at a place; a tensor stands in them only once. */
void store_acquire(struct store *s, int place, struct use *uses, size_t n);
void store_release(struct store *s, struct use *uses, size_t n);

/* A whole tensor of a place from and to memory of the host; no use of it may be open. */
void store_write(struct store *s, int place, struct tensor *t, const void *from);
void store_read(struct store *s, int place, struct tensor *t, void *to);

/* Hints: needed next, earliest first; not needed soon. */
void store_prefetch(struct store *s, int place, struct tensor *const *tensors, size_t n);
void store_evict(struct store *s, struct tensor *const *tensors, size_t n);
/* One training step ended. */
void store_step(struct store *s);

/* Time spent inside store_acquire since the store was opened. */
uint64_t store_acquire_ns(const struct store *s);
/* False: no tierd stands behind, `ret` is untouched. */
bool store_stats(struct store *s, struct tierd_stats *ret);

/* For the backends. */
struct store *store_open(const struct store_ops *ops, void *state);

#endif

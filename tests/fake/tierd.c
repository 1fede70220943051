/* SPDX-License-Identifier: Apache-2.0
 *
 * A libtierd without a daemon for programs that use one: the strictest that tierd.h allows. A
 * tensor is at another address at each acquire; what was released is unmapped memory for the
 * sanitizers (freed) and otherwise overwritten; DISCARD hands out garbage; what was written through
 * a view acquired for reading stops the test. Aborts where a caller breaks the contract. One
 * thread.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/tierd.h"
#include "tests/fake/tierd.h"

#define ALIGN   512
#define GARBAGE 0xff /* a NaN in every floating type */

struct fake_tensor {
	char name[TIERD_NAME_MAX + 1];
	enum tierd_class class_;
	uint64_t bytes;
	unsigned char *kept, *lent; /* lent: to views, NULL when nobody has one */
	unsigned pins;
	int place;
	bool written, destroyed;
	void *stream; /* that the views are for, NULL: the CPU */
};

struct tierd {
	struct fake_tensor *tensors;
	size_t count;
	unsigned views;
	struct fake_tierd_counts counts;
};

static struct fake_tierd_counts last_counts;

struct fake_tierd_counts fake_tierd_counts(void)
{
	return last_counts;
}

#define EXPECT(expr)                                                                      \
	((expr) ? (void)0                                                                 \
		: (fprintf(stderr, "fake tierd: %s:%d: %s\n", __FILE__, __LINE__, #expr), \
		   abort()))

static const unsigned element_bytes[] = {
	[TIERD_U8] = 1,     [TIERD_I8] = 1,     [TIERD_I32] = 4,  [TIERD_I64] = 8,
	[TIERD_F16] = 2,    [TIERD_BF16] = 2,   [TIERD_F32] = 4,  [TIERD_F64] = 8,
	[TIERD_F8E4M3] = 1, [TIERD_F8E5M2] = 1, [TIERD_BOOL] = 1,
};

static unsigned char *bytes_new(uint64_t bytes)
{
	unsigned char *p = aligned_alloc(ALIGN, (bytes / ALIGN + 1) * ALIGN);

	EXPECT(p != NULL);
	return p;
}

static void bytes_free(unsigned char *p, uint64_t bytes)
{
	memset(p, GARBAGE, bytes);
	free(p);
}

int tierd_open(const char *socket_path, const char *name_space, uint64_t flags, struct tierd **ret)
{
	EXPECT(flags == 0);
	*ret = calloc(1, sizeof(**ret));
	EXPECT(*ret != NULL);
	return 0;
}

void tierd_close(struct tierd *t)
{
	if (t == NULL)
		return;
	EXPECT(t->views == 0);
	for (size_t i = 0; i < t->count; i++)
		if (!t->tensors[i].destroyed)
			bytes_free(t->tensors[i].kept, t->tensors[i].bytes);
	free(t->tensors);
	last_counts = t->counts;
	free(t);
}

const char *tierd_error(struct tierd *t)
{
	return "";
}

static void create_one(struct tierd *t, const struct tierd_spec *spec, tierd_tensor *ret)
{
	struct fake_tensor *f = &t->tensors[t->count];

	memset(f, 0, sizeof(*f));
	EXPECT(spec->ndim <= TIERD_NDIM_MAX && spec->flags == 0 && spec->class_ < TIERD_CLASSES);
	f->bytes = element_bytes[spec->dtype];
	for (uint32_t i = 0; i < spec->ndim; i++)
		f->bytes *= spec->shape[i];
	f->class_ = spec->class_;
	snprintf(f->name, sizeof(f->name), "%s", spec->name != NULL ? spec->name : "");
	for (size_t i = 0; spec->name != NULL && i < t->count; i++)
		EXPECT(t->tensors[i].destroyed || strcmp(t->tensors[i].name, f->name) != 0);
	f->kept = bytes_new(f->bytes);
	memset(f->kept, 0, f->bytes);
	t->counts.created[f->class_]++;
	*ret = (tierd_tensor){ (uint32_t)t->count++, 1 };
}

int tierd_create(struct tierd *t, const struct tierd_spec *specs, size_t n, tierd_tensor *ret)
{
	t->tensors = realloc(t->tensors, (t->count + n) * sizeof(*t->tensors));
	EXPECT(t->tensors != NULL);
	for (size_t i = 0; i < n; i++)
		create_one(t, &specs[i], &ret[i]);
	return 0;
}

static struct fake_tensor *find(struct tierd *t, tierd_tensor handle)
{
	EXPECT(handle.index < t->count && handle.generation == 1);
	EXPECT(!t->tensors[handle.index].destroyed);
	return &t->tensors[handle.index];
}

int tierd_destroy(struct tierd *t, const tierd_tensor *tensors, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct fake_tensor *f = find(t, tensors[i]);

		EXPECT(f->pins == 0);
		bytes_free(f->kept, f->bytes);
		f->destroyed = true;
	}
	return 0;
}

int tierd_acquire(struct tierd *t, tierd_tensor tensor, int place, uint32_t access,
		  int64_t timeout_ns, struct tierd_view *ret)
{
	struct fake_tensor *f = find(t, tensor);

	EXPECT((access & (TIERD_READ | TIERD_WRITE)) != 0);
	EXPECT((access & TIERD_DISCARD) == 0 || access == (TIERD_WRITE | TIERD_DISCARD));
	EXPECT(f->pins == 0 || f->place == place);
	EXPECT(f->pins == 0 || (access & TIERD_DISCARD) == 0);
	if (f->pins++ == 0) {
		f->lent = bytes_new(f->bytes);
		memcpy(f->lent, f->kept, f->bytes);
	}
	if ((access & TIERD_DISCARD) != 0)
		memset(f->lent, GARBAGE, f->bytes);
	f->written = f->written || (access & TIERD_WRITE) != 0;
	f->place = place;
	t->views++;
	t->counts.acquired[f->class_]++;
	*ret = (struct tierd_view){
		.data = f->lent,
		.bytes = f->bytes,
		.tensor = tensor,
		.place = place,
		.access = access,
		.cookie = 1,
	};
	return 0;
}

int tierd_acquire_batch(struct tierd *t, const tierd_tensor *tensors, size_t n, int place,
			uint32_t access, int64_t timeout_ns, struct tierd_view *ret)
{
	EXPECT(n <= TIERD_BATCH_MAX);
	for (size_t i = 0; i < n; i++)
		tierd_acquire(t, tensors[i], place, access, timeout_ns, &ret[i]);
	return 0;
}

static void release(struct tierd *t, struct tierd_view *view)
{
	struct fake_tensor *f = find(t, view->tensor);

	EXPECT(f->pins > 0 && t->views > 0 && view->data == f->lent);
	t->views--;
	if (--f->pins == 0) {
		EXPECT(f->written || memcmp(f->lent, f->kept, f->bytes) == 0);
		memcpy(f->kept, f->lent, f->bytes);
		bytes_free(f->lent, f->bytes);
		f->lent = NULL;
		f->written = false;
	}
	*view = (struct tierd_view){ 0 };
}

void tierd_release(struct tierd *t, struct tierd_view *view)
{
	if (view->cookie == 0)
		return;
	EXPECT(find(t, view->tensor)->stream == NULL);
	release(t, view);
}

int tierd_acquire_on(struct tierd *t, const tierd_tensor *tensors, size_t n, int gpu,
		     uint32_t access, void *cuda_stream, struct tierd_view *ret)
{
	EXPECT(gpu >= 0 && cuda_stream != NULL);
	for (size_t i = 0; i < n; i++)
		EXPECT(find(t, tensors[i])->pins == 0 ||
		       find(t, tensors[i])->stream == cuda_stream);
	tierd_acquire_batch(t, tensors, n, gpu, access, -1, ret);
	for (size_t i = 0; i < n; i++)
		find(t, tensors[i])->stream = cuda_stream;
	t->counts.on_stream += n;
	return 0;
}

/* What was put on the stream has been done: its device computes at once (tests/fake/device.c). */
int tierd_release_on(struct tierd *t, struct tierd_view *views, size_t n, void *cuda_stream)
{
	for (size_t i = 0; i < n; i++) {
		struct fake_tensor *f = find(t, views[i].tensor);

		EXPECT(views[i].cookie != 0 && f->stream == cuda_stream);
		if (f->pins == 1)
			f->stream = NULL;
		release(t, &views[i]);
	}
	return 0;
}

int tierd_copy_in(struct tierd *t, tierd_tensor tensor, uint64_t offset, const void *from,
		  uint64_t bytes)
{
	struct fake_tensor *f = find(t, tensor);

	EXPECT(f->pins == 0 && offset <= f->bytes && bytes <= f->bytes - offset);
	memcpy(f->kept + offset, from, bytes);
	return 0;
}

int tierd_copy_out(struct tierd *t, tierd_tensor tensor, uint64_t offset, void *to, uint64_t bytes)
{
	struct fake_tensor *f = find(t, tensor);

	EXPECT(f->pins == 0 && offset <= f->bytes && bytes <= f->bytes - offset);
	memcpy(to, f->kept + offset, bytes);
	return 0;
}

int tierd_prefetch(struct tierd *t, const tierd_tensor *tensors, size_t n, int place)
{
	for (size_t i = 0; i < n; i++)
		find(t, tensors[i]);
	t->counts.prefetched += n;
	return 0;
}

int tierd_evict(struct tierd *t, const tierd_tensor *tensors, size_t n)
{
	for (size_t i = 0; i < n; i++)
		find(t, tensors[i]);
	t->counts.evicted += n;
	return 0;
}

int tierd_step(struct tierd *t)
{
	t->counts.steps++;
	return 0;
}

int tierd_stats(struct tierd *t, struct tierd_stats *ret)
{
	*ret = (struct tierd_stats){ .tensors = t->count };
	ret->tier[TIERD_HBM].limit_bytes = 1 << 20;
	return 0;
}

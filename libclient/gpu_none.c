/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/gpu.h"

#include <errno.h>

static int none(struct err *err)
{
	return err_set(err, ENODEV, "this library was built without CUDA");
}

int gpu_count(int *ret, struct err *err)
{
	return none(err);
}

int gpu_uuid(int ordinal, uint8_t ret[16], struct err *err)
{
	return none(err);
}

int gpu_reserve(uint64_t bytes, void **ret, struct err *err)
{
	return none(err);
}

void gpu_unreserve(void *base, uint64_t bytes)
{
}

int gpu_map(int ordinal, int fd, void *at, uint64_t bytes, struct err *err)
{
	return none(err);
}

int gpu_unmap(void *at, uint64_t bytes, struct err *err)
{
	return none(err);
}

int gpu_stream_begin(void *stream, int ordinal, struct gpu_stream *ret, struct err *err)
{
	return none(err);
}

void gpu_stream_end(struct gpu_stream *s)
{
}

int gpu_stream_synchronize(struct gpu_stream *s, struct err *err)
{
	return none(err);
}

int gpu_stream_wait(struct gpu_stream *s, void *word, uint64_t value, struct err *err)
{
	return none(err);
}

int gpu_stream_write(struct gpu_stream *s, void *word, uint64_t value, struct err *err)
{
	return none(err);
}

int gpu_stream_up(struct gpu_stream *s, void *gpu, const void *host, uint64_t bytes,
		  struct err *err)
{
	return none(err);
}

int gpu_stream_down(struct gpu_stream *s, void *host, const void *gpu, uint64_t bytes,
		    struct err *err)
{
	return none(err);
}

int gpu_register(struct gpu_stream *s, void *base, uint64_t bytes, struct err *err)
{
	return none(err);
}

bool gpu_is_registered(struct gpu_stream *s, void *base)
{
	return false;
}

void gpu_unregister(int device, void *base)
{
}

int gpu_copy(int ordinal, void *to, const void *from, uint64_t bytes, bool up, struct err *err)
{
	return none(err);
}

bool gpu_is_lost(int device)
{
	return false;
}

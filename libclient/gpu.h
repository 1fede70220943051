/* SPDX-License-Identifier: Apache-2.0
 *
 * All that the library asks of the CUDA driver, so that the rest is the same with and without one:
 * gpu.c where configure found cuda.h, else gpu_none.c, in which everything is -ENODEV. The driver
 * is opened by the first call. A failure is 0 or -errno with its sentence, as cuda_check() has it;
 * the caller's current context is the same after every call, and what other streams of his are
 * capturing goes on. Any thread.
 */
#ifndef TIERD_CLIENT_GPU_H
#define TIERD_CLIENT_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* How many GPUs this process sees (its CUDA_VISIBLE_DEVICES), and which is which. */
int gpu_count(int *ret, struct err *err);
int gpu_uuid(int ordinal, uint8_t ret[16], struct err *err);

/* A range of addresses, slabs in it. The descriptor stays the caller's. What is mapped lives until
 * it is unmapped; nothing else holds it. */
int gpu_reserve(uint64_t bytes, void **ret, struct err *err);
void gpu_unreserve(void *base, uint64_t bytes);
int gpu_map(int ordinal, int fd, void *at, uint64_t bytes, struct err *err);
int gpu_unmap(void *at, uint64_t bytes, struct err *err);

/* A stream of the caller while a call uses it: between begin and end its context is current. In a
 * thread that has none yet, NULL is the legacy stream of GPU `ordinal`. -EBUSY: it is being
 * captured; -EINVAL: it is none. */
struct gpu_stream {
	void *handle;
	int lent; /* the device whose context was made current for the question, -1: none */
	uint64_t
		id; /* one id a stream in the life of the process, whatever becomes of the handle */
	int device; /* the stream's own; may be another than the one that was named: */
	int named;
	int capture_mode; /* of the thread, as it was */
};
int gpu_stream_begin(void *stream, int ordinal, struct gpu_stream *ret, struct err *err);
void gpu_stream_end(struct gpu_stream *s);
int gpu_stream_synchronize(struct gpu_stream *s, struct err *err);
/* `word` is in registered memory. The stream waits until it is greater or equal, or sets it. */
int gpu_stream_wait(struct gpu_stream *s, void *word, uint64_t value, struct err *err);
int gpu_stream_write(struct gpu_stream *s, void *word, uint64_t value, struct err *err);
/* Puts a copy on the stream: memory of the GPU from the host's, or back. */
int gpu_stream_up(struct gpu_stream *s, void *gpu, const void *host, uint64_t bytes,
		  struct err *err);
int gpu_stream_down(struct gpu_stream *s, void *host, const void *gpu, uint64_t bytes,
		    struct err *err);
/* For all GPUs of the process, in the stream's context. */
int gpu_register(struct gpu_stream *s, void *base, uint64_t bytes, struct err *err);
/* It is still: it ends with the context that did it. */
bool gpu_is_registered(struct gpu_stream *s, void *base);
/* `device` had the stream. */
void gpu_unregister(int device, void *base);

/* Copies and waits for it, beside all streams of the caller. One of both is the GPU's. */
int gpu_copy(int ordinal, void *to, const void *from, uint64_t bytes, bool up, struct err *err);
/* Nothing that was put on this device will run any more. */
bool gpu_is_lost(int device);

#endif

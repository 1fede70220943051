/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA driver on host memory, for machines without a GPU: the library libcudafake.so serves every
 * entry point of base/cuda.h as strictly as the real one or stricter. TIERD_LIBCUDA names it for
 * whole processes. A unit test links it and steers it by the functions below; cuda_open() then
 * opens the same instance, because it is the same file.
 *
 * - Device pointers are host pointers, so a test reads what "the GPU" holds. Those that
 *   cuMemHostGetDevicePointer() returns are not: see fake_cuda_host().
 * - Work is asynchronous: bytes move when an operation is stepped, never at the call. From when an
 *   operation may start until it ends, its destination holds FAKE_CUDA_POISON; its source is read
 *   when it ends. A step takes one of all operations that order, events and words permit, by a
 * seed.
 * - Memory of a handle is a memfd, so that it crosses processes. It is counted against its device
 * by the process that made it, until handle and mappings there are gone; importers count nothing.
 * - New memory of a handle begins with poison in the first page of every 2 MiB, that of an
 *   allocation is all poison.
 * - In a child that was forked after cuInit() every call is CUDA_ERROR_NOT_INITIALIZED.
 *
 * Variables of whole processes, read at the first call:
 *   FAKE_CUDA_DEVICES  how many devices there are (1); CUDA_VISIBLE_DEVICES chooses among them
 *   FAKE_CUDA_BYTES    memory of each (4294967296)
 *   FAKE_CUDA_INTEGRATED  1: its memory is the host's, they say (0; read whenever it is asked)
 *   FAKE_CUDA_PIN_BYTES  how much host memory can be pinned (all; read whenever some is)
 *   FAKE_CUDA_VERSION  of the driver (13000)
 *   FAKE_CUDA_SEED     of the thread that steps (1)
 *   FAKE_CUDA_FAIL     CALL:NTH:RESULT[,...], as cuMemCreate:3:2: the third call is out of memory
 *   FAKE_CUDA_LOSE     DEVICE:N: the device is lost when it has done N copies
 *   FAKE_CUDA_REPORT   a folder: a process that ends leaves its counts there, in a file of its pid
 *   FAKE_CUDA_AUTO     0: nothing moves but by fake_cuda_step() and in calls that synchronize
 *
 * Any thread.
 */
#ifndef TIERD_TESTS_FAKE_CUDA_H
#define TIERD_TESTS_FAKE_CUDA_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_CUDA_POISON      0xa5
#define FAKE_CUDA_GRANULARITY ((size_t)2 << 20)

/* First thing of a test: from here on only steps move bytes, and cuda_open() opens this library. */
void fake_cuda_begin(void);
/* Of this library, absolute; for TIERD_LIBCUDA. */
const char *fake_cuda_path(void);
/* Does one operation that may go, which one by `seed`; false: none may. */
bool fake_cuda_step(uint64_t seed);
/* Steps until none may go; returns how many did. */
uint64_t fake_cuda_run(uint64_t seed);

/* From now on a stream takes n operations, and a call that puts one more into it waits until one
 * has run, as the real driver's does (1024 there); 0, as at first: any number. */
void fake_cuda_queue(uint64_t n);
/* The nth call from now (1: the next) of "cuNAME" returns `result` and does nothing. */
void fake_cuda_fail(const char *call, uint64_t nth, CUresult result);
/* From now on all in the context of this device (a visible ordinal) returns `result`, what is
 * queued never runs. Only giving things back still gives them back. */
void fake_cuda_lose(int device, CUresult result);
/* A capture in the mode GLOBAL. Until it ends, a call of any thread that may be unsafe in one (all
 * that take, give back, map, wait or ask whether work is done) fails and spoils it, unless that
 * thread's mode is RELAXED; and so does one that the legacy stream would take part in, whatever the
 * mode. Returns, when it ends, whether it was spoilt. */
bool fake_cuda_capture(CUstream stream, bool capturing);

/* The word behind a pointer of cuMemHostGetDevicePointer(). */
void *fake_cuda_host(CUdeviceptr pointer);

/* What is alive now. */
struct fake_cuda_counts {
	uint64_t contexts; /* retained primary contexts, each retain once */
	uint64_t handles, reservations, mappings, allocations, registrations, modules;
	uint64_t streams, events;
	uint64_t queued;       /* operations that have not run */
	uint64_t copies;       /* done so far */
	uint64_t unregistered; /* copies from or to host memory that is not registered, so far */
	uint64_t exports, imports; /* so far */
};
struct fake_cuda_counts fake_cuda_counts(void);
/* How often "cuNAME" was called so far. */
uint64_t fake_cuda_calls(const char *call);
uint64_t fake_cuda_used_bytes(int device);

/* A kernel that cuModuleGetFunction() finds by its name in any module; "fill" and "compare" are
 * there. `sizes` of its parameters ends with 0. It runs as one call, in its place in the stream,
 * and may not call the driver. All are of the process and stay. */
#define FAKE_CUDA_PARAMS_MAX 8
struct fake_cuda_kernel {
	const char *name;
	void (*run)(void *const *params);
	unsigned char sizes[FAKE_CUDA_PARAMS_MAX + 1];
};
void fake_cuda_add_kernel(const struct fake_cuda_kernel *kernel);

#endif

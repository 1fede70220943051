/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's process in tests that have a GPU: a driver of its own (the fake one), streams, kernels
 * that write and check what a version of a tensor must be. No Check in it: what fails ends the
 * process with a sentence. One thread.
 */
#ifndef TIERD_TESTS_GPU_CLIENT_H
#define TIERD_TESTS_GPU_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cuda.h"
#include "libclient/tierd.h"

#define GPU_CLIENT_STREAMS 4u
#define GPU_CLIENT_WAIT_NS (60 * (int64_t)1000000000)

struct gpu_client {
	struct tierd *t;
	const struct cuda *cuda;
	int device;
	CUcontext context;
	CUstream stream[GPU_CLIENT_STREAMS];
	CUmodule module;
	CUfunction write, check;
	CUdeviceptr wrong; /* 64 bits: words that the checks found wrong */
	uint64_t random;
};

_Noreturn void gpu_client_died(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gpu_client_must(const struct gpu_client *c, int rc, const char *what);
void gpu_client_cu(CUresult result, const char *what);

/* Context, streams and kernels on a device; then the connection. */
void gpu_client_start(struct gpu_client *c, int device, uint64_t seed);
void gpu_client_open(struct gpu_client *c, const char *socket, uint64_t flags);
/* Fails where a check found something, then gives back all that the driver has given. */
void gpu_client_stop(struct gpu_client *c);
void gpu_client_checks_pass(struct gpu_client *c, const char *what);

uint64_t gpu_client_random(struct gpu_client *c, uint64_t below);

/* Bytes of a version: version 0 is zeros. */
void gpu_client_write_cpu(void *at, uint64_t bytes, uint64_t seed);
bool gpu_client_check_cpu(const void *at, uint64_t bytes, uint64_t offset, uint64_t seed);
/* Likewise by kernels on a stream. */
void gpu_client_write(struct gpu_client *c, const void *at, uint64_t bytes, uint64_t seed,
		      CUstream stream);
void gpu_client_check(struct gpu_client *c, const void *at, uint64_t bytes, uint64_t seed,
		      CUstream stream);

#endif

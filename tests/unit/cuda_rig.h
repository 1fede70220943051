/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake driver opened, and things of it, for unit tests. Each fails the test if it cannot.
 */
#ifndef TIERD_TESTS_CUDA_RIG_H
#define TIERD_TESTS_CUDA_RIG_H

#include "base/cuda.h"
#include "tests/fake/cuda/fake_cuda.h"

/* After begin() or open_fake(): the driver, and the context of device 0, current in this thread. */
extern const struct cuda *cuda;
extern CUcontext ctx;

/* Where TIERD_LIBCUDA leads; begin() sets it to the fake and lets nothing move but by steps. */
void open_fake(void);
void begin(void);

/* Slabs are of FAKE_CUDA_GRANULARITY bytes and can be exported. */
CUmemAllocationProp slab_prop(int device);
CUmemGenericAllocationHandle make_slab(void);
CUresult give_access(CUdeviceptr at, size_t bytes);
CUdeviceptr map_slab(CUmemGenericAllocationHandle handle); /* in a range of its own */
CUdeviceptr device_memory(size_t bytes);
unsigned char *host_memory(size_t bytes, unsigned char fill); /* shared with children */
unsigned char *pinned(size_t bytes, unsigned char fill);      /* the same, registered */
CUstream stream_new(void);                                    /* that does not block */
CUevent event_new(void);
bool is_all(const void *at, size_t bytes, unsigned char byte);

void send_fd(int socket, int fd); /* and closes it */
int receive_fd(int socket);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection of libtierd to a daemon in a thread, with a GPU of the fake driver: slabs in arena 1
 * and tensors in them. Each function fails the test if it cannot.
 */
#ifndef TIERD_TESTS_CLIENT_GPU_RIG_H
#define TIERD_TESTS_CLIENT_GPU_RIG_H

#include "libclient/client.h"
#include "tests/unit/cuda_rig.h"
#include "tests/unit/fake_daemon.h"

#define SLAB FAKE_CUDA_GRANULARITY

extern struct fake fake;
extern struct tierd *t;
extern CUmemGenericAllocationHandle memory[FAKE_SLABS]; /* 0: OP_SLAB fails */
extern CUstream stream;
extern uint64_t handles_before; /* of the driver, when the connection was opened */

/* near is in slab 0, far in slab 2, wide over slabs 4 and 5, host in dram and in its zone. */
extern const tierd_tensor near, far, wide, host;

void setup(void);
void setup_with(uint64_t flags);
void open_it(uint64_t flags);
/* Closes, and looks whether all of the driver was given back. */
void end(void);

void take(tierd_tensor h, int place, struct tierd_view *ret); /* to read */
uint32_t asked(uint16_t opcode);                              /* how often so far */
void wait_asked(uint16_t opcode, uint32_t n);
uint64_t slot(uint32_t index);
/* What the daemon's thread looks at, set while it does not. */
void answer_by(fake_answer *answer);
void memory_is(unsigned slab, CUmemGenericAllocationHandle handle);
int slab_fd(struct fake *f, uint64_t offset);

#endif

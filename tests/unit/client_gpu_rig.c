/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client_gpu_rig.h"

#include <sched.h>
#include <string.h>

#include "tests/unit/point.h"

struct fake fake;
struct tierd *t;
CUmemGenericAllocationHandle memory[FAKE_SLABS];
CUstream stream;
uint64_t handles_before;

const tierd_tensor near = { 1, 1 }, far = { 2, 1 }, wide = { 3, 1 }, host = { 4, 1 };

int slab_fd(struct fake *f, uint64_t offset)
{
	/* The daemon is a process of its own: captures of the client are nothing to it. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint64_t slab = offset / SLAB;
	int fd;

	if (memory[slab] == 0)
		return -1;
	ck_assert_int_eq(cuda->exchange_capture_mode(&mode), CUDA_SUCCESS);
	ck_assert_int_eq(
		cuda->mem_export(&fd, memory[slab], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		CUDA_SUCCESS);
	return fd;
}

void open_it(uint64_t flags)
{
	ck_assert_int_eq(tierd_open(fake.path, "job", flags, &t), 0);
}

void setup_with(uint64_t flags)
{
	CUuuid uuid;

	begin();
	ck_assert_int_eq(cuda->device_get_uuid(&uuid, 0), CUDA_SUCCESS);
	memcpy(fake.uuid, uuid.bytes, sizeof(fake.uuid));
	for (unsigned i = 0; i < FAKE_SLABS; i++)
		memory[i] = make_slab();
	stream = stream_new();
	fake.slab_bytes = SLAB;
	fake.slab_fd = slab_fd;
	fake.zone_bytes = 8 * FAKE_TENSOR_SIZE;
	fake_start(&fake);
	fake_gpu_tensor(&fake, 1, STATE_RESIDENT, 4096, 1000);
	fake_gpu_tensor(&fake, 2, STATE_RESIDENT, 2 * SLAB, 1000);
	fake_gpu_tensor(&fake, 3, STATE_RESIDENT, 5 * SLAB - 4096, 8192);
	fake_tensor(&fake, 4, 1, STATE_RESIDENT, PROTOCOL_PLACE_HOST, 0, 4096);
	fake_tensor(&fake, 20, 1, STATE_RESIDENT, PROTOCOL_PLACE_HOST, 0, 4096);
	handles_before = fake_cuda_counts().handles;
	open_it(flags);
}

void setup(void)
{
	setup_with(0);
}

void end(void)
{
	tierd_close(t);
	ck_assert_uint_eq(fake_cuda_counts().mappings, 0);
	ck_assert_uint_eq(fake_cuda_counts().reservations, 0);
	ck_assert_uint_eq(fake_cuda_counts().registrations, 0);
	ck_assert_uint_eq(fake_cuda_counts().contexts, 1);
	fake_stop(&fake);
}

void take(tierd_tensor h, int place, struct tierd_view *ret)
{
	ck_assert_msg(tierd_acquire(t, h, place, TIERD_READ, -1, ret) == 0, "%s", tierd_error(t));
}

uint32_t asked(uint16_t opcode)
{
	return fake_peek(&fake, &fake.counts[opcode]);
}

void wait_asked(uint16_t opcode, uint32_t n)
{
	while (asked(opcode) < n)
		sched_yield();
}

uint64_t slot(uint32_t index)
{
	return atomic_load(&fake.slots[index]);
}

void answer_by(fake_answer *answer)
{
	pthread_mutex_lock(&fake.lock);
	fake.answer = answer;
	pthread_mutex_unlock(&fake.lock);
}

void memory_is(unsigned slab, CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&fake.lock);
	memory[slab] = handle;
	pthread_mutex_unlock(&fake.lock);
}

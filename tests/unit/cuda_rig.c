/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/cuda_rig.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/point.h"

#define SLAB FAKE_CUDA_GRANULARITY

const struct cuda *cuda;
CUcontext ctx;

/* A context of device 0 is current. */
void open_fake(void)
{
	ck_assert_int_eq(cuda_open(&cuda, NULL), 0);
	ck_assert_int_eq(cuda->primary_ctx_retain(&ctx, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->ctx_set_current(ctx), CUDA_SUCCESS);
}

void begin(void)
{
	fake_cuda_begin();
	open_fake();
}

CUmemAllocationProp slab_prop(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
	};
}

CUresult give_access(CUdeviceptr at, size_t bytes)
{
	CUmemAccessDesc desc = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return cuda->mem_set_access(at, bytes, &desc, 1);
}

CUmemGenericAllocationHandle make_slab(void)
{
	CUmemAllocationProp prop = slab_prop(0);
	CUmemGenericAllocationHandle handle;

	ck_assert_int_eq(cuda->mem_create(&handle, SLAB, &prop, 0), CUDA_SUCCESS);
	return handle;
}

CUdeviceptr map_slab(CUmemGenericAllocationHandle handle)
{
	CUdeviceptr at;

	ck_assert_int_eq(cuda->mem_address_reserve(&at, SLAB, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuda->mem_map(at, SLAB, 0, handle, 0), CUDA_SUCCESS);
	ck_assert_int_eq(give_access(at, SLAB), CUDA_SUCCESS);
	return at;
}

CUdeviceptr device_memory(size_t bytes)
{
	CUdeviceptr at;

	ck_assert_int_eq(cuda->mem_alloc(&at, bytes), CUDA_SUCCESS);
	return at;
}

unsigned char *host_memory(size_t bytes, unsigned char fill)
{
	unsigned char *at =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert(at != MAP_FAILED);
	memset(at, fill, bytes);
	return at;
}

unsigned char *pinned(size_t bytes, unsigned char fill)
{
	unsigned char *at = host_memory(bytes, fill);

	ck_assert_int_eq(cuda->mem_host_register(at, bytes, CU_MEMHOSTREGISTER_DEVICEMAP),
			 CUDA_SUCCESS);
	return at;
}

CUstream stream_new(void)
{
	CUstream stream;

	ck_assert_int_eq(cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
	return stream;
}

CUevent event_new(void)
{
	CUevent event;

	ck_assert_int_eq(cuda->event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
	return event;
}

bool is_all(const void *at, size_t bytes, unsigned char byte)
{
	const unsigned char *data = at;

	for (size_t i = 0; i < bytes; i++)
		if (data[i] != byte)
			return false;
	return true;
}

union fd_message {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

void send_fd(int socket, int fd)
{
	union fd_message control = { .bytes = { 0 } };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(socket, &message, 0), 1);
	close(fd);
}

int receive_fd(int socket)
{
	union fd_message control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	int fd;

	ck_assert_int_eq(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
	ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/gpu.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/cuda.h"

static_assert(sizeof(CUuuid) == 16, "as in the hello");

static CUdeviceptr address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* The driver, for calls that may be unsafe while any stream of the process is captured: they would
 * fail, and spoil that capture, though none of ours has to do with what is captured. */
static int relaxed_open(const struct cuda **ret, CUstreamCaptureMode *ret_was, struct err *err)
{
	int rc = cuda_open(ret, err);

	if (rc < 0)
		return rc;
	*ret_was = CU_STREAM_CAPTURE_MODE_RELAXED;
	(*ret)->exchange_capture_mode(ret_was);
	return 0;
}

static void relax_end(const struct cuda *cu, CUstreamCaptureMode was)
{
	cu->exchange_capture_mode(&was);
}

int gpu_count(int *ret, struct err *err)
{
	const struct cuda *cu;
	int rc = cuda_open(&cu, err);

	if (rc < 0)
		return rc;
	return cuda_check(cu, cu->device_get_count(ret), err, "cuDeviceGetCount");
}

int gpu_uuid(int ordinal, uint8_t ret[16], struct err *err)
{
	const struct cuda *cu;
	CUdevice device;
	CUuuid uuid;
	int rc = cuda_open(&cu, err);

	if (rc == 0)
		rc = cuda_check(cu, cu->device_get(&device, ordinal), err, "GPU %d", ordinal);
	if (rc == 0)
		rc = cuda_check(cu, cu->device_get_uuid(&uuid, device), err, "UUID of GPU %d",
				ordinal);
	if (rc == 0)
		memcpy(ret, uuid.bytes, sizeof(uuid.bytes));
	return rc;
}

/* ---- slabs: these calls need no context ---- */

int gpu_reserve(uint64_t bytes, void **ret, struct err *err)
{
	const struct cuda *cu;
	CUstreamCaptureMode mode;
	CUdeviceptr base;
	int rc = relaxed_open(&cu, &mode, err);

	if (rc < 0)
		return rc;
	rc = cuda_check(cu, cu->mem_address_reserve(&base, bytes, 0, 0, 0), err,
			"reserving %llu bytes of addresses", (unsigned long long)bytes);
	relax_end(cu, mode);
	if (rc == 0)
		*ret = (void *)(uintptr_t)base;
	return rc;
}

void gpu_unreserve(void *base, uint64_t bytes)
{
	const struct cuda *cu;
	CUstreamCaptureMode mode;

	if (relaxed_open(&cu, &mode, NULL) < 0)
		return;
	cu->mem_address_free(address(base), bytes);
	relax_end(cu, mode);
}

static int map_handle(const struct cuda *cu, int ordinal, CUmemGenericAllocationHandle handle,
		      void *at, uint64_t bytes, struct err *err)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						 .id = ordinal },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	int rc = cuda_check(cu, cu->mem_map(address(at), bytes, 0, handle, 0), err,
			    "mapping a slab of %llu bytes", (unsigned long long)bytes);

	if (rc < 0)
		return rc;
	rc = cuda_check(cu, cu->mem_set_access(address(at), bytes, &access, 1), err,
			"access of GPU %d to a slab", ordinal);
	if (rc < 0)
		cu->mem_unmap(address(at), bytes);
	return rc;
}

static int map_fd(const struct cuda *cu, int ordinal, int fd, void *at, uint64_t bytes,
		  struct err *err)
{
	CUmemGenericAllocationHandle handle;
	int rc = cuda_check(cu,
			    cu->mem_import(&handle, (void *)(uintptr_t)fd,
					   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
			    err, "importing a slab of %llu bytes", (unsigned long long)bytes);

	if (rc < 0)
		return rc;
	rc = map_handle(cu, ordinal, handle, at, bytes, err);
	/* From here on the mapping alone holds the memory. */
	cu->mem_release(handle);
	return rc;
}

int gpu_map(int ordinal, int fd, void *at, uint64_t bytes, struct err *err)
{
	const struct cuda *cu;
	CUstreamCaptureMode mode;
	int rc = relaxed_open(&cu, &mode, err);

	if (rc < 0)
		return rc;
	rc = map_fd(cu, ordinal, fd, at, bytes, err);
	relax_end(cu, mode);
	return rc;
}

int gpu_unmap(void *at, uint64_t bytes, struct err *err)
{
	const struct cuda *cu;
	CUstreamCaptureMode mode;
	int rc = relaxed_open(&cu, &mode, err);

	if (rc < 0)
		return rc;
	rc = cuda_check(cu, cu->mem_unmap(address(at), bytes), err,
			"unmapping a slab of %llu bytes", (unsigned long long)bytes);
	relax_end(cu, mode);
	return rc;
}

/* ---- contexts ---- */

static int primary_begin(const struct cuda *cu, CUdevice device, struct err *err)
{
	CUcontext context;
	int rc = cuda_check(cu, cu->primary_ctx_retain(&context, device), err, "context of GPU %d",
			    device);

	if (rc < 0)
		return rc;
	rc = cuda_check(cu, cu->ctx_push(context), err, "context of GPU %d", device);
	if (rc < 0)
		cu->primary_ctx_release(device);
	return rc;
}

static void primary_end(const struct cuda *cu, CUdevice device)
{
	CUcontext context;

	cu->ctx_pop(&context);
	cu->primary_ctx_release(device);
}

/* Makes the primary context of `device` current where none is. */
static int context_begin(const struct cuda *cu, CUdevice device, bool *ret_pushed, struct err *err)
{
	CUcontext context = NULL;
	int rc;

	*ret_pushed = false;
	if (cu->ctx_get_current(&context) == CUDA_SUCCESS && context != NULL)
		return 0;
	rc = primary_begin(cu, device, err);
	*ret_pushed = rc == 0;
	return rc;
}

static void context_end(const struct cuda *cu, CUdevice device, bool pushed)
{
	if (pushed)
		primary_end(cu, device);
}

/* ---- streams ---- */

static int refuse_capture(const struct cuda *cu, CUstream stream, struct err *err)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = cu->stream_is_capturing(stream, &status);

	/* IMPLICIT: the legacy stream, while another one that it would wait for is captured. */
	if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
	    (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE))
		return err_set(err, EBUSY, "the stream is being captured");
	return cuda_check(cu, result, err, "stream %p", (void *)stream);
}

static int stream_facts(const struct cuda *cu, struct gpu_stream *ret, struct err *err)
{
	unsigned long long id = 0;
	CUdevice device = 0;
	int rc = cuda_check(cu, cu->stream_get_id(ret->handle, &id), err, "id of stream %p",
			    ret->handle);

	if (rc == 0)
		rc = cuda_check(cu, cu->ctx_get_device(&device), err, "GPU of stream %p",
				ret->handle);
	ret->id = id;
	ret->device = device;
	return rc;
}

static int stream_enter(const struct cuda *cu, struct gpu_stream *s, struct err *err)
{
	CUcontext context;
	int rc = refuse_capture(cu, s->handle, err);

	if (rc == 0)
		rc = cuda_check(cu, cu->stream_get_ctx(s->handle, &context), err,
				"context of stream %p", s->handle);
	if (rc == 0)
		rc = cuda_check(cu, cu->ctx_push(context), err, "context of stream %p", s->handle);
	if (rc < 0)
		return rc;
	rc = stream_facts(cu, s, err);
	if (rc < 0)
		cu->ctx_pop(&context);
	return rc;
}

/* A handle that stands for a stream of whatever context is current. */
static bool needs_context(CUstream stream)
{
	return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* Any other stream knows its context, and none is made on a GPU that the process may not use. */
static int stream_begin(const struct cuda *cu, int ordinal, struct gpu_stream *s, struct err *err)
{
	CUdevice device;
	bool pushed = false;
	int rc = cuda_check(cu, cu->device_get(&device, ordinal), err, "GPU %d", ordinal);

	if (rc == 0 && needs_context(s->handle))
		rc = context_begin(cu, device, &pushed, err);
	if (rc < 0)
		return rc;
	s->named = device;
	rc = stream_enter(cu, s, err);
	if (rc < 0)
		context_end(cu, device, pushed);
	else if (pushed)
		s->lent = device;
	return rc;
}

int gpu_stream_begin(void *stream, int ordinal, struct gpu_stream *ret, struct err *err)
{
	struct gpu_stream s = { .handle = stream, .lent = -1 };
	const struct cuda *cu;
	CUstreamCaptureMode mode;
	int rc = relaxed_open(&cu, &mode, err);

	if (rc < 0)
		return rc;
	rc = stream_begin(cu, ordinal, &s, err);
	if (rc < 0) {
		relax_end(cu, mode);
		return rc;
	}
	s.capture_mode = (int)mode;
	*ret = s;
	return 0;
}

void gpu_stream_end(struct gpu_stream *s)
{
	const struct cuda *cu;
	CUcontext context;

	if (cuda_open(&cu, NULL) < 0)
		return;
	cu->ctx_pop(&context);
	context_end(cu, s->lent, s->lent >= 0);
	relax_end(cu, (CUstreamCaptureMode)s->capture_mode);
}

int gpu_stream_synchronize(struct gpu_stream *s, struct err *err)
{
	const struct cuda *cu;
	int rc = cuda_open(&cu, err);

	if (rc < 0)
		return rc;
	return cuda_check(cu, cu->stream_synchronize(s->handle), err, "stream %p", s->handle);
}

static int device_pointer(const struct cuda *cu, void *word, CUdeviceptr *ret, struct err *err)
{
	return cuda_check(cu, cu->mem_host_get_device_pointer(ret, word, 0), err,
			  "a fence's address on the GPU");
}

int gpu_stream_wait(struct gpu_stream *s, void *word, uint64_t value, struct err *err)
{
	const struct cuda *cu;
	CUdeviceptr at;
	int rc = cuda_open(&cu, err);

	if (rc == 0)
		rc = device_pointer(cu, word, &at, err);
	if (rc < 0)
		return rc;
	return cuda_check(cu,
			  cu->stream_wait_value64(s->handle, at, value, CU_STREAM_WAIT_VALUE_GEQ),
			  err, "wait of stream %p", s->handle);
}

int gpu_stream_write(struct gpu_stream *s, void *word, uint64_t value, struct err *err)
{
	const struct cuda *cu;
	CUdeviceptr at;
	int rc = cuda_open(&cu, err);

	if (rc == 0)
		rc = device_pointer(cu, word, &at, err);
	if (rc < 0)
		return rc;
	/* The default flag puts a system-wide fence before the write: all that the stream did is
	 * seen by whoever sees the word. */
	return cuda_check(
		cu, cu->stream_write_value64(s->handle, at, value, CU_STREAM_WRITE_VALUE_DEFAULT),
		err, "release on stream %p", s->handle);
}

int gpu_stream_up(struct gpu_stream *s, void *gpu, const void *host, uint64_t bytes,
		  struct err *err)
{
	const struct cuda *cu;
	int rc = cuda_open(&cu, err);

	if (rc < 0)
		return rc;
	return cuda_check(cu, cu->memcpy_htod_async(address(gpu), host, bytes, s->handle), err,
			  "copy of %llu bytes to the GPU", (unsigned long long)bytes);
}

int gpu_stream_down(struct gpu_stream *s, void *host, const void *gpu, uint64_t bytes,
		    struct err *err)
{
	const struct cuda *cu;
	int rc = cuda_open(&cu, err);

	if (rc < 0)
		return rc;
	return cuda_check(cu, cu->memcpy_dtoh_async(host, address(gpu), bytes, s->handle), err,
			  "copy of %llu bytes from the GPU", (unsigned long long)bytes);
}

int gpu_register(struct gpu_stream *s, void *base, uint64_t bytes, struct err *err)
{
	const struct cuda *cu;
	int rc = cuda_open(&cu, err);

	if (rc < 0)
		return rc;
	return cuda_check(
		cu,
		cu->mem_host_register(base, bytes,
				      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
		err, "registering %llu bytes of host memory", (unsigned long long)bytes);
}

bool gpu_is_registered(struct gpu_stream *s, void *base)
{
	const struct cuda *cu;
	CUdeviceptr at;

	return cuda_open(&cu, NULL) == 0 && device_pointer(cu, base, &at, NULL) == 0;
}

void gpu_unregister(int device, void *base)
{
	const struct cuda *cu;
	CUstreamCaptureMode mode;
	bool pushed;

	if (relaxed_open(&cu, &mode, NULL) < 0)
		return;
	if (context_begin(cu, device, &pushed, NULL) == 0) {
		/* It may be gone already, with its context or with the driver at the process's end.
		 */
		cu->mem_host_unregister(base);
		context_end(cu, device, pushed);
	}
	relax_end(cu, mode);
}

/* ---- the library's own copies ---- */

static int copy_on(const struct cuda *cu, CUstream stream, void *to, const void *from,
		   uint64_t bytes, bool up, struct err *err)
{
	CUresult result = up ? cu->memcpy_htod_async(address(to), from, bytes, stream)
			     : cu->memcpy_dtoh_async(to, address(from), bytes, stream);
	int rc = cuda_check(cu, result, err, "copy of %llu bytes", (unsigned long long)bytes);

	/* Also after a failure: nothing of it may be under way any more. */
	result = cu->stream_synchronize(stream);
	if (rc == 0)
		rc = cuda_check(cu, result, err, "copy of %llu bytes", (unsigned long long)bytes);
	return rc;
}

/* On a stream of our own, in the primary context. */
static int copy_in_context(const struct cuda *cu, int ordinal, void *to, const void *from,
			   uint64_t bytes, bool up, struct err *err)
{
	CUstream stream;
	CUdevice device;
	int rc = cuda_check(cu, cu->device_get(&device, ordinal), err, "GPU %d", ordinal);

	if (rc == 0)
		rc = primary_begin(cu, device, err);
	if (rc < 0)
		return rc;
	rc = cuda_check(cu, cu->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0), err,
			"a stream on GPU %d", ordinal);
	if (rc == 0) {
		rc = copy_on(cu, stream, to, from, bytes, up, err);
		cu->stream_destroy(stream);
	}
	primary_end(cu, device);
	return rc;
}

int gpu_copy(int ordinal, void *to, const void *from, uint64_t bytes, bool up, struct err *err)
{
	const struct cuda *cu;
	CUstreamCaptureMode mode;
	int rc = relaxed_open(&cu, &mode, err);

	if (rc < 0)
		return rc;
	rc = copy_in_context(cu, ordinal, to, from, bytes, up, err);
	relax_end(cu, mode);
	return rc;
}

/* A stream of our own is asked: the legacy one would spoil a capture, whatever the mode. */
static bool context_is_lost(const struct cuda *cu, CUdevice device)
{
	CUstream stream;
	CUresult result;
	int rc = primary_begin(cu, device, NULL);

	if (rc < 0)
		return rc == -ENODEV;
	result = cu->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0);
	if (result == CUDA_SUCCESS) {
		result = cu->stream_query(stream);
		cu->stream_destroy(stream);
	}
	primary_end(cu, device);
	return cuda_is_lost(result);
}

bool gpu_is_lost(int device)
{
	const struct cuda *cu;
	CUstreamCaptureMode mode;
	bool lost;

	if (relaxed_open(&cu, &mode, NULL) < 0)
		return true;
	lost = context_is_lost(cu, device);
	relax_end(cu, mode);
	return lost;
}

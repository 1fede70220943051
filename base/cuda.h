/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA driver, opened at run time: a table of its entry points and one funnel from its results
 * to -errno and a sentence. Nothing links against the driver, so the same programs run where there
 * is none. In the tree only where configure found cuda.h (HAVE_CUDA). Any thread.
 */
#ifndef TIERD_BASE_CUDA_H
#define TIERD_BASE_CUDA_H

#include <cuda.h>
#include <stdbool.h>

#include "base/err.h"

/* X(member, symbol, CUDA version in which this form of it appeared). The type is that of the symbol
 * in cuda.h, where its macros name the same form. */
#define CUDA_ENTRY_POINTS(X)                                                    \
	X(init, cuInit, 2000)                                                   \
	X(driver_get_version, cuDriverGetVersion, 2020)                         \
	X(get_error_name, cuGetErrorName, 6000)                                 \
	X(get_error_string, cuGetErrorString, 6000)                             \
	X(device_get_count, cuDeviceGetCount, 2000)                             \
	X(device_get, cuDeviceGet, 2000)                                        \
	X(device_get_name, cuDeviceGetName, 2000)                               \
	X(device_get_uuid, cuDeviceGetUuid, 11040)                              \
	X(device_get_attribute, cuDeviceGetAttribute, 2000)                     \
	X(device_total_mem, cuDeviceTotalMem, 3020)                             \
	X(device_get_pci_bus_id, cuDeviceGetPCIBusId, 4010)                     \
	X(primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000)                   \
	X(primary_ctx_release, cuDevicePrimaryCtxRelease, 11000)                \
	X(ctx_push, cuCtxPushCurrent, 4000)                                     \
	X(ctx_pop, cuCtxPopCurrent, 4000)                                       \
	X(ctx_set_current, cuCtxSetCurrent, 4000)                               \
	X(ctx_get_current, cuCtxGetCurrent, 4000)                               \
	X(ctx_get_device, cuCtxGetDevice, 2000)                                 \
	X(ctx_synchronize, cuCtxSynchronize, 2000)                              \
	X(mem_get_info, cuMemGetInfo, 3020)                                     \
	X(mem_alloc, cuMemAlloc, 3020)                                          \
	X(mem_free, cuMemFree, 3020)                                            \
	X(mem_host_alloc, cuMemHostAlloc, 2020)                                 \
	X(mem_free_host, cuMemFreeHost, 2000)                                   \
	X(mem_host_register, cuMemHostRegister, 6050)                           \
	X(mem_host_unregister, cuMemHostUnregister, 4000)                       \
	X(mem_host_get_device_pointer, cuMemHostGetDevicePointer, 3020)         \
	X(mem_get_allocation_granularity, cuMemGetAllocationGranularity, 10020) \
	X(mem_address_reserve, cuMemAddressReserve, 10020)                      \
	X(mem_address_free, cuMemAddressFree, 10020)                            \
	X(mem_create, cuMemCreate, 10020)                                       \
	X(mem_release, cuMemRelease, 10020)                                     \
	X(mem_map, cuMemMap, 10020)                                             \
	X(mem_unmap, cuMemUnmap, 10020)                                         \
	X(mem_set_access, cuMemSetAccess, 10020)                                \
	X(mem_export, cuMemExportToShareableHandle, 10020)                      \
	X(mem_import, cuMemImportFromShareableHandle, 10020)                    \
	X(memcpy_htod_async, cuMemcpyHtoDAsync, 3020)                           \
	X(memcpy_dtoh_async, cuMemcpyDtoHAsync, 3020)                           \
	X(memcpy_dtod_async, cuMemcpyDtoDAsync, 3020)                           \
	X(memset_d8_async, cuMemsetD8Async, 3020)                               \
	X(stream_create, cuStreamCreateWithPriority, 5050)                      \
	X(stream_destroy, cuStreamDestroy, 4000)                                \
	X(stream_synchronize, cuStreamSynchronize, 2000)                        \
	X(stream_query, cuStreamQuery, 2000)                                    \
	X(stream_get_ctx, cuStreamGetCtx, 9020)                                 \
	X(stream_get_id, cuStreamGetId, 12000)                                  \
	X(stream_is_capturing, cuStreamIsCapturing, 10000)                      \
	X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, 10010)      \
	X(stream_wait_event, cuStreamWaitEvent, 3020)                           \
	X(stream_wait_value64, cuStreamWaitValue64, 11070)                      \
	X(stream_write_value64, cuStreamWriteValue64, 11070)                    \
	X(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, 5050)     \
	X(event_create, cuEventCreate, 2000)                                    \
	X(event_destroy, cuEventDestroy, 4000)                                  \
	X(event_record, cuEventRecord, 2000)                                    \
	X(event_query, cuEventQuery, 2000)                                      \
	X(event_synchronize, cuEventSynchronize, 2000)                          \
	X(event_elapsed_time, cuEventElapsedTime, 2000)                         \
	X(module_load_data, cuModuleLoadData, 2000)                             \
	X(module_unload, cuModuleUnload, 2000)                                  \
	X(module_get_function, cuModuleGetFunction, 2000)                       \
	X(launch_kernel, cuLaunchKernel, 4000)

struct cuda {
#define X(member, symbol, version) __typeof__(&symbol) member;
	CUDA_ENTRY_POINTS(X)
#undef X
	int driver_version; /* 13000: 13.0 */
	char opened[256];   /* the file, as it was named to dlopen() */
};

/* The driver's name for dlopen(), and the variable that names another one: the fake of the tests,
 * or a driver that is not on the loader's path. Ignored in set-uid programs. */
#define CUDA_LIBRARY          "libcuda.so.1"
#define CUDA_LIBRARY_VARIABLE "TIERD_LIBCUDA"
/* Older drivers lack entry points, or were slowed down by exported memory (525). */
#define CUDA_DRIVER_LEAST 12040

/* Opens the driver and calls cuInit() once a process; later calls return the same table or the same
 * failure. -ENODEV: no driver or no device, with what was looked for; -ENOTSUP: it is too old. The
 * table lives as long as the process. */
int cuda_open(const struct cuda **ret, struct err *err);

/* The funnel. 0 for CUDA_SUCCESS. Else -errno (-ENOMEM: out of memory; -ENODEV: the device or its
 * context is lost for good, see cuda_is_lost(); -EAGAIN: not ready; -EINVAL; else -EIO), and `err`
 * (may be NULL) says "<what>: CUDA_ERROR_NAME (its sentence)". A result is of the call that
 * returned it: none is kept for a later one. */
int cuda_check(const struct cuda *cuda, CUresult result, struct err *err, const char *fmt, ...)
	PRINTF(4, 5);
/* No later call in this context can succeed: a fault of a kernel, an uncorrectable ECC error, a
 * device that fell off the bus. */
bool cuda_is_lost(CUresult result);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/compiler.h"

/* Written once, by whoever comes first; read by all after that. */
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static struct cuda table;
static struct err failure;

/* dlsym() gives an object pointer; POSIX lets it be called, ISO C has no cast for it. */
union symbol {
	void *object;
	void (*function)(void);
	__typeof__(&cuGetProcAddress_v2) get_proc_address;
};

static int version_major(int version)
{
	return version / 1000;
}

static int version_minor(int version)
{
	return version % 1000 / 10;
}

/* It stays open whatever comes: threads of a driver may run in it. NULL: failed. */
static void *open_library(void)
{
	const char *name = secure_getenv(CUDA_LIBRARY_VARIABLE), *why;
	void *library;

	if (name == NULL || name[0] == '\0')
		name = CUDA_LIBRARY;
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		why = dlerror();
		(void)err_set(&failure, ENODEV,
			      "no CUDA driver: looked for %s (%s); /dev/nvidiactl is %s", name,
			      why == NULL ? "no reason given" : why,
			      access("/dev/nvidiactl", F_OK) == 0 ? "there" : "not there");
		return NULL;
	}
	snprintf(table.opened, sizeof(table.opened), "%s", name);
	return library;
}

/* `lacks` begins with a blank or is empty. */
static int too_old(const char *lacks)
{
	return err_set(
		&failure, ENOTSUP,
		"%s: the driver is of CUDA %d.%d%s; %d.%d or newer is needed (built with %d.%d)",
		table.opened, version_major(table.driver_version),
		version_minor(table.driver_version), lacks, version_major(CUDA_DRIVER_LEAST),
		version_minor(CUDA_DRIVER_LEAST), version_major(CUDA_VERSION),
		version_minor(CUDA_VERSION));
}

/* The form of `name` that `version` brought; the per-thread default streams are not ours. */
static int find(__typeof__(&cuGetProcAddress_v2) get, const char *name, int version,
		union symbol *ret)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	char lacks[96];

	ret->object = NULL;
	if (get(name, &ret->object, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) ==
		    CUDA_SUCCESS &&
	    status == CU_GET_PROC_ADDRESS_SUCCESS && ret->object != NULL)
		return 0;
	snprintf(lacks, sizeof(lacks), " and has no %s of CUDA %d.%d", name, version_major(version),
		 version_minor(version));
	return too_old(lacks);
}

static int fill_table(__typeof__(&cuGetProcAddress_v2) get)
{
	union symbol symbol;
	int code;

	code = find(get, "cuDriverGetVersion", 2020, &symbol);
	if (code < 0)
		return code;
	table.driver_get_version = (__typeof__(table.driver_get_version))symbol.function;
	if (table.driver_get_version(&table.driver_version) != CUDA_SUCCESS)
		table.driver_version = 0;
	if (table.driver_version < CUDA_DRIVER_LEAST)
		return too_old("");
#define X(member, name, version)                   \
	code = find(get, #name, version, &symbol); \
	if (code < 0)                              \
		return code;                       \
	table.member = (__typeof__(table.member))symbol.function;
	CUDA_ENTRY_POINTS(X)
#undef X
	return 0;
}

static void open_once(void)
{
	union symbol get;
	void *library = open_library();
	int count = 0, code;

	if (library == NULL)
		return;
	get.object = dlsym(library, "cuGetProcAddress_v2");
	if (get.object == NULL)
		(void)too_old(" and has no cuGetProcAddress_v2");
	else if (fill_table(get.get_proc_address) == 0) {
		code = cuda_check(&table, table.init(0), &failure, "%s: cuInit", table.opened);
		if (code == 0)
			code = cuda_check(&table, table.device_get_count(&count), &failure,
					  "%s: cuDeviceGetCount", table.opened);
		if (code == 0 && count == 0)
			code = err_set(&failure, ENODEV, "%s: it sees no GPU", table.opened);
		if (code == 0)
			return;
		failure.code = -ENODEV;
	}
}

int cuda_open(const struct cuda **ret, struct err *err)
{
	pthread_once(&opened, open_once);
	if (failure.code != 0)
		return err_set(err, -failure.code, "%s", failure.text);
	*ret = &table;
	return 0;
}

static int errno_of(CUresult result)
{
	if (cuda_is_lost(result))
		return ENODEV;
	switch (result) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return ENOMEM;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return ENODEV;
	case CUDA_ERROR_NOT_READY:
		return EAGAIN;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_CONTEXT:
		return EINVAL;
	default:
		return EIO;
	}
}

int cuda_check(const struct cuda *cuda, CUresult result, struct err *err, const char *fmt, ...)
{
	const char *name = NULL, *sentence = NULL;
	char what[ERR_TEXT_BYTES / 2];
	va_list ap;

	if (result == CUDA_SUCCESS)
		return 0;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	/* A result that is newer than the driver has neither. */
	if (cuda->get_error_name(result, &name) != CUDA_SUCCESS || name == NULL)
		name = "a result that the driver has no name for";
	if (cuda->get_error_string(result, &sentence) != CUDA_SUCCESS || sentence == NULL)
		sentence = "no sentence for it either";
	return err_set(err, errno_of(result), "%s: %s (%d: %s)", what, name, (int)result, sentence);
}

bool cuda_is_lost(CUresult result)
{
	/* Numbers where the oldest cuda.h that we build with has no name yet. */
	switch ((int)result) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case 226: /* CUDA_ERROR_CONTAINED */
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case 721: /* CUDA_ERROR_TENSOR_MEMORY_LEAK */
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
	case CUDA_ERROR_UNKNOWN: /* what a device off the bus gives, and nothing milder */
		return true;
	default:
		return false;
	}
}

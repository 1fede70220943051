/* SPDX-License-Identifier: Apache-2.0
 *
 * Which GPUs the configuration means. The control thread.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "tiers/gpu_inside.h"

/* The GPUs of the driver, by ordinal. A MIG instance is one, with a UUID of its own. */
struct seen {
	unsigned count;
	char uuid[GPUS_MAX][GPU_UUID_BYTES];
};

void gpu_uuid_text(const unsigned char uuid[16], char ret[GPU_UUID_BYTES])
{
	static const unsigned char dashes[] = { 4, 6, 8, 10 };
	char *at = ret + sprintf(ret, "GPU");

	for (unsigned i = 0, dash = 0; i < 16; i++) {
		if (i == 0 || (dash < ARRAY_SIZE(dashes) && dashes[dash] == i)) {
			dash += i > 0;
			*at++ = '-';
		}
		at += sprintf(at, "%02x", uuid[i]);
	}
	ASSERT(at - ret == GPU_UUID_BYTES - 1);
}

static int see(const struct cuda *cuda, struct seen *ret, struct err *err)
{
	int count = 0,
	    r = cuda_check(cuda, cuda->device_get_count(&count), err, "hbm: cuDeviceGetCount");

	if (r < 0)
		return r;
	if (count > GPUS_MAX)
		return err_set(err, ENOTSUP, "hbm: %d GPUs, more than %d", count, GPUS_MAX);
	ret->count = (unsigned)count;
	for (int i = 0; i < count; i++) {
		CUdevice device;
		CUuuid uuid;

		r = cuda_check(cuda, cuda->device_get(&device, i), err, "hbm: cuDeviceGet of %d",
			       i);
		if (r == 0)
			r = cuda_check(cuda, cuda->device_get_uuid(&uuid, device), err,
				       "hbm: cuDeviceGetUuid of %d", i);
		if (r < 0)
			return r;
		gpu_uuid_text((const unsigned char *)uuid.bytes, ret->uuid[i]);
	}
	return 0;
}

static bool is_all(const char *name)
{
	return strcmp(name, "all") == 0;
}

static bool is_ordinal(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits > 0 && digits <= 2 && name[digits] == '\0';
}

/* "MIG-" stands before the UUID of an instance. */
static bool is_uuid(const char *name)
{
	return strncasecmp(name, "GPU-", 4) == 0 || strncasecmp(name, "MIG-", 4) == 0;
}

static bool same_uuid(const char *name, const char *uuid)
{
	return is_uuid(name) && strcasecmp(name + 4, uuid + 4) == 0;
}

int gpu_check_names(const struct gpu_config *config, struct err *err)
{
	const struct gpu_name *names = config->devices.items;

	for (size_t i = 0; i < config->devices.count; i++) {
		const char *name = names[i].device;

		if (is_all(name) && config->devices.count > 1)
			return err_set(err, EINVAL, "devices: `all` stands alone");
		if (!is_all(name) && !is_ordinal(name) && !is_uuid(name))
			return err_set(err, EINVAL,
				       "devices: '%s' is no ordinal and no UUID (GPU-..., MIG-...)",
				       name);
		for (size_t k = 0; k < i; k++)
			if (strcasecmp(names[k].device, name) == 0)
				return err_set(err, EINVAL, "devices: '%s' stands twice", name);
	}
	return 0;
}

static int fail_unknown(const struct seen *seen, const char *name, struct err *err)
{
	char have[512] = "";
	size_t at = 0;

	for (unsigned i = 0; i < seen->count && at < sizeof(have); i++)
		at += (size_t)snprintf(have + at, sizeof(have) - at, "%s%u %s", i > 0 ? ", " : "",
				       i, seen->uuid[i]);
	return err_set(err, ENODEV, "hbm: there is no GPU '%s'; the driver has %u: %s", name,
		       seen->count, have);
}

/* The ordinal, or -ENODEV. */
static int find(const struct seen *seen, const char *name, struct err *err)
{
	for (unsigned i = 0; i < seen->count; i++)
		if (is_ordinal(name) ? (unsigned)atoi(name) == i : same_uuid(name, seen->uuid[i]))
			return (int)i;
	return fail_unknown(seen, name, err);
}

static int choose_all(const struct seen *seen, unsigned ret[GPUS_MAX])
{
	for (unsigned i = 0; i < seen->count; i++)
		ret[i] = i;
	return (int)seen->count;
}

int gpu_choose(const struct gpu_config *config, const struct cuda *cuda, unsigned ret[GPUS_MAX],
	       struct err *err)
{
	const struct gpu_name *names = config->devices.items;
	struct seen seen;
	unsigned n = 0;
	int r = see(cuda, &seen, err);

	if (r < 0)
		return r;
	if (config->devices.count == 0 || (config->devices.count == 1 && is_all(names[0].device)))
		return choose_all(&seen, ret);
	for (size_t i = 0; i < config->devices.count; i++) {
		if (strcmp(names[i].device, "all") == 0)
			return err_set(err, EINVAL, "hbm: `devices` names 'all' and others");
		r = find(&seen, names[i].device, err);
		if (r < 0)
			return r;
		for (unsigned k = 0; k < n; k++)
			if (ret[k] == (unsigned)r)
				return err_set(err, EINVAL, "hbm: the GPU '%s' is named twice",
					       names[i].device);
		ret[n++] = (unsigned)r;
	}
	return (int)n;
}

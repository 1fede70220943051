/* SPDX-License-Identifier: Apache-2.0
 *
 * Open and close of the cuda backend: the device is found and looked at, its context retained, the
 * addresses reserved. No memory of the device is taken before the first slab is wanted. The control
 * thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/nofile.h"
#include "base/plural.h"
#include "tiers/gpu_inside.h"
#include "tiers/topo.h"

#define SLAB_LEAST MIB(64)
#define SLAB_MOST  MIB(256) /* of the default */
/* What a context takes: 20 were seen. Without, the driver says "operating system". */
#define CONTEXT_FDS 24u
#define WORDS_BYTES KIB(4)
#define SLABS_MOST  65536u /* as many as a client takes (libclient/slab.c) */

static const struct config_row name_rows[] = {
	{ "device", CONFIG_TEXT, offsetof(struct gpu_name, device), NULL, NULL, NULL,
	  CONFIG_REQUIRED,
	  "`all` (alone), an ordinal of the driver after CUDA_VISIBLE_DEVICES, or a "
	  "UUID as `nvidia-smi -L` prints it (`GPU-...`, `MIG-...`).",
	  NULL, NULL },
	CONFIG_END
};
static const struct config_sub name_sub = { .rows = name_rows,
					    .size = sizeof(struct gpu_name),
					    .scalar_key = "device" };

/* clang-format off */
const struct config_row gpu_rows[] = {
	{ "devices", CONFIG_LIST, offsetof(struct gpu_config, devices), NULL, NULL, "16", 0,
	  "Which GPUs, not how many; empty: all that the driver shows. A MIG instance is a GPU.",
	  NULL, &name_sub },
	{ "size", CONFIG_BYTES, offsetof(struct gpu_config, size), NULL, "2MiB", NULL,
	  CONFIG_REQUIRED, "Bytes of each GPU's memory, or % of it; rounded down to whole slabs. "
	  "It is taken as it is wanted.", NULL, NULL },
	{ "slab", CONFIG_SIZE, offsetof(struct gpu_config, slab_bytes), NULL, "2MiB", "1GiB", 0,
	  "What is taken and given back at a time, a power of two. Not set: a quarter of `size`, "
	  "64MiB to 256MiB.", NULL, NULL },
	{ "spin", CONFIG_DURATION, offsetof(struct gpu_config, spin_ns), "0us", NULL, "1s", 0,
	  "How long a GPU's lane polls for work after its last copy before it sleeps: a core for "
	  "latency.", NULL, NULL },
	{ "scrub", CONFIG_BOOL, offsetof(struct gpu_config, scrub), "false", NULL, NULL, 0,
	  "Whether memory is zeroed when it is taken. The driver does that between processes; "
	  "beside `domains`, where it could pass from one to another within this one, tierd "
	  "always does.", NULL, NULL },
	FAULT_ROW(struct gpu_config),
	CONFIG_END
};
/* clang-format on */

struct gpu *gpu_of(struct tier *t)
{
	ASSERT(t != NULL && t->base.magic == TIER_MAGIC && t->base.ops == &gpu_ops);
	return (struct gpu *)t;
}

/* ---- results, on any thread ----------------------------------------------------------------- */

static const char *result_name(const struct cuda *cuda, CUresult result)
{
	const char *name = NULL;

	if (cuda->get_error_name(result, &name) != CUDA_SUCCESS || name == NULL)
		return "an unknown error";
	return name;
}

void gpu_lose(struct gpu *g, CUresult result)
{
	uint32_t none = CUDA_SUCCESS;
	char uuid[GPU_UUID_BYTES];

	if (!atomic_compare_exchange_strong(&g->lost, &none, (uint32_t)result))
		return;
	gpu_uuid_text(g->uuid, uuid);
	log_error(TIER, "%s: %s is lost: %s; nothing will be copied there any more", g->base.name,
		  uuid, result_name(g->cuda, result));
}

int gpu_check(struct gpu *g, CUresult result, struct err *err, const char *what)
{
	if (cuda_is_lost(result))
		gpu_lose(g, result);
	return cuda_check(g->cuda, result, err, "%s: %s", g->base.name, what);
}

void gpu_say(struct gpu *g, CUresult result, const char *what)
{
	struct err err = ERR_INIT;

	if (gpu_check(g, result, &err, what) < 0 && !gpu_is_lost(g))
		log_warn(TIER, "%s", err.text);
}

/* What is too long is cut off. */
static void say_cause(struct xfer *x, const char *fmt, ...) PRINTF(2, 3);
static void say_cause(struct xfer *x, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(x->cause, sizeof(x->cause), fmt, args);
	va_end(args);
}

static const char *const verbs[XFER_OPS] = {
	"read", "write", "zero", "copy", "sync", "backing", "unbacking", "pinning",
};

void gpu_refuse(struct gpu *g, struct xfer *x, int result, const char *why)
{
	ASSERT(result < 0);
	x->result = result;
	/* Which slab it was that there is no memory for says nothing: it would be so of any. */
	if (x->op == XFER_BACK)
		say_cause(x, "backing of %" PRIu64 " bytes: %s: %s", x->bytes, g->base.name, why);
	else
		say_cause(x, "%s of %" PRIu64 " bytes at 0x%" PRIx64 ": %s: %s", verbs[x->op],
			  x->bytes, x->offset, g->base.name, why);
}

void gpu_fail(struct gpu *g, struct xfer *x, CUresult result)
{
	if (gpu_is_lost(g))
		result = (CUresult)atomic_load(&g->lost);
	gpu_refuse(g, x, gpu_is_lost(g) ? -ENODEV : gpu_check(g, result, NULL, verbs[x->op]),
		   result_name(g->cuda, result));
}

/* ---- size ----------------------------------------------------------------------------------- */

uint64_t gpu_slab_bytes(uint64_t bytes)
{
	uint64_t slab = SLAB_MOST;

	while (slab > SLAB_LEAST && slab > bytes / 4)
		slab /= 2;
	return slab;
}

static int gpu_check_config(const void *config, struct err *err)
{
	const struct gpu_config *c = config;
	uint64_t slab = c->slab_bytes;

	if ((slab & (slab - 1)) != 0)
		return err_set(err, EINVAL, "slab: %" PRIu64 " bytes are no power of two", slab);
	if (c->size.permille == 0 && slab > c->size.bytes)
		return err_set(err, EINVAL,
			       "slab: %" PRIu64 " bytes are more than `size`, %" PRIu64, slab,
			       c->size.bytes);
	if (fault_check(&c->fault, TIER_KIND_HBM, true, err) < 0)
		return -EINVAL;
	return gpu_check_names(c, err);
}

static int check_slab(const struct cuda *cuda, CUdevice device, const char *name, uint64_t slab,
		      uint64_t bytes, struct err *err)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
	};
	size_t unit = 0;
	int r = cuda_check(cuda,
			   cuda->mem_get_allocation_granularity(&unit, &prop,
								CU_MEM_ALLOC_GRANULARITY_MINIMUM),
			   err, "%s: cuMemGetAllocationGranularity", name);

	if (r < 0)
		return r;
	if (slab % unit != 0)
		return err_set(err, EINVAL,
			       "%s: slab of %" PRIu64 " bytes: it must be a multiple of the "
			       "device's %zu",
			       name, slab, unit);
	if (slab > bytes)
		return err_set(err, EINVAL,
			       "%s: size of %" PRIu64 " bytes: it must hold a slab of %" PRIu64,
			       name, bytes, slab);
	if (bytes / slab > SLABS_MOST)
		return err_set(err, EINVAL,
			       "%s: size of %" PRIu64 " bytes: in slabs of %" PRIu64
			       " bytes there may be %u of them",
			       name, bytes, slab, SLABS_MOST);
	return 0;
}

int gpu_decide_size(const struct gpu_config *c, const struct cuda *cuda, CUdevice device,
		    const char *name, struct gpu_size *ret, struct err *err)
{
	uint64_t bytes = c->size.bytes, slab;
	size_t total = 0;
	int r = cuda_check(cuda, cuda->device_total_mem(&total, device), err,
			   "%s: cuDeviceTotalMem", name);

	if (r < 0)
		return r;
	if (c->size.permille != 0)
		bytes = total / 1000 * c->size.permille + total % 1000 * c->size.permille / 1000;
	if (bytes > total)
		return err_set(err, EINVAL, "%s: size of %" PRIu64 " bytes: the GPU has %zu", name,
			       bytes, total);
	slab = c->slab_bytes != 0 ? c->slab_bytes : gpu_slab_bytes(bytes);
	r = check_slab(cuda, device, name, slab, bytes, err);
	if (r == 0)
		*ret = (struct gpu_size){ bytes, slab };
	return r;
}

static int take_size(struct gpu *g, struct err *err)
{
	struct gpu_size size;
	int r = gpu_decide_size(g->config, g->cuda, g->device, g->base.name, &size, err);

	if (r < 0)
		return r;
	if (size.bytes % size.slab_bytes != 0)
		log_info(TIER, "%s: %" PRIu64 " bytes are %" PRIu64 " %s of %" PRIu64 " MiB",
			 g->base.name, size.bytes, size.bytes / size.slab_bytes,
			 PLURAL(size.bytes / size.slab_bytes, "slab", "slabs"),
			 size.slab_bytes >> 20);
	g->base.bytes = size.bytes - size.bytes % size.slab_bytes;
	g->base.slab_bytes = size.slab_bytes;
	return 0;
}

/* ---- the device ----------------------------------------------------------------------------- */

static const struct need {
	CUdevice_attribute attribute;
	bool wanted;
	const char *otherwise;
} needs[] = {
	/* One memory as two tiers would be given away twice. */
	{ CU_DEVICE_ATTRIBUTE_INTEGRATED, false,
	  "has no memory but the host's; leave tiers.hbm out" },
	{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, true,
	  "cannot do virtual memory" },
	{ CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, true,
	  "cannot do memory that is exported by descriptor" },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, true,
	  "cannot do writes of streams to memory" },
};

int gpu_check_needs(const struct cuda *cuda, CUdevice device, const char *name, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
		int has = 0;
		int r = cuda_check(cuda,
				   cuda->device_get_attribute(&has, needs[i].attribute, device),
				   err, "%s: cuDeviceGetAttribute", name);

		if (r < 0)
			return r;
		if ((has != 0) != needs[i].wanted)
			return err_set(err, ENOTSUP, "%s: GPU %d %s", name, (int)device,
				       needs[i].otherwise);
	}
	return 0;
}

static int find_device(struct gpu *g, struct err *err)
{
	const struct cuda *cuda = g->cuda;
	const char *name = g->base.name;
	CUuuid uuid;
	int r = cuda_check(cuda, cuda->device_get(&g->device, (int)g->ordinal), err,
			   "%s: cuDeviceGet of %u", name, g->ordinal);

	if (r == 0)
		r = cuda_check(cuda, cuda->device_get_uuid(&uuid, g->device), err,
			       "%s: cuDeviceGetUuid", name);
	if (r == 0)
		r = cuda_check(
			cuda,
			cuda->device_get_pci_bus_id(g->base.pci, sizeof(g->base.pci), g->device),
			err, "%s: cuDeviceGetPCIBusId", name);
	if (r < 0)
		return r;
	memcpy(g->uuid, uuid.bytes, sizeof(g->uuid));
	if (g->topo != NULL && g->topo->numa)
		g->node = topo_pci_node(g->topo, g->base.pci);
	return gpu_check_needs(g->cuda, g->device, g->base.name, err);
}

static void say_chosen(struct gpu *g)
{
	char name[96] = "", uuid[GPU_UUID_BYTES];
	int version = g->cuda->driver_version, n;
	struct err err = ERR_INIT;

	if (gpu_check(g, g->cuda->device_get_name(name, sizeof(name), g->device), &err,
		      "cuDeviceGetName") < 0)
		snprintf(name, sizeof(name), "a GPU without a name");
	gpu_uuid_text(g->uuid, uuid);
	n = snprintf(g->base.chosen, sizeof(g->base.chosen),
		     "%.80s, %s, driver %d.%d, slabs of %" PRIu64 " MiB, %d streams", name, uuid,
		     version / 1000, version % 1000 / 10, g->base.slab_bytes >> 20, GPU_STREAMS);
	if (g->node >= 0)
		snprintf(g->base.chosen + n, sizeof(g->base.chosen) - (size_t)n, ", node %d",
			 g->node);
}

/* Words, a block of zeros, one of ones, a bounce buffer a stream. Taken now and not when the lane
 * starts: where little can be pinned, those that start earlier register all there is, of dram that
 * could do without. */
static int block_take(struct gpu *g, struct err *err)
{
	struct topo_policy was;
	void *block = NULL;
	CUresult result;
	int r;

	topo_take_from(g->topo, g->node, &was);
	result = g->cuda->mem_host_alloc(&block, WORDS_BYTES + (2 + GPU_STREAMS) * GPU_BLOCK,
					 CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	topo_take_end(&was);
	r = gpu_check(g, result, err, "cuMemHostAlloc");
	if (r < 0)
		return r;
	g->block = block;
	g->zeros = g->block + WORDS_BYTES;
	g->ones = g->zeros + GPU_BLOCK;
	memset(g->zeros, 0, GPU_BLOCK);
	memset(g->ones, 0xff, GPU_BLOCK);
	return 0;
}

static int reserve(struct gpu *g, struct err *err)
{
	const struct cuda *cuda = g->cuda;
	CUcontext was;
	int r = gpu_check(g, cuda->ctx_push(g->context), err, "cuCtxPushCurrent");

	if (r < 0)
		return r;
	r = block_take(g, err);
	if (r == 0)
		r = gpu_check(g, cuda->mem_address_reserve(&g->range, g->base.bytes, 0, 0, 0), err,
			      "cuMemAddressReserve");
	if (r < 0 && g->block != NULL)
		gpu_say(g, cuda->mem_free_host(g->block), "cuMemFreeHost");
	gpu_say(g, cuda->ctx_pop(&was), "cuCtxPopCurrent");
	return r;
}

/* ---- open and close ------------------------------------------------------------------------- */

static struct gpu *create(const struct gpu_config *config, const struct cuda *cuda, unsigned index)
{
	struct gpu *g = heap_zeros(1, sizeof(*g));

	if (g == NULL)
		return NULL;
	g->base.magic = TIER_MAGIC;
	g->base.ops = &gpu_ops;
	g->base.kind = TIER_KIND_HBM;
	g->base.alignment = 1;
	g->base.on_demand = true;
	g->base.ahead_bytes = GPU_AHEAD;
	snprintf(g->base.name, sizeof(g->base.name), "hbm%u", index);
	g->config = config;
	g->cuda = cuda;
	g->node = -1;
	list_init(&g->memory.pinned);
	list_init(&g->unpinned);
	return g;
}

static void destroy(struct gpu *g)
{
	heap_free(g->slabs);
	g->base.magic = 0;
	heap_free(g);
}

static int make_slabs(struct gpu *g, struct err *err)
{
	uint64_t count = g->base.bytes / g->base.slab_bytes;

	g->slabs = heap_zeros(count, sizeof(*g->slabs));
	if (g->slabs == NULL)
		return err_set(err, ENOMEM, "%s: no memory for its slabs", g->base.name);
	for (uint64_t i = 0; i < count; i++)
		g->slabs[i].fd = -1;
	g->base.later_fds = (uint32_t)count;
	return 0;
}

/* Its first memory: of many GPUs it may be one that fails, and people know that by its UUID. */
static int take_device(struct gpu *g, struct err *err)
{
	char uuid[GPU_UUID_BYTES];
	int r = gpu_check(g, g->cuda->primary_ctx_retain(&g->context, g->device), err,
			  "cuDevicePrimaryCtxRetain");

	if (r == 0) {
		r = reserve(g, err);
		if (r < 0)
			gpu_say(g, g->cuda->primary_ctx_release(g->device),
				"cuDevicePrimaryCtxRelease");
	}
	if (r == 0)
		return 0;
	gpu_uuid_text(g->uuid, uuid);
	return err_prefix(err, "GPU %u, %s", g->ordinal, uuid);
}

static int open_device(struct gpu *g, struct err *err)
{
	int r = find_device(g, err);

	if (r == 0)
		r = take_size(g, err);
	if (r == 0)
		r = make_slabs(g, err);
	if (r == 0)
		r = nofile_check(g->base.name, CONTEXT_FDS, err);
	return r == 0 ? take_device(g, err) : r;
}

static int gpu_count(const void *config, struct err *err)
{
	unsigned ordinals[GPUS_MAX];
	const struct cuda *cuda;
	int r = cuda_open(&cuda, err);

	if (r < 0) {
		err_prefix(err, "hbm");
		return r;
	}
	return gpu_choose(config, cuda, ordinals, err);
}

static void gpu_close(struct tier *t);

static int gpu_open(const void *config, unsigned index, const struct topology *topo,
		    struct tier **ret, struct err *err)
{
	const struct gpu_config *c = config;
	unsigned ordinals[GPUS_MAX];
	const struct cuda *cuda;
	struct gpu *g;
	int r = cuda_open(&cuda, err);

	if (r < 0) {
		err_prefix(err, "hbm");
		return r;
	}
	r = gpu_choose(c, cuda, ordinals, err);
	if (r < 0)
		return r;
	ASSERT(index < (unsigned)r);
	g = create(c, cuda, index);
	if (g == NULL)
		return err_set(err, ENOMEM, "hbm%u: no memory", index);
	g->ordinal = ordinals[index];
	g->topo = topo;
	r = open_device(g, err);
	if (r < 0) {
		destroy(g);
		return r;
	}
	say_chosen(g);
	*ret = (struct tier *)g;
	if (!c->fault.presence.present)
		return 0;
	r = fault_wrap((struct tier *)g, &c->fault, ret, err);
	if (r < 0)
		gpu_close((struct tier *)g);
	return r;
}

static void gpu_close(struct tier *t)
{
	struct gpu *g = gpu_of(t);
	CUcontext was;

	gpu_say(g, g->cuda->ctx_push(g->context), "cuCtxPushCurrent");
	for (uint64_t i = 0; i < g->base.bytes / g->base.slab_bytes; i++)
		if (g->slabs[i].fd >= 0)
			gpu_slab_free(g, (unsigned)i);
	gpu_say(g, g->cuda->mem_address_free(g->range, g->base.bytes), "cuMemAddressFree");
	gpu_say(g, g->cuda->mem_free_host(g->block), "cuMemFreeHost");
	gpu_say(g, g->cuda->ctx_pop(&was), "cuCtxPopCurrent");
	gpu_say(g, g->cuda->primary_ctx_release(g->device), "cuDevicePrimaryCtxRelease");
	destroy(g);
}

/* ---- what others map, and where copies come from -------------------------------------------- */

static int gpu_export(struct tier *t, struct arena_token *ret, struct err *err)
{
	const struct gpu *g = gpu_of(t);

	*ret = (struct arena_token){ .fd = -1,
				     .bytes = g->base.bytes,
				     .alignment = GRANULE_SMALL,
				     .slab_bytes = g->base.slab_bytes };
	memcpy(ret->uuid, g->uuid, sizeof(ret->uuid));
	return 0;
}

static int gpu_slab_fd(struct tier *t, uint64_t offset)
{
	const struct gpu *g = gpu_of(t);

	ASSERT(offset % g->base.slab_bytes == 0 && offset < g->base.bytes);
	return g->slabs[offset / g->base.slab_bytes].fd;
}

static void gpu_host_memory(struct tier *t, void *base, size_t bytes, size_t ready)
{
	struct gpu *g = gpu_of(t);
	struct gpu_memory *m = &g->memory;

	ASSERT(m->range_count < GPU_RANGES_MAX && ready <= bytes);
	m->ranges[m->range_count++] = (struct gpu_range){ base, bytes, ready };
}

const struct tier_ops gpu_ops = {
	.name = "cuda",
	.help = "Memory of NVIDIA GPUs.",
	.kind = TIER_KIND_HBM,
	.rows = gpu_rows,
	.config_size = sizeof(struct gpu_config),
	.check = gpu_check_config,
	.count = gpu_count,
	.open = gpu_open,
	.close = gpu_close,
	.export_arena = gpu_export,
	.host_memory = gpu_host_memory,
	.slab_fd = gpu_slab_fd,
	.lane_start = gpu_lane_start,
	.lane_stop = gpu_lane_stop,
	.queue = gpu_lane_queue,
	.commit = gpu_lane_commit,
	.reap = gpu_lane_reap,
	.wait = gpu_lane_wait,
};

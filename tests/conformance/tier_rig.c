/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/conformance/tier_rig.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fake/bytes.h"
#include "tests/unit/leftovers.h"
#include "tests/unit/point.h"
#include "tiers/dram.h"
#ifdef HAVE_CUDA
#include "base/cuda.h"
#include "tests/fake/cuda/fake_cuda.h"
#include "tiers/gpu.h"
#endif
#include "tiers/memory.h"
#include "tiers/nvme.h"

#define WAIT_MS 60000 /* a completion that takes longer was lost */

/* ---- setups -------------------------------------------------------------------------------- */

static bool memory_fill(void *config, uint64_t bytes, const char **why)
{
	struct memory_config *c = config;

	c->size.bytes = bytes;
	c->devices = 2;
	return true;
}

/* Of which the last is shorter than the others. */
static bool memory_in_slabs_fill(void *config, uint64_t bytes, const char **why)
{
	((struct memory_config *)config)->slab = MIB(10);
	return memory_fill(config, bytes, why);
}

static bool dram_fill(void *config, uint64_t bytes, const char **why)
{
	((struct dram_config *)config)->size.bytes = bytes;
	return true;
}

static bool dram_in_slabs_fill(void *config, uint64_t bytes, const char **why)
{
	((struct dram_config *)config)->slab = MIB(14);
	return dram_fill(config, bytes, why);
}

/* A folder on whatever file system that is. */
static bool nvme_fill(void *config, uint64_t bytes, const char **why)
{
	struct nvme_config *c = config;
	c->path.path = malloc(LEFTOVERS_ROOM);
	ck_assert_ptr_nonnull(c->path.path);
	leftovers_folder(c->path.path);
	c->path.size.bytes = bytes;
	c->options.queue_depth = 8;
	c->options.block_bytes = MIB(1);
	c->options.direct = NVME_DIRECT_TRY;
	return true;
}

static void nvme_empty(void *config)
{
	struct nvme_config *c = config;

	ck_assert_int_eq(rmdir(c->path.path), 0); /* or something was left in it */
	free(c->path.path);
}

#ifdef HAVE_CUDA
/* On the fake driver, unless the variable names another one: it is loaded already, as this program
 * is linked with it. */
static bool gpu_fill(void *config, uint64_t bytes, const char **why)
{
	struct gpu_config *c = config;

	setenv(CUDA_LIBRARY_VARIABLE, "libcudafake.so", 0);
	setenv("FAKE_CUDA_DEVICES", "2", 0);
	c->size.bytes = bytes;
	c->slab_bytes = MIB(16);
	c->spin_ns = 20 * NS_PER_US;
	return true;
}

static void gpu_empty(void *config)
{
	struct fake_cuda_counts c = fake_cuda_counts();

	ck_assert_uint_eq(c.contexts + c.handles + c.reservations + c.mappings, 0);
	ck_assert_uint_eq(c.allocations + c.registrations + c.streams + c.events, 0);
}
#endif

static const struct rig_setup setups[] = {
	{ "memory", memory_fill, NULL },   { "memory", memory_in_slabs_fill, NULL },
	{ "host", dram_fill, NULL },       { "host", dram_in_slabs_fill, NULL },
#ifdef HAVE_CUDA
	{ "cuda", gpu_fill, gpu_empty },
#endif
	{ "nvme", nvme_fill, nvme_empty },
};

const struct rig_setup *rig_setup(const struct tier_ops *ops, unsigned way)
{
	unsigned seen = 0;

	for (size_t i = 0; i < ARRAY_SIZE(setups); i++)
		if (strcmp(setups[i].backend, ops->name) == 0 && seen++ == way)
			return &setups[i];
	ck_assert_msg(seen > 0, "backend %s has no row in the setups of %s", ops->name, __FILE__);
	return NULL;
}

/* ---- open and close ------------------------------------------------------------------------ */

static unsigned char *map(uint64_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

static void give_memory(struct rig *rig)
{
	const struct tier_ops *ops = rig->tier->base.ops;

	rig->host = map(RIG_HOST_BYTES);
	if (rig_mapped(rig) && rig->tier->base.host_base == NULL)
		rig->looked = map(rig->tier->base.bytes);
	if (ops->host_memory != NULL)
		ops->host_memory(rig->tier, rig->host, RIG_HOST_BYTES, RIG_HOST_BYTES / 2);
	rig->staging_bytes = rig->tier->base.staging_want_bytes;
	ck_assert(rig->staging_bytes == 0 || ops->staging != NULL);
	if (rig->staging_bytes == 0)
		return;
	rig->staging = map(rig->staging_bytes);
	ops->staging(rig->tier, rig->staging, rig->staging_bytes);
}

static void check_base(const struct rig *rig)
{
	const struct tier_base *b = &rig->tier->base;

	ck_assert_uint_eq(b->magic, TIER_MAGIC);
	ck_assert_int_eq(b->kind, rig->ops->kind);
	ck_assert_uint_gt(b->bytes, 0);
	ck_assert_uint_gt(strlen(b->name), 0);
	ck_assert_uint_gt(strlen(b->chosen), 0);
	ck_assert_uint_ge(b->alignment, 1);
	ck_assert(b->host_base == NULL || b->ops->export_arena != NULL);
	ck_assert_uint_le(b->backed_bytes, b->bytes);
	ck_assert(b->slab_bytes == 0 || b->ops->slab_fd != NULL || b->host_base != NULL);
}

/* The last one of several, so that an index that a backend overlooks is seen. */
static int open_last(struct rig *rig, struct err *err)
{
	const struct tier_ops *ops = rig->ops;
	int n = ops->count != NULL ? ops->count(rig->config, err) : 1;

	ck_assert_msg(n >= 1, "%s: count: %s", ops->name, err->text);
	rig->devices = (unsigned)n;
	return ops->open(rig->config, rig->devices - 1, rig->topo, &rig->tier, err);
}

/* As the engine does it: memory that may be used from now on. */
static void back_slabs(struct rig *rig)
{
	const struct tier_base *b = &rig->tier->base;

	ck_assert(b->slab_bytes == 0 || b->backed_bytes % b->slab_bytes == 0);
	for (uint64_t at = b->backed_bytes; b->slab_bytes > 0 && at < b->bytes; at += b->slab_bytes)
		ck_assert_int_eq(rig_slab(rig, XFER_BACK, at), 0);
}

/* The second half of the host memory is there only once the lane runs. */
static void pin_rest(struct rig *rig)
{
	struct xfer pin = { .op = XFER_PIN,
			    .host = rig->host + RIG_HOST_BYTES / 2,
			    .bytes = RIG_HOST_BYTES / 2 };
	struct xfer *done[1];

	if (rig->tier->base.ops->host_memory == NULL)
		return;
	rig_lend(rig, &pin);
	rig_wait(rig, done, 1);
	ck_assert_int_eq(pin.result, 0);
}

bool rig_open(struct rig *rig, const struct tier_ops *ops, unsigned way, uint64_t bytes,
	      const struct fault_config *fault)
{
	struct err err = ERR_INIT;
	const char *why = "";
	int r;

	log_configure("warn");
	memset(rig, 0, sizeof(*rig));
	rig->ops = ops;
	rig->setup = rig_setup(ops, way);
	rig->config = calloc(1, ops->config_size);
	ck_assert_ptr_nonnull(rig->config);
	if (!rig->setup->fill(rig->config, bytes, &why)) {
		fprintf(stderr, "skipped: %s: %s\n", ops->name, why);
		free(rig->config);
		return false;
	}
	ck_assert_int_eq(topo_open(&rig->topo, &err), 0);
	r = open_last(rig, &err);
	ck_assert_msg(r == 0, "%s: open: %s", ops->name, err.text);
	if (fault != NULL)
		ck_assert_int_eq(fault_wrap(rig->tier, fault, &rig->tier, &err), 0);
	check_base(rig);
	give_memory(rig);
	rig->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = lane_start(rig->tier, rig->done_fd, &rig->done_wanted, &rig->lane, &err);
	ck_assert_msg(r == 0, "%s: lane: %s", ops->name, err.text);
	back_slabs(rig);
	pin_rest(rig);
	return true;
}

void rig_close(struct rig *rig)
{
	ck_assert_uint_eq(rig->lent, 0);
	if (rig->looked != NULL)
		munmap(rig->looked, rig->tier->base.bytes);
	lane_stop(rig->lane);
	rig->tier->base.ops->close(rig->tier);
	if (rig->setup->empty != NULL)
		rig->setup->empty(rig->config);
	munmap(rig->host, RIG_HOST_BYTES);
	if (rig->staging != NULL)
		munmap(rig->staging, rig->staging_bytes);
	topo_close(rig->topo);
	close(rig->done_fd);
	free(rig->config);
}

bool rig_mapped(const struct rig *rig)
{
	return rig->tier->base.kind != TIER_KIND_NVME;
}

const unsigned char *rig_look(struct rig *rig, uint64_t offset, uint64_t bytes)
{
	struct rig_range range = {
		.op = XFER_READ, .offset = offset, .bytes = bytes, .host = rig->looked
	};

	ck_assert(rig_mapped(rig));
	if (rig->tier->base.host_base != NULL)
		return (const unsigned char *)rig->tier->base.host_base + offset;
	ck_assert_int_eq(rig_run(rig, &range, NULL), 0);
	return rig->looked;
}

/* ---- xfers --------------------------------------------------------------------------------- */

void rig_lend(struct rig *rig, struct xfer *x)
{
	x->result = 77; /* the lane's to set */
	rig->lent++;
	lane_submit(rig->lane, x);
}

/* Sleeps as the control thread does: ask to be woken, look once more. */
static unsigned reap_some(struct rig *rig, struct xfer **done, unsigned max)
{
	struct pollfd fd = { .fd = rig->done_fd, .events = POLLIN };
	uint64_t count;
	unsigned n;

	atomic_store(&rig->done_wanted, 1);
	n = lane_reap(rig->lane, done, max);
	if (n == 0)
		ck_assert_int_eq(poll(&fd, 1, WAIT_MS), 1);
	if (atomic_exchange(&rig->done_wanted, 0) == 0)
		ck_assert(read(rig->done_fd, &count, sizeof(count)) == 8 || errno == EAGAIN);
	return n;
}

void rig_wait(struct rig *rig, struct xfer **done, unsigned n)
{
	unsigned got = 0;

	lane_kick(rig->lane);
	ck_assert_uint_le(n, rig->lent);
	while (got < n)
		got += reap_some(rig, done + got, n - got);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_int_ne(done[i]->result, 77);
		ck_assert_int_le(done[i]->result, 0);
		ck_assert((done[i]->result == 0) == (done[i]->cause[0] == '\0'));
		ck_assert_uint_le(done[i]->begin_ns, done[i]->end_ns);
	}
	rig->lent -= n;
}

int rig_slab(struct rig *rig, enum xfer_op op, uint64_t offset)
{
	const struct tier_base *b = &rig->tier->base;
	struct xfer x = { .op = (uint8_t)op,
			  .offset = offset,
			  .bytes = MIN(b->slab_bytes, b->bytes - offset) };
	struct xfer *done[1];

	rig_lend(rig, &x);
	rig_wait(rig, done, 1);
	return x.result;
}

int rig_run(struct rig *rig, struct rig_range *range, struct xfer *ret_failed)
{
	uint64_t piece = rig->tier->base.block > 0 ? rig->tier->base.block : range->bytes;
	struct xfer x[RIG_PIECES], *done[RIG_PIECES];
	unsigned n = 0;
	int r = 0;

	for (uint64_t at = 0; n == 0 || at < range->bytes; at += piece, n++) {
		ck_assert_uint_lt(n, RIG_PIECES);
		x[n] = (struct xfer){ .op = range->op,
				      .priority = range->priority,
				      .offset = range->offset + at,
				      .from = range->from + at,
				      .bytes = MIN(range->bytes - at, piece),
				      .host = range->host + at,
				      .crc = range->crcs[n],
				      .part = n };
		rig_lend(rig, &x[n]);
	}
	rig_wait(rig, done, n);
	for (unsigned i = 0; i < n; i++) {
		range->crcs[i] = x[i].crc;
		if (x[i].result < 0 && r == 0) {
			r = x[i].result;
			if (ret_failed != NULL)
				*ret_failed = x[i];
		}
	}
	return r;
}

int rig_write(struct rig *rig, struct rig_range *range, uint64_t offset, void *host, uint64_t bytes)
{
	*range = (struct rig_range){
		.op = XFER_WRITE, .offset = offset, .bytes = bytes, .host = host
	};
	return rig_run(rig, range, NULL);
}

int rig_read(struct rig *rig, const struct rig_range *range, void *host)
{
	struct rig_range back = *range;

	back.op = XFER_READ;
	back.host = host;
	return rig_run(rig, &back, NULL);
}

BYTES_UNSEEN void rig_fill(void *at, uint64_t bytes, uint64_t seed)
{
	unsigned char *to = at;

	bytes_are_written(at, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		to[i] = (unsigned char)(((i + 1) * 2654435761u + seed * 40503u) >> 11);
}

bool rig_all(const unsigned char *at, uint64_t bytes, unsigned char value)
{
	return bytes == 0 || (at[0] == value && bytes_equal(at, at + 1, bytes - 1));
}

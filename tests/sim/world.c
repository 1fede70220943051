/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"

uint64_t world_random(struct world *w)
{
	/* xorshift64*: the seed alone decides. */
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return w->random * 2685821657736338717ull;
}

uint64_t world_below(struct world *w, uint64_t n)
{
	return (world_random(w) >> 33) % n;
}

static void *zeros(size_t bytes)
{
	void *p = aligned_alloc(GRANULE, ALIGN_UP(bytes, GRANULE));

	ASSERT(p != NULL);
	memset(p, 0, ALIGN_UP(bytes, GRANULE));
	return p;
}

static void open_device(struct world *w, enum tier_kind kind, uint64_t bytes, unsigned number)
{
	static const struct tier_ops no_ops = { .name = "world" };
	struct world_device *d = &w->devices[w->device_count++];

	d->memory = zeros(bytes);
	memset(d->memory, 0xa5, bytes); /* nobody may rely on fresh zeros */
	d->tier.base = (struct tier_base){
		.magic = TIER_MAGIC, .ops = &no_ops, .kind = kind, .bytes = bytes
	};
	if (kind == TIER_KIND_NVME)
		d->tier.base.block = WORLD_BLOCK;
	else
		d->tier.base.host_base = d->memory;
	snprintf(d->tier.base.name, sizeof(d->tier.base.name), "%s%u", tier_kind_name(kind),
		 number);
}

static void open_devices(struct world *w)
{
	ASSERT(w->shape.hbm <= 2 && w->shape.nvme <= 2);
	for (unsigned i = 0; i < w->shape.hbm; i++)
		open_device(w, TIER_KIND_HBM, WORLD_HBM, i);
	open_device(w, TIER_KIND_DRAM, WORLD_DRAM, 0);
	for (unsigned i = 0; i < w->shape.nvme; i++)
		open_device(w, TIER_KIND_NVME, i == 0 ? WORLD_NVME0 : WORLD_NVME1, i);
}

static void open_table(struct world *w)
{
	size_t bytes = TABLE_HEADER_BYTES + WORLD_TENSORS * sizeof(struct descriptor);

	w->table = zeros(bytes);
	w->table->descriptors_offset = TABLE_HEADER_BYTES;
	w->table->descriptors_count = WORLD_TENSORS;
	w->descriptors = (struct descriptor *)((char *)w->table + TABLE_HEADER_BYTES);
}

static void open_policy(struct world *w, const struct policy_ops *policy)
{
	struct err err = ERR_INIT;

	w->policy_config = zeros(policy->config_size + 1);
	w->policy_rows = policy->rows;
	ASSERT(config_load_text(policy->rows, "defaults", "{}", 2, w->policy_config, &err) == 0);
}

void world_open(struct world *w, uint64_t seed, struct world_shape shape,
		const struct policy_ops *policy, const struct engine_hooks *hooks)
{
	struct engine_params params = { .tensors = WORLD_TENSORS,
					.staging_bytes = 8 * WORLD_BLOCK,
					.linger_ns = 50 * NS_PER_MS,
					.hooks = *hooks };
	struct err err = ERR_INIT;

	memset(w, 0, sizeof(*w));
	w->random = seed * 2 + 1;
	w->now_ns = NS_PER_S;
	open_table(w);
	open_policy(w, policy);
	w->shape = shape;
	open_devices(w);
	w->stats = zeros(sizeof(*w->stats));
	w->records = zeros(engine_records_bytes(WORLD_TENSORS));
	if (shape.nvme == 0)
		params.staging_bytes = shape.hbm > 1 ? MIB(4) : 0;
	w->staging = zeros(MAX(params.staging_bytes, 1u));
	params.table = w->table;
	params.records = w->records;
	params.staging = w->staging;
	params.stats = w->stats;
	params.device_count = w->device_count;
	for (unsigned i = 0; i < w->device_count; i++)
		params.devices[i] = &w->devices[i].tier;
	for (unsigned k = 0; k < TIER_KINDS; k++)
		params.watermark[k] = (struct engine_watermark){ 950, 850 };
	for (unsigned c = 0; c < ENGINE_CLASSES; c++) {
		params.class_[c].policy = policy;
		params.class_[c].policy_config = w->policy_config;
		params.class_[c].overcommit_permille = 1000;
	}
	ASSERT(engine_create(&params, &w->engine, &err) == 0);
}

void world_close(struct world *w)
{
	ASSERT(w->flying == 0);
	engine_destroy(w->engine);
	config_free(w->policy_rows, w->policy_config);
	free(w->policy_config);
	for (unsigned i = 0; i < w->device_count; i++)
		free(w->devices[i].memory);
	free(w->table);
	free(w->stats);
	free(w->records);
	free(w->staging);
}

void world_submit(void *ctx, unsigned device, struct xfer *x)
{
	struct world *w = ctx;

	ASSERT(w->flying < WORLD_FLIGHT);
	w->flight[w->flying++] = (struct flight){ x, device };
}

static void perform(struct world *w, struct xfer *x, struct world_device *d)
{
	char *at = d->memory + x->offset;
	bool nvme = d->tier.base.kind == TIER_KIND_NVME;

	ASSERT(x->offset + x->bytes <= d->tier.base.bytes);
	x->result = 0;
	switch (x->op) {
	case XFER_READ:
		memcpy(x->host, at, x->bytes);
		if (nvme && crc32c(0, x->host, x->bytes) != x->crc)
			x->result = -EBADMSG;
		break;
	case XFER_WRITE:
		memcpy(at, x->host, x->bytes);
		x->crc = crc32c(0, at, x->bytes);
		break;
	case XFER_ZERO:
		memset(at, 0, x->bytes);
		break;
	case XFER_COPY:
		memmove(at, d->memory + x->from, x->bytes);
		break;
	default:
		ASSERT(x->op == XFER_SYNC && nvme);
	}
}

bool world_finish_one(struct world *w)
{
	struct flight f;
	unsigned i;

	if (w->flying == 0)
		return false;
	i = (unsigned)world_below(w, w->flying);
	f = w->flight[i];
	w->flight[i] = w->flight[--w->flying];
	if (w->devices[f.device].tier.base.kind == TIER_KIND_NVME &&
	    world_below(w, 1000) < w->fail_permille) {
		f.x->result = world_below(w, 2) ? -EIO : -ENOSPC;
		snprintf(f.x->cause, sizeof(f.x->cause), "injected");
		w->failed++;
	} else {
		perform(w, f.x, &w->devices[f.device]);
	}
	w->finished++;
	w->now_ns += NS_PER_US;
	engine_xfer_done(w->engine, f.x, w->now_ns);
	return true;
}

void world_turn(struct world *w, uint64_t ns)
{
	w->now_ns += ns;
	engine_turn(w->engine, w->now_ns);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tests/sim/coverage.h"

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

static void host_memory(struct tier *t, void *base, size_t bytes, size_t ready)
{
}

static int slab_fd(struct tier *t, uint64_t offset)
{
	struct world_device *d = container_of(t, struct world_device, tier);

	ASSERT(d->backed[offset / t->base.slab_bytes]);
	return 1000 + (int)(offset / t->base.slab_bytes);
}

static void open_slabs(struct world_device *d)
{
	static const struct tier_ops gpu_ops = { .name = "world",
						 .host_memory = host_memory,
						 .slab_fd = slab_fd };

	if (d->tier.base.kind == TIER_KIND_HBM) {
		d->tier.base.ops = &gpu_ops;
		d->tier.base.on_demand = true;
		d->tier.base.slab_bytes = WORLD_HBM_SLAB;
		d->tier.base.bytes -= GRANULE; /* the last slab is shorter */
		d->pinned[0] = true;
	} else if (d->tier.base.kind == TIER_KIND_DRAM) {
		d->tier.base.slab_bytes = d->tier.base.backed_bytes = WORLD_DRAM_SLAB;
		d->backed[0] = true;
	}
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
	if (w->shape.slabs)
		open_slabs(d);
	w->fault[w->device_count - 1].config = &w->fault_config[kind];
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

static void open_policies(struct world *w, const struct policy_ops *policy,
			  struct engine_params *params)
{
	struct err err = ERR_INIT;
	unsigned n = 0;

	while (policy_all[n] != NULL)
		n++;
	for (unsigned c = 0; c < ENGINE_CLASSES; c++) {
		const struct policy_ops *ops =
			policy != NULL ? policy : policy_all[world_below(w, n)];

		w->policy[c] = ops;
		w->policy_config[c] = zeros(ops->config_size + 1);
		ASSERT(config_load_text(ops->rows, "defaults", "{}", 2, w->policy_config[c],
					&err) == 0);
		params->class_[c] = (struct engine_class){ ops, w->policy_config[c], 1000 };
	}
}

static void close_policies(struct world *w)
{
	for (unsigned c = 0; c < ENGINE_CLASSES; c++) {
		config_free(w->policy[c]->rows, w->policy_config[c]);
		free(w->policy_config[c]);
	}
}

static bool refuses(const struct heap_refusal *r, const struct heap_site *site)
{
	struct world_memory *m = (struct world_memory *)((char *)(uintptr_t)r -
							 offsetof(struct world_memory, refusal));

	if ((m->only != NULL && m->only != site) ||
	    fault_decide(&m->state, XFER_BACK, 0).kind == FAULT_NONE)
		return false;
	coverage_refused(site);
	m->refused++;
	return true;
}

/* As seldom as `c` says, from the next allocation on. */
static void refuse(struct world *w, const struct fault_config *c)
{
	w->memory.config = *c;
	w->memory.state = (struct fault_state){ .config = &w->memory.config };
}

/* Each allocation of an engine that is made is refused once: nothing stays behind. */
static void start_short(struct world *w, const struct engine_params *params)
{
	uint64_t taken = heap_taken();
	struct engine *e;
	int rc;

	for (uint64_t n = 0; w->memory.state.slabs >= n; n++) {
		struct err err = ERR_INIT;

		refuse(w, &(struct fault_config){ .no_memory = 1000, .after = n, .count = 1 });
		rc = engine_create(params, &e, &err);
		ASSERT(rc == (w->memory.state.slabs > n ? -ENOMEM : 0));
		ASSERT(rc == 0 || err.text[0] != '\0');
		if (rc == 0)
			engine_destroy(e);
		ASSERT(heap_taken() == taken);
	}
	refuse(w, &(struct fault_config){ 0 });
	memset(w->stats, 0, sizeof(*w->stats));
}

void world_open(struct world *w, uint64_t seed, struct world_shape shape,
		const struct policy_ops *policy, const struct engine_hooks *hooks)
{
	unsigned slots = shape.staging_slots > 0 ? shape.staging_slots : 8;
	struct engine_watermark mark = shape.watermark.high_permille > 0
					       ? shape.watermark
					       : (struct engine_watermark){ 950, 850 };
	struct engine_params params = { .tensors = WORLD_TENSORS,
					.staging_bytes = slots * WORLD_BLOCK,
					.linger_ns = shape.linger_ns > 0 ? shape.linger_ns
									 : 50 * NS_PER_MS,
					.hooks = *hooks };
	struct err err = ERR_INIT;

	memset(w, 0, sizeof(*w));
	w->taken = heap_taken();
	w->memory.refusal.refuses = refuses;
	w->random = seed * 2 + 1;
	w->physical_bytes = UINT64_MAX;
	w->now_ns = NS_PER_S;
	w->refuse_result = -ENOMEM;
	open_table(w);
	open_policies(w, policy, &params);
	for (unsigned c = 0; shape.overcommit_permille > 0 && c < ENGINE_CLASSES; c++)
		params.class_[c].overcommit_permille = shape.overcommit_permille;
	w->shape = shape;
	open_devices(w);
	w->stats = zeros(sizeof(*w->stats));
	w->records = zeros(engine_records_bytes(WORLD_TENSORS));
	if (shape.nvme == 0)
		params.staging_bytes = shape.hbm > 1 ? MIB(4) : 0;
	w->staging = zeros(MAX(params.staging_bytes, 1u));
	params.dram_zone_bytes = shape.zone ? WORLD_ZONE : 0;
	params.table = w->table;
	params.quotas = shape.quotas;
	params.quota_count = shape.quota_count;
	params.excess_ns = shape.excess_ns;
	params.records = w->records;
	params.staging = w->staging;
	params.stats = w->stats;
	params.device_count = w->device_count;
	for (unsigned i = 0; i < w->device_count; i++)
		params.devices[i] = &w->devices[i].tier;
	for (unsigned k = 0; k < TIER_KINDS; k++)
		params.watermark[k] = mark;
	refuse(w, &(struct fault_config){ 0 });
	heap_refuse(&w->memory.refusal);
	if (shape.short_start)
		start_short(w, &params);
	ASSERT(engine_create(&params, &w->engine, &err) == 0);
}

void world_close(struct world *w)
{
	ASSERT(w->flying == 0);
	heap_refuse(NULL);
	engine_destroy(w->engine);
	close_policies(w);
	ASSERT(heap_taken() == w->taken);
	for (unsigned i = 0; i < w->device_count; i++)
		free(w->devices[i].memory);
	free(w->table);
	free(w->stats);
	free(w->records);
	free(w->staging);
}

bool world_is_backed(const struct world *w, unsigned device, uint64_t offset, uint64_t bytes)
{
	const struct world_device *d = &w->devices[device];
	uint64_t slab = d->tier.base.slab_bytes;

	for (uint64_t i = slab > 0 ? offset / slab : 0; slab > 0 && i * slab < offset + bytes; i++)
		if (!d->backed[i])
			return false;
	return true;
}

/* Nobody touches what has no memory, or, as a GPU, what it did not register. */
static void check_xfer(const struct world *w, unsigned device, const struct xfer *x)
{
	const struct world_device *d = &w->devices[device];
	const struct world_device *dram = &w->devices[w->shape.hbm];
	const char *host = x->host;

	if (x->op >= XFER_BACK)
		return;
	ASSERT(x->offset + x->bytes <= d->tier.base.bytes);
	ASSERT(world_is_backed(w, device, x->offset, x->bytes));
	ASSERT(x->op != XFER_COPY || world_is_backed(w, device, x->from, x->bytes));
	if (host < dram->memory || host >= dram->memory + dram->tier.base.bytes)
		return;
	ASSERT(world_is_backed(w, w->shape.hbm, (uint64_t)(host - dram->memory), x->bytes));
	for (const char *at = host; d->tier.base.ops->host_memory != NULL && at < host + x->bytes;
	     at += GRANULE)
		ASSERT(d->pinned[(at - dram->memory) / WORLD_DRAM_SLAB]);
}

void world_submit(void *ctx, unsigned device, struct xfer *x)
{
	struct world *w = ctx;

	check_xfer(w, device, x);
	ASSERT(w->flying < WORLD_FLIGHT);
	w->flight[w->flying++] = (struct flight){ .x = x, .device = device };
}

void world_lose(struct world *w, unsigned device)
{
	struct world_device *d = &w->devices[device];

	ASSERT(d->tier.base.kind == TIER_KIND_HBM);
	d->lost = true;
	memset(d->memory, 0xee, d->tier.base.bytes);
}

static uint64_t backed_bytes(const struct world_device *d)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < WORLD_SLABS; i++)
		n += d->backed[i];
	return n * d->tier.base.slab_bytes;
}

static void perform_slab(struct world *w, struct xfer *x, struct world_device *d)
{
	uint64_t slab = d->tier.base.slab_bytes;
	struct world_device *dram = &w->devices[w->shape.hbm];

	x->result = 0;
	if (x->op == XFER_PIN) {
		uint64_t i = (uint64_t)((char *)x->host - dram->memory) / WORLD_DRAM_SLAB;

		ASSERT(d->tier.base.ops->host_memory != NULL && dram->backed[i] && !d->pinned[i]);
		d->pinned[i] = true;
		return;
	}
	ASSERT(x->offset % slab == 0 && x->bytes == MIN(slab, d->tier.base.bytes - x->offset));
	ASSERT(d->backed[x->offset / slab] == (x->op == XFER_UNBACK));
	ASSERT(d->importers[x->offset / slab] == 0);
	if (x->op == XFER_BACK &&
	    (world_below(w, 1000) < w->refuse_permille ||
	     (d->tier.base.kind == TIER_KIND_HBM && backed_bytes(d) + slab > w->physical_bytes))) {
		x->result = w->refuse_result;
		snprintf(x->cause, sizeof(x->cause), "refusal %u", ++w->refusals);
		return;
	}
	memset(d->memory + x->offset, 0xa5, x->bytes);
	d->backed[x->offset / slab] = x->op == XFER_BACK;
}

static void perform(struct world *w, struct xfer *x, struct world_device *d)
{
	char *at = d->memory + x->offset;
	bool nvme = d->tier.base.kind == TIER_KIND_NVME;

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
		memset(at, x->value, x->bytes);
		break;
	case XFER_COPY:
		memmove(at, d->memory + x->from, x->bytes);
		break;
	default:
		ASSERT(x->op == XFER_SYNC && nvme);
	}
}

/* Whether this one is to fail, where a test says how often. */
static bool fails(struct world *w, const struct flight *f)
{
	if (w->devices[f->device].tier.base.kind == TIER_KIND_NVME)
		return w->fail_permille > 0 && world_below(w, 1000) < w->fail_permille;
	return w->fail_mapped_permille > 0 && f->x->op < XFER_BACK &&
	       world_below(w, 1000) < w->fail_mapped_permille;
}

/* ---- faults by seed, as tiers meet them ---- */

static struct fault_decision decide(struct world *w, const struct flight *f)
{
	struct fault_decision d = { .kind = FAULT_NONE };
	struct world_device *device = &w->devices[f->device];

	/* What a driver does behind its device is not harmed. */
	if (f->decided || device->lost || f->x->op > XFER_BACK)
		return d;
	if ((w->harmed[device->tier.base.kind] & 1u << f->x->op) == 0 &&
	    w->harmed[device->tier.base.kind] != 0)
		return d;
	d = fault_decide(&w->fault[f->device], f->x->op, f->x->op == XFER_SYNC ? 0 : f->x->bytes);
	if (d.kind != FAULT_NONE)
		coverage_fault(d.kind, device->tier.base.kind, f->x->op, d.error == 0 || d.after);
	return d;
}

static void do_it(struct world *w, struct flight *f, uint64_t bytes)
{
	struct xfer part = *f->x;

	check_xfer(w, f->device, f->x);
	if (f->x->op >= XFER_BACK) {
		perform_slab(w, f->x, &w->devices[f->device]);
	} else if (bytes == f->x->bytes) {
		perform(w, f->x, &w->devices[f->device]);
	} else {
		part.bytes = bytes;
		perform(w, &part, &w->devices[f->device]);
	}
}

static void fail(struct world *w, struct xfer *x, int result)
{
	x->result = result;
	snprintf(x->cause, sizeof(x->cause), "injected %d", -result);
	w->failed++;
}

/* A fault that is no error yet: bytes that are wrong, or of which some are missing. */
static void harm(struct world *w, struct flight *f, const struct fault_decision *d)
{
	struct xfer *x = f->x;
	bool cut = d->kind == FAULT_SHORT_READ || d->kind == FAULT_SHORT_WRITE;

	if (!cut || d->bytes > 0)
		do_it(w, f, cut ? d->bytes : x->bytes);
	if (cut) {
		fail(w, x, -EIO);
	} else if (d->kind == FAULT_CORRUPT) {
		((unsigned char *)x->host)[d->where] ^= 0x40;
		fail(w, x, -EBADMSG);
	} else if (d->kind == FAULT_ROT) {
		w->devices[f->device].memory[x->offset + d->where] ^= 0x40;
		w->rotten++;
	}
}

static void finish(struct world *w, struct flight *f, const struct fault_decision *d)
{
	if (fails(w, f)) {
		fail(w, f->x,
		     w->fail_result != 0 ? w->fail_result
		     : world_below(w, 2) ? -EIO
					 : -ENOSPC);
	} else if (w->devices[f->device].lost) {
		f->x->result = -ENODEV;
		snprintf(f->x->cause, sizeof(f->x->cause), "the device is gone");
	} else if (d->error < 0) {
		if (d->after)
			do_it(w, f, f->x->bytes);
		fail(w, f->x, d->error);
	} else {
		harm(w, f, d);
	}
	w->finished++;
	w->now_ns += NS_PER_US;
	engine_xfer_done(w->engine, f->x, w->now_ns);
}

/* Any of those that are due; w->flying: there is none. */
static unsigned any_due(struct world *w)
{
	unsigned first = w->flying > 0 ? (unsigned)world_below(w, w->flying) : 0;

	for (unsigned n = 0; n < w->flying; n++)
		if (w->flight[(first + n) % w->flying].due_ns <= w->now_ns)
			return (first + n) % w->flying;
	return w->flying;
}

bool world_finish_one(struct world *w)
{
	unsigned i = any_due(w);
	struct fault_decision d;
	struct flight f;

	if (i == w->flying)
		return false;
	f = w->flight[i];
	d = decide(w, &f);
	if (d.delay_ns > 0) {
		w->flight[i].decided = true;
		w->flight[i].due_ns =
			d.delay_ns == FAULT_NEVER ? FAULT_NEVER : w->now_ns + d.delay_ns;
		return true;
	}
	w->flight[i] = w->flight[--w->flying];
	finish(w, &f, &d);
	return true;
}

void world_heal(struct world *w)
{
	w->fail_permille = w->fail_mapped_permille = w->refuse_permille = 0;
	w->physical_bytes = UINT64_MAX;
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		w->fault_config[kind] = (struct fault_config){ 0 };
	w->memory.config = (struct fault_config){ 0 };
	for (unsigned i = 0; i < w->flying; i++)
		w->flight[i].due_ns = 0;
}

void world_turn(struct world *w, uint64_t ns)
{
	w->now_ns += ns;
	engine_turn(w->engine, w->now_ns);
}

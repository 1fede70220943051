/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/devices.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/plural.h"
#include "tiers/limits.h"
#include "tiers/topo.h"

static void device_log(const struct tier *t)
{
	log_info(TIER, "%s: %llu bytes (%.2f GiB): %s", t->base.name,
		 (unsigned long long)t->base.bytes, (double)t->base.bytes / (double)GIB(1),
		 t->base.chosen);
}

static int device_open(struct devices *d, const struct tier_ops *ops, const void *config,
		       unsigned index, struct err *err)
{
	struct tier **slot = &d->tier[d->count];
	int rc;

	ASSERT(d->count < ENGINE_DEVICES_MAX);
	rc = ops->open(config, index, d->topo, slot, err);
	if (rc < 0)
		return rc;
	ASSERT_OBJ(&(*slot)->base, TIER_MAGIC);
	ASSERT((*slot)->base.kind == ops->kind);
	d->count++;
	device_log(*slot);
	return 0;
}

/* All devices that one configuration stands for. */
static int devices_open_of(struct devices *d, const struct tier_ops *ops, const void *config,
			   struct err *err)
{
	int n = ops->count ? ops->count(config, err) : 1;
	int rc = 0;

	if (n < 0)
		return n;
	if ((unsigned)n > ENGINE_DEVICES_MAX - d->count)
		return err_set(err, EINVAL,
			       "tiers.%s: %d %s beside %u of other tiers, %d are possible together",
			       tier_kind_name(ops->kind), n, PLURAL(n, "device", "devices"),
			       d->count, ENGINE_DEVICES_MAX);
	for (int i = 0; rc == 0 && i < n; i++)
		rc = device_open(d, ops, config, (unsigned)i, err);
	return rc;
}

/* Host memory that is opened from now on lies near the GPUs that copy from it, where it can. */
static void gpus_locate(struct devices *d)
{
	for (unsigned i = 0; i < d->gpu_count; i++) {
		const char *pci = d->tier[i]->base.pci;

		if (d->topo->numa && pci[0] != '\0')
			topo_prefer_node(d->topo, topo_pci_node(d->topo, pci));
	}
}

/* Before dram, so that a driver that is missing is told before memory is taken. A driver starts
 * threads of its own: they inherit the mask, and signals are the control thread's. */
static int hbm_open(struct devices *d, const struct settings *s, struct err *err)
{
	const struct tier_ops *ops = settings_backend(TIER_KIND_HBM, &s->tiers.hbm);
	sigset_t was;
	int rc = 0;

	guard_block_signals(&was);
	if (ops)
		rc = devices_open_of(d, ops, s->tiers.hbm.config, err);
	ASSERT(pthread_sigmask(SIG_SETMASK, &was, NULL) == 0);
	d->gpu_count = d->count;
	gpus_locate(d);
	return rc == 0 ? settings_check_staging(s, d->gpu_count, err) : rc;
}

/* What `tiers.dram.size` names holds the staging segment as well. */
static int dram_open(struct devices *d, const struct settings *s, struct err *err)
{
	struct settings_staging parts;
	struct limits limits;
	int rc = 0;

	ASSERT(settings_backend(TIER_KIND_DRAM, &s->tiers.dram) == &dram_ops);
	d->dram = *(const struct dram_config *)s->tiers.dram.config;
	settings_staging(s, d->gpu_count, &parts);
	if (parts.total_bytes > 0 && d->dram.size.permille > 0) {
		rc = limits_read("", &limits, err);
		if (rc < 0)
			return err_prefix(err, "tiers.dram.size");
		d->dram.size.bytes = limits.total.bytes / 1000 * d->dram.size.permille;
		d->dram.size.permille = 0;
	}
	if (parts.total_bytes > 0 && d->dram.size.bytes <= parts.total_bytes)
		return err_set(err, EINVAL, "tiers.dram.size: nothing is left beside staging");
	d->dram.size.bytes -= d->dram.size.permille > 0 ? 0 : parts.total_bytes;
	d->dram.beside_bytes += parts.total_bytes;
	return devices_open_of(d, &dram_ops, &d->dram, err);
}

/* The zone comes and goes with the slabs that it is made of. */
static int zone_open(struct devices *d, struct err *err)
{
	const struct tier_base *dram = &d->tier[d->gpu_count]->base;
	uint64_t unit = dram->slab_bytes > 0 ? dram->slab_bytes : GRANULE;

	ASSERT(dram->kind == TIER_KIND_DRAM);
	d->zone_bytes = (d->dram.zone_bytes + unit - 1) / unit * unit;
	if (d->zone_bytes > 0 && d->zone_bytes >= dram->bytes)
		return err_set(
			err, EINVAL,
			"tiers.dram.zone: %llu bytes in slabs of %llu bytes leave nothing of "
			"the %llu bytes of dram for other tensors",
			(unsigned long long)d->dram.zone_bytes, (unsigned long long)unit,
			(unsigned long long)dram->bytes);
	return 0;
}

static int nvme_open(struct devices *d, const struct settings *s, struct err *err)
{
	const struct nvme_path *paths = s->tiers.nvme.paths.items;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->tiers.nvme.paths.count; i++) {
		struct nvme_config *config = &d->nvme[d->nvme_count];

		ASSERT(d->nvme_count < ARRAY_SIZE(d->nvme));
		*config = (struct nvme_config){ paths[i], *settings_nvme_options(s), (unsigned)i };
		rc = devices_open_of(d, &nvme_ops, config, err);
		d->nvme_count += rc == 0;
	}
	return rc;
}

/* ---- staging -------------------------------------------------------------------------------- */

/* Every device that asks for it learns of all memory that its transfers will point into, so that it
 * can register what can be registered: a disk with the kernel, a GPU with its driver. Staging comes
 * first: where only some can be, each of its bytes is used more often. Of dram the rest follows
 * slab by slab. */
static void memory_introduce(struct devices *d, struct tier *t)
{
	if (!t->base.ops->host_memory)
		return;
	if (d->engine_staging_bytes > 0)
		t->base.ops->host_memory(t, d->staging.base, d->engine_staging_bytes,
					 d->engine_staging_bytes);
	for (unsigned i = 0; i < d->count; i++) {
		struct tier_base *dram = &d->tier[i]->base;

		if (dram->kind != TIER_KIND_DRAM)
			continue;
		t->base.ops->host_memory(t, dram->host_base, dram->bytes,
					 dram->slab_bytes > 0 ? dram->backed_bytes : dram->bytes);
		dram->registered = true;
	}
}

static int staging_open(struct devices *d, const struct settings *s, struct err *err)
{
	struct settings_staging parts;
	uint64_t at;

	settings_staging(s, d->gpu_count, &parts);
	if (parts.total_bytes > 0) {
		struct topo_share shares[TOPO_NODES_MAX];
		/* On 2 MiB pages where they are to be had: devices take them in fewer pieces. */
		struct arena_options o = {
			.name = "tierd-staging",
			.bytes = parts.total_bytes,
			.touch = true,
			.topo = d->topo,
			.shares = shares,
			.share_count = topo_shares(d->topo, (enum topo_mode)d->dram.numa,
						   parts.total_bytes, shares, TOPO_NODES_MAX),
			.huge = d->dram.huge_pages == ARENA_HUGE_OFF ? ARENA_HUGE_OFF
								     : ARENA_HUGE_TRY,
		};
		int rc = arena_create(&o, &d->staging, err);

		if (rc < 0)
			return rc;
		log_info(TIER, "staging: %llu bytes (%.2f GiB), %llu of them a path of nvme",
			 (unsigned long long)parts.total_bytes,
			 (double)parts.total_bytes / (double)GIB(1),
			 (unsigned long long)parts.share_bytes);
	}
	d->engine_staging_bytes = parts.engine_bytes;
	at = parts.engine_bytes;
	for (unsigned i = 0; i < d->count; i++) {
		struct tier *t = d->tier[i];

		if (t->base.kind == TIER_KIND_NVME && t->base.ops->staging) {
			t->base.ops->staging(t, (char *)d->staging.base + at, parts.share_bytes);
			at += parts.share_bytes;
		}
		memory_introduce(d, t);
	}
	return 0;
}

/* ---- all ------------------------------------------------------------------------------------ */

static int devices_open_all(struct devices *d, const struct settings *s, struct err *err)
{
	int rc = hbm_open(d, s, err);

	if (rc == 0)
		rc = dram_open(d, s, err);
	if (rc == 0)
		rc = zone_open(d, err);
	if (rc == 0)
		rc = nvme_open(d, s, err);
	if (rc == 0)
		rc = staging_open(d, s, err);
	return rc;
}

int devices_open(const struct settings *s, struct topology *topo, struct devices *d,
		 struct err *err)
{
	int rc;

	*d = (struct devices){ .topo = topo, .staging = { .fd = -1 } };
	rc = devices_open_all(d, s, err);
	if (rc < 0)
		devices_close(d);
	return rc;
}

void devices_close(struct devices *d)
{
	while (d->count > 0) {
		struct tier *t = d->tier[--d->count];

		t->base.ops->close(t);
	}
	if (d->staging.base)
		arena_destroy(&d->staging);
}

int devices_arenas(const struct devices *d, struct server_arena *ret, struct err *err)
{
	int n = 0;

	for (unsigned i = 0; i < d->count; i++) {
		struct tier *t = d->tier[i];
		struct arena_token token;
		int rc;

		if (t->base.kind == TIER_KIND_NVME)
			continue;
		ASSERT(n < HELLO_ARENAS_MAX && t->base.ops->export_arena);
		rc = t->base.ops->export_arena(t, &token, err);
		if (rc < 0)
			return rc;
		ASSERT(token.fd >= 0 || token.slab_bytes > 0);
		ret[n] = (struct server_arena){
			.arena = (uint16_t)i,
			.place = t->base.kind == TIER_KIND_DRAM ? PROTOCOL_PLACE_HOST : (uint8_t)i,
			.fd = token.fd,
			.bytes = token.bytes,
			.slab_bytes = token.fd < 0 ? token.slab_bytes : 0,
			.zone_bytes = t->base.kind == TIER_KIND_DRAM ? d->zone_bytes : 0,
		};
		memcpy(ret[n++].uuid, token.uuid, sizeof(token.uuid));
	}
	return n;
}

const struct tier *devices_damaged(const struct devices *d)
{
	for (unsigned i = 0; i < d->count; i++) {
		const struct tier_base *t = &d->tier[i]->base;

		if (t->damaged && atomic_load_explicit(t->damaged, memory_order_relaxed))
			return d->tier[i];
	}
	return NULL;
}

uint64_t devices_later_fds(const struct devices *d)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < d->count; i++)
		n += d->tier[i]->base.later_fds;
	return n;
}

/* What does not fit is cut off: first of a long name, then of what was chosen. */
static void tell(const struct tier *t, char *line, size_t room)
{
	int name = snprintf(line, room, "%.50s: ", t->base.name);

	ASSERT(name > 0 && (size_t)name < room);
	snprintf(line + name, room - (size_t)name, "%.*s", (int)room - name - 1, t->base.chosen);
}

void devices_tell(const struct devices *d, struct stats_page *stats)
{
	for (unsigned i = 0; i < d->count && i < ARRAY_SIZE(stats->chosen); i++)
		tell(d->tier[i], stats->chosen[i], sizeof(stats->chosen[i]));
}

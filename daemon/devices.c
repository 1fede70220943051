/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/devices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
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

static int hbm_open(struct devices *d, const struct settings *s, struct err *err)
{
	const struct tier_ops *ops = settings_backend(TIER_KIND_HBM, &s->tiers.hbm);

	return ops ? device_open(d, ops, s->tiers.hbm.config, 0, err) : 0;
}

/* What `tiers.dram.size` names holds the staging segment as well. */
static int dram_open(struct devices *d, const struct settings *s, struct err *err)
{
	struct settings_staging parts;
	struct limits limits;
	int rc = 0;

	ASSERT(settings_backend(TIER_KIND_DRAM, &s->tiers.dram) == &dram_ops);
	d->dram = *(const struct dram_config *)s->tiers.dram.config;
	settings_staging(s, &parts);
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
	return device_open(d, &dram_ops, &d->dram, 0, err);
}

static int nvme_open(struct devices *d, const struct settings *s, struct err *err)
{
	const struct nvme_path *paths = s->tiers.nvme.paths.items;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->tiers.nvme.paths.count; i++) {
		struct nvme_config *config = &d->nvme[d->nvme_count];

		ASSERT(d->nvme_count < ENGINE_DEVICES_MAX);
		*config = (struct nvme_config){ paths[i], *settings_nvme_options(s), (unsigned)i };
		rc = device_open(d, &nvme_ops, config, 0, err);
		d->nvme_count += rc == 0;
	}
	return rc;
}

/* ---- staging -------------------------------------------------------------------------------- */

/* Each nvme device gets its share of the segment, and learns of all memory that its transfers will
 * point into, so that it can register what the kernel allows. */
static void memory_introduce(struct devices *d, struct tier *t, uint64_t share_at,
			     uint64_t share_bytes)
{
	char *staging = d->staging.base;

	if (t->base.ops->staging && share_bytes > 0)
		t->base.ops->staging(t, staging + share_at, share_bytes);
	if (!t->base.ops->host_memory)
		return;
	for (unsigned i = 0; i < d->count; i++) {
		struct tier_base *other = &d->tier[i]->base;

		if (other->kind != TIER_KIND_DRAM || !other->host_base)
			continue;
		t->base.ops->host_memory(t, other->host_base, other->bytes, other->bytes);
		other->registered = true;
	}
	if (d->engine_staging_bytes > 0)
		t->base.ops->host_memory(t, staging, d->engine_staging_bytes,
					 d->engine_staging_bytes);
}

static int staging_open(struct devices *d, const struct settings *s, struct err *err)
{
	struct settings_staging parts;
	uint64_t at;

	settings_staging(s, &parts);
	if (parts.total_bytes > 0) {
		/* On 2 MiB pages where they are to be had: devices take them in fewer pieces. */
		struct arena_options o = {
			.name = "tierd-staging",
			.bytes = parts.total_bytes,
			.touch = true,
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
		bool nvme = d->tier[i]->base.kind == TIER_KIND_NVME;

		memory_introduce(d, d->tier[i], at, nvme ? parts.share_bytes : 0);
		at += nvme ? parts.share_bytes : 0;
	}
	return 0;
}

/* ---- all ------------------------------------------------------------------------------------ */

static int devices_open_all(struct devices *d, const struct settings *s, struct err *err)
{
	int rc = topo_open(&d->topo, err);

	if (rc == 0)
		rc = hbm_open(d, s, err);
	if (rc == 0)
		rc = dram_open(d, s, err);
	if (rc == 0)
		rc = nvme_open(d, s, err);
	if (rc == 0)
		rc = staging_open(d, s, err);
	return rc;
}

int devices_open(const struct settings *s, struct devices *d, struct err *err)
{
	int rc;

	*d = (struct devices){ .staging = { .fd = -1 } };
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
	if (d->topo)
		topo_close(d->topo);
	d->topo = NULL;
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
		ret[n++] = (struct server_arena){
			.arena = (uint16_t)i,
			.place = t->base.kind == TIER_KIND_DRAM ? PROTOCOL_PLACE_HOST : (uint8_t)i,
			.fd = token.fd,
			.bytes = token.bytes,
		};
	}
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

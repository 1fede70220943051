/* SPDX-License-Identifier: Apache-2.0
 *
 * What of domains and namespaces is known on the machine alone: users, and what the tiers have.
 */
#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "base/plural.h"
#include "daemon/domain.h"
#include "daemon/quotas.h"
#include "tiers/dram.h"
#ifdef HAVE_CUDA
#include "tiers/gpu.h"
#endif
#include "tiers/hugepage.h"
#include "tiers/memory.h"
#include "tools/tierctl/doctor.h"

void doctor_domains(struct doctor *d)
{
	struct domain *all[DOMAINS_MAX];
	struct err err = ERR_INIT;
	unsigned n;

	if (!d->configured || d->settings.domains.count == 0)
		return;
	ASSERT(share_count(&d->settings) <= DOMAINS_MAX);
	if (domains_create(&d->settings, all, &n, &err) < 0)
		doctor_say(d, DOCTOR_FAIL, "domains", "users of this machine, each in one domain",
			   "%s", err.text);
	else
		doctor_say(d, DOCTOR_OK, "domains", "", "%u %s, and all users are known", n,
			   PLURAL(n, "domain", "domains"));
	while (n > 0)
		domain_destroy(all[--n]);
}

/* ---- what a domain has ---------------------------------------------------------------------- */

static uint64_t hbm_bytes(const struct doctor *d, const struct settings *s)
{
	const struct tier_ops *ops = settings_backend(TIER_KIND_HBM, &s->tiers.hbm);
	const struct memory_config *memory = s->tiers.hbm.config;

	if (ops == &memory_ops)
		return ALIGN_UP(memory->size.bytes, (uint64_t)GRANULE);
#ifdef HAVE_CUDA
	if (ops == &gpu_ops && s->domains.count > 0) {
		const struct gpu_config *gpu = s->tiers.hbm.config;
		uint64_t bytes = gpu->size.bytes;

		return bytes -
		       bytes % (gpu->slab_bytes > 0 ? gpu->slab_bytes : gpu_slab_bytes(bytes));
	}
#endif
	return ops != NULL ? d->gpu_bytes : 0;
}

static uint64_t dram_bytes(const struct doctor *d, const struct settings *s)
{
	const struct dram_config *dram = s->tiers.dram.config;
	uint64_t bytes = dram->size.permille > 0 ? doctor_dram_bytes(d) : dram->size.bytes, large;
	unsigned gpus = settings_gpus_told(s);
	struct settings_staging parts;

	settings_staging(s, gpus > 0 && d->gpus > 0 ? d->gpus : gpus, &parts);
	bytes -= MIN(bytes, parts.total_bytes);
	large = ALIGN_UP(bytes, (uint64_t)HUGE_BYTES);
	if (dram->huge_pages != ARENA_HUGE_OFF && large <= hugepage_pool_bytes())
		return large;
	return ALIGN_UP(bytes, (uint64_t)GRANULE);
}

static uint64_t nvme_bytes(const struct doctor *d, const struct settings *s)
{
	const struct nvme_path *paths = s->tiers.nvme.paths.items;
	uint64_t sum = 0;

	if (settings_nvme_options(s) == NULL)
		return 0;
	for (size_t i = 0; i < s->tiers.nvme.paths.count; i++) {
		if (paths[i].size.permille > 0)
			return d->nvme_bytes;
		sum += ALIGN_DOWN(paths[i].size.bytes, (uint64_t)GRANULE);
	}
	return sum;
}

/* ---- namespaces ----------------------------------------------------------------------------- */

/* Of a tier whose size is not known, or that there is not, nothing is said. */
static int quotas_fit(const struct doctor *d, const struct settings *s, struct err *err)
{
	const struct engine_pool pools[] = { { TIER_KIND_HBM, "hbm0", hbm_bytes(d, s) },
					     { TIER_KIND_DRAM, "dram", dram_bytes(d, s) },
					     { TIER_KIND_NVME, "nvme", nvme_bytes(d, s) } };
	uint64_t bytes[TIER_KINDS] = { 0 };
	struct engine_quota *quotas;
	unsigned n;
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
		bytes[pools[i].kind] = pools[i].bytes;
	rc = quotas_make(s, bytes, &quotas, &n, err);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(pools); i++)
		if (pools[i].bytes > 0)
			rc = engine_quotas_fit(quotas, n, &pools[i], err);
	heap_free(quotas);
	return rc;
}

/* Beside `domains` all sizes are in bytes. */
static void say_they_fit(struct doctor *d)
{
	const struct settings *s = &d->settings;
	bool hbm = settings_backend(TIER_KIND_HBM, &s->tiers.hbm) == NULL || hbm_bytes(d, s) > 0;
	bool nvme = settings_nvme_options(s) == NULL || nvme_bytes(d, s) > 0;

	if (hbm && nvme && dram_bytes(d, s) > 0)
		doctor_say(d, DOCTOR_OK, "namespaces", "", "tiers have what is guaranteed");
	else
		doctor_say(d, DOCTOR_OK, "namespaces", "",
			   "what is guaranteed was not compared with the size of%s%s%s, which is "
			   "not known here",
			   hbm ? "" : " hbm", nvme ? "" : " nvme",
			   dram_bytes(d, s) > 0 ? "" : " dram");
}

void doctor_namespaces(struct doctor *d)
{
	struct err err = ERR_INIT;
	struct share share;
	int rc = 0;

	if (!d->configured || d->settings.namespaces.count == 0)
		return;
	for (unsigned i = 0; rc == 0 && i < share_count(&d->settings); i++) {
		rc = share_make(&d->settings, i, &share, &err);
		if (rc == 0)
			rc = quotas_fit(d, &share.settings, &err);
		share_free(&share);
	}
	if (rc < 0)
		doctor_say(d, DOCTOR_FAIL, "namespaces",
			   "guarantees that each domain's tiers have, and no limit below them",
			   "%s", err.text);
	else
		say_they_fit(d);
}

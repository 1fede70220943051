/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/share.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"

/* As their rows have it, of what is said in bytes; a share may be less. */
#define HBM_LEAST  MIB(2)
#define DRAM_LEAST MIB(1)

static const struct settings_domain *listed(const struct settings *whole, unsigned i)
{
	ASSERT(i < whole->domains.count);
	return (const struct settings_domain *)whole->domains.items + i;
}

unsigned share_count(const struct settings *whole)
{
	return (unsigned)whole->domains.count + (whole->strangers == STRANGERS_DEFAULT);
}

bool share_is_default(const struct settings *whole, unsigned i)
{
	return i == whole->domains.count;
}

/* ---- how much ------------------------------------------------------------------------------- */

/* The member of a backend's config that a key fills; NULL: it has no such key. */
static void *member_of(const struct tier_ops *ops, void *config, const char *key)
{
	for (const struct config_row *row = ops->rows; row->key; row++)
		if (strcmp(row->key, key) == 0)
			return (char *)config + row->offset;
	return NULL;
}

static uint64_t hbm_bytes(const struct settings *whole)
{
	const struct tier_ops *ops = settings_backend(TIER_KIND_HBM, &whole->tiers.hbm);
	const struct config_bytes *size =
		ops ? member_of(ops, whole->tiers.hbm.config, "size") : NULL;

	return size ? size->bytes : 0;
}

static uint64_t dram_bytes(const struct settings *whole)
{
	return ((const struct dram_config *)whole->tiers.dram.config)->size.bytes;
}

static const struct nvme_path *path_at(const struct settings *whole, size_t p)
{
	ASSERT(p < whole->tiers.nvme.paths.count);
	return (const struct nvme_path *)whole->tiers.nvme.paths.items + p;
}

/* What is too much for the sum is too much for any tier. */
static uint64_t plus(uint64_t a, uint64_t b)
{
	return b <= UINT64_MAX - a ? a + b : UINT64_MAX;
}

static uint64_t nvme_bytes(const struct settings *whole)
{
	uint64_t sum = 0;

	for (size_t p = 0; p < whole->tiers.nvme.paths.count; p++)
		sum = plus(sum, path_at(whole, p)->size.bytes);
	return sum;
}

static uint64_t part(uint64_t bytes, uint64_t of, uint64_t whole)
{
	return whole == 0 ? 0 : (uint64_t)((unsigned __int128)bytes * of / whole);
}

/* Of what is set, at least a page: 0 would mean "not set". */
static uint64_t part_that_is_set(uint64_t bytes, uint64_t of, uint64_t whole)
{
	return bytes == 0 ? 0 : MAX(ALIGN_DOWN(part(bytes, of, whole), GRANULE), GRANULE);
}

/* Whole pages, so that shares of a device begin where transfers may. */
static uint64_t share_bytes(const struct config_bytes *share, uint64_t tier_bytes)
{
	uint64_t bytes = share->permille ? part(tier_bytes, share->permille, 1000) : share->bytes;

	return ALIGN_DOWN(bytes, GRANULE);
}

/* Of each tier, what domain `i` has; and what those before it have, of which the default one, the
 * last, has the rest. */
struct amounts {
	uint64_t hbm, dram, nvme;
};

static struct amounts amounts_of(const struct settings *whole, unsigned i)
{
	const struct settings_domain *d = listed(whole, i);

	return (struct amounts){ share_bytes(&d->hbm, hbm_bytes(whole)),
				 share_bytes(&d->dram, dram_bytes(whole)),
				 share_bytes(&d->nvme, nvme_bytes(whole)) };
}

static struct amounts amounts_before(const struct settings *whole, unsigned end)
{
	struct amounts sum = { 0 };

	for (unsigned i = 0; i < end; i++) {
		struct amounts a = amounts_of(whole, i);

		sum.hbm = plus(sum.hbm, a.hbm);
		sum.dram = plus(sum.dram, a.dram);
		sum.nvme = plus(sum.nvme, a.nvme);
	}
	return sum;
}

/* Of one path: spread by the size of the paths. */
static uint64_t path_bytes(const struct settings *whole, unsigned i, size_t p)
{
	return ALIGN_DOWN(
		part(path_at(whole, p)->size.bytes, amounts_of(whole, i).nvme, nvme_bytes(whole)),
		GRANULE);
}

static uint64_t path_bytes_before(const struct settings *whole, unsigned end, size_t p)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < end; i++)
		sum += path_bytes(whole, i, p);
	return sum;
}

/* ---- tier by tier --------------------------------------------------------------------------- */

static int hbm_share(const struct settings *whole, uint64_t bytes, struct share *s, struct err *err)
{
	const struct tier_ops *ops = settings_backend(TIER_KIND_HBM, &whole->tiers.hbm);
	struct config_bytes *size;
	bool *scrub;

	if (!ops || bytes < HBM_LEAST) {
		s->settings.tiers.hbm = (struct config_variant){ .choice = -1 };
		return 0;
	}
	s->hbm = heap_zeros(1, ops->config_size);
	if (!s->hbm)
		return err_set(err, ENOMEM, "domain %s: no memory", s->name);
	memcpy(s->hbm, whole->tiers.hbm.config, ops->config_size);
	s->settings.tiers.hbm.config = s->hbm;
	size = member_of(ops, s->hbm, "size");
	*size = (struct config_bytes){ .bytes = bytes };
	/* A slab may be made of memory that was another domain's a moment ago. */
	scrub = member_of(ops, s->hbm, "scrub");
	if (scrub)
		*scrub = true;
	return 0;
}

/* What is given out of dram beside tensors goes by the share of dram. */
static void dram_share(const struct settings *whole, uint64_t bytes, uint64_t later_bytes,
		       struct share *s)
{
	uint64_t all = dram_bytes(whole);

	s->dram = *(const struct dram_config *)whole->tiers.dram.config;
	s->dram.size.bytes = bytes;
	s->dram.zone_bytes = part_that_is_set(s->dram.zone_bytes, bytes, all);
	s->dram.beside_bytes = later_bytes;
	s->settings.tiers.dram.config = &s->dram;
	s->settings.staging_bytes = part_that_is_set(whole->staging_bytes, bytes, all);
}

static void nvme_share(const struct settings *whole, unsigned i, struct share *s)
{
	const struct nvme_options *o = settings_nvme_options(whole);
	struct config_list *paths = &s->settings.tiers.nvme.paths;

	*paths = (struct config_list){ s->paths, 0 };
	for (size_t p = 0; p < whole->tiers.nvme.paths.count; p++) {
		const struct nvme_path *path = path_at(whole, p);
		uint64_t start = path_bytes_before(whole, i, p), bytes;

		bytes = share_is_default(whole, i) ? ALIGN_DOWN(path->size.bytes, GRANULE) - start
						   : path_bytes(whole, i, p);
		/* Of what is left there may be less than is of use. */
		if (bytes == 0 || (share_is_default(whole, i) && bytes < o->block_bytes))
			continue;
		s->paths[paths->count++] =
			(struct nvme_path){ path->path, { .bytes = bytes }, start };
	}
	if (paths->count == 0)
		s->settings.tiers.nvme.backend = (struct config_variant){ .choice = -1 };
}

int share_make(const struct settings *whole, unsigned i, struct share *s, struct err *err)
{
	bool rest = share_is_default(whole, i);
	struct amounts before, mine, all = { hbm_bytes(whole), dram_bytes(whole), 0 };

	*s = (struct share){ .name = rest ? SHARE_DEFAULT_NAME : listed(whole, i)->name,
			     .settings = *whole };
	if (whole->domains.count == 0)
		return 0;
	before = amounts_before(whole, i);
	if (rest)
		mine = (struct amounts){ all.hbm - before.hbm, all.dram - before.dram, 0 };
	else
		mine = amounts_of(whole, i);
	dram_share(whole, mine.dram, all.dram - before.dram - mine.dram, s);
	nvme_share(whole, i, s);
	return hbm_share(whole, mine.hbm, s, err);
}

void share_free(struct share *s)
{
	heap_free(s->hbm);
	s->hbm = NULL;
}

/* ---- whether all of it fits ----------------------------------------------------------------- */

static int fits(const char *tier, uint64_t sum, uint64_t have, struct err *err)
{
	if (sum <= have)
		return 0;
	return err_set(err, EINVAL,
		       "domains: their shares of %s are %llu bytes together, tiers.%s has %llu",
		       tier, (unsigned long long)sum, tier, (unsigned long long)have);
}

static int all_fit(const struct settings *whole, struct err *err)
{
	struct amounts sum = amounts_before(whole, (unsigned)whole->domains.count);
	int rc = fits("hbm", sum.hbm, hbm_bytes(whole), err);

	if (rc == 0)
		rc = fits("dram", sum.dram, dram_bytes(whole), err);
	if (rc == 0)
		rc = fits("nvme", sum.nvme, nvme_bytes(whole), err);
	if (rc == 0 && whole->strangers == STRANGERS_DEFAULT &&
	    dram_bytes(whole) - sum.dram < DRAM_LEAST)
		rc = err_set(err, EINVAL,
			     "domains: they leave %llu of the %llu bytes of tiers.dram to users in "
			     "none of them: 1MiB is needed, or `strangers: refuse`",
			     (unsigned long long)(dram_bytes(whole) - sum.dram),
			     (unsigned long long)dram_bytes(whole));
	return rc;
}

/* What a share is of must be known before anything is opened. */
static int sizes_are_bytes(const struct settings *whole, struct err *err)
{
	const struct tier_ops *ops = settings_backend(TIER_KIND_HBM, &whole->tiers.hbm);
	const struct config_bytes *hbm =
		ops ? member_of(ops, whole->tiers.hbm.config, "size") : NULL;
	const struct dram_config *dram = whole->tiers.dram.config;
	const char *what = hbm && hbm->permille      ? "tiers.hbm.size"
			   : dram->size.permille > 0 ? "tiers.dram.size"
						     : NULL;

	for (size_t p = 0; !what && p < whole->tiers.nvme.paths.count; p++)
		what = path_at(whole, p)->size.permille > 0 ? "tiers.nvme.paths" : NULL;
	if (!what)
		return 0;
	return err_set(err, EINVAL, "%s: beside `domains` sizes are in bytes, not in %%", what);
}

static bool is_set(const struct config_bytes *b)
{
	return b->bytes > 0 || b->permille > 0;
}

static int tiers_exist(const struct settings *whole, unsigned i, struct err *err)
{
	const struct settings_domain *d = listed(whole, i);
	const char *none = is_set(&d->hbm) && hbm_bytes(whole) == 0     ? "hbm"
			   : is_set(&d->nvme) && nvme_bytes(whole) == 0 ? "nvme"
									: NULL;

	if (!none)
		return 0;
	return err_set(err, EINVAL, "domains[%u].%s: there is no tier %s to have a share of", i,
		       none, none);
}

static int too_little(unsigned i, const char *tier, uint64_t bytes, uint64_t least, struct err *err)
{
	return err_set(err, EINVAL, "domains[%u].%s: %llu bytes are less than %lluMiB", i, tier,
		       (unsigned long long)bytes, (unsigned long long)(least >> 20));
}

/* Of nvme see blocks_fit(). */
static int is_enough(const struct settings *whole, unsigned i, struct err *err)
{
	struct amounts a = amounts_of(whole, i);

	if (is_set(&listed(whole, i)->hbm) && a.hbm < HBM_LEAST)
		return too_little(i, "hbm", a.hbm, HBM_LEAST, err);
	return a.dram < DRAM_LEAST ? too_little(i, "dram", a.dram, DRAM_LEAST, err) : 0;
}

static int blocks_fit(const struct settings *whole, unsigned i, struct err *err)
{
	const struct nvme_options *o = settings_nvme_options(whole);

	for (size_t p = 0; is_set(&listed(whole, i)->nvme) && p < whole->tiers.nvme.paths.count;
	     p++)
		if (path_bytes(whole, i, p) < o->block_bytes)
			return err_set(err, EINVAL,
				       "domains[%u].nvme: %llu bytes of %s are less than one block "
				       "of %llu bytes",
				       i, (unsigned long long)path_bytes(whole, i, p),
				       path_at(whole, p)->path, (unsigned long long)o->block_bytes);
	return 0;
}

static bool user_in(const struct settings_domain *d, const char *user, size_t end)
{
	const struct settings_user *users = d->users.items;

	for (size_t k = 0; k < end; k++)
		if (strcmp(users[k].user, user) == 0)
			return true;
	return false;
}

/* As they are spelled; a name and its number are compared when the daemon starts. */
static int users_differ(const struct settings *whole, unsigned i, struct err *err)
{
	const struct settings_domain *d = listed(whole, i);
	const struct settings_user *users = d->users.items;

	for (size_t u = 0; u < d->users.count; u++)
		for (unsigned k = 0; k <= i; k++)
			if (user_in(listed(whole, k), users[u].user,
				    k == i ? u : listed(whole, k)->users.count))
				return err_set(err, EINVAL,
					       "domains[%u].users: '%s' is in domain '%s' already",
					       i, users[u].user, listed(whole, k)->name);
	return 0;
}

static int name_check(const struct settings *whole, unsigned i, struct err *err)
{
	const char *name = listed(whole, i)->name;

	if (strlen(name) > SHARE_NAME_MAX)
		return err_set(err, EINVAL, "domains[%u].name: %zu bytes, %u are possible", i,
			       strlen(name), SHARE_NAME_MAX);
	if (strcmp(name, SHARE_DEFAULT_NAME) == 0)
		return err_set(err, EINVAL,
			       "domains[%u].name: '%s' is what users in no domain are in", i, name);
	for (unsigned k = 0; k < i; k++)
		if (strcmp(listed(whole, k)->name, name) == 0)
			return err_set(err, EINVAL, "domains[%u].name: '%s' stands twice", i, name);
	return 0;
}

static int listed_check(const struct settings *whole, unsigned i, struct err *err)
{
	int rc = name_check(whole, i, err);

	if (rc == 0)
		rc = users_differ(whole, i, err);
	if (rc == 0)
		rc = tiers_exist(whole, i, err);
	if (rc == 0)
		rc = is_enough(whole, i, err);
	if (rc == 0)
		rc = blocks_fit(whole, i, err);
	return rc;
}

/* What holds of the whole holds of each share, too. */
static int share_check(const struct settings *whole, unsigned i, struct err *err)
{
	struct share s;
	int rc = share_make(whole, i, &s, err);

	if (rc == 0)
		rc = settings_check_sizes(&s.settings, err);
	share_free(&s);
	if (rc == 0)
		return 0;
	return share_is_default(whole, i) ? err_prefix(err, "domains: what is left")
					  : err_prefix(err, "domains[%u]", i);
}

int shares_check(const struct settings *whole, struct err *err)
{
	int rc = 0;

	if (whole->domains.count == 0)
		return whole->strangers == STRANGERS_DEFAULT
			       ? 0
			       : err_set(err, EINVAL,
					 "strangers: without `domains` everybody would be refused");
	rc = sizes_are_bytes(whole, err);
	for (unsigned i = 0; rc == 0 && i < whole->domains.count; i++)
		rc = listed_check(whole, i, err);
	if (rc == 0)
		rc = all_fit(whole, err);
	for (unsigned i = 0; rc == 0 && i < share_count(whole); i++)
		rc = share_check(whole, i, err);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/quotas.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/heap.h"
#include "tiers/dram.h"

/* ---- keys ---- */

/* clang-format off */
#define AT(type, member) offsetof(struct type, member)

#define QUOTA_ROWS \
	{ "guarantee", CONFIG_BYTES, AT(settings_quota, guarantee), NULL, NULL, NULL, 0, \
	  "While they have no more than this, nobody else's need takes their tensors from the " \
	  "tier. All guarantees together are at most the tier. Not set: nothing.", NULL, NULL }, \
	{ "limit", CONFIG_BYTES, AT(settings_quota, limit), NULL, "4KiB", NULL, 0, \
	  "They never have more than this there: their own tensors make room for each other. Not " \
	  "set: all of the tier.", NULL, NULL }, \
	CONFIG_END
static const struct config_row quota_rows[] = { QUOTA_ROWS };
static const struct config_sub quota_sub = { .rows = quota_rows,
					     .size = sizeof(struct settings_quota) };
static const struct config_row namespace_rows[] = {
	{ "name", CONFIG_TEXT, AT(settings_namespace, name), NULL, NULL, NULL, CONFIG_REQUIRED,
	  "A namespace, or with a star at its end all that begin so: they share what the item "
	  "says. Of several that fit, the longest holds, and one without a star before all others.",
	  NULL, NULL },
	{ "hbm", CONFIG_MAP, AT(settings_namespace, hbm), NULL, NULL, NULL, 0,
	  "Of each GPU; % of it.", NULL, &quota_sub },
	{ "dram", CONFIG_MAP, AT(settings_namespace, dram), NULL, NULL, NULL, 0,
	  "Of dram without staging; % of that.", NULL, &quota_sub },
	{ "nvme", CONFIG_MAP, AT(settings_namespace, nvme), NULL, NULL, NULL, 0,
	  "Of all paths together; % of that.", NULL, &quota_sub },
	CONFIG_END,
};
const struct config_sub quotas_sub = { .rows = namespace_rows,
						 .size = sizeof(struct settings_namespace) };

static const char *const then_names[] = { "tell", "cut_off", "terminate", NULL };
static const struct config_row excess_rows[] = {
	{ "patience", CONFIG_DURATION, AT(settings_excess, patience_ns), "30s", "100ms", NULL, 0,
	  "How long it may be so that clients of a namespace have more of a tier pinned, of "
	  "whatever tensors, than the guarantee while somebody of another waits who keeps within "
	  "his, or more than the limit while anybody waits.", NULL, NULL },
	{ "then", CONFIG_CHOICE, AT(settings_excess, then), "cut_off", NULL, NULL, 0,
	  "What becomes of the client that has most of it: it is told in the log and counted "
	  "alone; it is also served no more, though what it has pinned stays as long as it "
	  "lives; or it is sent SIGTERM besides, which takes CAP_KILL if it is another user's.",
	  then_names, NULL },
	CONFIG_END,
};
const struct config_sub excess_sub = { .rows = excess_rows,
				       .size = sizeof(struct settings_excess) };
/* clang-format on */

static const struct settings_namespace *item_at(const struct settings *s, size_t i)
{
	return (const struct settings_namespace *)s->namespaces.items + i;
}

static const struct settings_quota *quota_of(const struct settings_namespace *n,
					     enum tier_kind kind)
{
	return kind == TIER_KIND_HBM ? &n->hbm : kind == TIER_KIND_DRAM ? &n->dram : &n->nvme;
}

static bool is_set(const struct config_bytes *b)
{
	return b->bytes > 0 || b->permille > 0;
}

static bool has_tier(const struct settings *s, enum tier_kind kind)
{
	if (kind == TIER_KIND_NVME)
		return settings_nvme_options(s) != NULL;
	return kind == TIER_KIND_DRAM || settings_backend(kind, &s->tiers.hbm) != NULL;
}

/* ---- what the configuration alone tells ---- */

static int name_check(const struct settings *s, size_t i, struct err *err)
{
	const char *name = item_at(s, i)->name, *star = strchr(name, '*');
	size_t bytes = strlen(name);

	if (bytes == 0 || bytes > PROTOCOL_NAME_MAX)
		return err_set(err, EINVAL, "namespaces[%zu].name: %zu bytes, 1 to %d are possible",
			       i, bytes, PROTOCOL_NAME_MAX);
	if (star && star[1] != '\0')
		return err_set(err, EINVAL, "namespaces[%zu].name: a star stands at the end alone",
			       i);
	for (size_t j = 0; j < i; j++)
		if (strcmp(item_at(s, j)->name, name) == 0)
			return err_set(err, EINVAL, "namespaces[%zu].name: '%.60s' stands twice", i,
				       name);
	return 0;
}

/* Bytes and shares are compared when the tier's size is known. */
static bool is_above(const struct config_bytes *a, const struct config_bytes *b)
{
	if ((a->permille > 0) != (b->permille > 0))
		return false;
	return a->permille > 0 ? a->permille > b->permille : a->bytes > b->bytes;
}

static int tier_check(const struct settings *s, size_t i, enum tier_kind kind, struct err *err)
{
	const struct settings_quota *q = quota_of(item_at(s, i), kind);
	const char *tier = tier_kind_name(kind);

	if (!is_set(&q->guarantee) && !is_set(&q->limit))
		return 0;
	if (!has_tier(s, kind))
		return err_set(err, EINVAL, "namespaces[%zu].%s: there is no tier %s", i, tier,
			       tier);
	if (kind != TIER_KIND_HBM &&
	    ((const struct dram_config *)s->tiers.dram.config)->zone_bytes > 0)
		return err_set(err, EINVAL,
			       "namespaces[%zu].%s: beside tiers.dram.zone there are quotas of hbm "
			       "alone",
			       i, tier);
	if (is_set(&q->limit) && is_above(&q->guarantee, &q->limit))
		return err_set(err, EINVAL, "namespaces[%zu].%s.guarantee: above its limit", i,
			       tier);
	return 0;
}

static int sum_check(const struct settings *s, enum tier_kind kind, struct err *err)
{
	uint64_t permille = 0;

	for (size_t i = 0; i < s->namespaces.count; i++)
		permille += quota_of(item_at(s, i), kind)->guarantee.permille;
	if (permille <= 1000)
		return 0;
	return err_set(err, EINVAL,
		       "namespaces: guarantees of %s are %llu.%llu%% of it together, 100%% are "
		       "possible",
		       tier_kind_name(kind), (unsigned long long)permille / 10,
		       (unsigned long long)permille % 10);
}

int quotas_check(const struct settings *s, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->namespaces.count; i++) {
		rc = name_check(s, i, err);
		for (unsigned kind = 0; rc == 0 && kind < TIER_KINDS; kind++)
			rc = tier_check(s, i, kind, err);
	}
	for (unsigned kind = 0; rc == 0 && kind < TIER_KINDS; kind++)
		rc = sum_check(s, kind, err);
	return rc;
}

/* ---- bytes ---- */

static uint64_t bytes_of(const struct config_bytes *b, uint64_t tier_bytes, uint64_t otherwise)
{
	if (!is_set(b))
		return otherwise;
	return b->permille > 0 ? (uint64_t)((unsigned __int128)tier_bytes * b->permille / 1000)
			       : b->bytes;
}

static int make_one(const struct settings *s, size_t i, const uint64_t tier_bytes[TIER_KINDS],
		    struct engine_quota *ret, struct err *err)
{
	const struct settings_namespace *n = item_at(s, i);
	size_t bytes = strlen(n->name);

	ret->prefix = n->name[bytes - 1] == '*';
	memcpy(ret->name, n->name, bytes - ret->prefix);
	for (unsigned kind = 0; kind < TIER_KINDS; kind++) {
		const struct settings_quota *q = quota_of(n, kind);
		uint64_t guarantee = bytes_of(&q->guarantee, tier_bytes[kind], 0);
		uint64_t limit = bytes_of(&q->limit, tier_bytes[kind], UINT64_MAX);

		if (tier_bytes[kind] == 0)
			guarantee = 0; /* a domain may have a tier less */
		if (guarantee > limit)
			return err_set(err, EINVAL,
				       "namespaces[%zu].%s.guarantee: %llu bytes are above its "
				       "limit, %llu",
				       i, tier_kind_name(kind), (unsigned long long)guarantee,
				       (unsigned long long)limit);
		ret->tier[kind].guarantee_bytes = guarantee;
		ret->tier[kind].limit_bytes = limit;
	}
	return 0;
}

int quotas_make(const struct settings *s, const uint64_t tier_bytes[TIER_KINDS],
		struct engine_quota **ret, unsigned *ret_count, struct err *err)
{
	struct engine_quota *list;
	int rc = 0;

	*ret = NULL;
	*ret_count = 0;
	if (s->namespaces.count == 0)
		return 0;
	list = heap_zeros(s->namespaces.count, sizeof(*list));
	if (!list)
		return err_set(err, ENOMEM, "namespaces: no memory");
	for (size_t i = 0; rc == 0 && i < s->namespaces.count; i++)
		rc = make_one(s, i, tier_bytes, &list[i], err);
	if (rc < 0) {
		heap_free(list);
		return rc;
	}
	*ret = list;
	*ret_count = (unsigned)s->namespaces.count;
	return 0;
}

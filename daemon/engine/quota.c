/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/quota.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

/* ---- accounts ---- */

static uint64_t pool_bytes(const struct engine *e, uint8_t pool)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < e->device_count; i++)
		if (e->devices[i].pool == pool)
			bytes += extents_capacity(e->devices[i].extents);
	return bytes;
}

static void find_pools(struct engine *e)
{
	for (unsigned i = 0; i < e->device_count; i++) {
		enum tier_kind kind = device_kind(e, (uint8_t)i);

		e->devices[i].pool = kind == TIER_KIND_HBM    ? (uint8_t)i
				     : kind == TIER_KIND_DRAM ? e->dram
							      : e->nvme_first;
	}
}

static const char *row_text(const struct engine_quota *quotas, unsigned i, char text[128])
{
	snprintf(text, 128, "namespaces[%u] ('%.60s%s')", i, quotas[i].name,
		 quotas[i].prefix ? "*" : "");
	return text;
}

const char *quota_text(const struct engine *e, const struct account *a, char text[128])
{
	if (a->quota != NULL)
		return row_text(e->params.quotas, (unsigned)(a->quota - e->params.quotas), text);
	snprintf(text, 128, "namespaces without a row of their own");
	return text;
}

/* Of a GPU its name; dram and nvme are whole tiers, however many devices they have. */
static const char *pool_name(const struct engine *e, uint8_t pool)
{
	enum tier_kind kind = device_kind(e, pool);

	return kind == TIER_KIND_HBM ? e->devices[pool].tier->base.name : tier_kind_name(kind);
}

/* `of`: "namespaces" or one of them. */
static int too_much(const struct engine_pool *p, const char *of, const char *together,
		    uint64_t bytes, struct err *err)
{
	return err_set(err, EINVAL,
		       "%s: %s.guarantee: %s%llu bytes, more than the %llu that %s has", of,
		       tier_kind_name(p->kind), together, (unsigned long long)bytes,
		       (unsigned long long)p->bytes, p->name);
}

int engine_quotas_fit(const struct engine_quota *quotas, unsigned n, const struct engine_pool *p,
		      struct err *err)
{
	uint64_t sum = 0;
	char name[128];

	for (unsigned i = 0; i < n; i++) {
		uint64_t bytes = quotas[i].tier[p->kind].guarantee_bytes;

		if (bytes > p->bytes)
			return too_much(p, row_text(quotas, i, name), "", bytes, err);
		sum += bytes;
	}
	return sum > p->bytes ? too_much(p, "namespaces", "together ", sum, err) : 0;
}

/* What is guaranteed in the pool stays within it: 0 or -EINVAL. */
static int open_pool(struct engine *e, uint8_t pool, struct err *err)
{
	enum tier_kind kind = device_kind(e, pool);
	uint64_t bytes = pool_bytes(e, pool), sum = 0;
	struct engine_pool p = { kind, pool_name(e, pool), bytes };
	int rc = engine_quotas_fit(e->params.quotas, e->params.quota_count, &p, err);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < e->account_count; i++) {
		struct account *a = &e->accounts[i];
		struct quota_share *s = &a->pool[pool];

		s->guarantee_bytes = a->quota != NULL ? a->quota->tier[kind].guarantee_bytes : 0;
		s->limit_bytes = a->quota != NULL ? a->quota->tier[kind].limit_bytes : UINT64_MAX;
		if (s->limit_bytes >= bytes) /* a full tier is nobody's limit */
			s->limit_bytes = UINT64_MAX;
		sum += s->guarantee_bytes;
	}
	for (unsigned i = 0; i < e->account_count; i++) {
		struct quota_share *s = &e->accounts[i].pool[pool];

		s->sure_bytes = MIN(s->limit_bytes, bytes - (sum - s->guarantee_bytes));
	}
	return 0;
}

static bool limits_home(const struct engine_quota *q)
{
	return q->tier[TIER_KIND_DRAM].guarantee_bytes > 0 ||
	       q->tier[TIER_KIND_NVME].guarantee_bytes > 0 ||
	       q->tier[TIER_KIND_DRAM].limit_bytes != UINT64_MAX ||
	       q->tier[TIER_KIND_NVME].limit_bytes != UINT64_MAX;
}

int quotas_open(struct engine *e, struct err *err)
{
	unsigned n = e->params.quota_count;
	int rc = 0;

	e->accounts = heap_zeros(n + 1, sizeof(*e->accounts));
	if (e->accounts == NULL)
		return err_set(err, ENOMEM, "no memory for quotas");
	e->account_count = n + 1;
	for (unsigned i = 0; i < n; i++) {
		e->accounts[i + 1].quota = &e->params.quotas[i];
		/* What a zone and the rest of dram could hold together for one namespace is not one
		 * sum, and who was admitted by a wrong one would wait for ever. */
		if (e->zone != DEVICE_NONE && limits_home(&e->params.quotas[i]))
			return err_set(err, EINVAL,
				       "namespaces[%u]: beside tiers.dram.zone there are quotas of "
				       "hbm alone",
				       i);
	}
	find_pools(e);
	for (unsigned i = 0; i < e->device_count && rc == 0; i++)
		if (e->devices[i].pool == i)
			rc = open_pool(e, (uint8_t)i, err);
	return rc;
}

void quotas_close(struct engine *e)
{
	heap_free(e->accounts);
}

uint16_t quota_find(const struct engine *e, const char *name, size_t bytes)
{
	size_t most = 0;
	uint16_t best = 0;

	for (unsigned i = 1; i < e->account_count; i++) {
		const struct engine_quota *q = e->accounts[i].quota;
		size_t n = strlen(q->name);

		if (n > bytes || memcmp(q->name, name, n) != 0 || (!q->prefix && n != bytes))
			continue;
		if (!q->prefix)
			return (uint16_t)i;
		if (best == 0 || n > most) {
			best = (uint16_t)i;
			most = n;
		}
	}
	return best;
}

bool quota_yields(const struct engine *e, const struct quota_demand *demand, uint32_t tensor,
		  uint8_t device)
{
	const struct account *a = account_of(e, tensor);
	const struct quota_share *s = &a->pool[e->devices[device].pool];
	uint64_t stays = s->used_bytes - MIN(s->leaving_bytes, s->used_bytes);

	/* Who asks beside others in one request has its part of the need. */
	if (a == demand->account || !quotas_any(e) || (demand->asks && a->asked_bytes > 0))
		return true;
	if (demand->own)
		return false;
	if (demand->whole)
		return stays > s->guarantee_bytes;
	return stays >= s->guarantee_bytes + replica_rounded(e, device, e->records[tensor].bytes);
}

/* ---- requests ---- */

struct account *quota_of_request(const struct engine *e, const struct request *q)
{
	return q->n > 0 ? account_of(e, q->items[0].tensor) : &e->accounts[0];
}

/* Bytes of the request, an account: those that lack room now, or those that come and go. */
static void ask(struct engine *e, struct request *q, bool lacking)
{
	for (unsigned i = 0; i < e->account_count; i++)
		e->accounts[i].asked_bytes = 0;
	for (size_t i = 0; i < q->n; i++) {
		const struct record *r = record_of(e, q->items[i].tensor);

		if (lacking ? acquire_needs_room(e, q, &q->items[i])
			    : q->device != e->dram || (r->flags & RECORD_SMALL) == 0)
			account_of(e, q->items[i].tensor)->asked_bytes +=
				replica_rounded(e, q->device, r->bytes);
	}
}

/* What stays in the pool, whoever wants room there, beside what is asked of the account: dram keeps
 * small tensors, and what is above all that its nvme can take for sure. */
static uint64_t stays_in(const struct engine *e, const struct account *a, uint8_t pool)
{
	return pool == e->dram ? quota_stays_in_dram(e, a, a->asked_bytes) : 0;
}

/* What all of the request could have of the pool, whatever others use of their guarantees. */
static uint64_t sure_together(const struct engine *e, uint8_t pool)
{
	uint64_t bytes = pool_bytes(e, pool), kept = 0;

	for (unsigned i = 0; i < e->account_count; i++) {
		const struct account *a = &e->accounts[i];
		uint64_t stays = stays_in(e, a, pool);

		kept += a->asked_bytes > 0 ? stays : MAX(stays, a->pool[pool].guarantee_bytes);
	}
	return bytes > kept ? bytes - kept : 0;
}

static int refuse(const struct engine *e, const struct account *a, uint8_t pool, uint64_t asked,
		  uint64_t most, char *text, size_t room)
{
	const char *tier = tier_kind_name(device_kind(e, pool));
	char name[128];

	snprintf(text, room,
		 "%s: %llu bytes of %s were asked for, %llu can be had for sure (%s.limit, what is "
		 "guaranteed to others, and what of theirs can be nowhere else)",
		 quota_text(e, a, name), (unsigned long long)asked, tier, (unsigned long long)most,
		 tier);
	return -EDQUOT;
}

int quota_can_fit(struct engine *e, struct request *q, char *text, size_t room)
{
	uint8_t pool = e->devices[q->device].pool;
	uint64_t together, sum = 0;

	if (!quotas_any(e))
		return 0;
	ask(e, q, false);
	for (unsigned i = 0; i < e->account_count; i++) {
		const struct account *a = &e->accounts[i];
		uint64_t limit = a->pool[pool].limit_bytes, stays = stays_in(e, a, pool);
		uint64_t most = limit > stays ? limit - stays : 0;

		if (a->asked_bytes > most)
			return refuse(e, a, pool, a->asked_bytes, most, text, room);
		sum += a->asked_bytes;
	}
	together = sure_together(e, pool);
	return sum <= together ? 0
			       : refuse(e, quota_of_request(e, q), pool, sum, together, text, room);
}

struct account *quota_limits(struct engine *e, struct request *q, uint64_t *ret_over)
{
	uint8_t pool = e->devices[q->device].pool;

	*ret_over = 0;
	if (!quotas_any(e))
		return NULL;
	ask(e, q, true);
	for (unsigned i = 0; i < e->account_count; i++) {
		struct account *a = &e->accounts[i];
		const struct quota_share *s = &a->pool[pool];

		if (a->asked_bytes == 0 || s->used_bytes + a->asked_bytes <= s->limit_bytes)
			continue;
		*ret_over = s->used_bytes + a->asked_bytes - s->limit_bytes;
		return a;
	}
	return NULL;
}

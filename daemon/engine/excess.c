/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins count for the namespace of whoever holds them, whosever the tensors are: extents count for
 * the tensors' (quota.h), so that a client could hold what others pay for. By pins, too, it is told
 * who waits within his guarantee. As guarantees fit the device, somebody is above his own when such
 * a one finds nothing but pins; unless only the holes lack, and then there is nobody to be told.
 */
#include "daemon/engine/excess.h"

#include <stdio.h>

#include "daemon/engine/crowd.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"

#define LOOKS 8u /* in the time that somebody may be above */

struct look {
	struct engine *e;
	uint8_t device;
	bool afresh;                  /* nobody has looked for long: what was found then is past */
	const struct request *denied; /* waits for pins alone, */
	uint64_t looks;               /* tensors of which each client's slot was read */
	const struct request *within; /* and within the guarantee of its client's namespace */
};

static const struct quota_share *share_at(const struct look *l, const struct account *a)
{
	return &a->pool[l->e->devices[l->device].pool];
}

/* ---- who waits ---- */

static bool is_pinned_by(struct look *l, const struct account *a, uint32_t tensor)
{
	const struct list *it;

	if (!crowd_stands(l->e, l->device, tensor))
		return false;
	l->looks++;
	list_for_each (it, &l->e->holders) {
		const struct holder *h = list_entry(it, struct holder, link);

		if (account_of_holder(l->e, h) == a && crowd_pins(h, tensor))
			return true;
	}
	return false;
}

/* With it all that its namespace has pinned is no more than the guarantee. */
static bool is_within(struct look *l, const struct request *q)
{
	const struct account *a = account_of_holder(l->e, q->holder);
	uint64_t bytes = a->pinned_bytes, most = share_at(l, a)->guarantee_bytes;

	for (size_t i = 0; i < q->n && bytes <= most; i++)
		if (!is_pinned_by(l, a, q->items[i].tensor))
			bytes += replica_rounded(l->e, l->device,
						 record_of(l->e, q->items[i].tensor)->bytes);
	return most > 0 && bytes <= most;
}

static void find_waiters(struct look *l)
{
	const struct list *it;

	list_for_each (it, queue_of(l->e, l->device)) {
		const struct request *q = list_entry(it, struct request, link);

		if (!q->denied || !request_is_live(l->e, q))
			continue;
		l->denied = q;
		if (l->within == NULL && is_within(l, q))
			l->within = q;
	}
}

/* ---- who holds too much ---- */

/* Of who waits himself nothing but the limit is looked at: what he lacks is his. */
static uint64_t excess_of(const struct look *l, const struct account *a)
{
	const struct quota_share *s = share_at(l, a);
	bool own = l->within != NULL && account_of_holder(l->e, l->within->holder) == a;
	uint64_t most = l->within != NULL && !own ? s->guarantee_bytes : s->limit_bytes;

	return l->denied != NULL && a->pinned_bytes > most ? a->pinned_bytes - most : 0;
}

/* Of those who are served yet. */
static struct holder *holder_of_most(const struct look *l, const struct account *a)
{
	struct holder *ret = NULL;
	struct list *it;

	list_for_each (it, &l->e->holders) {
		struct holder *h = list_entry(it, struct holder, link);

		if (account_of_holder(l->e, h) == a && !h->stopped && h->pinned_bytes > 0 &&
		    (ret == NULL || h->pinned_bytes > ret->pinned_bytes))
			ret = h;
	}
	return ret;
}

static void tell(const struct look *l, const struct account *a, struct holder *h)
{
	const struct engine_hooks *hooks = &l->e->params.hooks;
	const struct request *q = l->within != NULL ? l->within : l->denied;
	char name[128], text[EXCESS_TEXT_BYTES];

	snprintf(text, sizeof(text),
		 "%llu bytes of %s are pinned by it, %llu by all of %s, whose %s of %llu is "
		 "passed while process %d waits",
		 (unsigned long long)h->pinned_bytes, l->e->devices[l->device].tier->base.name,
		 (unsigned long long)a->pinned_bytes, quota_text(l->e, a, name),
		 l->within != NULL ? "guarantee" : "limit",
		 (unsigned long long)(a->pinned_bytes - excess_of(l, a)), q->holder->pid);
	stat_add(STAT(l->e, excesses), 1);
	if (hooks->excess != NULL)
		hooks->excess(hooks->ctx, h, text);
}

/* Whether it was above at each look for as long as it may be. */
static bool is_overdue(const struct look *l, struct account *a)
{
	uint64_t *since_ns = &a->pool[l->e->devices[l->device].pool].excess_since_ns;

	if (excess_of(l, a) == 0)
		*since_ns = 0;
	else if (*since_ns == 0 || l->afresh)
		*since_ns = l->e->now_ns;
	return *since_ns != 0 && l->e->now_ns - *since_ns >= l->e->params.excess_ns;
}

/* One at a time, as what it holds may be all that was wanted; all others have as long again. */
static void judge(const struct look *l)
{
	uint8_t pool = l->e->devices[l->device].pool;
	struct account *worst = NULL;

	for (unsigned i = 0; i < l->e->account_count; i++) {
		struct account *a = &l->e->accounts[i];

		if (is_overdue(l, a) && holder_of_most(l, a) != NULL &&
		    (worst == NULL || excess_of(l, a) > excess_of(l, worst)))
			worst = a;
	}
	if (worst == NULL)
		return;
	for (unsigned i = 0; i < l->e->account_count; i++)
		if (l->e->accounts[i].pool[pool].excess_since_ns != 0)
			l->e->accounts[i].pool[pool].excess_since_ns = l->e->now_ns;
	tell(l, worst, holder_of_most(l, worst));
}

static bool anybody_is_denied(struct engine *e, uint8_t device)
{
	const struct list *it;

	list_for_each (it, queue_of(e, device))
		if (list_entry(it, struct request, link)->denied)
			return true;
	return false;
}

/* Returns how many tensors it looked at. */
static uint64_t look_at(struct engine *e, uint8_t device, bool afresh)
{
	struct look l = { .e = e, .device = device, .afresh = afresh };
	uint64_t all = UINT64_MAX;

	if (anybody_is_denied(e, device)) {
		l.looks = crowd_count(e, device, NULL, &all);
		find_waiters(&l);
	}
	judge(&l);
	return l.looks;
}

/* ---- time ---- */

static bool anybody_waits(struct engine *e)
{
	for (unsigned i = 0; i < e->device_count; i++)
		if (!list_empty(&e->devices[i].queue))
			return true;
	return false;
}

/* What takes long is done more rarely. */
uint64_t excess_turn(struct engine *e)
{
	uint64_t between_ns = e->params.excess_ns / LOOKS, looks = 0;
	bool afresh = e->now_ns > e->excess_at_ns + MAX(between_ns, e->excess_rest_ns);

	if (!quotas_any(e) || between_ns == 0 || !anybody_waits(e))
		return ENGINE_NEVER;
	if (e->now_ns < e->excess_at_ns)
		return e->excess_at_ns;
	for (unsigned i = 0; i < e->device_count; i++)
		if (e->devices[i].pool == i && device_kind(e, (uint8_t)i) != TIER_KIND_NVME)
			looks += look_at(e, (uint8_t)i, afresh);
	e->excess_rest_ns = pins_rest_ns(e, looks);
	e->excess_at_ns = e->now_ns + MAX(between_ns, e->excess_rest_ns);
	return e->excess_at_ns;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/slabs.h"

#include <errno.h>
#include <stdio.h>

#include "base/heap.h"
#include "base/log.h"
#include "daemon/engine/piece.h"
#include "daemon/engine/prefetch.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slab_search.h"

#define SLAB_IDLE_NS     (10 * NS_PER_S)   /* empty for so long, it is given back */
#define SLAB_RETRY_NS    NS_PER_S          /* after out of memory */
#define SLAB_PATIENCE_NS (100 * NS_PER_MS) /* for clients that a traded slab waits for */

static const struct tier_base *base_of(const struct engine *e, uint8_t tier)
{
	return &e->devices[tier].tier->base;
}

/* The device that has the slab's range among its extents. */
static uint8_t home_of(const struct engine *e, uint8_t tier, const struct slabs *s, uint32_t i)
{
	if (e->zone != DEVICE_NONE && tier == e->dram &&
	    slab_begin(s, i) < e->params.dram_zone_bytes)
		return e->zone;
	return tier;
}

/* ---- ranges that are nobody's, and back ---- */

static int close_range(struct engine *e, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;
	uint8_t home = home_of(e, tier, s, i);
	struct device *d = &e->devices[home];
	struct extent x;
	int rc = extents_take_at(d->extents, slab_begin(s, i) - d->base_offset, slab_length(s, i),
				 OWNER_SLAB, &x);

	if (rc < 0)
		return rc;
	s->slab[i].node = x.node;
	d->closed_bytes += x.bytes;
	return 0;
}

/* Of a tier that gets all of its memory in the background, one slab after the other: how far it is,
 * at every quarter. What a device could not register, it has said itself. */
static void tell_progress(const struct engine *e, uint8_t tier, uint32_t i)
{
	const struct slabs *s = e->devices[tier].slabs;
	uint64_t bytes = slab_begin(s, i) + slab_length(s, i);
	unsigned pinners = 0;

	if (base_of(e, tier)->on_demand || 4ull * (i + 1) / s->count == 4ull * i / s->count)
		return;
	for (unsigned d = 0; d < e->params.device_count; d++)
		pinners += s->pinner[d].used;
	log_info(TIER, "%s: %.2f of %.2f GiB ready%s", base_of(e, tier)->name,
		 (double)bytes / (double)GIB(1), (double)s->end / (double)GIB(1),
		 pinners > 0 ? ", registered" : "");
}

static void open_range(struct engine *e, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;
	uint8_t home = home_of(e, tier, s, i);

	s->slab[i].state = SLAB_PRESENT;
	s->slab[i].touched_ns = e->now_ns;
	e->devices[home].closed_bytes -= slab_length(s, i);
	replica_give(e, home, s->slab[i].node);
	s->slab[i].node = EXTENT_NONE;
	s->scan_at_ns = MIN(s->scan_at_ns, e->now_ns + SLAB_IDLE_NS);
	log_debug(TIER, "%s: slab %u of %u is there", base_of(e, tier)->name, i, s->count);
	tell_progress(e, tier, i);
}

void slabs_touch(struct engine *e, uint8_t device, const struct extent *x)
{
	struct slabs *s = e->devices[e->devices[device].lane].slabs;
	uint64_t begin = e->devices[device].base_offset + x->offset;

	if (s == NULL)
		return;
	for (uint64_t i = begin / s->bytes;
	     i < s->count && slab_begin(s, (uint32_t)i) < begin + x->bytes; i++)
		s->slab[i].touched_ns = e->now_ns;
	s->scan_at_ns = MIN(s->scan_at_ns, e->now_ns + SLAB_IDLE_NS);
}

/* ---- xfers ---- */

static void lend(struct engine *e, uint8_t tier, enum xfer_op op, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;

	ASSERT(!s->busy);
	s->busy = true;
	s->x = (struct xfer){ .op = (uint8_t)op,
			      .priority = base_of(e, tier)->on_demand ? XFER_DEMAND : XFER_PREFETCH,
			      .offset = slab_begin(s, i),
			      .bytes = slab_length(s, i),
			      .part = tier };
	list_init(&s->x.link);
	s->slab[i].state = op == XFER_BACK ? SLAB_BACKING : SLAB_UNBACKING;
	xfer_lend(e, tier, &s->x, &s->lent);
}

void slabs_back(struct engine *e, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;

	ASSERT(s->slab[i].state == SLAB_ABSENT);
	s->traded = false;
	lend(e, tier, XFER_BACK, i);
}

/* Devices register slabs in the order of addresses, each at its own pace. */
static void pump_pins(struct engine *e, uint8_t tier)
{
	struct slabs *s = e->devices[tier].slabs;

	for (unsigned d = 0; d < e->device_count; d++) {
		struct pinner *p = &s->pinner[d];
		uint32_t i = p->done;

		if (!p->used || p->busy || i == s->count || s->slab[i].state != SLAB_PINNING)
			continue;
		p->busy = true;
		p->x = (struct xfer){ .op = XFER_PIN,
				      .priority = XFER_PREFETCH,
				      .host = (char *)base_of(e, tier)->host_base +
					      slab_begin(s, i),
				      .bytes = slab_length(s, i),
				      .from = slab_begin(s, i),
				      .part = tier };
		list_init(&p->x.link);
		xfer_lend(e, (uint8_t)d, &p->x, &p->lent);
	}
}

/* Whether every device that registers host memory has this slab. */
static bool is_pinned(const struct engine *e, const struct slabs *s, uint32_t i)
{
	for (unsigned d = 0; d < e->device_count; d++)
		if (s->pinner[d].used && s->pinner[d].done <= i)
			return false;
	return true;
}

static void open_if_pinned(struct engine *e, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;

	if (s->slab[i].state == SLAB_PINNING && is_pinned(e, s, i))
		open_range(e, tier, i);
}

/* Out of memory is no error of anybody, nor is out of descriptors: the tier is full, and who waits
 * for room looks elsewhere. */
static void back_failed(struct engine *e, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;
	const char *cause = s->x.cause[0] != '\0' ? s->x.cause : "out of memory";
	bool again = slabs_full(s) && s->refused == s->x.result;

	s->slab[i].state = SLAB_ABSENT;
	s->limit_bytes = s->backed_bytes;
	s->refused = s->x.result;
	snprintf(s->cause, sizeof(s->cause), "%s", cause);
	s->retry_at_ns = e->now_ns + SLAB_RETRY_NS;
	stat_add(STAT(e, tier[base_of(e, tier)->kind].slabs_refused), 1);
	look_at_queues(e);
	if (again || s->x.result == -ECANCELED || e->devices[tier].lost)
		return; /* no news, the daemon ends, or something worse */
	log_at(TIER, base_of(e, tier)->on_demand ? LOG_INFO : LOG_WARN,
	       "%s: %llu of %llu bytes are there, no more is to be had now: %s",
	       base_of(e, tier)->name, (unsigned long long)s->backed_bytes,
	       (unsigned long long)s->end, s->cause);
}

static void back_done(struct engine *e, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;

	if (s->x.result < 0) {
		back_failed(e, tier, i);
		return;
	}
	s->backed_bytes += slab_length(s, i);
	if (slabs_full(s) && s->backed_bytes > s->limit_bytes)
		s->limit_bytes = UINT64_MAX;
	stat_add(STAT(e, tier[base_of(e, tier)->kind].slabs_made), 1);
	slabs_count_backed(e, base_of(e, tier)->kind);
	s->slab[i].state = SLAB_PINNING;
	pump_pins(e, tier);
	open_if_pinned(e, tier, i);
}

static void unback_done(struct engine *e, uint8_t tier, uint32_t i)
{
	struct slabs *s = e->devices[tier].slabs;

	s->slab[i].state = SLAB_ABSENT;
	s->leaving = s->count;
	s->backed_bytes -= slab_length(s, i);
	s->scan_at_ns = 0;
	stat_add(STAT(e, tier[base_of(e, tier)->kind].slabs_given), 1);
	slabs_count_backed(e, base_of(e, tier)->kind);
	look_at_queues(e);
	log_debug(TIER, "%s: slab %u of %u was given back", base_of(e, tier)->name, i, s->count);
}

void slabs_xfer_done(struct engine *e, struct xfer *x)
{
	uint8_t tier = (uint8_t)x->part;
	struct slabs *s = e->devices[tier].slabs;

	if (x->op == XFER_PIN) {
		struct pinner *p = container_of(x, struct pinner, x);
		uint32_t i = p->done++;

		xfer_take_back(e, (uint8_t)(p - s->pinner), x);
		p->busy = false;
		open_if_pinned(e, tier, i);
		pump_pins(e, tier);
		return;
	}
	xfer_take_back(e, tier, x);
	ASSERT(s->busy && x == &s->x);
	s->busy = false;
	if (x->op == XFER_BACK)
		back_done(e, tier, (uint32_t)(x->offset / s->bytes));
	else
		unback_done(e, tier, (uint32_t)(x->offset / s->bytes));
}

/* ---- giving back ---- */

void slabs_unback_if_free(struct engine *e, uint8_t tier)
{
	struct slabs *s = e->devices[tier].slabs;

	if (e->devices[tier].lost || s->leaving == s->count || s->busy ||
	    s->slab[s->leaving].state != SLAB_LEAVING || s->slab[s->leaving].importers > 0)
		return;
	lend(e, tier, XFER_UNBACK, s->leaving);
}

/* Nothing stands there: nothing will, and everybody who has it mapped is asked to let go. */
bool slabs_leave(struct engine *e, uint8_t tier, uint32_t i, bool traded)
{
	struct slabs *s = e->devices[tier].slabs;
	struct list *it;

	ASSERT(s->leaving == s->count && s->slab[i].state == SLAB_PRESENT);
	if (close_range(e, tier, i) < 0)
		return false; /* no memory for a node: another time */
	s->slab[i].state = SLAB_LEAVING;
	s->leaving = i;
	s->traded = traded;
	s->left_at_ns = e->now_ns;
	list_for_each (it, &e->holders) {
		struct holder *h = list_entry(it, struct holder, link);

		if (slabs_mapped(h, tier, i))
			e->params.hooks.slab_unmap(e->params.hooks.ctx, h, tier, slab_begin(s, i));
	}
	slabs_unback_if_free(e, tier);
	return true;
}

/* A client that does not let go, as one that is stopped, keeps the memory; it must not keep others
 * from using it. What is to be traded has its time to leave, and is not tried again before one of
 * its clients has let go: it would come and go for ever. */
bool slabs_take_back(struct engine *e, uint8_t tier)
{
	struct slabs *s = e->devices[tier].slabs;
	uint32_t i = s->leaving;

	if (i == s->count || s->slab[i].state != SLAB_LEAVING)
		return false;
	if (s->traded && e->now_ns < s->left_at_ns + SLAB_PATIENCE_NS)
		return true;
	s->slab[i].kept |= s->traded;
	s->leaving = s->count;
	s->trim = s->traded = false;
	open_range(e, tier, i);
	return true;
}

/* One at a time, while nobody waits for room. */
static void give_back(struct engine *e, uint8_t tier)
{
	struct slabs *s = e->devices[tier].slabs;
	uint64_t idle_ns = s->trim ? 0 : SLAB_IDLE_NS, next_ns;
	uint32_t i;

	if (e->devices[tier].lost || s->leaving != s->count ||
	    (!s->trim && e->now_ns < s->scan_at_ns))
		return;
	s->scan_at_ns = e->now_ns + SLAB_IDLE_NS;
	if (!list_empty(&e->devices[tier].queue))
		return;
	i = slab_search_idle(s, e->devices[tier].extents, e->now_ns, idle_ns, &next_ns);
	s->scan_at_ns = next_ns;
	if (i == s->count)
		s->trim = false;
	else if (!slabs_leave(e, tier, i, false))
		s->scan_at_ns = e->now_ns + SLAB_RETRY_NS;
}

void slabs_trim(struct engine *e)
{
	for (unsigned i = 0; i < e->device_count; i++) {
		struct slabs *s = e->devices[i].slabs;

		if (s == NULL || !base_of(e, (uint8_t)i)->on_demand)
			continue;
		s->trim = true;
		give_back(e, (uint8_t)i);
	}
}

/* ---- time ---- */

/* All of them come, one after the other. */
static uint64_t back_next(struct engine *e, uint8_t tier)
{
	struct slabs *s = e->devices[tier].slabs;

	if (s->busy || s->backed_bytes == s->end)
		return ENGINE_NEVER;
	if (e->now_ns < s->retry_at_ns)
		return s->retry_at_ns;
	for (uint32_t i = 0; i < s->count; i++) {
		if (s->slab[i].state == SLAB_ABSENT) {
			lend(e, tier, XFER_BACK, i);
			break;
		}
	}
	return ENGINE_NEVER;
}

/* Whoever was told that the tier is full may ask again. */
static uint64_t retry(struct engine *e, uint8_t tier)
{
	struct slabs *s = e->devices[tier].slabs;
	struct device *d = &e->devices[tier];

	if (s->retry_at_ns == 0 || (list_empty(&d->queue) && !prefetch_waits(e, tier)))
		return ENGINE_NEVER;
	if (e->now_ns < s->retry_at_ns)
		return s->retry_at_ns;
	s->retry_at_ns = 0;
	look_at_queues(e);
	return ENGINE_NEVER;
}

uint64_t slabs_turn(struct engine *e)
{
	uint64_t next = ENGINE_NEVER;

	for (unsigned i = 0; i < e->params.device_count; i++) {
		struct slabs *s = e->devices[i].slabs;

		if (s == NULL || e->devices[i].lost)
			continue;
		if (!base_of(e, (uint8_t)i)->on_demand) {
			next = MIN(next, back_next(e, (uint8_t)i));
			continue;
		}
		slabs_unback_if_free(e, (uint8_t)i);
		give_back(e, (uint8_t)i);
		next = MIN(next, retry(e, (uint8_t)i));
		if (s->leaving == s->count)
			next = MIN(next, s->scan_at_ns);
	}
	return next;
}

/* ---- what is there ---- */

uint64_t slabs_capacity(const struct engine *e, uint8_t device)
{
	const struct device *d = &e->devices[device];
	const struct slabs *s = e->devices[d->lane].slabs;
	uint64_t bytes = extents_capacity(d->extents);

	if (s == NULL || !slabs_full(s))
		return bytes;
	return bytes - d->closed_bytes + MIN(slabs_spare_bytes(s), d->closed_bytes);
}

/* Whoever found that there is none asked for it, unless it knew that from before. */
bool slabs_may_come(const struct engine *e, uint8_t device, uint64_t since_ns)
{
	const struct device *d = &e->devices[device];
	const struct slabs *s = e->devices[d->lane].slabs;

	if (s == NULL || d->closed_bytes == 0)
		return false;
	if (s->busy || s->leaving != s->count || (!d->tier->base.on_demand && !slabs_full(s)))
		return true;
	for (uint32_t i = 0; i < s->count; i++)
		if (s->slab[i].state == SLAB_PINNING)
			return true;
	return slabs_full(s) && s->retry_at_ns != 0 && s->retry_at_ns < since_ns + SLAB_RETRY_NS;
}

const char *slabs_trouble(const struct engine *e, uint8_t device)
{
	const struct slabs *s = e->devices[e->devices[device].lane].slabs;

	return s != NULL && slabs_full(s) && e->devices[device].closed_bytes > 0 ? s->cause : NULL;
}

static void find_pinners(struct engine *e, struct slabs *s, uint8_t tier, uint32_t ready)
{
	for (unsigned i = 0; i < e->params.device_count; i++) {
		const struct tier_base *base = base_of(e, (uint8_t)i);

		s->pinner[i].used =
			base->ops->host_memory != NULL && base_of(e, tier)->kind == TIER_KIND_DRAM;
		s->pinner[i].done = ready;
	}
}

static int open_tier(struct engine *e, uint8_t tier, struct err *err)
{
	const struct tier_base *base = base_of(e, tier);
	struct slabs *s = heap_zeros(1, sizeof(*s));
	int rc = 0;

	ASSERT(base->slab_bytes % GRANULE == 0 && base->bytes >= base->slab_bytes);
	e->devices[tier].slabs = s;
	if (s == NULL)
		return err_set(err, ENOMEM, "no memory for the slabs of %s", base->name);
	s->bytes = base->slab_bytes;
	s->end = ALIGN_DOWN(base->bytes, GRANULE);
	s->count = s->leaving = (uint32_t)((s->end + s->bytes - 1) / s->bytes);
	s->scan_at_ns = ENGINE_NEVER;
	s->limit_bytes = UINT64_MAX;
	s->slab = heap_zeros(s->count, sizeof(*s->slab));
	if (s->slab == NULL)
		return err_set(err, ENOMEM, "no memory for the slabs of %s", base->name);
	for (uint32_t i = 0; i < s->count && rc == 0; i++) {
		bool there = slab_begin(s, i) + slab_length(s, i) <= base->backed_bytes;

		s->slab[i].state = there ? SLAB_PRESENT : SLAB_ABSENT;
		s->slab[i].node = EXTENT_NONE;
		s->backed_bytes += there ? slab_length(s, i) : 0;
		if (!there)
			rc = close_range(e, tier, i);
	}
	find_pinners(e, s, tier, (uint32_t)(s->backed_bytes / s->bytes));
	return rc < 0 ? err_set(err, -rc, "no memory for the slabs of %s", base->name) : 0;
}

int slabs_open(struct engine *e, struct err *err)
{
	int rc = 0;

	for (unsigned i = 0; i < e->params.device_count && rc == 0; i++)
		if (base_of(e, (uint8_t)i)->slab_bytes > 0)
			rc = open_tier(e, (uint8_t)i, err);
	for (unsigned kind = 0; kind < TIER_KINDS && rc == 0; kind++)
		slabs_count_backed(e, kind);
	return rc;
}

void slabs_close(struct engine *e)
{
	for (unsigned i = 0; i < ENGINE_DEVICES_MAX; i++) {
		if (e->devices[i].slabs != NULL)
			heap_free(e->devices[i].slabs->slab);
		heap_free(e->devices[i].slabs);
		e->devices[i].slabs = NULL;
	}
}

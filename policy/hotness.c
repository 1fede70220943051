/* SPDX-License-Identifier: Apache-2.0
 *
 * hotness: a tensor's uses, each counting half as much after every half_life, against its size and
 * the cost to bring it back. For access without a rhythm: embeddings, experts, evaluation between
 * steps.
 *
 * A tensor of weight v at time t has heat = log2(v) + t / half_life. All weights decay alike, so
 * heat stays what it is between two uses, and so does the order by heat: tensors stand in buckets
 * of a quarter of an octave and nothing is ever sorted. The buckets are a ring that follows the
 * time; what falls out at its cold end goes on into the next bucket. There is a ring a tier and
 * size (in octaves), because the cost to bring back depends on the size: the walk takes the best of
 * what is coldest in each.
 */
#include <errno.h>
#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/heap.h"
#include "policy/order.h"

#define PER_OCTAVE  4
#define BUCKETS     256 /* 64 octaves of weight, of which TOP_OCTAVES are above 1 */
#define TOP_OCTAVES 20
#define SIZES       16 /* octaves from FIRST_SIZE bytes; smaller and larger go to the ends */
#define FIRST_SIZE  12 /* log2 */
#define LN2         0.6931471805599453

struct hotness_config {
	uint64_t half_life_ns;
};

struct hotness_slot {
	struct order_slot order;
	double heat;
};

struct policy {
	struct order order;
	double half_life_ns;
	int64_t base; /* number of the coldest bucket: quarters of an octave since time 0 */
	int64_t low[POLICY_TIERS_MAX][SIZES]; /* no bucket below this number holds anything */
};

/* The ring's current place while a walk is on it. */
struct ring {
	int64_t bucket; /* number; base + BUCKETS: nothing left */
	uint32_t node, head;
	double score;
};

static struct hotness_slot *slot_of(const struct policy *p, uint32_t tensor)
{
	return (struct hotness_slot *)order_slot(&p->order, tensor);
}

static uint32_t bucket_head(const struct policy *p, uint8_t tier, unsigned size, int64_t bucket)
{
	return order_head(&p->order, tier,
			  ORDER_LIST_OWN + size * BUCKETS + (uint64_t)bucket % BUCKETS);
}

static unsigned size_of(uint64_t bytes)
{
	int octave = 63 - __builtin_clzll(bytes | 1) - FIRST_SIZE;

	return (unsigned)MIN(MAX(octave, 0), SIZES - 1);
}

static int hotness_create(const void *config, const struct policy_slots *slots, struct policy **ret,
			  struct err *err)
{
	const struct hotness_config *c = config;
	struct policy *p = heap_zeros(1, sizeof(*p));
	int rc;

	if (p == NULL)
		return err_set(err, ENOMEM, "policy hotness: no memory");
	ASSERT(c->half_life_ns > 0);
	p->half_life_ns = (double)c->half_life_ns;
	rc = order_create(&p->order, slots, SIZES * BUCKETS, err);
	if (rc < 0) {
		heap_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

static void hotness_destroy(struct policy *p)
{
	order_destroy(&p->order);
	heap_free(p);
}

/* The coldest bucket is given up: what is in it joins the next. */
static void shift(struct policy *p)
{
	for (uint8_t tier = 0; tier < p->order.slots->tiers; tier++)
		for (unsigned size = 0; size < SIZES; size++)
			order_splice_front(&p->order, bucket_head(p, tier, size, p->base + 1),
					   bucket_head(p, tier, size, p->base));
	p->base++;
}

/* Lets the rings follow the time. After one full turn all stands in one bucket, and any number of
 * full turns more leaves it where it is. */
static void advance(struct policy *p, uint64_t now_ns)
{
	int64_t now = (int64_t)((double)now_ns / p->half_life_ns * PER_OCTAVE);
	int64_t base = MAX(now + TOP_OCTAVES * PER_OCTAVE - BUCKETS, 0);

	for (int turn = 0; turn < BUCKETS && p->base < base; turn++)
		shift(p);
	if (p->base < base)
		p->base += (base - p->base) / BUCKETS * BUCKETS;
	while (p->base < base)
		shift(p);
}

static double weight(const struct policy *p, const struct hotness_slot *slot, uint64_t now_ns)
{
	double octaves = slot->heat - (double)now_ns / p->half_life_ns;

	return exp2(MAX(octaves, -64.0));
}

static void place(struct policy *p, uint32_t tensor)
{
	struct hotness_slot *slot = slot_of(p, tensor);
	unsigned size = size_of(slot->order.bytes);
	uint8_t tier = slot->order.tier;
	int64_t bucket = (int64_t)(slot->heat * PER_OCTAVE);

	if (tier == POLICY_TIER_NONE)
		return;
	bucket = MIN(MAX(bucket, p->base), p->base + BUCKETS - 1);
	p->low[tier][size] = MIN(p->low[tier][size], bucket);
	order_push_back(&p->order, bucket_head(p, tier, size, bucket), tensor);
}

/* A use adds 1. A hint promises one, and is no second one when it comes. */
static void heat(struct policy *p, const struct policy_event *e)
{
	struct hotness_slot *slot = slot_of(p, e->tensor);
	double now = (double)e->now_ns / p->half_life_ns;

	if (e->kind == POLICY_EVENT_USED)
		slot->heat = now + log2(weight(p, slot, e->now_ns) + 1.0);
	else
		slot->heat = MAX(slot->heat, now);
}

static void hotness_event(struct policy *p, const struct policy_event *e)
{
	bool listless = order_event(&p->order, e);
	bool hotter = e->kind == POLICY_EVENT_CREATED || e->kind == POLICY_EVENT_USED ||
		      e->kind == POLICY_EVENT_PREFETCH;

	advance(p, e->now_ns);
	if (hotter)
		heat(p, e);
	if (hotter || listless)
		place(p, e->tensor);
}

/* Uses that come at a steady rate r weigh r * half_life / ln 2 together. */
static double hotness_seconds(const struct policy *p, const struct order_slot *slot,
			      uint64_t now_ns)
{
	double v = weight(p, (const struct hotness_slot *)slot, now_ns);

	return p->half_life_ns / NS_PER_S / (v * LN2);
}

/* Goes to the ring's next tensor: the rest of a bucket, then the next that is not empty. */
static void ring_seek(const struct policy *p, const struct policy_query *q, unsigned size,
		      struct ring *r)
{
	while (r->node == r->head && ++r->bucket < p->base + BUCKETS) {
		r->head = bucket_head(p, q->tier, size, r->bucket);
		r->node = order_first(&p->order, r->head);
	}
	if (r->node != r->head) {
		const struct order_slot *slot = order_slot(&p->order, r->node);

		r->score = policy_score(slot->bytes, hotness_seconds(p, slot, q->now_ns), &q->cost);
	}
}

static void rings_start(struct policy *p, const struct policy_query *q, struct ring *rings)
{
	for (unsigned size = 0; size < SIZES; size++) {
		int64_t *low = &p->low[q->tier][size];

		rings[size] = (struct ring){ .bucket = MAX(*low, p->base) - 1 };
		ring_seek(p, q, size, &rings[size]);
		*low = rings[size].bucket;
	}
}

static int rings_best(const struct ring *rings)
{
	int best = -1;

	for (int size = 0; size < SIZES; size++)
		if (rings[size].node != rings[size].head &&
		    (best < 0 || rings[size].score > rings[best].score))
			best = size;
	return best;
}

static void walk_rings(struct policy *p, struct order_walk *w)
{
	uint32_t parked = order_head(&p->order, w->query->tier, ORDER_LIST_PARKED);
	struct ring rings[SIZES];
	int best;

	rings_start(p, w->query, rings);
	while (!order_walk_full(w) && (best = rings_best(rings)) >= 0) {
		struct ring *r = &rings[best];
		uint32_t node = r->node;

		r->node = order_next(&p->order, node);
		if (!order_walk_offer(w, node))
			order_push_back(&p->order, parked, node);
		ring_seek(p, w->query, (unsigned)best, r);
	}
}

static size_t hotness_victims(struct policy *p, const struct policy_query *q,
			      struct policy_pick *picks, size_t max)
{
	struct order_walk w = { .order = &p->order,
				.query = q,
				.seconds = hotness_seconds,
				.policy = p,
				.picks = picks,
				.max = max };

	advance(p, q->now_ns);
	order_walk_begin(&w);
	walk_rings(p, &w);
	order_walk_end(&w);
	return w.count;
}

static size_t hotness_prefetch(struct policy *p, const struct policy_query *q,
			       struct policy_pick *picks, size_t max)
{
	return 0;
}

static void hotness_opinion(const struct policy *p, uint32_t tensor, uint64_t now_ns,
			    struct policy_opinion *ret)
{
	const struct order_slot *slot = order_slot(&p->order, tensor);

	order_opinion(slot, hotness_seconds(p, slot, now_ns), now_ns, ret);
}

static const struct config_row hotness_rows[] = {
	{ .key = "half_life",
	  .kind = CONFIG_DURATION,
	  .offset = offsetof(struct hotness_config, half_life_ns),
	  .default_text = "30s",
	  .min = "10ms",
	  .max = "24h",
	  .help = "A use counts half after this: about as long as uses should be remembered." },
	CONFIG_END,
};

const struct policy_ops policy_hotness = {
	.name = "hotness",
	.help = "What was used least goes first, by a count that decays, weighed by size and the "
		"cost to bring it back. For access without a rhythm.",
	.rows = hotness_rows,
	.config_size = sizeof(struct hotness_config),
	.slot_size = sizeof(struct hotness_slot),
	.create = hotness_create,
	.destroy = hotness_destroy,
	.event = hotness_event,
	.victims = hotness_victims,
	.prefetch = hotness_prefetch,
	.opinion = hotness_opinion,
};

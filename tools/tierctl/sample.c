/* SPDX-License-Identifier: Apache-2.0
 *
 * All counters of the page stand in the JSON form, under the names of their rows.
 */
#include "tools/tierctl/sample.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/compiler.h"
#include "libclient/admin.h"
#include "tools/tierctl/text.h"
#include "tiers/tier.h"

double sample_rate(const struct sample *s, uint64_t first, uint64_t last)
{
	return s->seconds > 0 && last > first ? (double)(last - first) / s->seconds : 0.0;
}

void sample_begin(struct sample *s, struct tierd *t)
{
	page_read(admin_stats_page(t), &s->last);
	s->first = s->last;
	s->seconds = 0;
}

static void wait_for(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - floor(seconds)) * 1e9) };

	while (nanosleep(&t, &t) < 0)
		ASSERT(errno == EINTR);
}

void sample_next(struct sample *s, struct tierd *t, double seconds)
{
	s->first = s->last;
	wait_for(seconds);
	page_read(admin_stats_page(t), &s->last);
	s->seconds = (double)(s->last.taken_ns - s->first.taken_ns) / NS_PER_S;
}

void sample_json_classes(struct json *j, const char *key, const uint64_t of[STATS_CLASSES])
{
	json_open(j, key, '{');
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		json_u64(j, page_classes[c], of[c]);
	json_close(j, '}');
}

static void put_tiers(struct json *j, const struct page *p)
{
	json_open(j, "tiers", '{');
	for (unsigned i = 0; i < STATS_TIERS; i++) {
		json_open(j, tier_kind_name(i), '{');
#define X(name, unit, kind, help) json_u64(j, #name, p->tier[i].name);
		STATS_PER_TIER(X)
#undef X
		sample_json_classes(j, "class_bytes", p->tier[i].class_bytes);
		sample_json_classes(j, "class_peak_bytes", p->tier[i].class_peak_bytes);
		sample_json_classes(j, "at_peak_bytes", p->tier[i].at_peak_bytes);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static void put_devices(struct json *j, const struct page *p)
{
	json_open(j, "devices", '[');
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		if (p->device[i].limit_bytes == 0)
			continue;
		json_open(j, NULL, '{');
		json_name(j, "name", p->chosen[i], page_device_bytes(p, i));
#define X(name, unit, kind, help) json_u64(j, #name, p->device[i].name);
		STATS_PER_DEVICE(X)
#undef X
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void put_table(struct json *j, const char *key,
		      const uint64_t table[STATS_TIERS][STATS_TIERS])
{
	json_open(j, key, '{');
	for (unsigned from = 0; from < STATS_TIERS; from++) {
		json_open(j, tier_kind_name(from), '{');
		for (unsigned to = 0; to < STATS_TIERS; to++)
			json_u64(j, tier_kind_name(to), table[from][to]);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static void put_classes(struct json *j, const struct page *p)
{
	json_open(j, "moves", '{');
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		put_table(j, page_classes[c], p->moves[c]);
	json_close(j, '}');
	sample_json_classes(j, "class_stall_ns", p->class_stall_ns);
}

/* In the order of "devices". */
static void put_lane_rates(struct json *j, const struct sample *s)
{
	json_open(j, "devices", '[');
	for (unsigned i = 0; i < STATS_DEVICES; i++) {
		const struct page_device *a = &s->first.device[i], *b = &s->last.device[i];

		if (b->limit_bytes == 0)
			continue;
		json_open(j, NULL, '{');
		json_double(j, "in_bytes", sample_rate(s, a->in_bytes, b->in_bytes));
		json_double(j, "out_bytes", sample_rate(s, a->out_bytes, b->out_bytes));
		json_double(j, "busy_ns", sample_rate(s, a->busy_ns, b->busy_ns));
		json_close(j, '}');
	}
	json_close(j, ']');
}

/* Growth a second of what grows; what goes up and down has none. */
static void put_rates(struct json *j, const struct sample *s)
{
	const struct page *a = &s->first, *b = &s->last;

	json_open(j, "rates", '{');
	json_double(j, "seconds", s->seconds);
	json_double(j, "stall_ns", sample_rate(s, a->stall_ns, b->stall_ns));
	json_double(j, "misses", sample_rate(s, a->misses, b->misses));
	json_double(j, "hits_logged", sample_rate(s, a->hits_logged, b->hits_logged));
	json_double(j, "requests", sample_rate(s, a->requests, b->requests));
	json_open(j, "moved_bytes", '{');
	for (unsigned from = 0; from < STATS_TIERS; from++) {
		json_open(j, tier_kind_name(from), '{');
		for (unsigned to = 0; to < STATS_TIERS; to++)
			json_double(
				j, tier_kind_name(to),
				sample_rate(s, a->moved_bytes[from][to], b->moved_bytes[from][to]));
		json_close(j, '}');
	}
	json_close(j, '}');
	put_lane_rates(j, s);
	json_close(j, '}');
}

void sample_json(struct json *j, const struct sample *s)
{
	const struct page *p = &s->last;

	json_name(j, "domain", p->domain, strlen(p->domain));
#define X(name, unit, kind, help) json_u64(j, #name, p->name);
	STATS_SCALARS(X)
#undef X
	put_tiers(j, p);
	put_devices(j, p);
	put_table(j, "moved_bytes", p->moved_bytes);
	put_classes(j, p);
	json_open(j, "chosen", '[');
	for (size_t i = 0; i < ARRAY_SIZE(p->chosen) && p->chosen[i][0] != '\0'; i++)
		json_name(j, NULL, p->chosen[i], strlen(p->chosen[i]));
	json_close(j, ']');
	if (s->seconds > 0)
		put_rates(j, s);
}

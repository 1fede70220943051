/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl peak: the most that tiers have held since a mark, and of what.
 */
#include <inttypes.h>

#include "base/compiler.h"
#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/sample.h"
#include "tools/tierctl/text.h"
#include "tiers/tier.h"

static const char *ago(const struct page *p, uint64_t at_ns, char text[TEXT_ROOM])
{
	return text_duration(p->taken_ns > at_ns ? p->taken_ns - at_ns : 0, text);
}

/* One that nothing was ever put into holds the most, which is nothing, since the start. */
static uint64_t peak_ago_ns(const struct page *p, const struct page_tier *t)
{
	uint64_t ago_ns = p->taken_ns > t->peak_at_ns ? p->taken_ns - t->peak_at_ns : 0;

	return MIN(ago_ns, p->uptime_ns);
}

/* Bytes that were taken at the peak and held nothing valid: being filled, or rounding. */
static uint64_t rest_of(const struct page_tier *t)
{
	uint64_t sum = 0;

	for (unsigned c = 0; c < STATS_CLASSES; c++)
		sum += t->at_peak_bytes[c];
	return t->peak_bytes > sum ? t->peak_bytes - sum : 0;
}

static void text_tier(const struct page *p, unsigned i)
{
	const struct page_tier *t = &p->tier[i];
	char peak[TEXT_ROOM], now[TEXT_ROOM], when[TEXT_ROOM], bytes[TEXT_ROOM];

	printf("%-6s %s, %.1f%% of its limit, %s ago; now %s\n", tier_kind_name(i),
	       text_bytes(t->peak_bytes, peak),
	       100.0 * (double)t->peak_bytes / (double)t->limit_bytes,
	       text_duration(peak_ago_ns(p, t), when), text_bytes(t->reserved_bytes, now));
	printf("  %-14s %12s %12s %12s\n", "class", "at the peak", "own highest", "now");
	for (unsigned c = 0; c < STATS_CLASSES; c++) {
		if (t->class_peak_bytes[c] == 0)
			continue;
		printf("  %-14s %12s", page_classes[c], text_bytes(t->at_peak_bytes[c], bytes));
		printf(" %12s", text_bytes(t->class_peak_bytes[c], bytes));
		printf(" %12s\n", text_bytes(t->class_bytes[c], bytes));
	}
	printf("  %-14s %12s\n", "not valid yet", text_bytes(rest_of(t), bytes));
}

static void text(const struct page *p)
{
	char since[TEXT_ROOM];

	if (p->marked_at_ns > 0)
		printf("since a mark, %s ago\n\n", ago(p, p->marked_at_ns, since));
	else
		printf("since the start, %s ago\n\n", text_duration(p->uptime_ns, since));
	for (unsigned i = 0; i < STATS_TIERS; i++)
		if (p->tier[i].limit_bytes > 0)
			text_tier(p, i);
}

static void json(const struct page *p)
{
	struct json j = { stdout, false };

	json_open(&j, NULL, '{');
	json_u64(&j, "since_ns",
		 p->marked_at_ns > 0 ? p->taken_ns - p->marked_at_ns : p->uptime_ns);
	json_bool(&j, "marked", p->marked_at_ns > 0);
	json_open(&j, "tiers", '{');
	for (unsigned i = 0; i < STATS_TIERS; i++) {
		const struct page_tier *t = &p->tier[i];

		if (t->limit_bytes == 0)
			continue;
		json_open(&j, tier_kind_name(i), '{');
		json_u64(&j, "limit_bytes", t->limit_bytes);
		json_u64(&j, "reserved_bytes", t->reserved_bytes);
		json_u64(&j, "peak_bytes", t->peak_bytes);
		json_u64(&j, "peak_ago_ns", peak_ago_ns(p, t));
		sample_json_classes(&j, "at_peak_bytes", t->at_peak_bytes);
		json_u64(&j, "at_peak_not_valid_bytes", rest_of(t));
		sample_json_classes(&j, "class_peak_bytes", t->class_peak_bytes);
		json_close(&j, '}');
	}
	json_close(&j, '}');
	json_close(&j, '}');
	json_end(&j);
}

int peak_run(const struct arguments *a)
{
	struct page p;
	struct tierd *t;
	int rc = 0, status = command_connect(a, &t);

	if (status != STATUS_OK)
		return status;
	page_read(admin_stats_page(t), &p);
	if (a->mark != NULL)
		rc = admin_mark(t);
	if (rc < 0)
		status = command_failed(a, rc, tierd_error(t));
	else if (a->json != NULL)
		json(&p);
	else
		text(&p);
	tierd_close(t);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl status: two samples of the stats page.
 */
#include <inttypes.h>
#include <string.h>

#include "base/compiler.h"
#include "base/plural.h"
#include "base/whole.h"
#include "libclient/tierd.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/option.h"
#include "tools/tierctl/sample.h"
#include "tools/tierctl/text.h"
#include "tiers/tier.h"

static const char *bytes_a_second(const struct sample *s, uint64_t first, uint64_t last,
				  char text[TEXT_ROOM])
{
	return text_bytes(whole_of(sample_rate(s, first, last)), text);
}

static void text_head(const struct page *p)
{
	char up[TEXT_ROOM], committed[TEXT_ROOM], admissible[TEXT_ROOM];

	printf("domain ");
	json_plain(stdout, p->domain, strlen(p->domain));
	printf(", up %s, %" PRIu64 " client%s, %" PRIu64 " tensor%s, %s of %s committed\n\n",
	       text_duration(p->uptime_ns, up), p->clients, p->clients == 1 ? "" : "s", p->tensors,
	       p->tensors == 1 ? "" : "s", text_bytes(p->committed_bytes, committed),
	       text_bytes(p->admissible_bytes, admissible));
}

static void text_tier_line(const struct page_tier *t, const char *name)
{
	char limit[TEXT_ROOM], backed[TEXT_ROOM], used[TEXT_ROOM], valid[TEXT_ROOM],
		peak[TEXT_ROOM], hole[TEXT_ROOM];

	if (t->limit_bytes == 0)
		return;
	printf("%-10s %10s %10s %10s %5.1f%% %10s %10s %12s %8" PRIu64 "\n", name,
	       text_bytes(t->limit_bytes, limit), text_bytes(t->backed_bytes, backed),
	       text_bytes(t->reserved_bytes, used),
	       100.0 * (double)t->reserved_bytes / (double)t->limit_bytes,
	       text_bytes(t->resident_bytes, valid), text_bytes(t->peak_bytes, peak),
	       text_bytes(t->largest_free_bytes, hole), t->queue_waiters);
}

static void text_bytes_a_tier(const struct page *p)
{
	printf("%-10s %10s %10s %10s %6s %10s %10s %12s %8s\n", "tier", "limit", "there", "used",
	       "", "valid", "peak", "largest free", "waiting");
	for (unsigned i = 0; i < STATS_TIERS; i++)
		text_tier_line(&p->tier[i], tier_kind_name(i));
	putchar('\n');
}

static void text_device_line(const struct page *p, unsigned i)
{
	const struct page_device *d = &p->device[i];
	int name = (int)page_device_bytes(p, i);
	char limit[TEXT_ROOM], used[TEXT_ROOM], backed[TEXT_ROOM];

	json_plain(stdout, p->chosen[i], (size_t)name);
	printf("%*s %10s %10s %5.1f%% %10s\n", MAX(0, 10 - name), "",
	       text_bytes(d->limit_bytes, limit), text_bytes(d->reserved_bytes, used),
	       100.0 * (double)d->reserved_bytes / (double)d->limit_bytes,
	       d->lost ? "lost" : text_bytes(d->backed_bytes, backed));
}

static void text_bytes_a_device(const struct page *p)
{
	printf("%-10s %10s %10s %6s %10s\n", "device", "limit", "used", "", "has memory");
	for (unsigned i = 0; i < STATS_DEVICES; i++)
		if (p->device[i].limit_bytes > 0)
			text_device_line(p, i);
	putchar('\n');
}

static void text_bytes_a_class(const struct sample *s)
{
	const struct page *p = &s->last;
	char text[TEXT_ROOM];

	printf("%-10s", "class");
	for (unsigned i = 0; i < STATS_TIERS; i++)
		printf(" %10s", tier_kind_name(i));
	printf(" %12s %12s\n", "stalled", "a second");
	for (unsigned c = 0; c < STATS_CLASSES; c++) {
		printf("%-10s", page_classes[c]);
		for (unsigned i = 0; i < STATS_TIERS; i++)
			printf(" %10s", text_bytes(p->tier[i].class_bytes[c], text));
		printf(" %12s %10.3f s\n", text_duration(p->class_stall_ns[c], text),
		       sample_rate(s, s->first.class_stall_ns[c], p->class_stall_ns[c]) / NS_PER_S);
	}
	putchar('\n');
}

static void text_moves(const struct sample *s)
{
	char name[TEXT_ROOM], text[TEXT_ROOM];

	printf("%-14s %12s %12s\n", "moved", "bytes", "a second");
	for (unsigned from = 0; from < STATS_TIERS; from++)
		for (unsigned to = 0; to < STATS_TIERS; to++) {
			uint64_t bytes = s->last.moved_bytes[from][to];

			if (bytes == 0)
				continue;
			snprintf(name, sizeof(name), "%s -> %s", tier_kind_name(from),
				 tier_kind_name(to));
			printf("%-14s %12s", name, text_bytes(bytes, text));
			printf(" %12s\n",
			       bytes_a_second(s, s->first.moved_bytes[from][to], bytes, text));
		}
	putchar('\n');
}

static void text_stalls(const struct sample *s)
{
	const struct page *p = &s->last;
	char text[TEXT_ROOM];

	printf("stalled %s in all, %.3f s a second; %" PRIu64 " %s now\n",
	       text_duration(p->stall_ns, text),
	       sample_rate(s, s->first.stall_ns, p->stall_ns) / NS_PER_S, p->waiting,
	       PLURAL(p->waiting, "acquire waits", "acquires wait"));
	printf("misses %" PRIu64 ", %.0f a second; uses logged %" PRIu64 ", %.0f a second\n",
	       p->misses, sample_rate(s, s->first.misses, p->misses), p->hits_logged,
	       sample_rate(s, s->first.hits_logged, p->hits_logged));
	printf("errors: %" PRIu64 " of reads, %" PRIu64 " of writes, %" PRIu64 " tried again\n",
	       p->read_errors, p->write_errors, p->retries);
}

#define COUNTER(name, value, unit, help) \
	printf("%-20s %20" PRIu64 " %-9s %s\n", name, value, unit, help)

static void text_tier_counters(const struct page_tier *t, const char *name)
{
	printf("\ntier %s\n", name);
#define X(name, unit, kind, help) COUNTER(#name, t->name, unit, help);
	STATS_PER_TIER(X)
#undef X
}

static void text_device_counters(const struct page *p, unsigned i)
{
	const struct page_device *d = &p->device[i];

	fputs("\ndevice ", stdout);
	json_plain(stdout, p->chosen[i], page_device_bytes(p, i));
	putchar('\n');
#define X(name, unit, kind, help) COUNTER(#name, d->name, unit, help);
	STATS_PER_DEVICE(X)
#undef X
}

static void text_counters(const struct page *p)
{
	putchar('\n');
#define X(name, unit, kind, help) COUNTER(#name, p->name, unit, help);
	STATS_SCALARS(X)
#undef X
	for (unsigned i = 0; i < STATS_TIERS; i++)
		if (p->tier[i].limit_bytes > 0)
			text_tier_counters(&p->tier[i], tier_kind_name(i));
	for (unsigned i = 0; i < STATS_DEVICES; i++)
		if (p->device[i].limit_bytes > 0)
			text_device_counters(p, i);
}

static void text_chosen(const struct page *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(p->chosen) && p->chosen[i][0] != '\0'; i++) {
		fputs(i == 0 ? "\n" : "", stdout);
		json_plain(stdout, p->chosen[i], strlen(p->chosen[i]));
		putchar('\n');
	}
}

static void text_all(const struct sample *s, bool counters)
{
	text_head(&s->last);
	text_bytes_a_tier(&s->last);
	text_bytes_a_device(&s->last);
	text_bytes_a_class(s);
	text_moves(s);
	text_stalls(s);
	text_chosen(&s->last);
	if (counters)
		text_counters(&s->last);
}

static void json_all(const struct sample *s)
{
	struct json j = { stdout, false };

	json_open(&j, NULL, '{');
	sample_json(&j, s);
	json_close(&j, '}');
	json_end(&j);
}

int status_run(const struct arguments *a)
{
	struct sample s = { 0 };
	struct tierd *t;
	double interval = 1.0;
	int status = option_seconds(a, "--interval", a->interval, 0, &interval);

	if (status == STATUS_OK)
		status = command_connect(a, &t);
	if (status != STATUS_OK)
		return status;
	sample_begin(&s, t);
	if (interval > 0)
		sample_next(&s, t, interval);
	tierd_close(t);
	if (a->json != NULL)
		json_all(&s);
	else
		text_all(&s, a->all != NULL);
	return STATUS_OK;
}

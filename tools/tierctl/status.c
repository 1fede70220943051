/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl status: two samples of the stats page. All counters of the page stand in the JSON form,
 * under the names of their rows.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/compiler.h"
#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/page.h"
#include "tools/tierctl/text.h"

#define INTERVAL_MAX_S 3600.0

struct sample {
	struct page first, last;
	double seconds; /* between the two; 0: there is one only */
};

/* A counter's growth a second. */
static double rate(const struct sample *s, uint64_t first, uint64_t last)
{
	return s->seconds > 0 && last > first ? (double)(last - first) / s->seconds : 0.0;
}

static const char *bytes_a_second(const struct sample *s, uint64_t first, uint64_t last,
				  char text[TEXT_ROOM])
{
	return text_bytes((uint64_t)rate(s, first, last), text);
}

static void text_head(const struct page *p)
{
	char up[TEXT_ROOM], committed[TEXT_ROOM], admissible[TEXT_ROOM];

	printf("up %s, %" PRIu64 " client%s, %" PRIu64 " tensor%s, %s of %s committed\n\n",
	       text_duration(p->uptime_ns, up), p->clients, p->clients == 1 ? "" : "s", p->tensors,
	       p->tensors == 1 ? "" : "s",
	       text_bytes(p->committed_bytes, committed),
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
		text_tier_line(&p->tier[i], text_tiers[i]);
	putchar('\n');
}

/* The first word of what the daemon says of the device. */
static int name_bytes(const char *chosen)
{
	return (int)strcspn(chosen, ": ");
}

static void text_device_line(const struct page_device *d, const char *chosen)
{
	char limit[TEXT_ROOM], used[TEXT_ROOM], backed[TEXT_ROOM];

	json_plain(stdout, chosen, (size_t)name_bytes(chosen));
	printf("%*s %10s %10s %5.1f%% %10s\n", MAX(0, 10 - name_bytes(chosen)), "",
	       text_bytes(d->limit_bytes, limit), text_bytes(d->reserved_bytes, used),
	       100.0 * (double)d->reserved_bytes / (double)d->limit_bytes,
	       d->lost ? "lost" : text_bytes(d->backed_bytes, backed));
}

static void text_bytes_a_device(const struct page *p)
{
	printf("%-10s %10s %10s %6s %10s\n", "device", "limit", "used", "", "has memory");
	for (unsigned i = 0; i < STATS_DEVICES; i++)
		if (p->device[i].limit_bytes > 0)
			text_device_line(&p->device[i], p->chosen[i]);
	putchar('\n');
}

static void text_bytes_a_class(const struct sample *s)
{
	const struct page *p = &s->last;
	char text[TEXT_ROOM];

	printf("%-10s", "class");
	for (unsigned i = 0; i < STATS_TIERS; i++)
		printf(" %10s", text_tiers[i]);
	printf(" %12s %12s\n", "stalled", "a second");
	for (unsigned c = 0; c < STATS_CLASSES; c++) {
		printf("%-10s", text_classes[c]);
		for (unsigned i = 0; i < STATS_TIERS; i++)
			printf(" %10s", text_bytes(p->tier[i].class_bytes[c], text));
		printf(" %12s %10.3f s\n", text_duration(p->class_stall_ns[c], text),
		       rate(s, s->first.class_stall_ns[c], p->class_stall_ns[c]) / NS_PER_S);
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
			snprintf(name, sizeof(name), "%s -> %s", text_tiers[from], text_tiers[to]);
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

	printf("stalled %s in all, %.3f s a second; %" PRIu64 " acquires wait now\n",
	       text_duration(p->stall_ns, text), rate(s, s->first.stall_ns, p->stall_ns) / NS_PER_S,
	       p->waiting);
	printf("misses %" PRIu64 ", %.0f a second; uses logged %" PRIu64 ", %.0f a second\n",
	       p->misses, rate(s, s->first.misses, p->misses), p->hits_logged,
	       rate(s, s->first.hits_logged, p->hits_logged));
	printf("errors: %" PRIu64 " of reads, %" PRIu64 " of writes, %" PRIu64 " tried again\n",
	       p->read_errors, p->write_errors, p->retries);
}

static void text_counters(const struct page *p)
{
	putchar('\n');
#define X(name, unit, help) printf("%-20s %20" PRIu64 " %-9s %s\n", #name, p->name, unit, help);
	STATS_SCALARS(X)
#undef X
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

static void put_tiers(struct json *j, const struct page *p)
{
	json_open(j, "tiers", '{');
	for (unsigned i = 0; i < STATS_TIERS; i++) {
		json_open(j, text_tiers[i], '{');
#define X(name, unit, help) json_u64(j, #name, p->tier[i].name);
		STATS_PER_TIER(X)
#undef X
		json_open(j, "class_bytes", '{');
		for (unsigned c = 0; c < STATS_CLASSES; c++)
			json_u64(j, text_classes[c], p->tier[i].class_bytes[c]);
		json_close(j, '}');
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
		json_name(j, "name", p->chosen[i], (size_t)name_bytes(p->chosen[i]));
#define X(name, unit, help) json_u64(j, #name, p->device[i].name);
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
		json_open(j, text_tiers[from], '{');
		for (unsigned to = 0; to < STATS_TIERS; to++)
			json_u64(j, text_tiers[to], table[from][to]);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static void put_classes(struct json *j, const struct page *p)
{
	json_open(j, "moves", '{');
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		put_table(j, text_classes[c], p->moves[c]);
	json_close(j, '}');
	json_open(j, "class_stall_ns", '{');
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		json_u64(j, text_classes[c], p->class_stall_ns[c]);
	json_close(j, '}');
}

/* Growth a second of what grows; what goes up and down has none. */
static void put_rates(struct json *j, const struct sample *s)
{
	const struct page *a = &s->first, *b = &s->last;

	json_open(j, "rates", '{');
	json_double(j, "seconds", s->seconds);
	json_double(j, "stall_ns", rate(s, a->stall_ns, b->stall_ns));
	json_double(j, "misses", rate(s, a->misses, b->misses));
	json_double(j, "hits_logged", rate(s, a->hits_logged, b->hits_logged));
	json_double(j, "requests", rate(s, a->requests, b->requests));
	json_open(j, "moved_bytes", '{');
	for (unsigned from = 0; from < STATS_TIERS; from++) {
		json_open(j, text_tiers[from], '{');
		for (unsigned to = 0; to < STATS_TIERS; to++)
			json_double(j, text_tiers[to],
				    rate(s, a->moved_bytes[from][to], b->moved_bytes[from][to]));
		json_close(j, '}');
	}
	json_close(j, '}');
	json_close(j, '}');
}

static void json_all(const struct sample *s)
{
	const struct page *p = &s->last;
	struct json j = { stdout, false };

	json_open(&j, NULL, '{');
#define X(name, unit, help) json_u64(&j, #name, p->name);
	STATS_SCALARS(X)
#undef X
	put_tiers(&j, p);
	put_devices(&j, p);
	put_table(&j, "moved_bytes", p->moved_bytes);
	put_classes(&j, p);
	json_open(&j, "chosen", '[');
	for (size_t i = 0; i < ARRAY_SIZE(p->chosen) && p->chosen[i][0] != '\0'; i++)
		json_name(&j, NULL, p->chosen[i], strlen(p->chosen[i]));
	json_close(&j, ']');
	if (s->seconds > 0)
		put_rates(&j, s);
	json_close(&j, '}');
	json_end(&j);
}

static void wait_for(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - floor(seconds)) * 1e9) };

	while (nanosleep(&t, &t) < 0)
		ASSERT(errno == EINTR);
}

static int read_interval(const struct arguments *a, double *ret)
{
	char *end;

	*ret = 1.0;
	if (a->interval == NULL)
		return STATUS_OK;
	*ret = strtod(a->interval, &end);
	if (end != a->interval && *end == '\0' && *ret >= 0 && *ret <= INTERVAL_MAX_S)
		return STATUS_OK;
	return command_misused(a, "--interval: seconds from 0 to 3600 are wanted");
}

int status_run(const struct arguments *a)
{
	struct sample s = { 0 };
	struct tierd *t;
	double interval;
	int status = read_interval(a, &interval);

	if (status == STATUS_OK)
		status = command_connect(a, &t);
	if (status != STATUS_OK)
		return status;
	page_read(admin_stats_page(t), &s.first);
	s.last = s.first;
	if (interval > 0) {
		wait_for(interval);
		page_read(admin_stats_page(t), &s.last);
		s.seconds = (double)(s.last.taken_ns - s.first.taken_ns) / NS_PER_S;
	}
	tierd_close(t);
	if (a->json != NULL)
		json_all(&s);
	else
		text_all(&s, a->all != NULL);
	return STATUS_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl top: the stats page and the waiters, again and again.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/plural.h"
#include "base/whole.h"
#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/option.h"
#include "tools/tierctl/sample.h"
#include "tools/tierctl/text.h"
#include "tiers/tier.h"

#define BAR_COLUMNS    50u
#define WAITS_SHOWN    20u
#define INTERVAL_LEAST 0.05

struct top {
	const struct arguments *arguments;
	struct sample sample;
	struct admin_wait waits[WAITS_SHOWN]; /* those that have waited longest */
	unsigned shown, waiting;
};

static const char *const kinds[] = { "acquire", "copy", "flush" };
static const char *const reasons[] = {
#define X(name, number, text) [number] = text,
	WAIT_REASONS(X)
#undef X
};

static_assert(ARRAY_SIZE(kinds) == WAIT_KINDS, "a name a kind");

static const char *kind_name(const struct wire_wait *w)
{
	return w->kind < ARRAY_SIZE(kinds) ? kinds[w->kind] : "?";
}

static const char *reason_text(const struct wire_wait *w)
{
	return w->reason < ARRAY_SIZE(reasons) ? reasons[w->reason] : "?";
}

/* Keeps the longest waits, longest first. */
static int keep_wait(void *ctx, const struct admin_wait *wait)
{
	struct top *t = ctx;
	unsigned at = t->shown;

	t->waiting++;
	while (at > 0 && t->waits[at - 1].wait.since_ns < wait->wait.since_ns)
		at--;
	if (at == WAITS_SHOWN)
		return 0;
	t->shown = MIN(t->shown + 1, WAITS_SHOWN);
	memmove(&t->waits[at + 1], &t->waits[at], (t->shown - 1 - at) * sizeof(t->waits[0]));
	t->waits[at] = *wait;
	return 0;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* How many columns end at `bytes` of `limit`: rounded, so that all of a bar is never too long. The
 * page may say anything, so what is above the limit is not divided by it. */
static unsigned column_of(uint64_t bytes, uint64_t limit)
{
	if (bytes >= limit)
		return BAR_COLUMNS;
	return (unsigned)((double)bytes / (double)limit * BAR_COLUMNS + 0.5);
}

static void fill_bar(char *bar, unsigned *from, unsigned to, char c)
{
	for (; *from < to; ++*from)
		bar[*from] = c;
}

static void text_bar(const struct page_tier *t)
{
	static const char letters[] = "PGOAX";
	char bar[BAR_COLUMNS + 1];
	uint64_t sum = 0;
	unsigned at = 0;

	for (unsigned c = 0; c < STATS_CLASSES; c++) {
		sum += t->class_bytes[c];
		fill_bar(bar, &at, column_of(sum, t->limit_bytes), letters[c]);
	}
	fill_bar(bar, &at, column_of(t->reserved_bytes, t->limit_bytes), '+');
	fill_bar(bar, &at, column_of(t->backed_bytes, t->limit_bytes), '.');
	fill_bar(bar, &at, BAR_COLUMNS, ' ');
	bar[BAR_COLUMNS] = '\0';
	printf("[%s]", bar);
}

/* Full before its limit: whoever waits for room waits for what does not come. */
static void text_refused(const struct page_tier *t)
{
	char backed[TEXT_ROOM];

	if (t->slabs_refused == 0 || t->backed_bytes >= t->limit_bytes)
		return;
	printf(", memory for %s: more was refused %" PRIu64 " time%s",
	       text_bytes(t->backed_bytes, backed), t->slabs_refused,
	       t->slabs_refused == 1 ? "" : "s");
}

static void text_tiers_of(const struct page *p)
{
	char used[TEXT_ROOM], limit[TEXT_ROOM];

	for (unsigned i = 0; i < STATS_TIERS; i++) {
		const struct page_tier *t = &p->tier[i];

		if (t->limit_bytes == 0)
			continue;
		printf("%-5s", tier_kind_name(i));
		text_bar(t);
		printf(" %s of %s, %" PRIu64 " wait for room", text_bytes(t->reserved_bytes, used),
		       text_bytes(t->limit_bytes, limit), t->queue_waiters);
		text_refused(t);
		putchar('\n');
	}
}

static void text_lane(const struct sample *s, unsigned i)
{
	const struct page_device *a = &s->first.device[i], *b = &s->last.device[i];
	size_t n = page_device_bytes(&s->last, i);
	char text[TEXT_ROOM];

	json_plain(stdout, s->last.chosen[i], n);
	printf("%*s", n < 10 ? 10 - (int)n : 0, "");
	printf(" %12s", text_bytes(whole_of(sample_rate(s, a->in_bytes, b->in_bytes)), text));
	printf(" %12s", text_bytes(whole_of(sample_rate(s, a->out_bytes, b->out_bytes)), text));
	printf(" %7" PRIu64 " %10s %5.0f%%", b->flight, text_bytes(b->flight_bytes, text),
	       MIN(100.0, sample_rate(s, a->busy_ns, b->busy_ns) * 100 / NS_PER_S));
	printf(" %9s%s%s\n", b->oldest_ns > 0 ? text_duration(b->oldest_ns, text) : "-",
	       b->oldest_ns >= TEXT_HANGS_NS ? " does it hang?" : "", b->lost ? " lost" : "");
}

static void text_lanes(const struct sample *s)
{
	printf("\n%-10s %12s %12s %7s %10s %6s %9s\n", "lane", "in/s", "out/s", "queue", "bytes",
	       "busy", "oldest");
	for (unsigned i = 0; i < STATS_DEVICES; i++)
		if (s->last.device[i].limit_bytes > 0)
			text_lane(s, i);
}

static void text_stalls(const struct sample *s)
{
	const struct page *a = &s->first, *b = &s->last;

	printf("\nstalled %.3f s a second; by class",
	       sample_rate(s, a->stall_ns, b->stall_ns) / NS_PER_S);
	for (unsigned c = 0; c < STATS_CLASSES; c++)
		printf(" %s %.3f", page_classes[c],
		       sample_rate(s, a->class_stall_ns[c], b->class_stall_ns[c]) / NS_PER_S);
	printf("\nuses %.0f, misses %.0f, requests %.0f, steps %.1f a second\n",
	       sample_rate(s, a->hits_logged, b->hits_logged), sample_rate(s, a->misses, b->misses),
	       sample_rate(s, a->requests, b->requests), sample_rate(s, a->steps, b->steps));
}

static void text_place(uint8_t place)
{
	if (place == PROTOCOL_PLACE_HOST)
		fputs(" host ", stdout);
	else
		printf(" gpu%-2u", place);
}

static bool for_room(const struct wire_wait *w)
{
	return w->reason == WAIT_FOR_ROOM || w->reason == WAIT_FOR_QUOTA;
}

/* Where, and who has most of it. */
static void text_room(const struct wire_wait *w, const struct page *page)
{
	char bytes[TEXT_ROOM];

	fputs(" of ", stdout);
	json_plain(stdout, w->device < STATS_DEVICES ? page->chosen[w->device] : "?",
		   w->device < STATS_DEVICES ? page_device_bytes(page, w->device) : 1);
	if (w->blocker_pid > 0)
		printf("; process %" PRIu32 " pins %s of %s", w->blocker_pid,
		       text_bytes((uint64_t)w->blocker_kib * 1024, bytes),
		       w->reason == WAIT_FOR_QUOTA ? "that" : "it");
	else
		fputs("; nobody pins any of it", stdout);
}

static void text_wait(const struct admin_wait *a, const struct page *page)
{
	const struct wire_wait *w = &a->wait;
	char since[TEXT_ROOM];

	printf("%8s %8" PRIu32 " ", text_duration(w->since_ns, since), w->pid);
	json_plain(stdout, a->client_space, strlen(a->client_space));
	printf(" %s", kind_name(w));
	text_place(w->place);
	fputc(' ', stdout);
	json_plain(stdout, a->name_space, strlen(a->name_space));
	fputc('/', stdout);
	json_plain(stdout, a->name, strlen(a->name));
	printf(" (%" PRIu32 ":%" PRIu32 ")", w->index, w->generation);
	if (w->tensors > 1)
		printf(" of %" PRIu32, w->tensors);
	printf(": %s", reason_text(w));
	if (!for_room(w) && w->blocker_pid > 0)
		printf(" of process %" PRIu32, w->blocker_pid);
	if (for_room(w))
		text_room(w, page);
	putchar('\n');
}

static void text_waits(const struct top *t)
{
	printf("\n%u waiting%s\n", t->waiting, t->waiting > 0 ? ": since, process, for what" : "");
	for (unsigned i = 0; i < t->shown; i++)
		text_wait(&t->waits[i], &t->sample.last);
	if (t->waiting > t->shown)
		printf("and %u more\n", t->waiting - t->shown);
}

static void text_frame(const struct top *t)
{
	const struct page *p = &t->sample.last;
	char up[TEXT_ROOM];

	printf("tierd up %s, %" PRIu64 " %s, %" PRIu64 " %s, %" PRIu64 " %s\n\n",
	       text_duration(p->uptime_ns, up), p->clients, PLURAL(p->clients, "client", "clients"),
	       p->tensors, PLURAL(p->tensors, "tensor", "tensors"), p->moves_running,
	       PLURAL(p->moves_running, "move", "moves"));
	text_tiers_of(p);
	text_lanes(&t->sample);
	text_stalls(&t->sample);
	text_waits(t);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_wait(struct json *j, const struct admin_wait *a)
{
	const struct wire_wait *w = &a->wait;

	json_open(j, NULL, '{');
	json_u64(j, "pid", w->pid);
	json_u64(j, "client", w->client);
	json_name(j, "namespace", a->client_space, strlen(a->client_space));
	json_text(j, "kind", kind_name(w));
	json_text(j, "for", reason_text(w));
	json_u64(j, "since_ns", w->since_ns);
	json_u64(j, "index", w->index);
	json_u64(j, "generation", w->generation);
	json_name(j, "tensor_namespace", a->name_space, strlen(a->name_space));
	json_name(j, "tensor", a->name, strlen(a->name));
	json_u64(j, "tensor_bytes", w->tensor_bytes);
	json_u64(j, "tensors", w->tensors);
	if (w->place == PROTOCOL_PLACE_HOST)
		json_text(j, "place", "host");
	else
		json_u64(j, "place", w->place);
	json_u64(j, "blocker_pid", w->blocker_pid);
	json_u64(j, "blocker_bytes", (uint64_t)w->blocker_kib * 1024);
	json_close(j, '}');
}

static void json_frame(const struct top *t)
{
	struct json j = { stdout, false };

	json_open(&j, NULL, '{');
	sample_json(&j, &t->sample);
	json_u64(&j, "requests_waiting", t->waiting);
	json_open(&j, "waits", '[');
	for (unsigned i = 0; i < t->shown; i++)
		put_wait(&j, &t->waits[i]);
	json_close(&j, ']');
	json_close(&j, '}');
	json_end(&j);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int frame(struct top *t, struct tierd *d, double interval)
{
	int rc;

	sample_next(&t->sample, d, interval);
	t->shown = t->waiting = 0;
	rc = admin_waits(d, keep_wait, t);
	if (rc < 0)
		return command_failed(t->arguments, rc, tierd_error(d));
	if (t->arguments->json != NULL) {
		json_frame(t);
	} else {
		/* Home, and clear: what was there before may have been longer. */
		if (isatty(STDOUT_FILENO) && t->arguments->once == NULL)
			fputs("\033[H\033[2J", stdout);
		text_frame(t);
	}
	return STATUS_OK;
}

int top_run(const struct arguments *a)
{
	static struct top t;
	double interval = 1.0;
	struct tierd *d;
	int status = option_seconds(a, "--interval", a->interval, INTERVAL_LEAST, &interval);

	if (status == STATUS_OK)
		status = command_connect(a, &d);
	if (status != STATUS_OK)
		return status;
	t.arguments = a;
	sample_begin(&t.sample, d);
	do {
		status = frame(&t, d, interval);
		/* Nobody reads any more: main() says so. */
		if (command_flush() != 0)
			break;
	} while (status == STATUS_OK && a->once == NULL);
	tierd_close(d);
	return status;
}

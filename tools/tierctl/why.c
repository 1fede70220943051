/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl why: where a tensor is, what keeps it there or will let it go, and who pins it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/plural.h"
#include "base/compiler.h"
#include "libclient/admin.h"
#include "tools/tierctl/find.h"
#include "tools/tierctl/info.h"
#include "tools/tierctl/json.h"
#include "libclient/protocol/page.h"
#include "tools/tierctl/text.h"
#include "tiers/tier.h"

#define PINS_MAX 4096u

struct why {
	const struct arguments *arguments;
	struct page page; /* names of devices */
	const struct tierd_info *info;
	struct wire_explain x;
	struct wire_pin pins[PINS_MAX];
	unsigned count;
	int status;
};

static const struct {
	uint32_t bit;
	const char *name, *text;
} reasons[] = {
#define X(name, bit, text) { 1u << (bit), #name, text },
	EXPLAIN_REASONS(X)
#undef X
};

static const char *const moves[] = { "none", "fill", "write-back", "compaction", "copy" };

static const char *move_name(uint8_t kind)
{
	return kind < ARRAY_SIZE(moves) ? moves[kind] : "?";
}

/* ---- text ----------------------------------------------------------------------------------- */

static void text_device(const struct why *w, uint8_t device)
{
	size_t n = page_device_bytes(&w->page, device);

	if (n == 0)
		fputs("none", stdout);
	else
		json_plain(stdout, w->page.chosen[device], n);
}

static void text_where(const struct why *w)
{
	char bytes[TEXT_ROOM];
	bool any = false;

	printf("%-10s %s", "where", text_state(w->info->state));
	if (w->x.device != 0xff) {
		fputs(" on ", stdout);
		text_device(w, w->x.device);
	}
	printf(", %s; valid in", text_bytes(w->info->bytes, bytes));
	for (unsigned tier = 0; tier < TIERD_TIERS; tier++)
		if (w->info->stored_bytes[tier] > 0) {
			printf("%s %s", any ? "," : "", tier_kind_name(tier));
			any = true;
		}
	puts(any ? "" : " no tier");
}

static void text_reasons(const struct why *w)
{
	const char *head = "why";

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (w->x.reasons & reasons[i].bit) {
			printf("%-10s %s\n", head, reasons[i].text);
			head = "";
		}
}

static void text_policy(const struct why *w)
{
	char ago[TEXT_ROOM], guess[TEXT_ROOM];

	printf("%-10s %s ago, in time of its namespace %" PRIu64 " %s\n", "last used",
	       text_duration(w->x.used_ago_ns, ago), w->x.used_ago_steps,
	       PLURAL(w->x.used_ago_steps, "step", "steps"));
	printf("%-10s %s", "policy", w->x.policy);
	if (w->x.needed_in_ms != UINT64_MAX)
		printf(", which guesses that it is needed in %s",
		       text_duration(MIN(w->x.needed_in_ms, UINT64_MAX / NS_PER_MS) * NS_PER_MS,
				     guess));
	if (w->x.score > 0)
		printf("; score %" PRIu64 ", the highest goes first", w->x.score);
	putchar('\n');
}

/* Who of its device goes first, or that it is nobody's victim. */
static void text_rank(const struct why *w)
{
	const char *among = w->x.reasons & EXPLAIN_GUARANTEED ? " of its namespace" : "";
	uint32_t before = w->x.rank - 1;

	printf("%-10s ", "rank");
	if (w->x.device == 0xff)
		puts("none: it stands in no tier that is cleared for others");
	else if (w->x.rank == 0)
		puts("none: it cannot go now, see why");
	else if (before == 0 && !w->x.rank_least)
		printf("it goes next%s%s\n", among[0] != '\0' ? ", of those" : "", among);
	else
		printf("%s%" PRIu32 " %s%s %s before it\n", w->x.rank_least ? "at least " : "",
		       before, PLURAL(before, "tensor", "tensors"), among,
		       PLURAL(before, "goes", "go"));
}

static void text_move(const struct why *w)
{
	char since[TEXT_ROOM];

	if (w->x.move_kind == 0)
		return;
	printf("%-10s %s from ", "move", move_name(w->x.move_kind));
	text_device(w, w->x.move_from);
	fputs(" to ", stdout);
	text_device(w, w->x.move_to);
	printf(", %" PRIu32 " of %" PRIu32 " %s, for %s\n", w->x.move_done, w->x.move_pieces,
	       PLURAL(w->x.move_pieces, "piece", "pieces"), text_duration(w->x.move_ns, since));
	if (w->x.out_device == 0xff)
		return;
	printf("%-10s ", "");
	text_device(w, w->x.out_device);
	printf(" has had one of its transfers for %s%s\n",
	       text_duration((uint64_t)w->x.out_ms * NS_PER_MS, since),
	       w->x.out_ms >= TEXT_HANGS_NS / NS_PER_MS ? ": does it hang?" : "");
}

static void text_clients(const struct why *w)
{
	char held[TEXT_ROOM];

	if (w->x.owner_pid > 0)
		printf("%-10s process %" PRIu32 ": it has no name and goes with its client\n",
		       "owner", w->x.owner_pid);
	if (w->x.held_pid > 0)
		printf("%-10s process %" PRIu32 ", for %s more\n", "held for", w->x.held_pid,
		       text_duration(w->x.held_ns, held));
	if (w->x.waiters > 0)
		printf("%-10s %" PRIu32 " %s\n", "wanted by", w->x.waiters,
		       PLURAL(w->x.waiters, "request; `tierctl top --once` names it",
			      "requests; `tierctl top --once` names them"));
	for (uint32_t i = 0; i < w->x.pins_listed; i++) {
		const struct wire_pin *p = &w->pins[i];

		printf("%-10s process %" PRIu32 " (client %" PRIu32 "): %" PRIu32 " %s, %" PRIu32
		       " of them to write%s%s\n",
		       i == 0 ? "pinned by" : "", p->pid, p->client, p->pins,
		       PLURAL(p->pins, "pin", "pins"), p->write_pins,
		       p->written ? "; it has written" : "",
		       p->waits ? "; it waits for something itself" : "");
	}
	if (w->x.pinners > w->x.pins_listed)
		printf("%-10s and %" PRIu32 " more %s\n", "", w->x.pinners - w->x.pins_listed,
		       PLURAL(w->x.pinners - w->x.pins_listed, "client", "clients"));
}

static void text(const struct why *w)
{
	printf("%s%-10s ", w->count > 0 ? "\n" : "", "tensor");
	info_plain_name(stdout, w->info);
	printf(" (%" PRIu32 ":%" PRIu32 "), %s\n", w->info->tensor.index,
	       w->info->tensor.generation, text_class(w->info->class_));
	text_where(w);
	text_reasons(w);
	text_policy(w);
	text_rank(w);
	text_move(w);
	text_clients(w);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void put_device(struct json *j, const char *key, const struct why *w, uint8_t device)
{
	size_t n = page_device_bytes(&w->page, device);

	if (n == 0)
		json_null(j, key);
	else
		json_name(j, key, w->page.chosen[device], n);
}

static void put_move(struct json *j, const struct why *w)
{
	if (w->x.move_kind == 0) {
		json_null(j, "move");
		return;
	}
	json_open(j, "move", '{');
	json_text(j, "kind", move_name(w->x.move_kind));
	put_device(j, "from", w, w->x.move_from);
	put_device(j, "to", w, w->x.move_to);
	json_u64(j, "pieces", w->x.move_pieces);
	json_u64(j, "done", w->x.move_done);
	json_u64(j, "since_ns", w->x.move_ns);
	put_device(j, "out_at", w, w->x.out_device);
	json_u64(j, "out_ns", (uint64_t)w->x.out_ms * NS_PER_MS);
	json_close(j, '}');
}

static void put_pins(struct json *j, const struct why *w)
{
	json_u64(j, "pinners", w->x.pinners);
	json_open(j, "pinned_by", '[');
	for (uint32_t i = 0; i < w->x.pins_listed; i++) {
		json_open(j, NULL, '{');
		json_u64(j, "pid", w->pins[i].pid);
		json_u64(j, "client", w->pins[i].client);
		json_u64(j, "pins", w->pins[i].pins);
		json_u64(j, "write_pins", w->pins[i].write_pins);
		json_bool(j, "written", w->pins[i].written);
		json_bool(j, "waits", w->pins[i].waits);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void put_policy(struct json *j, const struct why *w)
{
	json_text(j, "policy", w->x.policy);
	if (w->x.needed_in_ms != UINT64_MAX)
		json_u64(j, "needed_in_ms", w->x.needed_in_ms);
	else
		json_null(j, "needed_in_ms");
	json_u64(j, "score", w->x.score);
	if (w->x.rank > 0)
		json_u64(j, "before_it", w->x.rank - 1);
	else
		json_null(j, "before_it");
	json_bool(j, "before_it_least", w->x.rank_least != 0);
	json_u64(j, "used_ago_ns", w->x.used_ago_ns);
	json_u64(j, "used_ago_steps", w->x.used_ago_steps);
}

static void json(const struct why *w)
{
	struct json j = { stdout, false };

	json_open(&j, NULL, '{');
	info_json_members(&j, w->info);
	put_device(&j, "device", w, w->x.device);
	json_open(&j, "reasons", '[');
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (w->x.reasons & reasons[i].bit)
			json_text(&j, NULL, reasons[i].name);
	json_close(&j, ']');
	put_policy(&j, w);
	put_move(&j, w);
	json_u64(&j, "waiters", w->x.waiters);
	json_u64(&j, "owner_pid", w->x.owner_pid);
	json_u64(&j, "held_pid", w->x.held_pid);
	json_u64(&j, "held_ns", w->x.held_ns);
	put_pins(&j, w);
	json_close(&j, '}');
	json_end(&j);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int each(void *ctx, struct tierd *t, const struct tierd_info *i)
{
	struct why *w = ctx;
	int rc = admin_explain(t, i->tensor, &w->x, w->pins, PINS_MAX);

	w->info = i;
	if (rc < 0) {
		w->status = command_failed(w->arguments, rc, tierd_error(t));
		return 1;
	}
	if (w->arguments->json != NULL)
		json(w);
	else
		text(w);
	w->count++;
	return 0;
}

int why_run(const struct arguments *a)
{
	static struct why w;
	struct tierd *t;
	int status = command_connect(a, &t);

	if (status != STATUS_OK)
		return status;
	w.arguments = a;
	page_read(admin_stats_page(t), &w.page);
	status = find_tensors(a, t, each, &w);
	tierd_close(t);
	return status != STATUS_OK ? status : w.status;
}

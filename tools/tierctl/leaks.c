/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl leaks: looks at all tensors each time that a job has ended an iteration. A job's steps
 * are asked of one of its tensors, which costs the daemon next to nothing; the list is read only
 * when some job has moved.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/plural.h"
#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/info.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/leak_groups.h"
#include "tools/tierctl/option.h"
#include "libclient/protocol/page.h"
#include "tools/tierctl/text.h"

#define POLL_MS     5
#define PINS_MAX    16u
#define LOOKS_LEAST 3

struct pinned {
	struct tierd_info *infos;
	size_t count, room;
};

struct leaks {
	const struct arguments *arguments;
	struct leak_groups groups;
	struct pinned pinned; /* of the last look */
	uint64_t steps;
	bool relist; /* a tensor that was asked for steps has gone */
	unsigned found;
};

/* ---- looks ---------------------------------------------------------------------------------- */

static int keep_pinned(struct pinned *p, const struct tierd_info *i)
{
	if (p->count == p->room) {
		size_t room = p->room > 0 ? 2 * p->room : 64;
		struct tierd_info *grown = reallocarray(p->infos, room, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		p->infos = grown;
		p->room = room;
	}
	p->infos[p->count++] = *i;
	return 0;
}

static int each(void *ctx, const struct tierd_info *i)
{
	struct leaks *l = ctx;
	const char *only = l->arguments->name_space;
	int rc;

	if (only != NULL && strcmp(only, i->name_space) != 0)
		return 0;
	rc = leak_groups_add(&l->groups, i);
	return rc == 0 && i->pins > 0 ? keep_pinned(&l->pinned, i) : rc;
}

static int look(struct leaks *l, struct tierd *t)
{
	int rc;

	leak_groups_begin(&l->groups);
	l->pinned.count = 0;
	rc = admin_list(t, each, l);
	if (rc == 0)
		leak_groups_end(&l->groups);
	l->relist = false;
	return rc;
}

/* How far a job is. One whose tensors are all gone stands still. */
static int ask_steps(struct leaks *l, struct tierd *t, struct leak_space *space)
{
	struct wire_explain x;
	int rc;

	if (!space->listed)
		return 0;
	rc = admin_explain(t, space->asked, &x, NULL, 0);
	if (rc == -ESTALE) {
		l->relist = true;
		return 0;
	}
	if (rc < 0)
		return rc;
	if (!space->known)
		space->steps = x.steps;
	space->known = true;
	/* Fewer: another job of that name has begun. */
	space->moved = x.steps > space->steps;
	space->seen += space->moved ? x.steps - space->steps : 0;
	space->steps = x.steps;
	return 0;
}

static int ask_all(struct leaks *l, struct tierd *t, bool *ret_moved)
{
	int rc = 0;

	*ret_moved = false;
	for (size_t i = 0; rc == 0 && i < l->groups.space_count; i++) {
		l->groups.spaces[i].moved = false;
		rc = ask_steps(l, t, &l->groups.spaces[i]);
		*ret_moved |= l->groups.spaces[i].moved;
	}
	return rc;
}

/* Whether every job that has ended a step meanwhile was looked at as often as was asked for, and
 * once before: one look may be after several steps of a fast job. */
static bool is_done(const struct leaks *l)
{
	bool any = false;

	for (size_t i = 0; i < l->groups.space_count; i++) {
		const struct leak_space *s = &l->groups.spaces[i];

		if (s->seen > 0 && s->looks <= l->steps)
			return false;
		any |= s->seen > 0;
	}
	return any;
}

static int watch(struct leaks *l, struct tierd *t, double timeout_s)
{
	const struct timespec pause = { 0, POLL_MS * 1000000l };
	uint64_t until_ns = clock_now_ns() + (uint64_t)(timeout_s * NS_PER_S);
	bool moved;
	int rc = look(l, t);

	if (rc == 0)
		rc = ask_all(l, t, &moved);
	while (rc == 0 && !is_done(l) && clock_now_ns() < until_ns) {
		nanosleep(&pause, NULL);
		rc = ask_all(l, t, &moved);
		if (rc == 0 && (moved || l->relist))
			rc = look(l, t);
	}
	return rc;
}

/* ---- what was found ------------------------------------------------------------------------- */

static void say_pinned(const struct leaks *l, const struct tierd_info *i,
		       const struct wire_explain *x, const struct wire_pin *pins)
{
	char bytes[TEXT_ROOM], ago[TEXT_ROOM];
	struct json j = { stdout, false };

	if (l->arguments->json == NULL) {
		printf("pinned for %" PRIu64 " %s, %s: ", x->used_ago_steps,
		       PLURAL(x->used_ago_steps, "step", "steps"),
		       text_duration(x->used_ago_ns, ago));
		info_plain_name(stdout, i);
		printf(" (%" PRIu32 ":%" PRIu32 "), %s, %" PRIu32 " %s, process", i->tensor.index,
		       i->tensor.generation, text_bytes(i->bytes, bytes), i->pins,
		       PLURAL(i->pins, "pin", "pins"));
		for (uint32_t k = 0; k < x->pins_listed; k++)
			printf(" %" PRIu32, pins[k].pid);
		puts(x->pinners > x->pins_listed ? " and more" : "");
		return;
	}
	json_open(&j, NULL, '{');
	json_text(&j, "leak", "pinned");
	info_json_members(&j, i);
	json_u64(&j, "used_ago_ns", x->used_ago_ns);
	json_u64(&j, "used_ago_steps", x->used_ago_steps);
	json_open(&j, "pids", '[');
	for (uint32_t k = 0; k < x->pins_listed; k++)
		json_u64(&j, NULL, pins[k].pid);
	json_close(&j, ']');
	json_close(&j, '}');
	json_end(&j);
}

static int find_pinned(struct leaks *l, struct tierd *t)
{
	struct wire_pin pins[PINS_MAX];
	struct wire_explain x;

	for (size_t i = 0; i < l->pinned.count; i++) {
		int rc = admin_explain(t, l->pinned.infos[i].tensor, &x, pins, PINS_MAX);

		if (rc < 0 && rc != -ESTALE)
			return rc;
		if (rc < 0 || x.pinners == 0 || x.used_ago_steps < l->steps)
			continue;
		say_pinned(l, &l->pinned.infos[i], &x, pins);
		l->found++;
	}
	return 0;
}

static void say_group(const struct leaks *l, const struct leak_group *g, const char *what,
		      const struct leak_trend *t)
{
	const struct leak_space *s = &l->groups.spaces[g->space];
	char from[TEXT_ROOM], to[TEXT_ROOM];
	bool bytes = strcmp(what, "bytes") == 0;
	struct json j = { stdout, false };

	if (l->arguments->json == NULL) {
		printf("%s that grow after every step, %" PRIu64 " of them: ", what, s->looks - 1);
		json_plain(stdout, s->name, strlen(s->name));
		fputc('/', stdout);
		json_plain(stdout, g->prefix, strlen(g->prefix));
		printf("%s, %s: ", g->prefix[0] != '\0' ? "*" : "(unnamed)", text_class(g->class_));
		if (bytes)
			printf("%s to %s", text_bytes(t->first, from), text_bytes(t->last, to));
		else
			printf("%" PRIu64 " to %" PRIu64, t->first, t->last);
		printf(", %" PRIu64 " %s\n", g->tensors, PLURAL(g->tensors, "tensor", "tensors"));
		return;
	}
	json_open(&j, NULL, '{');
	json_text(&j, "leak", bytes ? "growing_bytes" : "growing_pins");
	json_name(&j, "namespace", s->name, strlen(s->name));
	json_name(&j, "prefix", g->prefix, strlen(g->prefix));
	json_text(&j, "class", text_class(g->class_));
	json_u64(&j, "looks", s->looks - 1);
	json_u64(&j, "first", t->first);
	json_u64(&j, "last", t->last);
	json_u64(&j, "tensors", g->tensors);
	json_close(&j, '}');
	json_end(&j);
}

/* Less may be chance. */
static void find_growing(struct leaks *l)
{
	for (size_t i = 0; i < l->groups.count; i++) {
		const struct leak_group *g = &l->groups.groups[i];

		if (g->looks < LOOKS_LEAST)
			continue;
		if (leak_trend_grows(&g->bytes)) {
			say_group(l, g, "bytes", &g->bytes);
			l->found++;
		}
		if (leak_trend_grows(&g->pins)) {
			say_group(l, g, "pins", &g->pins);
			l->found++;
		}
	}
}

/* Whether any job has ended a step meanwhile. */
static bool has_stepped(const struct leaks *l)
{
	for (size_t i = 0; i < l->groups.space_count; i++)
		if (l->groups.spaces[i].seen > 0)
			return true;
	return false;
}

/* Whether what grows in it would have shown. A fast job's steps are not all looked at, and fewer
 * looks at as many steps tell as much. */
static bool is_enough(const struct leaks *l, const struct leak_space *s)
{
	return s->looks > l->steps || (s->seen >= l->steps && s->looks >= LOOKS_LEAST);
}

/* One that makes no steps, as a job that waits for requests, is no job that was seen too little. */
static bool is_cut_short(const struct leaks *l)
{
	for (size_t i = 0; i < l->groups.space_count; i++)
		if (l->groups.spaces[i].seen > 0 && !is_enough(l, &l->groups.spaces[i]))
			return true;
	return false;
}

static void say_space_json(const struct leaks *l, const struct leak_space *s)
{
	struct json j = { stdout, false };

	json_open(&j, NULL, '{');
	json_name(&j, "namespace", s->name, strlen(s->name));
	json_u64(&j, "steps_seen", s->seen);
	json_u64(&j, "steps_asked", l->steps);
	json_bool(&j, "enough", is_enough(l, s));
	json_close(&j, '}');
	json_end(&j);
}

static void say_space(const struct leaks *l, const struct leak_space *s)
{
	const char *were = PLURAL(s->seen, "was", "were");

	if (l->arguments->json != NULL) {
		say_space_json(l, s);
		return;
	}
	json_plain(stdout, s->name, strlen(s->name));
	if (s->seen == 0)
		puts(": no step was seen");
	else if (s->seen < l->steps)
		printf(": %" PRIu64 " of %" PRIu64 " steps %s seen\n", s->seen, l->steps, were);
	else
		printf(": %" PRIu64 " %s %s seen%s\n", s->seen, PLURAL(s->seen, "step", "steps"),
		       were, is_enough(l, s) ? "" : ", in too few looks");
}

/* What the finding rests on. */
static void say_basis(const struct leaks *l, uint64_t lost)
{
	for (size_t i = 0; i < l->groups.space_count; i++)
		say_space(l, &l->groups.spaces[i]);
	if (lost > 0 && l->arguments->json == NULL)
		printf("access logs were overrun: %" PRIu64
		       " %s not known, so what is pinned may have been used later\n",
		       lost, PLURAL(lost, "use is", "uses are"));
}

/* Who has seen no step, or too few, has seen no leak, and gives nobody a clean bill. */
static int verdict(const struct leaks *l)
{
	if (l->found > 0)
		return STATUS_FOUND;
	if (l->groups.space_count == 0)
		return command_failed(l->arguments, -ENOENT,
				      "nothing was looked at: there are no such tensors");
	if (!has_stepped(l))
		return command_failed(
			l->arguments, -ETIMEDOUT,
			"nothing was looked at: no job has called tierd_step() meanwhile");
	if (is_cut_short(l))
		return command_failed(l->arguments, -ETIMEDOUT, "too few steps were seen to tell");
	if (l->arguments->json == NULL)
		puts("nothing found");
	return STATUS_OK;
}

static int run(struct leaks *l, struct tierd *t, double timeout_s)
{
	static struct page before, after;
	int rc;

	page_read(admin_stats_page(t), &before);
	rc = watch(l, t, timeout_s);
	if (rc == 0)
		rc = find_pinned(l, t);
	if (rc == -ENOMEM)
		return command_failed(l->arguments, rc, "no memory for what is to be remembered");
	if (rc < 0)
		return command_failed(l->arguments, rc, tierd_error(t));
	find_growing(l);
	page_read(admin_stats_page(t), &after);
	say_basis(l, after.log_lost - before.log_lost);
	return verdict(l);
}

int leaks_run(const struct arguments *a)
{
	struct leaks l = { .arguments = a, .steps = 5 };
	double timeout_s = 60;
	struct tierd *t;
	int status = option_count(a, "--steps", a->steps, &l.steps);

	if (status == STATUS_OK)
		status = option_seconds(a, "--timeout", a->timeout, 0, &timeout_s);
	if (status == STATUS_OK)
		status = command_connect(a, &t);
	if (status != STATUS_OK)
		return status;
	status = run(&l, t, timeout_s);
	tierd_close(t);
	leak_groups_free(&l.groups);
	free(l.pinned.infos);
	return status;
}

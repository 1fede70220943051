/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl quotas: what namespaces have of each tier, and may have.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "libclient/admin.h"
#include "tools/tierctl/command.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/text.h"

struct output {
	const struct stats_page *page;
	struct json j;
};

/* The first word of what the daemon says of the device; dram and nvme are their first ones'. */
static int device_text(const struct output *o, const struct wire_quota *w, char text[TEXT_ROOM])
{
	const char *chosen = w->device < STATS_DEVICES ? o->page->chosen[w->device] : "";

	return snprintf(text, TEXT_ROOM, "%.*s", (int)MIN(strcspn(chosen, ": "), TEXT_ROOM - 1u),
			chosen);
}

static const char *limit_text(uint64_t bytes, char text[TEXT_ROOM])
{
	return bytes == UINT64_MAX ? "-" : text_bytes(bytes, text);
}

static int put_text(void *ctx, const struct admin_quota *q)
{
	const struct output *o = ctx;
	char device[TEXT_ROOM], used[TEXT_ROOM], guarantee[TEXT_ROOM], limit[TEXT_ROOM],
		sure[TEXT_ROOM];

	device_text(o, &q->quota, device);
	printf("%-12s %10s %10s %10s %10s  ", device, text_bytes(q->quota.used_bytes, used),
	       text_bytes(q->quota.guarantee_bytes, guarantee),
	       limit_text(q->quota.limit_bytes, limit), text_bytes(q->quota.sure_bytes, sure));
	if (q->quota.others)
		fputs("(all others)", stdout);
	json_plain(stdout, q->name, strlen(q->name));
	puts(q->quota.prefix ? "*" : "");
	return 0;
}

static int put_json(void *ctx, const struct admin_quota *q)
{
	struct output *o = ctx;
	char device[TEXT_ROOM];

	device_text(o, &q->quota, device);
	json_open(&o->j, NULL, '{');
	json_name(&o->j, "name", q->name, strlen(q->name));
	json_bool(&o->j, "prefix", q->quota.prefix);
	json_bool(&o->j, "others", q->quota.others);
	json_text(&o->j, "device", device);
	json_u64(&o->j, "used_bytes", q->quota.used_bytes);
	json_u64(&o->j, "guarantee_bytes", q->quota.guarantee_bytes);
	if (q->quota.limit_bytes != UINT64_MAX)
		json_u64(&o->j, "limit_bytes", q->quota.limit_bytes);
	json_u64(&o->j, "sure_bytes", q->quota.sure_bytes);
	json_close(&o->j, '}');
	json_end(&o->j);
	return 0;
}

int quotas_run(const struct arguments *a)
{
	struct output o = { .j = { stdout, false } };
	struct tierd *t;
	int rc, status = command_connect(a, &t);

	if (status != STATUS_OK)
		return status;
	o.page = admin_stats_page(t);
	if (a->json == NULL)
		printf("%-12s %10s %10s %10s %10s  %s\n", "device", "used", "guarantee", "limit",
		       "sure", "namespaces");
	rc = admin_quotas(t, a->json != NULL ? put_json : put_text, &o);
	if (rc < 0)
		status = command_failed(a, rc, tierd_error(t));
	tierd_close(t);
	return status;
}

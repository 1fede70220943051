/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/admin.h"

#include <errno.h>

#include "libclient/error.h"
#include "libclient/info.h"
#include "libclient/request.h"

static int list_payload(const struct call *c, int (*each)(void *ctx, const struct tierd_info *info),
			void *ctx)
{
	struct tierd_info info;

	for (size_t at = 0; at < c->answer.payload_bytes;) {
		int n = info_read((const char *)c->payload + at, c->answer.payload_bytes - at,
				  &info);
		int rc;

		if (n < 0)
			return error_set(EPROTO, "list answered with a record that cannot be");
		rc = each(ctx, &info);
		if (rc != 0)
			return rc;
		at += (size_t)n;
	}
	return 0;
}

int admin_list(struct tierd *t, int (*each)(void *ctx, const struct tierd_info *info), void *ctx)
{
	uint64_t next = 0;

	do {
		uint64_t from = next;
		struct call c;
		int rc = request_begin(t, CALL_PAYLOAD, OP_LIST, &c);

		if (rc < 0)
			return rc;
		c.entry.offset = from;
		request_submit(t, &c);
		rc = request_wait(t, &c, REQUEST_NEVER);
		if (rc < 0)
			return rc;
		next = c.answer.value;
		rc = list_payload(&c, each, ctx);
		request_end(t, &c);
		if (rc != 0)
			return rc;
		/* A list that does not go on would never end. */
		if (next != 0 && next <= from)
			return error_set(EPROTO, "list goes back from %llu to %llu",
					 (unsigned long long)from, (unsigned long long)next);
	} while (next != 0);
	return 0;
}

int admin_mark(struct tierd *t)
{
	struct call c;
	int rc = request_begin(t, 0, OP_MARK, &c);

	if (rc < 0)
		return rc;
	rc = request_run(t, &c, REQUEST_NEVER);
	return rc < 0 ? rc : 0;
}

const struct stats_page *admin_stats_page(struct tierd *t)
{
	return t->stats.base;
}

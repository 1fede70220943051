/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/admin.h"

#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "libclient/connect.h"
#include "libclient/error.h"
#include "libclient/info.h"
#include "libclient/request.h"

static int explain_read(const struct call *c, struct wire_explain *ret, struct wire_pin *pins,
			size_t max)
{
	size_t bytes = c->answer.payload_bytes;

	if (bytes < sizeof(*ret))
		return error_set(EPROTO, "explain answered with a record that cannot be");
	memcpy(ret, c->payload, sizeof(*ret));
	if (ret->pins_listed > (bytes - sizeof(*ret)) / sizeof(*pins) ||
	    memchr(ret->policy, '\0', sizeof(ret->policy)) == NULL)
		return error_set(EPROTO, "explain answered with a record that cannot be");
	ret->pins_listed = (uint32_t)MIN(ret->pins_listed, max);
	if (ret->pins_listed > 0)
		memcpy(pins, (const char *)c->payload + sizeof(*ret),
		       ret->pins_listed * sizeof(*pins));
	return 0;
}

int admin_explain(struct tierd *t, tierd_tensor tensor, struct wire_explain *ret,
		  struct wire_pin *pins, size_t max)
{
	struct call c;
	int rc = request_begin(t, CALL_PAYLOAD, OP_EXPLAIN, &c);

	if (rc < 0)
		return rc;
	c.entry.index = tensor.index;
	c.entry.generation = tensor.generation;
	request_submit(t, &c);
	rc = request_wait(t, &c, REQUEST_NEVER);
	if (rc < 0)
		return rc;
	rc = explain_read(&c, ret, pins, max);
	request_end(t, &c);
	return rc;
}

/* Bytes of the record, or -EPROTO. */
static int wait_read(const char *from, size_t room, struct admin_wait *ret)
{
	const char *names = from + sizeof(ret->wait);
	struct wire_wait *w = &ret->wait;

	memset(ret, 0, sizeof(*ret));
	if (room < sizeof(*w))
		return -EPROTO;
	memcpy(w, from, sizeof(*w));
	if (w->bytes > room || w->bytes % 8 != 0 ||
	    w->bytes < sizeof(*w) + w->name_bytes + w->name_space_bytes + w->client_space_bytes)
		return -EPROTO;
	memcpy(ret->name, names, w->name_bytes);
	memcpy(ret->name_space, names + w->name_bytes, w->name_space_bytes);
	memcpy(ret->client_space, names + w->name_bytes + w->name_space_bytes,
	       w->client_space_bytes);
	return (int)w->bytes;
}

/* Reads one record and hands it on: its bytes, or -EPROTO; what was answered is *ret_rc. */
typedef int read_record(const char *from, size_t room, const void *each, void *ctx, int *ret_rc);

static int record_of_info(const char *from, size_t room, const void *each, void *ctx, int *ret_rc)
{
	int (*const *call)(void *, const struct tierd_info *) = each;
	struct tierd_info info;
	int n = info_read(from, room, &info);

	*ret_rc = n < 0 ? 0 : (*call)(ctx, &info);
	return n;
}

static int record_of_wait(const char *from, size_t room, const void *each, void *ctx, int *ret_rc)
{
	int (*const *call)(void *, const struct admin_wait *) = each;
	struct admin_wait wait;
	int n = wait_read(from, room, &wait);

	*ret_rc = n < 0 ? 0 : (*call)(ctx, &wait);
	return n;
}

static int record_of_quota(const char *from, size_t room, const void *each, void *ctx, int *ret_rc)
{
	int (*const *call)(void *, const struct admin_quota *) = each;
	struct admin_quota quota = { 0 };
	const struct wire_quota *w = &quota.quota;

	if (room < sizeof(*w))
		return -EPROTO;
	memcpy(&quota.quota, from, sizeof(*w));
	if (w->bytes > room || w->bytes % 8 != 0 || w->bytes < sizeof(*w) + w->name_bytes)
		return -EPROTO;
	memcpy(quota.name, from + sizeof(*w), w->name_bytes);
	*ret_rc = (*call)(ctx, &quota);
	return (int)w->bytes;
}

static int records_of(const struct call *c, const char *what, read_record *read, const void *each,
		      void *ctx)
{
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < c->answer.payload_bytes;) {
		int n = read((const char *)c->payload + at, c->answer.payload_bytes - at, each, ctx,
			     &rc);

		if (n < 0)
			return error_set(EPROTO, "%s answered with a record that cannot be", what);
		at += (size_t)n;
	}
	return rc;
}

/* All records of an opcode that says where to go on. */
static int each_record(struct tierd *t, uint16_t opcode, const char *what, read_record *read,
		       const void *each, void *ctx)
{
	uint64_t next = 0;

	do {
		uint64_t from = next;
		struct call c;
		int rc = request_begin(t, CALL_PAYLOAD, opcode, &c);

		if (rc < 0)
			return rc;
		c.entry.offset = from;
		request_submit(t, &c);
		rc = request_wait(t, &c, REQUEST_NEVER);
		if (rc < 0)
			return rc;
		next = c.answer.value;
		rc = records_of(&c, what, read, each, ctx);
		request_end(t, &c);
		if (rc != 0)
			return rc;
		/* One that does not go on would never end. */
		if (next != 0 && next <= from)
			return error_set(EPROTO, "%s goes back from %llu to %llu", what,
					 (unsigned long long)from, (unsigned long long)next);
	} while (next != 0);
	return 0;
}

int admin_list(struct tierd *t, int (*each)(void *ctx, const struct tierd_info *info), void *ctx)
{
	return each_record(t, OP_LIST, "list", record_of_info, &each, ctx);
}

int admin_waits(struct tierd *t, int (*each)(void *ctx, const struct admin_wait *wait), void *ctx)
{
	return each_record(t, OP_WAITS, "waits", record_of_wait, &each, ctx);
}

int admin_quotas(struct tierd *t, int (*each)(void *ctx, const struct admin_quota *quota),
		 void *ctx)
{
	return each_record(t, OP_QUOTAS, "quotas", record_of_quota, &each, ctx);
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

int admin_open(const char *socket_path, const char *name_space, const char *domain,
	       struct tierd **ret)
{
	return open_in_domain(socket_path, name_space, domain, 0, ret);
}

const struct stats_page *admin_stats_page(struct tierd *t)
{
	return stats_usable(t) < 0 ? NULL : t->page;
}

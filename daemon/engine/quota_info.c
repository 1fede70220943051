/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotas and what is used of them, for people.
 */
#include <string.h>

#include "daemon/engine/quota.h"

static size_t record_bytes(const struct account *a)
{
	size_t name = a->quota != NULL ? strlen(a->quota->name) : 0;

	return ALIGN_UP(sizeof(struct wire_quota) + name, 8);
}

static void put(const struct engine *e, const struct account *a, unsigned pool, char *to)
{
	const struct quota_share *s = &a->pool[pool];
	const char *name = a->quota != NULL ? a->quota->name : "";
	struct wire_quota w = { .bytes = (uint32_t)record_bytes(a),
				.device = e->devices[pool].lane,
				.name_bytes = (uint8_t)strlen(name),
				.prefix = a->quota != NULL && a->quota->prefix,
				.others = a->quota == NULL,
				.used_bytes = s->used_bytes,
				.guarantee_bytes = s->guarantee_bytes,
				.limit_bytes = s->limit_bytes,
				.sure_bytes = s->sure_bytes };

	memset(to, 0, w.bytes);
	memcpy(to, &w, sizeof(w));
	memcpy(to + sizeof(w), name, w.name_bytes);
}

/* One number counts accounts and, in each, devices. */
size_t engine_quotas(struct engine *e, uint64_t from, void *to, size_t room, uint64_t *next)
{
	uint64_t all = (uint64_t)e->account_count * e->device_count, i = from;
	size_t used = 0;

	for (; i < all; i++) {
		const struct account *a = &e->accounts[i / e->device_count];
		unsigned pool = (unsigned)(i % e->device_count);

		if (e->devices[pool].pool != pool)
			continue;
		if (record_bytes(a) > room - used)
			break;
		put(e, a, pool, (char *)to + used);
		used += record_bytes(a);
	}
	*next = i < all && used > 0 ? i : 0;
	return used;
}

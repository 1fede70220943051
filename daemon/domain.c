/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "daemon/domain.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/check.h"
#include "base/heap.h"
#include "base/log.h"
#include "daemon/connection.h"
#include "daemon/quotas.h"

#define REAPS_A_TURN 256u /* of one lane */

/* ---- users ---------------------------------------------------------------------------------- */

/* Of getpwnam() that found none: whether that may be another time. Services have many codes for a
 * user that there is not; these are none of them. */
static bool could_not_ask(int code)
{
	return code == EIO || code == EINTR || code == EAGAIN || code == EMFILE || code == ENFILE ||
	       code == ENOMEM || code == ETIMEDOUT || code == ECONNREFUSED;
}

static int user_find(const char *user, uid_t *ret, struct err *err)
{
	const struct passwd *found;
	unsigned long number;
	char *end;

	if (isdigit((unsigned char)user[0])) {
		errno = 0;
		number = strtoul(user, &end, 10);
		if (*end != '\0' || errno != 0 || number >= (uid_t)-1)
			return err_set(err, EINVAL, "'%s' is no user id", user);
		*ret = (uid_t)number;
		return 0;
	}
	errno = 0;
	found = getpwnam(user); /* at start there are no other threads */
	if (!found && could_not_ask(errno))
		return err_set(err, EAGAIN, "user '%s' cannot be looked up: %s", user,
			       strerror(errno));
	if (!found)
		return err_set(err, EINVAL, "there is no user '%s' on this machine", user);
	*ret = found->pw_uid;
	return 0;
}

static int users_find(struct domain *d, const struct config_list *list, struct err *err)
{
	const struct settings_user *users = list->items;
	int rc = 0;

	d->users = heap_zeros(list->count, sizeof(*d->users));
	if (!d->users)
		return err_set(err, ENOMEM, "no memory");
	for (size_t i = 0; rc == 0 && i < list->count; i++) {
		uid_t uid = 0;

		rc = user_find(users[i].user, &uid, err);
		if (rc == 0 && domain_has_user(d, uid))
			rc = err_set(err, EINVAL, "uid %u stands twice", (unsigned)uid);
		if (rc == 0)
			d->users[d->user_count++] = uid;
	}
	return rc;
}

bool domain_has_user(const struct domain *d, uid_t uid)
{
	for (size_t i = 0; i < d->user_count; i++)
		if (d->users[i] == uid)
			return true;
	return false;
}

/* ---- engine hooks --------------------------------------------------------------------------- */

static void hook_submit(void *ctx, unsigned device, struct xfer *x)
{
	struct domain *d = ctx;

	lanes_submit(&d->lanes, device, x);
}

static void hook_complete(void *ctx, struct holder *holder, uint32_t request, int result,
			  uint64_t value, const char *text)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_complete(c, request, result, value, 0, text);
}

static void hook_holder_gone(void *ctx, struct holder *holder)
{
	server_holder_gone(holder);
}

static void hook_misbehaves(void *ctx, struct holder *holder, const char *text)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_break(c, text);
}

static void hook_excess(void *ctx, struct holder *holder, const char *text)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_excess(c, text);
}

static void hook_slab_unmap(void *ctx, struct holder *holder, unsigned device, uint64_t offset)
{
	struct connection *c = engine_holder_user(holder);

	ASSERT_OBJ(c, CONNECTION_MAGIC);
	connection_slab_unmap(c, device, offset);
}

/* ---- engine --------------------------------------------------------------------------------- */

static void params_fill(struct domain *d, struct engine_params *ret)
{
	const struct settings *s = &d->share.settings;

	*ret = (struct engine_params){
		.table = segments_table(&d->segments),
		.tensors = d->segments.tensors,
		.records = d->segments.records.base,
		.device_count = d->devices.count,
		.dram_zone_bytes = d->devices.zone_bytes,
		.staging = d->devices.staging.base,
		.staging_bytes = d->devices.engine_staging_bytes,
		.watermark = { [TIER_KIND_HBM] = s->watermarks.hbm,
			       [TIER_KIND_DRAM] = s->watermarks.dram,
			       [TIER_KIND_NVME] = { 1000, 1000 } },
		.linger_ns = s->linger_ns,
		.excess_ns = s->excess.patience_ns,
		.stats = segments_stats(&d->segments),
		.hooks = { .ctx = d,
			   .submit = hook_submit,
			   .complete = hook_complete,
			   .holder_gone = hook_holder_gone,
			   .misbehaves = hook_misbehaves,
			   .excess = hook_excess,
			   .slab_unmap = hook_slab_unmap },
	};
	memcpy(ret->devices, d->devices.tier, sizeof(ret->devices));
	for (unsigned i = 0; i < ENGINE_CLASSES; i++)
		ret->class_[i] = (struct engine_class){ policy_all[s->class_[i].policy.choice],
							s->class_[i].policy.config,
							s->class_[i].overcommit_permille };
}

static int quotas_fill(struct domain *d, struct engine_params *p, struct err *err)
{
	uint64_t bytes[TIER_KINDS] = { 0 };

	for (unsigned i = 0; i < p->device_count; i++) {
		const struct tier_base *base = &p->devices[i]->base;

		/* Each GPU is by itself; of unequal ones a share is one of the smallest. */
		if (base->kind == TIER_KIND_HBM && bytes[base->kind] > 0)
			bytes[base->kind] = MIN(bytes[base->kind], base->bytes);
		else
			bytes[base->kind] += base->bytes;
	}
	return quotas_make(&d->share.settings, bytes, &d->quotas, &p->quota_count, err);
}

static int engine_open(struct domain *d, struct err *err)
{
	struct engine_params params;
	int rc;

	params_fill(d, &params);
	rc = quotas_fill(d, &params, err);
	if (rc < 0)
		return rc;
	params.quotas = d->quotas;
	return engine_create(&params, &d->engine, err);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void done_came(struct loop_source *source, uint32_t events)
{
	/* Edge-triggered and never read: the turn reaps. */
}

struct loop_side domain_side(struct domain *d)
{
	struct stats_page *stats = segments_stats(&d->segments);

	return (struct loop_side){ .awake = &segments_table(&d->segments)->awake,
				   .done_wanted = &d->lanes.done_wanted,
				   .turns = &stats->turns,
				   .sleeps = &stats->sleeps };
}

bool domain_reap(struct domain *d, uint64_t now_ns)
{
	return lanes_reap(&d->lanes, d->engine, REAPS_A_TURN, now_ns) > 0;
}

void domain_begins(struct domain *d, uint64_t now_ns)
{
	atomic_store_explicit(&segments_stats(&d->segments)->uptime_ns, now_ns,
			      memory_order_relaxed);
}

uint64_t domain_turn(struct domain *d, uint64_t now_ns)
{
	uint64_t due_ns = engine_turn(d->engine, now_ns);

	lanes_kick(&d->lanes);
	return due_ns;
}

const char *domain_damage(struct domain *d)
{
	const struct tier *t = devices_damaged(&d->devices);

	if (!t)
		return NULL;
	if (d->damage[0] == '\0')
		snprintf(d->damage, sizeof(d->damage),
			 "domain %s is damaged: a client took memory of %.40s away", d->share.name,
			 t->base.name);
	return d->damage;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Domain `i` of the configuration: its share and its users. NULL: `err` says why. */
static struct domain *domain_create(const struct settings *whole, unsigned i, struct err *err)
{
	struct domain *d = heap_zeros(1, sizeof(*d));
	int rc;

	if (!d) {
		err_set(err, ENOMEM, "domains: no memory");
		return NULL;
	}
	d->segments.table = d->segments.stats = d->segments.records = (struct segment)SEGMENT_NONE;
	d->devices.staging.fd = -1;
	d->done.fd = d->lanes.done_fd = -1;
	d->done.ready = done_came;
	list_init(&d->lanes.refused);
	d->is_default = share_is_default(whole, i);
	rc = share_make(whole, i, &d->share, err);
	if (rc == 0 && !d->is_default) {
		const struct settings_domain *item = whole->domains.items;

		rc = users_find(d, &item[i].users, err);
		if (rc < 0)
			err_prefix(err, "domains[%u].users", i);
	}
	if (rc == 0)
		return d;
	domain_destroy(d);
	return NULL;
}

/* A user in two domains would get whichever comes first: a name and its number, for instance. */
static int users_differ(struct domain *const *before, unsigned n, const struct domain *new,
			struct err *err)
{
	for (unsigned i = 0; i < n; i++)
		for (size_t u = 0; u < new->user_count; u++)
			if (domain_has_user(before[i], new->users[u]))
				return err_set(err, EINVAL,
					       "domains: uid %u is in '%s' and in '%s'",
					       (unsigned)new->users[u], before[i]->share.name,
					       new->share.name);
	return 0;
}

int domains_create(const struct settings *whole, struct domain **ret, unsigned *ret_count,
		   struct err *err)
{
	int rc = 0;

	*ret_count = 0;
	for (unsigned i = 0; rc == 0 && i < share_count(whole); i++) {
		struct domain *new = domain_create(whole, i, err);

		if (!new)
			return err->code;
		rc = users_differ(ret, i, new, err);
		ret[(*ret_count)++] = new;
	}
	return rc;
}

int domain_make_segments(struct domain *d, struct err *err)
{
	uint32_t tensors = (uint32_t)d->share.settings.tensors;

	return segments_create(tensors, engine_records_bytes(tensors), &d->segments, err);
}

int domain_open_devices(struct domain *d, struct topology *topo, struct err *err)
{
	bool several = d->share.settings.domains.count > 0;
	int rc;

	if (several)
		log_info(TIER, "domain %s:", d->share.name);
	rc = devices_open(&d->share.settings, topo, &d->devices, err);
	return rc < 0 && several ? err_prefix(err, "domain %s", d->share.name) : rc;
}

int domain_start(struct domain *d, struct loop *loop, struct err *err)
{
	int rc = lanes_start(d->devices.tier, d->devices.count, &d->lanes, err);

	if (rc == 0)
		rc = engine_open(d, err);
	if (rc == 0)
		rc = loop_add(loop, &d->done, d->lanes.done_fd, EPOLLIN | EPOLLET, err);
	if (rc < 0)
		return rc;
	d->loop = loop;
	rc = devices_arenas(&d->devices, d->served.arena, err);
	if (rc < 0)
		return rc;
	d->served.arenas = (unsigned)rc;
	d->served.engine = d->engine;
	d->served.segments = &d->segments;
	devices_tell(&d->devices, segments_stats(&d->segments));
	snprintf(segments_stats(&d->segments)->domain, sizeof(segments_stats(&d->segments)->domain),
		 "%s", d->share.name);
	return 0;
}

void domain_drain(struct domain *d)
{
	if (d->engine)
		lanes_drain(&d->lanes, d->engine);
}

void domain_end_engine(struct domain *d)
{
	if (d->engine)
		engine_destroy(d->engine);
	d->engine = NULL;
	heap_free(d->quotas);
	d->quotas = NULL;
}

void domain_destroy(struct domain *d)
{
	if (!d)
		return;
	ASSERT(!d->engine);
	if (d->loop)
		loop_remove(d->loop, &d->done);
	lanes_stop(&d->lanes);
	devices_close(&d->devices);
	segments_destroy(&d->segments);
	share_free(&d->share);
	heap_free(d->users);
	heap_free(d);
}

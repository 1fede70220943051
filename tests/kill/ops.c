/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kill/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"

const uint64_t kill_shared_bytes[KILL_SHARED] = { 8, 512, 4096 + 8, 65536, 65536 + 4096, 300000 };

uint64_t kill_word(unsigned i, uint32_t version)
{
	return (uint64_t)version << 32 | 0x5a000000u | i;
}

void kill_shared_name(unsigned i, char *ret, size_t room)
{
	snprintf(ret, room, "shared%u", i);
}

void kill_made_name(unsigned i, char *ret, size_t room)
{
	snprintf(ret, room, "made%u", i);
}

void kill_fill(void *data, uint64_t bytes, uint64_t word)
{
	volatile uint64_t *to = data; /* word by word, so that each is a point to be killed at */

	for (uint64_t i = 0; i < bytes / 8; i++)
		to[i] = word;
}

int kill_said(struct victim *v, const char *what, int rc)
{
	if (rc < 0)
		fprintf(stderr, "victim: %s: %d: %s\n", what, rc, tierd_error(v->t));
	return rc;
}

static int open_only(struct victim *v)
{
	return tierd_open(v->socket, KILL_NAME_SPACE, 0, &v->t);
}

int kill_connect(struct victim *v)
{
	int rc = kill_said(v, "open", open_only(v));

	for (unsigned i = 0; i < KILL_SHARED && rc == 0; i++) {
		char name[32];

		kill_shared_name(i, name, sizeof(name));
		rc = kill_said(v, name, tierd_lookup(v->t, name, &v->shared[i]));
	}
	return rc;
}

static tierd_tensor target(const struct victim *v)
{
	return v->shared[v->target];
}

static int use(struct victim *v, int place, uint32_t access)
{
	struct tierd_view view;
	int rc = tierd_acquire(v->t, target(v), place, access, KILL_WAIT, &view);

	if (rc < 0)
		return rc;
	if (access & TIERD_WRITE)
		kill_fill(view.data, view.bytes, kill_word(v->target, v->version));
	tierd_release(v->t, &view);
	return 0;
}

/* ---- where the target stands before ---- */

static int at(struct victim *v, int place)
{
	int rc = kill_connect(v);

	return rc < 0 ? rc : use(v, place, TIERD_READ);
}

static int on_host(struct victim *v)
{
	return at(v, TIERD_HOST);
}

static int on_gpu(struct victim *v)
{
	return at(v, 0);
}

/* Something was there since that is as large as dram, but for what never leaves it. */
static int on_nvme(struct victim *v)
{
	struct tierd_spec spec = { .ndim = 1 };
	struct tierd_stats stats;
	struct tierd_view view;
	tierd_tensor all;
	int rc = on_host(v);

	if (rc == 0)
		rc = tierd_stats(v->t, &stats);
	if (rc < 0)
		return rc;
	spec.shape[0] = stats.tier[TIERD_DRAM].limit_bytes - 16384;
	rc = tierd_create(v->t, &spec, 1, &all);
	if (rc == 0)
		rc = tierd_acquire(v->t, all, TIERD_HOST, TIERD_READ, KILL_WAIT, &view);
	if (rc < 0)
		return rc;
	tierd_release(v->t, &view);
	return tierd_destroy(v->t, &all, 1);
}

/* ---- operations ---- */

static int read_host(struct victim *v)
{
	return use(v, TIERD_HOST, TIERD_READ);
}

static int write_host(struct victim *v)
{
	return use(v, TIERD_HOST, TIERD_READ | TIERD_WRITE);
}

static int discard_host(struct victim *v)
{
	return use(v, TIERD_HOST, TIERD_WRITE | TIERD_DISCARD);
}

static int read_gpu(struct victim *v)
{
	return use(v, 0, TIERD_READ);
}

static int discard_gpu(struct victim *v)
{
	return use(v, 0, TIERD_WRITE | TIERD_DISCARD);
}

static int all_at_once(struct victim *v)
{
	int rc = tierd_acquire_batch(v->t, v->shared, KILL_SHARED, TIERD_HOST, TIERD_READ,
				     KILL_WAIT, v->views);

	for (unsigned i = 0; rc == 0 && i < KILL_SHARED; i++)
		tierd_release(v->t, &v->views[i]);
	return rc;
}

static int make(struct victim *v, bool named)
{
	struct tierd_spec specs[KILL_MADE];
	char names[KILL_MADE][32];

	for (unsigned i = 0; i < KILL_MADE; i++) {
		kill_made_name(i, names[i], sizeof(names[i]));
		specs[i] = (struct tierd_spec){ .name = named ? names[i] : NULL,
						.class_ = TIERD_OTHER,
						.ndim = 1,
						.shape = { 1000 + 40000 * i } };
	}
	return tierd_create(v->t, specs, KILL_MADE, v->made);
}

static int make_unnamed(struct victim *v)
{
	return make(v, false);
}

static int make_named(struct victim *v)
{
	return make(v, true);
}

static int made(struct victim *v)
{
	int rc = kill_connect(v);

	return rc < 0 ? rc : make(v, true);
}

static int destroy(struct victim *v)
{
	return tierd_destroy(v->t, v->made, KILL_MADE);
}

static int look_up(struct victim *v)
{
	tierd_tensor h;

	return tierd_lookup(v->t, "shared3", &h);
}

static int hint(struct victim *v)
{
	int rc = tierd_prefetch(v->t, v->shared, KILL_SHARED, 0);

	return rc < 0 ? rc : tierd_evict(v->t, v->shared, KILL_SHARED);
}

static int copy_out(struct victim *v)
{
	uint64_t bytes = kill_shared_bytes[v->target];

	v->window = malloc(bytes);
	return v->window == NULL ? -ENOMEM : tierd_copy_out(v->t, target(v), 0, v->window, bytes);
}

static int with_window(struct victim *v)
{
	uint64_t bytes = kill_shared_bytes[v->target];

	v->window = malloc(bytes);
	if (v->window == NULL)
		return -ENOMEM;
	kill_fill(v->window, bytes, kill_word(v->target, v->version));
	return kill_connect(v);
}

static int copy_in(struct victim *v)
{
	return tierd_copy_in(v->t, target(v), 0, v->window, kill_shared_bytes[v->target]);
}

/* Those that may go to nvme. */
static int flush(struct victim *v)
{
	unsigned first = 0;

	while (kill_shared_bytes[first] < 4096)
		first++;
	return tierd_flush(v->t, v->shared + first, KILL_SHARED - first);
}

static int step(struct victim *v)
{
	return tierd_step(v->t);
}

static int trim(struct victim *v)
{
	return tierd_trim(v->t);
}

static int stat_target(struct victim *v)
{
	struct tierd_info info;

	return tierd_stat(v->t, target(v), &info);
}

static int nothing(struct victim *v)
{
	return 0;
}

static int close_it(struct victim *v)
{
	tierd_close(v->t);
	v->t = NULL;
	return 0;
}

const struct op kill_ops[] = {
	{ "open", .prepare = nothing, .run = open_only },
	{ "close", .prepare = on_host, .run = close_it },
	{ "hit", .prepare = on_host, .run = read_host },
	{ "hit, writing", .writes = true, .prepare = on_host, .run = write_host },
	{ "hit, discarding", .writes = true, .discards = true, .prepare = on_host,
	  .run = discard_host },
	{ "miss up", .prepare = on_host, .run = read_gpu },
	{ "miss down", .prepare = on_gpu, .run = read_host },
	{ "miss down, writing", .writes = true, .prepare = on_gpu, .run = write_host },
	{ "miss up, discarding", .writes = true, .discards = true, .prepare = on_host,
	  .run = discard_gpu },
	{ "miss from nvme", .prepare = on_nvme, .run = read_host },
	{ "miss from nvme, discarding", .writes = true, .discards = true, .prepare = on_nvme,
	  .run = discard_host },
	{ "batch", .prepare = on_gpu, .run = all_at_once },
	{ "create", .run = make_unnamed },
	{ "create by name", .run = make_named },
	{ "destroy", .prepare = made, .run = destroy },
	{ "lookup", .run = look_up },
	{ "hints", .run = hint },
	{ "copy_out", .run = copy_out },
	{ "copy_in", .writes = true, .prepare = with_window, .run = copy_in },
	{ "flush", .run = flush },
	{ "step", .run = step },
	{ "trim", .run = trim },
	{ "stat", .run = stat_target },
};
const unsigned kill_op_count = ARRAY_SIZE(kill_ops);

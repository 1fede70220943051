/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations in stream order, with kernels of the fake driver.
 */
#include "tests/kill/ops.h"

#include <errno.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "tests/system/gpu_client.h"

static int connected(struct victim *v)
{
	struct gpu_client *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	gpu_client_start(c, 0, v->version);
	v->gpu = c;
	return kill_connect(v);
}

/* Kernels write words by a seed of their own, so these only read: bytes stay. */
static int on_stream(struct victim *v)
{
	struct gpu_client *c = v->gpu;
	int rc = tierd_acquire_on(v->t, v->shared, KILL_SHARED, 0, TIERD_READ, c->stream[0],
				  v->views);

	return rc < 0 ? rc : tierd_release_on(v->t, v->views, KILL_SHARED, c->stream[0]);
}

static int kept_on_stream(struct victim *v)
{
	struct gpu_client *c = v->gpu;

	return tierd_acquire_on(v->t, &v->shared[v->target], 1, 0, TIERD_READ, c->stream[0],
				v->views);
}

static int pinned(struct victim *v)
{
	int rc = connected(v);

	return rc < 0 ? rc : kept_on_stream(v);
}

static int released_on_stream(struct victim *v)
{
	struct gpu_client *c = v->gpu;

	return tierd_release_on(v->t, v->views, 1, c->stream[0]);
}

const struct op kill_stream_ops[] = {
	{ "acquire_on and release_on", .prepare = connected, .run = on_stream },
	{ "acquire_on, kept", .prepare = connected, .run = kept_on_stream },
	{ "release_on", .prepare = pinned, .run = released_on_stream },
};
const unsigned kill_stream_op_count = ARRAY_SIZE(kill_stream_ops);

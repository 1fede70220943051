/* SPDX-License-Identifier: Apache-2.0
 *
 * The lane of a GPU: its thread has the device's context, four streams, and memory of its own that
 * copies of zeros and copies inside the device go through. It sleeps while the device copies and is
 * awake when copies come back. The lane's thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "tiers/gpu_inside.h"
#include "tiers/topo.h"

#define SLACK_NS     (40 * NS_PER_US) /* a sleep ends this much before copies are expected */
#define POLL_NS      (50 * NS_PER_US) /* after they were expected; then sleeps grow */
#define SLEEP_MAX_NS NS_PER_MS
#define LOOKS        32 /* at the words, before the eventfds are looked at */

/* ---- what the lane works with --------------------------------------------------------------- */

static int streams_open(struct gpu *g, struct err *err)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < GPU_STREAMS; i++) {
		r = gpu_stream_open(g, i, err);
		for (unsigned k = i; r < 0 && k-- > 0;)
			gpu_stream_close(g, k);
	}
	return r;
}

/* ---- the helper ----------------------------------------------------------------------------- */

static int helper_begin(void *ctx, struct err *err)
{
	struct gpu *g = ctx;

	return gpu_check(g, g->cuda->ctx_set_current(g->context), err, "cuCtxSetCurrent");
}

static void helper_work(void *ctx, struct xfer *x)
{
	if (x->op == XFER_PIN)
		gpu_pin_run(ctx, x->host, x->bytes);
	else
		gpu_slab_run(ctx, x);
}

static const struct backer_ops helper_ops = { helper_begin, helper_work };

/* ---- start and stop ------------------------------------------------------------------------- */

static int memory_start(struct gpu *g, struct err *err)
{
	int r = gpu_pin_start(g);

	if (r < 0)
		err_set(err, ENOMEM, "%s: no memory for its registrations", g->base.name);
	if (r == 0)
		r = backer_start(&g->helper, g->base.name, &helper_ops, g, err);
	if (r < 0)
		gpu_pin_stop(g);
	return r;
}

static int start_in_context(struct gpu *g, struct err *err)
{
	int r = streams_open(g, err);

	if (r < 0)
		return r;
	r = memory_start(g, err);
	if (r < 0)
		for (unsigned i = 0; i < GPU_STREAMS; i++)
			gpu_stream_close(g, i);
	return r;
}

int gpu_lane_start(struct tier *t, int wake_fd, struct err *err)
{
	struct gpu *g = gpu_of(t);
	int r;

	g->wake_fd = wake_fd;
	/* Before memory is taken: it comes from the node on which the thread runs. */
	if (g->node >= 0)
		topo_run_on(g->topo, (unsigned)g->node);
	/* Sleeps here are tens of microseconds long; the kernel's slack would double them. */
	if (prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) < 0)
		log_debug(LANE, "%s: timer slack: %m", g->base.name);
	r = gpu_check(g, g->cuda->ctx_set_current(g->context), err, "cuCtxSetCurrent");
	if (r < 0)
		return r;
	r = start_in_context(g, err);
	if (r < 0)
		gpu_say(g, g->cuda->ctx_set_current(NULL), "cuCtxSetCurrent");
	return r;
}

void gpu_lane_stop(struct tier *t)
{
	struct gpu *g = gpu_of(t);

	backer_stop(&g->helper);
	for (unsigned i = 0; i < GPU_STREAMS; i++)
		gpu_stream_close(g, i);
	gpu_pin_stop(g);
	gpu_say(g, g->cuda->ctx_set_current(NULL), "cuCtxSetCurrent");
}

/* ---- xfers ---------------------------------------------------------------------------------- */

int gpu_lane_queue(struct tier *t, struct xfer *x)
{
	struct gpu *g = gpu_of(t);

	if (x->op < XFER_BACK && !gpu_stream_take(gpu_stream_for(g, x), x))
		return -EBUSY;
	if (x->op == XFER_PIN && gpu_pin_prepare(g, x->bytes) < 0) {
		log_warn(TIER, "%s: %llu MiB of host memory stay unregistered: no memory",
			 g->base.name, (unsigned long long)(x->bytes >> 20));
		list_push_back(&g->unpinned, &x->link);
	} else if (x->op >= XFER_BACK) {
		backer_queue(&g->helper, x);
	}
	return 0;
}

void gpu_lane_commit(struct tier *t)
{
	gpu_stream_pump(gpu_of(t));
}

static unsigned take_helped(struct gpu *g, struct xfer **done, unsigned max)
{
	unsigned n = backer_reap(&g->helper, done, max);

	for (unsigned i = 0; i < n; i++)
		if (done[i]->op == XFER_PIN)
			gpu_pin_done(g, done[i]->host, done[i]->bytes);
	for (; n < max && !list_empty(&g->unpinned); n++)
		done[n] = list_entry(list_pop_front(&g->unpinned), struct xfer, link);
	return n;
}

unsigned gpu_lane_reap(struct tier *t, struct xfer **done, unsigned max)
{
	struct gpu *g = gpu_of(t);
	unsigned n;

	for (unsigned i = 0; i < GPU_STREAMS; i++)
		gpu_stream_look(g, &g->streams[i]);
	gpu_stream_pump(g);
	n = take_helped(g, done, max);
	for (unsigned i = 0; i < GPU_STREAMS; i++)
		n += gpu_stream_reap(&g->streams[i], done + n, max - n);
	if (n > 0)
		g->active_ns = clock_now_ns();
	return n;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static bool anything_ready(struct gpu *g)
{
	if (backer_ready(&g->helper) || !list_empty(&g->unpinned))
		return true;
	for (unsigned i = 0; i < GPU_STREAMS; i++)
		if (gpu_stream_ready(&g->streams[i]))
			return true;
	return false;
}

/* When the first copy is expected back; 0: none is on its way. */
static uint64_t due_ns(const struct gpu *g)
{
	uint64_t due = 0;

	for (unsigned i = 0; i < GPU_STREAMS; i++) {
		uint64_t d = gpu_stream_due_ns(&g->streams[i]);

		if (d != 0 && (due == 0 || d < due))
			due = d;
	}
	return due;
}

/* While copies are on their way a few looks at the words are cheaper than one at the eventfds. */
static bool ready_soon(struct gpu *g)
{
	unsigned looks = due_ns(g) == 0 ? 1 : LOOKS;

	for (unsigned i = 0; i < looks; i++) {
		if (anything_ready(g))
			return true;
		CPU_RELAX();
	}
	return false;
}

/* How long to sleep now: 0 is to look again at once, negative for ever. What is late is looked for
 * less and less often. */
static int64_t pause_ns(const struct gpu *g, uint64_t now)
{
	uint64_t due = due_ns(g);

	if (due == 0)
		return now - g->active_ns < g->config->spin_ns ? 0 : -1;
	if (due > now + 2 * SLACK_NS)
		return (int64_t)(due - now - SLACK_NS);
	if (now < due + POLL_NS)
		return 0;
	return (int64_t)MIN((now - due) / 4, SLEEP_MAX_NS);
}

/* Whether one of the eventfds is readable within the pause. */
static bool woken(struct gpu *g, int64_t pause)
{
	struct pollfd fds[2] = { { .fd = g->wake_fd, .events = POLLIN },
				 { .fd = g->helper.fd, .events = POLLIN } };
	struct timespec t = { (time_t)(pause / (int64_t)NS_PER_S),
			      (long)(pause % (int64_t)NS_PER_S) };
	int n = ppoll(fds, 2, pause < 0 ? NULL : &t, NULL);

	ASSERT(n >= 0 || errno == EINTR);
	return n > 0;
}

void gpu_lane_wait(struct tier *t, int64_t timeout_ns)
{
	struct gpu *g = gpu_of(t);
	uint64_t begin = clock_now_ns(), now = begin;

	while (!ready_soon(g)) {
		int64_t pause = pause_ns(g, now), left;

		g->looked_ns = now;
		if (timeout_ns >= 0) {
			left = timeout_ns - (int64_t)(now - begin);
			if (left <= 0)
				return;
			pause = pause < 0 ? left : MIN(pause, left);
		}
		/* After a sleep the streams are looked at by reap(), which asks the driver about
		 * what is long overdue. */
		if (woken(g, pause) || pause != 0)
			return;
		now = clock_now_ns();
	}
}

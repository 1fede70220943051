/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of a GPU's lane. Each has a queue of xfers and gives the driver a bounded part of it, so
 * that the link never rests and a demand stands behind a few MiB at most: the driver's own
 * priorities mean nothing to copies. Copies come back in groups: after the last one of a group the
 * stream writes its number to a word of pinned memory, which the lane reads; the driver is not
 * called to find out. The lane's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "tiers/gpu_inside.h"

#define GROUP_COPIES 16               /* then a mark follows, so that results are not held up */
#define RATE_FIRST   20000000000ull   /* until one was seen */
#define RATE_BYTES   KIB(256)         /* smaller groups tell of latency */
#define ASK_NS       (10 * NS_PER_MS) /* without progress, before the driver is asked why */
#define ASK_FAILURES 16               /* in a row: the device does not come back */

enum { WAY_UP = 1, WAY_DOWN = 2 };

/* A stream at rest begins with a shorter copy, a group by itself: the next one is queued behind it
 * soon, and whoever lends more while it goes on hears of it soon. */
#define FIRST_BYTES MIB(4)

/* A copy as long as `piece` reaches 99 % of what the link does (32 MiB), or 98 % (8 MiB), and two
 * of them keep it busy while the lane looks elsewhere. Two of 32 MiB are 1.2 ms that a small demand
 * may stand behind. */
static const struct use {
	bool urgent;
	uint64_t piece, limit, group;
} uses[GPU_STREAMS] = {
	[GPU_UP] = { true, MIB(32), MIB(64), MIB(8) },
	[GPU_DOWN] = { true, MIB(32), MIB(64), MIB(8) },
	[GPU_WRITE_BACK] = { false, MIB(8), MIB(16), MIB(8) },
	[GPU_PREFETCH] = { false, MIB(8), MIB(16), MIB(8) },
};

static unsigned ways(const struct xfer *x)
{
	return x->op == XFER_READ ? WAY_DOWN : x->op == XFER_COPY ? WAY_UP | WAY_DOWN : WAY_UP;
}

/* ---- open and close ------------------------------------------------------------------------- */

int gpu_stream_open(struct gpu *g, enum gpu_stream_use use, struct err *err)
{
	const struct cuda *cuda = g->cuda;
	struct gpu_stream *s = &g->streams[use];
	int least, greatest, r;

	*s = (struct gpu_stream){ .rate = RATE_FIRST };
	r = gpu_check(g, cuda->ctx_get_stream_priority_range(&least, &greatest), err,
		      "cuCtxGetStreamPriorityRange");
	if (r < 0)
		return r;
	s->word = (_Atomic uint64_t *)(g->block + (size_t)use * CACHE_LINE);
	atomic_store(s->word, 0);
	s->bounce = g->ones + (1 + (size_t)use) * GPU_BLOCK;
	r = gpu_check(g, cuda->mem_host_get_device_pointer(&s->word_at, (void *)s->word, 0), err,
		      "cuMemHostGetDevicePointer");
	if (r < 0)
		return r;
	return gpu_check(g,
			 cuda->stream_create(&s->stream, CU_STREAM_NON_BLOCKING,
					     uses[use].urgent ? greatest : least),
			 err, "cuStreamCreateWithPriority");
}

/* Of a lost device copies may be queued; what they point into goes away after this. */
void gpu_stream_close(struct gpu *g, enum gpu_stream_use use)
{
	struct gpu_stream *s = &g->streams[use];

	ASSERT(s->reaped == s->taken && s->in_flight == 0);
	gpu_say(g, g->cuda->stream_synchronize(s->stream), "cuStreamSynchronize");
	gpu_say(g, g->cuda->stream_destroy(s->stream), "cuStreamDestroy");
	s->stream = NULL;
}

/* ---- the queue ------------------------------------------------------------------------------ */

static struct gpu_slot *slot_at(struct gpu_stream *s, uint32_t number)
{
	return &s->slots[number % GPU_SLOTS];
}

struct gpu_stream *gpu_stream_for(struct gpu *g, const struct xfer *x)
{
	if (x->priority == XFER_DEMAND)
		return &g->streams[x->op == XFER_READ ? GPU_DOWN : GPU_UP];
	return &g->streams[x->priority == XFER_WRITE_BACK ? GPU_WRITE_BACK : GPU_PREFETCH];
}

bool gpu_stream_take(struct gpu_stream *s, struct xfer *x)
{
	if (s->taken - s->reaped == GPU_SLOTS)
		return false;
	*slot_at(s, s->taken++) = (struct gpu_slot){ .x = x };
	return true;
}

unsigned gpu_stream_reap(struct gpu_stream *s, struct xfer **done, unsigned max)
{
	unsigned n = 0;

	for (; n < max && s->reaped != s->ended; n++)
		done[n] = slot_at(s, s->reaped++)->x;
	return n;
}

/* ---- groups --------------------------------------------------------------------------------- */

static bool in_flight(const struct gpu_stream *s)
{
	return s->group_first != s->group_end;
}

static struct gpu_group *group_at(struct gpu_stream *s, uint32_t number)
{
	return &s->groups[number % GPU_COPIES_MAX];
}

/* What was given so far comes back together: after the copies that no mark follows yet, or, where
 * there are none, with what is in flight. */
static void group_close(struct gpu *g, struct gpu_stream *s)
{
	struct gpu_group *group;
	struct err err = ERR_INIT;

	if (s->open.copies == 0 && !in_flight(s)) {
		s->ended = s->given;
		return;
	}
	if (s->open.copies == 0) {
		group_at(s, s->group_end - 1)->end = s->given;
		return;
	}
	if (!in_flight(s))
		s->progress_ns = clock_now_ns();
	group = group_at(s, s->group_end++);
	*group = s->open;
	group->mark = ++s->mark;
	group->end = s->given;
	group->begin_ns = clock_now_ns();
	group->marked = gpu_check(g,
				  g->cuda->stream_write_value64(s->stream, s->word_at, group->mark,
								CU_STREAM_WRITE_VALUE_DEFAULT),
				  &err, "cuStreamWriteValue64") == 0;
	if (!group->marked)
		log_debug(TIER, "%s", err.text);
	s->open = (struct gpu_group){ 0 };
}

/* It ended between the last look and now: half-way, for want of better. A lane that slept too long
 * because it expected too little would else find what it had expected. */
static void learn_rate(const struct gpu *g, struct gpu_stream *s, const struct gpu_group *group,
		       uint64_t now)
{
	uint64_t begin = MAX(group->begin_ns, s->progress_ns), rate;
	uint64_t looked = MAX(begin, MAX(g->looked_ns, s->looked_ns));
	uint64_t end = now - (now - MIN(looked, now)) / 2;

	if (group->bytes < RATE_BYTES || end <= begin)
		return;
	rate = (uint64_t)((double)group->bytes * 1e9 / (double)(end - begin));
	s->rate = MAX((7 * s->rate + rate) / 8, (uint64_t)MIB(64));
}

static void group_end(const struct gpu *g, struct gpu_stream *s, uint64_t now)
{
	struct gpu_group *group = group_at(s, s->group_first++);

	learn_rate(g, s, group, now);
	s->in_flight -= group->bytes;
	s->copies -= group->copies;
	s->ways = s->copies > 0 ? s->ways : 0;
	s->ended = group->end;
	s->progress_ns = now;
}

uint64_t gpu_stream_due_ns(const struct gpu_stream *s)
{
	const struct gpu_group *group = &s->groups[s->group_first % GPU_COPIES_MAX];
	uint64_t begin = MAX(group->begin_ns, s->progress_ns);

	if (!in_flight(s))
		return 0;
	return begin + (uint64_t)((double)group->bytes * 1e9 / (double)s->rate);
}

/* ---- what has come back --------------------------------------------------------------------- */

static bool first_is_marked(const struct gpu_stream *s)
{
	const struct gpu_group *group = &s->groups[s->group_first % GPU_COPIES_MAX];

	/* The copies before the mark are seen with it: the stream's write comes after a fence. */
	return group->marked && atomic_load_explicit(s->word, memory_order_acquire) >= group->mark;
}

bool gpu_stream_ready(const struct gpu_stream *s)
{
	return s->ended != s->reaped || (in_flight(s) && first_is_marked(s));
}

static bool must_ask(struct gpu_stream *s, uint64_t now)
{
	const struct gpu_group *group = group_at(s, s->group_first);

	return !group->marked || (now - s->progress_ns > ASK_NS && now - s->asked_ns > ASK_NS);
}

/* The driver knows of a device that will never write its mark. */
static void ask(struct gpu *g, struct gpu_stream *s, uint64_t now)
{
	CUresult result = g->cuda->stream_query(s->stream);

	s->asked_ns = now;
	if (result == CUDA_SUCCESS) {
		while (in_flight(s))
			group_end(g, s, now);
	}
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) {
		s->ask_failures = 0;
		return;
	}
	gpu_say(g, result, "cuStreamQuery");
	if (++s->ask_failures == ASK_FAILURES)
		gpu_lose(g, result);
}

/* Nothing of it will come back any more. */
static void give_up(struct gpu *g, struct gpu_stream *s)
{
	for (uint32_t i = s->ended; i != s->taken; i++)
		gpu_fail(g, slot_at(s, i)->x, (CUresult)atomic_load(&g->lost));
	s->given = s->ended = s->taken;
	s->group_first = s->group_end;
	s->open = (struct gpu_group){ 0 };
	s->in_flight = s->copies = s->ways = 0;
}

void gpu_stream_look(struct gpu *g, struct gpu_stream *s)
{
	uint64_t now;

	if (in_flight(s) && !gpu_is_lost(g)) {
		now = clock_now_ns();
		while (in_flight(s) && first_is_marked(s))
			group_end(g, s, now);
		s->looked_ns = now;
		if (in_flight(s) && must_ask(s, now))
			ask(g, s, now);
	}
	if (gpu_is_lost(g))
		give_up(g, s);
}

/* ---- copies --------------------------------------------------------------------------------- */

/* How far the first xfer goes on, with those behind it that continue it on both sides: the engine
 * lends pieces, and one long copy is faster than several. */
static uint64_t run_bytes(const struct gpu *g, struct gpu_stream *s, uint64_t most)
{
	const struct gpu_slot *slot = slot_at(s, s->given);
	const struct xfer *x = slot->x;
	char *host = (char *)x->host + slot->given;
	uint64_t n = x->bytes - slot->given;

	for (uint32_t i = s->given + 1; i != s->taken && n < most; i++) {
		const struct xfer *next = slot_at(s, i)->x;

		if (next->op != x->op || next->host != host + n ||
		    next->offset != x->offset + slot->given + n)
			break;
		n += next->bytes;
	}
	return gpu_pin_span(g, host, MIN(n, most));
}

static bool at_rest(const struct gpu_stream *s)
{
	return !in_flight(s) && s->open.copies == 0;
}

/* What the next copy takes. */
static uint64_t next_bytes(const struct gpu *g, struct gpu_stream *s)
{
	const struct gpu_slot *slot = slot_at(s, s->given);
	const struct xfer *x = slot->x;
	uint64_t piece = uses[s - g->streams].piece;

	if (x->op == XFER_READ || x->op == XFER_WRITE)
		return run_bytes(g, s, at_rest(s) ? FIRST_BYTES : piece);
	if (x->op == XFER_SYNC)
		return 0;
	return MIN(x->bytes - slot->given, GPU_BLOCK);
}

/* Through the bounce buffer: copies inside the device would be made by a kernel. The stream keeps
 * their order, so one buffer is enough. Of ranges that overlap, the end that is not overwritten
 * goes first. */
static CUresult bounce(struct gpu *g, struct gpu_stream *s, const struct gpu_slot *slot, uint64_t n)
{
	const struct xfer *x = slot->x;
	uint64_t at = x->from < x->offset ? x->bytes - slot->given - n : slot->given;
	CUresult result =
		g->cuda->memcpy_dtoh_async(s->bounce, g->range + x->from + at, n, s->stream);

	s->open.copies += result == CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		result = g->cuda->memcpy_htod_async(g->range + x->offset + at, s->bounce, n,
						    s->stream);
	return result;
}

static CUresult copy(struct gpu *g, struct gpu_stream *s, uint64_t n)
{
	const struct gpu_slot *slot = slot_at(s, s->given);
	const struct xfer *x = slot->x;
	CUdeviceptr at = g->range + x->offset + slot->given;
	char *host = (char *)x->host + slot->given;
	CUresult result;

	if (x->op == XFER_READ)
		result = g->cuda->memcpy_dtoh_async(host, at, n, s->stream);
	else if (x->op == XFER_WRITE)
		result = g->cuda->memcpy_htod_async(at, host, n, s->stream);
	else if (x->op == XFER_ZERO)
		result = g->cuda->memcpy_htod_async(at, x->value == 0 ? g->zeros : g->ones, n,
						    s->stream);
	else
		result = bounce(g, s, slot, n);
	s->open.copies += result == CUDA_SUCCESS;
	return result;
}

/* Counts `n` bytes as given; with a failure, the xfers that they are of are given whole: the rest
 * of a failed one is not copied. */
static void advance(struct gpu *g, struct gpu_stream *s, uint64_t n, CUresult result)
{
	do {
		struct gpu_slot *slot = slot_at(s, s->given);
		struct xfer *x = slot->x;
		uint64_t part = MIN(n, x->bytes - slot->given);

		if (result != CUDA_SUCCESS)
			gpu_fail(g, x, result);
		n -= part;
		slot->given = result != CUDA_SUCCESS || x->op == XFER_SYNC ? x->bytes
									   : slot->given + part;
		if (slot->given < x->bytes)
			return;
		s->given++;
	} while (n > 0);
}

/* Gives the driver one copy of the first xfer, or ends it where there is nothing to copy. False:
 * the driver has enough. */
static bool give_one(struct gpu *g, struct gpu_stream *s)
{
	const struct use *use = &uses[s - g->streams];
	uint64_t n = next_bytes(g, s);
	unsigned copies = s->copies, before = s->open.copies;
	CUresult result = CUDA_SUCCESS;
	bool first = at_rest(s);

	if (n > 0 &&
	    ((s->in_flight > 0 && s->in_flight + n > use->limit) || copies + 2 > GPU_COPIES_MAX))
		return false;
	if (n > 0)
		result = copy(g, s, n);
	s->copies += s->open.copies - before;
	/* Of a copy in two halves the first may be on its way: it comes back with the group. */
	if (s->open.copies > before) {
		s->ways |= ways(slot_at(s, s->given)->x);
		s->open.bytes += n;
		s->in_flight += n;
	}
	if (result != CUDA_SUCCESS)
		gpu_check(g, result, NULL, "a copy");
	advance(g, s, n, result);
	if (first || s->open.bytes >= use->group || s->open.copies >= GROUP_COPIES)
		group_close(g, s);
	return true;
}

static void stream_pump(struct gpu *g, struct gpu_stream *s, unsigned busy)
{
	bool gave = false;

	while (!gpu_is_lost(g) && s->given != s->taken &&
	       (ways(slot_at(s, s->given)->x) & busy) == 0 && give_one(g, s))
		gave = true;
	if (gave && !gpu_is_lost(g))
		group_close(g, s);
}

void gpu_stream_pump(struct gpu *g)
{
	unsigned busy = 0;

	for (unsigned i = 0; i < GPU_STREAMS; i++) {
		struct gpu_stream *s = &g->streams[i];

		stream_pump(g, s, busy);
		/* What is under way or waits for its turn has the link, in its direction, before
		 * what is less urgent; the driver goes on with what it has of that. */
		busy |= s->ways;
		if (s->given != s->taken)
			busy |= ways(slot_at(s, s->given)->x);
	}
	for (unsigned i = 0; gpu_is_lost(g) && i < GPU_STREAMS; i++)
		give_up(g, &g->streams[i]);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What runs: which operations may go, doing one of them, and the thread that does in whole
 * processes.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "tests/fake/bytes.h"
#include "tests/fake/cuda/inside.h"

/* The CPU and other processes store into words without telling, so words are looked at this often.
 */
#define LOOK_NS (NS_PER_MS / 5)

static struct fake_op *head(const struct fake_stream *stream)
{
	return list_empty(&stream->ops) ? NULL : list_first(&stream->ops, struct fake_op, link);
}

/* The default stream goes after all that other streams were given before, and they after it. */
static bool legacy_order(const struct fake_stream *stream, uint64_t seq)
{
	struct list *it;

	if ((stream->flags & CU_STREAM_NON_BLOCKING) != 0)
		return true;
	list_for_each (it, &fake.streams) {
		const struct fake_stream *other = list_entry(it, struct fake_stream, link);

		if (other == stream || other->ctx != stream->ctx ||
		    (other->flags & CU_STREAM_NON_BLOCKING) != 0 ||
		    !(other->is_default || stream->is_default))
			continue;
		if (head(other) != NULL && head(other)->seq < seq)
			return false;
	}
	return true;
}

static bool word_holds(struct fake_ctx *ctx, const struct fake_op *op)
{
	const uint64_t *word = fake_word(ctx, op->word);
	uint64_t value;

	if (word == NULL) {
		(void)fake_lose_ctx(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
		return false;
	}
	value = __atomic_load_n(word, __ATOMIC_ACQUIRE); /* with the store of whoever frees us */
	switch (op->flags) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return (int64_t)(value - op->value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return value == op->value;
	default:
		return (value & op->value) != 0;
	}
}

static bool may_go(const struct fake_stream *stream)
{
	const struct fake_op *op = head(stream);

	if (op == NULL || stream->ctx->lost != CUDA_SUCCESS || !legacy_order(stream, op->seq))
		return false;
	if (op->kind == OP_WAIT_EVENT)
		return fake_event_done(op->event, op->version);
	return op->kind != OP_WAIT_VALUE || word_holds(stream->ctx, op);
}

static bool side_is_there(const struct fake_ctx *ctx, const void *at, const struct fake_op *op,
			  enum fake_place was, bool write)
{
	enum fake_place place;

	if (was == PLACE_DEVICE)
		return fake_device_range(at, op->bytes, write);
	return was == PLACE_PAGEABLE ||
	       (fake_host_place(ctx, at, op->bytes, &place) == CUDA_SUCCESS && place == was);
}

/* What was mapped or registered when it was queued must be so until it is done. */
static bool still_there(const struct fake_ctx *ctx, const struct fake_op *op)
{
	if (op->kind != OP_COPY && op->kind != OP_FILL)
		return true;
	return side_is_there(ctx, op->to, op, op->to_place, true) &&
	       (op->kind == OP_FILL || side_is_there(ctx, op->from, op, op->from_place, false));
}

static void poison(void)
{
	struct list *it;

	list_for_each (it, &fake.streams) {
		const struct fake_stream *stream = list_entry(it, struct fake_stream, link);
		struct fake_op *op = head(stream);

		if (op == NULL || op->poisoned || (op->kind != OP_COPY && op->kind != OP_FILL) ||
		    !may_go(stream) || !still_there(stream->ctx, op))
			continue;
		bytes_fill(op->to, FAKE_CUDA_POISON, op->bytes);
		op->poisoned = true;
	}
}

static void run_kernel(struct fake_op *op)
{
	void *params[FAKE_CUDA_PARAMS_MAX];

	for (int i = 0; i < FAKE_CUDA_PARAMS_MAX; i++)
		params[i] = op->params[i];
	op->kernel->run(params);
}

static void did_copy(struct fake_ctx *ctx)
{
	fake.counts.copies++;
	if (++ctx->copies == ctx->lose_at)
		(void)fake_lose_ctx(ctx, CUDA_ERROR_ECC_UNCORRECTABLE);
}

static void do_op(struct fake_ctx *ctx, struct fake_op *op)
{
	uint64_t *word;

	switch (op->kind) {
	case OP_COPY:
		bytes_copy(op->to, op->from, op->bytes);
		did_copy(ctx);
		break;
	case OP_FILL:
		bytes_fill(op->to, op->fill, op->bytes);
		break;
	case OP_RECORD:
		list_remove(&op->record);
		op->event->done_ns = clock_now_ns();
		break;
	case OP_WRITE_VALUE:
		word = fake_word(ctx, op->word);
		if (word == NULL)
			(void)fake_lose_ctx(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
		else /* with the load of whoever waits for it: all before it in the stream is done
		      */
			__atomic_store_n(word, op->value, __ATOMIC_RELEASE);
		break;
	case OP_KERNEL:
		run_kernel(op);
		break;
	case OP_WAIT_EVENT:
	case OP_WAIT_VALUE:
		break;
	}
}

static struct fake_stream *pick(uint64_t seed)
{
	struct fake_stream *picked = NULL;
	uint64_t n = 0;
	struct list *it;

	/* One of n, each as likely, in one walk: the nth replaces the one so far once in n times.
	 */
	list_for_each (it, &fake.streams) {
		struct fake_stream *stream = list_entry(it, struct fake_stream, link);

		if (!may_go(stream))
			continue;
		seed = (seed ^ seed >> 31) * 0x9e3779b97f4a7c15ull + 1;
		n++;
		if ((seed >> 33) % n == 0)
			picked = stream;
	}
	return picked;
}

bool fake_step(uint64_t seed)
{
	struct fake_stream *stream = pick(seed);
	struct fake_op *op;

	if (stream == NULL)
		return false;
	op = head(stream);
	if (still_there(stream->ctx, op)) {
		do_op(stream->ctx, op);
		fake_op_free(op);
		fake_stream_put(stream);
	} else
		(void)fake_lose_ctx(stream->ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
	poison();
	pthread_cond_broadcast(&fake.moved);
	return true;
}

static void look_again_later(void)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_nsec += (long)LOOK_NS;
	if (at.tv_nsec >= (long)NS_PER_S) {
		at.tv_nsec -= (long)NS_PER_S;
		at.tv_sec++;
	}
	pthread_cond_timedwait(&fake.moved, &fake.lock, &at);
}

static void *work(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&fake.lock);
	for (;;) {
		fake.seed = fake.seed * 6364136223846793005ull + 1442695040888963407ull;
		if (fake_step(fake.seed)) {
			pthread_mutex_unlock(&fake.lock);
			sched_yield(); /* others queue in between, or the order is always theirs */
			pthread_mutex_lock(&fake.lock);
		} else if (fake.counts.queued > 0)
			look_again_later();
		else
			pthread_cond_wait(&fake.moved, &fake.lock);
	}
	return NULL;
}

/* Signals are the program's: its threads may wait for them. */
static void start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	ASSERT(pthread_create(&thread, NULL, work, NULL) == 0);
	ASSERT(pthread_detach(thread) == 0);
	ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	fake.worker = true;
}

void fake_queued(void)
{
	poison();
	if (!fake.manual && !fake.worker)
		start_thread();
	pthread_cond_broadcast(&fake.moved);
}

CUresult fake_wait(struct fake_ctx *ctx, bool (*done)(const void *), const void *what)
{
	while (ctx->lost == CUDA_SUCCESS && !done(what))
		if (!fake.manual || !fake_step(fake.seed++))
			look_again_later();
	return ctx->lost;
}

struct until {
	const struct fake_ctx *ctx;
	const struct fake_stream *stream; /* NULL: all of the context */
	uint64_t seq;
};

static bool drained(const void *what)
{
	const struct until *until = what;
	struct list *it;

	list_for_each (it, &fake.streams) {
		const struct fake_stream *stream = list_entry(it, struct fake_stream, link);

		if (stream->ctx == until->ctx &&
		    (until->stream == NULL || until->stream == stream ||
		     (until->stream->is_default &&
		      (stream->flags & CU_STREAM_NON_BLOCKING) == 0)) &&
		    head(stream) != NULL && head(stream)->seq <= until->seq)
			return false;
	}
	return true;
}

CUresult fake_drain_stream(struct fake_stream *stream)
{
	struct until until = { stream->ctx, stream, fake.seq };

	return fake_wait(stream->ctx, drained, &until);
}

CUresult fake_drain_ctx(struct fake_ctx *ctx)
{
	struct until until = { ctx, NULL, fake.seq };

	return fake_wait(ctx, drained, &until);
}

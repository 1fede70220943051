/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events of the fake driver, and what is put into streams. Nothing moves here.
 */
#include <stdlib.h>

#include "base/check.h"
#include "tests/fake/cuda/inside.h"

struct fake_stream *fake_stream_of(CUstream stream)
{
	struct list *it;

	if (stream == NULL || stream == CU_STREAM_LEGACY)
		return fake_current() == NULL ? NULL : &fake_current()->stream;
	list_for_each (it, &fake.streams) {
		struct fake_stream *found = list_entry(it, struct fake_stream, link);

		if ((CUstream)found == stream)
			return found->destroyed ? NULL : found;
	}
	return NULL;
}

bool fake_spoil_captures(void)
{
	bool any = false;
	struct list *it;

	list_for_each (it, &fake.streams) {
		struct fake_stream *s = list_entry(it, struct fake_stream, link);

		s->spoilt = s->spoilt || s->capturing;
		any = any || s->capturing;
	}
	return any;
}

bool fake_captures_legacy(const struct fake_ctx *ctx)
{
	struct list *it;

	list_for_each (it, &fake.streams) {
		const struct fake_stream *s = list_entry(it, struct fake_stream, link);

		if (s->ctx == ctx && s->capturing && !(s->flags & CU_STREAM_NON_BLOCKING))
			return true;
	}
	return false;
}

static struct fake_event *event_of(CUevent event)
{
	struct list *it;

	list_for_each (it, &fake.events) {
		struct fake_event *found = list_entry(it, struct fake_event, link);

		if ((CUevent)found == event)
			return found->destroyed ? NULL : found;
	}
	return NULL;
}

static bool has_room(const void *what)
{
	return fake.queue_max == 0 || ((const struct fake_stream *)what)->queued < fake.queue_max;
}

static CUresult refused(struct fake_stream *stream)
{
	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->ctx->retained == 0)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (stream->ctx->lost != CUDA_SUCCESS)
		return stream->ctx->lost;
	if (stream->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->is_default && fake_captures_legacy(stream->ctx)) {
		fake_spoil_captures();
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return CUDA_SUCCESS;
}

CUresult fake_op_new(struct fake_stream *stream, enum fake_op_kind kind, struct fake_op **ret)
{
	struct fake_op *op;
	CUresult result = refused(stream);

	if (result == CUDA_SUCCESS)
		result = fake_wait(stream->ctx, has_room, stream);
	if (result != CUDA_SUCCESS)
		return result;
	op = calloc(1, sizeof(*op));
	ASSERT(op != NULL);
	op->stream = stream;
	stream->queued++;
	list_init(&op->record);
	op->kind = kind;
	op->seq = ++fake.seq;
	list_push_back(&stream->ops, &op->link);
	fake.counts.queued++;
	*ret = op;
	return CUDA_SUCCESS;
}

void fake_op_free(struct fake_op *op)
{
	if (op->event != NULL) {
		list_remove(&op->record);
		op->event->refs--;
		fake_event_put(op->event);
	}
	list_remove(&op->link);
	op->stream->queued--;
	free(op);
	fake.counts.queued--;
}

void fake_event_put(struct fake_event *event)
{
	if (!event->destroyed || event->refs > 0)
		return;
	list_remove(&event->link);
	free(event);
}

/* A wait is for one record; another stream may have run a later one of the same event. */
bool fake_event_done(const struct fake_event *event, uint64_t version)
{
	struct list *it;

	list_for_each (it, &event->records)
		if (list_entry(it, struct fake_op, record)->version == version)
			return false;
	return true;
}

void fake_stream_put(struct fake_stream *stream)
{
	if (!stream->destroyed || !list_empty(&stream->ops))
		return;
	list_remove(&stream->link);
	free(stream);
}

CUresult fake_stream_create(CUstream *ret, unsigned flags, int priority)
{
	struct fake_stream *stream;

	(void)priority; /* a hint: any order of what may go is legal */
	ENTER(stream_create, NEED_CONTEXT);
	if (fake_current()->lost != CUDA_SUCCESS)
		return leave(fake_current()->lost);
	if ((flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	stream = calloc(1, sizeof(*stream));
	ASSERT(stream != NULL);
	stream->ctx = fake_current();
	stream->flags = flags;
	stream->id = ++fake.stream_ids;
	list_init(&stream->ops);
	list_push_back(&fake.streams, &stream->link);
	fake.counts.streams++;
	*ret = (CUstream)stream;
	return leave(CUDA_SUCCESS);
}

/* What is in it still runs; in a lost context it goes. */
CUresult fake_stream_destroy(CUstream handle)
{
	struct fake_stream *stream;
	CUresult lost;

	ENTER(stream_destroy, NEED_INIT);
	stream = fake_stream_of(handle);
	if (stream == NULL || stream->is_default)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	lost = stream->ctx->lost;
	while (lost != CUDA_SUCCESS && !list_empty(&stream->ops))
		fake_op_free(list_first(&stream->ops, struct fake_op, link));
	stream->destroyed = true;
	fake.counts.streams--;
	fake_stream_put(stream);
	return leave(lost);
}

/* The stream of a call that looks at its work, which the legacy stream's is while another is
 * captured. */
static CUresult look(CUstream handle, struct fake_stream **ret)
{
	*ret = fake_stream_of(handle);
	if (*ret == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if ((*ret)->ctx->lost == CUDA_SUCCESS && (*ret)->is_default &&
	    fake_captures_legacy((*ret)->ctx)) {
		fake_spoil_captures();
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if ((*ret)->capturing) {
		(*ret)->spoilt = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return (*ret)->ctx->lost;
}

/* The stream of a call that only asks, if its context is there; the caller needs none of its own.
 */
static CUresult ask(CUstream handle, struct fake_stream **ret)
{
	*ret = fake_stream_of(handle);
	if (*ret == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	return (*ret)->ctx->lost;
}

CUresult fake_stream_synchronize(CUstream handle)
{
	struct fake_stream *stream;
	CUresult result;

	ENTER(stream_synchronize, NEED_CONTEXT);
	result = look(handle, &stream);
	return leave(result == CUDA_SUCCESS ? fake_drain_stream(stream) : result);
}

CUresult fake_stream_query(CUstream handle)
{
	struct fake_stream *stream;
	CUresult result;

	ENTER(stream_query, NEED_CONTEXT);
	result = look(handle, &stream);
	if (result == CUDA_SUCCESS && !list_empty(&stream->ops))
		result = CUDA_ERROR_NOT_READY;
	return leave(result);
}

CUresult fake_stream_get_ctx(CUstream handle, CUcontext *ret)
{
	struct fake_stream *stream;
	CUresult result;

	ENTER(stream_get_ctx, NEED_INIT);
	result = ask(handle, &stream);
	if (result == CUDA_SUCCESS)
		*ret = (CUcontext)stream->ctx;
	return leave(result);
}

CUresult fake_stream_get_id(CUstream handle, unsigned long long *ret)
{
	struct fake_stream *stream;
	CUresult result;

	ENTER(stream_get_id, NEED_INIT);
	result = ask(handle, &stream);
	if (result == CUDA_SUCCESS)
		*ret = stream->id;
	return leave(result);
}

CUresult fake_stream_is_capturing(CUstream handle, CUstreamCaptureStatus *ret)
{
	struct fake_stream *stream;
	CUresult result;

	ENTER(stream_is_capturing, NEED_INIT);
	result = ask(handle, &stream);
	if (result == CUDA_SUCCESS && stream->is_default && fake_captures_legacy(stream->ctx))
		result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (result == CUDA_SUCCESS)
		*ret = stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
					 : CU_STREAM_CAPTURE_STATUS_NONE;
	return leave(result);
}

CUresult fake_stream_wait_event(CUstream handle, CUevent event_handle, unsigned flags)
{
	struct fake_event *event;
	struct fake_op *op;
	CUresult result;

	ENTER(stream_wait_event, NEED_CONTEXT);
	event = event_of(event_handle);
	if (event == NULL)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (flags != 0)
		return leave(CUDA_ERROR_INVALID_VALUE);
	result = fake_op_new(fake_stream_of(handle), OP_WAIT_EVENT, &op);
	if (result != CUDA_SUCCESS)
		return leave(result);
	op->event = event;
	op->version = event->recorded;
	event->refs++;
	fake_queued();
	return leave(CUDA_SUCCESS);
}

static CUresult word_op(enum fake_op_kind kind, CUstream handle, CUdeviceptr word, uint64_t value,
			unsigned flags)
{
	struct fake_stream *stream = fake_stream_of(handle);
	struct fake_op *op;
	CUresult result;

	if (stream != NULL && fake_word(stream->ctx, word) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	result = fake_op_new(stream, kind, &op);
	if (result != CUDA_SUCCESS)
		return result;
	op->word = word;
	op->value = value;
	op->flags = flags;
	fake_queued();
	return CUDA_SUCCESS;
}

CUresult fake_stream_wait_value64(CUstream handle, CUdeviceptr word, cuuint64_t value,
				  unsigned flags)
{
	ENTER(stream_wait_value64, NEED_CONTEXT);
	if ((flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) > CU_STREAM_WAIT_VALUE_AND)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(word_op(OP_WAIT_VALUE, handle, word, value,
			     flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH));
}

CUresult fake_stream_write_value64(CUstream handle, CUdeviceptr word, cuuint64_t value,
				   unsigned flags)
{
	ENTER(stream_write_value64, NEED_CONTEXT);
	if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(word_op(OP_WRITE_VALUE, handle, word, value, flags));
}

CUresult fake_event_create(CUevent *ret, unsigned flags)
{
	struct fake_event *event;

	ENTER(event_create, NEED_CONTEXT);
	if (fake_current()->lost != CUDA_SUCCESS)
		return leave(fake_current()->lost);
	event = calloc(1, sizeof(*event));
	ASSERT(event != NULL);
	event->ctx = fake_current();
	event->flags = flags;
	list_init(&event->records);
	list_push_back(&fake.events, &event->link);
	fake.counts.events++;
	*ret = (CUevent)event;
	return leave(CUDA_SUCCESS);
}

CUresult fake_event_destroy(CUevent handle)
{
	struct fake_event *event;
	CUresult lost;

	ENTER(event_destroy, NEED_INIT);
	event = event_of(handle);
	if (event == NULL)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	lost = event->ctx->lost;
	event->destroyed = true;
	fake.counts.events--;
	fake_event_put(event);
	return leave(lost);
}

CUresult fake_event_record(CUevent event_handle, CUstream handle)
{
	struct fake_stream *stream;
	struct fake_event *event;
	struct fake_op *op;
	CUresult result;

	ENTER(event_record, NEED_CONTEXT);
	event = event_of(event_handle);
	stream = fake_stream_of(handle);
	if (event == NULL || stream == NULL || event->ctx != stream->ctx)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	result = fake_op_new(stream, OP_RECORD, &op);
	if (result != CUDA_SUCCESS)
		return leave(result);
	op->event = event;
	op->version = ++event->recorded;
	list_push_back(&event->records, &op->record);
	event->refs++;
	fake_queued();
	return leave(CUDA_SUCCESS);
}

CUresult fake_event_query(CUevent handle)
{
	const struct fake_event *event;

	ENTER(event_query, NEED_INIT);
	event = event_of(handle);
	if (event == NULL)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (event->ctx->lost != CUDA_SUCCESS)
		return leave(event->ctx->lost);
	return leave(fake_event_done(event, event->recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

struct record {
	struct fake_event *event;
	uint64_t version;
};

static bool record_done(const void *what)
{
	const struct record *record = what;

	return fake_event_done(record->event, record->version);
}

CUresult fake_event_synchronize(CUevent handle)
{
	struct record record;
	CUresult result;

	ENTER(event_synchronize, NEED_INIT);
	record.event = event_of(handle);
	if (record.event == NULL)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	record.version = record.event->recorded;
	record.event->refs++; /* another thread may destroy it meanwhile */
	result = fake_wait(record.event->ctx, record_done, &record);
	record.event->refs--;
	fake_event_put(record.event);
	return leave(result);
}

CUresult fake_event_elapsed_time(float *ret, CUevent start_handle, CUevent end_handle)
{
	const struct fake_event *start, *end;

	ENTER(event_elapsed_time, NEED_INIT);
	start = event_of(start_handle);
	end = event_of(end_handle);
	if (start == NULL || end == NULL || start->recorded == 0 || end->recorded == 0 ||
	    ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (start->ctx->lost != CUDA_SUCCESS)
		return leave(start->ctx->lost);
	if (!fake_event_done(start, start->recorded) || !fake_event_done(end, end->recorded))
		return leave(CUDA_ERROR_NOT_READY);
	*ret = (float)((double)(int64_t)(end->done_ns - start->done_ns) / 1e6);
	return leave(CUDA_SUCCESS);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills of the fake driver, as they are queued.
 */
#include "base/check.h"
#include "tests/fake/cuda/inside.h"

struct side {
	unsigned char *at;
	bool on_device;
	enum fake_place place;
};

static CUresult check_side(const struct fake_ctx *ctx, struct side *side, size_t bytes, bool write)
{
	if (!side->on_device)
		return fake_host_place(ctx, side->at, bytes, &side->place);
	side->place = PLACE_DEVICE;
	return fake_device_range(side->at, bytes, write) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The real driver bounces pageable memory and may return late or at once; nobody may count on
 * either, so here the call returns when the copy is done, as it mostly does there. */
static CUresult copy(struct fake_stream *stream, struct side to, struct side from, size_t bytes)
{
	struct fake_op *op;
	CUresult result;

	if (stream == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->ctx->lost != CUDA_SUCCESS)
		return stream->ctx->lost;
	if (bytes == 0)
		return CUDA_SUCCESS;
	result = check_side(stream->ctx, &to, bytes, true);
	if (result == CUDA_SUCCESS)
		result = check_side(stream->ctx, &from, bytes, false);
	if (result == CUDA_SUCCESS && to.at < from.at + bytes && from.at < to.at + bytes)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = fake_op_new(stream, OP_COPY, &op);
	if (result != CUDA_SUCCESS)
		return result;
	op->to = to.at;
	op->from = from.at;
	op->bytes = bytes;
	op->to_place = to.place;
	op->from_place = from.place;
	fake_queued();
	if (to.place != PLACE_PAGEABLE && from.place != PLACE_PAGEABLE)
		return CUDA_SUCCESS;
	fake.counts.unregistered++;
	return fake_drain_stream(stream);
}

CUresult fake_memcpy_htod_async(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	ENTER(memcpy_htod_async, NEED_CONTEXT);
	return leave(copy(fake_stream_of(stream),
			  (struct side){ .at = (void *)to, .on_device = true },
			  (struct side){ .at = (void *)from }, bytes));
}

CUresult fake_memcpy_dtoh_async(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER(memcpy_dtoh_async, NEED_CONTEXT);
	return leave(copy(fake_stream_of(stream), (struct side){ .at = to },
			  (struct side){ .at = (void *)from, .on_device = true }, bytes));
}

CUresult fake_memcpy_dtod_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER(memcpy_dtod_async, NEED_CONTEXT);
	return leave(copy(fake_stream_of(stream),
			  (struct side){ .at = (void *)to, .on_device = true },
			  (struct side){ .at = (void *)from, .on_device = true }, bytes));
}

CUresult fake_memset_d8_async(CUdeviceptr to, unsigned char fill, size_t bytes, CUstream handle)
{
	struct fake_stream *stream;
	struct fake_op *op;
	CUresult result;

	ENTER(memset_d8_async, NEED_CONTEXT);
	stream = fake_stream_of(handle);
	if (stream == NULL)
		return leave(CUDA_ERROR_INVALID_HANDLE);
	if (stream->ctx->lost == CUDA_SUCCESS && !fake_device_range((void *)to, bytes, true))
		return leave(CUDA_ERROR_INVALID_VALUE);
	result = fake_op_new(stream, OP_FILL, &op);
	if (result != CUDA_SUCCESS)
		return leave(result);
	op->to = (void *)to;
	op->bytes = bytes;
	op->to_place = PLACE_DEVICE;
	op->fill = fill;
	fake_queued();
	return leave(CUDA_SUCCESS);
}

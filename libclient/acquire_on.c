/* SPDX-License-Identifier: Apache-2.0
 *
 * tierd_acquire_on(): an acquire that returns when there is room and lets a stream wait for the
 * bytes. Pins may then stand on FILLING, and the daemon's fence says when that has ended.
 */
#include <errno.h>

#include "libclient/acquire.h"
#include "libclient/error.h"
#include "libclient/fence.h"
#include "libclient/gpu.h"
#include "libclient/registration.h"
#include "libclient/request.h"
#include "libclient/watcher.h"

/* Every pin stands. What can fail comes first, the views last. */
static int finish(struct tierd *t, struct want *w, struct gpu_stream *s, uint64_t token,
		  struct tierd_view *ret)
{
	int rc = want_reach(t, w);

	if (rc < 0)
		return rc;
	/* All are there, or have come meanwhile: nothing to wait for. */
	if (w->saw_filling && !fence_passed(t, token))
		rc = gpu_stream_wait(s, fence_word(t, token), fence_token_value(token),
				     error_slot());
	if (rc < 0)
		want_unpin(t, w);
	else
		want_view(t, w, ret);
	return rc;
}

/* One question and one try. TRY_MISS: the tensors have moved on. */
static int round_on(struct tierd *t, struct want *w, bool *ret_interrupted, uint64_t *ret_token,
		    size_t *ret_at)
{
	int rc = want_ask(t, w, OP_ACQUIRE_ON, ret_interrupted, ret_token);

	*ret_at = SIZE_MAX;
	if (rc >= 0)
		rc = fence_expect(t, *ret_token);
	if (rc < 0)
		return rc;
	rc = want_pin(t, w, ret_at);
	/* The fence has passed and one is filling: that may be a later fill, which it does not
	 * speak of. */
	if (rc == TRY_HIT && w->saw_filling && fence_passed(t, *ret_token)) {
		want_unpin(t, w);
		rc = TRY_MISS;
	}
	if (rc != TRY_MISS)
		return rc;
	/* It failed before the pins stood: asked again it might do so for ever. */
	rc = fence_token_failure(t, *ret_token);
	if (rc < 0)
		*ret_at = SIZE_MAX;
	return rc < 0 ? rc : TRY_MISS;
}

static int wait_on(struct tierd *t, struct want *w, struct gpu_stream *s, struct tierd_view *ret)
{
	bool interrupted = false;
	int rc = watcher_start(t);

	if (rc == 0)
		rc = registration_fences(t, s);
	if (rc < 0)
		return rc;
	w->on_stream = true;
	for (;;) {
		uint64_t token;
		size_t at;

		rc = round_on(t, w, &interrupted, &token, &at);
		if (rc == TRY_HIT)
			return finish(t, w, s, token, ret);
		if (rc != TRY_MISS)
			return at == SIZE_MAX ? rc : acquire_refused(t, w->tensors[at], rc);
		if (interrupted)
			return error_set(EINTR, "a signal came");
	}
}

static int acquire_on(struct tierd *t, struct want *w, struct gpu_stream *s, struct tierd_view *ret)
{
	size_t at = 0;
	int rc = want_pin(t, w, &at);

	if (rc == TRY_HIT)
		return finish(t, w, s, 0, ret);
	if (rc != TRY_MISS || t->no_thread)
		return want_wait(t, w, at, rc, ret);
	return wait_on(t, w, s, ret);
}

/* The memory is mapped for the GPU named alone, and the work that is to wait runs there: a stream
 * of another GPU, mostly NULL beside the wrong context, would wait in its place. */
static int check_gpu(const struct gpu_stream *s)
{
	if (likely(s->device == s->named))
		return 0;
	return error_set(EINVAL, "stream %p is of GPU %d, and the tensors are wanted on GPU %d",
			 s->handle, s->device, s->named);
}

int tierd_acquire_on(struct tierd *t, const tierd_tensor *tensors, size_t n, int gpu,
		     uint32_t access, void *cuda_stream, struct tierd_view *ret)
{
	struct want w = { .tensors = tensors,
			  .n = n,
			  .place = gpu,
			  .access = access,
			  .timeout_ns = -1,
			  .until_ns = REQUEST_NEVER };
	struct gpu_stream s;
	int rc;

	if (gpu < 0)
		return error_set(EINVAL, "place %d is no GPU", gpu);
	rc = want_check(t, &w);
	if (rc == 0)
		rc = client_usable(t);
	if (rc == 0)
		rc = gpu_stream_begin(cuda_stream, gpu, &s, error_slot());
	if (rc < 0)
		return rc;
	rc = check_gpu(&s);
	if (rc == 0 && n > 0)
		rc = acquire_on(t, &w, &s, ret);
	gpu_stream_end(&s);
	return rc;
}

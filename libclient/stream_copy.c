/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between memory of the caller's own allocator on a GPU and the host replica of a tensor, on
 * a stream of the caller. The pin ends with the stream.
 */
#include <errno.h>

#include "libclient/acquire.h"
#include "libclient/deferred.h"
#include "libclient/error.h"
#include "libclient/registration.h"

struct stream_copy {
	struct tierd *t;
	tierd_tensor tensor;
	char *gpu;
	bool up; /* to the GPU */
};

/* Where the pinned tensor stands in the zone. */
static int zone_offset(struct tierd *t, const struct tierd_view *v, uint64_t *ret)
{
	uint64_t offset = (uint64_t)((char *)v->data - (char *)t->zone.base);

	if (t->zone.bytes == 0 || (char *)v->data < (char *)t->zone.base ||
	    offset >= t->zone.bytes || v->bytes > t->zone.bytes - offset)
		return error_set(EINVAL, "tensor %u:%u was not made with TIERD_DEVICE_COPY",
				 v->tensor.index, v->tensor.generation);
	*ret = offset;
	return 0;
}

/* No copy goes over the border of what was registered at once. *ret_put: bytes on the stream. */
static int copy_pieces(struct stream_copy *k, struct gpu_stream *s, const struct tierd_view *v,
		       uint64_t offset, uint64_t *ret_put)
{
	char *host = v->data, *gpu = k->gpu;
	uint64_t put = 0;
	int rc = 0;

	while (put < v->bytes && rc == 0) {
		uint64_t bytes = MIN(v->bytes - put, ZONE_CHUNK - (offset + put) % ZONE_CHUNK);

		rc = k->up ? gpu_stream_up(s, gpu + put, host + put, bytes, error_slot())
			   : gpu_stream_down(s, host + put, gpu + put, bytes, error_slot());
		put += rc == 0 ? bytes : 0;
	}
	*ret_put = put;
	return rc;
}

static int copy_pinned(struct stream_copy *k, struct gpu_stream *s, struct tierd_view *v)
{
	uint64_t offset = 0, put = 0;
	int rc = zone_offset(k->t, v, &offset);

	if (rc == 0)
		rc = registration_zone(k->t, s, offset, v->bytes);
	if (rc == 0)
		rc = copy_pieces(k, s, v, offset, &put);
	if (rc < 0 && put == 0) {
		tierd_release(k->t, v);
		return rc;
	}
	/* The pin stands, so it is early enough to say that the old bytes go. */
	try_commit(k->t, k->tensor, v->access);
	/* Of a failed copy pieces are on the stream already: it too ends there. */
	if (rc < 0) {
		struct err first = *error_slot();

		deferred_release(k->t, s, v, 1);
		*error_slot() = first;
		return rc;
	}
	return deferred_release(k->t, s, v, 1);
}

static int copy_run(struct stream_copy *k, void *stream)
{
	struct want w = { .tensors = &k->tensor,
			  .n = 1,
			  .place = TIERD_HOST,
			  .access = k->up ? TIERD_READ : TIERD_WRITE | TIERD_DISCARD,
			  .timeout_ns = -1,
			  .uncommitted = true };
	struct gpu_stream s;
	struct tierd_view v;
	int rc = client_usable(k->t);

	if (rc == 0)
		rc = gpu_stream_begin(stream, 0, &s, error_slot());
	if (rc < 0)
		return rc;
	rc = want_acquire(k->t, &w, TRY_HIT, &v);
	if (rc == 0)
		rc = copy_pinned(k, &s, &v);
	gpu_stream_end(&s);
	return rc;
}

int tierd_read_into(struct tierd *t, tierd_tensor tensor, void *device_pointer, void *cuda_stream)
{
	struct stream_copy k = { .t = t, .tensor = tensor, .gpu = device_pointer, .up = true };

	return copy_run(&k, cuda_stream);
}

int tierd_write_from(struct tierd *t, tierd_tensor tensor, const void *device_pointer,
		     void *cuda_stream)
{
	struct stream_copy k = { .t = t, .tensor = tensor, .gpu = (char *)device_pointer };

	return copy_run(&k, cuda_stream);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a range of a tensor wherever it is. A tensor that is in a mapped place is pinned there
 * and copied by this thread; any other goes through windows of the control segment, a few at once.
 * The daemon says -EAGAIN for a piece of a tensor that became resident meanwhile: pin it.
 */
#include <errno.h>
#include <string.h>

#include "libclient/acquire.h"
#include "libclient/error.h"
#include "libclient/gpu.h"
#include "libclient/request.h"

#define PIPELINE 4u

/* One piece in a window, and where its bytes are with the caller. */
struct piece {
	struct call call;
	uint64_t at, bytes; /* from the range's begin */
};

struct copy {
	struct tierd *t;
	tierd_tensor tensor;
	uint64_t offset, bytes; /* of the range in the tensor */
	char *to;               /* copy_out; NULL: copy_in */
	const char *from;
	uint64_t sent;
	struct piece pieces[PIPELINE];
	unsigned begun, ended;
};

/* The bytes between the caller and `memory`, which is piece `at` of the range. */
static void move_bytes(struct copy *k, uint64_t at, uint64_t bytes, void *memory)
{
	if (k->to != NULL)
		memcpy(k->to + at, memory, bytes);
	else
		memcpy(memory, k->from + at, bytes);
}

/* -EREMOTE: this process cannot reach that GPU. Else as copy_pinned(), but a sentence is set where
 * it is not a try's result. */
static int copy_on_gpu(struct copy *k, uint8_t place, uint64_t at, uint64_t bytes)
{
	struct want w = { .tensors = &k->tensor,
			  .n = 1,
			  .wire_place = place,
			  .access = k->to != NULL ? TIERD_READ : TIERD_WRITE,
			  .timeout_ns = -1 };
	size_t which;
	char *data;
	int ordinal, rc;

	if (place_ordinal(k->t, place, true, &ordinal) < 0)
		return -EREMOTE;
	rc = want_pin(k->t, &w, &which);
	if (rc != TRY_HIT)
		return rc;
	rc = want_reach(k->t, &w);
	if (rc < 0)
		return -EREMOTE;
	data = (char *)reached_data(k->t, k->tensor) + k->offset + at;
	rc = k->to != NULL ? gpu_copy(ordinal, k->to + at, data, bytes, false, error_slot())
			   : gpu_copy(ordinal, data, k->from + at, bytes, true, error_slot());
	want_unpin(k->t, &w);
	try_wake_daemon(k->t);
	return rc < 0 ? -EREMOTEIO : 0;
}

/* Where the process cannot reach the GPU that the tensor is on, it is brought to the host. */
static int copy_at_host(struct copy *k, uint64_t at, uint64_t bytes)
{
	uint32_t access = k->to != NULL ? TIERD_READ : TIERD_WRITE;
	struct tierd_view v;
	int rc = tierd_acquire(k->t, k->tensor, TIERD_HOST, access, -1, &v);

	if (rc < 0)
		return rc;
	move_bytes(k, at, bytes, (char *)v.data + k->offset + at);
	tierd_release(k->t, &v);
	return 0;
}

/* Pins the tensor where it is, copies one piece, unpins. -EAGAIN: it is in no mapped place. */
static int copy_pinned(struct copy *k, uint64_t at, uint64_t bytes)
{
	uint32_t access = k->to != NULL ? TIERD_READ : TIERD_WRITE;
	struct descriptor *d = &k->t->hot.descriptors[k->tensor.index];
	uint8_t place = word0_place(atomic_load_explicit(&d->word0, memory_order_relaxed));
	uint64_t size, old;
	char *data;
	int rc;

	if (place != PROTOCOL_PLACE_HOST && k->t->by_uuid)
		return copy_on_gpu(k, place, at, bytes);
	access_log_put(k->t, k->tensor.index, place, access);
	rc = try_pin(k->t, k->tensor, place, access);
	if (rc != TRY_HIT)
		return rc;
	data = try_data(k->t, k->tensor, &size);
	if (data != NULL)
		move_bytes(k, at, bytes, data + k->offset + at);
	pin_lower(&k->t->hot.slots[k->tensor.index], access, &old);
	try_wake_daemon(k->t);
	return data != NULL ? 0 : -EPROTO;
}

/* The same with its sentence, wherever the tensor is. */
static int copy_there(struct copy *k, uint64_t at, uint64_t bytes)
{
	int rc = copy_pinned(k, at, bytes);

	switch (rc) {
	case 0:
	case -EAGAIN:
		return rc;
	case -EREMOTE:
		return copy_at_host(k, at, bytes);
	case -EREMOTEIO:
		return error_slot()->code;
	default:
		return acquire_refused(k->t, k->tensor, rc);
	}
}

static int piece_send(struct copy *k)
{
	struct piece *p = &k->pieces[k->begun % PIPELINE];
	struct sq_entry *e = &p->call.entry;
	bool others = k->begun > k->ended;
	int rc = request_begin(k->t, CALL_WINDOW | CALL_SIGNALS | (others ? CALL_TRY : 0),
			       k->to != NULL ? OP_COPY_OUT : OP_COPY_IN, &p->call);

	if (rc < 0)
		return rc;
	p->at = k->sent;
	p->bytes = MIN(k->bytes - k->sent, k->t->window_bytes);
	e->index = k->tensor.index;
	e->generation = k->tensor.generation;
	e->offset = k->offset + p->at;
	e->bytes = p->bytes;
	if (k->to == NULL)
		move_bytes(k, p->at, p->bytes, p->call.window);
	k->sent += p->bytes;
	k->begun++;
	request_submit(k->t, &p->call);
	return 0;
}

/* A piece that came back with -EAGAIN: in place, or once more by a window of its own. */
static int piece_again(struct copy *k, const struct piece *p)
{
	for (;;) {
		struct copy one = *k;
		int rc = copy_there(k, p->at, p->bytes);

		if (rc != -EAGAIN)
			return rc;
		one.begun = one.ended = 0;
		one.sent = p->at;
		one.bytes = p->at + p->bytes;
		rc = piece_send(&one);
		if (rc < 0)
			return rc;
		rc = request_wait(k->t, &one.pieces[0].call, REQUEST_NEVER);
		if (rc == -EAGAIN)
			continue;
		if (rc >= 0 && k->to != NULL)
			move_bytes(k, p->at, p->bytes, one.pieces[0].call.window);
		if (rc >= 0)
			request_end(k->t, &one.pieces[0].call);
		return rc < 0 ? rc : 0;
	}
}

static int piece_take(struct copy *k)
{
	struct piece *p = &k->pieces[k->ended % PIPELINE];
	int rc = request_wait(k->t, &p->call, REQUEST_NEVER);

	k->ended++;
	if (rc == -EAGAIN)
		return piece_again(k, p);
	if (rc < 0)
		return rc;
	if (k->to != NULL)
		move_bytes(k, p->at, p->bytes, p->call.window);
	request_end(k->t, &p->call);
	return 0;
}

/* After a failure: the others are waited for, since the daemon may be writing into their windows.
 */
static int drain(struct copy *k, int rc)
{
	struct err first = *error_slot();

	while (k->begun > k->ended) {
		struct piece *p = &k->pieces[k->ended++ % PIPELINE];

		p->call.interrupted = true;
		if (request_wait(k->t, &p->call, REQUEST_NEVER) >= 0)
			request_end(k->t, &p->call);
	}
	*error_slot() = first;
	return rc;
}

static int copy_windows(struct copy *k)
{
	while (k->sent < k->bytes || k->begun > k->ended) {
		bool send = k->sent < k->bytes && k->begun - k->ended < PIPELINE;
		int rc = send ? piece_send(k) : -EAGAIN;

		if (rc == -EAGAIN)
			rc = piece_take(k);
		if (rc < 0)
			return drain(k, rc);
	}
	return 0;
}

static int copy_run(struct copy *k)
{
	struct descriptor *d;
	int rc = client_usable(k->t);

	if (rc < 0)
		return rc;
	if (k->tensor.index >= atomic_load_explicit(&k->t->hot.count, memory_order_relaxed))
		return acquire_refused(k->t, k->tensor, TRY_STALE);
	d = &k->t->hot.descriptors[k->tensor.index];
	if (word0_generation(atomic_load_explicit(&d->word0, memory_order_acquire)) !=
		    k->tensor.generation ||
	    k->tensor.generation == 0)
		return acquire_refused(k->t, k->tensor, TRY_STALE);
	if (k->offset > d->bytes || k->bytes > d->bytes - k->offset)
		return error_set(EINVAL, "tensor %u:%u: %llu bytes at %llu leave its %llu bytes",
				 k->tensor.index, k->tensor.generation,
				 (unsigned long long)k->bytes, (unsigned long long)k->offset,
				 (unsigned long long)d->bytes);
	if (k->bytes == 0)
		return 0;
	rc = copy_there(k, 0, k->bytes);
	return rc == -EAGAIN ? copy_windows(k) : rc;
}

int tierd_copy_out(struct tierd *t, tierd_tensor tensor, uint64_t offset, void *to, uint64_t bytes)
{
	struct copy k = { .t = t, .tensor = tensor, .offset = offset, .bytes = bytes, .to = to };

	return copy_run(&k);
}

int tierd_copy_in(struct tierd *t, tierd_tensor tensor, uint64_t offset, const void *from,
		  uint64_t bytes)
{
	struct copy k = {
		.t = t, .tensor = tensor, .offset = offset, .bytes = bytes, .from = from
	};

	return copy_run(&k);
}

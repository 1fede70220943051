/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating tensors: specs are checked here first, then travel packed in payload slots, a few of
 * which are under way at once, so that packing one and the daemon's work on another overlap.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/error.h"
#include "libclient/handles.h"
#include "libclient/request.h"

#define PIPELINE  4u
#define BYTES_MAX ((uint64_t)1 << 47)

static_assert(TIERD_BOOL + 1 == PROTOCOL_DTYPES && TIERD_CLASSES == PROTOCOL_CLASSES &&
		      TIERD_NDIM_MAX == PROTOCOL_NDIM_MAX,
	      "tierd.h and the protocol name the same values");
static_assert(TIERD_DEVICE_COPY == SPEC_DEVICE_COPY, "they travel as they are");

/* Some specs under way. */
struct batch {
	struct call call;
	size_t first, n;
};

struct creation {
	struct tierd *t;
	const struct tierd_spec *specs;
	size_t n, sent;     /* specs */
	tierd_tensor *made; /* n, {0, 0} where none was made */
	struct batch batches[PIPELINE];
	unsigned begun, ended; /* batches; begun - ended are under way */
};

static int shape_check(const struct tierd_spec *s, size_t i)
{
	uint64_t bytes = dtype_bytes((uint8_t)s->dtype);
	bool zero = false;

	/* A 0 anywhere makes 0 bytes, however large the rest. */
	for (uint32_t d = 0; d < s->ndim; d++)
		zero = zero || s->shape[d] == 0;
	for (uint32_t d = 0; d < s->ndim && !zero; d++)
		if (__builtin_mul_overflow(bytes, s->shape[d], &bytes) || bytes > BYTES_MAX)
			return error_set(EOVERFLOW, "spec %zu: a shape of more than 2^47 bytes", i);
	return 0;
}

static int spec_check(struct tierd *t, const struct tierd_spec *s, size_t i)
{
	size_t name = s->name != NULL ? strnlen(s->name, TIERD_NAME_MAX + 1) : 1;

	if (name == 0 || name > TIERD_NAME_MAX)
		return error_set(EINVAL, "spec %zu: a name has 1 to %d bytes", i, TIERD_NAME_MAX);
	if ((unsigned)s->class_ >= TIERD_CLASSES)
		return error_set(EINVAL, "spec %zu: no class %d", i, (int)s->class_);
	if ((unsigned)s->dtype >= PROTOCOL_DTYPES)
		return error_set(EINVAL, "spec %zu: no dtype %d", i, (int)s->dtype);
	if (s->ndim > TIERD_NDIM_MAX)
		return error_set(EINVAL, "spec %zu: ndim %u, at most %d", i, s->ndim,
				 TIERD_NDIM_MAX);
	if ((s->flags & ~(uint64_t)TIERD_DEVICE_COPY) != 0)
		return error_set(EINVAL, "spec %zu: flags %#llx: no such flag", i,
				 (unsigned long long)s->flags);
	if ((s->reserved[0] | s->reserved[1] | s->reserved[2] | s->reserved[3]) != 0)
		return error_set(EINVAL, "spec %zu: reserved members must be 0", i);
	if ((s->flags & TIERD_DEVICE_COPY) && t->zone.bytes == 0)
		return error_set(ENOTSUP,
				 "spec %zu: TIERD_DEVICE_COPY, and the daemon has no such zone of "
				 "dram (tiers.dram.zone)",
				 i);
	return shape_check(s, i);
}

static size_t wire_bytes(const struct tierd_spec *s)
{
	size_t name = s->name != NULL ? strlen(s->name) : 0;

	return sizeof(struct wire_spec) + ALIGN_UP(name, 8);
}

static void wire_write(const struct tierd_spec *s, size_t bytes, char *to)
{
	size_t name = s->name != NULL ? strlen(s->name) : 0;
	struct wire_spec w = { .bytes = (uint32_t)bytes,
			       .flags = s->flags,
			       .class_ = (uint8_t)s->class_,
			       .dtype = (uint8_t)s->dtype,
			       .ndim = (uint8_t)s->ndim,
			       .name_bytes = (uint8_t)name };

	memcpy(w.shape, s->shape, s->ndim * sizeof(w.shape[0]));
	memcpy(to, &w, sizeof(w));
	memset(to + sizeof(w), 0, bytes - sizeof(w));
	if (name > 0)
		memcpy(to + sizeof(w), s->name, name);
}

/* Packs what fits into one payload and sends it. -EAGAIN: no slot is free and others are under way.
 */
static int batch_send(struct creation *k)
{
	struct batch *b = &k->batches[k->begun % PIPELINE];
	size_t room = k->t->payload_bytes, used = 0;
	int rc = request_begin(k->t, CALL_PAYLOAD | (k->begun > k->ended ? CALL_TRY : 0), OP_CREATE,
			       &b->call);

	if (rc < 0)
		return rc;
	b->first = k->sent;
	while (k->sent < k->n) {
		size_t bytes = wire_bytes(&k->specs[k->sent]);

		if (bytes > room - used)
			break;
		wire_write(&k->specs[k->sent], bytes, (char *)b->call.payload + used);
		used += bytes;
		k->sent++;
	}
	b->n = k->sent - b->first;
	b->call.entry.count = (uint32_t)b->n;
	b->call.entry.payload_bytes = (uint32_t)used;
	k->begun++;
	request_submit(k->t, &b->call);
	return 0;
}

/* Takes the oldest batch's answer. */
static int batch_take(struct creation *k)
{
	struct batch *b = &k->batches[k->ended % PIPELINE];
	int rc = request_wait(k->t, &b->call, REQUEST_NEVER);

	k->ended++;
	if (rc < 0)
		return rc;
	if (b->call.answer.payload_bytes != b->n * sizeof(struct wire_handle))
		rc = error_set(EPROTO, "create answered with %u bytes for %zu tensors",
			       b->call.answer.payload_bytes, b->n);
	else
		memcpy(k->made + b->first, b->call.payload, b->n * sizeof(struct wire_handle));
	request_end(k->t, &b->call);
	return rc < 0 ? rc : 0;
}

/* Keeps the pipeline full until all is sent and answered, or something failed. */
static int pump(struct creation *k)
{
	while (k->sent < k->n || k->begun > k->ended) {
		bool send = k->sent < k->n && k->begun - k->ended < PIPELINE;
		int rc = send ? batch_send(k) : -EAGAIN;

		if (rc == -EAGAIN)
			rc = batch_take(k);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* All or nothing: what other batches made goes, and the first failure is what is told. */
static void take_back(struct creation *k)
{
	struct err first;
	size_t made = 0;

	first = *error_slot();
	while (k->begun > k->ended)
		batch_take(k);
	for (size_t i = 0; i < k->n; i++)
		if (k->made[i].generation != 0)
			k->made[made++] = k->made[i];
	if (made > 0)
		handles_send(k->t, OP_DESTROY, 0, 0, k->made, made);
	*error_slot() = first;
}

int tierd_create(struct tierd *t, const struct tierd_spec *specs, size_t n, tierd_tensor *ret)
{
	struct creation k = { .t = t, .specs = specs, .n = n };
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = spec_check(t, &specs[i], i);
	if (rc < 0 || n == 0)
		return rc < 0 ? rc : client_usable(t);
	k.made = calloc(n, sizeof(*k.made));
	if (k.made == NULL)
		return error_set(ENOMEM, "no memory for %zu handles", n);
	rc = pump(&k);
	if (rc < 0)
		take_back(&k);
	else
		memcpy(ret, k.made, n * sizeof(*ret));
	free(k.made);
	return rc;
}

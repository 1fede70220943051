/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/log.h"
#include "daemon/server.h"
#include "libclient/protocol/layout.h"

#define PAYLOAD_AREA ((uint64_t)PAYLOAD_SLOTS * PAYLOAD_BYTES)

struct ring_request {
	struct connection *c;
	struct engine *engine;
	struct sq_entry entry;
	struct request_scratch *scratch;
	const struct wire_handle *handles; /* REQUEST_HANDLES: in scratch, or `single` */
	struct wire_handle single;
	size_t count;
	uint64_t now_ns;
	uint64_t value;
	size_t answer_bytes; /* in scratch->answer, copied to the payload on success */
};

/* ---- payload -------------------------------------------------------------------------------- */

static void *payload_at(const struct ring_request *r)
{
	return (char *)r->c->control.base + r->c->layout.payload + r->entry.payload;
}

/* A payload lies within one slot, so that what a client asks for and what it gets back cannot run
 * into what another of its threads has in the next one. */
static int payload_check(const struct ring_request *r, struct err *err)
{
	uint64_t at = r->entry.payload, bytes = r->entry.payload_bytes;

	if (at >= PAYLOAD_AREA || at % 8 != 0 || at % PAYLOAD_BYTES + bytes > PAYLOAD_BYTES)
		return err_set(
			err, EINVAL,
			"payload of %llu bytes at %llu: not inside a slot, or not aligned to 8",
			(unsigned long long)bytes, (unsigned long long)at);
	return 0;
}

/* Bytes that an answer may take: from the payload's start to the end of its slot. */
static size_t payload_room(const struct ring_request *r)
{
	return PAYLOAD_BYTES - r->entry.payload % PAYLOAD_BYTES;
}

static int payload_copy(struct ring_request *r, struct err *err)
{
	int rc = payload_check(r, err);

	if (rc < 0)
		return rc;
	memcpy(r->scratch->payload, payload_at(r), r->entry.payload_bytes);
	/* The copy is final: nothing below may be compiled into a second look at shared memory. */
	__asm__ volatile("" ::: "memory");
	return 0;
}

static int handles_parse(struct ring_request *r, struct err *err)
{
	uint64_t count = r->entry.count;

	if (r->entry.payload_bytes == 0) {
		if (count > 1)
			return err_set(err, EINVAL, "%llu handles without a payload",
				       (unsigned long long)count);
		r->single = (struct wire_handle){ r->entry.index, r->entry.generation };
		r->handles = &r->single;
		r->count = count;
		return 0;
	}
	if (count * sizeof(struct wire_handle) != r->entry.payload_bytes)
		return err_set(err, EINVAL, "%llu handles in a payload of %u bytes",
			       (unsigned long long)count, r->entry.payload_bytes);
	r->handles = (const struct wire_handle *)(const void *)r->scratch->payload;
	r->count = count;
	return 0;
}

static int name_parse(struct ring_request *r, struct err *err)
{
	uint32_t bytes = r->entry.payload_bytes;

	if (bytes < 1 || bytes > PROTOCOL_NAME_MAX)
		return err_set(err, EINVAL, "a name of %u bytes, 1 to %u are possible", bytes,
			       PROTOCOL_NAME_MAX);
	if (memchr(r->scratch->payload, '\0', bytes))
		return err_set(err, EINVAL, "a name with a NUL byte");
	return 0;
}

static int spec_parse(const unsigned char *at, size_t room, struct engine_spec *ret,
		      size_t *ret_bytes, struct err *err)
{
	struct wire_spec wire;
	const char *name = (const char *)at + sizeof(wire);

	if (room < sizeof(wire))
		return err_set(err, EINVAL, "the list of specs is cut short");
	memcpy(&wire, at, sizeof(wire));
	if (wire.bytes > room || wire.bytes % 8 != 0 ||
	    wire.bytes < sizeof(wire) + (size_t)wire.name_bytes)
		return err_set(err, EINVAL, "a spec of %u bytes with a name of %u: impossible",
			       wire.bytes, wire.name_bytes);
	if ((wire.flags & ~(uint64_t)SPEC_DEVICE_COPY) != 0)
		return err_set(err, EINVAL, "a spec with flags %#llx, not all are known",
			       (unsigned long long)wire.flags);
	if (memchr(name, '\0', wire.name_bytes))
		return err_set(err, EINVAL, "a name with a NUL byte");
	*ret = (struct engine_spec){ .name = wire.name_bytes ? name : NULL,
				     .name_bytes = wire.name_bytes,
				     .class_ = wire.class_,
				     .dtype = wire.dtype,
				     .ndim = wire.ndim,
				     .flags = wire.flags };
	memcpy(ret->shape, wire.shape, sizeof(ret->shape));
	*ret_bytes = wire.bytes;
	return 0;
}

static int specs_parse(struct ring_request *r, struct err *err)
{
	size_t at = 0, bytes = 0, room = r->entry.payload_bytes;
	int rc;

	if (r->entry.count < 1 || r->entry.count > REQUEST_SPECS_MAX)
		return err_set(err, EINVAL, "%u specs, 1 to %zu are possible", r->entry.count,
			       REQUEST_SPECS_MAX);
	for (r->count = 0; r->count < r->entry.count; r->count++, at += bytes) {
		rc = spec_parse(r->scratch->payload + at, room - at, &r->scratch->specs[r->count],
				&bytes, err);
		if (rc < 0)
			return rc;
	}
	if (at != room)
		return err_set(err, EINVAL, "%u specs leave %zu bytes of the payload over",
			       r->entry.count, room - at);
	return 0;
}

static int request_parse(struct ring_request *r, enum request_payload kind, struct err *err)
{
	int rc;

	if (kind == REQUEST_NOTHING)
		return r->entry.payload_bytes == 0
			       ? 0
			       : err_set(err, EINVAL, "a payload where none belongs");
	rc = kind == REQUEST_ROOM ? payload_check(r, err) : payload_copy(r, err);
	if (rc < 0)
		return rc;
	switch (kind) {
	case REQUEST_HANDLES:
		return handles_parse(r, err);
	case REQUEST_NAME:
		return name_parse(r, err);
	case REQUEST_SPECS:
		return specs_parse(r, err);
	case REQUEST_NOTHING:
	case REQUEST_ROOM:
		break;
	}
	return 0;
}

/* ---- handlers, one an opcode ---------------------------------------------------------------- */

static uint64_t deadline_of(const struct ring_request *r)
{
	uint64_t timeout_ns = (uint64_t)r->entry.timeout_ns;

	if (r->entry.timeout_ns < 0)
		return ENGINE_NEVER;
	if (timeout_ns == 0)
		return 0;
	return timeout_ns > ENGINE_NEVER - r->now_ns ? ENGINE_NEVER : r->now_ns + timeout_ns;
}

static int access_check(uint8_t access, struct err *err)
{
	bool known = (access & ~(ACCESS_READ | ACCESS_WRITE | ACCESS_DISCARD)) == 0;

	if (!known || !(access & (ACCESS_READ | ACCESS_WRITE)) ||
	    ((access & ACCESS_DISCARD) && !(access & ACCESS_WRITE)))
		return err_set(err, EINVAL,
			       "access %u is no combination of READ, WRITE and DISCARD", access);
	return 0;
}

static int request_acquire(struct ring_request *r, struct err *err)
{
	int rc = access_check(r->entry.access, err);

	if (rc < 0)
		return rc;
	/* A single acquire names its tensor in the entry and need not count it. */
	if (r->entry.payload_bytes == 0)
		r->count = 1;
	engine_acquire(r->engine, r->c->holder, r->entry.id, r->handles, r->count, r->entry.place,
		       r->entry.access, deadline_of(r), r->now_ns);
	return REQUEST_LATER;
}

static int request_acquire_on(struct ring_request *r, struct err *err)
{
	int rc = access_check(r->entry.access, err);

	if (rc < 0)
		return rc;
	if (r->entry.place == PROTOCOL_PLACE_HOST)
		return err_set(err, EINVAL, "the host has no stream that could wait");
	if (r->entry.payload_bytes == 0)
		r->count = 1;
	engine_acquire_on(r->engine, r->c->holder, r->entry.id, r->handles, r->count,
			  r->entry.place, r->entry.access, deadline_of(r), r->now_ns);
	return REQUEST_LATER;
}

static int request_cancel(struct ring_request *r, struct err *err)
{
	uint32_t id = r->entry.window;

	if (id == r->entry.id)
		return err_set(err, EINVAL, "a cancel of itself");
	/* One that is complete already is no error: the two crossed. */
	if (connection_is_outstanding(r->c, id))
		engine_cancel(r->engine, r->c->holder, id, r->now_ns);
	return 0;
}

static int request_create(struct ring_request *r, struct err *err)
{
	struct wire_handle *handles = (struct wire_handle *)(void *)r->scratch->answer;
	int rc = engine_create_tensors(r->engine, r->c->holder, r->scratch->specs, r->count,
				       handles, r->now_ns, err);

	if (rc == 0)
		r->answer_bytes = r->count * sizeof(*handles);
	if (rc != -EAGAIN)
		return rc;
	connection_hold(r->c, &r->entry);
	return REQUEST_LATER;
}

static int request_lookup(struct ring_request *r, struct err *err)
{
	struct wire_handle *handle = (struct wire_handle *)(void *)r->scratch->answer;
	int rc = engine_lookup(r->engine, r->c->holder, (const char *)r->scratch->payload,
			       r->entry.payload_bytes, handle, err);

	if (rc == 0)
		r->answer_bytes = sizeof(*handle);
	return rc;
}

static int request_destroy(struct ring_request *r, struct err *err)
{
	return engine_destroy_tensors(r->engine, r->c->holder, r->handles, r->count, r->now_ns,
				      err);
}

static int request_prefetch(struct ring_request *r, struct err *err)
{
	return engine_prefetch(r->engine, r->c->holder, r->handles, r->count, r->entry.place,
			       r->now_ns, err);
}

static int request_evict(struct ring_request *r, struct err *err)
{
	return engine_evict(r->engine, r->c->holder, r->handles, r->count, r->now_ns, err);
}

static int copy_start(struct ring_request *r, bool in, struct err *err)
{
	const struct wire_handle t = { r->entry.index, r->entry.generation };
	uint64_t end;
	char *window;

	if (r->entry.window >= WINDOW_SLOTS || r->entry.bytes > WINDOW_BYTES)
		return err_set(err, EINVAL, "copy of %llu bytes by window %u: beyond the window",
			       (unsigned long long)r->entry.bytes, r->entry.window);
	if (__builtin_add_overflow(r->entry.offset, r->entry.bytes, &end))
		return err_set(err, EINVAL, "copy of %llu bytes at %llu: beyond all sizes",
			       (unsigned long long)r->entry.bytes,
			       (unsigned long long)r->entry.offset);
	window = (char *)r->c->control.base + r->c->layout.window +
		 (uint64_t)r->entry.window * WINDOW_BYTES;
	engine_copy(r->engine, r->c->holder, r->entry.id, t, in, r->entry.offset, r->entry.bytes,
		    window, r->now_ns);
	return REQUEST_LATER;
}

static int request_copy_out(struct ring_request *r, struct err *err)
{
	return copy_start(r, false, err);
}

static int request_copy_in(struct ring_request *r, struct err *err)
{
	return copy_start(r, true, err);
}

static int request_step(struct ring_request *r, struct err *err)
{
	engine_step(r->engine, r->c->holder, r->now_ns);
	return 0;
}

static int request_flush(struct ring_request *r, struct err *err)
{
	engine_flush(r->engine, r->c->holder, r->entry.id, r->handles, r->count, r->now_ns);
	return REQUEST_LATER;
}

static int request_stat(struct ring_request *r, struct err *err)
{
	const struct wire_handle t = { r->entry.index, r->entry.generation };
	int n = engine_stat(r->engine, t, r->scratch->answer, payload_room(r), err);

	if (n < 0)
		return n;
	if (n == 0)
		return err_set(err, EINVAL, "no room for the answer in %zu bytes", payload_room(r));
	r->answer_bytes = (size_t)n;
	return 0;
}

static int request_list(struct ring_request *r, struct err *err)
{
	uint32_t next = 0;

	if (r->entry.offset > UINT32_MAX)
		return err_set(err, EINVAL, "list from index %llu: beyond the table",
			       (unsigned long long)r->entry.offset);
	r->answer_bytes = engine_list(r->engine, (uint32_t)r->entry.offset, r->scratch->answer,
				      payload_room(r), &next);
	r->value = next;
	return 0;
}

static int request_explain(struct ring_request *r, struct err *err)
{
	const struct wire_handle t = { r->entry.index, r->entry.generation };
	int n = engine_explain(r->engine, t, r->scratch->answer, payload_room(r), r->now_ns, err);

	if (n < 0)
		return n;
	if (n == 0)
		return err_set(err, EINVAL, "no room for the answer in %zu bytes", payload_room(r));
	r->answer_bytes = (size_t)n;
	return 0;
}

static int request_waits(struct ring_request *r, struct err *err)
{
	r->answer_bytes = engine_waits(r->engine, r->entry.offset, r->scratch->answer,
				       payload_room(r), r->now_ns, &r->value);
	return 0;
}

static int request_quotas(struct ring_request *r, struct err *err)
{
	r->answer_bytes = engine_quotas(r->engine, r->entry.offset, r->scratch->answer,
					payload_room(r), &r->value);
	return 0;
}

static int request_trim(struct ring_request *r, struct err *err)
{
	engine_trim(r->engine);
	return 0;
}

static int request_mark(struct ring_request *r, struct err *err)
{
	engine_mark(r->engine, r->now_ns);
	return 0;
}

/* The message goes before the completion, so that who waits for one finds the other. */
static int request_slab(struct ring_request *r, struct err *err)
{
	struct connection *c = r->c;
	uint32_t arena = r->entry.index;
	uint64_t offset = r->entry.offset, bytes = 0;
	int rc = notices_check(&c->notices, arena, offset, err), fd;

	if (rc < 0)
		return rc;
	fd = engine_slab_fd(r->engine, c->holder, arena, offset, &bytes, err);
	if (fd < 0)
		return fd;
	rc = notices_map(&c->notices, c->socket_fd, arena, offset, fd, err);
	/* Another of its threads may have got it before. */
	if (rc < 0 && !notices_mapped(&c->notices, arena, offset))
		(void)engine_slab_gone(r->engine, c->holder, arena, offset, r->now_ns, NULL);
	return rc;
}

static int request_slab_gone(struct ring_request *r, struct err *err)
{
	struct connection *c = r->c;
	uint32_t arena = r->entry.index;
	int rc = notices_check(&c->notices, arena, r->entry.offset, err);

	if (rc < 0)
		return rc;
	notices_gone(&c->notices, arena, r->entry.offset);
	return engine_slab_gone(r->engine, c->holder, arena, r->entry.offset, r->now_ns, err);
}

static int request_slab_kept(struct ring_request *r, struct err *err)
{
	struct connection *c = r->c;
	uint32_t arena = r->entry.index;
	int rc = notices_check(&c->notices, arena, r->entry.offset, err);

	if (rc < 0)
		return rc;
	notices_kept(&c->notices, arena, r->entry.offset);
	return engine_slab_kept(r->engine, c->holder, arena, r->entry.offset, err);
}

static const struct request_row rows[] = {
	[OP_ACQUIRE] = { "ACQUIRE", REQUEST_HANDLES, request_acquire },
	[OP_CANCEL] = { "CANCEL", REQUEST_NOTHING, request_cancel },
	[OP_CREATE] = { "CREATE", REQUEST_SPECS, request_create },
	[OP_LOOKUP] = { "LOOKUP", REQUEST_NAME, request_lookup },
	[OP_DESTROY] = { "DESTROY", REQUEST_HANDLES, request_destroy },
	[OP_PREFETCH] = { "PREFETCH", REQUEST_HANDLES, request_prefetch },
	[OP_EVICT] = { "EVICT", REQUEST_HANDLES, request_evict },
	[OP_COPY_OUT] = { "COPY_OUT", REQUEST_NOTHING, request_copy_out },
	[OP_COPY_IN] = { "COPY_IN", REQUEST_NOTHING, request_copy_in },
	[OP_STEP] = { "STEP", REQUEST_NOTHING, request_step },
	[OP_FLUSH] = { "FLUSH", REQUEST_HANDLES, request_flush },
	[OP_STAT] = { "STAT", REQUEST_ROOM, request_stat },
	[OP_LIST] = { "LIST", REQUEST_ROOM, request_list },
	[OP_TRIM] = { "TRIM", REQUEST_NOTHING, request_trim },
	[OP_MARK] = { "MARK", REQUEST_NOTHING, request_mark },
	[OP_ACQUIRE_ON] = { "ACQUIRE_ON", REQUEST_HANDLES, request_acquire_on },
	[OP_SLAB] = { "SLAB", REQUEST_NOTHING, request_slab },
	[OP_SLAB_GONE] = { "SLAB_GONE", REQUEST_NOTHING, request_slab_gone },
	[OP_EXPLAIN] = { "EXPLAIN", REQUEST_ROOM, request_explain },
	[OP_WAITS] = { "WAITS", REQUEST_ROOM, request_waits },
	[OP_QUOTAS] = { "QUOTAS", REQUEST_ROOM, request_quotas },
	[OP_SLAB_KEPT] = { "SLAB_KEPT", REQUEST_NOTHING, request_slab_kept },
};

const struct request_row *request_row(uint16_t opcode)
{
	return opcode < ARRAY_SIZE(rows) && rows[opcode].run ? &rows[opcode] : NULL;
}

/* ---- one entry ------------------------------------------------------------------------------ */

static void answer_put(const struct ring_request *r)
{
	ASSERT(r->answer_bytes <= payload_room(r));
	memcpy(payload_at(r), r->scratch->answer, r->answer_bytes);
}

static int request_run(struct ring_request *r, struct err *err)
{
	const struct request_row *row = request_row(r->entry.opcode);
	int rc;

	if (!row)
		return err_set(err, EOPNOTSUPP, "opcode %u is not known", r->entry.opcode);
	rc = request_parse(r, row->payload, err);
	if (rc == 0 && row->payload == REQUEST_NAME && payload_room(r) < sizeof(struct wire_handle))
		rc = err_set(err, EINVAL, "no room for the answer");
	if (rc == 0)
		rc = row->run(r, err);
	log_trace(REQUEST, "client %u: request %u: %s: %d", r->c->id, r->entry.id, row->name, rc);
	return rc;
}

void request_handle(struct connection *c, const struct sq_entry *entry, uint64_t now_ns)
{
	struct ring_request r = { .c = c,
				  .engine = c->domain->engine,
				  .entry = *entry,
				  .scratch = server_scratch(c->server),
				  .now_ns = now_ns };
	struct err err = ERR_INIT;
	int rc = request_run(&r, &err);

	if (rc == REQUEST_LATER)
		return;
	if (rc == 0 && r.answer_bytes > 0)
		answer_put(&r);
	connection_complete(c, entry->id, rc, r.value, rc == 0 ? (uint32_t)r.answer_bytes : 0,
			    err.text);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything about tensors that is no acquire and no copy: each call is a request or a few.
 */
#include <errno.h>
#include <string.h>

#include "libclient/acquire.h"
#include "libclient/error.h"
#include "libclient/fence.h"
#include "libclient/handles.h"
#include "libclient/info.h"
#include "libclient/request.h"

static_assert(sizeof(tierd_tensor) == sizeof(struct wire_handle), "handles travel as they are");

static int send_list(struct tierd *t, uint16_t opcode, unsigned needs, uint8_t place,
		     const tierd_tensor *tensors, size_t n)
{
	struct call c;
	int rc = request_begin(t, needs | (n > 0 ? CALL_PAYLOAD : 0), opcode, &c);

	if (rc < 0)
		return rc;
	c.entry.place = place;
	c.entry.count = (uint32_t)n;
	c.entry.payload_bytes = (uint32_t)(n * sizeof(struct wire_handle));
	if (n > 0)
		memcpy(c.payload, tensors, c.entry.payload_bytes);
	rc = request_run(t, &c, REQUEST_NEVER);
	return rc < 0 ? rc : 0;
}

int handles_send(struct tierd *t, uint16_t opcode, unsigned needs, uint8_t place,
		 const tierd_tensor *tensors, size_t n)
{
	size_t most = t->payload_bytes / sizeof(struct wire_handle), done = 0;
	struct err first = ERR_INIT;

	do {
		size_t some = MIN(n - done, most);
		int rc = send_list(t, opcode, needs, place, tensors + done, some);

		if (rc < 0 && first.code == 0)
			first = *error_slot();
		if (rc == -EINTR || rc == -EPIPE || rc == -EPERM)
			break;
		done += some;
	} while (done < n);
	if (first.code != 0)
		*error_slot() = first;
	return first.code;
}

static int name_check(const char *name, size_t *ret_bytes)
{
	size_t n = name != NULL ? strnlen(name, TIERD_NAME_MAX + 1) : 0;

	if (n == 0 || n > TIERD_NAME_MAX)
		return error_set(EINVAL, "a name has 1 to %d bytes", TIERD_NAME_MAX);
	*ret_bytes = n;
	return 0;
}

int tierd_lookup(struct tierd *t, const char *name, tierd_tensor *ret)
{
	struct call c;
	tierd_tensor found;
	size_t n = 0;
	int rc = name_check(name, &n);

	if (rc == 0)
		rc = request_begin(t, CALL_PAYLOAD, OP_LOOKUP, &c);
	if (rc < 0)
		return rc;
	memcpy(c.payload, name, n);
	c.entry.payload_bytes = (uint32_t)n;
	request_submit(t, &c);
	rc = request_wait(t, &c, REQUEST_NEVER);
	if (rc < 0)
		return rc;
	memcpy(&found, c.payload, sizeof(found));
	rc = c.answer.payload_bytes == sizeof(found)
		     ? 0
		     : error_set(EPROTO, "lookup answered with %u bytes", c.answer.payload_bytes);
	request_end(t, &c);
	if (rc == 0)
		*ret = found;
	return rc;
}

int tierd_destroy(struct tierd *t, const tierd_tensor *tensors, size_t n)
{
	return n == 0 ? client_usable(t) : handles_send(t, OP_DESTROY, 0, 0, tensors, n);
}

static int hint(struct tierd *t, uint16_t opcode, int place, const tierd_tensor *tensors, size_t n)
{
	uint8_t wire_place;
	int rc = 0;

	if (n > TIERD_BATCH_MAX)
		return error_set(E2BIG, "%zu tensors at once, at most %d", n, TIERD_BATCH_MAX);
	if (!place_to_wire(t, place, &wire_place))
		rc = place_find(t, place, &wire_place);
	if (rc < 0)
		return rc;
	return n == 0 ? client_usable(t) : handles_send(t, opcode, 0, wire_place, tensors, n);
}

int tierd_prefetch(struct tierd *t, const tierd_tensor *tensors, size_t n, int place)
{
	return hint(t, OP_PREFETCH, place, tensors, n);
}

int tierd_evict(struct tierd *t, const tierd_tensor *tensors, size_t n)
{
	return hint(t, OP_EVICT, TIERD_HOST, tensors, n);
}

int tierd_flush(struct tierd *t, const tierd_tensor *tensors, size_t n)
{
	int rc = handles_send(t, OP_FLUSH, CALL_SIGNALS, 0, tensors, n);

	return rc < 0 ? rc : fence_failure(t);
}

int tierd_step(struct tierd *t)
{
	struct call c;
	int rc = request_begin(t, CALL_TRY, OP_STEP, &c);

	/* No id is free: hundreds of requests wait, and this iteration goes unmarked. */
	if (rc < 0 && rc != -EAGAIN)
		return rc;
	if (rc == 0)
		request_send(t, &c);
	return fence_failure(t);
}

int tierd_trim(struct tierd *t)
{
	struct call c;
	int rc = request_begin(t, 0, OP_TRIM, &c);

	if (rc < 0)
		return rc;
	rc = request_run(t, &c, REQUEST_NEVER);
	return rc < 0 ? rc : 0;
}

int tierd_stat(struct tierd *t, tierd_tensor tensor, struct tierd_info *ret)
{
	struct tierd_info info;
	struct call c;
	int rc = request_begin(t, CALL_PAYLOAD, OP_STAT, &c);

	if (rc < 0)
		return rc;
	c.entry.index = tensor.index;
	c.entry.generation = tensor.generation;
	request_submit(t, &c);
	rc = request_wait(t, &c, REQUEST_NEVER);
	if (rc < 0)
		return rc;
	rc = info_read(c.payload, c.answer.payload_bytes, &info);
	request_end(t, &c);
	if (rc < 0)
		return error_set(EPROTO, "stat answered with a record that cannot be");
	if (info.place != TIERD_HOST && t->by_uuid &&
	    place_ordinal(t, (uint8_t)info.place, false, &info.place) < 0)
		info.place = TIERD_ELSEWHERE;
	*ret = info;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/bytes.h"
#include "tests/system/client_rig.h"
#include "tests/unit/point.h"

#include <string.h>

static struct system tierd_system;
struct system *const s = &tierd_system;
struct tierd *t;

void connect_as(const char *name_space)
{
	ck_assert_msg(tierd_open(s->socket, name_space, 0, &t) == 0, "%s", tierd_error(NULL));
}

void end(void)
{
	tierd_close(t);
	system_stop(s);
}

tierd_tensor make_named(const char *name, uint64_t bytes)
{
	struct tierd_spec spec = { .name = name, .ndim = 1, .shape = { bytes } };
	tierd_tensor h;

	ck_assert_msg(tierd_create(t, &spec, 1, &h) == 0, "%s", tierd_error(t));
	return h;
}

tierd_tensor make(uint64_t bytes)
{
	return make_named(NULL, bytes);
}

struct tierd_view hold(tierd_tensor h, int place, uint32_t access)
{
	struct tierd_view v;

	ck_assert_msg(tierd_acquire(t, h, place, access, WAIT, &v) == 0, "place %d: %s", place,
		      tierd_error(t));
	return v;
}

void fill(tierd_tensor h, int place, int byte)
{
	struct tierd_view v = hold(h, place, TIERD_WRITE | TIERD_DISCARD);

	bytes_fill(v.data, byte, v.bytes);
	tierd_release(t, &v);
}

void expect(tierd_tensor h, int place, int byte)
{
	struct tierd_view v = hold(h, place, TIERD_READ);

	ck_assert_msg(system_bytes_are(v.data, (unsigned char)byte, v.bytes),
		      "tensor %u in place %d: not all of its %llu bytes are %d", h.index, place,
		      (unsigned long long)v.bytes, byte);
	tierd_release(t, &v);
}

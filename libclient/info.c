/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/info.h"

#include <errno.h>
#include <string.h>

#include "libclient/protocol/layout.h"

static void copy_numbers(const struct wire_info *w, struct tierd_info *ret)
{
	ret->tensor = (tierd_tensor){ w->index, w->generation };
	ret->class_ = (enum tierd_class)w->class_;
	ret->dtype = (enum tierd_dtype)w->dtype;
	ret->ndim = w->ndim;
	memcpy(ret->shape, w->shape, sizeof(ret->shape));
	ret->bytes = w->tensor_bytes;
	ret->version = w->version;
	ret->state = w->state;
	ret->place = w->place == PROTOCOL_PLACE_HOST ? TIERD_HOST : w->place;
	ret->dirty = w->dirty;
	ret->pins = w->pins;
	memcpy(ret->stored_bytes, w->stored_bytes, sizeof(ret->stored_bytes));
}

int info_read(const void *from, size_t room, struct tierd_info *ret)
{
	const char *names = (const char *)from + sizeof(struct wire_info);
	struct wire_info w;
	size_t need;

	if (room < sizeof(w))
		return -EPROTO;
	memcpy(&w, from, sizeof(w));
	need = sizeof(w) + w.name_bytes + w.name_space_bytes;
	if (w.bytes < need || w.bytes > room || w.bytes % 8 != 0 || w.ndim > TIERD_NDIM_MAX)
		return -EPROTO;
	memset(ret, 0, sizeof(*ret));
	copy_numbers(&w, ret);
	memcpy(ret->name, names, w.name_bytes);
	memcpy(ret->name_space, names + w.name_bytes, w.name_space_bytes);
	return (int)w.bytes;
}

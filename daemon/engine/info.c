/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine tells of tensors.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine/front.h"
#include "daemon/engine/pins.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/replica.h"
#include "daemon/engine/request.h"
#include "daemon/engine/slabs.h"

#define LIST_LOOKS 65536u

static size_t write_info(struct engine *e, uint32_t tensor, void *to, size_t room)
{
	const struct record *r = record_of(e, tensor);
	const char *ns_name = e->name_spaces[r->name_space].name, *name = "";
	uint64_t word0 = word0_of(e, tensor);
	size_t ns_bytes = strlen(ns_name), name_bytes, bytes;
	struct wire_info info = { 0 };
	struct pins pins;
	uint8_t sources;
	uint32_t ns;

	name_bytes = namemap_name(e->names, tensor, &name, &ns);
	bytes = ALIGN_UP(sizeof(info) + name_bytes + ns_bytes, 8);
	if (bytes > room)
		return 0;
	pins_scan(e, tensor, NULL, &pins);
	sources = front_sources_now(e, tensor, &pins);
	info.bytes = (uint32_t)bytes;
	info.class_ = r->class_;
	info.dtype = r->dtype;
	info.ndim = r->ndim;
	info.name_bytes = (uint8_t)name_bytes;
	info.name_space_bytes = (uint8_t)ns_bytes;
	info.state = word0_state(word0);
	info.place = word0_place(word0);
	info.index = tensor;
	info.generation = word0_generation(word0);
	info.pins = pins.pins;
	info.tensor_bytes = r->bytes;
	info.version = r->version;
	if (r->front != DEVICE_NONE)
		info.dirty = (sources & ~front_source(e, r)) == 0;
	for (unsigned kind = 0; kind < TIER_KINDS; kind++)
		if (sources & 1u << kind)
			info.stored_bytes[kind] =
				ALIGN_UP(r->bytes, r->bytes < GRANULE ? GRANULE_SMALL : GRANULE);
	memcpy(info.shape, r->shape, sizeof(info.shape));
	memset((char *)to + bytes - 8, 0, 8);
	memcpy(to, &info, sizeof(info));
	memcpy((char *)to + sizeof(info), name, name_bytes);
	memcpy((char *)to + sizeof(info) + name_bytes, ns_name, ns_bytes);
	return bytes;
}

int engine_stat(struct engine *e, struct wire_handle t, void *to, size_t room, struct err *err)
{
	if (!handle_live(e, t.index, t.generation))
		return err_set(err, ESTALE, "tensor %u:%u was destroyed", t.index, t.generation);
	return (int)write_info(e, t.index, to, room);
}

size_t engine_list(struct engine *e, uint32_t from, void *to, size_t room, uint32_t *next)
{
	/* A slot of each client a tensor: a call is short however many clients there are, and
	 * however many tensors are no more. */
	uint32_t first = MAX(from, 1u), at_once = MAX(LIST_LOOKS / (1 + e->holder_room), 16u);
	size_t used = 0;

	for (uint32_t i = first; i < e->index_high; i++) {
		size_t n;

		if (i - first == at_once) {
			*next = i;
			return used;
		}
		if ((e->records[i].flags & RECORD_LIVE) == 0)
			continue;
		n = write_info(e, i, (char *)to + used, room - used);
		if (n == 0) {
			*next = i;
			return used;
		}
		used += n;
	}
	*next = 0;
	return used;
}

void slabs_count_backed(struct engine *e, enum tier_kind kind)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < e->params.device_count; i++) {
		const struct slabs *s = e->devices[i].slabs;
		uint64_t here = s != NULL ? s->backed_bytes : e->devices[i].tier->base.bytes;

		if (device_kind(e, (uint8_t)i) != kind)
			continue;
		if (e->devices[i].lost)
			here = 0;
		stat_set(STAT(e, device[i].backed_bytes), here);
		stat_set(STAT(e, device[i].lost), e->devices[i].lost);
		bytes += here;
	}
	stat_set(STAT(e, tier[kind].backed_bytes), bytes);
}
